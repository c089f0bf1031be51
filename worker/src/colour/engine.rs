//! Transforms to sRGB, built once a profile and applied to whole images.

use std::fmt;

use lcms2::{DisallowCache, Flags, GlobalContext, PixelFormat, Profile, TagSignature, Transform};
use refmill::failure::{Code, Failure};
use refmill::job::{ColourOptions, Intent};

use super::grid::Grid;
use super::hdr::Hdr;
use super::matrix::Matrix;
use super::{sampling, source};
use crate::decode::Pixels;
use crate::repair::Meaning;

/// Pixels converted in one go by the 16-bit path, to keep its intermediate small.
const CHUNK: usize = 1 << 14;

/// What kind of pixels a transform takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One channel, 8 bits.
    Gray8,
    /// One channel, 16 bits.
    Gray16,
    /// Three channels, 8 bits.
    Rgb8,
    /// Three channels, 16 bits.
    Rgb16,
    /// Four channels, 8 bits.
    Cmyk8,
    /// Four channels, 16 bits.
    Cmyk16,
    /// L*a*b*, 8 bits.
    Lab8,
}

impl Kind {
    /// The kind of `pixels`.
    #[must_use]
    pub fn of(pixels: &Pixels) -> Self {
        match pixels {
            Pixels::Gray8(_) => Self::Gray8,
            Pixels::Gray16(_) => Self::Gray16,
            Pixels::Rgb8(_) => Self::Rgb8,
            Pixels::Rgb16(_) => Self::Rgb16,
            Pixels::Cmyk8(_) => Self::Cmyk8,
            Pixels::Cmyk16(_) => Self::Cmyk16,
            Pixels::Lab8(_) => Self::Lab8,
        }
    }

    /// Values of a code.
    #[must_use]
    pub fn levels(self) -> usize {
        match self {
            Self::Gray8 | Self::Rgb8 | Self::Cmyk8 | Self::Lab8 => 1 << 8,
            Self::Gray16 | Self::Rgb16 | Self::Cmyk16 => 1 << 16,
        }
    }
}

/// lcms2's own transform, without its cache of one pixel, so that threads can share it.
type Lcms = Transform<u8, u8, GlobalContext, DisallowCache>;

/// A transform to 8-bit sRGB.
pub enum Engine {
    /// The pixels are sRGB: only depth and gray are changed.
    Identity,
    /// (1-C)(1-K).
    NaiveCmyk,
    /// Gray by what lcms2 makes of each of its 256 or 65,536 codes.
    Table(Box<[[u8; 3]]>),
    /// Matrix profile, for codes of one depth.
    Matrix(Box<Matrix>),
    /// Lookup tables, for codes of one depth.
    Grid(Box<Grid>),
    /// PQ or HLG.
    Hdr(Box<Hdr>),
    /// Anything, by lcms2.
    Lcms(Lcms),
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Builds the transform for pixels of `kind`.
///
/// # Errors
/// [`Code::Colour`] where lcms2 builds none; [`Code::Unsupported`] for meanings that are not converted.
pub fn build(meaning: &Meaning<'_>, kind: Kind, options: ColourOptions) -> Result<Engine, Failure> {
    if matches!(meaning, Meaning::Srgb) {
        return Ok(Engine::Identity);
    }
    if matches!(meaning, Meaning::CmykNaive) {
        return Ok(Engine::NaiveCmyk);
    }
    if let Meaning::Cicp { primaries, transfer: transfer @ (16 | 18) } = meaning {
        let hdr = Hdr::new(source::h273_primaries(*primaries), *transfer);
        let refused = || Failure::new(Code::Colour, format!("primaries {primaries} span no colours"));
        return hdr.map(|hdr| Engine::Hdr(Box::new(hdr))).ok_or_else(refused);
    }
    let profile = source::profile(meaning, kind)?;
    if options.intent != Intent::AbsoluteColorimetric
        && let Some(engine) = matrix(&profile, kind)
    {
        return Ok(engine);
    }
    if let Meaning::Icc(icc) = meaning {
        let grid = match kind {
            Kind::Rgb8 | Kind::Rgb16 => sampling::sample::<3>(&profile, &icc.bytes, kind.levels(), options)?,
            Kind::Cmyk8 | Kind::Cmyk16 => sampling::sample::<4>(&profile, &icc.bytes, kind.levels(), options)?,
            Kind::Gray8 | Kind::Gray16 | Kind::Lab8 => None,
        };
        if let Some(grid) = grid {
            return Ok(Engine::Grid(Box::new(grid)));
        }
    }
    let format = match kind {
        Kind::Gray8 => PixelFormat::GRAY_8,
        Kind::Gray16 => PixelFormat::GRAY_16,
        Kind::Rgb8 => PixelFormat::RGB_8,
        Kind::Rgb16 => PixelFormat::RGB_16,
        Kind::Cmyk8 => PixelFormat::CMYK_8,
        Kind::Cmyk16 => PixelFormat::CMYK_16,
        Kind::Lab8 => PixelFormat::Lab_8,
    };
    let transform = lcms(&profile, format, options)?;
    Ok(match kind {
        Kind::Gray8 => Engine::Table(triples(by_lcms(&transform, &(0..=u8::MAX).collect::<Vec<_>>(), 1 << 8))),
        Kind::Gray16 => Engine::Table(triples(deep_by_lcms(&transform, &(0..=u16::MAX).collect::<Vec<_>>(), 1))),
        _ => Engine::Lcms(transform),
    })
}

/// The intent in lcms2's words.
pub fn intent(options: ColourOptions) -> lcms2::Intent {
    match options.intent {
        Intent::Perceptual => lcms2::Intent::Perceptual,
        Intent::RelativeColorimetric => lcms2::Intent::RelativeColorimetric,
        Intent::Saturation => lcms2::Intent::Saturation,
        Intent::AbsoluteColorimetric => lcms2::Intent::AbsoluteColorimetric,
    }
}

/// Black point compensation in lcms2's words.
pub fn flags(options: ColourOptions) -> Flags<DisallowCache> {
    let flags = Flags::NO_CACHE;
    if options.black_point_compensation { flags | Flags::BLACKPOINT_COMPENSATION } else { flags }
}

fn lcms(profile: &Profile, format: PixelFormat, options: ColourOptions) -> Result<Lcms, Failure> {
    let mut flags = flags(options);
    // lcms2 would sample deep matrix profiles into a coarse grid, which bands in the shadows.
    if format.bytes_per_channel() > 1 && profile.is_matrix_shaper() {
        flags = flags | Flags::NO_OPTIMIZE;
    }
    let (context, target) = (GlobalContext::new(), Profile::new_srgb());
    Transform::new_flags_context(context, profile, format, &target, PixelFormat::RGB_8, intent(options), flags)
        .map_err(|error| Failure::new(Code::Colour, format!("lcms2 builds no transform: {error}")))
}

/// Our own path, for matrix profiles on RGB pixels. A profile that has both a matrix and tables is lcms2's.
fn matrix(profile: &Profile, kind: Kind) -> Option<Engine> {
    let has_tables = [TagSignature::AToB0Tag, TagSignature::AToB1Tag].into_iter().any(|tag| profile.has_tag(tag));
    match kind {
        _ if has_tables || !profile.is_matrix_shaper() => None,
        Kind::Rgb8 | Kind::Rgb16 => Matrix::new(profile, kind.levels()).map(|matrix| Engine::Matrix(Box::new(matrix))),
        _ => None,
    }
}

impl Engine {
    /// The word in the report.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Identity => "none",
            Self::NaiveCmyk => "naive",
            Self::Table(_) => "table",
            Self::Matrix(_) => "matrix",
            Self::Grid(_) => "grid",
            Self::Hdr(_) => "hdr",
            Self::Lcms(_) => "lcms2",
        }
    }

    /// Bytes of its tables; what lcms2 holds for itself is not among them.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Table(table) => size_of_val(&**table),
            Self::Matrix(matrix) => matrix.bytes(),
            Self::Grid(grid) => grid.bytes(),
            Self::Identity | Self::NaiveCmyk | Self::Hdr(_) | Self::Lcms(_) => 0,
        }
    }

    /// Converts to interleaved 8-bit sRGB.
    ///
    /// # Errors
    /// [`Code::Colour`] where the engine refuses its pixels; [`Code::Internal`] for pixels of another kind.
    pub fn apply(&self, pixels: Pixels) -> Result<Vec<u8>, Failure> {
        match (self, pixels) {
            (Self::Identity, pixels) => identity(pixels),
            (Self::NaiveCmyk, Pixels::Cmyk8(data)) => Ok(naive_cmyk(&data)),
            (Self::NaiveCmyk, Pixels::Cmyk16(data)) => Ok(naive_cmyk(&reduce(&data))),
            (Self::Table(table), Pixels::Gray8(data)) => Ok(look_up(table, data.into_iter().map(usize::from))),
            (Self::Table(table), Pixels::Gray16(data)) => Ok(look_up(table, data.into_iter().map(usize::from))),
            (Self::Matrix(matrix), Pixels::Rgb8(mut data)) => {
                matrix.apply8(&mut data);
                Ok(data)
            }
            (Self::Matrix(matrix), Pixels::Rgb16(data)) => Ok(matrix.apply16(&data)),
            (Self::Grid(grid), Pixels::Rgb8(mut data)) => {
                grid.apply8_in_place(&mut data);
                Ok(data)
            }
            (Self::Grid(grid), Pixels::Cmyk8(data)) => Ok(grid.apply8(&data)),
            (Self::Grid(grid), Pixels::Rgb16(data) | Pixels::Cmyk16(data)) => Ok(grid.apply16(&data)),
            (Self::Hdr(hdr), Pixels::Rgb16(data)) => Ok(hdr.apply(&data)),
            (Self::Hdr(hdr), Pixels::Rgb8(data)) => Ok(hdr.apply(&widen(&data, 1))),
            (Self::Hdr(hdr), Pixels::Gray8(data)) => Ok(hdr.apply(&widen(&data, 3))),
            (Self::Hdr(hdr), Pixels::Gray16(data)) => {
                Ok(hdr.apply(&data.into_iter().flat_map(|code| [code; 3]).collect::<Vec<_>>()))
            }
            (Self::Lcms(transform), Pixels::Rgb8(mut data) | Pixels::Lab8(mut data)) => {
                transform.transform_in_place(&mut data);
                Ok(data)
            }
            (Self::Lcms(transform), Pixels::Cmyk8(data)) => Ok(by_lcms(transform, &data, data.len() / 4)),
            (Self::Lcms(transform), Pixels::Rgb16(data)) => Ok(deep_by_lcms(transform, &data, 3)),
            (Self::Lcms(transform), Pixels::Cmyk16(data)) => Ok(deep_by_lcms(transform, &data, 4)),
            (engine, _) => {
                Err(Failure::new(Code::Internal, format!("{} was given pixels of another kind", engine.name())))
            }
        }
    }
}

fn triples(codes: Vec<u8>) -> Box<[[u8; 3]]> {
    codes.as_chunks().0.into()
}

fn look_up(table: &[[u8; 3]], codes: impl Iterator<Item = usize>) -> Vec<u8> {
    codes.flat_map(|code| table.get(code).copied().unwrap_or_default()).collect()
}

fn by_lcms(transform: &Lcms, data: &[u8], pixels: usize) -> Vec<u8> {
    let mut out = vec![0; pixels * 3];
    transform.transform_pixels(data, &mut out);
    out
}

/// lcms2 takes 16-bit samples in the machine's own byte order.
fn deep_by_lcms(transform: &Lcms, data: &[u16], channels: usize) -> Vec<u8> {
    let mut out = vec![0; data.len() / channels * 3];
    for (samples, codes) in data.chunks(CHUNK * channels).zip(out.chunks_mut(CHUNK * 3)) {
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_ne_bytes()).collect();
        transform.transform_pixels(&bytes, codes);
    }
    out
}

fn identity(pixels: Pixels) -> Result<Vec<u8>, Failure> {
    let spread = |gray: Vec<u8>| gray.into_iter().flat_map(|code| [code; 3]).collect();
    match pixels {
        Pixels::Rgb8(data) => Ok(data),
        Pixels::Rgb16(data) => Ok(reduce(&data)),
        Pixels::Gray8(data) => Ok(spread(data)),
        Pixels::Gray16(data) => Ok(spread(reduce(&data))),
        _ => Err(Failure::new(Code::Internal, "CMYK or Lab pixels were taken for sRGB")),
    }
}

/// 8-bit samples at 16 bits, each `times` times.
fn widen(samples: &[u8], times: usize) -> Vec<u16> {
    samples.iter().flat_map(|&code| std::iter::repeat_n(u16::from(code) * 257, times)).collect()
}

fn reduce(samples: &[u16]) -> Vec<u8> {
    crate::decode::to_8_bits(samples)
}

fn naive_cmyk(data: &[u8]) -> Vec<u8> {
    let mix =
        |ink: u8, black: u8| u8::try_from((u32::from(255 - ink) * u32::from(255 - black) + 127) / 255).unwrap_or(255);
    data.as_chunks().0.iter().flat_map(|&[c, m, y, k]| [mix(c, k), mix(m, k), mix(y, k)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repair::Chromaticities;

    /// A cube of codes through both engines.
    fn worst_difference(meaning: &Meaning<'_>) -> u8 {
        let steps: Vec<u8> = (0..=255).step_by(15).collect();
        let cube: Vec<u8> = steps
            .iter()
            .flat_map(|&r| steps.iter().flat_map(move |&g| (0..=255).step_by(15).flat_map(move |b| [r, g, b])))
            .collect();
        let options = ColourOptions::default();
        let profile = source::profile(meaning, Kind::Rgb8).unwrap();
        let reference = Engine::Lcms(lcms(&profile, PixelFormat::RGB_8, options).unwrap());
        let fast = build(meaning, Kind::Rgb8, options).unwrap();
        assert_eq!(fast.name(), "matrix");
        let expected = reference.apply(Pixels::Rgb8(cube.clone())).unwrap();
        let got = fast.apply(Pixels::Rgb8(cube)).unwrap();
        expected.iter().zip(&got).map(|(a, b)| a.abs_diff(*b)).max().unwrap()
    }

    #[test]
    fn matrix_path_is_within_one_step_of_lcms2() {
        assert!(worst_difference(&Meaning::AdobeRgb) <= 1);
        assert!(worst_difference(&Meaning::Cicp { primaries: 12, transfer: 13 }) <= 1);
        let gamma = Meaning::Gamma { exponent: 1.8, chromaticities: Chromaticities::ADOBE_RGB };
        assert!(worst_difference(&gamma) <= 1);
    }
}
