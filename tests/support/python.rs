//! A Python with the packages that read refmill's files without knowing refmill.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

use super::skipped;

/// The interpreter, where it has the package: `REFMILL_TEST_PYTHON`, else `python3`.
pub struct Python(OsString);

impl Python {
    /// None, said aloud, where the package is missing; with `CI` set that is a failure.
    pub fn with(package: &str) -> Option<Self> {
        let python = std::env::var_os("REFMILL_TEST_PYTHON").unwrap_or_else(|| "python3".into());
        let has_it = Command::new(&python).args(["-c", &format!("import {package}")]).output();
        if has_it.is_ok_and(|output| output.status.success()) {
            return Some(Self(python));
        }
        skipped(&format!(
            "{} has no `{package}`; install it with `python3 -m venv .venv && .venv/bin/pip install safetensors numpy \
             jsonschema` and set REFMILL_TEST_PYTHON=$PWD/.venv/bin/python",
            Path::new(&python).display()
        ));
        None
    }

    /// Runs a script with arguments.
    pub fn run(&self, script: &str, arguments: &[&Path]) -> Output {
        Command::new(&self.0).args(["-c", script]).args(arguments).output().unwrap()
    }
}
