//! How a profile's own tables space their nodes: the input curves and the size of the grid in `lut8Type` and
//! `lut16Type` (ICC.1:2022 10.10, 10.11). A grid whose nodes fall on those loses next to nothing between them.

use crate::bytes::{Order, u16_at};
use crate::icc;

/// From a channel's codes to places on its axis, both 0 to 1; rising.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Places of evenly spaced codes.
    places: Vec<f64>,
}

impl Axis {
    /// Codes are places.
    pub fn even() -> Self {
        Self { places: vec![0.0, 1.0] }
    }

    /// The place of a code of `levels` values.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
    pub fn position(&self, code: usize, levels: usize) -> f64 {
        let at = code as f64 / (levels - 1) as f64 * (self.places.len() - 1) as f64;
        let below = (at as usize).min(self.places.len().saturating_sub(2));
        let place = |at: usize| self.places.get(at).copied().unwrap_or(1.0);
        place(below) + (place(below + 1) - place(below)) * (at - below as f64)
    }

    /// The code, 0 to 1, at `place`; the nearest end where none is.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small numbers")]
    pub fn code(&self, place: f64) -> f32 {
        let last = (self.places.len() - 1) as f64;
        let above = self.places.partition_point(|&at| at < place);
        let (Some(&high), Some(below)) = (self.places.get(above), above.checked_sub(1)) else {
            return if above == 0 { 0.0 } else { 1.0 };
        };
        let low = self.places.get(below).copied().unwrap_or(high);
        ((below as f64 + (place - low) / (high - low)) / last) as f32
    }
}

/// Nodes an axis and the axes of the tables behind `signature`, or behind `A2B0` where a profile has no such tag;
/// `None` for other kinds of tables and for curves that do not rise.
pub fn axes<const N: usize>(profile: &[u8], signature: &[u8; 4]) -> Option<(usize, [Axis; N])> {
    let tag = icc::tag(profile, signature).or_else(|| icc::tag(profile, b"A2B0"))?;
    let &[channels, _, side, _] = tag.get(8..12)?.first_chunk()?;
    if usize::from(channels) != N {
        return None;
    }
    let (entries, width, start) = match tag.get(..4)? {
        b"mft1" => (256, 1, 48),
        b"mft2" => (usize::from(u16_at(tag, 48, Order::Big)?), 2, 52),
        _ => return None,
    };
    let entry = |at: usize| match width {
        1 => tag.get(start + at).map(|&code| f64::from(code) / 255.0),
        _ => u16_at(tag, start + at * 2, Order::Big).map(|code| f64::from(code) / 65_535.0),
    };
    let mut axes = std::array::from_fn(|_| Axis::even());
    for (channel, axis) in axes.iter_mut().enumerate() {
        let places: Vec<f64> = (0..entries).map(|at| entry(channel * entries + at)).collect::<Option<_>>()?;
        if places.len() < 2 || places.windows(2).any(|pair| pair.first() >= pair.last()) {
            return None;
        }
        *axis = Axis { places };
    }
    Some((usize::from(side), axes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A profile with one tag of two channels, as lut16Type, whose second curve is the square.
    fn profile(curve: &[u16]) -> Vec<u8> {
        let mut tag = b"mft2\0\0\0\0\x02\x03\x09\0".to_vec();
        tag.resize(48, 0);
        tag.extend(u16::try_from(curve.len()).unwrap().to_be_bytes());
        tag.extend(2u16.to_be_bytes());
        let even = (0..curve.len()).map(|at| (at * 65_535 / (curve.len() - 1)) as u16);
        tag.extend(even.chain(curve.iter().copied()).flat_map(u16::to_be_bytes));
        let mut profile = vec![0; 128];
        profile.extend(1u32.to_be_bytes());
        profile.extend(b"A2B0");
        profile.extend(144u32.to_be_bytes());
        profile.extend(u32::try_from(tag.len()).unwrap().to_be_bytes());
        profile.extend(tag);
        profile
    }

    #[test]
    fn curves_and_size_of_a_table_are_read() {
        let (side, [even, square]) = axes::<2>(&profile(&[0, 16_384, 65_535]), b"A2B1").unwrap();
        assert_eq!(side, 9);
        assert!((even.position(128, 256) - 128.0 / 255.0).abs() < 1e-4);
        assert!((square.position(1, 3) - 0.25).abs() < 1e-4);
        assert!((square.code(0.25) - 0.5).abs() < 1e-4 && (square.code(0.625) - 0.75).abs() < 1e-4);
        assert_eq!((square.code(0.0), square.code(1.0)), (0.0, 1.0));
    }

    #[test]
    fn curve_that_does_not_rise_suggests_no_axis() {
        assert_eq!(axes::<2>(&profile(&[0, 40_000, 40_000, 65_535]), b"A2B0"), None);
    }

    #[test]
    fn table_that_is_cut_off_suggests_no_axis() {
        let mut bytes = profile(&[0, 16_384, 65_535]);
        bytes.truncate(bytes.len() - 1);
        assert_eq!(axes::<2>(&bytes, b"A2B0"), None);
    }
}
