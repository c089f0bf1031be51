//! Planar YCbCr on the device, and the kernels of worker/kernels/ycc.cu that make R, G and B of it as libjpeg-turbo
//! does.

use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

use super::error::GpuError;
use super::upload::ALIGNMENT;
use crate::baseline::Sampling;

/// Built by worker/kernels/build_ptx.py.
const PTX: &str = include_str!("../../kernels/ycc.ptx");
/// Pixels a thread.
const RUN: u32 = 4;
const BLOCK: (u32, u32, u32) = (32, 8, 1);

/// Where the planes of one picture lie, in one piece of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// How chroma is sampled.
    pub sampling: Sampling,
    /// Bytes of a row of luma.
    pub luma_pitch: usize,
    /// Bytes of a row of chroma.
    pub chroma_pitch: usize,
    /// Bytes of all planes.
    pub bytes: usize,
}

impl Layout {
    /// Planes one after the other, rows and planes aligned.
    pub fn new(width: u32, height: u32, sampling: Sampling) -> Self {
        let pitch = |width: u32| (width as usize).next_multiple_of(ALIGNMENT);
        let (chroma_width, chroma_height) = sampling.chroma(width, height);
        let (luma_pitch, chroma_pitch) = (pitch(width), pitch(chroma_width));
        let chroma = if sampling == Sampling::Gray { 0 } else { 2 * chroma_pitch * chroma_height as usize };
        Self { width, height, sampling, luma_pitch, chroma_pitch, bytes: luma_pitch * height as usize + chroma }
    }

    /// Bytes of an aligned row of R, G, B.
    pub fn rgb_pitch(&self) -> usize {
        (self.width as usize * 3).next_multiple_of(ALIGNMENT)
    }
}

/// Planes in device memory that has room for them.
#[derive(Debug, Clone, Copy)]
pub struct Planes {
    start: CUdeviceptr,
    layout: Layout,
}

impl Planes {
    /// The planes of `layout` in the `have` bytes at `start`.
    ///
    /// # Errors
    /// [`GpuError::Bounds`] where they do not fit.
    pub fn new(start: CUdeviceptr, have: usize, layout: Layout) -> Result<Self, GpuError> {
        if layout.bytes > have {
            return Err(GpuError::Bounds { what: "planes", need: layout.bytes, have });
        }
        Ok(Self { start, layout })
    }

    /// How they lie.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where luma, Cb and Cr begin.
    pub fn addresses(&self) -> [CUdeviceptr; 3] {
        let Layout { luma_pitch, chroma_pitch, sampling, width, height, .. } = self.layout;
        let cb = self.start + luma_pitch as u64 * u64::from(height);
        let (_, rows) = sampling.chroma(width, height);
        [self.start, cb, cb + chroma_pitch as u64 * u64::from(rows)]
    }
}

/// The loaded kernels.
#[derive(Debug)]
pub struct Convert {
    gray: CudaFunction,
    full: CudaFunction,
    columns: CudaFunction,
    rows: CudaFunction,
    both: CudaFunction,
}

impl Convert {
    /// Lets the driver translate the PTX for its GPU.
    pub fn load(context: &Arc<CudaContext>) -> Result<Self, GpuError> {
        let failed = |error| GpuError::cuda("loading the YCbCr kernels", error);
        let module = context.load_module(Ptx::from_src(PTX)).map_err(failed)?;
        let function = |name: &str| module.load_function(name).map_err(failed);
        Ok(Self {
            gray: function("ycc_gray")?,
            full: function("ycc_full")?,
            columns: function("ycc_columns")?,
            rows: function("ycc_rows")?,
            both: function("ycc_both")?,
        })
    }

    /// Makes R, G and B of planes, in rows of [`Layout::rgb_pitch`] bytes from `target` on.
    ///
    /// # Safety
    /// The planes' memory and `have` bytes at `target` are alive until `stream` has done the work, and nothing else
    /// writes to the planes or uses the target meanwhile.
    pub unsafe fn run(
        &self,
        stream: &CudaStream,
        planes: &Planes,
        target: CUdeviceptr,
        have: usize,
    ) -> Result<(), GpuError> {
        let layout = planes.layout();
        let function = match layout.sampling {
            Sampling::Gray => &self.gray,
            Sampling::Full => &self.full,
            Sampling::Columns => &self.columns,
            Sampling::Rows => &self.rows,
            Sampling::Both => &self.both,
        };
        let (width, height) = (layout.width, layout.height);
        let need = layout.rgb_pitch() * height as usize;
        if need > have {
            return Err(GpuError::Bounds { what: "R, G, B", need, have });
        }
        let [luma, cb, cr] = planes.addresses();
        let (luma_pitch, chroma_pitch) = (layout.luma_pitch as u64, layout.chroma_pitch as u64);
        let pitch = layout.rgb_pitch() as u64;
        let (chroma_width, chroma_height) = layout.sampling.chroma(width, height);
        let mut launch = stream.launch_builder(function);
        launch.arg(&luma).arg(&luma_pitch).arg(&cb).arg(&cr).arg(&chroma_pitch);
        launch.arg(&chroma_width).arg(&chroma_height).arg(&target).arg(&pitch).arg(&width).arg(&height);
        let (x, y, _) = BLOCK;
        let grid_dim = (width.div_ceil(RUN * x), height.div_ceil(y), 1);
        // SAFETY: the arguments are those of `ycc_*` in order and type. Luma is read in words up to its aligned
        // pitch, chroma at clamped places, and rows of `pitch` bytes are written: `Planes` and the check above hold
        // that the memory has as many. Addresses are as aligned as the caller's memory, at least 256 bytes.
        unsafe { launch.launch(LaunchConfig { grid_dim, block_dim: BLOCK, shared_mem_bytes: 0 }) }
            .map_err(|error| GpuError::cuda("launching a YCbCr kernel", error))?;
        Ok(())
    }
}
