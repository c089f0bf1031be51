//! The sign of life: where the worker is with its job, and what it counted, sent once a period by a thread that does
//! nothing else. The thread never waits for its reader: a beat that finds no room is left out.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use refmill::beat::{Beat, Counters};
use refmill::failure::Stage;
use refmill::job::{Depth, ImageWanted, Job};
use refmill::wire::Event;

use crate::channel;

/// No stage, or no job.
const NONE: u8 = u8::MAX;

/// What a beat tells, kept by whoever works. Clones are the same pulse.
#[derive(Debug, Clone)]
pub struct Pulse(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    // Zero without a job: jobs are numbered from 1.
    job: AtomicU64,
    stage: AtomicU8,
    counters: Mutex<Counters>,
}

impl Default for Pulse {
    fn default() -> Self {
        let (job, stage) = (AtomicU64::new(0), AtomicU8::new(NONE));
        Self(Arc::new(Kept { job, stage, counters: Mutex::default() }))
    }
}

impl Pulse {
    /// A job begins.
    pub fn begin(&self, job: u64) {
        self.0.job.store(job, Ordering::Relaxed);
    }

    /// A stage begins.
    pub fn enter(&self, stage: Stage) {
        let place = Stage::ALL.iter().position(|&known| known == stage);
        self.0.stage.store(place.and_then(|place| u8::try_from(place).ok()).unwrap_or(NONE), Ordering::Relaxed);
    }

    /// The job is over, and this was counted.
    pub fn end(&self, counters: Counters) {
        *self.0.counters.lock().unwrap_or_else(PoisonError::into_inner) = counters;
        self.0.stage.store(NONE, Ordering::Relaxed);
        self.0.job.store(0, Ordering::Relaxed);
    }

    /// What is told now.
    #[must_use]
    pub fn beat(&self) -> Beat {
        let job = Some(self.0.job.load(Ordering::Relaxed)).filter(|&job| job != 0);
        let stage = Stage::ALL.get(usize::from(self.0.stage.load(Ordering::Relaxed))).copied();
        let counters = *self.0.counters.lock().unwrap_or_else(PoisonError::into_inner);
        Beat { job, stage: stage.filter(|_| job.is_some()), counters }
    }
}

/// The stage after `stage` in this job.
#[must_use]
pub fn following(stage: Stage, job: &Job) -> Stage {
    let last = if job.recipe.is_some() { Stage::Tensors } else { Stage::Report };
    match stage {
        Stage::Intake => Stage::Open,
        Stage::Open => Stage::Inspect,
        Stage::Inspect => Stage::Repair,
        Stage::Repair if job.depth != Depth::Full => Stage::Report,
        Stage::Repair if job.image == ImageWanted::Lossless => Stage::Encode,
        Stage::Repair => Stage::Decode,
        Stage::Decode => Stage::Colour,
        Stage::Colour if job.image == ImageWanted::No || job.image == ImageWanted::Lossless => last,
        Stage::Colour => Stage::Encode,
        Stage::Encode if job.image == ImageWanted::Lossless && job.recipe.is_some() => Stage::Decode,
        Stage::Encode => last,
        Stage::Upload => Stage::Tensors,
        Stage::Tensors | Stage::Report | Stage::Publish => Stage::Report,
    }
}

/// The thread that sends beats, until it is dropped.
#[derive(Debug)]
pub struct Heart {
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Heart {
    /// Sends a beat on `socket` every `period`. To be called once the confinement is closed: a thread that is older
    /// than Landlock's rules is not held by them.
    ///
    /// # Errors
    /// What starting a thread says.
    pub fn start(socket: RawFd, period: Duration, pulse: Pulse) -> std::io::Result<Self> {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let asked = Arc::clone(&over);
        let send = move || {
            let (over, changed) = &*asked;
            let mut guard = over.lock().unwrap_or_else(PoisonError::into_inner);
            while !*guard {
                // A supervisor that is gone ends the worker elsewhere.
                channel::post_if_room(socket, &Event::Beat(pulse.beat())).ok();
                let waited = changed.wait_timeout(guard, period);
                guard = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        };
        let thread = thread::Builder::new().name("heart".into()).spawn(send)?;
        Ok(Self { over, thread: Some(thread) })
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        *self.over.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.over.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked sends no more beats, which is what is wanted here.
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, socketpair};
    use refmill::wire::decode;

    #[test]
    fn beat_names_job_and_stage_while_there_is_a_job() {
        let pulse = Pulse::default();
        pulse.begin(7);
        pulse.enter(Stage::Colour);
        assert_eq!((pulse.beat().job, pulse.beat().stage), (Some(7), Some(Stage::Colour)));
        pulse.end(Counters { jobs: 7, ..Counters::default() });
        assert_eq!(pulse.beat(), Beat { counters: Counters { jobs: 7, ..Counters::default() }, ..Beat::default() });
    }

    #[test]
    fn heart_sends_until_it_is_dropped_and_never_waits_for_room() {
        let kind = SockType::SeqPacket;
        let (ours, theirs) = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let heart = Heart::start(theirs.as_raw_fd(), Duration::from_micros(1), Pulse::default()).unwrap();
        let mut packet = [0; 256];
        let read = recv(ours.as_raw_fd(), &mut packet, MsgFlags::empty()).unwrap();
        assert_eq!(decode(&packet[..read]), Ok(Event::Beat(Beat::default())));
        // Nobody reads any more: far more beats than the socket holds, and yet the thread ends when it is asked.
        thread::sleep(Duration::from_millis(50));
        drop(heart);
    }
}
