//! What there is to say about findings, for terminals and as `docs/findings.md`: one source, the table of
//! [`FindingCode`], and the policies in `findings/policy.md`.

use std::fmt::Write;

use refmill::finding::{FindingCode, Severity};
use refmill::report::Format;

use crate::table;

const INTRODUCTION: &str = "\
# Findings

<!-- Made by `refmill explain --markdown > docs/findings.md`; a test compares. -->

A report lists what was found in an image's metadata. Every finding has a stable code, which is never renamed or
reused. `refmill explain CODE` prints what stands here.

- **info**: worth knowing; the image is sound.
- **defect**: contradictory or defective metadata; the answer rests on the rule that is named.
- **fatal**: the image cannot be used as it is.

";
const POLICY: &str = include_str!("findings/policy.md");
/// Width of an explanation in a terminal.
const WIDTH: usize = 96;

/// All codes with severity and meaning.
#[must_use]
pub fn list() -> String {
    let rows: Vec<[String; 3]> = FindingCode::ALL
        .iter()
        .map(|code| [code.as_str(), word(code.severity()), code.meaning()].map(str::to_owned))
        .collect();
    let head = ["code", "severity", "meaning"].map(str::to_owned);
    let table = table::render(&std::iter::once(head).chain(rows).collect::<Vec<_>>(), &[24, 8, 84]);
    format!("{table}\n  `refmill explain CODE` says more; `--policy CODE=ACTION` of run, repair and inspect decides.\n")
}

/// Everything about one code.
#[must_use]
pub fn explain(code: FindingCode) -> String {
    let formats = formats(code);
    let parts = [
        ("Meaning", code.meaning()),
        ("Rule", code.rule()),
        ("refmill", code.decision()),
        ("You", code.remedy()),
        ("Formats", formats.as_str()),
        ("Policy", policy(code)),
    ];
    let rows = parts.map(|(name, text)| [name.to_owned(), text.to_owned()]);
    format!("{} ({})\n{}", code.as_str(), word(code.severity()), table::render(&rows, &[7, WIDTH]))
}

/// That there is no such code, and which one may be meant.
#[must_use]
pub fn unknown(text: &str) -> String {
    let close = |code: &&FindingCode| code.as_str().contains(text) || text.contains(code.as_str());
    let likely: Vec<&str> = FindingCode::ALL.iter().filter(close).map(|code| code.as_str()).collect();
    let hint = if likely.is_empty() || text.is_empty() {
        "`refmill explain` lists the codes".to_owned()
    } else {
        format!("is it {}?", likely.join(", "))
    };
    format!("`{text}` is no finding; {hint}")
}

/// `docs/findings.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(INTRODUCTION);
    text.push_str("| code | severity | meaning |\n| --- | --- | --- |\n");
    for code in FindingCode::ALL {
        let name = code.as_str();
        // Writing to a String cannot fail.
        writeln!(text, "| [`{name}`](#{name}) | {} | {} |", word(code.severity()), code.meaning()).ok();
    }
    text.push('\n');
    text.push_str(POLICY);
    text.push_str("\n## The codes\n");
    for code in FindingCode::ALL {
        section(*code, &mut text);
    }
    text
}

fn section(code: FindingCode, text: &mut String) {
    let (name, severity) = (code.as_str(), word(code.severity()));
    // As above.
    writeln!(text, "\n### {name}\n\n{} *({severity}; {})*\n", code.meaning(), formats(code)).ok();
    writeln!(text, "- Rule: {}.", code.rule()).ok();
    writeln!(text, "- refmill: {}.", code.decision()).ok();
    writeln!(text, "- You: {}", code.remedy()).ok();
}

fn policy(code: FindingCode) -> &'static str {
    match code.severity() {
        Severity::Info => "repair; --strict lets it pass, --policy CODE=reject does not",
        Severity::Defect => "repair; --strict rejects the image unless --policy CODE=repair or =ignore names it",
        Severity::Fatal => "the image is rejected, whatever the policy says",
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Defect => "defect",
        Severity::Fatal => "fatal",
    }
}

fn formats(code: FindingCode) -> String {
    let name = |format: &Format| match format {
        Format::Jpeg => "JPEG",
        Format::Png => "PNG",
        Format::Webp => "WebP",
        Format::Tiff => "TIFF",
        Format::Gif => "GIF",
        Format::Bmp => "BMP",
        Format::Avif => "AVIF",
        Format::Heic => "HEIC",
    };
    code.formats().iter().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanation_holds_meaning_rule_and_remedy() {
        let code = FindingCode::OverLimit;
        let text = explain(code).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!([code.as_str(), code.meaning(), code.remedy()].iter().all(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn unknown_code_is_told_with_what_may_be_meant() {
        assert_eq!(unknown("icc_trunc"), "`icc_trunc` is no finding; is it icc_truncated?");
        assert_eq!(unknown("nonsense"), "`nonsense` is no finding; `refmill explain` lists the codes");
    }
}
