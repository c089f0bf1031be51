//! A recipe's tensors, derived from sRGB pixels. Arithmetic on memory alone: no file, no device, no metadata.
//!
//! Both devices do the same three steps and agree in every byte: resample the stored pixels in 8-bit fixed point
//! (once for each distinct size and filter), turn the small result upright, and look each code up in a table of
//! the 256 elements that it can become.

mod coefficients;
pub mod cpu;
pub mod safetensors_file;
mod spares;
mod table;
mod upright;
mod work;

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

use refmill::geometry::Plan;
use refmill::recipe::TensorSpec;

pub(crate) use coefficients::Axis;
pub(crate) use spares::Spares;
pub(crate) use table::Table;
pub(crate) use work::{Channels, Resampling, Shape, Target, Work};

/// One derived tensor's bytes, little endian, in the spec's layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Derived {
    /// What was asked; for [`refmill::recipe::ALPHA_MASK`], what stands for it.
    pub spec: TensorSpec,
    /// Where its pixels come from.
    pub plan: Plan,
    /// Its shape in the order of the layout.
    pub shape: [u32; 4],
    /// Its elements.
    pub bytes: Vec<u8>,
}

/// All tensors of one image, and what they cost.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Derivation {
    /// The tensors in the recipe's order, the alpha mask last.
    pub tensors: Vec<Derived>,
    /// Copies of pixels to a device: 0 on the CPU, 1 on a GPU, whatever the recipe asks for.
    pub uploads: u32,
    /// Time until the pixels were on the device, in microseconds.
    pub upload_micros: u64,
    /// Time from there to the finished tensors in host memory, in microseconds.
    pub derive_micros: u64,
}

/// Bytes of all tensors that `specs` make of an image of `shape`: what to check against a limit before deriving.
pub(crate) fn derived_bytes(shape: Shape, specs: &[TensorSpec]) -> u64 {
    Work::of(shape, specs).targets.iter().map(|target| target.bytes() as u64).sum()
}
