//! sRGB pixels on the device to tensors that stay there, on one stream.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use refmill::geometry::Plan;
use refmill::recipe::TensorSpec;

use super::lane::unset;
use super::tables::{AxisOnDevice, Tables};
use crate::gpu::axes::Axes;
use crate::gpu::error::GpuError;
use crate::gpu::kernels::{Put, Source, Weights};
use crate::gpu::upload::{self, ALIGNMENT};
use crate::gpu::{Loaded, allocate, grow};
use crate::tensors::{Channels, Shape, Target, Work};

/// One tensor on the device.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// What was asked.
    pub spec: TensorSpec,
    /// Where its pixels come from.
    pub plan: Plan,
    /// Its shape in the order of the layout.
    pub shape: [u32; 4],
    /// Where it begins in the tensors' memory.
    pub start: usize,
    /// Its length.
    pub bytes: usize,
}

/// All tensors of one image, on the device. They are finished when they are handed out.
#[derive(Debug)]
pub struct Tensors {
    /// The memory that they lie in; each begins at a multiple of 256 bytes.
    pub memory: CudaSlice<u8>,
    /// The tensors, in the recipe's order, the alpha mask last.
    pub placed: Vec<Placed>,
}

impl Tensors {
    /// The tensors' bytes, one after the other in the recipe's order, copied to the host.
    ///
    /// # Errors
    /// [`GpuError::Cuda`].
    pub fn to_host(&self) -> Result<Vec<Vec<u8>>, GpuError> {
        let failed = |error| GpuError::cuda("copying tensors to the host", error);
        let stream = self.memory.stream();
        let copy = |placed: &Placed| {
            let (end, have) = (placed.start.saturating_add(placed.bytes), self.memory.num_bytes());
            let tensor = self.memory.try_slice(placed.start..end);
            let tensor = tensor.ok_or(GpuError::Bounds { what: "tensors", need: end, have })?;
            stream.clone_dtoh(&tensor).map_err(failed)
        };
        let copies = self.placed.iter().map(copy).collect::<Result<Vec<_>, _>>()?;
        stream.synchronize().map_err(failed)?;
        Ok(copies)
    }
}

/// Tables and scratch memory of one stream.
#[derive(Debug)]
pub struct Derive {
    tables: Tables,
    axes: Axes,
    tall: CudaSlice<u8>,
    small: CudaSlice<u8>,
    loaded: Arc<Loaded>,
    stream: Arc<CudaStream>,
}

impl Derive {
    /// For work on `stream`.
    pub fn new(stream: &Arc<CudaStream>, loaded: &Arc<Loaded>) -> Result<Self, GpuError> {
        let buffer = || allocate(stream, 1, "device memory");
        let (tall, small, tables) = (buffer()?, buffer()?, Tables::new(Arc::clone(stream)));
        let (loaded, stream) = (Arc::clone(loaded), Arc::clone(stream));
        Ok(Self { tables, axes: Axes::default(), tall, small, loaded, stream })
    }

    /// A profile's tables on the device.
    pub fn profile(&mut self, tables: &Arc<[u8]>) -> Result<Arc<CudaSlice<u8>>, GpuError> {
        self.tables.profile(tables)
    }

    /// Launches all kernels of one image: rows of `pitch` bytes in `memory`, alpha behind them where there is any.
    pub fn run(
        &mut self,
        memory: &CudaSlice<u8>,
        pitch: usize,
        shape: Shape,
        work: &Work,
    ) -> Result<Tensors, GpuError> {
        let (places, total) = upload::spread(work.targets.iter().map(Target::bytes))?;
        let mut tensors = unset(&self.stream, total.max(1), "device memory for tensors")?;
        let rows = shape.height as usize;
        for (index, pass) in self.axes.passes(work).iter().enumerate() {
            let (start, pitch) = match pass.channels {
                Channels::Rgb => (0, pitch),
                Channels::Alpha => ((pitch * rows).next_multiple_of(ALIGNMENT), shape.width as usize),
            };
            let vertical = pass.vertical.as_ref().map(|axis| self.tables.axis(axis)).transpose()?;
            let horizontal = pass.horizontal.as_ref().map(|axis| self.tables.axis(axis)).transpose()?;
            let (tall, small) = pass.needs();
            grow(&mut self.tall, &self.stream, tall, "device memory for one pass")?;
            grow(&mut self.small, &self.stream, small, "device memory for resampled pixels")?;
            let source = Source { memory, start, pitch, rows };
            let axes = (vertical.as_deref().map(weights), horizontal.as_deref().map(weights));
            let scratch = (&mut self.tall, &mut self.small);
            self.loaded.kernels.resample(&self.stream, source, pass, axes, scratch)?;
            let made = work.targets.iter().zip(&places).filter(|(target, _)| target.resampling == index);
            for (target, &place) in made {
                let table = self.tables.elements(target)?;
                let put = Put { target, orientation: shape.orientation, table: 0, place };
                self.loaded.kernels.put(&self.stream, &self.small, &table, &mut tensors, &put)?;
            }
        }
        let placed = work.targets.iter().zip(places).map(|(target, start)| Placed {
            spec: target.spec.clone(),
            plan: target.plan,
            shape: target.shape(),
            start,
            bytes: target.bytes(),
        });
        Ok(Tensors { memory: tensors, placed: placed.collect() })
    }
}

fn weights(axis: &AxisOnDevice) -> Weights<'_> {
    Weights { memory: &axis.memory, placed: &axis.placed }
}
