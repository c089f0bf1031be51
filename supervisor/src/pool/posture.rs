//! How far workers must be confined, and whether one is: what was prepared for it, what it says of itself before it
//! has read anything, and what the kernel says of it. Pure, but for reading the kernel's word.

use std::fmt;
use std::fs;
use std::io;

use clap::ValueEnum;
use refmill::posture::Posture;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The Landlock ABI with which files, TCP, devices, signals and abstract sockets are all closed: Linux 6.12.
pub const WHOLE_LANDLOCK: u32 = 6;
/// `Seccomp` in /proc/PID/status where filters are applied.
const FILTERED: u32 = 2;

/// How far workers must be confined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxPolicy {
    /// Every layer, or no worker is started
    Strict,
    /// System calls always; files, namespaces and memory where the machine lets, and what is missing is said
    #[default]
    Standard,
    /// Workers confine themselves in nothing: for finding faults, never for images that nobody vouches for
    Off,
}

/// One layer of the confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// No privilege is held and none can be gained.
    Privileges,
    /// Only listed system calls.
    Syscalls,
    /// Landlock.
    Files,
    /// What must be refused was tried in vain.
    SelfTest,
    /// Namespaces of its own.
    Namespaces,
    /// A limit on memory.
    Memory,
}

/// A layer that does not hold, or not whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}: {found}; {}", layer.code(), layer.remedy())]
pub struct Gap {
    /// Which.
    pub layer: Layer,
    /// What was found.
    pub found: String,
}

/// What the kernel says of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether it can gain privileges by exec.
    pub no_new_privs: bool,
    /// Its mode of seccomp.
    pub seccomp: u32,
    /// Capabilities that it has or may have.
    pub capabilities: u64,
}

/// A worker's confinement as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What was demanded.
    pub policy: SandboxPolicy,
    /// What the worker says.
    #[serde(skip)]
    pub told: Posture,
    /// What is missing, and may be.
    pub gaps: Vec<Gap>,
}

impl Verdict {
    /// What people are told: a line for each layer that is missing.
    pub fn notes(&self) -> impl Iterator<Item = String> + '_ {
        self.gaps.iter().map(|gap| format!("sandbox is {}, not whole: {gap}", self.policy))
    }
}

impl<'de> Deserialize<'de> for SandboxPolicy {
    /// A configuration file cannot switch the confinement off: what is switched off must be seen where it is done.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "strict" => Ok(Self::Strict),
            "standard" => Ok(Self::Standard),
            "off" => Err(D::Error::custom("off is taken from the command line alone, as --sandbox=off")),
            other => Err(D::Error::custom(format!("`{other}` is no sandbox policy; strict and standard are"))),
        }
    }
}

impl fmt::Display for SandboxPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict",
            Self::Standard => "standard",
            Self::Off => "off",
        })
    }
}

impl Layer {
    /// Every layer.
    pub const ALL: [Self; 6] =
        [Self::Privileges, Self::Syscalls, Self::Files, Self::SelfTest, Self::Namespaces, Self::Memory];

    /// Stable and machine-readable; never renamed.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Privileges => "sandbox_privileges",
            Self::Syscalls => "sandbox_syscalls",
            Self::Files => "sandbox_files",
            Self::SelfTest => "sandbox_self_test",
            Self::Namespaces => "sandbox_namespaces",
            Self::Memory => "sandbox_memory",
        }
    }

    /// What can be done about it.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Privileges | Self::Syscalls | Self::SelfTest => "use the refmill-worker of this very build",
            Self::Files => "run Linux 6.12 or later with landlock among its lsm",
            Self::Namespaces => "allow user namespaces, or run as root",
            Self::Memory => "delegate a cgroup, as systemd does with Delegate=memory pids",
        }
    }
}

impl Gap {
    /// A layer, and what was found in its place.
    #[must_use]
    pub fn new(layer: Layer, found: impl Into<String>) -> Self {
        Self { layer, found: found.into() }
    }
}

impl Status {
    /// Of a process that is there.
    ///
    /// # Errors
    /// What reading says.
    pub fn of(pid: u32) -> io::Result<Self> {
        fs::read_to_string(format!("/proc/{pid}/status")).map(|text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned());
            text.lines().find_map(value).unwrap_or_default()
        };
        let number = |name: &str| field(name).parse().unwrap_or(0);
        // What cannot be read counts as all of them.
        let capabilities = ["CapInh", "CapPrm", "CapEff", "CapAmb"]
            .map(|name| u64::from_str_radix(&field(name), 16).unwrap_or(u64::MAX))
            .into_iter()
            .fold(0, |all, some| all | some);
        Self { no_new_privs: number("NoNewPrivs") == 1, seccomp: number("Seccomp"), capabilities }
    }
}

impl SandboxPolicy {
    /// Judges a worker that is ready on a device of `kind`; `prepared` is what could not be prepared for it.
    ///
    /// # Errors
    /// The first [`Gap`] that this policy does not bear.
    pub fn judge(self, kind: &str, told: Posture, status: Status, prepared: &[Gap]) -> Result<Verdict, Gap> {
        if self == Self::Off {
            return Ok(Verdict { policy: self, told, gaps: Vec::new() });
        }
        check(kind, &told, status)?;
        let files = (told.landlock < WHOLE_LANDLOCK).then(|| Gap::new(Layer::Files, lacking(told.landlock, kind)));
        let gaps: Vec<Gap> = files.into_iter().chain(prepared.iter().cloned()).collect();
        match gaps.first() {
            Some(gap) if self == Self::Strict => Err(gap.clone()),
            _ => Ok(Verdict { policy: self, told, gaps }),
        }
    }
}

/// What no policy but `off` does without.
fn check(kind: &str, told: &Posture, status: Status) -> Result<(), Gap> {
    if !told.no_new_privs || !status.no_new_privs {
        return Err(Gap::new(Layer::Privileges, "worker is without no_new_privs"));
    }
    if status.capabilities != 0 {
        return Err(Gap::new(Layer::Privileges, format!("worker has the capabilities {:x}", status.capabilities)));
    }
    if told.seccomp != kind {
        let list: String = told.seccomp.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
        return Err(Gap::new(Layer::Syscalls, format!("worker is under the list of calls `{list}`, not `{kind}`")));
    }
    if status.seccomp != FILTERED {
        let found =
            format!("worker says that it is under a list of calls, the kernel that its mode is {}", status.seccomp);
        return Err(Gap::new(Layer::Syscalls, found));
    }
    if told.landlock_at_start < told.landlock {
        return Err(Gap::new(Layer::Files, "worker started its device before Landlock was applied"));
    }
    match told.allowed().next() {
        Some(probe) => Err(Gap::new(Layer::SelfTest, format!("worker can {}", probe.what()))),
        None => Ok(()),
    }
}

fn lacking(abi: u32, kind: &str) -> String {
    match (abi, kind) {
        (0, "cuda") => "this kernel has no Landlock, and a worker on a GPU must be able to open files".into(),
        (0, _) => "this kernel has no Landlock, so the list of system calls alone keeps files shut".into(),
        _ => format!("Landlock has ABI {abi}, whole from {WHOLE_LANDLOCK} on"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refmill::posture::Probe;

    fn told(landlock: u32) -> Posture {
        Posture {
            no_new_privs: true,
            landlock,
            landlock_at_start: landlock,
            landlock_all_threads: false,
            seccomp: "cpu".into(),
            refused: Probe::ALL.to_vec(),
        }
    }

    const HELD: Status = Status { no_new_privs: true, seccomp: FILTERED, capabilities: 0 };

    fn judged(policy: SandboxPolicy, told: Posture, status: Status, prepared: &[Gap]) -> Result<Vec<Layer>, String> {
        let verdict = policy.judge("cpu", told, status, prepared).map_err(|gap| gap.to_string())?;
        Ok(verdict.gaps.iter().map(|gap| gap.layer).collect())
    }

    #[test]
    fn whole_confinement_satisfies_strict() {
        assert_eq!(judged(SandboxPolicy::Strict, told(6), HELD, &[]), Ok(vec![]));
    }

    #[test]
    fn older_landlock_is_said_by_standard_and_refused_by_strict() {
        assert_eq!(judged(SandboxPolicy::Standard, told(4), HELD, &[]), Ok(vec![Layer::Files]));
        let refused = judged(SandboxPolicy::Strict, told(4), HELD, &[]).unwrap_err();
        let expected =
            "sandbox_files: Landlock has ABI 4, whole from 6 on; run Linux 6.12 or later with landlock among its lsm";
        assert_eq!(refused, expected);
    }

    #[test]
    fn missing_memory_limit_is_said_by_standard_and_refused_by_strict() {
        let gap = [Gap::new(Layer::Memory, "no cgroup")];
        assert_eq!(judged(SandboxPolicy::Standard, told(6), HELD, &gap), Ok(vec![Layer::Memory]));
        let refused = judged(SandboxPolicy::Strict, told(6), HELD, &gap).unwrap_err();
        assert!(refused.starts_with("sandbox_memory: no cgroup; delegate"), "{refused}");
    }

    #[test]
    fn worker_without_its_filter_is_refused_by_standard() {
        let refused = judged(SandboxPolicy::Standard, Posture { seccomp: "cuda".into(), ..told(6) }, HELD, &[]);
        assert!(
            refused.unwrap_err().starts_with("sandbox_syscalls: worker is under the list of calls `cuda`, not `cpu`")
        );
    }

    #[test]
    fn worker_that_claims_a_filter_which_the_kernel_does_not_know_is_refused() {
        let refused = judged(SandboxPolicy::Standard, told(6), Status { seccomp: 0, ..HELD }, &[]).unwrap_err();
        assert!(refused.contains("the kernel that its mode is 0"), "{refused}");
    }

    #[test]
    fn worker_with_a_capability_is_refused() {
        let refused = judged(SandboxPolicy::Standard, told(6), Status { capabilities: 0x20, ..HELD }, &[]).unwrap_err();
        assert!(refused.starts_with("sandbox_privileges: worker has the capabilities 20"), "{refused}");
    }

    #[test]
    fn worker_that_could_do_what_it_must_not_is_refused() {
        let refused: Vec<Probe> = Probe::ALL.into_iter().filter(|probe| *probe != Probe::Exec).collect();
        let refused = judged(SandboxPolicy::Standard, Posture { refused, ..told(6) }, HELD, &[]).unwrap_err();
        assert!(refused.starts_with("sandbox_self_test: worker can start a program"), "{refused}");
    }

    #[test]
    fn device_that_was_started_before_landlock_is_refused() {
        let late = Posture { landlock_at_start: 0, ..told(6) };
        assert!(judged(SandboxPolicy::Standard, late, HELD, &[]).is_err());
    }

    #[test]
    fn off_asks_for_nothing() {
        assert_eq!(judged(SandboxPolicy::Off, Posture::default(), Status::default(), &[]), Ok(vec![]));
    }

    #[test]
    fn configuration_cannot_switch_the_confinement_off() {
        let parse = |text: &str| serde_json::from_str::<SandboxPolicy>(text).map_err(|error| error.to_string());
        assert_eq!(parse("\"strict\""), Ok(SandboxPolicy::Strict));
        assert!(parse("\"off\"").unwrap_err().starts_with("off is taken from the command line alone"));
        assert!(parse("\"none\"").is_err());
    }

    #[test]
    fn kernels_word_is_read() {
        let text = "Name:\tx\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000001\nCapEff:\t0000000000000002\n\
                    CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t4\n";
        assert_eq!(Status::parse(text), Status { no_new_privs: true, seccomp: 2, capabilities: 3 });
        assert_eq!(Status::parse("").capabilities, u64::MAX);
    }
}
