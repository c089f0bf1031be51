//! Converts decoded pixels to sRGB. lcms2 is the authority; matrix profiles on RGB pixels take a faster
//! path of our own, which stays within one 8-bit step of lcms2 (a test holds it to that). 16-bit pixels are converted at 16 bits
//! and reduced afterwards. Nothing leaves this stage as sRGB that it did not convert or that was not sRGB before.

mod about;
mod curves;
mod engine;
mod grid;
mod hdr;
#[cfg(test)]
pub(crate) mod lut_profiles;
mod matrix;
mod on_device;
mod planned;
mod program;
mod sampling;
mod source;

pub use about::about;
use engine::Engine;
pub use engine::Kind;
#[cfg(test)]
pub(crate) use engine::build;
pub use planned::{Planned, Unconverted};
pub use program::{Kernel, Program};

use std::sync::Arc;

use refmill::failure::{Code, Failure};
use refmill::finding::{Finding, FindingCode, Repair};
use refmill::job::ColourOptions;

use crate::decode::Decoded;
use crate::repair::Meaning;

/// Most bytes of profiles and of the tables made from them; what was used longest ago goes first.
const CACHE_BYTES: usize = 64 << 20;
/// Most transforms kept.
const CACHE_ENTRIES: usize = 16;

/// The colour stage and the transforms that it has built.
#[derive(Debug, Default)]
pub struct ColourStage {
    cache: Vec<Cached>,
}

#[derive(Debug)]
struct Cached {
    profile: Vec<u8>,
    kind: Kind,
    options: ColourOptions,
    engine: Arc<Engine>,
    program: Option<Arc<Program>>,
}

impl ColourStage {
    /// A stage that has what it needs from files: lcms2 dates the profiles that it makes, and the C library reads
    /// the time zone's file for that once, which the confinement would not let it do later.
    #[must_use]
    pub fn new() -> Self {
        drop(lcms2::Profile::new_srgb());
        Self::default()
    }

    /// Decides how pixels of `kind` become sRGB; the pixels themselves are not needed yet.
    ///
    /// # Errors
    /// [`Code::Unsupported`] for HDR transfers, [`Code::Colour`] where not even the fallback can be built.
    pub fn plan(
        &mut self,
        meaning: Meaning<'_>,
        kind: Kind,
        options: ColourOptions,
        findings: &mut Vec<Finding>,
        repairs: &mut Vec<Repair>,
    ) -> Result<Planned, Failure> {
        let meaning = match (self.prepare(&meaning, kind, options), meaning) {
            (Ok(()), meaning) => meaning,
            (Err(unbuildable), Meaning::Icc(profile)) if unbuildable.code == Code::Colour => {
                let found = format!("no transform can be built from `{}`", profile.description);
                findings.push(Finding::new(FindingCode::IccUnusable, "ICC", found));
                let fallback = match kind {
                    Kind::Cmyk8 | Kind::Cmyk16 => Meaning::CmykNaive,
                    Kind::Lab8 => Meaning::Lab,
                    _ => Meaning::Srgb,
                };
                repairs.push(Repair::new(FindingCode::IccUnusable, profile.description, fallback.description()));
                self.prepare(&fallback, kind, options)?;
                fallback
            }
            (Err(failure), _) => return Err(failure),
        };
        let cached = self.cache.first().ok_or_else(|| Failure::new(Code::Internal, "transform was not kept"))?;
        if matches!(*cached.engine, Engine::Hdr(_)) {
            let found = format!(
                "{}; reference white 203 cd/m2, highlights up to 1000 by the EETF of BT.2390",
                meaning.description()
            );
            findings.push(Finding::new(FindingCode::HdrToneMapped, "", found));
        }
        let colour = about(&meaning, cached.engine.name(), options);
        Ok(Planned::new(Arc::clone(&cached.engine), cached.program.clone(), kind, colour))
    }

    /// Binds decoded pixels to their transform.
    ///
    /// # Errors
    /// As [`ColourStage::plan`].
    pub fn bind(
        &mut self,
        decoded: Decoded<'_>,
        options: ColourOptions,
        findings: &mut Vec<Finding>,
        repairs: &mut Vec<Repair>,
    ) -> Result<Unconverted, Failure> {
        let Decoded { width, height, pixels, alpha, orientation, meaning } = decoded;
        let planned = self.plan(meaning, Kind::of(&pixels), options, findings, repairs)?;
        planned.unconverted((width, height), pixels, alpha, orientation)
    }

    /// Puts the transform for `meaning` at the front of the cache, building it if need be.
    fn prepare(&mut self, meaning: &Meaning<'_>, kind: Kind, options: ColourOptions) -> Result<(), Failure> {
        let key = source::key(meaning);
        let known = self.cache.iter().position(|cached| {
            cached.kind == kind && cached.options == options && cached.profile.as_slice() == key.as_ref()
        });
        if let Some(at) = known {
            self.cache.get_mut(..=at).into_iter().for_each(|front| front.rotate_right(1));
            return Ok(());
        }
        let engine = engine::build(meaning, kind, options)?;
        let program = Program::new(&engine, kind).map(Arc::new);
        self.cache.insert(0, Cached { profile: key.into_owned(), kind, options, engine: Arc::new(engine), program });
        self.cache.truncate(CACHE_ENTRIES);
        let mut bytes = 0usize;
        self.cache.retain(|cached| {
            let program = cached.program.as_ref().map_or(0, |program| program.tables.len());
            let own = cached.profile.len() + cached.engine.bytes() + program;
            bytes = bytes.saturating_add(own);
            bytes <= CACHE_BYTES || bytes == own
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Pixels;
    use crate::icc::Profile;
    use crate::orientation::Orientation;
    use crate::repair::Chromaticities;
    use refmill::report;
    use std::borrow::Cow;

    fn convert(pixels: Pixels, meaning: Meaning<'_>) -> (Vec<u8>, report::Colour, Vec<FindingCode>) {
        let decoded = Decoded { width: 1, height: 1, pixels, alpha: None, orientation: Orientation::UPRIGHT, meaning };
        let (mut findings, mut repairs) = (Vec::new(), Vec::new());
        let options = ColourOptions::default();
        let bound = ColourStage::default().bind(decoded, options, &mut findings, &mut repairs).unwrap();
        let (colour, image) = (bound.colour().clone(), bound.into_srgb().unwrap());
        (image.rgb().to_vec(), colour, findings.iter().map(|finding| finding.code).collect())
    }

    #[test]
    fn srgb_pixels_pass_unchanged() {
        let (rgb, colour, _) = convert(Pixels::Rgb8(vec![1, 2, 3]), Meaning::Srgb);
        assert_eq!((rgb.as_slice(), colour.engine.as_str()), ([1, 2, 3].as_slice(), "none"));
    }

    #[test]
    fn gray_becomes_neutral() {
        assert_eq!(convert(Pixels::Gray8(vec![77]), Meaning::Srgb).0, [77, 77, 77]);
    }

    #[test]
    fn linear_16_bit_is_converted_before_it_is_reduced() {
        let meaning = Meaning::Gamma { exponent: 1.0, chromaticities: Chromaticities::BT709 };
        // 0.5 in linear light is sRGB code 187.5; dark light of 1/65535 steps must not collapse to 0.
        let (rgb, _, _) = convert(Pixels::Rgb16(vec![32_768, 200, 0]), meaning);
        assert_eq!(rgb[0], 188);
        assert!((9..=11).contains(&rgb[1]), "{rgb:?}");
    }

    #[test]
    fn adobe_rgb_green_is_wider_than_srgb() {
        let (rgb, colour, _) = convert(Pixels::Rgb8(vec![128, 200, 100]), Meaning::AdobeRgb);
        assert_eq!(colour.interpretation, "adobe_rgb");
        assert!(rgb[0] < 100 && rgb[1] >= 200, "{rgb:?}");
    }

    #[test]
    fn cmyk_without_profile_is_naive() {
        assert_eq!(convert(Pixels::Cmyk8(vec![0, 255, 0, 0]), Meaning::CmykNaive).0, [255, 0, 255]);
    }

    #[test]
    fn icc_unusable_profile_falls_back_and_says_so() {
        let mut bytes = lcms2::Profile::new_srgb().icc().unwrap();
        let at = bytes.windows(4).position(|window| window == b"gXYZ").unwrap();
        bytes[at] = b'x';
        let profile = Profile { bytes: Cow::Owned(bytes), description: "broken".into(), linear: false };
        let (rgb, colour, codes) = convert(Pixels::Rgb8(vec![9, 8, 7]), Meaning::Icc(profile));
        assert_eq!(rgb, [9, 8, 7]);
        assert_eq!((colour.interpretation.as_str(), codes), ("srgb", vec![FindingCode::IccUnusable]));
    }

    #[test]
    fn transform_is_built_once_for_images_of_one_profile() {
        let mut stage = ColourStage::default();
        for _ in 0..3 {
            stage.prepare(&Meaning::AdobeRgb, Kind::Rgb8, ColourOptions::default()).unwrap();
            stage.prepare(&Meaning::Srgb, Kind::Rgb8, ColourOptions::default()).unwrap();
        }
        assert_eq!(stage.cache.len(), 2);
    }
}
