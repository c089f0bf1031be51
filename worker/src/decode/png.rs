//! PNG through the png crate: 16-bit kept, palettes and small depths expanded, transparency as alpha.

use std::io::Cursor;

use png::{BitDepth, ColorType, DecodeOptions, Decoder, Transformations};
use refmill::failure::{Code, Failure};
use refmill::limits::Limits;

use super::{Pixels, Raster, corrupt, pixel_budget, split_alpha, to_8_bits, unless_opaque};

/// Decodes the default image.
pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<Raster, Failure> {
    let mut options = DecodeOptions::default();
    // A wrong CRC was found before; whether the pixels are whole is proved by the zlib checksum.
    options.set_ignore_crc(true);
    options.set_ignore_adler32(false);
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = Decoder::new_with_options(Cursor::new(bytes), options);
    decoder.set_limits(png::Limits { bytes: pixel_budget(limits) });
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(|error| failure(&error))?;
    let size = reader.output_buffer_size().ok_or_else(|| corrupt("image size does not fit this machine"))?;
    if size > pixel_budget(limits) {
        return Err(Failure::over_limit("decoded size in bytes", size as u64, pixel_budget(limits) as u64));
    }
    let mut data = vec![0; size];
    let info = reader.next_frame(&mut data).map_err(|error| failure(&error))?;
    data.truncate(info.buffer_size());
    let (pixels, alpha) = match info.bit_depth {
        BitDepth::Sixteen => sixteen(&data, info.color_type)?,
        _ => eight(data, info.color_type)?,
    };
    Ok(Raster { width: info.width, height: info.height, pixels, alpha: alpha.and_then(unless_opaque) })
}

fn eight(data: Vec<u8>, kind: ColorType) -> Result<(Pixels, Option<Vec<u8>>), Failure> {
    Ok(match kind {
        ColorType::Grayscale => (Pixels::Gray8(data), None),
        ColorType::Rgb => (Pixels::Rgb8(data), None),
        ColorType::GrayscaleAlpha => {
            let (gray, alpha) = split_alpha(&data, 1);
            (Pixels::Gray8(gray), Some(alpha))
        }
        ColorType::Rgba => {
            let (rgb, alpha) = split_alpha(&data, 3);
            (Pixels::Rgb8(rgb), Some(alpha))
        }
        ColorType::Indexed => return Err(corrupt("decoder gives palette indices where colours were asked for")),
    })
}

fn sixteen(data: &[u8], kind: ColorType) -> Result<(Pixels, Option<Vec<u8>>), Failure> {
    let samples: Vec<u16> = data.as_chunks().0.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
    Ok(match kind {
        ColorType::Grayscale => (Pixels::Gray16(samples), None),
        ColorType::Rgb => (Pixels::Rgb16(samples), None),
        ColorType::GrayscaleAlpha => {
            let (gray, alpha) = split_alpha(&samples, 1);
            (Pixels::Gray16(gray), Some(to_8_bits(&alpha)))
        }
        ColorType::Rgba => {
            let (rgb, alpha) = split_alpha(&samples, 3);
            (Pixels::Rgb16(rgb), Some(to_8_bits(&alpha)))
        }
        ColorType::Indexed => return Err(corrupt("16-bit palette")),
    })
}

fn failure(error: &png::DecodingError) -> Failure {
    let code = match error {
        png::DecodingError::LimitsExceeded => Code::OverLimit,
        png::DecodingError::IoError(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => Code::Truncated,
        _ => Code::Corrupt,
    };
    Failure::new(code, format!("png: {}", error.to_string().to_lowercase().trim_end_matches('.')))
}
