//! The failures file: one line a failed input, as JSON, which `refmill batch --retry` takes. It is written beside its
//! place and put there at the end, so that a retry can write where it reads.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use refmill::failure::Failure;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

/// Longest failures file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// One failed input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The place of all inputs, as it was named.
    pub input: String,
    /// The input's key or path below it.
    pub key: String,
    /// Why it failed.
    pub error: Failure,
}

/// Why a failures file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FailuresError {
    /// The file.
    #[error("cannot {what} failures file {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line.
    #[error("line {line} of {} is not one of a failures file: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
        /// Why.
        why: String,
    },
}

/// Reads a failures file.
///
/// # Errors
/// [`FailuresError`]; inputs of two places are told as the line where the second begins.
pub fn read(path: &Path) -> Result<Vec<Failed>, FailuresError> {
    let failed = |source| FailuresError::File { what: "read", path: path.to_owned(), source };
    if fs::metadata(path).map_err(failed)?.len() > MAX_BYTES {
        return Err(failed(io::Error::other(format!("it has over {MAX_BYTES} bytes"))));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let mut all: Vec<Failed> = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |why| FailuresError::Line { path: path.to_owned(), line: number, why };
        let one: Failed = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        if let Some(first) = all.first().filter(|first| first.input != one.input) {
            return Err(wrong(format!("its input is {}, that of the first line {}", one.input, first.input)));
        }
        all.push(one);
    }
    Ok(all)
}

/// A failures file while it is written.
#[derive(Debug)]
pub struct Failures {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
    count: u64,
}

impl Failures {
    /// Begins a file that will lie at `path`.
    ///
    /// # Errors
    /// [`FailuresError::File`]
    pub fn begin(path: &Path) -> Result<Self, FailuresError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new().prefix(".refmill-").tempfile_in(folder);
        let file = file.map_err(|source| FailuresError::File { what: "write", path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file), count: 0 })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// [`FailuresError::File`]
    pub fn add(&mut self, failed: &Failed) -> Result<(), FailuresError> {
        self.count += 1;
        // Texts and names: it always serialises.
        let line = serde_json::to_string(failed).unwrap_or_default();
        writeln!(self.file, "{line}").map_err(|source| self.failed(source))
    }

    /// How many lines there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Its place.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the file in its place; an empty one only where there is one already.
    ///
    /// # Errors
    /// [`FailuresError::File`]
    pub fn finish(self) -> Result<(), FailuresError> {
        let failed = |source| FailuresError::File { what: "write", path: self.path.clone(), source };
        if self.count == 0 && !self.path.exists() {
            return Ok(());
        }
        let file = self.file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.persist(&self.path).map(drop).map_err(|error| failed(error.error))
    }

    fn failed(&self, source: io::Error) -> FailuresError {
        FailuresError::File { what: "write", path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refmill::failure::Code;

    fn failed(key: &str) -> Failed {
        Failed { input: "s3://in/".into(), key: key.into(), error: Failure::new(Code::Corrupt, "no end") }
    }

    #[test]
    fn what_is_written_is_read_back_and_an_empty_file_replaces_an_old_one() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("failures.jsonl");
        Failures::begin(&path).unwrap().finish().unwrap();
        assert!(!path.exists());
        let mut file = Failures::begin(&path).unwrap();
        file.add(&failed("a\nb.jpg")).unwrap();
        file.finish().unwrap();
        assert_eq!(read(&path).unwrap(), [failed("a\nb.jpg")]);
        Failures::begin(&path).unwrap().finish().unwrap();
        assert_eq!(read(&path).unwrap(), []);
    }

    #[test]
    fn line_that_is_none_is_told_with_its_number() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        let good = serde_json::to_string(&failed("a")).unwrap();
        fs::write(&path, format!("{good}\n\n{{}}\n")).unwrap();
        assert!(read(&path).unwrap_err().to_string().starts_with("line 3 of "));
        fs::write(&path, format!("{good}\n{}\n", good.replace("s3://in/", "s3://other/"))).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("its input is s3://other/"));
    }
}
