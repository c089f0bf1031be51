//! What the confinement forbids really ends or fails, in a process that closed it as a worker does. Each case runs
//! this test binary again for the one child function, and looks at how that process ended. Every deed is done under
//! both lists of system calls; the one for a GPU is held to what it says without a GPU.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a step that fails is a test that fails"
)]
#![allow(clippy::disallowed_methods, reason = "a child is told by its environment what to do")]

#[path = "../examples/rogue_worker/misdeeds.rs"]
mod misdeeds;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::mpsc;
use std::thread;

use misdeeds::Scene;
use nix::errno::Errno;
use refmill::posture::{Posture, Probe};
use refmill_worker::sandbox::{Confinement, SandboxError};

const SIGSYS: i32 = 31;
/// What a child exits with after a deed that nothing stopped.
const DONE: i32 = 200;
const DEED: &str = "REFMILL_TEST_DEED";
const KIND: &str = "REFMILL_TEST_KIND";

/// How a deed ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Killed,
    Failed(Errno),
    Done,
}

/// Runs a child function in a process of its own.
fn child(function: &str, kind: &str, deed: &str) -> ExitStatus {
    let me = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(me);
    command.env("TMPDIR", folder.path());
    command.args(["--exact", function, "--ignored", "--test-threads=1"]).env(DEED, deed).env(KIND, kind);
    command.output().unwrap().status
}

fn ended(kind: &str, deed: &str) -> Ended {
    let status = child("child_does_the_deed", kind, deed);
    match (status.signal(), status.code()) {
        (Some(SIGSYS), _) => Ended::Killed,
        (None, Some(DONE)) => Ended::Done,
        (None, Some(number)) => Ended::Failed(Errno::from_raw(number)),
        (other, _) => panic!("ended by signal {other:?}"),
    }
}

fn close(kind: &str) -> Posture {
    nix::sys::prctl::set_no_new_privs().unwrap();
    Confinement::begin(kind).unwrap().close(kind).unwrap()
}

fn asked(name: &str) -> String {
    std::env::var(name).unwrap()
}

#[test]
#[ignore = "run for each deed, by the tests of the deeds"]
fn child_does_the_deed() {
    let scene = Scene::set();
    // Only what could be done before says anything about what cannot be done after.
    scene.file();
    close(&asked(KIND));
    let outcome = misdeeds::commit(&asked(DEED), &scene);
    std::process::exit(outcome.map_or_else(|errno| errno as i32, |()| DONE));
}

/// A test a deed and a list: `deeds::open_a_file::cpu` and `deeds::open_a_file::cuda`.
macro_rules! deeds {
    ($($deed:ident: $cpu:expr, $cuda:expr;)+) => {
        mod deeds {
            use super::{Ended::{self, *}, Errno, ended};
            use Errno::*;

            pub const TESTED: &[&str] = &[$(stringify!($deed)),+];

            $(mod $deed {
                use super::*;

                #[test]
                fn cpu() {
                    let expected: Ended = $cpu;
                    assert_eq!(ended("cpu", stringify!($deed)), expected);
                }

                #[test]
                fn cuda() {
                    let expected: Ended = $cuda;
                    assert_eq!(ended("cuda", stringify!($deed)), expected);
                }
            })+
        }
    };
}

deeds! {
    open_a_file: Failed(EACCES), Failed(EACCES);
    open_a_file_to_write: Failed(EACCES), Failed(EACCES);
    open_a_folder: Failed(EACCES), Failed(EACCES);
    create_a_file: Failed(EACCES), Failed(EACCES);
    create_a_file_without_a_name: Failed(EACCES), Failed(EACCES);
    open_own_memory: Failed(EACCES), Failed(EACCES);
    open_memory_of_process_1: Failed(EACCES), Failed(EACCES);
    open_environment_of_process_1: Failed(EACCES), Failed(EACCES);
    open_another_device: Failed(EACCES), Failed(EACCES);
    truncate_a_file: Killed, Killed;
    remove_a_file: Killed, Killed;
    rename_a_file: Killed, Killed;
    link_a_file: Killed, Killed;
    make_a_symbolic_link: Killed, Killed;
    make_a_folder: Killed, Killed;
    make_a_device_node: Killed, Failed(EPERM);
    change_a_mode: Killed, Failed(EPERM);
    change_a_mode_by_descriptor: Killed, Killed;
    change_an_owner: Killed, Killed;
    change_times: Killed, Killed;
    set_an_attribute: Killed, Killed;
    change_folder: Killed, Killed;
    change_root: Killed, Killed;
    open_by_handle: Killed, Killed;
    watch_files: Killed, Killed;
    make_a_tcp_socket: Killed, Killed;
    make_a_udp_socket: Killed, Killed;
    make_a_unix_socket: Killed, Killed;
    make_a_raw_socket: Killed, Killed;
    connect_by_tcp: Killed, Killed;
    connect_by_udp: Killed, Killed;
    connect_to_a_unix_socket: Killed, Killed;
    connect_to_an_abstract_socket: Killed, Killed;
    bind_a_socket: Killed, Killed;
    listen: Killed, Killed;
    accept: Killed, Killed;
    start_a_program: Killed, Killed;
    start_a_memory_file: Killed, Killed;
    fork: Killed, Killed;
    vfork: Killed, Killed;
    clone_a_process: Killed, Killed;
    clone_into_namespaces: Killed, Killed;
    clone_a_process_by_clone3: Failed(ENOSYS), Failed(ENOSYS);
    be_traced: Killed, Killed;
    trace_the_parent: Killed, Killed;
    read_the_parents_memory: Killed, Killed;
    write_the_parents_memory: Killed, Killed;
    signal_the_parent: Killed, Killed;
    signal_the_parents_thread: Killed, Killed;
    signal_a_thread_anywhere: Killed, Killed;
    signal_by_descriptor: Killed, Killed;
    have_the_parent_signalled_for_input: Killed, Killed;
    choose_the_signal_for_input: Killed, Killed;
    open_a_process: Killed, Killed;
    take_a_descriptor: Killed, Killed;
    compare_processes: Killed, Killed;
    change_priority: Killed, Killed;
    set_user: Killed, Killed;
    set_group: Killed, Killed;
    set_groups: Killed, Killed;
    set_capabilities: Killed, Killed;
    change_personality: Killed, Killed;
    become_dumpable: Killed, Killed;
    outlive_the_supervisor: Killed, Killed;
    add_a_filter: Killed, Killed;
    raise_a_limit: Killed, Killed;
    raise_a_limit_by_prlimit: Killed, Killed;
    read_the_parents_limits: Killed, Killed;
    start_a_session: Killed, Killed;
    leave_the_process_group: Killed, Killed;
    mount: Killed, Killed;
    unmount: Killed, Killed;
    open_a_tree_of_mounts: Killed, Killed;
    change_the_root_mount: Killed, Killed;
    enter_new_namespaces: Killed, Killed;
    enter_a_namespace: Killed, Killed;
    set_up_io_uring: Killed, Killed;
    use_keys: Killed, Killed;
    add_a_key: Killed, Killed;
    load_bpf: Killed, Killed;
    watch_performance: Killed, Killed;
    handle_page_faults: Killed, Killed;
    load_a_module: Killed, Killed;
    read_the_kernels_log: Killed, Killed;
    change_descriptor_tables: Killed, Killed;
    reach_ports: Killed, Killed;
    share_memory: Killed, Killed;
    open_a_message_queue: Killed, Killed;
    type_into_the_terminal: Killed, Killed;
    set_the_clock: Killed, Killed;
    map_executable_memory: Killed, Killed;
    map_writable_executable_memory: Killed, Killed;
    make_memory_executable: Killed, Killed;
    make_memory_executable_by_key: Killed, Killed;
    call_as_x32: Killed, Killed;
    call_as_i386: Killed, Killed;
    call_what_does_not_exist: Killed, Killed;
}

#[test]
fn every_deed_is_tested() {
    let known: Vec<&str> = misdeeds::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(known, deeds::TESTED);
    assert!(known.len() > 80);
}

#[test]
fn everything_is_tried_and_refused_before_a_worker_is_ready() {
    assert!(child("child_looks_at_its_posture", "cpu", "").success());
    assert!(child("child_looks_at_its_posture", "cuda", "").success());
}

#[test]
#[ignore = "run by everything_is_tried_and_refused_before_a_worker_is_ready"]
fn child_looks_at_its_posture() {
    let kind = asked(KIND);
    let posture = close(&kind);
    assert_eq!(posture.refused, Probe::ALL);
    assert_eq!((posture.no_new_privs, posture.seccomp.as_str()), (true, kind.as_str()));
    assert!(posture.landlock >= 1 && posture.landlock_at_start == posture.landlock, "{posture:?}");
}

#[test]
fn kernel_without_landlock_is_told() {
    assert!(child("child_has_no_landlock", "cpu", "").success());
    assert!(child("child_has_no_landlock", "cuda", "").success());
}

/// A filter answers as a kernel does in which Landlock is not switched on.
#[test]
#[ignore = "run by kernel_without_landlock_is_told"]
fn child_has_no_landlock() {
    let rule = r#"{"f": {"mismatch_action": "allow", "match_action": {"errno": 95}, "filter": [
        {"syscall": "landlock_create_ruleset"}]}}"#;
    let filters = seccompiler::compile_from_json(rule.as_bytes(), seccompiler::TargetArch::x86_64).unwrap();
    seccompiler::apply_filter(&filters["f"]).unwrap();
    let kind = asked(KIND);
    let posture = close(&kind);
    assert_eq!((posture.landlock, posture.landlock_at_start), (0, 0));
    // On the CPU the list of calls keeps files shut alone; on a GPU nothing does, which the supervisor judges.
    let open: Vec<Probe> = Probe::ALL.into_iter().filter(|probe| !posture.refused.contains(probe)).collect();
    let expected = if kind == "cpu" { vec![] } else { vec![Probe::ReadFile, Probe::CreateFile] };
    assert_eq!(open, expected);
    assert_eq!(posture.allowed().next(), None);
}

#[test]
fn decoding_work_goes_on_inside() {
    assert!(child("child_allocates_and_computes", "cpu", "").success());
    assert!(child("child_allocates_and_computes", "cuda", "").success());
}

#[test]
#[ignore = "run by decoding_work_goes_on_inside"]
fn child_allocates_and_computes() {
    close(&asked(KIND));
    let squares: Vec<u64> = thread::spawn(|| (0..1_000_000u64).map(|x| x * x).collect()).join().unwrap();
    assert_eq!(squares[1000], 1_000_000);
}

#[test]
fn abort_still_ends_the_process_by_its_own_signal() {
    assert_eq!(child("child_aborts", "cpu", "").signal(), Some(6));
    assert_eq!(child("child_aborts", "cuda", "").signal(), Some(6));
}

#[test]
#[ignore = "run by abort_still_ends_the_process_by_its_own_signal"]
fn child_aborts() {
    close(&asked(KIND));
    std::process::abort();
}

#[test]
fn thread_from_before_the_closing_opens_no_file_of_the_user() {
    assert!(child("child_has_a_thread_as_old_as_the_drivers", "cuda", "").success());
}

/// The driver starts its threads between the two sets of rules. This one is as old as they are.
#[test]
#[ignore = "run by thread_from_before_the_closing_opens_no_file_of_the_user"]
fn child_has_a_thread_as_old_as_the_drivers() {
    let scene = Scene::set();
    let file = scene.file();
    nix::sys::prctl::set_no_new_privs().unwrap();
    let begun = Confinement::begin("cuda").unwrap();
    let (closed, wait) = mpsc::channel::<()>();
    let old = thread::spawn(move || {
        wait.recv().unwrap();
        let files = [&file, std::path::Path::new("/etc/passwd"), std::path::Path::new("/proc/1/environ")];
        files.map(|file| std::fs::File::open(file).map(drop).map_err(|error| error.raw_os_error()))
    });
    begun.close("cuda").unwrap();
    closed.send(()).unwrap();
    assert_eq!(old.join().unwrap(), [Err(Some(Errno::EACCES as i32)); 3]);
}

#[test]
fn process_without_no_new_privs_is_refused() {
    assert!(child("child_has_not_given_up_privileges", "cpu", "").success());
}

#[test]
#[ignore = "run by process_without_no_new_privs_is_refused"]
fn child_has_not_given_up_privileges() {
    assert!(matches!(Confinement::begin("cpu"), Err(SandboxError::NewPrivs)));
}
