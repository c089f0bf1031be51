//! The pool: slots, each a thread with one worker, which share a source of tasks. The first slot starts alone; its
//! worker shows whether the device works at all, before the others are started.

pub mod cgroup;
pub mod claim;
pub mod confinement;
pub mod mailbox;
pub mod namespaces;
pub mod postman;
pub mod posture;
pub mod process;
mod slot;
mod source;
pub mod spawn;
pub mod worker;

use std::sync::mpsc::{self, Sender};
use std::thread;

use refmill::job::{ColourOptions, Depth, ImageWanted, Strip};
use refmill::limits::Limits;
use refmill::policy::Policy;
use refmill::recipe::Recipe;
use refmill::report::{Device, Report};
use serde::{Deserialize, Serialize};

use crate::intake::Origin;
use crate::publish::Outputs;
use crate::shutdown::Stop;
use posture::Verdict;
use slot::Slot;
pub use source::{Given, TaskSource};
use worker::{StartError, WorkerPlan};

/// What is asked of an image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// How far each job goes.
    pub depth: Depth,
    /// The repaired image.
    pub image: ImageWanted,
    /// What a lossless repair leaves out.
    pub strip: Strip,
    /// What is done about findings.
    pub policy: Policy,
    /// The tensors.
    pub recipe: Option<Recipe>,
    /// How colours are converted.
    pub colour: ColourOptions,
    /// The bounds.
    pub limits: Limits,
    /// Whether inputs are hashed.
    pub hashed: bool,
}

impl Order {
    /// Everything about each image that `limits` allows, with the default policy.
    #[must_use]
    pub fn new(image: ImageWanted, recipe: Option<Recipe>, colour: ColourOptions, limits: Limits) -> Self {
        let (depth, strip, policy) = (Depth::Full, Strip::Nothing, Policy::default());
        Self { depth, image, strip, policy, recipe, colour, limits, hashed: true }
    }
}

/// One image, and where its artifacts go.
#[derive(Debug, Clone)]
pub struct Task {
    /// Its place in the run, from 0.
    pub index: usize,
    /// Where its bytes come from.
    pub origin: Origin,
    /// What the report calls it.
    pub name: String,
    /// Where its artifacts go.
    pub outputs: Outputs,
}

/// A task that has its report.
#[derive(Debug)]
pub struct Finished {
    /// The task's place in the run.
    pub index: usize,
    /// Its report, published.
    pub report: Report,
}

/// What the caller is told while the pool runs.
#[derive(Debug)]
pub enum News {
    /// The first worker is ready, on this device, confined like this.
    Ready(Device, Verdict),
    /// A further worker could not be had; the others go on.
    SlotLost(String),
    /// A task has its report. They come in the order of their completion.
    Finished(Box<Finished>),
}

/// How the pool ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// Tasks without a report: after an interruption, or since no worker was left.
    pub undone: usize,
    /// Why no worker was left.
    pub broken: Option<StartError>,
    /// Whether any worker was ever ready.
    pub worked: bool,
}

enum Message {
    Started(Box<Device>, Verdict),
    Finished(Box<Finished>),
    Lost(StartError),
}

/// Runs all tasks on up to `slots` workers and tells what happens. Returns when no worker is left running.
pub fn run(
    plan: &WorkerPlan,
    slots: usize,
    order: &Order,
    tasks: &[Task],
    stop: &Stop,
    tell: &mut dyn FnMut(News),
) -> Ended {
    let mut finished: usize = 0;
    let ended = run_from(plan, slots, &source::List::new(order, tasks), stop, &mut |news| {
        finished = finished.saturating_add(usize::from(matches!(news, News::Finished(_))));
        tell(news);
    });
    Ended { undone: tasks.len().saturating_sub(finished), ..ended }
}

/// Gives tasks of `source` to up to `slots` workers until it has no more, and tells what happens. Returns when no
/// worker is left running; what is undone, the source knows.
pub fn run_from(
    plan: &WorkerPlan,
    slots: usize,
    source: &dyn TaskSource,
    stop: &Stop,
    tell: &mut dyn FnMut(News),
) -> Ended {
    let slot = Slot { plan, source, stop };
    let mut ended = Ended::default();
    thread::scope(|scope| {
        let (sender, messages) = mpsc::channel();
        let start = |sender: Sender<Message>, ended: &mut Ended| {
            let thread = thread::Builder::new().name("slot".into());
            if let Err(error) = thread.spawn_scoped(scope, move || slot.serve(&sender)) {
                ended.broken = Some(StartError::Prepare(error));
            }
        };
        start(sender.clone(), &mut ended);
        // Given up once the other slots are started: messages end when the last slot does.
        let mut sender = Some(sender);
        while let Ok(message) = messages.recv() {
            let further = sender.take();
            match message {
                Message::Started(device, verdict) => {
                    ended.worked = true;
                    if let Some(sender) = further {
                        (1..slots).for_each(|_| start(sender.clone(), &mut ended));
                        tell(News::Ready(*device, verdict));
                    }
                }
                Message::Finished(finished) => tell(News::Finished(finished)),
                Message::Lost(StartError::Interrupted) => {}
                Message::Lost(error) => {
                    if ended.worked {
                        tell(News::SlotLost(error.to_string()));
                    }
                    ended.broken = Some(error);
                }
            }
        }
    });
    ended
}
