//! The pool: slots, each a thread with one worker, which share a source of tasks. The first slot of a device starts
//! alone; its worker shows whether the device works at all, before the device's other slots are started.

pub mod cgroup;
pub mod claim;
pub mod confinement;
pub mod deadlines;
mod life;
mod machine;
pub mod mailbox;
pub mod namespaces;
pub mod postman;
pub mod posture;
pub mod process;
mod recruiter;
pub mod sample;
mod slot;
mod source;
pub mod spawn;
pub mod vitals;
pub mod watermark;
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
pub use deadlines::Deadlines;
use posture::Verdict;
use slot::Slot;
pub use source::{Given, Supply, TaskSource};
pub use watermark::WatermarkPolicy;
use worker::{StartError, WorkerPlan};

/// One slot: its name, which people see and sources are asked with, and how its workers are started.
#[derive(Debug, Clone)]
pub struct SlotSpec {
    /// The name, such as `cpu-0`.
    pub name: String,
    /// How its workers are started, and on which device.
    pub plan: WorkerPlan,
}

impl SlotSpec {
    /// `count` slots on one device, numbered from 0.
    #[must_use]
    pub fn several(plan: &WorkerPlan, count: usize) -> Vec<Self> {
        let name = |number| format!("{}-{number}", plan.device.kind());
        (0..count).map(|number| Self { name: name(number), plan: plan.clone() }).collect()
    }
}

/// What holds for all slots of a pool.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// How long a worker may take for what.
    pub deadlines: Deadlines,
    /// How much memory a worker may take.
    pub watermark: WatermarkPolicy,
}

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
    /// The first worker of a device is ready, confined like this.
    Ready(Device, Verdict),
    /// A further worker could not be had; the others go on.
    SlotLost(String),
    /// The slot of this name has a fresh worker, since the one before had had its day, for this reason.
    Recycled(String, String),
    /// The slot of this name keeps a worker that is over its mark, for this reason.
    Kept(String, String),
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
    Started(usize, Box<Device>, Verdict),
    Finished(Box<Finished>),
    Lost(usize, StartError),
    Recycled(String, String),
    Kept(String, String),
}

impl Message {
    /// The slot whose device it tells about.
    fn place(&self) -> Option<usize> {
        match self {
            Self::Started(place, ..) | Self::Lost(place, _) => Some(*place),
            Self::Finished(_) | Self::Recycled(..) | Self::Kept(..) => None,
        }
    }
}

/// Whether two slots are on one device.
fn beside(slots: &[SlotSpec], one: usize, other: usize) -> bool {
    let pair = slots.get(one).zip(slots.get(other));
    pair.is_some_and(|(one, other)| one.plan.device.gpu == other.plan.device.gpu)
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
    run_list(&SlotSpec::several(plan, slots), &Rules::default(), order, tasks, stop, tell)
}

/// Runs all tasks on the workers of `slots` and tells what happens. Returns when no worker is left running.
pub fn run_list(
    slots: &[SlotSpec],
    rules: &Rules,
    order: &Order,
    tasks: &[Task],
    stop: &Stop,
    tell: &mut dyn FnMut(News),
) -> Ended {
    let mut finished: usize = 0;
    let ended = run_from(slots, rules, &source::List::new(order, tasks), stop, &mut |news| {
        finished = finished.saturating_add(usize::from(matches!(news, News::Finished(_))));
        tell(news);
    });
    Ended { undone: tasks.len().saturating_sub(finished), ..ended }
}

/// Gives tasks of `source` to the workers of `slots` until it has no more, and tells what happens. Slots may be on
/// several devices; one device that does not work costs its own slots and no others. Returns when no worker is left
/// running; what is undone, the source knows.
pub fn run_from(
    slots: &[SlotSpec],
    rules: &Rules,
    source: &dyn TaskSource,
    stop: &Stop,
    tell: &mut dyn FnMut(News),
) -> Ended {
    let mut ended = Ended::default();
    thread::scope(|scope| {
        let (sender, messages) = mpsc::channel();
        let start = |place: usize, sender: &Sender<Message>, ended: &mut Ended| {
            let Some(spec) = slots.get(place) else { return };
            let (slot, sender) = (Slot { place, spec, rules, source, stop }, sender.clone());
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, move || slot.serve(&sender)) {
                ended.broken = Some(StartError::Prepare(error));
            }
        };
        let is_first = |place: &usize| !(0..*place).any(|earlier| beside(slots, earlier, *place));
        let (mut unproven, mut waiting): (Vec<usize>, Vec<usize>) = (0..slots.len()).partition(is_first);
        unproven.iter().for_each(|&place| start(place, &sender, &mut ended));
        // Given up once no slot waits any more: messages end when the last slot does.
        let mut sender = Some(sender).filter(|_| !waiting.is_empty());
        while let Ok(message) = messages.recv() {
            let proves = message.place().filter(|place| unproven.contains(place));
            unproven.retain(|&place| Some(place) != proves);
            let is_waiting = |place: &usize| proves.is_some_and(|proven| beside(slots, proven, *place));
            let (released, others) = waiting.into_iter().partition::<Vec<_>, _>(is_waiting);
            waiting = others;
            match message {
                Message::Started(_, device, verdict) => {
                    ended.worked = true;
                    let all = sender.as_ref();
                    all.iter().for_each(|all| released.iter().for_each(|&place| start(place, all, &mut ended)));
                    if proves.is_some() {
                        tell(News::Ready(*device, verdict));
                    }
                }
                Message::Finished(finished) => tell(News::Finished(finished)),
                Message::Recycled(slot, reason) => tell(News::Recycled(slot, reason)),
                Message::Kept(slot, reason) => tell(News::Kept(slot, reason)),
                Message::Lost(_, StartError::Interrupted) => {}
                Message::Lost(_, error) => {
                    if ended.worked {
                        tell(News::SlotLost(error.to_string()));
                    }
                    ended.broken = Some(error);
                }
            }
            sender = sender.filter(|_| !waiting.is_empty());
        }
    });
    ended
}
