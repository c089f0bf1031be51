//! What confines a worker, in its own words: told once, with everything closed and before a byte from outside is read.

use serde::{Deserialize, Serialize};

/// What a worker says holds for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posture {
    /// The process and its children can gain no privilege by exec.
    pub no_new_privs: bool,
    /// ABI of Landlock that the rules for jobs are enforced with; 0 where the kernel has none.
    pub landlock: u32,
    /// The same of the rules that were in force before the device started: they hold for the device's threads too.
    pub landlock_at_start: u32,
    /// Whether the rules for jobs hold for every thread, and not only for those that began later.
    pub landlock_all_threads: bool,
    /// The list of system calls that are allowed, `cpu` or `cuda`; empty where all are.
    pub seccomp: String,
    /// What was tried once all was closed, and refused.
    pub refused: Vec<Probe>,
}

/// Something that a worker must not be able to do, and tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Probe {
    /// Open a file for reading.
    ReadFile,
    /// Make a file.
    CreateFile,
    /// Make a socket.
    Socket,
    /// Connect one.
    Connect,
    /// Give one a name.
    Bind,
    /// Start a program.
    Exec,
    /// Start a process, by `fork`.
    Fork,
    /// Start a process, by `clone`.
    Clone,
    /// Start a process, by `clone3`, whose flags no filter sees.
    Clone3,
    /// Be traced, or trace.
    Ptrace,
    /// Read another process' memory.
    ProcessMemory,
    /// Send a signal to another process.
    Signal,
    /// Make memory executable.
    ExecutableMemory,
    /// Go into new namespaces.
    Namespaces,
    /// Use system calls that no filter sees.
    IoUring,
}

impl Probe {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::ReadFile,
        Self::CreateFile,
        Self::Socket,
        Self::Connect,
        Self::Bind,
        Self::Exec,
        Self::Fork,
        Self::Clone,
        Self::Clone3,
        Self::Ptrace,
        Self::ProcessMemory,
        Self::Signal,
        Self::ExecutableMemory,
        Self::Namespaces,
        Self::IoUring,
    ];

    /// Whether files are what it is after.
    #[must_use]
    pub fn is_about_files(self) -> bool {
        matches!(self, Self::ReadFile | Self::CreateFile)
    }

    /// What is tried, for people.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::ReadFile => "open a file",
            Self::CreateFile => "make a file",
            Self::Socket => "make a socket",
            Self::Connect => "connect a socket",
            Self::Bind => "bind a socket",
            Self::Exec => "start a program",
            Self::Fork => "fork",
            Self::Clone => "clone a process",
            Self::Clone3 => "clone a process by clone3",
            Self::Ptrace => "trace",
            Self::ProcessMemory => "read another process' memory",
            Self::Signal => "signal another process",
            Self::ExecutableMemory => "make memory executable",
            Self::Namespaces => "enter new namespaces",
            Self::IoUring => "set up io_uring",
        }
    }
}

impl Posture {
    /// What should have been refused, and was not.
    pub fn allowed(&self) -> impl Iterator<Item = Probe> + '_ {
        Probe::ALL.into_iter().filter(|probe| !self.is_excused(*probe) && !self.refused.contains(probe))
    }

    /// The driver has to open its device nodes, so there Landlock alone keeps files shut.
    fn is_excused(&self, probe: Probe) -> bool {
        self.seccomp == "cuda" && self.landlock == 0 && probe.is_about_files()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_refused_is_allowed() {
        let refused = Probe::ALL.into_iter().filter(|probe| !probe.is_about_files()).collect();
        let posture = Posture { refused, seccomp: "cpu".into(), ..Posture::default() };
        assert_eq!(posture.allowed().collect::<Vec<_>>(), [Probe::ReadFile, Probe::CreateFile]);
    }

    #[test]
    fn files_are_left_open_on_a_gpu_without_landlock_alone() {
        let refused: Vec<Probe> = Probe::ALL.into_iter().filter(|probe| !probe.is_about_files()).collect();
        let posture =
            |landlock| Posture { landlock, seccomp: "cuda".into(), refused: refused.clone(), ..Posture::default() };
        assert_eq!(posture(0).allowed().next(), None);
        assert_eq!(posture(1).allowed().next(), Some(Probe::ReadFile));
    }
}
