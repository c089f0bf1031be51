//! Where a queue is: in a file, or in a stream.

use std::fmt;
use std::path::{Path, PathBuf};

use super::nats::{Access, Address, AddressError};
use super::sqlite::Durability;
use super::{QueueError, SqliteQueue};

/// Where a queue is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a file of this machine, which one supervisor serves.
    File(PathBuf),
    /// In a stream, which any number of supervisors share.
    Stream(Address, Access),
}

impl Place {
    /// The place that a text names: an address, or else a path.
    ///
    /// # Errors
    /// [`AddressError`]
    pub fn named(text: &Path, access: Access) -> Result<Self, AddressError> {
        match text.to_str().filter(|text| Address::is_meant(text)) {
            Some(address) => Ok(Self::Stream(address.parse()?, access)),
            None => Ok(Self::File(text.to_owned())),
        }
    }

    /// The file, where it is in one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Stream(..) => None,
        }
    }

    /// Opens the queue, and makes it where `create` says so. In a stream what was accepted lasts as the stream itself
    /// does, whatever `durability` says.
    ///
    /// # Errors
    /// [`SqliteQueue::open`], [`SqliteQueue::share`]
    pub fn open(&self, durability: Durability, create: bool) -> Result<SqliteQueue, QueueError> {
        match self {
            Self::File(path) => SqliteQueue::open(path, durability, create),
            Self::Stream(address, access) => SqliteQueue::share(address, access, create),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(formatter),
            Self::Stream(address, _) => address.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_a_stream_by_its_scheme_and_a_file_otherwise() {
        let named = |text: &str| Place::named(Path::new(text), Access::default());
        assert_eq!(named("refmill.db"), Ok(Place::File("refmill.db".into())));
        assert_eq!(named("nats://q/jobs").unwrap().to_string(), "nats://q:4222/jobs");
        assert!(named("tls://q").is_err());
    }
}
