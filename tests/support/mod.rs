//! What the tests stand on: the programs, the fixtures, a folder of one's own, and what came out.

pub mod bins;
pub mod fixtures;
pub mod forged;
pub mod python;
pub mod running;
pub mod scratch;
pub mod tensors;

/// Says aloud that a test did not run, and why. With `CI` set it fails instead: there everything must run.
pub fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    eprintln!("skipped: {why}");
}
