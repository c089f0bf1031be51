//! The confined side of refmill. This crate trusts nothing: every byte it reads is a claim until it was checked.
//! It may touch image bytes, memory, and the one GPU that it was given; never the network, the queue or credentials.

pub mod orientation;
pub mod srgb;
