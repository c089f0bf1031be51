//! What has to be done for one image: each distinct resampling once, then each tensor from one of them. Pure.

use refmill::geometry::Plan;
use refmill::recipe::{Dtype, Filter, Layout, Normalise, TensorSpec};

use crate::orientation::Orientation;
use crate::srgb::SrgbImage;
use refmill::recipe::ALPHA_MASK;

/// Which pixels of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channels {
    /// R, G and B.
    Rgb,
    /// Alpha alone.
    Alpha,
}

impl Channels {
    /// Bytes of a pixel.
    pub fn count(self) -> usize {
        match self {
            Self::Rgb => 3,
            Self::Alpha => 1,
        }
    }
}

/// All of a picture that decides how its pixels become tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Stored width in pixels.
    pub width: u32,
    /// Stored height in pixels.
    pub height: u32,
    /// What makes the pixels upright.
    pub orientation: Orientation,
    /// Whether there is alpha.
    pub alpha: bool,
}

impl Shape {
    /// The shape of an image.
    pub fn of(image: &SrgbImage) -> Self {
        let (width, height) = (image.width(), image.height());
        Self { width, height, orientation: image.orientation(), alpha: image.alpha().is_some() }
    }
}

/// A stretch of one stored axis and the pixels that are made of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stretch {
    /// Source pixels on the whole axis.
    pub pixels: u32,
    /// Where the stretch begins, in source pixels.
    pub start: f64,
    /// How long it is, in source pixels.
    pub length: f64,
    /// Target pixels.
    pub target: u32,
}

impl Stretch {
    /// Whether target pixels are source pixels.
    pub fn is_exact(&self) -> bool {
        f64::from(self.target) == self.length && self.start == self.start.round()
    }

    /// The stretch of upright axis `axis` (0 is x) that `plan` shows.
    fn upright(plan: &Plan, axis: usize, size: [u32; 2]) -> Option<Self> {
        let whole = plan.source_box(*size.first()?, *size.last()?);
        let (start, length) = if axis == 0 { (whole.left, whole.width) } else { (whole.top, whole.height) };
        let (pixels, target) = (*size.get(axis)?, *plan.size.get(axis)?);
        let edge = f64::from(pixels);
        if plan.fitted.get(axis) == Some(&target) {
            // The product of side and scale misses the edge by a rounding error, and exactness depends on it.
            return Some(Self { pixels, start: 0.0, length: edge, target });
        }
        Some(Self { pixels, start, length: length.min(edge - start), target })
    }

    fn mirrored(self) -> Self {
        let start = (f64::from(self.pixels) - (self.start + self.length)).max(0.0);
        Self { start, ..self }
    }

    /// Moves a cropped and enlarged stretch by a ten-millionth of a pixel. Where a target pixel's centre falls
    /// exactly on a source pixel, the cubic kernel has no other weight but that pixel's. fast_image_resize 6.1
    /// takes the first and last target pixel's windows for the outermost, and computes places outside its temporary
    /// image when they are not (seen: 11 x 8 pixels covering 24 x 24 panics with overflow checks, and reads out of
    /// bounds without). Off the centre, every window has its full width.
    fn off_centre(self) -> Self {
        const NUDGE: f64 = 1e-7;
        let edge = f64::from(self.pixels);
        if self.length >= f64::from(self.target) || self.length >= edge {
            return self;
        }
        let room = self.start + self.length + NUDGE <= edge;
        Self { start: if room { self.start + NUDGE } else { (self.start - NUDGE).max(0.0) }, ..self }
    }
}

/// One resampling of the stored pixels.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resampling {
    /// The upright geometry.
    pub plan: Plan,
    /// The kernel.
    pub filter: Filter,
    /// Which pixels.
    pub channels: Channels,
    /// The stored x axis.
    pub x: Stretch,
    /// The stored y axis.
    pub y: Stretch,
}

impl Resampling {
    fn new(spec: &TensorSpec, channels: Channels, shape: Shape) -> Option<Self> {
        let (width, height) = shape.orientation.size(shape.width, shape.height);
        let plan = Plan::new(spec.size, width, height);
        let x = Stretch::upright(&plan, 0, [width, height])?;
        let y = Stretch::upright(&plan, 1, [width, height])?;
        let (x, y) = stored(shape.orientation, x, y);
        Some(Self { plan, filter: spec.filter, channels, x: x.off_centre(), y: y.off_centre() })
    }

    /// Bytes of the resampled pixels.
    pub fn bytes(&self) -> usize {
        self.plan.area() * self.channels.count()
    }
}

/// The stored axes of upright ones. A crop's odd pixel stays on its upright side.
fn stored(orientation: Orientation, x: Stretch, y: Stretch) -> (Stretch, Stretch) {
    let x = if orientation.mirrors_x() { x.mirrored() } else { x };
    let y = if orientation.mirrors_y() { y.mirrored() } else { y };
    if orientation.swaps_axes() { (y, x) } else { (x, y) }
}

/// One tensor to be made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    /// What is asked.
    pub spec: TensorSpec,
    /// Which pixels.
    pub channels: Channels,
    /// The geometry.
    pub plan: Plan,
    /// Index of its resampling.
    pub resampling: usize,
}

impl Target {
    /// The shape in the order of the layout.
    pub fn shape(&self) -> [u32; 4] {
        let [width, height] = self.plan.size;
        let channels = if self.channels == Channels::Rgb { 3 } else { 1 };
        match self.spec.layout {
            Layout::Nchw => [1, channels, height, width],
            Layout::Nhwc => [1, height, width, channels],
        }
    }

    /// Bytes of the tensor.
    pub fn bytes(&self) -> usize {
        self.plan.area() * self.channels.count() * self.spec.dtype.bytes()
    }
}

/// Everything to be done for one image.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Work {
    /// The distinct resamplings.
    pub resamplings: Vec<Resampling>,
    /// The tensors in the recipe's order, the alpha mask last.
    pub targets: Vec<Target>,
}

impl Work {
    /// Plans `specs` for `image`, with a mask of its alpha where it has any.
    pub fn new(image: &SrgbImage, specs: &[TensorSpec]) -> Self {
        Self::of(Shape::of(image), specs)
    }

    /// The same, for pixels that are not here.
    pub fn of(shape: Shape, specs: &[TensorSpec]) -> Self {
        let mut work = Self::default();
        for spec in specs {
            work.add(spec.clone(), Channels::Rgb, shape);
        }
        let taken = specs.iter().any(|spec| spec.name == ALPHA_MASK);
        if let (true, false, Some(first)) = (shape.alpha, taken, specs.first()) {
            work.add(mask(first), Channels::Alpha, shape);
        }
        work
    }

    fn add(&mut self, spec: TensorSpec, channels: Channels, shape: Shape) {
        let Some(wanted) = Resampling::new(&spec, channels, shape) else { return };
        let plan = wanted.plan;
        let known = self.resamplings.iter().position(|made| *made == wanted);
        let resampling = known.unwrap_or(self.resamplings.len());
        if known.is_none() {
            self.resamplings.push(wanted);
        }
        self.targets.push(Target { spec, channels, plan, resampling });
    }
}

/// The mask's spec: as the recipe's first tensor, from 0 (transparent) to 1.
fn mask(first: &TensorSpec) -> TensorSpec {
    let normalise = match first.dtype {
        Dtype::U8 => Normalise::None,
        Dtype::F32 | Dtype::F16 | Dtype::Bf16 => Normalise::Range { min: 0.0, max: 1.0 },
    };
    TensorSpec { name: ALPHA_MASK.into(), normalise, ..first.clone() }
}
