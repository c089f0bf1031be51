//! The HTTP server of `refmill serve`, asked by a client that knows nothing of it but the bytes on the wire.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod client;
mod metrics;
#[path = "../served/mod.rs"]
mod served;
mod server;
