//! Turning a small resampled picture upright. After resampling, since a megapixel turns much faster than twelve.

use crate::orientation::Orientation;

/// Upright rows that are written together where axes swap: few enough for their lines to stay in the first cache,
/// which a whole column's do not.
const BAND: usize = 16;

/// Turns `stored`, of `width` pixels a row and `N` bytes a pixel, into `upright`, of as many bytes. Bytes that do
/// not make a whole picture are left alone.
pub(super) fn turn<const N: usize>(stored: &[u8], width: usize, orientation: Orientation, upright: &mut [u8]) {
    let (stored, _) = stored.as_chunks::<N>();
    let (upright, _) = upright.as_chunks_mut::<N>();
    let rows = stored.chunks_exact(width.max(1));
    if orientation.swaps_axes() {
        swap_axes(rows, orientation, upright);
        return;
    }
    let targets = upright.chunks_exact_mut(width.max(1));
    if orientation.mirrors_y() {
        rows.rev().zip(targets).for_each(|(row, target)| fill(target, row, orientation.mirrors_x()));
    } else {
        rows.zip(targets).for_each(|(row, target)| fill(target, row, orientation.mirrors_x()));
    }
}

fn fill<T: Copy>(target: &mut [T], row: &[T], backwards: bool) {
    if backwards {
        target.iter_mut().zip(row.iter().rev()).for_each(|(to, from)| *to = *from);
    } else {
        target.iter_mut().zip(row).for_each(|(to, from)| *to = *from);
    }
}

/// Stored rows become upright columns, a band of upright rows at a time.
fn swap_axes<T: Copy>(rows: std::slice::ChunksExact<'_, T>, orientation: Orientation, upright: &mut [T]) {
    let height = rows.len().max(1);
    for (number, band) in upright.chunks_mut(BAND * height).enumerate() {
        let mut targets: Vec<&mut [T]> = band.chunks_exact_mut(height).collect();
        let first = number * BAND;
        for (y, row) in rows.clone().enumerate() {
            let x = if orientation.mirrors_x() { height - 1 - y } else { y };
            if orientation.mirrors_y() {
                put(&mut targets, x, row.iter().rev().skip(first));
            } else {
                put(&mut targets, x, row.iter().skip(first));
            }
        }
    }
}

#[inline]
fn put<'a, T: Copy + 'a>(targets: &mut [&mut [T]], x: usize, pixels: impl Iterator<Item = &'a T>) {
    for (pixel, target) in pixels.zip(targets) {
        if let Some(place) = target.get_mut(x) {
            *place = *pixel;
        }
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
        let stored: Vec<u8> = (0..=208).collect();
        (1..=8).for_each(|value| {
            let mut upright = vec![0; 209];
            turn::<1>(&stored, 19, Orientation::from_exif(value).unwrap(), &mut upright);
            assert_eq!(upright, expected(value, 19, 11), "orientation {value}");
        });
    }

    #[test]
    fn turn_keeps_the_bytes_of_a_pixel_together() {
        let mut upright = [0; 6];
        turn::<3>(&[1, 2, 3, 4, 5, 6], 2, Orientation::from_exif(2).unwrap(), &mut upright);
        assert_eq!(upright, [4, 5, 6, 1, 2, 3]);
    }
}
