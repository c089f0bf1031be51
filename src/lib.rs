//! The contract of refmill: the words that the trusted supervisor and the confined worker both speak.
//!
//! | module | what it names |
//! | --- | --- |
//! | [`job`] | what is asked of a worker: one image, one recipe, the wanted artifacts |
//! | [`recipe`] | the tensors derived from one image, and [`geometry`], where their pixels come from |
//! | [`limits`] | the finite bounds that hold before anything is allocated |
//! | [`finding`] | what was wrong or remarkable, by stable code, and what was done about it |
//! | [`policy`] | what is done about a finding: repair, reject or ignore |
//! | [`report`] | what is answered: outcome, verdict, artifacts, times |
//! | [`beat`] | a worker's sign of life, and what it counted |
//! | [`failure`] | why a job ended without artifacts, and who is to blame |
//! | [`posture`] | what confines a worker, and what it tried in vain |
//! | [`examine`] | what a worker tries out on itself when asked to |
//! | [`wire`] | how requests and events cross the process boundary, bounded both ways |
//! | [`exit`] | the numbers that both programs end with |
//!
//! This crate touches no file, no socket, no clock and no device.
#![forbid(unsafe_code)]

pub mod beat;
pub mod examine;
pub mod exit;
pub mod failure;
pub mod finding;
pub mod geometry;
pub mod job;
pub mod limits;
pub mod policy;
pub mod posture;
pub mod recipe;
pub mod report;
pub mod wire;
