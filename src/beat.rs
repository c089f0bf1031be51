//! What a worker tells about itself while it lives: a sign of life, where it is with its job, and what it counted.
//! All of it is a claim; the supervisor holds it against what the kernel and the driver say.

use serde::{Deserialize, Serialize};

use crate::failure::Stage;

/// A sign of life, sent once a period by a thread that does nothing else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The job in hand.
    pub job: Option<u64>,
    /// The stage that runs now.
    pub stage: Option<Stage>,
    /// What was counted so far.
    pub counters: Counters,
}

/// What a worker counts. A figure that it does not know is left out, never guessed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Jobs answered since the start.
    pub jobs: u64,
    /// Images uploaded to the device since the start.
    pub uploads: u64,
    /// Page-locked host memory, in bytes.
    pub pinned: u64,
    /// Memory on the GPU; none on the CPU.
    pub device: Option<DeviceMemory>,
}

/// A worker's own memory on its GPU, in bytes, without the context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// Taken from the driver.
    pub reserved: u64,
    /// Of that, in use.
    pub used: u64,
    /// The most that was ever reserved.
    pub high_water: u64,
    /// What context and kernels took at the start, where that could be measured.
    pub context: Option<u64>,
}

impl Counters {
    /// What contradicts itself, or a supervisor that counted `jobs` answers on a machine with `ram` bytes of memory.
    #[must_use]
    pub fn contradiction(&self, jobs: u64, ram: Option<u64>) -> Option<&'static str> {
        // An answer and a beat can be on their way at once.
        if self.jobs.abs_diff(jobs) > 1 {
            return Some("jobs answered");
        }
        if ram.is_some_and(|ram| self.pinned > ram) {
            return Some("page-locked memory");
        }
        let memory = self.device?;
        (memory.used > memory.reserved || memory.reserved > memory.high_water).then_some("memory on the device")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(reserved: u64, used: u64, high_water: u64) -> Counters {
        let device = Some(DeviceMemory { reserved, used, high_water, context: None });
        Counters { jobs: 3, device, ..Counters::default() }
    }

    #[test]
    fn counters_that_fit_are_not_contradicted() {
        assert_eq!(memory(20, 10, 30).contradiction(3, Some(100)), None);
    }

    #[test]
    fn more_in_use_than_was_reserved_is_a_contradiction() {
        assert_eq!(memory(20, 21, 30).contradiction(3, None), Some("memory on the device"));
        assert_eq!(memory(31, 10, 30).contradiction(3, None), Some("memory on the device"));
    }

    #[test]
    fn other_count_of_jobs_is_a_contradiction() {
        assert_eq!(memory(20, 10, 30).contradiction(9, None), Some("jobs answered"));
    }

    #[test]
    fn more_pinned_memory_than_the_machine_has_is_a_contradiction() {
        let counters = Counters { pinned: 101, ..Counters::default() };
        assert_eq!(counters.contradiction(0, Some(100)), Some("page-locked memory"));
        assert_eq!(counters.contradiction(0, None), None);
    }
}
