//! What a GPU has to do to pixels that it decoded itself, so that they are sRGB.

use std::sync::Arc;

use refmill::job::ColourOptions;
use refmill::report;

use super::engine::{Engine, Kind};
use super::program::Program;
use super::{ColourStage, about};
use crate::repair::Meaning;

impl ColourStage {
    /// The conversion of 8-bit pixels, R, G, B or gray that was spread to three, and how it is reported; `None` where
    /// the CPU has to convert.
    pub fn on_device(
        &mut self,
        meaning: &Meaning<'_>,
        gray: bool,
        options: ColourOptions,
    ) -> Option<(Arc<Program>, report::Colour)> {
        self.prepare(meaning, if gray { Kind::Gray8 } else { Kind::Rgb8 }, options).ok()?;
        let engine = Arc::clone(&self.cache.first()?.engine);
        if gray && !matches!(*engine, Engine::Identity) {
            return None;
        }
        if gray {
            self.prepare(&Meaning::Srgb, Kind::Rgb8, options).ok()?;
        }
        let program = self.cache.first()?.program.clone()?;
        Some((program, about(meaning, engine.name(), options)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::Kernel;

    #[test]
    fn pixels_of_one_profile_share_their_program() {
        let mut stage = ColourStage::default();
        let mut program = || stage.on_device(&Meaning::AdobeRgb, false, ColourOptions::default()).unwrap().0;
        let (first, second) = (program(), program());
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(first.kernel, Kernel::Matrix);
    }

    #[test]
    fn gray_with_a_profile_is_the_cpu_s_and_without_stays_as_it_is() {
        let mut stage = ColourStage::default();
        assert!(stage.on_device(&Meaning::AdobeRgb, true, ColourOptions::default()).is_none());
        let (program, colour) = stage.on_device(&Meaning::Srgb, true, ColourOptions::default()).unwrap();
        assert_eq!((program.kernel, colour.engine.as_str()), (Kernel::Plain, "none"));
    }
}
