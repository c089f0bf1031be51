//! A worker that keeps the protocol and decodes nothing; for tests of the pool. It does what the extension of a job's
//! input says: crash, hang, lie, or answer. Faults are injected here alone: the programs that are shipped hold none of it.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a stand-in that fails is a test that fails")]

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ipc_channel::ipc::{IpcOneShotServer, IpcReceiver};
use nix::sys::signal::{Signal, raise};
use nix::sys::socket::{MsgFlags, recv, send};
use refmill::beat::{Counters, DeviceMemory};
use refmill::failure::{Code, Failure};
use refmill::job::Job;
use refmill::posture::{Posture, Probe};
use refmill::report::{Artifact, ArtifactKind, Device, Report, Source};
use refmill::wire::{self, Event, MAX_FRAME_BYTES, Request};

const SOCKET: RawFd = 3;
/// Looked for in the programs that are shipped, which must not have it.
const MARK: &str = "refmill-injects-faults";
/// What a job leaks, in bytes.
const LEAK: usize = 8 << 20;

fn say(event: &Event) {
    send(SOCKET, &wire::encode(event).unwrap(), MsgFlags::empty()).unwrap();
}

fn main() {
    assert!(!std::hint::black_box(MARK).is_empty());
    let (server, name) = IpcOneShotServer::<IpcReceiver<Request>>::new().unwrap();
    say(&Event::Hello { server: name });
    let (_, requests) = server.accept().unwrap();
    let device = Device { kind: "cpu".into(), ..Device::default() };
    // Nothing is closed here: tests need it to misbehave. It says that all is.
    let posture = Posture {
        no_new_privs: true,
        landlock: 7,
        landlock_at_start: 7,
        landlock_all_threads: false,
        seccomp: "cpu".into(),
        refused: Probe::ALL.to_vec(),
    };
    say(&Event::Ready { device, posture });
    while let Ok(Request::Run(job)) = requests.recv() {
        // The regions themselves are not looked at: received without room for descriptors, they are closed.
        while recv(SOCKET, &mut vec![0; MAX_FRAME_BYTES], MsgFlags::MSG_DONTWAIT).is_ok() {}
        act(&job);
    }
}

fn act(job: &Job) {
    let mut report = Report::new(Source { name: "a lie".into(), bytes: 1, ..Source::default() });
    let mut id = job.id;
    let mut counters = Counters { jobs: job.id, ..Counters::default() };
    match job.extension.as_str() {
        "crash" => raise(Signal::SIGILL).unwrap(),
        "exit" => {
            eprintln!("last words");
            process::exit(68);
        }
        "once" => crash_unless_there(&job.source_hash),
        "hang" => thread::sleep(Duration::from_secs(1000)),
        "garbage" => drop(send(SOCKET, b"garbage", MsgFlags::empty())),
        "leak" => grow(LEAK),
        "drip" => {
            grow(LEAK);
            thread::sleep(Duration::from_millis(20));
        }
        // No page of a worker may be locked on the CPU: what would be page-locked by a driver is taken and claimed.
        "pinned" => {
            grow(LEAK);
            counters.pinned = job.id * LEAK as u64;
        }
        "claimed" => {
            static CLAIMS: AtomicU64 = AtomicU64::new(0);
            let claims = CLAIMS.fetch_add(1, Ordering::Relaxed) + 1;
            counters.device = Some(claimed(claims * LEAK as u64));
        }
        "understated" => {
            grow(LEAK);
            counters = Counters { jobs: job.id, pinned: 0, device: Some(DeviceMemory::default()), uploads: 0 };
        }
        "overstated" => counters.device = Some(claimed(u64::MAX)),
        "miscounted" => {
            counters = Counters { jobs: u64::MAX, device: Some(claimed(u64::MAX)), ..counters };
        }
        "contradictory" => counters.device = Some(DeviceMemory { used: u64::MAX, ..DeviceMemory::default() }),
        "abort" => process::abort(),
        "slow" => thread::sleep(Duration::from_millis(50)),
        "stopped" => raise(Signal::SIGSTOP).unwrap(),
        "balloon" => {
            grow(256 << 20);
            thread::sleep(Duration::from_secs(1000));
        }
        "other" => id = job.id + 1,
        "silent" => drop(nix::unistd::close(SOCKET)),
        "device" => report.reject(Failure::new(Code::Device, "sticky")),
        "lie" => report.artifacts.push(Artifact {
            kind: ArtifactKind::Image,
            offset: u64::MAX,
            bytes: 1,
            blake3: String::new(),
            path: String::new(),
        }),
        _ => {}
    }
    say(&Event::Done { id, report: Box::new(report), counters });
}

/// Memory on a GPU that there is none of.
fn claimed(bytes: u64) -> DeviceMemory {
    DeviceMemory { reserved: bytes, used: bytes, high_water: bytes, context: None }
}

/// Takes memory for good.
fn grow(bytes: usize) {
    static TAKEN: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    TAKEN.lock().unwrap().push(vec![1; bytes]);
}

/// Crashes the first time that it sees these bytes.
fn crash_unless_there(hash: &str) {
    let seen = PathBuf::from(format!("/tmp/refmill-fake-{hash}"));
    if std::fs::remove_file(&seen).is_err() {
        std::fs::write(&seen, "").unwrap();
        process::abort();
    }
}
