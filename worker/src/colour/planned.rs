//! Pixels on their way to sRGB: bound to their transform, so that whoever takes them, CPU or GPU, has to apply it.

use std::borrow::Cow;
use std::sync::Arc;

use refmill::failure::{Code, Failure};
use refmill::job::ColourOptions;
use refmill::report;

use super::engine::{Engine, Kind};
use super::program::Program;
use crate::decode::Pixels;
use crate::orientation::Orientation;
use crate::srgb::SrgbImage;
use crate::tensors::Shape;

/// How pixels of one kind become sRGB.
#[derive(Debug, Clone)]
pub struct Planned {
    engine: Arc<Engine>,
    program: Option<Arc<Program>>,
    kind: Kind,
    colour: report::Colour,
}

/// Stored pixels and what makes them sRGB. There are two ways out: [`Unconverted::into_srgb`] and the GPU's kernels,
/// which take both together.
#[derive(Debug)]
pub struct Unconverted {
    size: (u32, u32),
    pixels: Pixels,
    alpha: Option<Vec<u8>>,
    orientation: Orientation,
    planned: Planned,
}

impl Planned {
    pub(super) fn new(engine: Arc<Engine>, program: Option<Arc<Program>>, kind: Kind, colour: report::Colour) -> Self {
        Self { engine, program, kind, colour }
    }

    /// What the report says.
    #[must_use]
    pub fn colour(&self) -> &report::Colour {
        &self.colour
    }

    /// What a GPU does; `None` where the CPU has to convert.
    #[must_use]
    pub fn program(&self) -> Option<&Arc<Program>> {
        self.program.as_ref()
    }

    /// Binds pixels to the plan.
    ///
    /// # Errors
    /// [`Code::Internal`] for pixels of another kind than was planned for.
    pub fn unconverted(
        self,
        size: (u32, u32),
        pixels: Pixels,
        alpha: Option<Vec<u8>>,
        orientation: Orientation,
    ) -> Result<Unconverted, Failure> {
        let kind = Kind::of(&pixels);
        if kind != self.kind {
            let message = format!("a transform for {:?} was given {kind:?}", self.kind);
            return Err(Failure::new(Code::Internal, message));
        }
        Ok(Unconverted { size, pixels, alpha, orientation, planned: self })
    }
}

impl Unconverted {
    /// Pixels that are sRGB already.
    #[must_use]
    pub fn from_srgb(image: SrgbImage) -> Self {
        let (size, orientation) = ((image.width(), image.height()), image.orientation());
        let (rgb, alpha) = image.into_buffers();
        let program = Program::new(&Engine::Identity, Kind::Rgb8).map(Arc::new);
        let colour = super::about(&crate::repair::Meaning::Srgb, "none", ColourOptions::default());
        let planned = Planned::new(Arc::new(Engine::Identity), program, Kind::Rgb8, colour);
        Self { size, pixels: Pixels::Rgb8(rgb), alpha, orientation, planned }
    }

    /// All that decides how the pixels become tensors.
    pub(crate) fn shape(&self) -> Shape {
        let (width, height) = self.size;
        Shape { width, height, orientation: self.orientation, alpha: self.alpha.is_some() }
    }

    /// What the report says.
    #[must_use]
    pub fn colour(&self) -> &report::Colour {
        self.planned.colour()
    }

    /// What a GPU does; `None` where the CPU has to convert.
    pub(crate) fn program(&self) -> Option<&Arc<Program>> {
        self.planned.program()
    }

    /// The stored samples, little endian, for a GPU that runs the program on them.
    pub(crate) fn bytes(&self) -> Cow<'_, [u8]> {
        match &self.pixels {
            Pixels::Gray8(data) | Pixels::Rgb8(data) | Pixels::Cmyk8(data) | Pixels::Lab8(data) => Cow::Borrowed(data),
            Pixels::Gray16(data) | Pixels::Rgb16(data) | Pixels::Cmyk16(data) => {
                Cow::Owned(data.iter().flat_map(|sample| sample.to_le_bytes()).collect())
            }
        }
    }

    /// Straight alpha, where there is any.
    pub(crate) fn alpha(&self) -> Option<&[u8]> {
        self.alpha.as_deref()
    }

    /// Gives the pixel buffer back for the next image.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        match self.pixels {
            Pixels::Gray8(data) | Pixels::Rgb8(data) | Pixels::Cmyk8(data) | Pixels::Lab8(data) => data,
            Pixels::Gray16(_) | Pixels::Rgb16(_) | Pixels::Cmyk16(_) => Vec::new(),
        }
    }

    /// Converts on the CPU.
    ///
    /// # Errors
    /// [`Code::Internal`] where the pixels do not fill their size.
    pub fn into_srgb(self) -> Result<SrgbImage, Failure> {
        let Self { size: (width, height), pixels, alpha, orientation, planned } = self;
        let rgb = planned.engine.apply(pixels)?;
        SrgbImage::claim(width, height, rgb, alpha, orientation)
            .ok_or_else(|| Failure::new(Code::Internal, format!("converted pixels do not fill {width} x {height}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::ColourStage;
    use crate::repair::Meaning;

    #[test]
    fn plan_takes_no_pixels_of_another_kind() {
        let mut stage = ColourStage::default();
        let options = refmill::job::ColourOptions::default();
        let planned = stage.plan(Meaning::AdobeRgb, Kind::Rgb16, options, &mut Vec::new(), &mut Vec::new()).unwrap();
        let bound = planned.unconverted((1, 1), Pixels::Rgb8(vec![1, 2, 3]), None, Orientation::UPRIGHT);
        assert_eq!(bound.unwrap_err().code, Code::Internal);
    }

    #[test]
    fn plans_of_one_profile_share_their_tables() {
        let mut stage = ColourStage::default();
        let options = refmill::job::ColourOptions::default();
        let mut plan = || stage.plan(Meaning::AdobeRgb, Kind::Rgb8, options, &mut Vec::new(), &mut Vec::new()).unwrap();
        let (first, second) = (plan(), plan());
        assert!(Arc::ptr_eq(first.program().unwrap(), second.program().unwrap()));
    }
}
