//! The contact sheet of an inspection: thumbnails come through files in a folder of its own, which goes with it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use refmill::report::ArtifactKind;
use tempfile::TempDir;

use super::CommandError;
use crate::contact_sheet::{self, Entry};
use crate::pool::Finished;
use crate::publish::{Outputs, Target};

/// Longest thumbnail that is read back, in bytes: what a worker may write at all.
const MAX_THUMBNAIL: u64 = 1 << 20;

/// A sheet while its images are inspected.
pub(super) struct Sheet {
    path: PathBuf,
    folder: TempDir,
    entries: BTreeMap<usize, Entry>,
}

impl Sheet {
    /// Only a name of a page is taken: what stands there is replaced, and a photo is easily named here by mistake.
    pub(super) fn new(path: &Path) -> Result<Self, CommandError> {
        let page =
            path.extension().is_some_and(|ending| ["html", "htm"].iter().any(|page| ending.eq_ignore_ascii_case(page)));
        if !page {
            let message = format!("--contact-sheet is {}, its name has to end in .html", path.display());
            return Err(CommandError::Usage { message });
        }
        let system = |source| CommandError::System { what: "make a folder for thumbnails", source };
        let folder = tempfile::Builder::new().prefix("refmill-sheet-").tempdir().map_err(system)?;
        Ok(Self { path: path.to_owned(), folder, entries: BTreeMap::new() })
    }

    /// Where the thumbnails of one image go.
    pub(super) fn outputs(&self, index: usize) -> Outputs {
        let target = |word| Some(Target::File(self.folder.path().join(format!("{index}-{word}.png"))));
        Outputs { before: target("before"), after: target("after"), force: true, ..Outputs::default() }
    }

    /// Takes a report, and its thumbnails out of the folder.
    pub(super) fn add(&mut self, finished: &mut Finished) {
        let report = finished.report.clone();
        // Nobody else is told of files that are gone in a moment.
        finished.report.artifacts.clear();
        let thumbnail = |kind| {
            let artifact = report.artifacts.iter().find(|artifact| artifact.kind == kind)?;
            let png = read(Path::new(&artifact.path)).ok();
            // It goes with its folder at the latest.
            fs::remove_file(&artifact.path).ok();
            png
        };
        let (before, after) = (thumbnail(ArtifactKind::ThumbnailBefore), thumbnail(ArtifactKind::ThumbnailAfter));
        self.entries.insert(finished.index, Entry { report, before, after });
    }

    /// Writes the sheet whole, or not at all.
    pub(super) fn write(self) -> Result<(), CommandError> {
        let entries: Vec<Entry> = self.entries.into_values().collect();
        let html = contact_sheet::render(&entries);
        put(&self.path, html.as_bytes()).map_err(|error| CommandError::Usage {
            message: format!("cannot write the contact sheet {}: {error}", self.path.display()),
        })
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    #[expect(clippy::disallowed_methods, reason = "bounded by take")]
    File::open(path)?.take(MAX_THUMBNAIL).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let permissions = fs::Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new().prefix(".refmill-").permissions(permissions).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sheet_is_not_written_over_a_photo() {
        assert!(matches!(Sheet::new(Path::new("photo.jpg")), Err(CommandError::Usage { .. })));
        assert!(Sheet::new(Path::new("out.HTML")).is_ok());
    }
}
