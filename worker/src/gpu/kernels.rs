//! The kernels of worker/kernels/derive.cu: loaded, their buffers checked, launched.

use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, CudaView, CudaViewMut, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use refmill::recipe::{Dtype, Layout};

use super::axes::Pass;
use super::error::GpuError;
use super::upload::PlacedAxis;
use crate::orientation::Orientation;
use crate::tensors::{Channels, Target};

/// Built by worker/kernels/build_ptx.py.
const PTX: &str = include_str!("../../kernels/derive.ptx");
/// A warp along the row, so that neighbouring threads touch neighbouring bytes.
const BLOCK: (u32, u32, u32) = (32, 8, 1);

/// The loaded kernels.
#[derive(Debug)]
pub(super) struct Kernels {
    vertical: CudaFunction,
    horizontal_1: CudaFunction,
    horizontal_3: CudaFunction,
    put_8: CudaFunction,
    put_16: CudaFunction,
    put_32: CudaFunction,
}

/// One tensor to be written.
#[derive(Debug)]
pub(super) struct Put<'a> {
    /// What it is.
    pub target: &'a Target,
    /// What makes the pixels upright.
    pub orientation: Orientation,
    /// Where its table begins in the tables' memory.
    pub table: usize,
    /// Where it begins in the tensors' memory.
    pub place: usize,
}

/// Pixels as stored, on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    /// The memory that they lie in.
    pub memory: &'a CudaSlice<u8>,
    /// Where they begin in it.
    pub start: usize,
    /// Bytes of a row.
    pub pitch: usize,
    /// Rows.
    pub rows: usize,
}

/// Weights of one axis, on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weights<'a> {
    /// The memory that they lie in.
    pub memory: &'a CudaSlice<u8>,
    /// Where in it.
    pub placed: &'a PlacedAxis,
}

/// Rows of bytes on the device.
struct Rows<'a> {
    bytes: CudaView<'a, u8>,
    pitch: usize,
}

impl Kernels {
    /// Lets the driver translate the PTX for its GPU.
    pub fn load(context: &Arc<CudaContext>) -> Result<Self, GpuError> {
        let failed = |error| GpuError::cuda("loading the kernels", error);
        let module: Arc<CudaModule> = context.load_module(Ptx::from_src(PTX)).map_err(failed)?;
        let function = |name: &str| module.load_function(name).map_err(failed);
        Ok(Self {
            vertical: function("vertical")?,
            horizontal_1: function("horizontal_1")?,
            horizontal_3: function("horizontal_3")?,
            put_8: function("put_8")?,
            put_16: function("put_16")?,
            put_32: function("put_32")?,
        })
    }

    /// The kernel that a test misuses.
    #[cfg(test)]
    pub fn put_8(&self) -> &CudaFunction {
        &self.put_8
    }

    /// Resamples `source` into `small`, through `tall` where both axes are resampled.
    pub fn resample(
        &self,
        stream: &CudaStream,
        source: Source<'_>,
        pass: &Pass,
        (vertical, horizontal): (Option<Weights<'_>>, Option<Weights<'_>>),
        (tall, small): (&mut CudaSlice<u8>, &mut CudaSlice<u8>),
    ) -> Result<(), GpuError> {
        let n = pass.channels.count();
        let (first, end) = pass.columns;
        let [_, height] = pass.size;
        let columns = (end.saturating_sub(first)) as usize * n;
        let rows = |row: usize, column: usize| {
            let start = source.start + row * source.pitch + column * n;
            let pixels_end = source.start + source.rows * source.pitch;
            let bytes = part(source.memory, start, pixels_end.saturating_sub(start), "source pixels")?;
            Ok(Rows { bytes, pitch: source.pitch })
        };
        match (vertical, horizontal) {
            (Some(vertical), Some(horizontal)) => {
                let target = part_mut(tall, 0, columns * height as usize, "intermediate pixels")?;
                self.vertical(stream, rows(0, first as usize)?, vertical, target)?;
                let rows =
                    Rows { bytes: part(tall, 0, columns * height as usize, "intermediate pixels")?, pitch: columns };
                self.horizontal(stream, rows, horizontal, (pass.channels, first, height), small)
            }
            (Some(vertical), None) => {
                let target = part_mut(small, 0, columns * height as usize, "resampled pixels")?;
                self.vertical(stream, rows(0, first as usize)?, vertical, target)
            }
            (None, Some(horizontal)) => {
                let rows = rows(pass.first_row as usize, 0)?;
                self.horizontal(stream, rows, horizontal, (pass.channels, 0, height), small)
            }
            (None, None) => Err(GpuError::Bounds { what: "a resampling of no axis", need: 1, have: 0 }),
        }
    }

    /// Resamples along y: as many bytes a row as fit `target`.
    fn vertical(
        &self,
        stream: &CudaStream,
        rows: Rows<'_>,
        on_device: Weights<'_>,
        mut target: CudaViewMut<'_, u8>,
    ) -> Result<(), GpuError> {
        let placed = on_device.placed;
        let height = placed.axis.bounds.len();
        let width = target.len().checked_div(height).unwrap_or(0);
        let (_, last) = placed.axis.reads();
        check("source rows", (last as usize).saturating_sub(1) * rows.pitch + width, rows.bytes.len())?;
        let (bounds, weights) = weights(on_device)?;
        let (width, height) = (word(width)?, word(height)?);
        let (pitch, window, precision) =
            (rows.pitch as u64, word(placed.axis.window)?, u32::from(placed.axis.precision));
        let mut launch = stream.launch_builder(&self.vertical);
        launch.arg(&rows.bytes).arg(&pitch).arg(&mut target).arg(&width).arg(&height);
        launch.arg(&bounds).arg(&weights).arg(&window).arg(&precision);
        // SAFETY: the arguments are those of `vertical` in order and type. It reads `width` bytes of the source rows
        // below `last`, and `height` bounds and rows of weights: checked above; it writes width * height bytes,
        // which is at most the target's length. Precision is 1 to 21 by Axis.
        unsafe { launch.launch(grid(width, height)) }.map_err(|error| GpuError::cuda("launching vertical", error))?;
        Ok(())
    }

    /// Resamples along x into the first bytes of `small`.
    fn horizontal(
        &self,
        stream: &CudaStream,
        rows: Rows<'_>,
        on_device: Weights<'_>,
        (channels, first, height): (Channels, u32, u32),
        small: &mut CudaSlice<u8>,
    ) -> Result<(), GpuError> {
        let placed = on_device.placed;
        let n = channels.count();
        let width = placed.axis.bounds.len();
        let (begin, end) = placed.axis.reads();
        check("columns before the source", first as usize, begin as usize)?;
        let row = (end - first) as usize * n;
        check("source columns", (height as usize).saturating_sub(1) * rows.pitch + row, rows.bytes.len())?;
        let mut target = part_mut(small, 0, width * height as usize * n, "resampled pixels")?;
        let (bounds, weights) = weights(on_device)?;
        let function = if channels == Channels::Rgb { &self.horizontal_3 } else { &self.horizontal_1 };
        let (pitch, width, window) = (rows.pitch as u64, word(width)?, word(placed.axis.window)?);
        let precision = u32::from(placed.axis.precision);
        let mut launch = stream.launch_builder(function);
        launch.arg(&rows.bytes).arg(&pitch).arg(&first).arg(&mut target).arg(&width).arg(&height);
        launch.arg(&bounds).arg(&weights).arg(&window).arg(&precision);
        // SAFETY: the arguments are those of `horizontal_*` in order and type. It reads columns `first..end` of
        // `height` rows and as many bounds and rows of weights as `width`, and writes width * height pixels of the
        // function's own channels: all checked above. Precision is 1 to 21 by Axis.
        unsafe { launch.launch(grid(width, height)) }.map_err(|error| GpuError::cuda("launching horizontal", error))?;
        Ok(())
    }

    /// Makes one tensor of the resampled pixels in `small`.
    pub fn put(
        &self,
        stream: &CudaStream,
        small: &CudaSlice<u8>,
        tables: &CudaSlice<u8>,
        tensors: &mut CudaSlice<u8>,
        put: &Put<'_>,
    ) -> Result<(), GpuError> {
        let Put { target, orientation, table, place } = *put;
        let (n, size) = (target.channels.count(), target.spec.dtype.bytes());
        let stored = part(small, 0, target.plan.area() * n, "resampled pixels")?;
        let table = part(tables, table, 256 * n * size, "normalisation table")?;
        let mut tensor = part_mut(tensors, place, target.bytes(), "tensor")?;
        let function = match target.spec.dtype {
            Dtype::U8 => &self.put_8,
            Dtype::F16 | Dtype::Bf16 => &self.put_16,
            Dtype::F32 => &self.put_32,
        };
        let turn = u32::from(orientation.swaps_axes())
            | u32::from(orientation.mirrors_x()) << 1
            | u32::from(orientation.mirrors_y()) << 2;
        let (channels, planar) = (word(n)?, u32::from(target.spec.layout == Layout::Nchw));
        let [width, height] = target.plan.size;
        let mut launch = stream.launch_builder(function);
        launch
            .arg(&stored)
            .arg(&turn)
            .arg(&channels)
            .arg(&planar)
            .arg(&table)
            .arg(&mut tensor)
            .arg(&width)
            .arg(&height);
        // SAFETY: the arguments are those of `put_*` in order and type. It reads width * height pixels and 256
        // elements a channel, and writes one element a pixel and channel, of the function's own size: the parts
        // above have these lengths. The element's alignment holds since parts begin at multiples of 256.
        unsafe { launch.launch(grid(width, height)) }.map_err(|error| GpuError::cuda("launching put", error))?;
        Ok(())
    }
}

/// The bounds and weights of an axis, of the lengths that the kernels read.
fn weights(on_device: Weights<'_>) -> Result<(CudaView<'_, u8>, CudaView<'_, u8>), GpuError> {
    let Weights { memory: input, placed } = on_device;
    let targets = placed.axis.bounds.len();
    let bounds = part(input, placed.bounds, targets * 8, "bounds")?;
    Ok((bounds, part(input, placed.weights, targets * placed.axis.window * 2, "weights")?))
}

fn part<'a>(
    buffer: &'a CudaSlice<u8>,
    start: usize,
    bytes: usize,
    what: &'static str,
) -> Result<CudaView<'a, u8>, GpuError> {
    let need = start.saturating_add(bytes);
    buffer.try_slice(start..need).ok_or(GpuError::Bounds { what, need, have: buffer.num_bytes() })
}

fn part_mut<'a>(
    buffer: &'a mut CudaSlice<u8>,
    start: usize,
    bytes: usize,
    what: &'static str,
) -> Result<CudaViewMut<'a, u8>, GpuError> {
    let (need, have) = (start.saturating_add(bytes), buffer.num_bytes());
    buffer.try_slice_mut(start..need).ok_or(GpuError::Bounds { what, need, have })
}

fn check(what: &'static str, need: usize, have: usize) -> Result<(), GpuError> {
    if need > have { Err(GpuError::Bounds { what, need, have }) } else { Ok(()) }
}

fn word(value: usize) -> Result<u32, GpuError> {
    u32::try_from(value).map_err(|_| GpuError::Bounds {
        what: "a kernel's count",
        need: value,
        have: u32::MAX as usize,
    })
}

/// Enough blocks for `width` x `height` threads. Heights are at most 8192, far below what a grid takes.
fn grid(width: u32, height: u32) -> LaunchConfig {
    let (x, y, _) = BLOCK;
    LaunchConfig { grid_dim: (width.div_ceil(x), height.div_ceil(y), 1), block_dim: BLOCK, shared_mem_bytes: 0 }
}
