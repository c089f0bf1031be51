//! What the kernels read beside pixels, kept on the device: weights of the sizes that were met last, elements of each
//! normalisation, tables of each profile. Pictures of one size and profile bring nothing but themselves.
//!
//! All of it belongs to one stream: memory is filled, read and freed in its order.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use refmill::recipe::{Dtype, Normalise};

use super::reserve::Measured;
use crate::gpu::error::GpuError;
use crate::gpu::upload::{ALIGNMENT, PlacedAxis};
use crate::tensors::{Axis, Channels, Table, Target};

/// Most bytes of each kind that are kept; what was used longest ago goes first. Grids of CMYK profiles and weights of
/// long sides are the large ones.
const KEPT_BYTES: usize = 64 << 20;
/// Most of each kind, so that looking one up stays short.
const KEPT: usize = 256;

/// An axis in memory of its own.
#[derive(Debug)]
pub struct AxisOnDevice {
    /// The memory.
    pub memory: CudaSlice<u8>,
    /// Where its parts lie.
    pub placed: PlacedAxis,
}

type Elements = (Normalise, Dtype, Channels);

/// The tables of one lane.
#[derive(Debug)]
pub struct Tables {
    stream: Arc<CudaStream>,
    axes: Kept<Arc<Axis>, AxisOnDevice>,
    elements: Kept<Elements, CudaSlice<u8>>,
    profiles: Kept<Arc<[u8]>, CudaSlice<u8>>,
}

impl Tables {
    /// None yet.
    pub fn new(stream: Arc<CudaStream>) -> Self {
        Self { stream, axes: Kept::default(), elements: Kept::default(), profiles: Kept::default() }
    }

    /// The weights of an axis.
    pub fn axis(&mut self, axis: &Arc<Axis>) -> Result<Arc<AxisOnDevice>, GpuError> {
        let stream = &self.stream;
        self.axes.get(
            |kept| Arc::ptr_eq(kept, axis),
            || {
                let mut bytes: Vec<u8> = axis.bounds.iter().flatten().flat_map(|bound| bound.to_le_bytes()).collect();
                bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
                let weights = bytes.len();
                bytes.extend(axis.weights.iter().flat_map(|weight| weight.to_le_bytes()));
                let placed = PlacedAxis { axis: Arc::clone(axis), bounds: 0, weights };
                Ok((Arc::clone(axis), AxisOnDevice { memory: upload(stream, &bytes)?, placed }))
            },
        )
    }

    /// The elements that codes become in `target`.
    pub fn elements(&mut self, target: &Target) -> Result<Arc<CudaSlice<u8>>, GpuError> {
        let (normalise, dtype, channels) = (target.spec.normalise, target.spec.dtype, target.channels);
        let stream = &self.stream;
        self.elements.get(
            |kept| *kept == (normalise, dtype, channels),
            || {
                let mut bytes = Vec::new();
                Table::new(normalise, dtype).append(channels.count(), &mut bytes);
                Ok(((normalise, dtype, channels), upload(stream, &bytes)?))
            },
        )
    }

    /// A profile's tables.
    pub fn profile(&mut self, tables: &Arc<[u8]>) -> Result<Arc<CudaSlice<u8>>, GpuError> {
        let stream = &self.stream;
        self.profiles.get(|kept| Arc::ptr_eq(kept, tables), || Ok((Arc::clone(tables), upload(stream, tables)?)))
    }
}

impl Measured for AxisOnDevice {
    fn bytes(&self) -> usize {
        self.memory.num_bytes()
    }
}

/// Things on the device under their keys, the newest last.
#[derive(Debug)]
struct Kept<K, V> {
    entries: Vec<(K, Arc<V>)>,
    bytes: usize,
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new(), bytes: 0 }
    }
}

impl<K, V: Measured> Kept<K, V> {
    /// What is kept under a key, or what `make` makes. What it displaces is freed when its last user is done with it.
    fn get(
        &mut self,
        is_key: impl Fn(&K) -> bool,
        make: impl FnOnce() -> Result<(K, V), GpuError>,
    ) -> Result<Arc<V>, GpuError> {
        let entry = match self.entries.iter().position(|(key, _)| is_key(key)) {
            Some(at) => self.entries.remove(at),
            None => {
                let (key, value) = make()?;
                self.bytes = self.bytes.saturating_add(value.bytes());
                (key, Arc::new(value))
            }
        };
        let value = Arc::clone(&entry.1);
        self.entries.push(entry);
        while self.entries.len() > 1 && (self.bytes > KEPT_BYTES || self.entries.len() > KEPT) {
            let (_, oldest) = self.entries.remove(0);
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
        }
        Ok(value)
    }
}

/// Copies from pageable memory: the driver stages it, and the call returns when the bytes were read.
fn upload(stream: &Arc<CudaStream>, bytes: &[u8]) -> Result<CudaSlice<u8>, GpuError> {
    stream.clone_htod(bytes).map_err(|error| GpuError::cuda("copying tables to the device", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(kept: &mut Kept<usize, usize>, key: usize, bytes: usize) -> Arc<usize> {
        kept.get(|kept| *kept == key, || Ok((key, bytes))).unwrap()
    }

    #[test]
    fn table_used_last_is_kept_and_the_oldest_goes() {
        let mut kept = Kept::default();
        let first = get(&mut kept, 0, 1);
        (1..KEPT).for_each(|key| drop(get(&mut kept, key, 1)));
        assert!(Arc::ptr_eq(&first, &get(&mut kept, 0, 1)));
        drop(get(&mut kept, KEPT, 1));
        assert!(Arc::ptr_eq(&first, &get(&mut kept, 0, 1)));
        assert_eq!((kept.entries.len(), kept.bytes), (KEPT, KEPT));
        assert!(kept.entries.iter().all(|(key, _)| *key != 1));
    }

    #[test]
    fn tables_are_bounded_by_their_bytes() {
        let mut kept = Kept::default();
        (0..100).for_each(|key| drop(get(&mut kept, key, KEPT_BYTES / 5)));
        assert_eq!((kept.entries.len(), kept.bytes), (5, KEPT_BYTES / 5 * 5));
        // One that is larger than all may be is kept while it is the newest.
        drop(get(&mut kept, 100, KEPT_BYTES + 1));
        assert_eq!((kept.entries.len(), kept.bytes), (1, KEPT_BYTES + 1));
        drop(get(&mut kept, 101, 7));
        assert_eq!((kept.entries.len(), kept.bytes), (1, 7));
    }
}
