//! What the user sees of a batch: a bar with rate and time left on a terminal, else a line an image; the summary; and
//! the failures file. Several threads tell.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use refmill::failure::{Code, Failure};
use refmill::report::{Outcome, Report};
use serde::Serialize;

use crate::progress::{Tally, describe};
use crate::settings::Voice;
use crate::store::failures::{Failed, Failures, FailuresError};
use crate::store::inputs::Entry;
use crate::store::mark::{Found, Mark, Marked};
use crate::store::source::Told;
use crate::verdict::shown;

/// Tells, and counts.
#[derive(Debug)]
pub(super) struct Telling {
    voice: Voice,
    input: String,
    bar: Option<ProgressBar>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    counts: Counts,
    failures: Failures,
    broken: Option<FailuresError>,
}

/// How many inputs ended how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    /// What was listed.
    pub listed: u64,
    pub ok: u64,
    pub repaired: u64,
    pub rejected: u64,
    /// Done by an earlier batch.
    pub skipped: u64,
    /// Of these, how many were rejected then.
    pub skipped_rejected: u64,
    pub not_done: u64,
}

/// The last line of a batch that speaks JSON.
#[derive(Serialize)]
struct Summary<'a> {
    summary: Counts,
    failures: Option<&'a str>,
}

impl Counts {
    /// What has ended.
    fn ended(self) -> u64 {
        self.ok + self.repaired + self.rejected + self.skipped
    }

    /// The same answer as if everything had been done now.
    pub(super) fn tally(self) -> Tally {
        let count = |number| usize::try_from(number).unwrap_or(usize::MAX);
        Tally {
            ok: count(self.ok + self.skipped.saturating_sub(self.skipped_rejected)),
            repaired: count(self.repaired),
            rejected: count(self.rejected + self.skipped_rejected),
            undone: count(self.not_done),
        }
    }

    fn text(self) -> String {
        let Self { ok, repaired, rejected, skipped, skipped_rejected, not_done, .. } = self;
        let mut text = format!("{ok} ok, {repaired} repaired, {rejected} rejected");
        if skipped > 0 {
            text += &format!(", {skipped} done before");
        }
        if skipped_rejected > 0 {
            text += &format!(" ({skipped_rejected} of them rejected)");
        }
        if not_done > 0 {
            text += &format!(", {not_done} not done");
        }
        text
    }
}

impl Telling {
    pub(super) fn new(voice: Voice, input: &str, failures: Failures) -> Self {
        let is_shown = !voice.quiet && !voice.json && io::stderr().is_terminal();
        let state = Mutex::new(State { counts: Counts::default(), failures, broken: None });
        Self { voice, input: input.to_owned(), bar: is_shown.then(bar), state }
    }

    /// One more input is known.
    pub(super) fn listed(&self) {
        self.state().counts.listed += 1;
        if let Some(bar) = &self.bar {
            bar.inc_length(1);
        }
    }

    /// Whether any input is known.
    pub(super) fn has_listed(&self) -> bool {
        self.state().counts.listed > 0
    }

    pub(super) fn told(&self, told: &Told<'_>) {
        match told {
            Told::Skipped(entry, found) => self.skipped(entry, found),
            Told::Finished(entry, mark, report) => self.finished(entry, mark, report),
        }
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(self.state().counts.text());
        }
    }

    fn skipped(&self, entry: &Entry, found: &Found) {
        {
            let mut state = self.state();
            state.counts.skipped += 1;
            state.counts.skipped_rejected += u64::from(found.outcome == Outcome::Reject);
        }
        if let Some(failure) = &found.error {
            self.failed(&entry.key, failure.clone());
        }
    }

    fn finished(&self, entry: &Entry, mark: &Mark, report: &Report) {
        {
            let mut state = self.state();
            match report.outcome {
                Outcome::Ok => state.counts.ok += 1,
                Outcome::OkWithRepair => state.counts.repaired += 1,
                Outcome::Reject => state.counts.rejected += 1,
            }
        }
        if let Some(failure) = &report.error {
            self.failed(&entry.key, failure.clone());
        }
        if self.voice.json {
            // A report always serialises. A reader that went away wants no more lines.
            let text = serde_json::to_string(&Marked { report, batch: mark }).unwrap_or_default();
            drop(writeln!(io::stdout().lock(), "{text}"));
        } else if self.bar.is_none() || report.outcome == Outcome::Reject {
            let is_quiet = self.voice.quiet && report.outcome != Outcome::Reject;
            if !is_quiet {
                self.line(&describe(report));
            }
        }
    }

    /// Something that failed for the failures file alone.
    pub(super) fn failed(&self, key: &str, error: Failure) {
        let mut state = self.state();
        let failed = Failed { input: self.input.clone(), key: key.to_owned(), error };
        if let Err(error) = state.failures.add(&failed) {
            state.broken.get_or_insert(error);
        }
    }

    /// An input that is to be tried again and is no longer there.
    pub(super) fn gone(&self, key: &str) {
        self.state().counts.rejected += 1;
        let failure = Failure::new(Code::Unreadable, format!("{key} is no longer there"));
        self.line(&shown(&failure.to_string()));
        self.failed(key, failure);
    }

    pub(super) fn note(&self, text: &str) {
        if !self.voice.quiet {
            self.line(&shown(text));
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            // Where standard error is closed there is nobody to tell.
            None => drop(writeln!(io::stderr().lock(), "{text}")),
        }
    }

    /// The end: the failures file lies in its place, and the counts are told.
    pub(super) fn close(self) -> Result<Counts, FailuresError> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let State { mut counts, failures, broken } = state;
        counts.not_done = counts.listed.saturating_sub(counts.ended());
        let (path, failed) = (failures.path().display().to_string(), failures.count());
        failures.finish()?;
        if let Some(error) = broken {
            return Err(error);
        }
        let path = (failed > 0).then_some(path);
        if self.voice.json {
            let summary = Summary { summary: counts, failures: path.as_deref() };
            // As above.
            drop(writeln!(io::stdout().lock(), "{}", serde_json::to_string(&summary).unwrap_or_default()));
        }
        if !self.voice.quiet {
            let end = path.map(|path| format!("; failures are listed in {}", shown(&path))).unwrap_or_default();
            drop(writeln!(io::stderr().lock(), "{}{end}", counts.text()));
        }
        Ok(counts)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let template = "{bar:24} {pos}/{len} {per_sec} {eta} left {msg}";
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use refmill::exit::ExitCode;

    #[test]
    fn second_batch_ends_as_the_first_one_did() {
        let first = Counts { listed: 3, ok: 1, repaired: 1, rejected: 1, ..Counts::default() };
        let second = Counts { listed: 3, skipped: 3, skipped_rejected: 1, ..Counts::default() };
        assert_eq!(first.tally().exit_code(), ExitCode::SomeFailed);
        assert_eq!(second.tally().exit_code(), ExitCode::SomeFailed);
        assert_eq!(second.text(), "0 ok, 0 repaired, 0 rejected, 3 done before (1 of them rejected)");
    }
}
