//! WebP: still pictures through libwebp, the first frame of animations through the image crate.

use std::io::Cursor;

use image::codecs::webp::WebPDecoder;
use refmill::failure::Failure;
use refmill::limits::Limits;

use super::{Pixels, Raster, corrupt, raster, split_alpha, unless_opaque};
use crate::container::Header;

/// Decodes the picture, or the first frame on its canvas.
pub(super) fn decode(bytes: &[u8], header: &Header, limits: &Limits) -> Result<Raster, Failure> {
    if let Some(picture) = webp::Decoder::new(bytes).decode() {
        let (width, height) = (picture.width(), picture.height());
        let (pixels, alpha) = if picture.is_alpha() {
            let (rgb, alpha) = split_alpha(&picture, 3);
            (Pixels::Rgb8(rgb), unless_opaque(alpha))
        } else {
            (Pixels::Rgb8(picture.to_vec()), None)
        };
        return Ok(Raster { width, height, pixels, alpha });
    }
    if header.frames < 2 && !is_animation(bytes) {
        return Err(corrupt("libwebp does not decode the picture"));
    }
    // libwebp's animation decoder wants every frame in memory; this one stops after the first.
    let decoder = WebPDecoder::new(Cursor::new(bytes))
        .map_err(|error| corrupt(format!("webp: {}", error.to_string().to_lowercase())))?;
    raster::decode(decoder, "webp", limits)
}

fn is_animation(bytes: &[u8]) -> bool {
    crate::bytes::u8_at(bytes, 20).is_some_and(|flags| flags & 2 != 0)
        && crate::bytes::slice(bytes, 12, 4) == Some(b"VP8X")
}
