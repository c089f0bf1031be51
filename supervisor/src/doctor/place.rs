//! The queue and the folder of artifacts: whether they are sound, can be written, and have room.

use std::fs;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use rusqlite::{Connection, OpenFlags};

use super::Patient;
use super::check::{Check, Checked, Severity};
use crate::queue::sqlite::Durability;
use crate::queue::{Enqueued, NewJob, Queue, SqliteQueue};

const MIB: u64 = 1 << 20;
/// Less room than this many images' artifacts is worth a warning.
const IMAGES: u64 = 16;

/// The checks of the queue.
pub(super) const QUEUE: &[Check] = &[Check::QueueFile, Check::QueueRoundTrip];
/// The checks of the folder.
pub(super) const OUTPUT: &[Check] = &[Check::OutputFolder, Check::OutputSpace];

pub(super) fn check_queue(patient: &Patient) -> Vec<Checked> {
    vec![file(&patient.queue), round_trip(&patient.queue)]
}

pub(super) fn check_output(patient: &Patient) -> Vec<Checked> {
    vec![folder(&patient.out), space(&patient.out, patient.plan.output_bytes)]
}

/// Looks at the file without writing to it.
fn file(path: &Path) -> Checked {
    let told = |severity, seen: String| Checked::new(Check::QueueFile, severity, seen);
    let place = path.display();
    if !path.exists() {
        return told(Severity::Note, format!("{place} does not exist yet; `refmill submit` makes it"));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let asked = Connection::open_with_flags(path, flags).and_then(|file| {
        let application: i64 = file.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let answer: String = file.pragma_query_value(None, "quick_check", |row| row.get(0))?;
        Ok((application, answer))
    });
    let is_writable = fs::OpenOptions::new().append(true).open(path);
    match (asked, is_writable) {
        (Err(error), _) => told(Severity::Failure, format!("{place} cannot be read as a queue: {error}")),
        (Ok((application, _)), _) if application != crate::queue::sqlite::APPLICATION => {
            told(Severity::Failure, format!("{place} is a database, but not a queue of refmill"))
        }
        (Ok((_, answer)), _) if answer != "ok" => told(Severity::Failure, format!("{place} is damaged: {answer}")),
        (_, Err(error)) => told(Severity::Failure, format!("{place} cannot be written: {error}")),
        (Ok(_), Ok(_)) => told(Severity::Ok, format!("{place} is sound and can be written")),
    }
}

/// A job through a queue of its own beside the real one.
fn round_trip(path: &Path) -> Checked {
    let told = |severity, seen: String| Checked::new(Check::QueueRoundTrip, severity, seen);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scratch = match tempfile::Builder::new().prefix(".refmill-doctor-").tempdir_in(parent) {
        Ok(scratch) => scratch,
        Err(error) => return told(Severity::Failure, format!("{} cannot be written: {error}", parent.display())),
    };
    match through(&scratch.path().join("queue.db")) {
        Ok(()) => told(Severity::Ok, format!("a job was put, taken and acked in {}", parent.display())),
        Err(problem) => told(Severity::Failure, problem),
    }
}

fn through(path: &Path) -> Result<(), String> {
    let queue = SqliteQueue::open(path, Durability::Full, true).map_err(|error| error.to_string())?;
    let put =
        queue.enqueue(&NewJob { key: "doctor".into(), ..NewJob::default() }).map_err(|error| error.to_string())?;
    let claimed = queue.claim("doctor", 60_000).map_err(|error| error.to_string())?;
    let claimed = claimed.ok_or("the job that was put was not given out")?;
    if put != Enqueued::New(claimed.job.id) {
        return Err("another job was given out than was put".into());
    }
    queue.ack(claimed.lease, "{}").map_err(|error| error.to_string())
}

/// The folder, or the nearest above it that is there.
fn there(path: &Path) -> &Path {
    let parent = path.ancestors().find(|above| above.exists());
    parent.unwrap_or(Path::new("."))
}

fn folder(out: &Path) -> Checked {
    let told = |severity, seen: String| Checked::new(Check::OutputFolder, severity, seen);
    let place = there(out);
    if !place.is_dir() {
        return told(Severity::Failure, format!("{} is no folder", place.display()));
    }
    match tempfile::Builder::new().prefix(".refmill-doctor-").tempfile_in(place) {
        Ok(_) => told(Severity::Ok, format!("{} can be written", place.display())),
        Err(error) => told(Severity::Failure, format!("{} cannot be written: {error}", place.display())),
    }
}

fn space(out: &Path, output_bytes: u64) -> Checked {
    let told = |severity, seen: String| Checked::new(Check::OutputSpace, severity, seen);
    let place = there(out);
    let free = match statvfs(place) {
        Ok(about) => about.blocks_available().saturating_mul(about.fragment_size()),
        Err(error) => return told(Severity::Failure, format!("{} does not tell: {error}", place.display())),
    };
    told(roomy(free, output_bytes), format!("{} MiB free, one image may need {} MiB", free / MIB, output_bytes / MIB))
}

fn roomy(free: u64, output_bytes: u64) -> Severity {
    match free {
        free if free < output_bytes => Severity::Failure,
        free if free < output_bytes.saturating_mul(IMAGES) => Severity::Warning,
        _ => Severity::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_no_image_is_a_failure_and_for_few_a_warning() {
        let severities = [99, 100, 1_600].map(|free| roomy(free, 100));
        assert_eq!(severities, [Severity::Failure, Severity::Warning, Severity::Ok]);
    }
}
