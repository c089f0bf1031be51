//! The inputs of a batch: listed page by page, and read into sealed memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use refmill::failure::{Blame, Code, Failure};

use super::bucket::Bucket;
use super::connection::Patience;
use super::error::{Kind, StoreError};
use super::listing::Listed;
use super::location::Location;
use super::names;
use crate::intake::{self, Origin, has_image_extension};
use crate::memory::{FillError, SealedInput};
use crate::shutdown::Stop;

/// Keys of one page of a listing: as many as S3 gives.
const PAGE: u32 = 1_000;

/// Where inputs come from.
#[derive(Debug)]
pub enum Inputs {
    /// A folder.
    Folder(PathBuf),
    /// Objects.
    Bucket {
        /// The bucket.
        bucket: Bucket,
        /// Empty, or ending with a slash.
        prefix: String,
    },
}

/// One input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its key, or its path, below the place of all inputs.
    pub key: String,
    /// What people call it.
    pub address: String,
    /// Its length as it was listed, in bytes.
    pub bytes: u64,
    /// Its ETag; of a file, or where a server lists none, its length and the time of its last change.
    pub etag: String,
    /// Whether the server knows it by that ETag.
    pub has_etag: bool,
    /// What its artifacts are called.
    pub name: String,
}

/// What a listing passed over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PassedOver {
    /// What lies where artifacts go.
    pub artifacts: u64,
    /// What has no image's extension.
    pub others: u64,
}

impl Inputs {
    /// Lists the inputs, but for what lies at `out`, and hands each to `each` until that says no. Objects that have no
    /// image's extension are passed over.
    ///
    /// # Errors
    /// [`StoreError`]
    pub fn list(
        &self,
        out: &Location,
        patience: &Patience,
        each: &mut dyn FnMut(Entry) -> bool,
    ) -> Result<PassedOver, StoreError> {
        let mut passed = PassedOver::default();
        match self {
            Self::Folder(root) => {
                let expanded = intake::expand(std::slice::from_ref(root));
                let expanded = expanded.map_err(|error| StoreError::new(Kind::Refused, error.to_string()))?;
                for input in expanded.inputs {
                    let path = input.origin.path().unwrap_or(root);
                    if matches!(out, Location::Folder(out) if path.starts_with(out)) {
                        passed.artifacts += 1;
                    } else if !each(file(path, &input.relative)) {
                        break;
                    }
                }
            }
            Self::Bucket { bucket, prefix } => {
                let taken = match out {
                    Location::Bucket { bucket: other, prefix: out } if *other == bucket.name => Some(out.as_str()),
                    _ => None,
                };
                let mut next: Option<String> = None;
                loop {
                    let page = bucket.page(prefix, next.as_deref(), PAGE, patience)?;
                    for object in page.objects {
                        let Some(key) = object.key.strip_prefix(prefix.as_str()).map(str::to_owned) else { continue };
                        let key = key.as_str();
                        if taken.is_some_and(|out| object.key.starts_with(out)) {
                            passed.artifacts += 1;
                        } else if !has_image_extension(Path::new(key)) {
                            passed.others += 1;
                        } else if !each(object_entry(key, bucket, object)) {
                            return Ok(passed);
                        }
                    }
                    match page.next {
                        Some(token) if next.as_ref() != Some(&token) => next = Some(token),
                        _ => break,
                    }
                }
            }
        }
        Ok(passed)
    }

    /// The input of this key as it is now; none where there is none any more.
    ///
    /// # Errors
    /// [`StoreError`]
    pub fn find(&self, key: &str, patience: &Patience) -> Result<Option<Entry>, StoreError> {
        match self {
            Self::Folder(root) => {
                let path = root.join(key);
                Ok(path.is_file().then(|| file(&path, Path::new(key))))
            }
            Self::Bucket { bucket, prefix } => {
                let whole = format!("{prefix}{key}");
                // Of all keys that begin so, this one is the first.
                let first = bucket.page(&whole, None, 1, patience)?.objects.into_iter().next();
                let found = first.filter(|object| object.key == whole);
                Ok(found.map(|object| object_entry(key, bucket, object)))
            }
        }
    }

    /// Reads an input into sealed memory and hashes it: at most `limit` bytes, and only what was listed.
    ///
    /// # Errors
    /// A [`Failure`] that names the input. Its blame is internal where another attempt may end otherwise.
    pub fn read(&self, entry: &Entry, limit: u64, stop: &Stop) -> Result<SealedInput, Failure> {
        let Self::Bucket { bucket, prefix } = self else {
            return intake::load(&Origin::File(PathBuf::from(&entry.address)), limit, true, stop);
        };
        if entry.bytes > limit {
            return Err(Failure::over_limit("input length in bytes", entry.bytes, limit));
        }
        let (key, patience) = (format!("{prefix}{}", entry.key), Patience::until(stop));
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            match object(bucket, &key, entry, limit, &patience) {
                // The connection broke half way: the next attempt begins at the start, of the same object.
                Err(failure) if left > 0 && failure.blame == Blame::Internal && !stop.is_requested() => {}
                answer => return answer,
            }
        }
    }
}

/// How often an object is begun to be read. Each time, requests are tried again as the settings say.
const ATTEMPTS: u32 = 3;

fn object_entry(key: &str, bucket: &Bucket, object: Listed) -> Entry {
    let has_etag = object.etag.is_some();
    let etag = object.etag.unwrap_or_else(|| format!("{}-{}", object.bytes, object.changed));
    let (address, bytes) = (bucket.address(&object.key), object.bytes);
    Entry { key: key.to_owned(), address, bytes, etag, has_etag, name: names::name(key) }
}

fn file(path: &Path, relative: &Path) -> Entry {
    // What cannot be looked at is told when it is read.
    let metadata = fs::metadata(path).ok();
    let changed = metadata.as_ref().and_then(|about| about.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    let bytes = metadata.map_or(0, |about| about.len());
    let etag = format!("{bytes}-{}", changed.map_or(0, |since| since.as_nanos()));
    let (key, address) = (relative.to_string_lossy().into_owned(), path.display().to_string());
    Entry { name: names::name(&key), key, address, bytes, etag, has_etag: false }
}

fn object(bucket: &Bucket, key: &str, entry: &Entry, limit: u64, patience: &Patience) -> Result<SealedInput, Failure> {
    let unreadable = |error: &StoreError| {
        let why = match error.kind {
            Kind::NotFound => "it is no longer there".to_owned(),
            Kind::Changed => "it was replaced since it was listed".to_owned(),
            _ => error.message.clone(),
        };
        let failure = Failure::new(Code::Unreadable, format!("cannot read {}: {why}", entry.address));
        let again = matches!(error.kind, Kind::Unavailable | Kind::Interrupted);
        if again { Failure { blame: Blame::Internal, ..failure } } else { failure }
    };
    let download = bucket
        .read(key, entry.has_etag.then_some(entry.etag.as_str()), patience)
        .map_err(|error| unreadable(&error))?;
    if let Some(bytes) = download.bytes.filter(|bytes| *bytes > limit) {
        return Err(Failure::over_limit("input length in bytes", bytes, limit));
    }
    match SealedInput::fill(download, limit, true) {
        Ok(input) if input.bytes() == 0 => Err(Failure::new(Code::Empty, format!("{} has no bytes", entry.address))),
        Ok(input) => Ok(input),
        Err(FillError::Long { limit }) => {
            Err(Failure::new(Code::OverLimit, format!("{} has more bytes than the limit of {limit}", entry.address)))
        }
        Err(FillError::Read(error)) => {
            let broken = StoreError::new(Kind::Unavailable, error.to_string());
            let said = error.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>());
            Err(unreadable(said.unwrap_or(&broken)))
        }
        Err(error @ FillError::Memory(_)) => Err(Failure::new(Code::Internal, error.to_string())),
    }
}
