//! What the user sees while a run goes on and at its end: a bar on a terminal, else a line an image. Texts that come
//! from a file's name or from a worker are shown without control characters.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use refmill::exit::ExitCode;
use refmill::finding::Severity;
use refmill::report::{Device, Outcome, Report};

use crate::settings::Voice;

/// Tells the user, and counts.
#[derive(Debug)]
pub struct Progress {
    voice: Voice,
    json_to_stderr: bool,
    bar: Option<ProgressBar>,
    tally: Tally,
    failed: Vec<String>,
}

/// How many images ended how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Without a defect.
    pub ok: usize,
    /// With a defect that was repaired.
    pub repaired: usize,
    /// Without artifacts.
    pub rejected: usize,
    /// Never finished.
    pub undone: usize,
}

impl Tally {
    /// How a program that did this ends.
    #[must_use]
    pub fn exit_code(self) -> ExitCode {
        let processed = self.ok.saturating_add(self.repaired);
        let failed = self.rejected.saturating_add(self.undone);
        match (processed, failed) {
            (0, _) => ExitCode::NothingDone,
            (_, 0) => ExitCode::AllGood,
            _ => ExitCode::SomeFailed,
        }
    }
}

impl Progress {
    /// For a run over `count` images. JSON lines go to standard error where standard output carries an artifact.
    #[must_use]
    pub fn new(voice: Voice, count: usize, json_to_stderr: bool) -> Self {
        let shown = !voice.quiet && !voice.json && io::stderr().is_terminal();
        Self { voice, json_to_stderr, bar: shown.then(|| bar(count)), tally: Tally::default(), failed: Vec::new() }
    }

    /// The device that work is done on.
    pub fn device(&self, device: &Device) {
        let name = [&device.name, &device.uuid].map(|text| shown(text)).join(" ");
        let name = if device.kind == "cpu" { String::new() } else { format!(" {}", name.trim()) };
        self.line(&format!("device: {}{name} ({})", device.kind, shown(&device.reason)));
    }

    /// Something that the user should know.
    pub fn note(&self, text: &str) {
        self.line(&shown(text));
    }

    /// One image is finished.
    pub fn finished(&mut self, report: &Report) {
        let line = describe(report);
        match report.outcome {
            Outcome::Ok => self.tally.ok += 1,
            Outcome::OkWithRepair => self.tally.repaired += 1,
            Outcome::Reject => {
                self.tally.rejected += 1;
                self.failed.push(line.clone());
            }
        }
        if self.voice.json {
            self.json(report);
        }
        match &self.bar {
            Some(bar) => {
                bar.inc(1);
                bar.set_message(self.counts());
            }
            None if !self.voice.json => self.line(&line),
            None => {}
        }
    }

    /// Images that were never finished.
    pub fn undone(&mut self, count: usize) {
        self.tally.undone = count;
    }

    /// The end of the run: counts, and each failure once more.
    pub fn close(self) -> Tally {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.line(&self.counts());
        self.failed.iter().for_each(|line| say(&format!("  {line}")));
        self.tally
    }

    fn counts(&self) -> String {
        let Tally { ok, repaired, rejected, undone } = self.tally;
        let undone = if undone == 0 { String::new() } else { format!(", {undone} not done") };
        format!("{ok} ok, {repaired} repaired, {rejected} rejected{undone}")
    }

    fn json(&self, report: &Report) {
        // A report always serialises: its map keys are field names and its numbers finite or integers.
        let Ok(text) = serde_json::to_string(report) else { return };
        if self.json_to_stderr {
            say(&text);
        } else {
            // A reader that went away wants no more lines; the artifacts are published all the same.
            drop(writeln!(io::stdout().lock(), "{text}"));
        }
    }

    fn line(&self, text: &str) {
        if self.voice.quiet {
            return;
        }
        match &self.bar {
            Some(bar) => bar.println(text),
            None => say(text),
        }
    }
}

/// Writes a line to standard error. Where even that fails, there is nobody to tell.
fn say(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

fn bar(count: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr());
    let template = "{bar:30} {pos}/{len} {msg} {elapsed}";
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// One image in one line.
#[must_use]
pub fn describe(report: &Report) -> String {
    let name = shown(&report.source.name);
    match (&report.outcome, &report.error) {
        (Outcome::Ok, _) => format!("{name}: ok"),
        (Outcome::Reject, Some(failure)) => format!("{name}: {}", shown(&failure.to_string())),
        (Outcome::Reject, None) => format!("{name}: rejected"),
        (Outcome::OkWithRepair, _) => {
            let mut codes: Vec<&str> = report
                .findings
                .iter()
                .filter(|finding| finding.severity >= Severity::Defect)
                .map(|finding| finding.code.as_str())
                .collect();
            codes.dedup();
            format!("{name}: repaired ({})", codes.join(", "))
        }
    }
}

fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use refmill::failure::{Code, Failure};
    use refmill::finding::{Finding, FindingCode};
    use refmill::report::Source;

    fn source() -> Source {
        Source { name: "a\x1b[31m.jpg".into(), ..Source::default() }
    }

    #[test]
    fn rejection_is_told_with_its_code_and_without_control_characters() {
        let report = Report::rejected(source(), Failure::new(Code::Corrupt, "no\nend"));
        assert_eq!(describe(&report), "a?[31m.jpg: corrupt: no?end");
    }

    #[test]
    fn repair_is_told_with_its_findings() {
        let mut report = Report::new(source());
        report.find(Finding::new(FindingCode::ExifAbsent, "", ""));
        report.find(Finding::new(FindingCode::IccCorrupt, "", ""));
        report.conclude();
        assert_eq!(describe(&report), "a?[31m.jpg: repaired (icc_corrupt)");
    }

    #[test]
    fn exit_code_says_how_much_was_done() {
        let tally = |ok, rejected, undone| Tally { ok, repaired: 0, rejected, undone }.exit_code();
        assert_eq!(tally(2, 0, 0), ExitCode::AllGood);
        assert_eq!(tally(2, 1, 0), ExitCode::SomeFailed);
        assert_eq!(tally(2, 0, 1), ExitCode::SomeFailed);
        assert_eq!(tally(0, 3, 0), ExitCode::NothingDone);
        assert_eq!(tally(0, 0, 0), ExitCode::NothingDone);
    }
}
