//! GIF through the gif crate: the first frame on its canvas, transparent where it does not reach.

use std::io::Cursor;
use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, DecodingError, MemoryLimit};
use refmill::failure::{Code, Failure};
use refmill::limits::Limits;

use super::{Pixels, Raster, corrupt, pixel_budget, split_alpha, unless_opaque};
use crate::container::Header;

/// Decodes the first frame onto the canvas that the header names.
pub(super) fn decode(bytes: &[u8], header: &Header, limits: &Limits) -> Result<Raster, Failure> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::RGBA);
    let budget = NonZeroU64::new(pixel_budget(limits) as u64).unwrap_or(NonZeroU64::MIN);
    options.set_memory_limit(MemoryLimit::Bytes(budget));
    let mut decoder = options.read_info(Cursor::new(bytes)).map_err(|error| failure(&error))?;
    let frame = decoder.read_next_frame().map_err(|error| failure(&error))?;
    let frame = frame.ok_or_else(|| corrupt("gif: no frame"))?;
    let (width, height) = (header.width as usize, header.height as usize);
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    let mut canvas = vec![0; width * height * 4];
    let row_bytes = usize::from(frame.width) * 4;
    for (y, row) in frame.buffer.chunks_exact(row_bytes.max(1)).enumerate() {
        let start = ((top + y) * width + left) * 4;
        let target = canvas.get_mut(start..start + row_bytes);
        target.ok_or_else(|| corrupt("gif: first frame lies outside its canvas"))?.copy_from_slice(row);
    }
    let (rgb, alpha) = split_alpha(&canvas, 3);
    Ok(Raster { width: header.width, height: header.height, pixels: Pixels::Rgb8(rgb), alpha: unless_opaque(alpha) })
}

fn failure(error: &DecodingError) -> Failure {
    let code = match error {
        DecodingError::OutOfMemory => Code::OverLimit,
        DecodingError::Io(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => Code::Truncated,
        _ => Code::Corrupt,
    };
    Failure::new(code, format!("gif: {}", error.to_string().to_lowercase().trim_end_matches('.')))
}
