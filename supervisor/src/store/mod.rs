//! Object stores and folders as the two ends of a batch.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`location`] | what `s3://bucket/prefix` and a folder mean, and how two of them lie to each other |
//! | [`names`], [`mark`] | what artifacts are called, and how it is known that they are complete |
//! | [`profile`], [`connection`] | settings, credentials, the runtime; retries, pace and patience |
//! | [`bucket`], [`listing`], [`upload`], [`folder`] | one end: listed, read, written |
//! | [`inputs`], [`outputs`] | both kinds of ends alike |
//! | [`shelf`], [`source`] | what is fetched ahead of the workers, and the tasks that they get |
//! | [`failures`] | the file of what failed |
//!
//! The supervisor waits in threads. The runtime that the HTTP client needs stays inside [`connection`]: every call from
//! outside blocks its thread until the answer is there, time is up, or the user wants to stop.

pub mod bucket;
pub mod connection;
pub mod error;
pub mod failures;
pub mod folder;
pub mod inputs;
pub mod listing;
pub mod location;
pub mod mark;
pub mod names;
pub mod outputs;
pub mod profile;
pub mod shelf;
pub mod source;
pub mod upload;
