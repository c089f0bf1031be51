//! A worker that was captured: it starts, confines itself and answers as the shipped one does, by the same code, and
//! then does what the extension of a job's input names. For tests of what a supervisor's worker can do.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a step that fails is a test that fails"
)]

mod misdeeds;

use misdeeds::Scene;
use refmill::beat::Counters;
use refmill::failure::{Code, Failure};
use refmill::report::{Report, Source};
use refmill::wire::{Event, Request};
use refmill_worker::channel::Channel;
use refmill_worker::device::Device;
use refmill_worker::sandbox::Confinement;
use refmill_worker::session::Start;

fn main() {
    let start = Start::parse(std::env::args().skip(1)).unwrap();
    let channel = Channel::open(start.socket).unwrap();
    let scene = Scene::set();
    scene.file();
    let kind = start.device.kind();
    let begun = start.sandbox.then(|| Confinement::begin(kind).unwrap());
    let device = Device::start(start.device, start.gpu.as_deref()).unwrap().about();
    let posture = begun.map(|begun| begun.close(kind).unwrap()).unwrap_or_default();
    channel.send(&Event::Ready { device, posture }).unwrap();
    while let Ok(Request::Run(job)) = channel.receive() {
        channel.regions().unwrap();
        let outcome = misdeeds::commit(&job.extension, &scene);
        let told = outcome.map_or_else(|errno| format!("failed: {errno}"), |()| "done".to_owned());
        let report = Report::rejected(Source::default(), Failure::new(Code::Colour, told));
        let counters = Counters { jobs: job.id, ..Counters::default() };
        channel.send(&Event::Done { id: job.id, report: Box::new(report), counters }).unwrap();
    }
}
