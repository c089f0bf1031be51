//! BMP, and animated WebP, through the image crate.

use std::io::Cursor;

use image::codecs::bmp::BmpDecoder;
use image::{ColorType, ImageDecoder, ImageError};
use refmill::failure::{Code, Failure};
use refmill::limits::Limits;

use super::{Pixels, Raster, corrupt, pixel_budget, split_alpha, unless_opaque};

/// The bitmap, top row first.
pub(super) fn bmp(bytes: &[u8], limits: &Limits) -> Result<Raster, Failure> {
    decode(BmpDecoder::new(Cursor::new(bytes)).map_err(|error| failure("bmp", &error))?, "bmp", limits)
}

/// Decodes with any of the image crate's decoders that gives 8-bit samples.
pub(super) fn decode(mut decoder: impl ImageDecoder, name: &str, limits: &Limits) -> Result<Raster, Failure> {
    let mut bounds = image::Limits::no_limits();
    bounds.max_image_width = Some(limits.width);
    bounds.max_image_height = Some(limits.height);
    bounds.max_alloc = Some(pixel_budget(limits) as u64);
    decoder.set_limits(bounds).map_err(|error| failure(name, &error))?;
    let (width, height) = decoder.dimensions();
    limits.check_dimensions(width, height)?;
    let colour = decoder.color_type();
    let size = usize::try_from(decoder.total_bytes()).map_err(|_| corrupt("image size does not fit this machine"))?;
    let mut data = vec![0; size];
    decoder.read_image(&mut data).map_err(|error| failure(name, &error))?;
    let (pixels, alpha) = match colour {
        ColorType::L8 => (Pixels::Gray8(data), None),
        ColorType::Rgb8 => (Pixels::Rgb8(data), None),
        ColorType::Rgba8 => {
            let (rgb, alpha) = split_alpha(&data, 3);
            (Pixels::Rgb8(rgb), unless_opaque(alpha))
        }
        other => return Err(Failure::new(Code::Unsupported, format!("{name} with {other:?} samples"))),
    };
    Ok(Raster { width, height, pixels, alpha })
}

fn failure(name: &str, error: &ImageError) -> Failure {
    let code = match error {
        ImageError::Limits(_) => Code::OverLimit,
        ImageError::Unsupported(_) => Code::Unsupported,
        ImageError::IoError(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => Code::Truncated,
        _ => Code::Corrupt,
    };
    Failure::new(code, format!("{name}: {}", error.to_string().to_lowercase().trim_end_matches('.')))
}
