//! Many images at once: threads of the host judge, prove and, where they must, decode; lanes of the GPU decode,
//! convert and derive. Encoded bytes are what crosses to the device, and the tensors stay there.
//!
//! The host waits for one event a batch and for nothing else; each queue is bounded, so that a slow side holds the
//! other back and memory does not grow.

mod derive;
mod lane;
mod prepare;
mod queue;
mod reserve;
mod single;
mod tables;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::CudaContext;
use refmill::job::Job;
use refmill::recipe::TensorSpec;
use refmill::report::{self, Report};

pub use derive::{Placed, Tensors};
pub(crate) use single::Refused;
pub(super) use single::Single;
pub use watch::{Counts, Watch};

use super::error::GpuError;
use super::{Gpu, Loaded};
use lane::{Flight, Lane};
use prepare::{Front, Own, Prepared, Way};
use queue::Queue;

/// Batches that a lane has on its way.
const DEPTH: usize = 2;

/// How the work is spread.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    /// Threads that prepare.
    pub hosts: usize,
    /// Lanes, a thread each.
    pub lanes: usize,
    /// Most images of a batch.
    pub batch: usize,
}

/// One image's end.
#[derive(Debug)]
pub struct Finished {
    /// Its place in the order in which images were given.
    pub index: usize,
    /// What was found and done.
    pub report: Report,
    /// Its tensors on the device; `None` where it was rejected.
    pub tensors: Option<Tensors>,
}

/// The lanes of one GPU and what they keep between images.
#[derive(Debug)]
pub struct Batches {
    lanes: Vec<Lane>,
    hosts: Vec<Own>,
    front: Front,
    job: Job,
    watch: Arc<Watch>,
    batch: usize,
}

impl Gpu {
    /// Lanes on this GPU, for images of which all is asked what `job` asks: its recipe, policy, colours and limits.
    ///
    /// # Errors
    /// [`GpuError::Cuda`].
    pub fn batches(&self, job: Job, spread: Spread) -> Result<Batches, GpuError> {
        Batches::new(&self.context, &self.loaded, job, spread)
    }
}

impl Batches {
    fn new(context: &Arc<CudaContext>, loaded: &Arc<Loaded>, job: Job, spread: Spread) -> Result<Self, GpuError> {
        let watch = Arc::new(Watch::default());
        let lanes = (0..spread.lanes.max(1)).map(|_| Lane::new(context, loaded, &watch));
        let lanes = lanes.collect::<Result<Vec<_>, _>>()?;
        let (hosts, batch) = (spread.hosts.max(1), spread.batch.max(1));
        let blocks = hosts + lanes.len() * DEPTH * batch;
        let front = Front::new(loaded.engine.clone(), Arc::clone(context), blocks);
        Ok(Self { lanes, hosts: (0..hosts).map(|_| Own::default()).collect(), front, job, watch, batch })
    }

    /// What was done and waited for so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.watch.counts()
    }

    /// Works through `inputs`; `done` gets each image when its tensors are finished, in no order, from any lane.
    ///
    /// # Errors
    /// The first [`GpuError::Cuda`]; images that were not finished then are not reported.
    pub fn run(
        &mut self,
        inputs: impl Iterator<Item = Arc<[u8]>> + Send,
        done: &(dyn Fn(Finished) + Sync),
    ) -> Result<(), GpuError> {
        let Self { lanes, hosts, front, job, batch, .. } = self;
        let (front, job, batch) = (&*front, &*job, *batch);
        let queue = Queue::new(2 * batch);
        let inputs = Mutex::new(inputs.enumerate());
        let next = || inputs.lock().unwrap_or_else(PoisonError::into_inner).next();
        let error = Mutex::new(None);
        std::thread::scope(|scope| {
            let preparing: Vec<_> = hosts
                .iter_mut()
                .map(|own| {
                    let queue = &queue;
                    scope.spawn(move || {
                        while let Some((index, input)) = next() {
                            match front.prepare(job, own, (index, input), Way::Engines { proved: true }) {
                                Ok(image) => {
                                    if !queue.push(image) {
                                        return;
                                    }
                                }
                                Err(report) => done(Finished { index, report: *report, tensors: None }),
                            }
                        }
                    })
                })
                .collect();
            for lane in lanes {
                let (queue, error) = (&queue, &error);
                scope.spawn(move || {
                    let mut crew = Crew { lane, front, job, own: Own::default(), done };
                    if let Err(met) = crew.work(queue, batch) {
                        error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(met);
                        queue.close();
                    }
                });
            }
            for thread in preparing {
                // A panic there is a fault of this program; the scope passes it on.
                thread.join().ok();
            }
            queue.close();
        });
        let met = error.lock().unwrap_or_else(PoisonError::into_inner).take();
        met.map_or(Ok(()), Err)
    }
}

impl Batches {
    /// One image, as soon as can be: the engines decode while the host still proves the stream, and the tensors
    /// count once it is proved.
    ///
    /// # Errors
    /// [`GpuError::Cuda`].
    pub fn one(&mut self, input: &Arc<[u8]>) -> Result<Finished, GpuError> {
        let Self { lanes, hosts, front, job, .. } = self;
        let none = || GpuError::Bounds { what: "lanes", need: 1, have: 0 };
        let (lane, own) = (lanes.first_mut().ok_or_else(none)?, hosts.first_mut().ok_or_else(none)?);
        let specs: Vec<TensorSpec> = job.recipe.iter().flat_map(|recipe| recipe.tensors.clone()).collect();
        let mut way = Way::Engines { proved: false };
        let mut reason;
        loop {
            let image = match front.prepare(job, own, (0, Arc::clone(input)), way) {
                Ok(image) => image,
                Err(report) => return Ok(Finished { index: 0, report: *report, tensors: None }),
            };
            let encoded = image.stream().is_some();
            let flight = match lane.submit(vec![image], &specs) {
                Ok(flight) => flight,
                Err((GpuError::Nvjpeg { what, status }, _)) if encoded => {
                    reason = GpuError::Nvjpeg { what, status }.to_string();
                    way = Way::Cpu(&reason);
                    continue;
                }
                Err((error, _)) => return Err(error),
            };
            let proved = match flight.stream() {
                Some(stream) => crate::baseline::Stream::read(stream).and_then(|stream| stream.prove()),
                None => Ok(()),
            };
            let mut landed = lane.finish(flight)?.into_iter().map(finished);
            match (proved, landed.next()) {
                (Ok(()), Some(finished)) => return Ok(finished),
                (Ok(()), None) => return Err(none()),
                (Err(refusal), _) => {
                    reason = refusal.to_string();
                    way = Way::Cpu(&reason);
                }
            }
        }
    }
}

/// A lane and what its thread needs.
struct Crew<'a> {
    lane: &'a mut Lane,
    front: &'a Front,
    job: &'a Job,
    own: Own,
    done: &'a (dyn Fn(Finished) + Sync),
}

impl Crew<'_> {
    /// Takes batches until the queue is closed and empty.
    fn work(&mut self, queue: &Queue<Prepared>, most: usize) -> Result<(), GpuError> {
        let mut flights: VecDeque<Flight> = VecDeque::new();
        loop {
            let images = queue.take(most, flights.is_empty());
            if images.is_empty() && flights.is_empty() {
                return Ok(());
            }
            if !images.is_empty() {
                flights.extend(self.submit(images)?);
            }
            if (flights.len() >= DEPTH || queue.is_empty())
                && let Some(oldest) = flights.pop_front()
            {
                self.land(oldest)?;
            }
        }
    }

    /// Puts images on the way. Where the engines refuse one, each goes alone, and that one to the CPU.
    fn submit(&mut self, images: Vec<Prepared>) -> Result<Vec<Flight>, GpuError> {
        let specs: Vec<TensorSpec> = self.job.recipe.iter().flat_map(|recipe| recipe.tensors.clone()).collect();
        let (error, images) = match self.lane.submit(images, &specs) {
            Ok(flight) => return Ok(vec![flight]),
            Err(refused) => refused,
        };
        if error.is_sticky() {
            return Err(error);
        }
        let alone = images.len() == 1;
        let mut flights = Vec::new();
        for image in images {
            match (alone, &error) {
                (false, _) => flights.extend(self.submit(vec![image])?),
                (true, GpuError::Nvjpeg { .. }) if image.stream().is_some() => {
                    let reason = error.to_string();
                    match self.front.prepare(self.job, &mut self.own, (image.index, image.input), Way::Cpu(&reason)) {
                        Ok(again) => flights.extend(self.submit(vec![again])?),
                        Err(report) => (self.done)(Finished { index: image.index, report: *report, tensors: None }),
                    }
                }
                (true, _) => {
                    let report = prepare::failed(image.report, &error);
                    (self.done)(Finished { index: image.index, report, tensors: None });
                }
            }
        }
        Ok(flights)
    }

    fn land(&mut self, flight: Flight) -> Result<(), GpuError> {
        self.lane.finish(flight)?.into_iter().map(finished).for_each(self.done);
        Ok(())
    }
}

fn finished((image, tensors): (Prepared, Tensors)) -> Finished {
    let mut report = image.report;
    report.uploads = 1;
    report.tensors = tensors.placed.iter().map(about).collect();
    report.conclude();
    Finished { index: image.index, report, tensors: Some(tensors) }
}

fn about(placed: &Placed) -> report::Tensor {
    report::Tensor {
        name: placed.spec.name.clone(),
        shape: placed.shape,
        layout: placed.spec.layout,
        dtype: placed.spec.dtype,
        plan: placed.plan,
    }
}
