//! What a server says of its workers and jobs, a line each.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use refmill::report::{Outcome, Report};

use super::tell;
use crate::notify::Notifier;
use crate::pool::News;
use crate::progress::describe;
use crate::settings::Voice;
use crate::verdict::shown;

/// Tells what comes of jobs, and counts those that were buried.
pub(super) struct Teller<'a> {
    voice: Voice,
    notifier: &'a Notifier,
    buried: AtomicUsize,
}

impl<'a> Teller<'a> {
    pub fn new(voice: Voice, notifier: &'a Notifier) -> Self {
        Self { voice, notifier, buried: AtomicUsize::new(0) }
    }

    pub fn buried(&self) -> usize {
        self.buried.load(Ordering::Relaxed)
    }

    pub fn hear(&self, news: News) {
        match news {
            News::Ready(device, verdict) => {
                let reason = shown(&device.reason);
                tell(self.voice.quiet, &format!("ready on {} {} ({reason})", device.kind, shown(&device.uuid)));
                verdict.notes().for_each(|note| tell(self.voice.quiet, &note));
                self.notifier.ready();
            }
            News::SlotLost(reason) => tell(false, &format!("a worker was lost and not replaced: {}", shown(&reason))),
            News::Recycled(slot, reason) => tell(self.voice.quiet, &format!("{slot}: worker recycled: {reason}")),
            News::Kept(slot, reason) => tell(false, &format!("{slot}: worker not recycled: {}", shown(&reason))),
            News::Finished(finished) => self.finished(&finished.report),
        }
    }

    fn finished(&self, report: &Report) {
        let rejected = report.outcome == Outcome::Reject;
        self.buried.fetch_add(usize::from(rejected), Ordering::Relaxed);
        if self.voice.json {
            // A report always serialises. A reader that went away wants no more lines.
            let text = serde_json::to_string(report).unwrap_or_default();
            drop(writeln!(io::stdout().lock(), "{text}"));
        } else {
            tell(self.voice.quiet && !rejected, &describe(report));
        }
    }
}
