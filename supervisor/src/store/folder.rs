//! A folder as the place of artifacts. A file that is being written has another name; which names are being written is
//! told by an unfinished report, so that what a killed batch left is known as its own.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::error::{Kind, StoreError};
use super::outputs::MAX_REPORT;
use crate::publish;

/// Ending of what is not finished.
const UNFINISHED: &str = ".refmill-part";

/// A folder that this process alone writes a batch into.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    _lock: Flock<File>,
}

impl Folder {
    /// Makes the folder where it is not there, and takes it for this process.
    ///
    /// # Errors
    /// [`Kind::Refused`]; [`Kind::Exists`] where another batch writes into it.
    pub fn take(root: &Path) -> Result<Self, StoreError> {
        let refused = |error: io::Error| {
            StoreError::new(Kind::Refused, format!("cannot use the output folder {}: {error}", root.display()))
        };
        fs::create_dir_all(root).map_err(refused)?;
        let root = root.canonicalize().map_err(refused)?;
        let folder = File::open(&root).map_err(refused)?;
        let lock = Flock::lock(folder, FlockArg::LockExclusiveNonblock).map_err(|_| {
            StoreError::new(Kind::Exists, format!("another batch writes into the output folder {}", root.display()))
        })?;
        Ok(Self { root, _lock: lock })
    }

    /// Its path, without links.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// All of a small file; none where there is no such file.
    pub(super) fn small(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let read = |file: File| {
            let mut text = String::new();
            file.take(MAX_REPORT as u64).read_to_string(&mut text).map(|_| text.into_bytes())
        };
        match File::open(self.path(name)).and_then(read) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(unwritable(&error)),
        }
    }

    /// Before anything of these names is written: makes sure that it may be, and leaves word that it is.
    pub(super) fn begin(&self, report: &str, artifacts: [String; 2], force: bool) -> Result<(), (String, StoreError)> {
        let word = self.path(&format!("{report}{UNFINISHED}"));
        if !force && !word.exists() {
            let is_foreign = |name: &&String| {
                let path = self.path(name);
                path.symlink_metadata().is_ok() && !publish::is_ours(&path)
            };
            let report = report.to_owned();
            if let Some(name) = artifacts.iter().chain([&report]).find(is_foreign) {
                let message = "a file is there that refmill did not make; --force replaces it";
                return Err((name.clone(), StoreError::new(Kind::Exists, message)));
            }
        }
        let made = word.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| File::create(&word).map(drop));
        made.map_err(|error| (report.to_owned(), unwritable(&error)))
    }

    /// Writes a file, which appears whole, and gives what `copy` gives.
    pub(super) fn write(
        &self,
        name: &str,
        copy: &mut dyn FnMut(&mut dyn Write) -> io::Result<String>,
    ) -> Result<String, StoreError> {
        let unfinished = self.path(&format!("{name}{UNFINISHED}"));
        let written = File::create(&unfinished).and_then(|mut file| {
            let hash = copy(&mut file)?;
            // A report shall not outlive, in a power cut, what it names.
            file.sync_all()?;
            fs::rename(&unfinished, self.path(name))?;
            Ok(hash)
        });
        written.map_err(|error| unwritable(&error))
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), StoreError> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unwritable(&error)),
            _ => Ok(()),
        }
    }
}

fn unwritable(error: &io::Error) -> StoreError {
    StoreError::new(Kind::Refused, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> [String; 2] {
        ["a.png".into(), "a.safetensors".into()]
    }

    #[test]
    fn folder_is_taken_by_one_batch_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let first = Folder::take(place.path()).unwrap();
        assert_eq!(Folder::take(place.path()).unwrap_err().kind, Kind::Exists);
        drop(first);
        assert!(Folder::take(place.path()).is_ok());
    }

    #[test]
    fn file_that_refmill_did_not_make_is_refused_unless_forced() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::take(place.path()).unwrap();
        fs::write(folder.path("a.png"), "mine").unwrap();
        let (name, error) = folder.begin("a.report.json", names(), false).unwrap_err();
        assert_eq!((name.as_str(), error.kind), ("a.png", Kind::Exists));
        assert!(folder.begin("a.report.json", names(), true).is_ok());
    }

    #[test]
    fn what_a_killed_batch_left_is_its_own() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::take(place.path()).unwrap();
        folder.begin("a.report.json", names(), false).unwrap();
        folder.write("a.png", &mut |sink| sink.write_all(b"half").map(|()| String::new())).unwrap();
        // Killed here; the next one begins again.
        assert!(folder.begin("a.report.json", names(), false).is_ok());
    }
}
