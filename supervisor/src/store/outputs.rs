//! Where a batch puts artifacts: each whole or not at all, and the report last. A report that is there says that all
//! it names is there.

use std::io::{self, Write};

use refmill::failure::{Code, Failure, Stage};
use refmill::report::{ArtifactKind, Outcome, Report};

use super::bucket::Bucket;
use super::connection::Patience;
use super::error::{Kind, StoreError};
use super::folder::Folder;
use super::mark::{Found, Mark, Marked};
use super::upload::Target;
use crate::memory::OutputRegion;
use crate::naming::{IMAGE, REPORT, TENSORS};

/// Longest report that is read back, in bytes.
pub(super) const MAX_REPORT: usize = 1 << 20;

/// Where artifacts go.
#[derive(Debug)]
pub enum Outputs {
    /// Into a folder.
    Folder(Folder),
    /// Into a bucket.
    Bucket {
        /// The bucket.
        bucket: Bucket,
        /// Empty, or ending with a slash.
        prefix: String,
    },
}

/// What is published of one input.
#[derive(Debug, Clone, Copy)]
pub struct Publication<'a> {
    /// The name that all artifacts begin with.
    pub name: &'a str,
    /// What the report answers.
    pub mark: &'a Mark,
    /// Whether a batch's older report is there.
    pub has_older: bool,
    /// Whether to replace what refmill did not make.
    pub force: bool,
}

impl Outputs {
    /// What the report of this name says; none where there is none, or where it is no report.
    ///
    /// # Errors
    /// [`StoreError`]
    pub fn found(&self, name: &str, patience: &Patience) -> Result<Option<Found>, StoreError> {
        let bytes = match self {
            Self::Folder(folder) => folder.small(&format!("{name}{REPORT}"))?,
            Self::Bucket { bucket, prefix } => {
                bucket.small(&format!("{prefix}{name}{REPORT}"), MAX_REPORT, patience)?.map(Vec::from)
            }
        };
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// What people call a file or an object of this name.
    fn address(&self, name: &str) -> String {
        match self {
            Self::Folder(folder) => folder.path(name).display().to_string(),
            Self::Bucket { bucket, prefix } => bucket.address(&format!("{prefix}{name}")),
        }
    }

    /// Publishes what `report` names out of `region`, then the report, and gives it as it was published. What cannot
    /// be written becomes the report's failure, and then no report is there.
    #[must_use]
    pub fn publish(&self, what: Publication<'_>, mut report: Report, region: Option<&OutputRegion>) -> Report {
        if let Err(failure) = self.all(what, &mut report, region) {
            report.reject(failure.at(Stage::Publish));
        }
        report
    }

    fn all(&self, what: Publication<'_>, report: &mut Report, region: Option<&OutputRegion>) -> Result<(), Failure> {
        let report_name = format!("{}{REPORT}", what.name);
        let unwritable = |name: &str, error: StoreError| {
            Failure::new(Code::Unwritable, format!("cannot write {}: {}", self.address(name), error.message))
        };
        if let Self::Folder(folder) = self {
            folder
                .begin(&report_name, [IMAGE, TENSORS].map(|ending| format!("{}{ending}", what.name)), what.force)
                .map_err(|(name, error)| unwritable(&name, error))?;
        }
        if what.has_older {
            // From here on until the new report is there, none says that the artifacts are whole.
            self.remove(&report_name).map_err(|error| unwritable(&report_name, error))?;
        }
        let mut written: Vec<&str> = Vec::new();
        if report.outcome != Outcome::Reject {
            for artifact in &mut report.artifacts {
                let (ending, kind) = match artifact.kind {
                    ArtifactKind::Tensors => (TENSORS, "application/octet-stream"),
                    _ => (IMAGE, "image/png"),
                };
                let region = region.ok_or_else(|| Failure::new(Code::Internal, "artifacts without their memory"))?;
                let name = format!("{}{ending}", what.name);
                let mut copy = |sink: &mut dyn Write| region.copy_to(artifact.offset, artifact.bytes, sink);
                let hash = self.write(&name, kind, what, artifact.bytes, &mut copy);
                artifact.blake3 = hash.map_err(|error| unwritable(&name, error))?;
                artifact.path = self.address(&name);
                // It lay there; now it lies at `path`.
                artifact.offset = 0;
                written.push(ending);
            }
        }
        if what.has_older || report.outcome == Outcome::Reject {
            for ending in [IMAGE, TENSORS].into_iter().filter(|ending| !written.contains(ending)) {
                let name = format!("{}{ending}", what.name);
                self.remove_ours(&name).map_err(|error| unwritable(&name, error))?;
            }
        }
        let text = serde_json::to_string_pretty(&Marked { report, batch: what.mark }).unwrap_or_default() + "\n";
        let mut copy = |sink: &mut dyn Write| sink.write_all(text.as_bytes()).map(|()| String::new());
        let written = self.write(&report_name, "application/json", what, text.len() as u64, &mut copy);
        written.map(drop).map_err(|error| unwritable(&report_name, error))
    }

    fn write(
        &self,
        name: &str,
        kind: &'static str,
        what: Publication<'_>,
        bytes: u64,
        copy: &mut dyn FnMut(&mut dyn Write) -> io::Result<String>,
    ) -> Result<String, StoreError> {
        match self {
            Self::Folder(folder) => folder.write(name, copy),
            Self::Bucket { bucket, prefix } => {
                let key = format!("{prefix}{name}");
                let target = Target { key: &key, kind, owner: &what.mark.key, force: what.force };
                let mut upload = bucket.upload(target, bytes)?;
                let hash = copy(&mut upload).map_err(|error| from_io(&error))?;
                upload.finish().map(|()| hash)
            }
        }
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        match self {
            Self::Folder(folder) => folder.remove(name),
            Self::Bucket { bucket, prefix } => bucket.remove(&format!("{prefix}{name}")),
        }
    }

    /// Removes what an older report named and the new one does not.
    fn remove_ours(&self, name: &str) -> Result<(), StoreError> {
        match self {
            // What is not ours there was refused before.
            Self::Folder(folder) => folder.remove(name),
            Self::Bucket { bucket, prefix } => {
                let key = format!("{prefix}{name}");
                if bucket.is_ours(&key)? == Some(true) { bucket.remove(&key) } else { Ok(()) }
            }
        }
    }
}

/// A store's own error out of the I/O error that it travelled in.
fn from_io(error: &io::Error) -> StoreError {
    let said = error.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>());
    said.cloned().unwrap_or_else(|| StoreError::new(Kind::Refused, error.to_string()))
}
