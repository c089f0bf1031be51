//! What the kernels read beside pixels, kept on the device: weights of the sizes that were met last, elements of each
//! normalisation, tables of each profile. Pictures of one size and profile bring nothing but themselves.
//!
//! All of it belongs to one stream: memory is filled, read and freed in its order.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use refmill::recipe::{Dtype, Normalise};

use crate::gpu::error::GpuError;
use crate::gpu::upload::{ALIGNMENT, PlacedAxis};
use crate::tensors::{Axis, Channels, Table, Target};

/// Most of each kind that are kept; what was used longest ago goes first.
const KEPT: usize = 64;

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
    axes: Vec<(Arc<Axis>, Arc<AxisOnDevice>)>,
    elements: Vec<(Elements, Arc<CudaSlice<u8>>)>,
    profiles: Vec<Profile>,
}

impl Tables {
    /// None yet.
    pub fn new(stream: Arc<CudaStream>) -> Self {
        Self { stream, axes: Vec::new(), elements: Vec::new(), profiles: Vec::new() }
    }

    /// The weights of an axis.
    pub fn axis(&mut self, axis: &Arc<Axis>) -> Result<Arc<AxisOnDevice>, GpuError> {
        let stream = &self.stream;
        keep(
            &mut self.axes,
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
        keep(
            &mut self.elements,
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
        keep(&mut self.profiles, |kept| Arc::ptr_eq(kept, tables), || Ok((Arc::clone(tables), upload(stream, tables)?)))
    }
}

/// A profile's tables, on the host and on the device.
type Profile = (Arc<[u8]>, Arc<CudaSlice<u8>>);

/// What is kept under a key, or what `make` makes; the newest last.
fn keep<K, V>(
    kept: &mut Vec<(K, Arc<V>)>,
    is_key: impl Fn(&K) -> bool,
    make: impl FnOnce() -> Result<(K, V), GpuError>,
) -> Result<Arc<V>, GpuError> {
    let entry = match kept.iter().position(|(key, _)| is_key(key)) {
        Some(at) => kept.remove(at),
        None => make().map(|(key, value)| (key, Arc::new(value)))?,
    };
    let value = Arc::clone(&entry.1);
    kept.push(entry);
    if kept.len() > KEPT {
        kept.remove(0);
    }
    Ok(value)
}

/// Copies from pageable memory: the driver stages it, and the call returns when the bytes were read.
fn upload(stream: &Arc<CudaStream>, bytes: &[u8]) -> Result<CudaSlice<u8>, GpuError> {
    stream.clone_htod(bytes).map_err(|error| GpuError::cuda("copying tables to the device", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_used_last_is_kept_and_the_oldest_goes() {
        let mut kept = Vec::new();
        let mut get = |key: usize| keep(&mut kept, |kept| *kept == key, || Ok((key, key))).unwrap();
        let first = get(0);
        (1..KEPT).for_each(|key| drop(get(key)));
        assert!(Arc::ptr_eq(&first, &get(0)));
        drop(get(KEPT));
        assert!(Arc::ptr_eq(&first, &get(0)));
        assert_eq!(kept.len(), KEPT);
        assert!(kept.iter().all(|(key, _)| *key != 1));
    }
}
