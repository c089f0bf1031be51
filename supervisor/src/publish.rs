//! Artifacts first, then the report that names them: each is written beside its place and put there whole, so a
//! reader never sees a part, and a failure leaves what was there. Not synced to disk: whatever a power cut takes
//! can be made again from its input. Who promises more calls [`sync`].

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use refmill::failure::{Code, Failure, Stage};
use refmill::report::{ArtifactKind, Outcome, Report};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::memory::OutputRegion;
use crate::naming::{IMAGE, REPAIRED, REPORT, TENSORS};

mod in_place;
mod sweep;

pub use sweep::sweep;

/// Longest report that is read back, in bytes.
const MAX_REPORT_BYTES: u64 = 1 << 20;

/// Where one artifact goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// A file.
    File(PathBuf),
    /// A file of this name with the ending of the content's format, which is known once there is a report.
    ByFormat(PathBuf),
    /// The input's own place, where the content is another; the input as it was goes to `backup`.
    InPlace {
        /// The input.
        path: PathBuf,
        /// Never replaced.
        backup: PathBuf,
    },
    /// Standard output.
    Stdout,
}

/// Where the artifacts of one image go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outputs {
    /// The repaired image, where it is wanted.
    pub image: Option<Target>,
    /// The tensors, where they are wanted.
    pub tensors: Option<Target>,
    /// The pixels as stored, small, where they are wanted.
    pub before: Option<Target>,
    /// The pixels as meant, small, where they are wanted.
    pub after: Option<Target>,
    /// The report, where a file of it is wanted.
    pub report: Option<PathBuf>,
    /// Files that an earlier run may have left and this one does not replace; removed if they are ours.
    pub stale: Vec<PathBuf>,
    /// Whether files that refmill did not make may be replaced.
    pub force: bool,
}

impl Outputs {
    fn target(&self, kind: ArtifactKind) -> Option<&Target> {
        match kind {
            ArtifactKind::Image | ArtifactKind::Repaired => self.image.as_ref(),
            ArtifactKind::Tensors => self.tensors.as_ref(),
            ArtifactKind::ThumbnailBefore => self.before.as_ref(),
            ArtifactKind::ThumbnailAfter => self.after.as_ref(),
        }
    }

    /// The folders into which files go.
    #[must_use]
    pub fn folders(&self) -> BTreeSet<&Path> {
        self.files().chain(&self.report).filter_map(|path| path.parent()).collect()
    }

    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.image, &self.tensors, &self.before, &self.after].into_iter().flatten().filter_map(
            |target| match target {
                Target::File(path) => Some(path),
                // An input is no file of ours, and no stale one either.
                Target::ByFormat(_) | Target::InPlace { .. } | Target::Stdout => None,
            },
        )
    }

    /// Whether everything may be written where it is to go.
    ///
    /// # Errors
    /// [`Code::Unwritable`], naming the file that refmill did not make.
    pub fn check(&self) -> Result<(), Failure> {
        let foreign = |path: &&PathBuf| !self.force && path.symlink_metadata().is_ok() && !is_ours(path);
        match self.files().chain(&self.report).find(foreign) {
            Some(path) => {
                let message = format!(
                    "{} exists and no report beside it says that refmill made it; --force replaces it",
                    path.display()
                );
                Err(Failure::new(Code::Unwritable, message).at(Stage::Publish))
            }
            None => Ok(()),
        }
    }
}

/// Whether `path` is what an earlier run made: a report of ours, or a file that the report beside it names.
#[must_use]
pub fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name.ends_with(REPORT) {
        return read_report(path).is_some();
    }
    let mut endings = [IMAGE, TENSORS].iter().chain(REPAIRED);
    let Some(stem) = endings.find_map(|ending| name.strip_suffix(ending)) else { return false };
    let names_it = |report: Report| {
        // A file that was repaired in place is still the user's.
        let made = report.artifacts.iter().filter(|artifact| artifact.path != report.source.name);
        made.map(|artifact| Path::new(&artifact.path)).any(|made| made.file_name() == path.file_name())
    };
    read_report(&path.with_file_name(format!("{stem}{REPORT}"))).is_some_and(names_it)
}

fn read_report(path: &Path) -> Option<Report> {
    // A pipe or a device is no report, and opening one can wait for ever.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_REPORT_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Publishes what `report` names out of `region`, then the report itself, and returns it as it was published. A
/// failure to write becomes the report's own failure.
#[must_use]
pub fn publish(outputs: &Outputs, mut report: Report, region: Option<&OutputRegion>) -> Report {
    let outputs = &match outputs.by_format(&report) {
        Ok(outputs) => outputs,
        Err(failure) => {
            // What stands in the way is not ours: nothing is written, not even the report.
            report.reject(failure);
            return report;
        }
    };
    // Judged before the report that says so is replaced.
    let own = outputs.files().filter(|path| outputs.force || is_ours(path));
    let stale: Vec<PathBuf> = own.chain(outputs.stale.iter().filter(|path| is_ours(path))).cloned().collect();
    if let Err(failure) = artifacts(outputs, &mut report, region) {
        report.reject(failure.at(Stage::Publish));
    }
    if let Err(failure) = remove(&stale, &report).and_then(|()| write_report(outputs, &report)) {
        report.reject(failure.at(Stage::Publish));
    }
    report
}

/// Brings what was published to disk, with the folder entries that name it.
///
/// # Errors
/// What the kernel says, as the report's own failure.
pub fn sync(outputs: &Outputs) -> Result<(), Failure> {
    let mut paths: Vec<&Path> = outputs.files().chain(&outputs.report).map(PathBuf::as_path).collect();
    let folders: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
    paths.extend(folders);
    let synced = |path: &&Path| match File::open(path).and_then(|file| file.sync_all()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Some(unwritable(path, &error).at(Stage::Publish)),
        _ => None,
    };
    paths.iter().find_map(synced).map_or(Ok(()), Err)
}

fn artifacts(outputs: &Outputs, report: &mut Report, region: Option<&OutputRegion>) -> Result<(), Failure> {
    if report.outcome == Outcome::Reject || report.artifacts.is_empty() {
        return Ok(());
    }
    let region = region.ok_or_else(|| Failure::new(Code::Internal, "artifacts without the memory that holds them"))?;
    let mut staged = Vec::new();
    let original = report.source.blake3.clone();
    for artifact in &mut report.artifacts {
        let Some(target) = outputs.target(artifact.kind) else {
            return Err(Failure::new(Code::Internal, "artifact without a place to go"));
        };
        let copy = |sink: &mut dyn Write| region.copy_to(artifact.offset, artifact.bytes, sink);
        match target {
            Target::Stdout => {
                let mut stdout = io::stdout().lock();
                let copied = copy(&mut stdout).and_then(|hash| stdout.flush().map(|()| hash));
                artifact.blake3 = copied.map_err(|error| unwritable(Path::new("standard output"), &error))?;
                artifact.path = "-".into();
            }
            Target::File(path) => {
                let mut file = beside(path).map_err(|error| unwritable(path, &error))?;
                artifact.blake3 = copy(&mut file).map_err(|error| unwritable(path, &error))?;
                artifact.path = path.display().to_string();
                staged.push((file, path));
            }
            Target::InPlace { path, backup } => {
                let mut file = beside(path).map_err(|error| unwritable(path, &error))?;
                artifact.blake3 = copy(&mut file).map_err(|error| unwritable(path, &error))?;
                artifact.path = path.display().to_string();
                if artifact.blake3 != original {
                    in_place::replace(file, path, backup, &original)?;
                }
            }
            Target::ByFormat(_) => return Err(Failure::new(Code::Internal, "artifact of an unknown format")),
        }
        // It lay there; now it lies at `path`.
        artifact.offset = 0;
    }
    staged.into_iter().try_for_each(|(file, path)| put(file, path))
}

/// Removes what an earlier run left and `report` does not name.
fn remove(stale: &[PathBuf], report: &Report) -> Result<(), Failure> {
    let published = |path: &Path| report.artifacts.iter().any(|artifact| Path::new(&artifact.path) == path);
    for path in stale.iter().filter(|path| !published(path)) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unwritable(path, &error)),
            _ => {}
        }
    }
    Ok(())
}

fn write_report(outputs: &Outputs, report: &Report) -> Result<(), Failure> {
    let Some(path) = &outputs.report else { return Ok(()) };
    let written = serde_json::to_string_pretty(report).map_err(io::Error::other).and_then(|text| {
        let mut file = beside(path)?;
        writeln!(file, "{text}")?;
        Ok(file)
    });
    put(written.map_err(|error| unwritable(path, &error))?, path)
}

/// A temporary file in the folder of `path`, with the permissions that any new file gets.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = Permissions::from_mode(0o666);
    let make = || tempfile::Builder::new().prefix(sweep::PREFIX).permissions(mode.clone()).tempfile_in(folder);
    sweep::owned(make)
}

fn put(file: NamedTempFile, path: &Path) -> Result<(), Failure> {
    file.persist(path).map(drop).map_err(|error| unwritable(path, &error.error))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Code::Unwritable, format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use refmill::report::{Artifact, Source};

    fn outputs(folder: &Path) -> Outputs {
        Outputs {
            image: Some(Target::File(folder.join("a.png"))),
            tensors: None,
            before: None,
            after: None,
            report: Some(folder.join("a.report.json")),
            stale: vec![folder.join("a.safetensors")],
            force: false,
        }
    }

    /// A region of zeros stands for what a worker wrote.
    fn made() -> (Report, OutputRegion) {
        let mut report = Report::new(Source::default());
        let kind = ArtifactKind::Image;
        report.artifacts.push(Artifact { kind, offset: 8, bytes: 4, blake3: "claimed".into(), path: "claimed".into() });
        (report, OutputRegion::new(64).unwrap())
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn rejected() -> Report {
        Report::rejected(Source::default(), Failure::new(Code::Corrupt, "x"))
    }

    #[test]
    fn artifact_is_published_with_its_own_hash_and_path() {
        let folder = tempfile::tempdir().unwrap();
        let (report, region) = made();
        let report = publish(&outputs(folder.path()), report, Some(&region));
        assert_eq!(fs::read(folder.path().join("a.png")).unwrap(), [0; 4]);
        assert_eq!(report.artifacts[0].blake3, blake3::hash(&[0; 4]).to_hex().to_string());
        assert_eq!(report.artifacts[0].path, folder.path().join("a.png").display().to_string());
        assert_eq!(read_report(&folder.path().join("a.report.json")), Some(report));
        assert_eq!(names(folder.path()), ["a.png", "a.report.json"]);
    }

    #[test]
    fn rejected_image_leaves_only_its_report() {
        let folder = tempfile::tempdir().unwrap();
        let (report, region) = made();
        let first = publish(&outputs(folder.path()), report, Some(&region));
        let second = publish(&outputs(folder.path()), rejected(), None);
        assert_eq!((first.error, names(folder.path())), (None, vec!["a.report.json".to_owned()]));
        assert_eq!(second.error.unwrap().code, Code::Corrupt);
    }

    #[test]
    fn file_that_refmill_did_not_make_is_neither_replaced_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.png"), "mine").unwrap();
        assert_eq!(outputs(folder.path()).check().unwrap_err().code, Code::Unwritable);
        drop(publish(&outputs(folder.path()), rejected(), None));
        assert_eq!(fs::read_to_string(folder.path().join("a.png")).unwrap(), "mine");
    }

    #[test]
    fn file_that_refmill_made_may_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (report, region) = made();
        drop(publish(&outputs(folder.path()), report, Some(&region)));
        assert_eq!(outputs(folder.path()).check(), Ok(()));
        assert!(is_ours(&folder.path().join("a.png")));
        assert!(!is_ours(&folder.path().join("a.safetensors")));
    }

    #[test]
    fn force_replaces_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.png"), "mine").unwrap();
        assert_eq!(Outputs { force: true, ..outputs(folder.path()) }.check(), Ok(()));
    }

    #[test]
    fn folder_that_is_not_there_is_the_images_own_failure() {
        let (report, region) = made();
        let report = publish(&outputs(Path::new("/no/such")), report, Some(&region));
        let failure = report.error.unwrap();
        assert_eq!((failure.code, failure.stage), (Code::Unwritable, Some(Stage::Publish)));
        assert!(failure.message.contains("/no/such/a."), "{}", failure.message);
    }
}
