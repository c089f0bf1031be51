//! A worker that keeps the protocol and decodes nothing; for tests of the pool. It does what the extension of a job's
//! input says: crash, hang, lie, or answer.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a stand-in that fails is a test that fails")]

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::process;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use ipc_channel::ipc::{IpcOneShotServer, IpcReceiver};
use nix::sys::signal::{Signal, raise};
use nix::sys::socket::{MsgFlags, recv, send};
use refmill::beat::Counters;
use refmill::failure::{Code, Failure};
use refmill::job::Job;
use refmill::posture::{Posture, Probe};
use refmill::report::{Artifact, ArtifactKind, Device, Report, Source};
use refmill::wire::{self, Event, MAX_FRAME_BYTES, Request};

const SOCKET: RawFd = 3;

fn say(event: &Event) {
    send(SOCKET, &wire::encode(event).unwrap(), MsgFlags::empty()).unwrap();
}

fn main() {
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
    match job.extension.as_str() {
        "crash" => raise(Signal::SIGILL).unwrap(),
        "exit" => {
            eprintln!("last words");
            process::exit(68);
        }
        "once" => crash_unless_there(&job.source_hash),
        "hang" => thread::sleep(Duration::from_secs(1000)),
        "garbage" => drop(send(SOCKET, b"garbage", MsgFlags::empty())),
        "leak" => grow(8 << 20),
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
    let counters = Counters { jobs: job.id, ..Counters::default() };
    say(&Event::Done { id, report: Box::new(report), counters });
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
