//! Encodes the repaired image: PNG, 8-bit sRGB, upright, alpha kept.

use std::io::Write;

use png::{BitDepth, ColorType, Compression, Encoder, SrgbRenderingIntent};
use refmill::failure::{Code, Failure};

use crate::srgb::SrgbImage;

/// Writes the image upright into `out`, row by row.
///
/// # Errors
/// [`Code::Internal`] where the encoder or `out` refuses.
pub fn png(image: &SrgbImage, out: impl Write) -> Result<(), Failure> {
    let (width, height) = image.upright_size();
    let mut encoder = Encoder::new(out, width, height);
    encoder.set_color(if image.alpha().is_some() { ColorType::Rgba } else { ColorType::Rgb });
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Fast);
    encoder.set_source_srgb(SrgbRenderingIntent::RelativeColorimetric);
    let mut writer = encoder.write_header().map_err(|error| failure(&error))?;
    let mut stream = writer.stream_writer().map_err(|error| failure(&error))?;
    let mut row = Vec::new();
    for y in 0..height as usize {
        upright_row(image, y, &mut row);
        stream.write_all(&row).map_err(|error| failure(&png::EncodingError::IoError(error)))?;
    }
    stream.finish().map_err(|error| failure(&error))
}

/// The upright row `y`, RGB or RGBA.
fn upright_row(image: &SrgbImage, y: usize, row: &mut Vec<u8>) {
    let orientation = image.orientation();
    let (width, height) = (image.width() as usize, image.height() as usize);
    let (upright_width, _) = image.upright_size();
    row.clear();
    let (pixels, _) = image.rgb().as_chunks::<3>();
    for x in 0..upright_width as usize {
        let (sx, sy) = orientation.stored(x, y, width, height);
        let at = sy * width + sx;
        row.extend_from_slice(pixels.get(at).map_or(&[0; 3], |pixel| pixel));
        if let Some(alpha) = image.alpha() {
            row.push(alpha.get(at).copied().unwrap_or(u8::MAX));
        }
    }
}

fn failure(error: &png::EncodingError) -> Failure {
    Failure::new(Code::Internal, format!("repaired image could not be encoded: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orientation::Orientation;

    #[test]
    fn image_is_written_upright_with_its_alpha() {
        let rgb = vec![10, 10, 10, 20, 20, 20];
        let orientation = Orientation::from_exif(6).unwrap();
        let image = SrgbImage::claim(2, 1, rgb, Some(vec![255, 7]), orientation).unwrap();
        let mut file = Vec::new();
        png(&image, &mut file).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().unwrap();
        let mut data = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut data).unwrap();
        assert_eq!((reader.info().width, reader.info().height), (1, 2));
        assert_eq!(data, [10, 10, 10, 255, 20, 20, 20, 7]);
    }
}
