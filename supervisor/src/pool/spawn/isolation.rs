//! What a child does to itself between fork and exec to be apart from everything else: namespaces, rights, memory.
//! System calls only; what they need was made before.

use std::ffi::CStr;
use std::io;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::{getegid, geteuid, write};

/// The id that a worker sees as its own: nobody's, with which exec gives no right back.
const INSIDE: u32 = 65_534;
/// `_LINUX_CAPABILITY_VERSION_3` of linux/capability.h.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// Address space besides data that counts as such: stacks of many threads.
const STACKS: u64 = 2 << 30;

/// Which namespaces a worker gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespaces {
    /// User, network, IPC, mount and UTS: what anybody may make where user namespaces are allowed.
    WithUser,
    /// Network, IPC and UTS: what root may make where they are not.
    WithoutUser,
}

/// What is done to a child. Everything is made before the fork.
#[derive(Debug, Default)]
pub struct Isolation {
    namespaces: Option<(Namespaces, [Vec<u8>; 2])>,
    memory_bytes: Option<u64>,
    keep_rights: bool,
}

impl Isolation {
    /// In `namespaces` where they are given, and without any capability.
    #[must_use]
    pub fn new(namespaces: Option<Namespaces>) -> Self {
        let line = |id: u32| format!("{INSIDE} {id} 1\n").into_bytes();
        let maps = || [line(geteuid().as_raw()), line(getegid().as_raw())];
        Self { namespaces: namespaces.map(|namespaces| (namespaces, maps())), ..Self::default() }
    }

    /// Apart from nothing, with all rights of the supervisor.
    #[must_use]
    pub fn none() -> Self {
        Self { keep_rights: true, ..Self::default() }
    }

    /// With a limit on private memory, in bytes; not for CUDA, which maps far more than it uses.
    #[must_use]
    pub fn limited(self, memory_bytes: u64) -> Self {
        Self { memory_bytes: Some(memory_bytes), ..self }
    }

    /// Runs in the child.
    pub(super) fn apply(&self) -> io::Result<()> {
        if let Some((namespaces, [users, groups])) = &self.namespaces {
            unshare(namespaces.flags())?;
            if *namespaces == Namespaces::WithUser {
                put(c"/proc/self/setgroups", b"deny")?;
                put(c"/proc/self/uid_map", users)?;
                put(c"/proc/self/gid_map", groups)?;
            }
        }
        if let Some(bytes) = self.memory_bytes {
            let bytes = bytes.saturating_add(STACKS);
            setrlimit(Resource::RLIMIT_DATA, bytes, bytes)?;
            setrlimit(Resource::RLIMIT_MEMLOCK, 0, 0)?;
        }
        if self.keep_rights { Ok(()) } else { give_up_capabilities() }
    }
}

impl Namespaces {
    fn flags(self) -> CloneFlags {
        let common = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
        match self {
            Self::WithUser => common | CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS,
            Self::WithoutUser => common,
        }
    }
}

fn put(path: &CStr, bytes: &[u8]) -> io::Result<()> {
    let file = open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    write(&file, bytes)?;
    Ok(())
}

/// Of linux/capability.h.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

/// Of linux/capability.h.
#[repr(C)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// With no_new_privs, exec gives root none of them back.
fn give_up_capabilities() -> io::Result<()> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let none = || CapabilityData { effective: 0, permitted: 0, inheritable: 0 };
    let data = [none(), none()];
    // SAFETY: capset reads one header and, of version 3, two data structures, laid out as the kernel's; both live here.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) })?;
    Ok(())
}
