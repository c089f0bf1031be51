//! Figures about a worker's memory, each with who says so and how old it is, and the kernel's own ones. Reads `/proc`
//! and `/sys/fs/cgroup` and nothing else. What is not known is said to be unknown, never guessed.

use std::fs;
use std::time::Instant;

use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};

/// Who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The kernel, page by page: proportional set size from `/proc/PID/smaps_rollup`.
    SmapsRollup,
    /// The kernel's counters: anonymous pages from `/proc/PID/statm`.
    Statm,
    /// The kernel: `memory.current` of a control group that holds this worker alone.
    Cgroup,
    /// The GPU's driver, for this process.
    NvmlProcess,
    /// The GPU's driver: by how much the memory in use on the whole device grew, with nobody else on it.
    DeviceDelta,
    /// The worker itself, with what its context took at the start.
    Worker,
}

/// A figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// In bytes.
    pub bytes: u64,
    /// Who says so.
    pub source: Source,
    /// When.
    pub at: Instant,
}

/// A figure for people and programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// In bytes.
    pub bytes: u64,
    /// Who says so.
    pub source: Source,
    /// How old it is, in milliseconds.
    pub age_ms: u64,
}

impl Sample {
    /// A figure of now.
    #[must_use]
    pub fn now(bytes: u64, source: Source) -> Self {
        Self { bytes, source, at: Instant::now() }
    }

    /// As it is shown.
    #[must_use]
    pub fn figure(&self) -> Figure {
        let age_ms = u64::try_from(self.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        Figure { bytes: self.bytes, source: self.source, age_ms }
    }
}

/// Anonymous memory of a process by the kernel's counters. Takes no lock of the process, so that it answers whatever
/// the process does; on a machine of many cores it may be off by some hundred KiB a core.
#[must_use]
pub fn statm(pid: u32) -> Option<Sample> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    Some(Sample::now(anonymous_pages(&text)?.checked_mul(page_bytes())?, Source::Statm))
}

/// Proportional set size of a process. Walks its pages under a lock that the process may hold for long: to be called
/// where waiting does no harm.
#[must_use]
pub fn smaps_rollup(pid: u32) -> Option<Sample> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    Some(Sample::now(kib_of(&text, "Pss:")?.checked_mul(1024)?, Source::SmapsRollup))
}

/// Memory of the control group of a process, where that is another one than this process's own.
#[must_use]
pub fn cgroup(pid: u32) -> Option<Sample> {
    let path = |who: &str| fs::read_to_string(format!("/proc/{who}/cgroup")).ok().and_then(|text| unified(&text));
    let own = path("self")?;
    let theirs = path(&pid.to_string()).filter(|theirs| *theirs != own)?;
    let text = fs::read_to_string(format!("/sys/fs/cgroup{theirs}/memory.current")).ok()?;
    Some(Sample::now(text.trim().parse().ok()?, Source::Cgroup))
}

/// Memory of the machine, in bytes.
#[must_use]
pub fn ram() -> Option<u64> {
    kib_of(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")?.checked_mul(1024)
}

/// How often the kernel has killed a process for want of memory since it was started.
#[must_use]
pub fn oom_kills() -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

fn page_bytes() -> u64 {
    sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096)
}

/// Resident pages that are no file's: the second number less the third.
fn anonymous_pages(statm: &str) -> Option<u64> {
    let mut numbers = statm.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(resident.saturating_sub(shared))
}

fn kib_of(text: &str, field: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(field))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The path in the one hierarchy of cgroup v2; never one that leads out of it.
fn unified(text: &str) -> Option<String> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    (path.starts_with('/') && !path.contains("..")).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_seen_by_both_of_the_kernels_measures_to_grow() {
        let pid = std::process::id();
        let before = [statm(pid).unwrap().bytes, smaps_rollup(pid).unwrap().bytes];
        let block = vec![1_u8; 64 << 20];
        let after = [statm(pid).unwrap().bytes, smaps_rollup(pid).unwrap().bytes];
        assert!(before.iter().zip(&after).all(|(before, after)| after - before > 60 << 20), "{before:?} {after:?}");
        drop(block);
    }

    #[test]
    fn process_that_is_gone_has_no_figure() {
        assert_eq!((statm(u32::MAX), smaps_rollup(u32::MAX), cgroup(u32::MAX)), (None, None, None));
    }

    #[test]
    fn machine_tells_its_memory_and_its_kills() {
        assert!(ram().unwrap() > 64 << 20);
        assert!(oom_kills().is_some());
    }

    #[test]
    fn text_that_is_no_figure_gives_none() {
        assert_eq!(
            (anonymous_pages("12"), anonymous_pages("9 8 x"), anonymous_pages("9 8 3 1")),
            (None, None, Some(5))
        );
        assert_eq!((kib_of("Pss: 12 kB", "Pss:"), kib_of("Pss: 12", "Pss:")), (Some(12), None));
        assert_eq!((unified("0::/a/b"), unified("0::/../a"), unified("1:x:/a")), (Some("/a/b".into()), None, None));
    }
}
