//! refmill from outside: the two programs as processes, their files, their exit codes. Needs them built beside the
//! tests: `cargo build --workspace --features refmill-worker/heif`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod browser;
mod cli;
mod corpus;
mod limits;
mod outputs;
mod pipeline;
mod process;
mod python;
mod sandbox;
mod support;
