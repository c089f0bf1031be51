//! What `run` and `repair` share: tasks go through the pool, and every finished one is told.

use refmill::exit::ExitCode;

use super::{CommandError, warn_unconfined};
use crate::devices::Choice;
use crate::pool::worker::WorkerPlan;
use crate::pool::{self, Ended, News, Order, Task};
use crate::progress::Progress;
use crate::shutdown::Stop;

/// What a session does.
pub(super) struct Session {
    pub plan: WorkerPlan,
    pub workers: Option<usize>,
    pub order: Order,
    pub tasks: Vec<Task>,
    pub stop: Stop,
}

impl Session {
    /// Runs all tasks; where an automatically chosen GPU does not start, on the CPU.
    pub(super) fn run(mut self, mut progress: Progress) -> Result<ExitCode, CommandError> {
        warn_unconfined(self.plan.confinement.policy);
        let mut ended = self.attempt(&mut progress);
        if let (false, true, Some(error)) = (ended.worked, self.plan.device.may_fall_back, &ended.broken) {
            let gpu = self.plan.device.gpu.as_ref().map(ToString::to_string).unwrap_or_default();
            self.plan.device = Choice::cpu(format!("auto: {gpu} did not start: {error}"));
            ended = self.attempt(&mut progress);
        }
        match ended.broken {
            Some(error) if !ended.worked => return Err(CommandError::NoWorker(error)),
            _ => progress.undone(ended.undone),
        }
        let tally = progress.close();
        match ended.broken {
            Some(source) if ended.undone > 0 && !self.stop.is_requested() => {
                Err(CommandError::WorkersLost { undone: ended.undone, source })
            }
            _ => Ok(tally.exit_code()),
        }
    }

    fn attempt(&self, progress: &mut Progress) -> Ended {
        let mut tell = |news| match news {
            News::Ready(device, verdict) => {
                progress.device(&device);
                verdict.notes().for_each(|note| progress.note(&note));
            }
            News::SlotLost(reason) => progress.note(&format!("a worker was lost and not replaced: {reason}")),
            News::Kept(slot, reason) => progress.note(&format!("{slot}: worker not recycled: {reason}")),
            News::Recycled(..) => {}
            News::Finished(finished) => progress.finished(&finished.report),
        };
        pool::run(&self.plan, self.slots(), &self.order, &self.tasks, &self.stop, &mut tell)
    }

    fn slots(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let usual = || if self.plan.device.gpu.is_some() { 1 } else { cores() };
        self.workers.unwrap_or_else(usual).clamp(1, self.tasks.len().max(1))
    }
}
