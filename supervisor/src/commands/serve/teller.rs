//! What a server says of its workers; of its jobs `telemetry::span` does.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use refmill::report::{Outcome, Report};

use crate::http::Health;
use crate::notify::Notifier;
use crate::pool::News;
use crate::settings::Voice;
use crate::telemetry::Telemetry;
use crate::verdict::shown;

/// Tells what comes of workers, prints reports where they are wanted, and counts the jobs that were buried.
pub(super) struct Teller<'a> {
    voice: Voice,
    notifier: &'a Notifier,
    health: &'a Health,
    telemetry: &'a Telemetry,
    buried: AtomicUsize,
}

impl<'a> Teller<'a> {
    pub fn new(voice: Voice, notifier: &'a Notifier, health: &'a Health, telemetry: &'a Telemetry) -> Self {
        Self { voice, notifier, health, telemetry, buried: AtomicUsize::new(0) }
    }

    pub fn buried(&self) -> usize {
        self.buried.load(Ordering::Relaxed)
    }

    pub fn hear(&self, news: News) {
        self.telemetry.worker(&news);
        match news {
            News::Ready(device, verdict) => {
                let (reason, uuid) = (shown(&device.reason), shown(&device.uuid));
                tracing::info!(device = device.kind, uuid, "ready on {} {uuid} ({reason})", device.kind);
                for (gap, note) in verdict.gaps.iter().zip(verdict.notes()) {
                    tracing::info!(code = gap.layer.code(), "{note}");
                }
                self.health.works();
                self.notifier.ready();
            }
            News::SlotLost(reason) => tracing::warn!("a worker was lost and not replaced: {}", shown(&reason)),
            News::Recycled(slot, reason) => tracing::info!(slot, reason, "{slot}: worker recycled: {reason}"),
            News::Kept(slot, reason) => {
                tracing::warn!(slot, "{slot}: worker not recycled: {}", shown(&reason));
            }
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
        }
    }
}
