//! Temporary files that a killed process left. Each is locked by whoever writes it, for as long as it writes; the
//! kernel drops the lock with the process. So a file of ours that can be locked belongs to nobody.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use tempfile::NamedTempFile;

/// What the names of temporary files begin with.
pub(super) const PREFIX: &str = ".refmill-";
/// What tempfile adds to it: so many letters and digits.
const RANDOM: usize = 6;
/// How often a new file may be swept away between its making and its lock.
const TRIES: u32 = 8;

/// A temporary file, locked. On a file system without locks it is not, and nobody sweeps there either.
pub(super) fn owned(make: impl Fn() -> io::Result<NamedTempFile>) -> io::Result<NamedTempFile> {
    for _ in 0..TRIES {
        let file = make()?;
        // Whoever sweeps holds the lock while it removes the file: after this, either it is gone or it stays.
        if file.as_file().lock().is_err() || file.as_file().metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
    Err(io::Error::other("a temporary file is removed each time that it is made"))
}

/// Removes the temporary files in a folder that belong to no running process. Returns how many. What is not a plain
/// file of this user with a name that only this program gives is not touched.
///
/// # Errors
/// The folder cannot be listed. A file that cannot be removed is left.
pub fn sweep(folder: &Path) -> io::Result<usize> {
    let mut swept = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_ours) && remove(&entry.path()).is_ok_and(|removed| removed) {
            swept += 1;
        }
    }
    Ok(swept)
}

fn is_ours(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .is_some_and(|rest| rest.len() == RANDOM && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Whether the file was nobody's, and is removed.
fn remove(path: &Path) -> io::Result<bool> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let opened = file.metadata()?;
    if !opened.is_file() || opened.uid() != geteuid().as_raw() || file.try_lock().is_err() {
        return Ok(false);
    }
    // Published meanwhile: the name is another file's now, or nobody's.
    let named = fs::symlink_metadata(path)?;
    if (named.dev(), named.ino()) != (opened.dev(), opened.ino()) {
        return Ok(false);
    }
    fs::remove_file(path).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(folder: &Path) -> NamedTempFile {
        owned(|| tempfile::Builder::new().prefix(PREFIX).tempfile_in(folder)).unwrap()
    }

    #[test]
    fn file_that_nobody_holds_is_removed_and_one_that_is_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (_, left) = make(folder.path()).keep().unwrap();
        let written = make(folder.path());
        assert_eq!(sweep(folder.path()).unwrap(), 1);
        assert!(!left.exists() && written.path().exists());
        drop(written.keep().unwrap());
        assert_eq!(sweep(folder.path()).unwrap(), 1);
    }

    #[test]
    fn what_is_not_ours_stays() {
        let folder = tempfile::tempdir().unwrap();
        let names = [".refmill-abc", ".refmill-abcdefg", ".refmill-abc.ef", "refmill-abcdef", "a.png"];
        names.iter().for_each(|name| fs::write(folder.path().join(name), "x").unwrap());
        fs::create_dir(folder.path().join(".refmill-folder")).unwrap();
        fs::create_dir(folder.path().join(".refmill-abcdef")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("a.png"), folder.path().join(".refmill-linked")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("a.png"), folder.path().join(".refmill-linke1")).unwrap();
        assert_eq!(sweep(folder.path()).unwrap(), 0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 9);
    }

    #[test]
    fn file_that_is_swept_before_it_is_locked_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let first = std::cell::Cell::new(true);
        let file = owned(|| {
            let file = tempfile::Builder::new().prefix(PREFIX).tempfile_in(folder.path())?;
            if first.replace(false) {
                assert_eq!(sweep(folder.path())?, 1);
            }
            Ok(file)
        });
        assert!(file.unwrap().path().exists());
    }

    #[test]
    fn file_that_is_made_again_and_again_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let swept = owned(|| {
            let file = tempfile::Builder::new().prefix(PREFIX).tempfile_in(folder.path())?;
            sweep(folder.path())?;
            Ok(file)
        });
        assert!(swept.is_err());
    }
}
