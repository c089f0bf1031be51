//! The confined side of refmill. This crate trusts nothing: every byte it reads is a claim until it was checked.
//! It may touch image bytes, memory, and the one GPU that it was given; never the network, the queue or credentials.
//!
//! The flow is written in [`pipeline`]: [`open`] → [`inspect`] → [`repair`] → [`decode`] → [`colour`] → upload
//! ([`gpu`]) → [`tensors`] → report.

pub mod baseline;
pub mod bytes;
pub mod channel;
pub mod colour;
pub mod container;
pub mod decode;
pub mod device;
pub mod encode;
pub mod evidence;
pub mod examine;
pub mod exif;
pub mod gpu;
pub mod headers;
pub mod icc;
pub mod ifd;
pub mod inspect;
pub mod open;
pub mod orientation;
pub mod pipeline;
pub mod pulse;
pub mod region;
pub mod repair;
pub mod rewrite;
pub mod sandbox;
pub mod session;
pub mod srgb;
pub mod tensors;
pub mod thumbnails;
