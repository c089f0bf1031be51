//! Turning a small resampled picture upright. After resampling, since a megapixel turns much faster than twelve.

use crate::orientation::Orientation;

/// Turns `stored`, of `width` pixels a row and `N` bytes a pixel, into `upright`, of as many bytes. Bytes that do
/// not make a whole picture are left alone.
pub(super) fn turn<const N: usize>(stored: &[u8], width: usize, orientation: Orientation, upright: &mut [u8]) {
    let (stored, _) = stored.as_chunks::<N>();
    let (upright, _) = upright.as_chunks_mut::<N>();
    let height = stored.len().checked_div(width).unwrap_or(0);
    let (row, rows) = if orientation.swaps_axes() { (height, width) } else { (width, height) };
    for (y, target) in upright.chunks_exact_mut(row.max(1)).take(rows).enumerate() {
        let line = if orientation.mirrors_y() { rows - 1 - y } else { y };
        if orientation.swaps_axes() {
            let column = stored.iter().skip(line).step_by(width);
            fill(target, column, orientation.mirrors_x());
        } else {
            let line = stored.iter().skip(line * width).take(width);
            fill(target, line, orientation.mirrors_x());
        }
    }
}

fn fill<'a, const N: usize>(
    target: &mut [[u8; N]],
    source: impl DoubleEndedIterator<Item = &'a [u8; N]> + ExactSizeIterator,
    backwards: bool,
) {
    if backwards {
        target.iter_mut().zip(source.rev()).for_each(|(to, from)| *to = *from);
    } else {
        target.iter_mut().zip(source).for_each(|(to, from)| *to = *from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(value: u32, width: usize, height: usize) -> Vec<u8> {
        let orientation = Orientation::from_exif(value).unwrap();
        let (w, h) = orientation.size(width as u32, height as u32);
        let mut out = Vec::new();
        for y in 0..h as usize {
            for x in 0..w as usize {
                let (sx, sy) = orientation.stored(x, y, width, height);
                out.push((sy * width + sx) as u8);
            }
        }
        out
    }

    #[test]
    fn turn_follows_the_orientation_type() {
        let stored: Vec<u8> = (0..35).collect();
        for value in 1..=8 {
            let mut upright = vec![0; 35];
            turn::<1>(&stored, 7, Orientation::from_exif(value).unwrap(), &mut upright);
            assert_eq!(upright, expected(value, 7, 5), "orientation {value}");
        }
    }

    #[test]
    fn turn_keeps_the_bytes_of_a_pixel_together() {
        let mut upright = [0; 6];
        turn::<3>(&[1, 2, 3, 4, 5, 6], 2, Orientation::from_exif(2).unwrap(), &mut upright);
        assert_eq!(upright, [4, 5, 6, 1, 2, 3]);
    }
}
