//! `refmill batch` between folders and a real S3 server, Garage, whose objects another client writes: boto3. Needs
//! `garage` (`REFMILL_TEST_S3_SERVER`, or on the path) and a Python with boto3 (`REFMILL_TEST_PYTHON`, or `python3`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod bucket;
mod faults;
mod folders;
mod killed;
mod place;
mod server;
