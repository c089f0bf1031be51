//! Where a tensor's pixels come from: pure arithmetic on sizes, upright, in pixels.
//!
//! The convention, written down since libraries differ by a pixel: the fitted side is exact, the other is
//! `round(side * scale)`, half away from zero, at least 1; a centred crop begins at `floor((fitted - wanted) / 2)`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::recipe::Size;

/// How an upright image becomes a tensor: resized as a whole to `fitted`, then cut to `size` at `crop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Width and height of the whole image after resizing.
    pub fitted: [u32; 2],
    /// Left and top of the crop in the resized image.
    pub crop: [u32; 2],
    /// Width and height of the tensor.
    pub size: [u32; 2],
}

/// A box in the pixels of the source image; fractional, since it is the image of whole tensor pixels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SourceBox {
    /// Left edge.
    pub left: f64,
    /// Top edge.
    pub top: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Plan {
    /// The plan for an upright image of `width` x `height` pixels, both at least 1.
    #[must_use]
    pub fn new(size: Size, width: u32, height: u32) -> Self {
        let (w, h) = (f64::from(width), f64::from(height));
        match size {
            Size::Stretch { width, height } => Self::whole(width, height),
            Size::Contain { width: tw, height: th } => Self::inside(w, h, tw, th),
            Size::LongSide { side } => Self::inside(w, h, side, side),
            Size::Cover { width: tw, height: th } => {
                let wide = w * f64::from(th) >= h * f64::from(tw);
                let fitted = if wide {
                    [follow(w, f64::from(th) / h).max(tw), th]
                } else {
                    [tw, follow(h, f64::from(tw) / w).max(th)]
                };
                let [fw, fh] = fitted;
                Self { fitted, crop: [(fw - tw) / 2, (fh - th) / 2], size: [tw, th] }
            }
        }
    }

    fn whole(width: u32, height: u32) -> Self {
        Self { fitted: [width, height], crop: [0, 0], size: [width, height] }
    }

    fn inside(w: f64, h: f64, tw: u32, th: u32) -> Self {
        if w * f64::from(th) >= h * f64::from(tw) {
            Self::whole(tw, follow(h, f64::from(tw) / w).min(th))
        } else {
            Self::whole(follow(w, f64::from(th) / h).min(tw), th)
        }
    }

    /// The part of an upright `width` x `height` image that the tensor shows.
    #[must_use]
    pub fn source_box(&self, width: u32, height: u32) -> SourceBox {
        let [fw, fh] = self.fitted.map(f64::from);
        let [x, y] = self.crop.map(f64::from);
        let [w, h] = self.size.map(f64::from);
        let (sx, sy) = (f64::from(width) / fw, f64::from(height) / fh);
        SourceBox { left: x * sx, top: y * sy, width: w * sx, height: h * sy }
    }

    /// Elements of one channel.
    #[must_use]
    pub fn area(&self) -> usize {
        let [w, h] = self.size;
        w as usize * h as usize
    }
}

/// The side that follows the fitted one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to u32's range first")]
fn follow(side: f64, scale: f64) -> u32 {
    (side * scale).round().clamp(1.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cover_crops_by_the_floor_convention() {
        // 4000 x 3000 covers 224: fitted 299 x 224, 75 columns too many, 37 of them at the left.
        let plan = Plan::new(Size::Cover { width: 224, height: 224 }, 4000, 3000);
        assert_eq!(plan, Plan { fitted: [299, 224], crop: [37, 0], size: [224, 224] });
    }

    #[test]
    fn cover_of_a_portrait_crops_top_and_bottom() {
        let plan = Plan::new(Size::Cover { width: 1024, height: 1024 }, 3000, 4000);
        assert_eq!(plan, Plan { fitted: [1024, 1365], crop: [0, 170], size: [1024, 1024] });
    }

    #[test]
    fn long_side_keeps_the_shape() {
        let plan = Plan::new(Size::LongSide { side: 1024 }, 4000, 3000);
        assert_eq!(plan, Plan { fitted: [1024, 768], crop: [0, 0], size: [1024, 768] });
    }

    #[test]
    fn extreme_shape_keeps_at_least_one_pixel() {
        let plan = Plan::new(Size::LongSide { side: 224 }, 65_000, 1);
        assert_eq!(plan.size, [224, 1]);
    }

    #[test]
    fn contain_never_exceeds_its_box() {
        let plan = Plan::new(Size::Contain { width: 100, height: 33 }, 301, 100);
        assert_eq!(plan.size, [99, 33]);
    }

    #[test]
    fn source_box_of_a_cover_is_centred() {
        let plan = Plan::new(Size::Cover { width: 100, height: 100 }, 400, 200);
        assert_eq!(plan.source_box(400, 200), SourceBox { left: 100.0, top: 0.0, width: 200.0, height: 200.0 });
    }
}
