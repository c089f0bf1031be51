//! Where inputs come from and artifacts go: a folder, or the objects below a prefix of a bucket.

use std::fmt;
use std::path::{Path, PathBuf};

/// A folder or a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A local folder.
    Folder(PathBuf),
    /// Objects of a bucket.
    Bucket {
        /// The bucket's name.
        bucket: String,
        /// Empty, or ending with a slash.
        prefix: String,
    },
}

/// Why a text is no location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// The bucket's name cannot be one.
    #[error(
        "`{text}` names no bucket: a name has 3 to 63 characters of a-z, 0-9, `.` and `-`, as in s3://bucket/prefix"
    )]
    Bucket {
        /// As typed.
        text: String,
    },
    /// The prefix cannot be used.
    #[error("prefix of `{text}` has {what}")]
    Prefix {
        /// As typed.
        text: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Neither a path nor an S3 address.
    #[error("`{text}` is of no kind that is known: a location is a folder or s3://bucket/prefix")]
    Scheme {
        /// As typed.
        text: String,
    },
}

/// How the place of the artifacts lies to that of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    /// Neither holds the other.
    Apart,
    /// Artifacts go below the inputs: what lies there is no input.
    OutputsInside,
    /// Inputs lie where artifacts go: a later run could take one for the other.
    InputsInside,
}

impl Location {
    /// Reads what was typed. `s3://bucket/prefix` and `s3://bucket/prefix/` are the same.
    ///
    /// # Errors
    /// [`LocationError`]
    pub fn parse(typed: &Path) -> Result<Self, LocationError> {
        let Some(text) = typed.to_str() else { return Ok(Self::Folder(typed.to_owned())) };
        let Some(address) = text.strip_prefix("s3://") else {
            return match text.split_once("://") {
                Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                    Err(LocationError::Scheme { text: text.into() })
                }
                _ => Ok(Self::Folder(typed.to_owned())),
            };
        };
        let (bucket, prefix) = address.split_once('/').unwrap_or((address, ""));
        if !is_bucket(bucket) {
            return Err(LocationError::Bucket { text: text.into() });
        }
        let wrong = |what| LocationError::Prefix { text: text.into(), what };
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if !prefix.is_empty() && prefix.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(wrong("an empty part, `.` or `..`"));
        }
        if prefix.chars().any(char::is_control) {
            return Err(wrong("control characters"));
        }
        if prefix.len() > 256 {
            return Err(wrong("over 256 bytes"));
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self::Bucket { bucket: bucket.into(), prefix })
    }

    /// How `out` lies to the inputs in `self`. Folders are compared as they are: resolve links first.
    #[must_use]
    pub fn overlap(&self, out: &Self) -> Overlap {
        let (inside, holds) = match (self, out) {
            (Self::Folder(inputs), Self::Folder(out)) => (out.starts_with(inputs), inputs.starts_with(out)),
            (Self::Bucket { bucket: a, prefix: inputs }, Self::Bucket { bucket: b, prefix: out }) if a == b => {
                (out.starts_with(inputs.as_str()), inputs.starts_with(out.as_str()))
            }
            _ => (false, false),
        };
        match (inside, holds) {
            (_, true) => Overlap::InputsInside,
            (true, false) => Overlap::OutputsInside,
            (false, false) => Overlap::Apart,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => path.display().fmt(formatter),
            Self::Bucket { bucket, prefix } => write!(formatter, "s3://{bucket}/{prefix}"),
        }
    }
}

fn is_bucket(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    (3..=63).contains(&name.len())
        && name.bytes().all(is_plain)
        && !name.contains("..")
        && !name.starts_with(['.', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location, LocationError> {
        Location::parse(Path::new(text))
    }

    fn overlap(inputs: &str, out: &str) -> Overlap {
        parse(inputs).unwrap().overlap(&parse(out).unwrap())
    }

    #[test]
    fn prefix_ends_with_one_slash_or_is_empty() {
        let at = |prefix: &str| Location::Bucket { bucket: "pictures".into(), prefix: prefix.into() };
        assert_eq!(parse("s3://pictures"), Ok(at("")));
        assert_eq!(parse("s3://pictures/"), Ok(at("")));
        assert_eq!(parse("s3://pictures/a/b"), Ok(at("a/b/")));
        assert_eq!(parse("s3://pictures/a/b/"), Ok(at("a/b/")));
        assert_eq!(at("a/b/").to_string(), "s3://pictures/a/b/");
    }

    #[test]
    fn folder_is_what_has_no_scheme() {
        assert_eq!(parse("photos"), Ok(Location::Folder("photos".into())));
        assert_eq!(parse("./s3:/x"), Ok(Location::Folder("./s3:/x".into())));
        assert!(matches!(parse("gs://bucket/x"), Err(LocationError::Scheme { .. })));
    }

    #[test]
    fn bucket_and_prefix_that_cannot_be_are_refused() {
        for text in ["s3://", "s3:///key", "s3://ab/x", "s3://Upper/x", "s3://a..b/x", "s3://bad_name/x"] {
            assert!(matches!(parse(text), Err(LocationError::Bucket { .. })), "{text}");
        }
        for text in ["s3://bucket//x", "s3://bucket/../x", "s3://bucket/a/./b", "s3://bucket/a\nb"] {
            assert!(matches!(parse(text), Err(LocationError::Prefix { .. })), "{text}");
        }
    }

    #[test]
    fn artifacts_below_the_inputs_are_told_from_inputs_below_the_artifacts() {
        assert_eq!(overlap("s3://one/in", "s3://one/out"), Overlap::Apart);
        assert_eq!(overlap("s3://one/in", "s3://two/in"), Overlap::Apart);
        assert_eq!(overlap("s3://one/in", "s3://one/in-out"), Overlap::Apart);
        assert_eq!(overlap("s3://one/in", "s3://one/in/out"), Overlap::OutputsInside);
        assert_eq!(overlap("s3://one", "s3://one/out"), Overlap::OutputsInside);
        assert_eq!(overlap("s3://one/in", "s3://one/in"), Overlap::InputsInside);
        assert_eq!(overlap("s3://one/in", "s3://one"), Overlap::InputsInside);
        assert_eq!(overlap("/in", "/in/out"), Overlap::OutputsInside);
        assert_eq!(overlap("/in", "/in2"), Overlap::Apart);
        assert_eq!(overlap("/in", "s3://one/in"), Overlap::Apart);
    }
}
