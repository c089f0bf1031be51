//! One image for a worker's job, from encoded bytes to tensors in host memory.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use cudarc::driver::CudaContext;
use refmill::failure::{Failure, Stage};
use refmill::recipe::TensorSpec;

use super::derive::Tensors;
use super::lane::Lane;
use super::prepare::{Blocks, Pixels, Prepared, check_size, eligible, encoded};
use super::watch::Watch;
use crate::colour::{ColourStage, Unconverted};
use crate::gpu::Loaded;
use crate::gpu::error::GpuError;
use crate::gpu::micros;
use crate::gpu::pinned::Pinned;
use crate::pipeline::Run;
use crate::repair::Repaired;
use crate::tensors::{Derivation, Derived, Shape, Spares};

/// Tensors of one image.
const MOST_READ_BACK: usize = 1 << 30;

/// A lane for one image at a time.
#[derive(Debug)]
pub struct Single {
    lane: Lane,
    colour: Mutex<ColourStage>,
    readback: Pinned,
    blocks: Arc<Blocks>,
    watch: Arc<Watch>,
    loaded: Arc<Loaded>,
    context: Arc<CudaContext>,
}

/// Why the engines gave no tensors.
#[derive(Debug)]
pub enum Refused {
    /// The CPU can do it; why it has to.
    Cpu(String),
    /// The job is over its limits.
    Limits(Failure),
    /// The device failed.
    Device(GpuError),
}

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self::Cpu(reason)
    }
}

impl From<GpuError> for Refused {
    fn from(error: GpuError) -> Self {
        match error {
            GpuError::Nvjpeg { .. } => Self::Cpu(error.to_string()),
            _ => Self::Device(error),
        }
    }
}

impl Single {
    /// A lane of its own.
    pub fn new(context: &Arc<CudaContext>, loaded: &Arc<Loaded>) -> Result<Self, GpuError> {
        let watch = Arc::new(Watch::default());
        let lane = Lane::new(context, loaded, &watch)?;
        let readback = Pinned::from_device("pinned memory for tensors", MOST_READ_BACK);
        let (loaded, context) = (Arc::clone(loaded), Arc::clone(context));
        let blocks = Arc::new(Blocks::new(Arc::clone(&context), 1));
        Ok(Self { lane, colour: Mutex::new(ColourStage::new()), readback, blocks, watch, loaded, context })
    }

    /// The tensors of `repaired`, if it is one that the engines decode. They decode while the stream is still being
    /// proved; without the proof nothing of it counts.
    pub fn derive(
        &mut self,
        run: &mut Run<'_>,
        repaired: &Repaired<'_>,
        specs: &[TensorSpec],
        spares: &mut Spares,
    ) -> Result<(Shape, Derivation), Refused> {
        let engine = self.loaded.engine.as_ref().ok_or_else(|| "no JPEG engines".to_owned())?;
        let (stream, conversion) = eligible(engine, &self.colour, run, repaired)?;
        let (shape, pixels) = encoded(&stream, conversion, repaired.orientation);
        check_size(run.job, shape).map_err(Refused::Limits)?;
        let flight = match self.lane.submit(vec![Prepared::alone(shape, pixels)], specs) {
            Ok(flight) => flight,
            Err((error, _)) => return Err(error.into()),
        };
        let proved = stream.prove();
        let landed = self.lane.finish(flight)?.into_iter().next();
        proved.map_err(|refusal| refusal.to_string())?;
        run.stage(Stage::Decode, Ok(())).map_err(Refused::Limits)?;
        let started = Instant::now();
        let (_, tensors) = landed.ok_or(GpuError::Bounds { what: "tensors", need: 1, have: 0 })?;
        let tensors = self.read_back(&tensors, spares)?;
        Ok((shape, Derivation { tensors, uploads: 1, upload_micros: 0, derive_micros: micros(started) }))
    }

    /// Its counters.
    pub fn watch(&self) -> Arc<Watch> {
        Arc::clone(&self.watch)
    }

    /// The tensors of pixels that the CPU decoded: they go up as they are stored, and become sRGB there.
    pub fn derive_unconverted(
        &mut self,
        image: &Unconverted,
        background: [u8; 3],
        specs: &[TensorSpec],
        spares: &mut Spares,
    ) -> Result<Derivation, GpuError> {
        let started = Instant::now();
        let staged = self.blocks.stage(image, Some(background))?;
        let upload_micros = micros(started);
        let prepared = Prepared::alone(image.shape(), Pixels::Staged(staged));
        let flight = self.lane.submit(vec![prepared], specs).map_err(|(error, _)| error)?;
        let landed = self.lane.finish(flight)?.into_iter().next();
        let (_, tensors) = landed.ok_or(GpuError::Bounds { what: "tensors", need: 1, have: 0 })?;
        let tensors = self.read_back(&tensors, spares)?;
        let derive_micros = micros(started).saturating_sub(upload_micros);
        Ok(Derivation { tensors, uploads: 1, upload_micros, derive_micros })
    }

    /// Copies tensors to the host: all at once into pinned memory, then each into its own.
    fn read_back(&mut self, tensors: &Tensors, spares: &mut Spares) -> Result<Vec<Derived>, GpuError> {
        let failed = |error| GpuError::cuda("copying tensors to the host", error);
        let bytes = tensors.memory.num_bytes();
        self.readback.grow(&self.context, bytes)?;
        let stream = tensors.memory.stream();
        stream.memcpy_dtoh(&tensors.memory, self.readback.first(bytes)?).map_err(failed)?;
        let copied = stream.record_event(None).map_err(failed)?;
        self.watch.event_wait(&copied)?;
        let read_back = self.readback.first(bytes)?;
        let one = |placed: &super::Placed| {
            let need = placed.start.saturating_add(placed.bytes);
            let tensor = read_back.get(placed.start..need);
            let tensor = tensor.ok_or(GpuError::Bounds { what: "readback", need, have: read_back.len() })?;
            let mut bytes = spares.take(tensor.len());
            bytes.copy_from_slice(tensor);
            Ok(Derived { spec: placed.spec.clone(), plan: placed.plan, shape: placed.shape, bytes })
        };
        tensors.placed.iter().map(one).collect()
    }
}
