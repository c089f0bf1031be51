//! What was named on the command line becomes inputs, and an input becomes sealed memory. Reads folders and
//! files; looks at no byte of them.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use refmill::failure::{Code, Failure};

use crate::memory::{FillError, SealedInput};
use crate::publish;
use crate::shutdown::Stop;

/// Extensions by which images are found in folders; a file that is named itself may have any.
const EXTENSIONS: &[&str] = &["jpg", "jpeg", "png", "webp", "tif", "tiff", "gif", "bmp", "avif", "heic", "heif", "hif"];

/// Where the bytes of an input come from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
}

/// One input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Where its bytes come from.
    pub origin: Origin,
    /// Its path below the folder in which it was found; only the file's name where it was named itself.
    pub relative: PathBuf,
}

/// Why the command line names no usable set of inputs.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// The glob cannot be read.
    #[error("`{pattern}` is not a glob: {reason}")]
    Glob {
        /// As typed.
        pattern: String,
        /// Why.
        reason: &'static str,
    },
    /// A folder cannot be listed.
    #[error("cannot list folder {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Standard input is named twice.
    #[error("standard input (`-`) is named {times} times, it can be read once")]
    Stdin {
        /// How often.
        times: usize,
    },
}

/// The inputs that were named, and what was named without any.
#[derive(Debug, Default)]
pub struct Expanded {
    /// In the order of the command line, folders and globs sorted; each file once.
    pub inputs: Vec<Input>,
    /// One sentence for each folder without images and each glob without matches.
    pub notes: Vec<String>,
}

impl Origin {
    /// The file's path; none for standard input.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Stdin => None,
        }
    }

    /// What messages and reports call it.
    #[must_use]
    pub fn name(&self) -> String {
        self.path().map_or_else(|| "stdin".into(), |path| path.display().to_string())
    }
}

impl Input {
    fn named(path: &Path) -> Self {
        let relative = path.file_name().map(PathBuf::from).unwrap_or_default();
        Self { origin: Origin::File(path.to_owned()), relative }
    }
}

/// Finds the inputs. A path that does not exist stays an input: that it cannot be read is its own failure.
///
/// # Errors
/// [`IntakeError`]
pub fn expand(named: &[PathBuf]) -> Result<Expanded, IntakeError> {
    let mut expanded = Expanded::default();
    for path in named {
        let before = expanded.inputs.len();
        let text = path.to_string_lossy();
        if text == "-" {
            expanded.inputs.push(Input { origin: Origin::Stdin, relative: "stdin".into() });
        } else if path.is_dir() {
            walk(path, path, &mut expanded.inputs)?;
            if expanded.inputs.len() == before {
                expanded.notes.push(format!(
                    "folder {} has no image files ({})",
                    path.display(),
                    EXTENSIONS.join(", ")
                ));
            }
        } else if path.symlink_metadata().is_err() && text.contains(['*', '?', '[']) {
            matches(&text, &mut expanded.inputs)?;
            if expanded.inputs.len() == before {
                expanded.notes.push(format!("glob `{text}` matches nothing"));
            }
        } else {
            expanded.inputs.push(Input::named(path));
        }
    }
    let times = expanded.inputs.iter().filter(|input| input.origin == Origin::Stdin).count();
    if times > 1 {
        return Err(IntakeError::Stdin { times });
    }
    let mut seen = HashSet::new();
    expanded.inputs.retain(|input| seen.insert(identity(&input.origin)));
    Ok(expanded)
}

/// The same for two ways to name one file.
#[must_use]
pub fn identity(origin: &Origin) -> PathBuf {
    let path = origin.path().unwrap_or(Path::new("-"));
    // What cannot be resolved does not exist, and is told apart by its text.
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn matches(pattern: &str, inputs: &mut Vec<Input>) -> Result<(), IntakeError> {
    let refused = |error: glob::PatternError| IntakeError::Glob { pattern: pattern.to_owned(), reason: error.msg };
    // A path that cannot be looked at matches nothing.
    for path in glob::glob(pattern).map_err(refused)?.flatten() {
        if path.is_dir() {
            walk(&path, &path, inputs)?;
        } else {
            inputs.push(Input::named(&path));
        }
    }
    Ok(())
}

/// Goes through a folder and the folders in it, sorted by name. Links to folders are not followed, so it ends;
/// what an earlier run made is not an input.
fn walk(root: &Path, folder: &Path, inputs: &mut Vec<Input>) -> Result<(), IntakeError> {
    let failed = |source| IntakeError::Folder { path: folder.to_owned(), source };
    let entries: Result<Vec<_>, _> = fs::read_dir(folder).map_err(failed)?.collect();
    let mut entries = entries.map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_type().map_err(failed)?.is_dir() {
            walk(root, &path, inputs)?;
        } else if has_image_extension(&path) && path.is_file() && !publish::is_ours(&path) {
            let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
            inputs.push(Input { origin: Origin::File(path), relative });
        }
    }
    Ok(())
}

/// Whether a path ends as images do.
pub(crate) fn has_image_extension(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Reads an input into sealed memory, at most `limit` bytes, and hashes it if `hashed` says so.
///
/// # Errors
/// A [`Failure`] that names the input: unreadable, empty or over the limit.
pub fn load(origin: &Origin, limit: u64, hashed: bool, stop: &Stop) -> Result<SealedInput, Failure> {
    let name = origin.name();
    let unreadable = |why: String| Failure::new(Code::Unreadable, format!("cannot read {name}: {why}"));
    let filled = match origin {
        Origin::Stdin => SealedInput::fill(Stoppable { source: io::stdin().lock(), stop }, limit, hashed),
        Origin::File(path) => {
            let metadata = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
            let kind = metadata.file_type();
            if !(kind.is_file() || kind.is_fifo()) {
                return Err(unreadable("it is not a file".into()));
            }
            if kind.is_file() && metadata.len() > limit {
                return Err(Failure::over_limit("input length in bytes", metadata.len(), limit));
            }
            let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
            let source = file.map_err(|error| unreadable(error.to_string()))?;
            SealedInput::fill(Stoppable { source, stop }, limit, hashed)
        }
    };
    match filled {
        Ok(input) if input.bytes() == 0 => Err(Failure::new(Code::Empty, format!("{name} has no bytes"))),
        Ok(input) => Ok(input),
        Err(FillError::Long { limit }) => {
            Err(Failure::new(Code::OverLimit, format!("{name} has more bytes than the limit of {limit}")))
        }
        Err(FillError::Read(error)) => Err(unreadable(error.to_string())),
        Err(error @ FillError::Memory(_)) => Err(Failure::new(Code::Internal, error.to_string())),
    }
}

/// Lends a file whose headers alone are wanted, and reads what is no file as [`load`] does.
///
/// # Errors
/// Those of [`load`].
pub fn lend(origin: &Origin, limit: u64, stop: &Stop) -> Result<SealedInput, Failure> {
    let Origin::File(path) = origin else { return load(origin, limit, false, stop) };
    // What it is, is asked of what was opened: nothing can be put in its place in between.
    let opened = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    match opened.and_then(|file| Ok((file.metadata()?, file))) {
        Ok((metadata, file)) if metadata.is_file() && (1..=limit).contains(&metadata.len()) => {
            Ok(SealedInput::lent(file, metadata.len()))
        }
        // The other way says what is wrong, in the same words.
        _ => load(origin, limit, false, stop),
    }
}

/// A source that may have nothing for ever, such as a pipe: reading it ends when the user wants to stop.
struct Stoppable<'a, R> {
    source: R,
    stop: &'a Stop,
}

impl<R: Read + AsFd> Read for Stoppable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let stopping = PollFd::new(self.stop.as_fd(), PollFlags::POLLIN);
            let mut polled = [stopping, PollFd::new(self.source.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, PollTimeout::NONE) {
                Ok(_) if self.stop.is_requested() => return Err(io::Error::other("interrupted")),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            match self.source.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        files.iter().for_each(|file| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        });
        root
    }

    fn relative(expanded: &Expanded) -> Vec<&str> {
        expanded.inputs.iter().map(|input| input.relative.to_str().unwrap()).collect()
    }

    #[test]
    fn folder_gives_its_images_sorted_and_with_their_folders() {
        let root = folder(&["b.png", "a.JPG", "notes.txt", "sub/c.heic"]);
        let expanded = expand(&[root.path().to_owned()]).unwrap();
        assert_eq!(relative(&expanded), ["a.JPG", "b.png", "sub/c.heic"]);
    }

    #[test]
    fn file_that_is_named_needs_no_image_extension() {
        let root = folder(&["notes.txt"]);
        let expanded = expand(&[root.path().join("notes.txt")]).unwrap();
        assert_eq!(relative(&expanded), ["notes.txt"]);
    }

    #[test]
    fn file_that_is_named_twice_is_taken_once() {
        let root = folder(&["a.png"]);
        let expanded = expand(&[root.path().join("a.png"), root.path().to_owned()]).unwrap();
        assert_eq!(relative(&expanded), ["a.png"]);
    }

    #[test]
    fn glob_gives_its_matches() {
        let root = folder(&["a.png", "b.png", "c.jpg"]);
        let expanded = expand(&[root.path().join("*.png")]).unwrap();
        assert_eq!(relative(&expanded), ["a.png", "b.png"]);
    }

    #[test]
    fn glob_characters_in_an_existing_name_are_that_name() {
        let root = folder(&["[1].png", "1.png"]);
        let expanded = expand(&[root.path().join("[1].png")]).unwrap();
        assert_eq!(relative(&expanded), ["[1].png"]);
    }

    #[test]
    fn empty_folder_and_empty_glob_are_told() {
        let root = folder(&["notes.txt"]);
        let expanded = expand(&[root.path().to_owned(), root.path().join("*.gif")]).unwrap();
        assert!(expanded.inputs.is_empty());
        assert!(expanded.notes[0].contains("has no image files"), "{:?}", expanded.notes);
        assert!(expanded.notes[1].ends_with("matches nothing"), "{:?}", expanded.notes);
    }

    #[test]
    fn link_to_a_folder_is_not_followed() {
        let root = folder(&["a.png"]);
        std::os::unix::fs::symlink(root.path(), root.path().join("loop")).unwrap();
        assert_eq!(relative(&expand(&[root.path().to_owned()]).unwrap()), ["a.png"]);
    }

    #[test]
    fn stdin_twice_is_refused() {
        assert!(matches!(expand(&["-".into(), "-".into()]), Err(IntakeError::Stdin { times: 2 })));
    }

    #[test]
    fn missing_file_is_unreadable_and_named() {
        let failure = load(&Origin::File("/no/such.png".into()), 10, true, &Stop::new().unwrap()).unwrap_err();
        assert_eq!(failure.code, Code::Unreadable);
        assert!(failure.message.starts_with("cannot read /no/such.png: No such file"), "{}", failure.message);
    }

    #[test]
    fn folder_and_device_are_not_read() {
        assert_eq!(
            load(&Origin::File("/".into()), 10, true, &Stop::new().unwrap()).unwrap_err().code,
            Code::Unreadable
        );
        assert_eq!(
            load(&Origin::File("/dev/zero".into()), 10, true, &Stop::new().unwrap()).unwrap_err().code,
            Code::Unreadable
        );
    }

    #[test]
    fn file_over_the_limit_is_refused_with_both_numbers() {
        let root = folder(&["sub/abc.png"]);
        let failure =
            load(&Origin::File(root.path().join("sub/abc.png")), 10, true, &Stop::new().unwrap()).unwrap_err();
        assert_eq!(failure.message, "input length in bytes is 11, the limit is 10");
    }

    #[test]
    fn empty_file_is_refused() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("e.png"), "").unwrap();
        assert_eq!(
            load(&Origin::File(root.path().join("e.png")), 10, true, &Stop::new().unwrap()).unwrap_err().code,
            Code::Empty
        );
    }
}
