//! TIFF through the tiff crate: strips and tiles, planar or not, 1 to 16 bits, CMYK and Lab as they are.

use std::borrow::Cow;
use std::io::Cursor;

use refmill::failure::{Code, Failure};
use refmill::limits::Limits;
use tiff::decoder::{Decoder, DecodingResult};
use tiff::tags::Tag;
use tiff::{ColorType, TiffError};

use crate::ifd::Tiff;

use super::{Pixels, Raster, corrupt, pixel_budget, split_alpha, to_8_bits, unless_opaque};

const BLACK_IS_ZERO: u16 = 1;
const RGB: u16 = 2;
const PALETTE: u16 = 3;
const CIE_LAB: u16 = 8;
const ICC_LAB: u16 = 9;

/// Decodes the first page.
pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<Raster, Failure> {
    let (bytes, photometric) = readable(bytes);
    let mut bounds = tiff::decoder::Limits::default();
    bounds.decoding_buffer_size = pixel_budget(limits);
    bounds.intermediate_buffer_size = pixel_budget(limits);
    bounds.ifd_value_size = usize::try_from(limits.metadata_bytes).unwrap_or(usize::MAX);
    let mut decoder = Decoder::new(Cursor::new(bytes.as_ref())).map_err(|error| failure(&error))?.with_limits(bounds);
    let (width, height) = decoder.dimensions().map_err(|error| failure(&error))?;
    limits.check_dimensions(width, height)?;
    let colour = decoder.colortype().map_err(|error| failure(&error))?;
    let area = width as usize * height as usize;
    let premultiplied = number(&mut decoder, Tag::ExtraSamples)? == Some(1);
    let is_palette = photometric == Some(PALETTE);
    let samples = read(&mut decoder, colour, area, is_palette)?;
    let page = Page { colour, area, premultiplied, photometric };
    let (pixels, alpha) = page.arrange(samples, &mut decoder)?;
    Ok(Raster { width, height, pixels, alpha: alpha.and_then(unless_opaque) })
}

type Source<'a> = Decoder<Cursor<&'a [u8]>>;

fn number(decoder: &mut Source<'_>, tag: Tag) -> Result<Option<u32>, Failure> {
    decoder
        .find_tag_unsigned_vec(tag)
        .map(|values| values.and_then(|v| v.first().copied()))
        .map_err(|error| failure(&error))
}

/// Samples scaled to 8 or 16 bits, interleaved.
enum Samples {
    Eight(Vec<u8>),
    Sixteen(Vec<u16>),
}

fn read(decoder: &mut Source<'_>, colour: ColorType, area: usize, is_palette: bool) -> Result<Samples, Failure> {
    let planes = decoder.image_buffer_layout().map_err(|error| failure(&error))?.planes;
    let mut result = DecodingResult::U8(Vec::new());
    decoder.read_image_to_buffer(&mut result).map_err(|error| failure(&error))?;
    let channels = usize::from(colour.num_samples());
    match result {
        DecodingResult::U8(data) => {
            let data = match colour.bit_depth() {
                8 => data,
                bits @ (1 | 2 | 4) => unpack(&data, bits, channels, is_palette, decoder)?,
                bits => return Err(unsupported(format!("{bits} bits a sample"))),
            };
            Ok(Samples::Eight(interleave(data, planes, area)))
        }
        DecodingResult::U16(data) => Ok(Samples::Sixteen(interleave(data, planes, area))),
        DecodingResult::U32(data) => sixteen(data, planes, area, |sample| f64::from(sample) / f64::from(u32::MAX)),
        DecodingResult::F16(data) => sixteen(data, planes, area, |sample| f64::from(sample.to_f32())),
        DecodingResult::F32(data) => sixteen(data, planes, area, f64::from),
        DecodingResult::F64(data) => sixteen(data, planes, area, |sample| sample),
        _ => Err(unsupported("signed or 64-bit whole samples".into())),
    }
}

/// Samples over 0 to 1 at 16 bits; floats outside, and those that are no number, go to the nearer end.
fn sixteen<T: Copy + Default>(
    data: Vec<T>,
    planes: usize,
    area: usize,
    light: impl Fn(T) -> f64,
) -> Result<Samples, Failure> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded first; NaN becomes 0")]
    let scale = |sample: T| (light(sample).clamp(0.0, 1.0) * 65_535.0).round() as u16;
    Ok(Samples::Sixteen(interleave(data.into_iter().map(scale).collect(), planes, area)))
}

/// Planes one after the other become pixels.
fn interleave<T: Copy + Default>(data: Vec<T>, planes: usize, area: usize) -> Vec<T> {
    if planes < 2 {
        return data;
    }
    let mut out = vec![T::default(); data.len()];
    for (plane, samples) in data.chunks(area).enumerate() {
        for (pixel, sample) in out.chunks_exact_mut(planes).zip(samples) {
            if let Some(slot) = pixel.get_mut(plane) {
                *slot = *sample;
            }
        }
    }
    out
}

/// Samples of fewer than 8 bits, rows padded to bytes. Palette indices stay as they are, others are scaled.
fn unpack(
    data: &[u8],
    bits: u8,
    channels: usize,
    is_palette: bool,
    decoder: &mut Source<'_>,
) -> Result<Vec<u8>, Failure> {
    let (width, height) = decoder.dimensions().map_err(|error| failure(&error))?;
    let row_bytes = (width as usize * channels * usize::from(bits)).div_ceil(8);
    if data.len() < row_bytes * height as usize {
        return Err(corrupt(format!("{} bytes for {height} rows of {row_bytes}", data.len())));
    }
    let (per_byte, mask) = (8 / bits, (1u8 << bits) - 1);
    let scale = if is_palette { 1 } else { 255 / mask };
    let mut out = Vec::with_capacity(width as usize * height as usize * channels);
    for row in data.chunks_exact(row_bytes).take(height as usize) {
        let samples = row.iter().flat_map(|byte| (0..per_byte).map(move |i| byte >> (8 - bits * (i + 1)) & mask));
        out.extend(samples.take(width as usize * channels).map(|sample| sample * scale));
    }
    Ok(out)
}

struct Page {
    colour: ColorType,
    area: usize,
    premultiplied: bool,
    photometric: Option<u16>,
}

/// The file as the tiff crate reads it, and the photometric interpretation that it has: the chain of IFDs is cut
/// after the first where it runs into itself, L*a*b* passes as RGB and a palette's indices as gray.
fn readable(bytes: &[u8]) -> (Cow<'_, [u8]>, Option<u16>) {
    let Some((tiff, first)) = Tiff::new(bytes).and_then(|tiff| Some((tiff, tiff.ifd(tiff.first)?))) else {
        return (Cow::Borrowed(bytes), None);
    };
    let entry = first.find(Tag::PhotometricInterpretation.to_u16());
    let photometric = entry.and_then(|entry| u16::try_from(entry.number(0)?).ok());
    let stand_in = match photometric {
        Some(CIE_LAB | ICC_LAB) => Some(RGB),
        Some(PALETTE) => Some(BLACK_IS_ZERO),
        _ => None,
    };
    let (_, looped) = tiff.chain();
    if !looped && stand_in.is_none() {
        return (Cow::Borrowed(bytes), photometric);
    }
    let mut patched = bytes.to_vec();
    if let Some(next) = patched.get_mut(first.next_at..first.next_at + tiff.offset_bytes()) {
        next.fill(0);
    }
    if let (Some(entry), Some(value)) = (entry, stand_in) {
        let at = entry.offset + 4 + tiff.offset_bytes();
        if let Some(target) = patched.get_mut(at..at + 2) {
            target.copy_from_slice(&tiff.short(value));
        }
    }
    (Cow::Owned(patched), photometric)
}

impl Page {
    fn arrange(&self, samples: Samples, decoder: &mut Source<'_>) -> Result<(Pixels, Option<Vec<u8>>), Failure> {
        match (self.colour, samples) {
            (ColorType::Gray(_), Samples::Eight(data)) if self.photometric == Some(PALETTE) => {
                Ok((Pixels::Rgb16(palette(&data, decoder)?), None))
            }
            (ColorType::RGB(_), Samples::Eight(data)) if matches!(self.photometric, Some(CIE_LAB | ICC_LAB)) => {
                Ok((self.lab(data), None))
            }
            (ColorType::Gray(_), Samples::Eight(data)) => Ok((Pixels::Gray8(data), None)),
            (ColorType::Gray(_), Samples::Sixteen(data)) => Ok((Pixels::Gray16(data), None)),
            (ColorType::GrayA(_), Samples::Eight(data)) => {
                let (gray, alpha) = self.straight8(&data, 1);
                Ok((Pixels::Gray8(gray), Some(alpha)))
            }
            (ColorType::GrayA(_), Samples::Sixteen(data)) => {
                let (gray, alpha) = self.straight16(&data, 1);
                Ok((Pixels::Gray16(gray), Some(alpha)))
            }
            (ColorType::RGB(_), Samples::Eight(data)) => Ok((Pixels::Rgb8(data), None)),
            (ColorType::RGB(_), Samples::Sixteen(data)) => Ok((Pixels::Rgb16(data), None)),
            (ColorType::RGBA(_), Samples::Eight(data)) => {
                let (rgb, alpha) = self.straight8(&data, 3);
                Ok((Pixels::Rgb8(rgb), Some(alpha)))
            }
            (ColorType::RGBA(_), Samples::Sixteen(data)) => {
                let (rgb, alpha) = self.straight16(&data, 3);
                Ok((Pixels::Rgb16(rgb), Some(alpha)))
            }
            (ColorType::CMYK(_), Samples::Eight(data)) => Ok((Pixels::Cmyk8(data), None)),
            (ColorType::CMYK(_), Samples::Sixteen(data)) => Ok((Pixels::Cmyk16(data), None)),
            (ColorType::YCbCr(_), Samples::Eight(data)) => Ok((Pixels::Rgb8(ycbcr(data)), None)),
            (ColorType::Multiband { num_samples, .. }, samples) => self.multiband(samples, num_samples),
            (other, _) => Err(unsupported(format!("{other:?}"))),
        }
    }

    fn straight8(&self, data: &[u8], colours: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut colour, alpha) = split_alpha(data, colours);
        if self.premultiplied {
            for (pixel, &a) in colour.chunks_exact_mut(colours).zip(&alpha) {
                let divide = |code: u8| (u32::from(code) * 255 + u32::from(a) / 2).checked_div(a.into()).unwrap_or(0);
                pixel.iter_mut().for_each(|code| *code = u8::try_from(divide(*code)).unwrap_or(u8::MAX));
            }
        }
        (colour, alpha)
    }

    fn straight16(&self, data: &[u16], colours: usize) -> (Vec<u16>, Vec<u8>) {
        let (mut colour, alpha) = split_alpha(data, colours);
        if self.premultiplied {
            for (pixel, &a) in colour.chunks_exact_mut(colours).zip(&alpha) {
                let divide =
                    |code: u16| (u32::from(code) * 65_535 + u32::from(a) / 2).checked_div(a.into()).unwrap_or(0);
                pixel.iter_mut().for_each(|code| *code = u16::try_from(divide(*code)).unwrap_or(u16::MAX));
            }
        }
        (colour, to_8_bits(&alpha))
    }

    /// CIE L*a*b* keeps a* and b* signed (TIFF 6.0 section 23); ICC's form (photometric 9) is offset already.
    fn lab(&self, mut data: Vec<u8>) -> Pixels {
        if self.photometric == Some(CIE_LAB) {
            for pixel in data.chunks_exact_mut(3) {
                pixel.iter_mut().skip(1).for_each(|code| *code = code.wrapping_add(128));
            }
        }
        Pixels::Lab8(data)
    }

    /// More samples than the photometric interpretation names: the first ones count.
    fn multiband(&self, samples: Samples, count: u16) -> Result<(Pixels, Option<Vec<u8>>), Failure> {
        let colours = match self.photometric {
            Some(0 | 1) => 1,
            Some(2) => 3,
            other => return Err(unsupported(format!("{count} samples with photometric interpretation {other:?}"))),
        };
        let count = usize::from(count);
        let front = |pixel: usize| (0..colours).map(move |c| pixel * count + c);
        match samples {
            Samples::Eight(data) => {
                let kept: Vec<u8> = (0..self.area).flat_map(front).filter_map(|i| data.get(i).copied()).collect();
                Ok((if colours == 1 { Pixels::Gray8(kept) } else { Pixels::Rgb8(kept) }, None))
            }
            Samples::Sixteen(data) => {
                let kept: Vec<u16> = (0..self.area).flat_map(front).filter_map(|i| data.get(i).copied()).collect();
                Ok((if colours == 1 { Pixels::Gray16(kept) } else { Pixels::Rgb16(kept) }, None))
            }
        }
    }
}

/// ColorMap: all reds, all greens, all blues, 16 bits each (TIFF 6.0 section 5).
fn palette(indices: &[u8], decoder: &mut Source<'_>) -> Result<Vec<u16>, Failure> {
    let map: Vec<u16> = decoder.get_tag_u16_vec(Tag::ColorMap).map_err(|error| failure(&error))?;
    let entries = map.len() / 3;
    let mut out = Vec::with_capacity(indices.len() * 3);
    for &index in indices {
        for channel in 0..3 {
            let colour = map.get(channel * entries + usize::from(index)).filter(|_| usize::from(index) < entries);
            out.push(*colour.ok_or_else(|| corrupt(format!("palette index {index}, the palette has {entries}")))?);
        }
    }
    Ok(out)
}

/// ITU-R BT.601 with full range, as JPEG in TIFF uses it.
fn ycbcr(mut data: Vec<u8>) -> Vec<u8> {
    for pixel in data.as_chunks_mut::<3>().0 {
        let [y, cb, cr] = pixel.map(f32::from);
        let (cb, cr) = (cb - 128.0, cr - 128.0);
        let rgb = [y + 1.402 * cr, y - 0.344_136 * cb - 0.714_136 * cr, y + 1.772 * cb];
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to u8's range")]
        let codes = rgb.map(|code| code.round().clamp(0.0, 255.0) as u8);
        *pixel = codes;
    }
    data
}

fn unsupported(what: String) -> Failure {
    Failure::new(Code::Unsupported, format!("TIFF with {what}"))
}

fn failure(error: &TiffError) -> Failure {
    let code = match error {
        TiffError::LimitsExceeded => Code::OverLimit,
        TiffError::UnsupportedError(_) => Code::Unsupported,
        TiffError::IoError(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => Code::Truncated,
        _ => Code::Corrupt,
    };
    Failure::new(code, format!("tiff: {}", error.to_string().to_lowercase().trim_end_matches('.')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiff::encoder::{TiffEncoder, colortype};

    #[test]
    fn float_samples_are_bounded_and_kept_at_16_bits() {
        let mut file = Cursor::new(Vec::new());
        let samples = [0.0f32, 0.5, 2.0, -1.0, f32::NAN, 1.0];
        TiffEncoder::new(&mut file).unwrap().write_image::<colortype::RGB32Float>(2, 1, &samples).unwrap();
        let raster = decode(file.get_ref(), &Limits::default()).unwrap();
        assert_eq!(raster.pixels, Pixels::Rgb16(vec![0, 32_768, 65_535, 0, 0, 65_535]));
    }
}
