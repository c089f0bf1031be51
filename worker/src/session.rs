//! A worker's life: start the device, close the confinement, then one job after the other until told to stop.

use std::fs::File;
use std::os::fd::RawFd;
use std::time::Duration;

use refmill::beat::{Counters, DeviceMemory};
use refmill::exit::WorkerExit;
use refmill::failure::{Code, Failure};
use refmill::job::{Depth, Job};
use refmill::report::{Report, Source};
use refmill::wire::{Event, MAX_FRAME_BYTES, Region, Request, WireError, encode};

use crate::channel::{Channel, ChannelError, post};
use crate::device::{Device, Wanted};
use crate::examine;
use crate::headers::{self, Windows};
use crate::pipeline::Pipeline;
use crate::pulse::Heart;
use crate::region::read_input;
use crate::sandbox::Confinement;

/// What the command line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The inherited socket.
    pub socket: RawFd,
    /// The device that is wanted.
    pub device: Wanted,
    /// The GPU that it must be, where one is named.
    pub gpu: Option<String>,
    /// Whether this process confines itself.
    pub sandbox: bool,
    /// How often a sign of life is sent.
    pub beat: Duration,
}

/// As often as the supervisor asks for where it does not say so.
const BEAT: Duration = Duration::from_secs(1);

impl Start {
    /// Reads `--socket-fd N --device auto|cpu|cuda [--gpu UUID] [--beat-ms N] [--sandbox on|off]`; confined if nothing
    /// is said.
    ///
    /// # Errors
    /// A sentence about the first argument that does not fit.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut arguments = arguments.into_iter();
        let (mut socket, mut device, mut gpu) = (None, None, None);
        let (mut sandbox, mut beat) = (true, BEAT);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("`{name}` needs a value"))?;
            match name.as_str() {
                "--socket-fd" => {
                    let number = value.parse().ok().filter(|number| (3..=1024).contains(number));
                    socket = Some(number.ok_or_else(|| format!("--socket-fd is `{value}`, 3 to 1024 can be one"))?);
                }
                "--device" => {
                    device = Some(match value.as_str() {
                        "auto" => Wanted::Auto,
                        "cpu" => Wanted::Cpu,
                        "cuda" => Wanted::Cuda,
                        other => return Err(format!("--device is `{other}`, it takes auto, cpu or cuda")),
                    });
                }
                "--gpu" => gpu = Some(value),
                "--sandbox" => {
                    sandbox = match value.as_str() {
                        "on" => true,
                        "off" => false,
                        other => return Err(format!("--sandbox is `{other}`, it takes on or off")),
                    };
                }
                "--beat-ms" => {
                    let number = value.parse().ok().filter(|number| (1..=3_600_000).contains(number));
                    let number = number.ok_or_else(|| format!("--beat-ms is `{value}`, 1 to 3600000 can be one"))?;
                    beat = Duration::from_millis(number);
                }
                other => return Err(format!("`{other}` is not an argument of refmill-worker")),
            }
        }
        let socket = socket.ok_or("refmill-worker is started by refmill, with --socket-fd")?;
        Ok(Self { socket, device: device.ok_or("--device is missing")?, gpu, sandbox, beat })
    }
}

/// Runs the worker to its end.
#[must_use]
pub fn run(start: &Start) -> WorkerExit {
    match live(start) {
        Ok(exit) => exit,
        Err(ChannelError::Closed) => WorkerExit::Drained,
        Err(error) => {
            eprintln!("refmill-worker: {error}");
            WorkerExit::Protocol
        }
    }
}

fn live(start: &Start) -> Result<WorkerExit, ChannelError> {
    let channel = Channel::open(start.socket)?;
    let confinement = match start.sandbox.then(|| Confinement::begin(start.device.kind())).transpose() {
        Ok(confinement) => confinement,
        Err(error) => return fatal(start, &error.to_string(), WorkerExit::Confinement),
    };
    let device = match Device::start(start.device, start.gpu.as_deref()) {
        Ok(device) => device,
        Err(failure) => return fatal(start, &failure.message, WorkerExit::NoDevice),
    };
    let mut pipeline = Pipeline::new(device);
    let about = pipeline.device().about();
    let posture = match confinement.map(|confinement| confinement.close(&about.kind)).transpose() {
        Ok(posture) => posture.unwrap_or_default(),
        Err(error) => return fatal(start, &error.to_string(), WorkerExit::Confinement),
    };
    channel.send(&Event::Ready { device: about, posture })?;
    let pulse = pipeline.pulse();
    let mut counters = counted(&pipeline, Counters::default());
    pulse.end(counters);
    let _heart = match Heart::start(start.socket, start.beat, pulse.clone()) {
        Ok(heart) => heart,
        Err(error) => return fatal(start, &format!("no thread for heartbeats: {error}"), WorkerExit::BadStart),
    };
    let (mut input, mut output): (Option<File>, Option<File>) = (None, None);
    let mut buffer = Vec::new();
    loop {
        let request = channel.receive()?;
        for (region, file) in channel.regions()? {
            match region {
                Region::Input => input = Some(file),
                Region::Output => output = Some(file),
            }
        }
        let job = match (request, &output) {
            (Request::Run(job), _) => job,
            (Request::Examine, Some(region)) => {
                let examination = examine::examine(&mut pipeline, region, start.gpu.as_deref());
                channel.send(&Event::Examined(Box::new(examination)))?;
                continue;
            }
            _ => return Ok(WorkerExit::Drained),
        };
        let (Some(bytes), Some(region)) = (input.take(), output.as_ref()) else {
            return Err(ChannelError::Protocol(format!("job {} came without its regions", job.id)));
        };
        pulse.begin(job.id);
        let report = run_job(&mut pipeline, &job, &bytes, region, &mut buffer);
        counters.jobs = counters.jobs.saturating_add(1);
        counters.uploads = counters.uploads.saturating_add(report.uploads.into());
        counters = counted(&pipeline, counters);
        let report = Box::new(fitting(job.id, report));
        pulse.end(counters);
        channel.send(&Event::Done { id: job.id, report, counters })?;
        if pipeline.lost_device() {
            return Ok(WorkerExit::StickyDevice);
        }
    }
}

/// The counters with what the device holds now.
fn counted(pipeline: &Pipeline, before: Counters) -> Counters {
    let (pinned, memory) = pipeline.device().memory();
    let most = before.device.map_or(0, |device| device.high_water);
    let device = memory.map(|now| DeviceMemory { high_water: now.high_water.max(most), ..now });
    Counters { pinned, device, ..before }
}

/// Runs a job on as much of its input as it needs.
fn run_job(pipeline: &mut Pipeline, job: &Job, bytes: &File, region: &File, buffer: &mut Vec<u8>) -> Report {
    let allowed = job.limits.check("input size in bytes", job.input_len, job.limits.input_bytes);
    if job.depth == Depth::Headers {
        let read = allowed.and_then(|()| headers::read(bytes, job.input_len, Windows::default()));
        return match read {
            Ok(headers) => pipeline.run_encoded(job, headers.encoded(), region),
            Err(failure) => Report::rejected(Source::default(), failure),
        };
    }
    match allowed.and_then(|()| read_input(bytes, job.input_len, buffer)) {
        Ok(()) => pipeline.run(job, buffer, region),
        Err(failure) => Report::rejected(Source::default(), failure),
    }
}

/// The report, with findings left out from the end until its event fits a frame.
fn fitting(id: u64, mut report: Report) -> Report {
    loop {
        // Counters of the longest encoding: those that are sent fit then as well.
        let most = DeviceMemory { reserved: u64::MAX, used: u64::MAX, high_water: u64::MAX, context: Some(u64::MAX) };
        let counters = Counters { jobs: u64::MAX, uploads: u64::MAX, pinned: u64::MAX, device: Some(most) };
        let event = Event::Done { id, report: Box::new(report.clone()), counters };
        let Err(WireError::Long { .. }) = encode(&event) else { return report };
        if report.findings.pop().is_none() && report.repairs.pop().is_none() {
            let message = format!("report does not fit into {MAX_FRAME_BYTES} bytes");
            return Report::rejected(report.source, Failure::new(Code::Internal, message));
        }
        report.findings_omitted = report.findings_omitted.saturating_add(1);
    }
}

fn fatal(start: &Start, message: &str, exit: WorkerExit) -> Result<WorkerExit, ChannelError> {
    eprintln!("refmill-worker: {message}");
    post(start.socket, &Event::Fatal { message: message.chars().take(400).collect() })?;
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use refmill::finding::{Finding, FindingCode, Repair};

    fn parse(arguments: &[&str]) -> Result<Start, String> {
        Start::parse(arguments.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn arguments_are_read() {
        let line = ["--socket-fd", "3", "--device", "cuda", "--gpu", "GPU-1", "--beat-ms", "20"];
        let (gpu, beat) = (Some("GPU-1".into()), Duration::from_millis(20));
        assert_eq!(parse(&line).unwrap(), Start { socket: 3, device: Wanted::Cuda, gpu, sandbox: true, beat });
    }

    #[test]
    fn confinement_is_left_out_on_request_alone() {
        assert!(!parse(&["--socket-fd", "3", "--device", "cpu", "--sandbox", "off"]).unwrap().sandbox);
        let problem = parse(&["--socket-fd", "3", "--device", "cpu", "--sandbox", "no"]).unwrap_err();
        assert_eq!(problem, "--sandbox is `no`, it takes on or off");
    }

    #[test]
    fn started_by_hand_says_who_starts_it() {
        assert_eq!(parse(&[]).unwrap_err(), "refmill-worker is started by refmill, with --socket-fd");
    }

    #[test]
    fn report_too_large_for_a_frame_loses_findings_and_says_so() {
        let mut report = Report::new(Source::default());
        (0..64).for_each(|_| report.find(Finding::new(FindingCode::ExifCorrupt, "x".repeat(240), "y".repeat(240))));
        report.repairs = vec![Repair::new(FindingCode::ExifCorrupt, "x".repeat(240), "y".repeat(240)); 60];
        let fitted = fitting(1, report);
        assert!(fitted.findings_omitted > 0);
        assert!(encode(&Event::Done { id: 1, report: Box::new(fitted), counters: Counters::default() }).is_ok());
    }
}
