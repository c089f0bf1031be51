//! What a captured worker would try, by name. Each deed is prepared while everything is still allowed, and done
//! afterwards, so that a refusal is that of the deed and not of its preparation.
#![allow(unsafe_code, clippy::unwrap_used, clippy::type_complexity, reason = "raw system calls on purpose, in tests")]

use std::ffi::{CString, OsStr, c_long};
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::unistd::getppid;

/// How a deed ends for the one who does it, if it lives.
pub type Outcome = Result<(), Errno>;

/// What deeds need, made before anything is closed.
pub struct Scene {
    _folder: tempfile::TempDir,
    folder: CString,
    file: CString,
    fresh: CString,
    parent: c_long,
    tcp: OwnedFd,
    udp: OwnedFd,
    unix: OwnedFd,
    tcp_address: Vec<u8>,
    udp_address: Vec<u8>,
    unix_address: Vec<u8>,
    abstract_address: Vec<u8>,
    descriptor: c_long,
    _listening: (TcpListener, UdpSocket, UnixListener, UnixListener, fs::File),
}

impl Scene {
    pub fn set() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| CString::new(folder.path().join(name).as_os_str().as_bytes()).unwrap();
        fs::write(folder.path().join("file"), "secret").unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind(folder.path().join("socket")).unwrap();
        let name = format!("refmill-{}", std::process::id());
        let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let port = |address: std::net::SocketAddr| {
            [&(libc::AF_INET as u16).to_ne_bytes()[..], &address.port().to_be_bytes(), &[127, 0, 0, 1], &[0; 8]]
                .concat()
        };
        let local = |path: &[u8]| [&(libc::AF_UNIX as u16).to_ne_bytes()[..], path].concat();
        let socket = |family, kind| socket(family, kind, SockFlag::empty(), None).unwrap();
        let file = fs::File::open(folder.path().join("file")).unwrap();
        Self {
            folder: path(""),
            file: path("file"),
            fresh: path("fresh"),
            parent: c_long::from(getppid().as_raw()),
            tcp: socket(AddressFamily::Inet, SockType::Stream),
            udp: socket(AddressFamily::Inet, SockType::Datagram),
            unix: socket(AddressFamily::Unix, SockType::Stream),
            tcp_address: port(tcp.local_addr().unwrap()),
            udp_address: port(udp.local_addr().unwrap()),
            unix_address: local(path("socket").as_bytes_with_nul()),
            abstract_address: local(format!("\0{name}").as_bytes()),
            descriptor: c_long::from(file.as_raw_fd()),
            _listening: (tcp, udp, unix, hidden, file),
            _folder: folder,
        }
    }

    /// A file that the user may read, and does.
    pub fn file(&self) -> PathBuf {
        let path = PathBuf::from(OsStr::from_bytes(self.file.as_bytes()));
        fs::read(&path).unwrap();
        path
    }
}

fn at(text: &std::ffi::CStr) -> c_long {
    text.as_ptr().expose_provenance() as c_long
}

fn bytes(bytes: &[u8]) -> [c_long; 2] {
    [bytes.as_ptr().expose_provenance() as c_long, bytes.len() as c_long]
}

fn raw(number: c_long, arguments: &[c_long]) -> Result<c_long, Errno> {
    let mut six = [0; 6];
    six[..arguments.len()].copy_from_slice(arguments);
    let [a, b, c, d, e, f] = six;
    // SAFETY: what is passed is a number, or points to memory that lives across the call and is long enough for it; where
    // the kernel lets a forbidden call through, the test has failed and its process ends.
    Errno::result(unsafe { libc::syscall(number, a, b, c, d, e, f) })
}

fn done(number: c_long, arguments: &[c_long]) -> Outcome {
    raw(number, arguments).map(drop)
}

fn open(path: &std::ffi::CStr, flags: i32) -> Outcome {
    done(libc::SYS_openat, &[libc::AT_FDCWD.into(), at(path), flags.into(), 0o600])
}

fn connect(socket: &OwnedFd, address: &[u8]) -> Outcome {
    let [address, length] = bytes(address);
    done(libc::SYS_connect, &[socket.as_raw_fd().into(), address, length])
}

fn fork(number: c_long, arguments: &[c_long]) -> Outcome {
    // A child that should not be ends at once.
    let child = raw(number, arguments)?;
    if child == 0 {
        // SAFETY: _exit ends the child at once and runs nothing of its parent's.
        unsafe { libc::_exit(0) }
    }
    Ok(())
}

fn map(protection: i32) -> Result<c_long, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    raw(libc::SYS_mmap, &[0, 4096, protection.into(), flags.into(), -1, 0])
}

/// The C library names a memory file, writes a script into it and runs it.
fn run_memory_file() -> Outcome {
    let memory = raw(libc::SYS_memfd_create, &[at(c"x"), 0])?;
    let [script, length] = bytes(b"#!/bin/true\n");
    raw(libc::SYS_write, &[memory, script, length])?;
    let [none, _] = bytes(&[0; 8]);
    done(libc::SYS_execveat, &[memory, at(c""), none, none, libc::AT_EMPTY_PATH.into()])
}

/// Asks the kernel, through the gate of 32-bit programs, for getpid.
#[cfg(target_arch = "x86_64")]
fn call_as_i386() -> Outcome {
    let result: i64;
    // SAFETY: getpid takes nothing and touches no memory; the gate may change the registers that are named.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("rax") 20_i64 => result, out("r8") _, out("r9") _, out("r10") _, out("r11") _)
    };
    if result < 0 { Err(Errno::from_raw(-result as i32)) } else { Ok(()) }
}

const HERE: c_long = libc::AT_FDCWD as c_long;

/// Every deed, by name.
pub const ALL: &[(&str, fn(&Scene) -> Outcome)] = &[
    // Files.
    ("open_a_file", |s| open(&s.file, libc::O_RDONLY)),
    ("open_a_file_to_write", |s| open(&s.file, libc::O_WRONLY)),
    ("open_a_folder", |s| open(&s.folder, libc::O_RDONLY | libc::O_DIRECTORY)),
    ("create_a_file", |s| open(&s.fresh, libc::O_WRONLY | libc::O_CREAT)),
    ("create_a_file_without_a_name", |s| open(&s.folder, libc::O_WRONLY | libc::O_TMPFILE)),
    ("open_own_memory", |_| open(c"/proc/self/mem", libc::O_RDWR)),
    ("open_memory_of_process_1", |_| open(c"/proc/1/mem", libc::O_RDWR)),
    ("open_environment_of_process_1", |_| open(c"/proc/1/environ", libc::O_RDONLY)),
    ("open_another_device", |_| open(c"/dev/zero", libc::O_RDWR)),
    ("truncate_a_file", |s| done(libc::SYS_truncate, &[at(&s.file), 0])),
    ("remove_a_file", |s| done(libc::SYS_unlink, &[at(&s.file)])),
    ("rename_a_file", |s| done(libc::SYS_rename, &[at(&s.file), at(&s.fresh)])),
    ("link_a_file", |s| done(libc::SYS_link, &[at(&s.file), at(&s.fresh)])),
    ("make_a_symbolic_link", |s| done(libc::SYS_symlink, &[at(&s.file), at(&s.fresh)])),
    ("make_a_folder", |s| done(libc::SYS_mkdir, &[at(&s.fresh), 0o700])),
    ("make_a_device_node", |s| done(libc::SYS_mknod, &[at(&s.fresh), (libc::S_IFCHR | 0o600).into(), 0x0103])),
    ("change_a_mode", |s| done(libc::SYS_chmod, &[at(&s.file), 0o777])),
    ("change_a_mode_by_descriptor", |s| done(libc::SYS_fchmod, &[s.descriptor, 0o777])),
    ("change_an_owner", |s| done(libc::SYS_chown, &[at(&s.file), 1, 1])),
    ("change_times", |s| done(libc::SYS_utimensat, &[HERE, at(&s.file), 0, 0])),
    ("set_an_attribute", |s| done(libc::SYS_setxattr, &[at(&s.file), at(c"user.x"), at(c"y"), 1, 0])),
    ("change_folder", |s| done(libc::SYS_chdir, &[at(&s.folder)])),
    ("change_root", |s| done(libc::SYS_chroot, &[at(&s.folder)])),
    ("open_by_handle", |_| done(libc::SYS_open_by_handle_at, &[HERE, 0, 0])),
    ("watch_files", |_| done(libc::SYS_inotify_init1, &[0])),
    // The network and other programs' sockets.
    ("make_a_tcp_socket", |_| done(libc::SYS_socket, &[libc::AF_INET.into(), libc::SOCK_STREAM.into(), 0])),
    ("make_a_udp_socket", |_| done(libc::SYS_socket, &[libc::AF_INET.into(), libc::SOCK_DGRAM.into(), 0])),
    ("make_a_unix_socket", |_| done(libc::SYS_socket, &[libc::AF_UNIX.into(), libc::SOCK_STREAM.into(), 0])),
    ("make_a_raw_socket", |_| done(libc::SYS_socket, &[libc::AF_PACKET.into(), libc::SOCK_RAW.into(), 0])),
    ("connect_by_tcp", |s| connect(&s.tcp, &s.tcp_address)),
    ("connect_by_udp", |s| connect(&s.udp, &s.udp_address)),
    ("connect_to_a_unix_socket", |s| connect(&s.unix, &s.unix_address)),
    ("connect_to_an_abstract_socket", |s| connect(&s.unix, &s.abstract_address)),
    ("bind_a_socket", |s| {
        let any = [&(libc::AF_INET as u16).to_ne_bytes()[..], &[0; 14]].concat();
        let [address, length] = bytes(&any);
        done(libc::SYS_bind, &[s.tcp.as_raw_fd().into(), address, length])
    }),
    ("listen", |s| done(libc::SYS_listen, &[s.tcp.as_raw_fd().into(), 1])),
    ("accept", |s| done(libc::SYS_accept4, &[s.tcp.as_raw_fd().into(), 0, 0, 0])),
    // Programs and processes.
    ("start_a_program", |_| {
        let arguments = [at(c"/bin/true"), 0];
        done(libc::SYS_execve, &[at(c"/bin/true"), arguments.as_ptr().expose_provenance() as c_long, 0])
    }),
    ("start_a_memory_file", |_| run_memory_file()),
    ("fork", |_| fork(libc::SYS_fork, &[])),
    ("vfork", |_| done(libc::SYS_vfork, &[])),
    ("clone_a_process", |_| fork(libc::SYS_clone, &[libc::SIGCHLD.into()])),
    ("clone_into_namespaces", |_| fork(libc::SYS_clone, &[(libc::CLONE_THREAD | libc::CLONE_NEWNS).into()])),
    ("clone_a_process_by_clone3", |_| {
        let arguments: [u64; 11] = [0, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0, 0, 0, 0];
        fork(libc::SYS_clone3, &[arguments.as_ptr().expose_provenance() as c_long, 88])
    }),
    ("be_traced", |_| done(libc::SYS_ptrace, &[libc::PTRACE_TRACEME.into(), 0, 0, 0])),
    ("trace_the_parent", |s| done(libc::SYS_ptrace, &[libc::PTRACE_ATTACH.into(), s.parent, 0, 0])),
    ("read_the_parents_memory", |s| done(libc::SYS_process_vm_readv, &[s.parent, 0, 0, 0, 0, 0])),
    ("write_the_parents_memory", |s| done(libc::SYS_process_vm_writev, &[s.parent, 0, 0, 0, 0, 0])),
    ("signal_the_parent", |s| done(libc::SYS_kill, &[s.parent, 0])),
    ("signal_the_parents_thread", |s| done(libc::SYS_tgkill, &[s.parent, s.parent, 0])),
    ("signal_a_thread_anywhere", |s| done(libc::SYS_tkill, &[s.parent, 0])),
    ("signal_by_descriptor", |s| done(libc::SYS_pidfd_send_signal, &[s.descriptor, 0, 0, 0])),
    ("have_the_parent_signalled_for_input", |s| {
        done(libc::SYS_fcntl, &[s.unix.as_raw_fd().into(), libc::F_SETOWN.into(), s.parent])
    }),
    ("choose_the_signal_for_input", |s| done(libc::SYS_fcntl, &[s.unix.as_raw_fd().into(), 10, libc::SIGKILL.into()])),
    ("open_a_process", |s| done(libc::SYS_pidfd_open, &[s.parent, 0])),
    ("take_a_descriptor", |s| done(libc::SYS_pidfd_getfd, &[s.descriptor, 0, 0])),
    ("compare_processes", |s| done(libc::SYS_kcmp, &[s.parent, s.parent, 0, 0, 0])),
    ("change_priority", |s| done(libc::SYS_setpriority, &[0, s.parent, 19])),
    // Privileges and the confinement itself.
    ("set_user", |_| done(libc::SYS_setuid, &[1])),
    ("set_group", |_| done(libc::SYS_setgid, &[1])),
    ("set_groups", |_| done(libc::SYS_setgroups, &[0, 0])),
    ("set_capabilities", |_| done(libc::SYS_capset, &[0, 0])),
    ("change_personality", |_| done(libc::SYS_personality, &[0x0004_0000])),
    ("become_dumpable", |_| done(libc::SYS_prctl, &[libc::PR_SET_DUMPABLE.into(), 1])),
    ("outlive_the_supervisor", |_| done(libc::SYS_prctl, &[libc::PR_SET_PDEATHSIG.into(), 0])),
    ("add_a_filter", |_| done(libc::SYS_seccomp, &[libc::SECCOMP_SET_MODE_FILTER.into(), 0, 0])),
    ("raise_a_limit", |_| {
        let limit = [u64::MAX; 2];
        done(libc::SYS_setrlimit, &[libc::RLIMIT_CORE as c_long, limit.as_ptr().expose_provenance() as c_long])
    }),
    ("raise_a_limit_by_prlimit", |_| {
        let limit = [u64::MAX; 2];
        done(libc::SYS_prlimit64, &[0, libc::RLIMIT_CORE as c_long, limit.as_ptr().expose_provenance() as c_long, 0])
    }),
    ("read_the_parents_limits", |s| {
        let limit = [0_u64; 2];
        done(libc::SYS_prlimit64, &[s.parent, 0, 0, limit.as_ptr().expose_provenance() as c_long])
    }),
    ("start_a_session", |_| done(libc::SYS_setsid, &[])),
    ("leave_the_process_group", |_| done(libc::SYS_setpgid, &[0, 0])),
    ("mount", |s| done(libc::SYS_mount, &[at(c"none"), at(&s.folder), at(c"tmpfs"), 0, 0])),
    ("unmount", |s| done(libc::SYS_umount2, &[at(&s.folder), 0])),
    ("open_a_tree_of_mounts", |s| done(libc::SYS_open_tree, &[HERE, at(&s.folder), 1])),
    ("change_the_root_mount", |s| done(libc::SYS_pivot_root, &[at(&s.folder), at(&s.folder)])),
    ("enter_new_namespaces", |_| done(libc::SYS_unshare, &[libc::CLONE_NEWUSER.into()])),
    ("enter_a_namespace", |s| done(libc::SYS_setns, &[s.descriptor, 0])),
    // The kernel's widest gates.
    ("set_up_io_uring", |_| done(libc::SYS_io_uring_setup, &[1, 0])),
    ("use_keys", |_| done(libc::SYS_keyctl, &[0, 0, 0, 0, 0])),
    ("add_a_key", |_| done(libc::SYS_add_key, &[at(c"user"), at(c"x"), at(c"y"), 1, -2])),
    ("load_bpf", |_| done(libc::SYS_bpf, &[5, 0, 0])),
    ("watch_performance", |_| done(libc::SYS_perf_event_open, &[0, 0, -1, -1, 0])),
    ("handle_page_faults", |_| done(libc::SYS_userfaultfd, &[0])),
    ("load_a_module", |_| done(libc::SYS_finit_module, &[-1, 0, 0])),
    ("read_the_kernels_log", |_| done(libc::SYS_syslog, &[3, 0, 0])),
    ("change_descriptor_tables", |_| done(libc::SYS_modify_ldt, &[0, 0, 0])),
    ("reach_ports", |_| done(libc::SYS_iopl, &[3])),
    ("share_memory", |_| done(libc::SYS_shmget, &[0, 4096, 0o1600])),
    ("open_a_message_queue", |_| done(libc::SYS_mq_open, &[at(c"/x"), 0])),
    ("type_into_the_terminal", |_| done(libc::SYS_ioctl, &[0, libc::TIOCSTI as c_long, at(c"x")])),
    ("set_the_clock", |_| done(libc::SYS_clock_settime, &[0, 0])),
    // Code of one's own.
    ("map_executable_memory", |_| map(libc::PROT_READ | libc::PROT_EXEC).map(drop)),
    ("map_writable_executable_memory", |_| map(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC).map(drop)),
    ("make_memory_executable", |_| {
        let page = map(libc::PROT_READ | libc::PROT_WRITE)?;
        done(libc::SYS_mprotect, &[page, 4096, (libc::PROT_READ | libc::PROT_EXEC).into()])
    }),
    ("make_memory_executable_by_key", |_| {
        let page = map(libc::PROT_READ | libc::PROT_WRITE)?;
        done(libc::SYS_pkey_mprotect, &[page, 4096, (libc::PROT_READ | libc::PROT_EXEC).into(), -1])
    }),
    // Calls in another form, by which a filter could be passed.
    ("call_as_x32", |_| done(0x4000_0000 | libc::SYS_getpid, &[])),
    ("call_as_i386", |_| call_as_i386()),
    ("call_what_does_not_exist", |_| done(100_000, &[])),
];

/// Does one.
pub fn commit(name: &str, scene: &Scene) -> Outcome {
    let (_, deed) = ALL.iter().find(|(known, _)| *known == name).ok_or(Errno::EINVAL)?;
    deed(scene)
}
