//! A report as people read it: one line for a sound image, else a table of its findings. Texts that come from a
//! file's name or from a worker are shown without control characters.

use refmill::failure::Code;
use refmill::finding::{Finding, Severity};
use refmill::report::{Outcome, Report};

use crate::table;

/// Widths of the columns severity, code, where, found and decided; longer texts are wrapped.
const WIDTHS: [usize; 5] = [8, 24, 28, 44, 40];

/// The verdict on one image. Informative findings are listed if `all` says so.
#[must_use]
pub fn describe(report: &Report, all: bool) -> String {
    let mut text = headline(report);
    text.push('\n');
    let shown: Vec<&Finding> =
        report.findings.iter().filter(|finding| all || finding.severity > Severity::Info).collect();
    if !shown.is_empty() {
        let head = ["severity", "code", "where", "found", "decided"].map(str::to_owned);
        let rows = shown.into_iter().map(|finding| row(report, finding));
        text.push_str(&table::render(&std::iter::once(head).chain(rows).collect::<Vec<_>>(), &WIDTHS));
    }
    if report.findings_omitted > 0 {
        text.push_str(&format!("  and {} findings more\n", report.findings_omitted));
    }
    text
}

fn headline(report: &Report) -> String {
    let name = shown(&report.source.name);
    let word = match report.outcome {
        Outcome::Ok => "ok",
        Outcome::OkWithRepair => "defect",
        Outcome::Reject => "reject",
    };
    let picture = report.image.as_ref().map(|image| {
        let [width, height] = image.upright;
        let format = report.source.format.map_or(String::new(), |format| format!("{format:?}").to_uppercase());
        let turned =
            if image.orientation == 1 { String::new() } else { format!(", turned from {}", image.orientation) };
        format!("{format} {width} x {height}{turned}")
    });
    let colour = report.colour.as_ref().map(|colour| match shown(&colour.description) {
        text if text.is_empty() => colour.interpretation.clone(),
        text => text,
    });
    let error = report.error.as_ref().map(|failure| shown(&failure.to_string()));
    let part = (!report.not_looked_for.is_empty()).then(|| "headers only".to_owned());
    let details: Vec<String> = [picture, colour, error, part].into_iter().flatten().collect();
    format!("{word:<6}  {name}  {}", details.join(", ")).trim_end().to_owned()
}

fn row(report: &Report, finding: &Finding) -> [String; 5] {
    let severity = match finding.severity {
        Severity::Info => "info",
        Severity::Defect => "defect",
        Severity::Fatal => "fatal",
    };
    let place = if finding.place.is_empty() { "the file" } else { &finding.place };
    let cells = [severity, finding.code.as_str(), place, &finding.found, &decided(report, finding)];
    cells.map(shown)
}

/// What became of a finding: rejected, a value for another, or what its code always comes to.
#[must_use]
pub fn decided(report: &Report, finding: &Finding) -> String {
    let rejected = report.error.as_ref().is_some_and(|failure| failure.code == Code::PolicyReject);
    if rejected && report.findings.last() == Some(finding) {
        return "rejected by the policy".into();
    }
    match report.repairs.iter().find(|repair| repair.code == finding.code) {
        Some(repair) if repair.before == finding.found => repair.after.clone(),
        Some(repair) => format!("{} \u{2192} {}", repair.before, repair.after),
        None => finding.code.decision().into(),
    }
}

/// A text from outside as it may stand in a terminal.
#[must_use]
pub fn shown(text: &str) -> String {
    // Marks that turn the direction of writing can make a name look like another.
    let hides = |c: char| {
        c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if hides(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use refmill::failure::Failure;
    use refmill::finding::{FindingCode, Repair};
    use refmill::report::Source;

    fn report() -> Report {
        Report::new(Source { name: "a\x1b[31m\u{202e}.jpg".into(), ..Source::default() })
    }

    #[test]
    fn sound_image_is_one_line_without_control_characters() {
        let mut report = report();
        report.find(Finding::new(FindingCode::ExifAbsent, "", "no EXIF block"));
        assert_eq!(describe(&report, false), "ok      a?[31m?.jpg\n");
        assert_eq!(describe(&report, true).lines().count(), 3);
    }

    #[test]
    fn defect_is_told_with_what_was_decided() {
        let mut report = report();
        report.find(Finding::new(FindingCode::OrientationInvalid, "IFD0", "value is 9"));
        report.repairs.push(Repair::new(FindingCode::OrientationInvalid, "9", "1"));
        report.conclude();
        let text = describe(&report, false);
        assert!(text.starts_with("defect  a?"), "{text}");
        assert!(text.contains("orientation_invalid") && text.contains("9 \u{2192} 1"), "{text}");
    }

    #[test]
    fn finding_that_the_policy_rejects_says_so() {
        let mut report = report();
        let finding = Finding::new(FindingCode::IccCorrupt, "", "");
        report.find(finding.clone());
        report.reject(Failure::new(Code::PolicyReject, "x"));
        assert_eq!(decided(&report, &finding), "rejected by the policy");
    }
}
