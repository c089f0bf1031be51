//! Small pictures for people: the pixels as they are stored, and as they are meant. Never used for tensors.

use std::borrow::Cow;
use std::io::Write;

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use png::{BitDepth, ColorType, Compression, Encoder};
use refmill::failure::{Code, Failure};

use crate::decode::{Decoded, Pixels, to_8_bits};
use crate::orientation::Orientation;
use crate::srgb::SrgbImage;

/// Longest side, in pixels.
const SIDE: u32 = 256;

/// A small picture: R, G, B and, where there is alpha, A.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thumbnail {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
    alpha: Option<Vec<u8>>,
}

/// The stored pixels as a program shows them that knows neither profiles nor orientation.
///
/// # Errors
/// [`Code::Internal`] where the resizer refuses.
pub fn before(decoded: &Decoded<'_>) -> Result<Thumbnail, Failure> {
    let (kind, data): (PixelType, Cow<'_, [u8]>) = match &decoded.pixels {
        Pixels::Gray8(data) => (PixelType::U8, Cow::Borrowed(data)),
        Pixels::Rgb8(data) | Pixels::Lab8(data) => (PixelType::U8x3, Cow::Borrowed(data)),
        Pixels::Cmyk8(data) => (PixelType::U8x4, Cow::Borrowed(data)),
        Pixels::Gray16(data) => (PixelType::U8, Cow::Owned(to_8_bits(data))),
        Pixels::Rgb16(data) => (PixelType::U8x3, Cow::Owned(to_8_bits(data))),
        Pixels::Cmyk16(data) => (PixelType::U8x4, Cow::Owned(to_8_bits(data))),
    };
    let from = (decoded.width, decoded.height);
    let small = resize(from, kind, &data)?;
    let rgb = match kind {
        PixelType::U8 => small.iter().flat_map(|&gray| [gray; 3]).collect(),
        PixelType::U8x4 => small.as_chunks::<4>().0.iter().flat_map(|&inks| without_inks(inks)).collect(),
        _ => small,
    };
    finish(from, rgb, decoded.alpha.as_deref(), Orientation::UPRIGHT)
}

/// The picture as it is meant: sRGB and upright.
///
/// # Errors
/// As [`before`].
pub fn after(image: &SrgbImage) -> Result<Thumbnail, Failure> {
    let from = (image.width(), image.height());
    let rgb = resize(from, PixelType::U8x3, image.rgb())?;
    finish(from, rgb, image.alpha(), image.orientation())
}

fn without_inks([c, m, y, k]: [u8; 4]) -> [u8; 3] {
    let light = |ink: u8| u16::from(255 - ink) * u16::from(255 - k) / 255;
    [c, m, y].map(|ink| u8::try_from(light(ink)).unwrap_or(u8::MAX))
}

fn finish(from: (u32, u32), rgb: Vec<u8>, alpha: Option<&[u8]>, turn: Orientation) -> Result<Thumbnail, Failure> {
    let alpha = alpha.map(|alpha| resize(from, PixelType::U8, alpha)).transpose()?;
    let (stored_width, stored_height) = small(from);
    let (width, height) = turn.size(stored_width, stored_height);
    let (colours, _) = rgb.as_chunks::<3>();
    let stored: Vec<usize> = (0..height as usize)
        .flat_map(|y| (0..width as usize).map(move |x| (x, y)))
        .map(|(x, y)| turn.stored(x, y, stored_width as usize, stored_height as usize))
        .map(|(x, y)| y * stored_width as usize + x)
        .collect();
    let rgb = stored.iter().flat_map(|&at| colours.get(at).copied().unwrap_or_default()).collect();
    let alpha = alpha.map(|alpha| stored.iter().map(|&at| alpha.get(at).copied().unwrap_or(u8::MAX)).collect());
    Ok(Thumbnail { width, height, rgb, alpha })
}

/// The size of the small picture; one that is small already stays as it is.
fn small((width, height): (u32, u32)) -> (u32, u32) {
    let long = width.max(height);
    if long <= SIDE {
        return (width, height);
    }
    let side = |side: u32| {
        let scaled = (u64::from(side) * u64::from(SIDE) + u64::from(long) / 2) / u64::from(long);
        u32::try_from(scaled).unwrap_or(SIDE).max(1)
    };
    (side(width), side(height))
}

fn resize(from: (u32, u32), kind: PixelType, data: &[u8]) -> Result<Vec<u8>, Failure> {
    let to = small(from);
    if to == from {
        return Ok(data.to_vec());
    }
    let refused = |error: &dyn std::fmt::Display| Failure::new(Code::Internal, format!("no thumbnail: {error}"));
    let source = ImageRef::new(from.0, from.1, data, kind).map_err(|error| refused(&error))?;
    let mut target = Image::new(to.0, to.1, kind);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Box)).use_alpha(false);
    Resizer::new().resize(&source, &mut target, &options).map_err(|error| refused(&error))?;
    Ok(target.into_vec())
}

impl Thumbnail {
    /// Writes it as PNG.
    ///
    /// # Errors
    /// [`Code::Internal`] where the encoder or `out` refuses.
    pub fn write(&self, out: impl Write) -> Result<(), Failure> {
        let mut encoder = Encoder::new(out, self.width, self.height);
        encoder.set_color(if self.alpha.is_some() { ColorType::Rgba } else { ColorType::Rgb });
        encoder.set_depth(BitDepth::Eight);
        encoder.set_compression(Compression::Balanced);
        let refused = |error: png::EncodingError| Failure::new(Code::Internal, format!("no thumbnail: {error}"));
        let mut writer = encoder.write_header().map_err(refused)?;
        writer.write_image_data(&self.interleaved()).map_err(refused)?;
        writer.finish().map_err(refused)
    }

    fn interleaved(&self) -> Cow<'_, [u8]> {
        let Some(alpha) = &self.alpha else { return Cow::Borrowed(&self.rgb) };
        let pixels = self.rgb.as_chunks::<3>().0.iter().zip(alpha);
        Cow::Owned(pixels.flat_map(|(&[r, g, b], &a)| [r, g, b, a]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repair::Meaning;

    #[test]
    fn long_side_is_bounded_and_small_pictures_stay() {
        assert_eq!(small((4032, 3024)), (256, 192));
        assert_eq!(small((1, 60_000)), (1, 256));
        assert_eq!(small((48, 32)), (48, 32));
    }

    #[test]
    fn before_is_as_stored_and_after_is_upright() {
        let orientation = Orientation::from_exif(6).unwrap();
        let pixels = Pixels::Rgb8(vec![1, 1, 1, 2, 2, 2]);
        let decoded = Decoded { width: 2, height: 1, pixels, alpha: None, orientation, meaning: Meaning::Srgb };
        let image = SrgbImage::claim(2, 1, vec![1, 1, 1, 2, 2, 2], None, orientation).unwrap();
        let (before, after) = (before(&decoded).unwrap(), after(&image).unwrap());
        assert_eq!((before.width, before.height, after.width, after.height), (2, 1, 1, 2));
        assert_eq!((before.rgb, after.rgb), (vec![1, 1, 1, 2, 2, 2], vec![1, 1, 1, 2, 2, 2]));
    }

    #[test]
    fn inks_are_shown_as_the_light_that_they_leave() {
        assert_eq!(without_inks([0, 255, 0, 0]), [255, 0, 255]);
        assert_eq!(without_inks([0, 0, 0, 255]), [0, 0, 0]);
    }
}
