//! The programs under test, which cargo builds beside the tests.

use std::path::{Path, PathBuf};

/// The command line program. Its worker must be there as well, since it looks for it there.
pub fn refmill() -> PathBuf {
    worker();
    program("refmill")
}

/// The worker.
pub fn worker() -> PathBuf {
    program("refmill-worker")
}

fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join(name);
    assert!(
        path.is_file(),
        "{} is not built; run `cargo build --workspace --features refmill-worker/heif` first",
        path.display()
    );
    path
}
