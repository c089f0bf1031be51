//! `refmill inspect`: the verdict on every input, in the order of the inputs, and an exit code by the worst.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, IsTerminal, Write};

use refmill::exit::ExitCode;
use refmill::finding::Severity;
use refmill::report::{Outcome, Report};

use super::run::prepare;
use super::sheet::Sheet;
use super::{CommandError, warn_unconfined};
use crate::args::InspectArgs;
use crate::intake::{self, Expanded, Input};
use crate::pool::{self, News, Task};
use crate::publish::Outputs;
use crate::settings::{InspectSettings, Voice};
use crate::verdict;

pub(super) fn inspect(args: InspectArgs) -> Result<ExitCode, CommandError> {
    let stop = prepare(None)?;
    let settings = InspectSettings::new(args)?;
    warn_unconfined(settings.plan.confinement.policy);
    let Expanded { inputs, notes } = intake::expand(&settings.inputs)?;
    let mut teller = Teller::new(settings.voice, settings.all);
    notes.iter().for_each(|note| teller.note(note));
    let mut sheet = settings.contact_sheet.as_deref().map(Sheet::new).transpose()?;
    let outputs = |index| sheet.as_ref().map(|sheet| sheet.outputs(index)).unwrap_or_default();
    let tasks: Vec<Task> = inputs.iter().enumerate().map(|(index, input)| task(index, input, outputs(index))).collect();
    if tasks.is_empty() {
        return Ok(ExitCode::Rejected);
    }
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    // Starting a worker costs as much as judging some hundred files, and less than decoding one.
    let useful = if sheet.is_some() { tasks.len() } else { tasks.len().div_ceil(100) };
    let slots = settings.workers.unwrap_or_else(|| cores().min(useful)).clamp(1, tasks.len());
    let ended = pool::run(&settings.plan, slots, &settings.order, &tasks, &stop, &mut |mut news| {
        if let (Some(sheet), News::Finished(finished)) = (&mut sheet, &mut news) {
            sheet.add(finished);
        }
        teller.hear(news);
    });
    teller.rest();
    if let Some(sheet) = sheet.filter(|_| ended.worked) {
        sheet.write()?;
    }
    match ended.broken {
        Some(error) if !ended.worked => Err(CommandError::NoWorker(error)),
        Some(source) if ended.undone > 0 && !stop.is_requested() => {
            Err(CommandError::WorkersLost { undone: ended.undone, source })
        }
        _ if ended.undone > 0 => Ok(ExitCode::Rejected),
        _ => Ok(teller.close()),
    }
}

fn task(index: usize, input: &Input, outputs: Outputs) -> Task {
    Task { index, name: input.origin.name(), origin: input.origin.clone(), outputs }
}

/// Tells verdicts in the order of the inputs, whatever order they come in, and counts them.
struct Teller {
    voice: Voice,
    all: bool,
    live: bool,
    out: BufWriter<io::Stdout>,
    early: BTreeMap<usize, Report>,
    next: usize,
    sound: usize,
    defective: usize,
    rejected: usize,
}

impl Teller {
    fn new(voice: Voice, all: bool) -> Self {
        let live = io::stdout().is_terminal();
        let (out, early) = (BufWriter::with_capacity(1 << 16, io::stdout()), BTreeMap::new());
        Self { voice, all, live, out, early, next: 0, sound: 0, defective: 0, rejected: 0 }
    }

    fn note(&self, text: &str) {
        if !self.voice.quiet {
            // Where standard error is closed there is nobody to tell.
            drop(writeln!(io::stderr().lock(), "{}", verdict::shown(text)));
        }
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Ready(_, verdict) => verdict.notes().for_each(|note| self.note(&note)),
            News::SlotLost(reason) => self.note(&format!("a worker was lost and not replaced: {reason}")),
            News::Kept(slot, reason) => self.note(&format!("{slot}: worker not recycled: {reason}")),
            News::Recycled(..) => {}
            News::Finished(finished) => {
                self.early.insert(finished.index, finished.report);
                while let Some(report) = self.early.remove(&self.next) {
                    self.tell(&report);
                    self.next += 1;
                }
                if self.live {
                    self.flush();
                }
            }
        }
    }

    fn tell(&mut self, report: &Report) {
        let grade = grade(report);
        match grade {
            ExitCode::Rejected => self.rejected += 1,
            ExitCode::Defective => self.defective += 1,
            _ => self.sound += 1,
        }
        if self.voice.quiet && grade == ExitCode::Sound {
            return;
        }
        // A report always serialises: its map keys are field names and its numbers finite or integers.
        let text = if self.voice.json {
            serde_json::to_string(report).unwrap_or_default() + "\n"
        } else {
            verdict::describe(report, self.all)
        };
        // A reader that went away wants no more lines; the exit code tells the rest.
        drop(self.out.write_all(text.as_bytes()));
    }

    /// Tells what waits for a report that never came.
    fn rest(&mut self) {
        std::mem::take(&mut self.early).values().for_each(|report| self.tell(report));
        self.flush();
    }

    fn flush(&mut self) {
        // As above.
        drop(self.out.flush());
    }

    fn close(mut self) -> ExitCode {
        self.flush();
        let Self { sound, defective, rejected, .. } = self;
        self.note(&format!("{sound} sound, {defective} with a defect, {rejected} rejected"));
        match (defective, rejected) {
            (0, 0) => ExitCode::Sound,
            (_, 0) => ExitCode::Defective,
            _ => ExitCode::Rejected,
        }
    }
}

/// How the program would end for this image alone.
fn grade(report: &Report) -> ExitCode {
    let worst = report.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Info);
    match (report.outcome, worst) {
        (Outcome::Reject, _) | (_, Severity::Fatal) => ExitCode::Rejected,
        (_, Severity::Defect) => ExitCode::Defective,
        _ => ExitCode::Sound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refmill::failure::{Code, Failure};
    use refmill::finding::{Finding, FindingCode};
    use refmill::report::Source;

    #[test]
    fn grade_is_that_of_the_worst_finding() {
        let mut report = Report::new(Source::default());
        report.find(Finding::new(FindingCode::ExifAbsent, "", ""));
        assert_eq!(grade(&report), ExitCode::Sound);
        report.find(Finding::new(FindingCode::IccCorrupt, "", ""));
        assert_eq!(grade(&report), ExitCode::Defective);
        report.reject(Failure::new(Code::Corrupt, "x"));
        assert_eq!(grade(&report), ExitCode::Rejected);
    }
}
