//! The numbers that both programs end with: a contract with scripts and with the supervisor.

/// How the command line program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCode {
    /// Every image was processed.
    AllGood,
    /// Some images were processed, some failed.
    SomeFailed,
    /// The command line or a file that it names cannot be used.
    Usage,
    /// No image was processed.
    NothingDone,
    /// refmill itself could not work: no worker could be started.
    Broken,
    /// Submission: not all was taken, since the tenant has as many jobs queued as it may have; the rest can be
    /// submitted again later.
    QueueFull,
    /// Inspection: no image has anything above an informative finding.
    Sound,
    /// Inspection: the worst that was found is a defect.
    Defective,
    /// Inspection: an image was rejected.
    Rejected,
    /// Examination of the machine: nothing above a note.
    Fit,
    /// The same: the worst is a warning.
    Doubtful,
    /// The same: the worst is a failure.
    Unfit,
}

impl ExitCode {
    /// The process exit code.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::AllGood | Self::Sound | Self::Fit => 0,
            Self::SomeFailed | Self::Defective | Self::Doubtful => 1,
            Self::Usage => 2,
            Self::NothingDone | Self::Rejected | Self::Unfit => 3,
            Self::Broken => 4,
            Self::QueueFull => 5,
        }
    }
}

/// How a worker process ends by itself. Signals are not listed: they are read from the wait status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerExit {
    /// Asked to stop, or its supervisor went away.
    Drained,
    /// Started with arguments or descriptors that it cannot use.
    BadStart,
    /// A confinement step could not be applied.
    Confinement,
    /// The supervisor sent something that is not in the protocol.
    Protocol,
    /// The device asked for is not there or did not start.
    NoDevice,
    /// The device failed in a way that outlives the job (sticky CUDA error).
    StickyDevice,
}

impl WorkerExit {
    /// The process exit code.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Drained => 0,
            Self::BadStart => 64,
            Self::Confinement => 65,
            Self::Protocol => 66,
            Self::NoDevice => 67,
            Self::StickyDevice => 68,
        }
    }

    /// The meaning of a worker's exit code, if it is one of ours.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        [Self::Drained, Self::BadStart, Self::Confinement, Self::Protocol, Self::NoDevice, Self::StickyDevice]
            .into_iter()
            .find(|exit| i32::from(exit.number()) == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_exit_is_read_back_from_its_number() {
        assert_eq!(WorkerExit::from_number(65), Some(WorkerExit::Confinement));
        assert_eq!(WorkerExit::from_number(1), None);
    }
}
