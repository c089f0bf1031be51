//! Device memory of a lane that goes from batch to batch. The driver's pool alone grows with ever new sizes: what stays
//! (weights, tables) comes to lie between what comes and goes, and the largest image finds no room again.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};

use super::lane::unset;
use crate::gpu::error::GpuError;

/// Most buffers kept; the smallest go first.
const KEPT: usize = 24;

/// Buffers at rest, which nothing on any stream reads or writes.
#[derive(Debug)]
pub struct Reserve<T = CudaSlice<u8>> {
    kept: Vec<T>,
}

/// Something with a length in bytes.
pub trait Measured {
    /// The length.
    fn bytes(&self) -> usize;
}

impl Measured for CudaSlice<u8> {
    fn bytes(&self) -> usize {
        self.num_bytes()
    }
}

impl<T> Default for Reserve<T> {
    fn default() -> Self {
        Self { kept: Vec::new() }
    }
}

impl<T: Measured> Reserve<T> {
    /// The smallest kept buffer of at least `bytes`, or what `make` makes of a size that is rounded up.
    fn take_or<E>(&mut self, bytes: usize, make: impl FnOnce(usize) -> Result<T, E>) -> Result<T, E> {
        let fitting = self.kept.iter().enumerate().filter(|(_, buffer)| buffer.bytes() >= bytes);
        match fitting.min_by_key(|(_, buffer)| buffer.bytes()).map(|(at, _)| at) {
            Some(at) => Ok(self.kept.swap_remove(at)),
            None => {
                // A larger one takes the place of the largest that was too small.
                let small = self.kept.iter().enumerate().max_by_key(|(_, buffer)| buffer.bytes()).map(|(at, _)| at);
                small.into_iter().for_each(|at| drop(self.kept.swap_remove(at)));
                make(rounded(bytes))
            }
        }
    }

    /// Takes buffers back, of which all work is done.
    pub fn give(&mut self, buffers: impl IntoIterator<Item = T>) {
        self.kept.extend(buffers);
        if self.kept.len() > KEPT {
            self.kept.sort_by_key(|buffer| std::cmp::Reverse(buffer.bytes()));
            self.kept.truncate(KEPT);
        }
    }
}

impl Reserve {
    /// Memory of at least `bytes`, whose every byte that is read later is written first.
    pub fn take(
        &mut self,
        stream: &Arc<CudaStream>,
        bytes: usize,
        what: &'static str,
    ) -> Result<CudaSlice<u8>, GpuError> {
        self.take_or(bytes, |bytes| unset(stream, bytes, what))
    }
}

/// Up to the next eighth of a power of two, and to whole 256 bytes.
fn rounded(bytes: usize) -> usize {
    let step = (bytes.next_power_of_two() / 16).max(256);
    bytes.max(1).next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensors::samples::Noise;

    impl Measured for usize {
        fn bytes(&self) -> usize {
            *self
        }
    }

    #[test]
    fn sizes_are_rounded_up_by_an_eighth_at_most() {
        assert_eq!([rounded(0), rounded(1), rounded(5000), rounded(1 << 20)], [256, 256, 5120, 1 << 20]);
        assert!((1..5000).map(|n| n * 997).all(|n| rounded(n) >= n && rounded(n) <= n + n / 8 + 256));
    }

    #[test]
    fn largest_size_first_means_that_nothing_else_is_made() {
        let (mut reserve, mut made, mut numbers) = (Reserve::default(), 0, Noise(5));
        for round in 0..10_000 {
            let bytes = if round == 0 { 150_000_000 } else { numbers.below(150_000_000) as usize };
            let buffer = reserve.take_or(bytes, |bytes| {
                made += 1;
                Ok::<usize, ()>(bytes)
            });
            reserve.give(buffer);
        }
        assert_eq!(made, 1);
    }

    #[test]
    fn growing_sizes_keep_one_buffer() {
        let mut reserve = Reserve::default();
        for bytes in (1..400).map(|n| n * 1_000_000) {
            let buffer = reserve.take_or(bytes, Ok::<usize, ()>);
            reserve.give(buffer);
            assert_eq!(reserve.kept.len(), 1);
        }
    }
}
