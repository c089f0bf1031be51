//! AVIF and HEIC through libheif, with the container's own rotation, mirroring and clean aperture applied.

use libheif_rs::{ColorSpace, ImageHandle, LibHeif, RgbChroma};
use refmill::failure::{Code, Failure};
use refmill::limits::Limits;

use super::{Pixels, Raster, corrupt, heif_clap, split_alpha, to_8_bits, unless_opaque};
use crate::container::Header;
use crate::container::heif::{context, is_monochrome, reason};

/// Decodes the primary image.
pub(super) fn decode(bytes: &[u8], header: &Header, limits: &Limits) -> Result<Raster, Failure> {
    let refused = match by_libheif(bytes, header, limits) {
        Ok(raster) => return Ok(raster),
        Err(failure) => failure,
    };
    let coded = context(bytes, limits)?.primary_image_handle().map_err(|error| corrupt(reason(&error)))?;
    let side = |side: i32| u32::try_from(side).unwrap_or(0);
    let (width, height) = (side(coded.ispe_width()), side(coded.ispe_height()));
    limits.check_dimensions(width, height)?;
    let Some((renamed, crop)) = heif_clap::uncropped(bytes, width, height) else { return Err(refused) };
    Ok(heif_clap::cut(by_libheif(&renamed, header, limits)?, crop))
}

fn by_libheif(bytes: &[u8], header: &Header, limits: &Limits) -> Result<Raster, Failure> {
    let mut context = context(bytes, limits)?;
    context.set_max_decoding_threads(0);
    let handle = context.primary_image_handle().map_err(|error| corrupt(reason(&error)))?;
    if is_monochrome(&handle) {
        return monochrome(&handle, limits);
    }
    let deep = handle.luma_bits_per_pixel() > 8;
    let chroma = match (deep, header.alpha) {
        (false, false) => RgbChroma::Rgb,
        (false, true) => RgbChroma::Rgba,
        (true, false) => RgbChroma::HdrRgbLe,
        (true, true) => RgbChroma::HdrRgbaLe,
    };
    let image =
        LibHeif::new().decode(&handle, ColorSpace::Rgb(chroma), None).map_err(|error| corrupt(reason(&error)))?;
    let plane = image.planes().interleaved.ok_or_else(|| corrupt("libheif gives no interleaved pixels"))?;
    limits.check_dimensions(plane.width, plane.height)?;
    let channels = if header.alpha { 4 } else { 3 };
    let row = plane.width as usize * channels * if deep { 2 } else { 1 };
    let rows = plane.data.chunks(plane.stride.max(1)).take(plane.height as usize).map(|line| line.get(..row));
    let mut data = Vec::with_capacity(row * plane.height as usize);
    for line in rows {
        data.extend_from_slice(line.ok_or_else(|| corrupt("libheif gives a row that is too short"))?);
    }
    let (pixels, alpha) =
        if deep { sixteen(&data, plane.bits_per_pixel, header.alpha)? } else { eight(data, header.alpha) };
    Ok(Raster { width: plane.width, height: plane.height, pixels, alpha: alpha.and_then(unless_opaque) })
}

/// Luma alone. libheif leaves its range as coded, so limited range is expanded here (ITU-T H.273 8.3).
fn monochrome(handle: &ImageHandle, limits: &Limits) -> Result<Raster, Failure> {
    let image = LibHeif::new().decode(handle, ColorSpace::Monochrome, None).map_err(|error| corrupt(reason(&error)))?;
    let plane = image.planes().y.ok_or_else(|| corrupt("libheif gives no luma plane"))?;
    limits.check_dimensions(plane.width, plane.height)?;
    let bits = u32::from(plane.bits_per_pixel);
    if !(8..=16).contains(&bits) {
        return Err(Failure::new(Code::Unsupported, format!("HEIF with {bits} bits a sample")));
    }
    let limited = image.color_profile_nclx().is_some_and(|nclx| nclx.full_range_flag() == 0);
    let (low, high) = if limited { (16 << (bits - 8), 235 << (bits - 8)) } else { (0, (1u32 << bits) - 1) };
    let expand = |sample: u32| {
        let above = sample.clamp(low, high) - low;
        u16::try_from((above * 65_535 + (high - low) / 2) / (high - low)).unwrap_or(u16::MAX)
    };
    let width = plane.width as usize;
    let mut samples = Vec::with_capacity(width * plane.height as usize);
    for line in plane.data.chunks(plane.stride.max(1)).take(plane.height as usize) {
        let row = line.get(..width * if bits > 8 { 2 } else { 1 });
        let row = row.ok_or_else(|| corrupt("libheif gives a row that is too short"))?;
        if bits > 8 {
            samples.extend(row.as_chunks().0.iter().map(|pair| expand(u32::from(u16::from_le_bytes(*pair)))));
        } else {
            samples.extend(row.iter().map(|&sample| expand(u32::from(sample))));
        }
    }
    let pixels = if bits > 8 { Pixels::Gray16(samples) } else { Pixels::Gray8(to_8_bits(&samples)) };
    Ok(Raster { width: plane.width, height: plane.height, pixels, alpha: None })
}

fn eight(data: Vec<u8>, alpha: bool) -> (Pixels, Option<Vec<u8>>) {
    if !alpha {
        return (Pixels::Rgb8(data), None);
    }
    let (rgb, alpha) = split_alpha(&data, 3);
    (Pixels::Rgb8(rgb), Some(alpha))
}

/// Samples of 9 to 16 bits are scaled to 16.
fn sixteen(data: &[u8], bits: u8, alpha: bool) -> Result<(Pixels, Option<Vec<u8>>), Failure> {
    if !(9..=16).contains(&bits) {
        return Err(Failure::new(Code::Unsupported, format!("HEIF with {bits} bits a sample")));
    }
    let top = (1u32 << bits) - 1;
    let scale = |pair: &[u8; 2]| {
        let sample = u32::from(u16::from_le_bytes(*pair)).min(top);
        u16::try_from((sample * 65_535 + top / 2) / top).unwrap_or(u16::MAX)
    };
    let samples: Vec<u16> = data.as_chunks().0.iter().map(scale).collect();
    if !alpha {
        return Ok((Pixels::Rgb16(samples), None));
    }
    let (rgb, alpha) = split_alpha(&samples, 3);
    Ok((Pixels::Rgb16(rgb), Some(to_8_bits(&alpha))))
}
