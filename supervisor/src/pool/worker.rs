//! One worker from its start to its end: spawned, greeted, given jobs one at a time, and killed the moment that it
//! breaks a promise. It dies with the thread that started it.

mod error;
mod examine;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use refmill::beat::Counters;
use refmill::job::Job;
use refmill::report::{Device, Report};
use refmill::wire::{Event, Region, Request};

use super::claim::{self, ClaimError};
use super::confinement::{Confinement, Prepared};
use super::deadlines::Deadlines;
use super::mailbox::{Mailbox, MailboxError};
use super::postman::{Postman, PostmanError};
use super::posture::{SandboxPolicy, Verdict};
use super::process::Process;
use super::sample;
use super::spawn::{Isolation, Launch, SOCKET_FD, spawn};
use super::vitals::{Late, Vitals};
use crate::devices::Choice;
use crate::memory::{OutputRegion, SealedInput};
use crate::shutdown::Stop;
pub use error::{RunError, StartError};
use words::{printable, with_words};

/// How long a worker whose socket closed may take to exit, so that its exit code is seen.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// How long a process that was killed may take to be seen as ended, once something about it failed.
const DYING: Duration = Duration::from_millis(100);

/// How workers are started.
#[derive(Debug, Clone)]
pub struct WorkerPlan {
    /// The program.
    pub program: PathBuf,
    /// `LD_LIBRARY_PATH`, where the CUDA driver can lie.
    pub library_path: Option<OsString>,
    /// `REFMILL_NVJPEG`: where nvJPEG lies, or `off`.
    pub nvjpeg: Option<OsString>,
    /// The device.
    pub device: Choice,
    /// Size of the output region, in bytes.
    pub output_bytes: u64,
    /// How it is confined.
    pub confinement: Confinement,
}

/// A worker that is ready for a job.
#[derive(Debug)]
pub struct Worker {
    // Dropped in this order: the process goes before its cgroup.
    process: Process,
    prepared: Prepared,
    mailbox: Mailbox,
    postman: Postman,
    output: OutputRegion,
    device: Device,
    verdict: Verdict,
    deadlines: Deadlines,
    vitals: Vitals,
    jobs: u64,
    asked: Option<Asked>,
}

/// The job in a worker's hands.
#[derive(Debug)]
struct Asked {
    job: Job,
    limit_ms: u64,
    begun: Instant,
}

/// What a worker was heard to say.
#[derive(Debug)]
pub enum Heard {
    /// Nothing by the time given.
    Quiet,
    /// That it lives.
    Beat,
    /// The report of its job.
    Done(Box<Report>),
}

/// What a job is, but for what only the worker's connection knows.
#[derive(Debug)]
pub struct Assignment<'a> {
    /// The job; its id is set here.
    pub job: Job,
    /// Its bytes.
    pub input: &'a SealedInput,
}

impl Worker {
    /// Starts a worker and waits until it is ready. It dies with the calling thread.
    ///
    /// # Errors
    /// [`StartError`]; no process is left behind.
    pub fn start(plan: &WorkerPlan, deadlines: &Deadlines, stop: &Stop) -> Result<Self, StartError> {
        let deadline = after(deadlines.start());
        let folder = tempfile::Builder::new().prefix("refmill-").tempdir().map_err(StartError::Prepare)?;
        let (mut mailbox, socket) = Mailbox::pair().map_err(StartError::Prepare)?;
        let output = OutputRegion::new(plan.output_bytes).map_err(StartError::Prepare)?;
        let weaker = |gap| StartError::Posture { policy: plan.confinement.policy, gap };
        let mut prepared = plan.confinement.prepare().map_err(weaker)?;
        let launch =
            plan.launch(folder.path().as_os_str().to_owned(), prepared.isolation(plan.device.kind()), deadlines);
        let mut process = spawn(launch, &socket)?;
        let pid = process.pid();
        // Only the worker may hold its end: its death must be seen as the end of the stream.
        drop(socket);
        let listen = |mailbox: &mut Mailbox, process: &mut Process| match mailbox.receive(deadline, stop) {
            Ok(Event::Fatal { message }) => Err(StartError::fatal(message, process)),
            Ok(event) => Ok(event),
            Err(error) => Err(StartError::from_mailbox(error, process)),
        };
        let Event::Hello { server } = listen(&mut mailbox, &mut process)? else {
            return Err(StartError::protocol("its first event is not Hello"));
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let connected = Postman::connect(&server, folder.path(), left);
        let postman = connected.map_err(|error| StartError::from(error).unless_gone(&mut process))?;
        // Before its first job and beside its start, since both take their time.
        prepared.enter(pid).map_err(|gap| weaker(gap).unless_gone(&mut process))?;
        let Event::Ready { device, posture } = listen(&mut mailbox, &mut process)? else {
            return Err(StartError::protocol("its second event is not Ready"));
        };
        let device = plan.verified(device)?;
        let judged = prepared.judge(&device.kind, posture, pid);
        let verdict = judged.map_err(|gap| weaker(gap).unless_gone(&mut process))?;
        let sent = mailbox.send_region(Region::Output, std::os::fd::AsFd::as_fd(&output), deadline, stop);
        sent.map_err(|error| StartError::from_mailbox(error, &mut process))?;
        let (deadlines, vitals) = (deadlines.clone(), Vitals::new(Instant::now()));
        Ok(Self {
            process,
            prepared,
            mailbox,
            postman,
            output,
            device,
            verdict,
            deadlines,
            vitals,
            jobs: 0,
            asked: None,
        })
    }

    /// The device it runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How it is confined.
    #[must_use]
    pub fn confinement(&self) -> &Verdict {
        &self.verdict
    }

    /// The limit on its memory, in bytes, if it was killed for being over it.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<u64> {
        self.prepared.out_of_memory()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Jobs that it was given.
    #[must_use]
    pub fn jobs(&self) -> u64 {
        self.jobs
    }

    /// What it said last about itself, unless that contradicts itself or the jobs that were counted here.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let told = self.vitals.counters();
        if told.contradiction(self.jobs, sample::ram()).is_some() { Counters::default() } else { told }
    }

    /// Where the artifacts of the last job lie.
    #[must_use]
    pub fn output(&self) -> &OutputRegion {
        &self.output
    }

    /// Hands it one job. After an error the worker is dead and must be dropped.
    ///
    /// # Errors
    /// [`RunError`]
    pub fn begin(&mut self, assignment: Assignment<'_>, stop: &Stop) -> Result<(), RunError> {
        let Assignment { mut job, input } = assignment;
        self.jobs = self.jobs.saturating_add(1);
        job.id = self.jobs;
        let (begun, limit_ms) = (Instant::now(), self.deadlines.job_ms(job.limits.wall_ms));
        self.vitals.begin(job.id, limit_ms, begun);
        self.asked = Some(Asked { job: job.clone(), limit_ms, begun });
        let input = std::os::fd::AsFd::as_fd(input);
        let due = self.vitals.due(&self.deadlines);
        self.mailbox.send_region(Region::Input, input, due, stop).map_err(|error| self.failed(error))?;
        self.postman.send(Request::Run(Box::new(job)));
        Ok(())
    }

    /// Waits until it says something, or `until`. After an error the worker is dead and must be dropped.
    ///
    /// # Errors
    /// [`RunError`]; also where it is late with the job, a stage or a sign of life.
    pub fn listen(&mut self, until: Instant, stop: &Stop) -> Result<Heard, RunError> {
        let due = self.vitals.due(&self.deadlines);
        match self.mailbox.receive(until.min(due), stop) {
            Ok(Event::Done { id, report, counters }) => {
                let Some(Asked { job, limit_ms, begun }) = self.asked.take() else {
                    return Err(self.broken("it answers a job that it was not given".into()));
                };
                self.vitals.end(counters, Instant::now());
                let checked = claim::check(id, *report, &job, self.output.len(), &self.device);
                let report = checked.map_err(|error| self.violated(&error))?;
                Ok(Heard::Done(Box::new(in_time(report, begun, limit_ms, &job))))
            }
            Ok(Event::Beat(beat)) if self.vitals.beat(beat, Instant::now(), &self.deadlines) => Ok(Heard::Beat),
            Ok(Event::Beat(_)) => Err(self.broken("it sends signs of life without end".into())),
            Ok(Event::Fatal { message }) => {
                let how = with_words(&self.process.end(EXIT_GRACE).to_string(), &printable(&message, 300));
                Err(RunError::Crashed { how })
            }
            Ok(_) => Err(self.broken("its event is neither Beat nor Done".into())),
            Err(MailboxError::Timeout) => match self.vitals.late(Instant::now(), &self.deadlines) {
                Some(late) => Err(self.late(late)),
                None => Ok(Heard::Quiet),
            },
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Takes what an idle worker has said, and does not wait for more. After an error the worker is dead and must be
    /// dropped.
    ///
    /// # Errors
    /// [`RunError`]
    pub fn attend(&mut self, stop: &Stop) -> Result<(), RunError> {
        while !matches!(self.listen(Instant::now(), stop)?, Heard::Quiet) {}
        Ok(())
    }

    fn late(&mut self, late: Late) -> RunError {
        self.process.end(Duration::ZERO);
        match late {
            Late::Job { elapsed_ms, limit_ms } => RunError::OverTime { elapsed_ms, limit_ms },
            Late::Stage { stage, elapsed_ms, limit_ms } => RunError::StageOverTime { stage, elapsed_ms, limit_ms },
            Late::Beat { silent_ms } => RunError::Hung { silent_ms },
        }
    }

    fn failed(&mut self, error: MailboxError) -> RunError {
        match error {
            MailboxError::Gone => {
                let how = epitaph(&mut self.process);
                match self.out_of_memory() {
                    Some(limit) => RunError::Crashed { how: format!("{how}, over its {limit} bytes of memory,") },
                    None => RunError::Crashed { how },
                }
            }
            MailboxError::Interrupted => {
                self.process.end(Duration::ZERO);
                RunError::Interrupted
            }
            // It does not take what it is sent.
            MailboxError::Timeout => match self.vitals.late(Instant::now(), &self.deadlines) {
                Some(late) => self.late(late),
                None => self.broken("it takes no descriptor".into()),
            },
            other => self.broken(other.to_string()),
        }
    }

    fn violated(&mut self, error: &ClaimError) -> RunError {
        self.broken(error.to_string())
    }

    fn broken(&mut self, what: String) -> RunError {
        self.process.end(Duration::ZERO);
        RunError::Protocol { what }
    }

    /// Ends an idle worker: asked first, killed after a while.
    pub fn stop(mut self) {
        self.postman.send(Request::Stop);
        self.process.end(self.deadlines.stop());
    }
}

/// The report, unless it came too late: the grace is for a worker's last words, not for its work.
fn in_time(mut report: Report, begun: Instant, limit_ms: u64, job: &Job) -> Report {
    let elapsed = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    if let Err(failure) = job.limits.check("wall time in ms", elapsed, limit_ms) {
        report.reject(failure);
    }
    report
}

impl WorkerPlan {
    fn launch(&self, folder: OsString, isolation: Isolation, deadlines: &Deadlines) -> Launch<'_> {
        let gpu = self.device.gpu.as_ref().map(|gpu| OsString::from(gpu.as_str()));
        let mut arguments: Vec<OsString> = vec!["--socket-fd".into(), SOCKET_FD.to_string().into()];
        arguments.extend(["--beat-ms".into(), deadlines.beat_ms.max(1).to_string().into()]);
        arguments.extend(["--device".into(), self.device.kind().into()]);
        arguments.extend(gpu.iter().flat_map(|gpu| ["--gpu".into(), gpu.clone()]));
        if self.confinement.policy == SandboxPolicy::Off {
            arguments.extend(["--sandbox".into(), "off".into()]);
        }
        let mut environment = vec![
            ("CUDA_VISIBLE_DEVICES", gpu.unwrap_or_default()),
            ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".into()),
            ("LANG", "C.UTF-8".into()),
            ("TMPDIR", folder),
        ];
        environment.extend(self.library_path.clone().map(|path| ("LD_LIBRARY_PATH", path)));
        environment.extend(self.nvjpeg.clone().map(|path| ("REFMILL_NVJPEG", path)));
        Launch { program: &self.program, arguments, environment, file_bytes: self.output_bytes, isolation }
    }

    /// The device as the worker tells it, if it is the one that was asked for.
    fn verified(&self, told: Device) -> Result<Device, StartError> {
        let kind = self.device.kind();
        if told.kind != kind {
            return Err(StartError::protocol(&format!("it runs on `{}`, not on {kind}", printable(&told.kind, 40))));
        }
        let uuid = self.device.gpu.as_ref().map(ToString::to_string).unwrap_or_default();
        if self.device.gpu.as_ref().is_some_and(|gpu| !gpu.is_same(&told.uuid)) {
            return Err(StartError::protocol(&format!("it runs on {}, not on {uuid}", printable(&told.uuid, 60))));
        }
        let name = printable(&told.name, 200);
        Ok(Device { kind: kind.into(), name, uuid, reason: self.device.reason.clone() })
    }
}

impl StartError {
    fn protocol(what: &str) -> Self {
        Self::Protocol { what: what.into() }
    }

    fn fatal(message: String, process: &mut Process) -> Self {
        process.end(EXIT_GRACE);
        Self::Fatal { message: printable(&message, 500) }
    }

    /// This, or its end where the process has gone meanwhile: then nothing else about it can work.
    fn unless_gone(self, process: &mut Process) -> Self {
        if process.has_ended(DYING) { Self::Ended { how: epitaph(process) } } else { self }
    }

    fn from_mailbox(error: MailboxError, process: &mut Process) -> Self {
        match error {
            MailboxError::Timeout => Self::Timeout,
            MailboxError::Interrupted => Self::Interrupted,
            MailboxError::Gone => Self::Ended { how: epitaph(process) },
            other => Self::protocol(&other.to_string()),
        }
    }
}

impl From<PostmanError> for StartError {
    fn from(error: PostmanError) -> Self {
        match error {
            PostmanError::Timeout => Self::Timeout,
            other => Self::protocol(&other.to_string()),
        }
    }
}

/// How a process that closed its socket ended, with its last words.
fn epitaph(process: &mut Process) -> String {
    let ending = process.end(EXIT_GRACE).to_string();
    with_words(&ending, &process.last_words())
}

fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::GpuUuid;

    const GPU: &str = "GPU-0a1b2c3d-0000-1111-2222-333344445555";

    fn plan(gpu: Option<GpuUuid>) -> WorkerPlan {
        let device = Choice { gpu, reason: "asked for".into(), may_fall_back: false };
        let confinement = Confinement { policy: SandboxPolicy::Standard, memory_bytes: 1 << 30 };
        WorkerPlan {
            program: "/bin/false".into(),
            library_path: None,
            nvjpeg: None,
            device,
            output_bytes: 1 << 20,
            confinement,
        }
    }

    fn told(kind: &str, uuid: &str) -> Device {
        Device { kind: kind.into(), name: "N\x1b[31m".into(), uuid: uuid.into(), reason: "mine".into() }
    }

    #[test]
    fn cpu_worker_sees_no_gpu() {
        let plan = plan(None);
        let launch = plan.launch("/tmp/x".into(), Isolation::none(), &Deadlines::default());
        assert!(launch.environment.contains(&("CUDA_VISIBLE_DEVICES", OsString::new())));
        assert_eq!(launch.arguments, ["--socket-fd", "3", "--beat-ms", "1000", "--device", "cpu"]);
    }

    #[test]
    fn cuda_worker_sees_its_gpu_by_uuid() {
        let plan = plan(Some(GpuUuid::parse(GPU).unwrap()));
        let launch = plan.launch("/tmp/x".into(), Isolation::none(), &Deadlines::default());
        assert!(launch.environment.contains(&("CUDA_VISIBLE_DEVICES", GPU.into())));
        assert_eq!(launch.arguments, ["--socket-fd", "3", "--beat-ms", "1000", "--device", "cuda", "--gpu", GPU]);
    }

    #[test]
    fn device_is_told_with_the_supervisors_reason_and_without_control_characters() {
        let device = plan(None).verified(told("cpu", "")).unwrap();
        assert_eq!((device.name.as_str(), device.reason.as_str()), ("N [31m", "asked for"));
    }

    #[test]
    fn worker_on_another_device_is_refused() {
        assert!(matches!(plan(None).verified(told("cuda", "")), Err(StartError::Protocol { .. })));
        let plan = plan(Some(GpuUuid::parse(GPU).unwrap()));
        assert!(matches!(plan.verified(told("cuda", "GPU-x")), Err(StartError::Protocol { .. })));
        assert!(plan.verified(told("cuda", GPU)).is_ok());
    }

    #[test]
    fn unconfined_worker_is_told_so() {
        let mut plan = plan(None);
        plan.confinement.policy = SandboxPolicy::Off;
        let launch = plan.launch("/tmp/x".into(), Isolation::none(), &Deadlines::default());
        assert_eq!(launch.arguments, ["--socket-fd", "3", "--beat-ms", "1000", "--device", "cpu", "--sandbox", "off"]);
    }

    #[test]
    fn program_that_ends_before_its_first_word_is_told_with_its_exit_code() {
        let error = Worker::start(&plan(None), &Deadlines::default(), &Stop::new().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "worker exited with 1 before it was ready");
    }

    #[test]
    fn program_that_does_not_exist_is_named() {
        let plan = WorkerPlan { program: "/no/such/refmill-worker".into(), ..plan(None) };
        let error = Worker::start(&plan, &Deadlines::default(), &Stop::new().unwrap()).unwrap_err();
        assert!(error.to_string().starts_with("cannot start worker /no/such/refmill-worker: No such file"), "{error}");
    }
}
