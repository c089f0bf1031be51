//! The clean aperture (ISO/IEC 14496-12 12.1.4) of AVIF and HEIC, applied here where libheif cannot: libheif 1.23
//! bounds the coded frame by the size after cropping, and refuses frames that are cropped by much.

use super::{Pixels, Raster};
use crate::bytes::{Order, slice, u32_at};

/// A crop in coded pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crop {
    /// Left edge.
    pub left: usize,
    /// Top edge.
    pub top: usize,
    /// Width.
    pub width: usize,
    /// Height.
    pub height: usize,
}

/// The file with its one clean aperture box renamed to a box that changes no pixel, and the crop that it asked for of
/// a coded frame of `width` x `height`. `None` where there is none, more than one, or a rotation or mirroring too.
pub fn uncropped(bytes: &[u8], width: u32, height: u32) -> Option<(Vec<u8>, Crop)> {
    let mut found = memchr::memmem::find_iter(bytes, b"clap");
    let (at, others) = (found.next()?, found.next());
    let turned = [b"irot", b"imir"].iter().any(|name| memchr::memmem::find(bytes, name.as_slice()).is_some());
    if others.is_some() || turned || u32_at(bytes, at.checked_sub(4)?, Order::Big)? != 40 {
        return None;
    }
    let crop = crop(slice(bytes, at + 4, 32)?, width, height)?;
    let mut renamed = bytes.to_vec();
    renamed.get_mut(at..at + 4)?.copy_from_slice(b"pasp");
    Some((renamed, crop))
}

fn crop(values: &[u8], width: u32, height: u32) -> Option<Crop> {
    let number = |index: usize| u32_at(values, index * 4, Order::Big);
    let whole = |index| Some(number(index)? / number(index + 1).filter(|below| *below > 0)?);
    let offset = |index| {
        let below = f64::from(number(index + 1)?.cast_signed());
        (below > 0.0).then_some(f64::from(number(index)?.cast_signed()) / below)
    };
    let (w, h) = (whole(0)?, whole(2)?);
    let edge = |coded: u32, clean: u32, shift: f64| {
        let edge = (f64::from(coded) - f64::from(clean)) / 2.0 + shift;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to lie in the frame")]
        let start = (edge >= 0.0 && edge + f64::from(clean) <= f64::from(coded)).then_some(edge as usize);
        start
    };
    let crop = Crop {
        left: edge(width, w, offset(4)?)?,
        top: edge(height, h, offset(6)?)?,
        width: w as usize,
        height: h as usize,
    };
    (w > 0 && h > 0).then_some(crop)
}

/// The part of a decoded frame inside the crop.
pub(super) fn cut(raster: Raster, crop: Crop) -> Raster {
    let row = raster.width as usize;
    let pixels = match raster.pixels {
        Pixels::Gray8(data) => Pixels::Gray8(apply(&data, row, 1, crop)),
        Pixels::Gray16(data) => Pixels::Gray16(apply(&data, row, 1, crop)),
        Pixels::Rgb8(data) => Pixels::Rgb8(apply(&data, row, 3, crop)),
        Pixels::Rgb16(data) => Pixels::Rgb16(apply(&data, row, 3, crop)),
        other => other,
    };
    let alpha = raster.alpha.map(|alpha| apply(&alpha, row, 1, crop));
    let side = |side: usize| u32::try_from(side).unwrap_or(0);
    Raster { width: side(crop.width), height: side(crop.height), pixels, alpha }
}

/// The cropped pixels of a frame of `width` pixels a row, of `channels` samples each.
fn apply<T: Copy>(data: &[T], width: usize, channels: usize, crop: Crop) -> Vec<T> {
    let rows = data.chunks_exact(width * channels).skip(crop.top).take(crop.height);
    let columns = crop.left * channels..(crop.left + crop.width) * channels;
    rows.filter_map(|row| row.get(columns.clone())).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(numbers: [u32; 8]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    #[test]
    fn centred_aperture_is_cut_evenly() {
        let crop = crop(&values([4, 1, 2, 1, 0, 1, 0, 1]), 8, 6).unwrap();
        assert_eq!(crop, Crop { left: 2, top: 2, width: 4, height: 2 });
    }

    #[test]
    fn negative_offset_moves_to_the_left() {
        let crop = crop(&values([4, 1, 6, 1, (-2i32).cast_unsigned(), 1, 0, 1]), 8, 6).unwrap();
        assert_eq!((crop.left, crop.top), (0, 0));
    }

    #[test]
    fn aperture_outside_the_frame_is_none() {
        assert_eq!(crop(&values([9, 1, 2, 1, 0, 1, 0, 1]), 8, 6), None);
        assert_eq!(crop(&values([4, 0, 2, 1, 0, 1, 0, 1]), 8, 6), None);
    }

    #[test]
    fn apply_keeps_the_pixels_inside() {
        let crop = Crop { left: 1, top: 1, width: 2, height: 1 };
        assert_eq!(apply(&[0, 1, 2, 3, 4, 5, 6, 7, 8], 3, 1, crop), [4, 5]);
    }
}
