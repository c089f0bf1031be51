//! Decodes pixels as stored: no orientation, no colour conversion, 16-bit kept. Dimensions were held to the
//! limits before; a decoder that finds others than the header said is refused.

mod gif;
#[cfg(feature = "heif")]
mod heif;
#[cfg(feature = "heif")]
mod heif_clap;
mod jpeg;
mod png;
mod raster;
mod tiff;
mod webp;

use refmill::failure::{Code, Failure};
use refmill::finding::{Finding, FindingCode};
use refmill::limits::Limits;
use refmill::report::Format;

pub use jpeg::JpegDecoder;

use crate::orientation::Orientation;
use crate::repair::{Meaning, Repaired};

/// Pixels as stored, interleaved, rows top to bottom without padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pixels {
    /// One channel.
    Gray8(Vec<u8>),
    /// One channel, 16 bits.
    Gray16(Vec<u16>),
    /// R, G, B.
    Rgb8(Vec<u8>),
    /// R, G, B, 16 bits.
    Rgb16(Vec<u16>),
    /// C, M, Y, K; 255 is full ink.
    Cmyk8(Vec<u8>),
    /// C, M, Y, K, 16 bits; 65535 is full ink.
    Cmyk16(Vec<u16>),
    /// L* over 0..255, a* and b* plus 128.
    Lab8(Vec<u8>),
}

impl Pixels {
    fn samples(&self) -> (usize, usize) {
        match self {
            Self::Gray8(data) => (data.len(), 1),
            Self::Gray16(data) => (data.len(), 1),
            Self::Rgb8(data) | Self::Lab8(data) => (data.len(), 3),
            Self::Rgb16(data) => (data.len(), 3),
            Self::Cmyk8(data) => (data.len(), 4),
            Self::Cmyk16(data) => (data.len(), 4),
        }
    }
}

/// A decoded image.
#[derive(Debug)]
pub struct Decoded<'a> {
    /// Stored width in pixels.
    pub width: u32,
    /// Stored height in pixels.
    pub height: u32,
    /// Colour channels.
    pub pixels: Pixels,
    /// Straight alpha, 8 bits, where there is any.
    pub alpha: Option<Vec<u8>>,
    /// What makes them upright.
    pub orientation: Orientation,
    /// What the numbers mean.
    pub meaning: Meaning<'a>,
}

/// What a decoder gives, before it is checked against the header.
struct Raster {
    width: u32,
    height: u32,
    pixels: Pixels,
    alpha: Option<Vec<u8>>,
}

/// The decoders and their reused memory.
#[derive(Debug, Default)]
pub struct Decoders {
    jpeg: JpegDecoder,
    spare: Vec<u8>,
}

impl Decoders {
    /// Takes back a pixel buffer for the next image.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() > self.spare.capacity() {
            self.spare = buffer;
        }
    }

    /// Decodes a repaired input.
    ///
    /// # Errors
    /// [`Code::Corrupt`], [`Code::Truncated`] or [`Code::Unsupported`] with the decoder's reason.
    pub fn decode<'a>(
        &mut self,
        repaired: Repaired<'a>,
        limits: &Limits,
        findings: &mut Vec<Finding>,
    ) -> Result<Decoded<'a>, Failure> {
        let Repaired { opened, header, orientation, meaning, .. } = repaired;
        let raster = match opened.format {
            Format::Jpeg => self.jpeg.decode(opened.bytes, &header, std::mem::take(&mut self.spare), findings),
            Format::Png => png::decode(opened.bytes, limits),
            Format::Webp => webp::decode(opened.bytes, &header, limits),
            Format::Tiff => tiff::decode(opened.bytes, limits),
            Format::Gif => gif::decode(opened.bytes, &header, limits),
            Format::Bmp => raster::bmp(opened.bytes, limits),
            #[cfg(feature = "heif")]
            Format::Avif | Format::Heic => heif::decode(opened.bytes, &header, limits),
            #[cfg(not(feature = "heif"))]
            Format::Avif | Format::Heic => Err(Failure::new(Code::Unsupported, "this build reads no AVIF or HEIC")),
        }?;
        check(&raster, header.width, header.height)?;
        if matches!(raster.pixels, Pixels::Gray16(_) | Pixels::Rgb16(_) | Pixels::Cmyk16(_)) {
            let found = format!("{} bits a channel", header.bits);
            findings.push(Finding::new(FindingCode::DepthReduced, "", found));
        }
        let Raster { width, height, pixels, alpha } = raster;
        Ok(Decoded { width, height, pixels, alpha, orientation, meaning })
    }
}

fn check(raster: &Raster, width: u32, height: u32) -> Result<(), Failure> {
    if (raster.width, raster.height) != (width, height) {
        let (w, h) = (raster.width, raster.height);
        return Err(corrupt(format!("decoder gives {w} x {h} pixels, the header says {width} x {height}")));
    }
    let area = width as usize * height as usize;
    let (samples, channels) = raster.pixels.samples();
    if samples != area * channels || raster.alpha.as_ref().is_some_and(|alpha| alpha.len() != area) {
        return Err(corrupt(format!("decoder gives {samples} samples for {area} pixels of {channels} channels")));
    }
    Ok(())
}

fn corrupt(message: impl Into<String>) -> Failure {
    Failure::new(Code::Corrupt, message)
}

/// Most bytes that a decoder may allocate for pixels: eight 16-bit channels of the largest allowed image.
fn pixel_budget(limits: &Limits) -> usize {
    usize::try_from(limits.pixels.saturating_mul(16)).unwrap_or(usize::MAX)
}

/// Splits interleaved samples into colour and alpha.
fn split_alpha<T: Copy>(data: &[T], colours: usize) -> (Vec<T>, Vec<T>) {
    let area = data.len() / (colours + 1);
    let (mut colour, mut alpha) = (Vec::with_capacity(area * colours), Vec::with_capacity(area));
    for pixel in data.chunks_exact(colours + 1) {
        let (front, back) = pixel.split_at(colours);
        colour.extend_from_slice(front);
        alpha.extend_from_slice(back);
    }
    (colour, alpha)
}

/// 16-bit samples to 8 bits, rounded.
pub(crate) fn to_8_bits(samples: &[u16]) -> Vec<u8> {
    samples.iter().map(|&sample| u8::try_from((u32::from(sample) * 255 + 32_767) / 65_535).unwrap_or(u8::MAX)).collect()
}

/// Alpha, unless all of it is opaque: then the image has none worth keeping.
fn unless_opaque(alpha: Vec<u8>) -> Option<Vec<u8>> {
    alpha.iter().any(|&a| a != u8::MAX).then_some(alpha)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_scaled_not_cut() {
        assert_eq!(to_8_bits(&[0, 128, 129, 65_535, 32_768]), [0, 0, 1, 255, 128]);
    }

    #[test]
    fn alpha_is_split_from_colour() {
        assert_eq!(split_alpha(&[1, 2, 3, 9, 4, 5, 6, 8], 3), (vec![1, 2, 3, 4, 5, 6], vec![9, 8]));
    }

    #[test]
    fn decoder_that_contradicts_the_header_is_refused() {
        let raster = Raster { width: 2, height: 1, pixels: Pixels::Gray8(vec![0, 0]), alpha: None };
        assert_eq!(check(&raster, 1, 1).unwrap_err().code, Code::Corrupt);
    }
}
