//! Resampling weights kept between images: pictures from one camera have one size, and the sines of a large axis
//! take longer than its resampling.

use std::sync::Arc;

use refmill::recipe::Filter;

use crate::tensors::{Axis, Channels, Resampling, Work};

/// Most axes kept; the one that was used longest ago goes first.
const KEPT: usize = 32;

/// What decides an axis: filter, source pixels, bits of the stretch's start and length, target pixels.
type Key = (Filter, u32, u64, u64, u32);

/// One resampling as the kernels do it.
#[derive(Debug, Clone)]
pub(super) struct Pass {
    /// Which pixels.
    pub channels: Channels,
    /// Weights of the stored y axis, which is resampled first; `None` where it is only cut out.
    pub vertical: Option<Arc<Axis>>,
    /// Weights of the stored x axis.
    pub horizontal: Option<Arc<Axis>>,
    /// Source columns that are needed, as a half-open range.
    pub columns: (u32, u32),
    /// First source row that is needed where `vertical` is `None`.
    pub first_row: u32,
    /// Width and height of the result, in stored axes.
    pub size: [u32; 2],
}

impl Pass {
    /// Bytes of the intermediate and of the resampled picture.
    pub fn needs(&self) -> (usize, usize) {
        let (first, end) = self.columns;
        let [width, height] = self.size;
        let bytes = |width: u32| width as usize * height as usize * self.channels.count();
        (bytes(end.saturating_sub(first)), bytes(width))
    }
}

/// The axes of the last images.
#[derive(Debug, Default)]
pub(super) struct Axes {
    kept: Vec<(Key, Arc<Axis>)>,
}

impl Axes {
    /// What the kernels have to do for each resampling of `work`.
    pub fn passes(&mut self, work: &Work) -> Vec<Pass> {
        work.resamplings.iter().map(|resampling| self.pass(resampling)).collect()
    }

    /// As fast_image_resize decides: rows first, an exact axis not at all. Where both are exact, rows are copied.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an exact start is a whole pixel")]
    fn pass(&mut self, resampling: &Resampling) -> Pass {
        let (x, y) = (resampling.x, resampling.y);
        let horizontal = (!x.is_exact()).then(|| self.axis(resampling, true));
        let vertical = match (y.is_exact(), x.is_exact()) {
            (false, _) => Some(self.axis(resampling, false)),
            (true, true) => Some(Arc::new(Axis::copy(y.start as u32, y.target))),
            (true, false) => None,
        };
        let columns = match &horizontal {
            Some(axis) => axis.reads(),
            None => (x.start as u32, (x.start as u32).saturating_add(x.target)),
        };
        let first_row = y.start as u32;
        Pass { channels: resampling.channels, vertical, horizontal, columns, first_row, size: [x.target, y.target] }
    }

    fn axis(&mut self, resampling: &Resampling, along_x: bool) -> Arc<Axis> {
        let stretch = if along_x { resampling.x } else { resampling.y };
        let (start, length) = (stretch.start, stretch.length);
        let key = (resampling.filter, stretch.pixels, start.to_bits(), length.to_bits(), stretch.target);
        let known = self.kept.iter().position(|(kept, _)| *kept == key);
        let entry = match known {
            Some(at) => self.kept.remove(at),
            None => {
                let made = Axis::new(resampling.filter, stretch.pixels, (start, length), stretch.target);
                (key, Arc::new(made))
            }
        };
        let axis = Arc::clone(&entry.1);
        self.kept.push(entry);
        if self.kept.len() > KEPT {
            self.kept.remove(0);
        }
        axis
    }
}

#[cfg(test)]
mod tests {
    use refmill::recipe::Size;

    use super::*;
    use crate::tensors::samples::{codes, noise, sdxl};

    #[test]
    fn axis_of_the_same_geometry_is_kept() {
        let mut axes = Axes::default();
        let work = Work::new(&noise(40, 30, 1, true), &sdxl());
        let first = axes.passes(&work);
        let second = axes.passes(&work);
        assert!(Arc::ptr_eq(first[0].horizontal.as_ref().unwrap(), second[0].horizontal.as_ref().unwrap()));
    }

    #[test]
    fn axes_kept_stay_within_their_bound() {
        let mut axes = Axes::default();
        (1..60).for_each(|side| {
            let size = Size::Stretch { width: side, height: 99 - side };
            axes.passes(&Work::new(&noise(70, 71, 1, false), &[codes(size, Filter::Bicubic)]));
        });
        assert_eq!(axes.kept.len(), KEPT);
    }

    #[test]
    fn exact_size_is_copied() {
        let work = Work::new(&noise(9, 5, 1, false), &[codes(Size::Stretch { width: 9, height: 5 }, Filter::Bicubic)]);
        let pass = Axes::default().passes(&work).remove(0);
        assert!(pass.horizontal.is_none());
        assert_eq!(pass.vertical.as_deref(), Some(&Axis::copy(0, 5)));
    }
}
