//! Findings: what was wrong or remarkable about an image's metadata, in the standards' own words, and
//! [`Repair`]s: what was decided because of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::truncate_utf8;

mod codes;

pub use codes::FindingCode;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; the image is sound.
    Info,
    /// Contradictory or defective metadata: the answer rests on a rule, and a repair says which.
    Defect,
    /// The image cannot be used as it is.
    Fatal,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// What kind of finding.
    pub code: FindingCode,
    /// How much it matters.
    pub severity: Severity,
    /// Where: segment, chunk, box, IFD, tag. Empty where it concerns the whole file.
    pub place: String,
    /// Where that begins, in bytes from the start of the file. None where it concerns the whole file, and where the
    /// place lies in something that is stored deflated or as text.
    #[serde(default)]
    pub offset: Option<u64>,
    /// What was found there.
    pub found: String,
    /// The rule that decides, with its source.
    pub rule: String,
}

/// What was changed or decided because of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Repair {
    /// The finding that asked for it.
    pub code: FindingCode,
    /// The value as found.
    pub before: String,
    /// The value that was used instead.
    pub after: String,
    /// The rule that was applied.
    pub rule: String,
}

/// Longest text in a finding or a repair, in bytes; a longer one is cut.
pub const MAX_TEXT: usize = 240;

fn text(value: impl Into<String>) -> String {
    let mut value = value.into();
    truncate_utf8(&mut value, MAX_TEXT);
    value
}

impl Finding {
    /// A finding with its code's own severity and rule.
    #[must_use]
    pub fn new(code: FindingCode, place: impl Into<String>, found: impl Into<String>) -> Self {
        let (severity, rule) = (code.severity(), text(code.rule()));
        Self { code, severity, place: text(place), offset: None, found: text(found), rule }
    }

    /// The same finding, at this offset in the file.
    #[must_use]
    pub fn at(self, offset: impl Into<Option<usize>>) -> Self {
        Self { offset: offset.into().map(|offset| offset as u64), ..self }
    }
}

impl Repair {
    /// A repair by the rule of its finding.
    #[must_use]
    pub fn new(code: FindingCode, before: impl Into<String>, after: impl Into<String>) -> Self {
        Self { code, before: text(before), after: text(after), rule: text(code.rule()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_text_matches_its_serialised_form() {
        let texts: Vec<String> = FindingCode::ALL.iter().map(|c| serde_json::to_string(c).unwrap()).collect();
        let expected: Vec<String> = FindingCode::ALL.iter().map(|c| format!("\"{}\"", c.as_str())).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn text_longer_than_the_limit_is_cut() {
        let finding = Finding::new(FindingCode::ExifCorrupt, "x".repeat(1000), "y");
        assert_eq!(finding.place.len(), MAX_TEXT);
    }
}
