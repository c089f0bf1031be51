//! The completion mark: one more member in each report that a batch writes. It says which bytes and which wishes the
//! report answers, so that a later batch skips what is done and does again what is not.

use refmill::failure::Failure;
use refmill::report::{Outcome, REPORT_VERSION, Report};
use serde::{Deserialize, Serialize};

use crate::pool::Order;

/// Context of the hash; another form of the key has another one.
const CONTEXT: &str = "refmill 2026 batch completion key 1";

/// What a report answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Hash of the program's and the report's version, the ETag and all wishes, hexadecimal.
    pub key: String,
    /// The input's ETag as it was listed; of a file, its length and the time of its last change.
    pub etag: String,
}

/// A report as a batch publishes it.
#[derive(Debug, Serialize)]
pub struct Marked<'a> {
    /// The report.
    #[serde(flatten)]
    pub report: &'a Report,
    /// What it answers.
    pub batch: &'a Mark,
}

/// What is read back of a report.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Found {
    /// How the job ended.
    pub outcome: Outcome,
    /// Why, if it was rejected.
    pub error: Option<Failure>,
    /// What it answers; none where another command wrote the report.
    pub batch: Option<Mark>,
}

impl Mark {
    /// The mark of an input with this ETag, processed as `wishes` say: the text of [`wishes`].
    #[must_use]
    pub fn new(wishes: &str, etag: &str) -> Self {
        let version = format!("{} {REPORT_VERSION}", env!("CARGO_PKG_VERSION"));
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        for part in [version.as_str(), wishes, etag] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        Self { key: hasher.finalize().to_hex().to_string(), etag: etag.to_owned() }
    }
}

/// All that decides what comes out for given bytes.
///
/// # Errors
/// None in practice: an order is numbers, texts and names.
pub fn wishes(order: &Order) -> serde_json::Result<String> {
    serde_json::to_string(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use refmill::job::{ColourOptions, ImageWanted};
    use refmill::limits::Limits;
    use refmill::report::Source;

    fn order(image: ImageWanted) -> String {
        wishes(&Order::new(image, None, ColourOptions::default(), Limits::default())).unwrap()
    }

    #[test]
    fn mark_differs_by_etag_and_by_wishes_alone() {
        let (png, none) = (order(ImageWanted::ConvertedPng), order(ImageWanted::No));
        assert_eq!(Mark::new(&png, "\"a\""), Mark::new(&png, "\"a\""));
        assert_ne!(Mark::new(&png, "\"a\"").key, Mark::new(&png, "\"b\"").key);
        assert_ne!(Mark::new(&png, "\"a\"").key, Mark::new(&none, "\"a\"").key);
    }

    #[test]
    fn marked_report_is_a_report_with_one_more_member() {
        let (report, mark) = (Report::new(Source::default()), Mark::new("w", "e"));
        let text = serde_json::to_string(&Marked { report: &report, batch: &mark }).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        let found: Found = serde_json::from_str(&text).unwrap();
        assert_eq!(found.batch, Some(mark));
        let other: Found = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(other.batch, None);
    }
}
