//! Where a repaired file goes that keeps its format: under a name with the format's ending, or into its own place.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use refmill::failure::{Code, Failure, Stage};
use refmill::report::{Outcome, Report};
use tempfile::NamedTempFile;

use super::{Outputs, Target, put, unwritable};

impl Outputs {
    /// The same, with the name of the image by the format that `report` names; none for an image that was rejected.
    ///
    /// # Errors
    /// Those of [`Outputs::check`] for that name.
    pub(super) fn by_format(&self, report: &Report) -> Result<Self, Failure> {
        let Some(Target::ByFormat(name)) = &self.image else { return Ok(self.clone()) };
        let format = report.source.format.filter(|_| report.outcome != Outcome::Reject);
        let image = format.and_then(|format| format.extensions().first()).map(|extension| {
            let mut name = name.clone().into_os_string();
            name.push(format!(".{extension}"));
            Target::File(name.into())
        });
        let outputs = Self { image, ..self.clone() };
        outputs.check().map(|()| outputs)
    }
}

/// Puts `file` in the place of `path`, which becomes `backup`. `original` is the hash of what was repaired: a file
/// that has become another meanwhile is left.
pub(super) fn replace(file: NamedTempFile, path: &Path, backup: &Path, original: &str) -> Result<(), Failure> {
    let failed = |error: io::Error| unwritable(path, &error);
    let mut hasher = blake3::Hasher::new();
    let current = File::open(path).map_err(failed)?;
    let permissions = current.metadata().map_err(failed)?.permissions();
    hasher.update_reader(current).map_err(failed)?;
    if hasher.finalize().to_hex().as_str() != original {
        let message = format!("{} has changed while it was repaired; it is left as it is", path.display());
        return Err(Failure::new(Code::Unwritable, message).at(Stage::Publish));
    }
    file.as_file().set_permissions(permissions).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    keep(path, backup).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let message = format!("backup {} exists already; {} is left as it is", backup.display(), path.display());
            Failure::new(Code::Unwritable, message).at(Stage::Publish)
        }
        _ => unwritable(backup, &error),
    })?;
    put(file, path).inspect_err(|_| {
        // The file still stands in its place; a copy that cannot be removed is only in the way of the next try.
        drop(fs::remove_file(backup));
    })
}

/// Gives the file a second name, or a copy where the file system knows no second names. Neither replaces anything.
fn keep(path: &Path, backup: &Path) -> io::Result<()> {
    match fs::hard_link(path, backup) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let mut source = File::open(path)?;
            let mut copy = File::create_new(backup)?;
            io::copy(&mut source, &mut copy)?;
            copy.sync_all()
        }
        linked => linked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    fn staged(folder: &Path) -> NamedTempFile {
        let mut file = NamedTempFile::new_in(folder).unwrap();
        file.write_all(b"new").unwrap();
        file
    }

    fn hash(bytes: &[u8]) -> String {
        blake3::hash(bytes).to_hex().to_string()
    }

    #[test]
    fn file_is_replaced_and_its_old_content_and_permissions_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (path, backup) = (folder.path().join("a.jpg"), folder.path().join("a.jpg.orig"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        replace(staged(folder.path()), &path, &backup, &hash(b"old")).unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read(&backup).unwrap()), (b"new".to_vec(), b"old".to_vec()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn backup_that_exists_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, backup) = (folder.path().join("a.jpg"), folder.path().join("a.jpg.orig"));
        fs::write(&path, "old").unwrap();
        fs::write(&backup, "older").unwrap();
        let failure = replace(staged(folder.path()), &path, &backup, &hash(b"old")).unwrap_err();
        assert!(failure.message.contains("exists already"), "{failure}");
        assert_eq!((fs::read(&path).unwrap(), fs::read(&backup).unwrap()), (b"old".to_vec(), b"older".to_vec()));
    }

    #[test]
    fn file_that_changed_meanwhile_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let (path, backup) = (folder.path().join("a.jpg"), folder.path().join("a.jpg.orig"));
        fs::write(&path, "another").unwrap();
        assert!(replace(staged(folder.path()), &path, &backup, &hash(b"old")).is_err());
        assert_eq!((fs::read(&path).unwrap(), backup.exists()), (b"another".to_vec(), false));
    }
}
