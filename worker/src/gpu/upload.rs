//! Staging: one image's pixels, alpha, weights and tables, one after the other in one pinned buffer, so that one
//! copy brings all of it to the device.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use super::axes::Pass;
use super::error::GpuError;
use super::slot::Slot;
use crate::orientation::Orientation;
use crate::srgb::SrgbImage;
use crate::tensors::{Axis, Channels, Table, Work};

/// Where parts of a buffer begin, in bytes: wide enough for any element and for whole memory transactions.
pub(super) const ALIGNMENT: usize = 256;

/// An axis on the device.
#[derive(Debug, Clone)]
pub(super) struct PlacedAxis {
    /// The weights, for their counts.
    pub axis: Arc<Axis>,
    /// Where its bounds begin.
    pub bounds: usize,
    /// Where its weights begin.
    pub weights: usize,
}

/// A resampling whose pixels and weights are on the device.
#[derive(Debug, Clone)]
pub(super) struct PlacedPass {
    /// What to do.
    pub pass: Pass,
    /// Where the pixels begin.
    pub pixels: usize,
    /// Bytes of a stored row.
    pub pitch: usize,
    /// Stored rows.
    pub rows: usize,
    /// The y axis.
    pub vertical: Option<PlacedAxis>,
    /// The x axis.
    pub horizontal: Option<PlacedAxis>,
}

/// One image in a slot's pinned memory.
#[derive(Debug)]
pub(super) struct Staged {
    /// The resamplings.
    pub passes: Vec<PlacedPass>,
    /// Where each target's table begins.
    pub tables: Vec<usize>,
    /// What makes the pixels upright.
    pub orientation: Orientation,
    bytes: usize,
}

impl Staged {
    /// Writes everything into the slot's pinned memory, once and in order.
    pub fn write(
        slot: &mut Slot,
        context: &Arc<CudaContext>,
        copy: &Arc<CudaStream>,
        image: &SrgbImage,
        passes: &[Pass],
        work: &Work,
    ) -> Result<Self, GpuError> {
        let alpha = image.alpha().filter(|_| passes.iter().any(|pass| pass.channels == Channels::Alpha));
        let alpha = alpha.unwrap_or_default();
        let (starts, pixels_end) = spread([image.rgb().len(), alpha.len()])?;
        let mut extra = Extra { bytes: Vec::new(), start: pixels_end };
        let passes = passes.iter().map(|pass| extra.pass(pass, image, &starts)).collect();
        let tables = work.targets.iter().map(|target| {
            let table = Table::new(target.spec.normalise, target.spec.dtype);
            extra.place(|bytes| table.append(target.channels.count(), bytes))
        });
        let tables = tables.collect();
        let bytes = pixels_end.saturating_add(extra.bytes.len());
        let room = slot.stage(context, copy, bytes)?;
        for (start, part) in starts.into_iter().chain([pixels_end]).zip([image.rgb(), alpha, &extra.bytes]) {
            let end = start.saturating_add(part.len());
            let have = room.len();
            let place = room.get_mut(start..end).ok_or(GpuError::Bounds { what: "staging", need: end, have })?;
            place.copy_from_slice(part);
        }
        Ok(Self { passes, tables, orientation: image.orientation(), bytes })
    }

    /// Starts the copy to the device and returns how many copies of pixels that took.
    pub fn upload(&self, slot: &mut Slot, copy: &Arc<CudaStream>) -> Result<u32, GpuError> {
        let mut uploads = 0;
        slot.copy_up(copy, self.bytes)?;
        uploads += 1;
        Ok(uploads)
    }

    /// Bytes of the largest intermediate and of the largest resampled picture.
    pub fn needs(&self) -> (usize, usize) {
        let needs = self.passes.iter().map(|placed| placed.pass.needs());
        needs.fold((0, 0), |(tall, small), (more_tall, more_small)| (tall.max(more_tall), small.max(more_small)))
    }
}

/// What goes up behind the pixels.
struct Extra {
    bytes: Vec<u8>,
    start: usize,
}

impl Extra {
    fn pass(&mut self, pass: &Pass, image: &SrgbImage, starts: &[usize]) -> PlacedPass {
        let which = usize::from(pass.channels == Channels::Alpha);
        PlacedPass {
            pass: pass.clone(),
            pixels: starts.get(which).copied().unwrap_or(0),
            pitch: image.width() as usize * pass.channels.count(),
            rows: image.height() as usize,
            vertical: pass.vertical.as_ref().map(|axis| self.axis(axis)),
            horizontal: pass.horizontal.as_ref().map(|axis| self.axis(axis)),
        }
    }

    fn axis(&mut self, axis: &Arc<Axis>) -> PlacedAxis {
        let bounds = self.place(|bytes| {
            bytes.extend(axis.bounds.iter().flatten().flat_map(|bound| bound.to_le_bytes()));
        });
        let weights = self.place(|bytes| bytes.extend(axis.weights.iter().flat_map(|weight| weight.to_le_bytes())));
        PlacedAxis { axis: Arc::clone(axis), bounds, weights }
    }

    /// Lets `append` add bytes at the next aligned place, and returns the place.
    fn place(&mut self, append: impl FnOnce(&mut Vec<u8>)) -> usize {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        let place = self.start + self.bytes.len();
        append(&mut self.bytes);
        place
    }
}

/// Where parts of these sizes begin, one after the other and aligned, and where they end, aligned as well.
pub(super) fn spread(sizes: impl IntoIterator<Item = usize>) -> Result<(Vec<usize>, usize), GpuError> {
    let mut end: usize = 0;
    let mut starts = Vec::new();
    for size in sizes {
        starts.push(end);
        let next = end.checked_add(size).and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
        end = next.ok_or(GpuError::TooLarge { what: "memory for one image", bytes: u64::MAX, limit: u64::MAX })?;
    }
    Ok((starts, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin_aligned() {
        assert_eq!(spread([1, 256, 257, 0]), Ok((vec![0, 256, 512, 1024], 1024)));
    }

    #[test]
    fn parts_that_no_memory_holds_are_too_large() {
        assert!(matches!(spread([usize::MAX, 1]), Err(GpuError::TooLarge { .. })));
    }
}
