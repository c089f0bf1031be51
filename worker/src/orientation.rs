//! The eight EXIF orientations as a type: how stored pixels become upright ones.

/// An orientation as EXIF numbers it (CIPA DC-008 4.6.5, tag 0x0112).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Orientation(u8);

impl Orientation {
    /// Stored upright.
    pub const UPRIGHT: Self = Self(1);

    /// The orientation of an EXIF value; `None` for values that EXIF does not define.
    #[must_use]
    pub fn from_exif(value: u32) -> Option<Self> {
        u8::try_from(value).ok().filter(|value| (1..=8).contains(value)).map(Self)
    }

    /// The EXIF value, 1 to 8.
    #[must_use]
    pub fn exif(self) -> u8 {
        self.0
    }

    /// Whether rows become columns.
    #[must_use]
    pub fn swaps_axes(self) -> bool {
        self.0 >= 5
    }

    /// Whether upright columns run against the stored axis that they come from.
    #[must_use]
    pub fn mirrors_x(self) -> bool {
        matches!(self.0, 2 | 3 | 6 | 7)
    }

    /// Whether upright rows run against the stored axis that they come from.
    #[must_use]
    pub fn mirrors_y(self) -> bool {
        matches!(self.0, 3 | 4 | 7 | 8)
    }

    /// Upright size of an image stored as `width` x `height`, and the other way round.
    #[must_use]
    pub fn size(self, width: u32, height: u32) -> (u32, u32) {
        if self.swaps_axes() { (height, width) } else { (width, height) }
    }

    /// Where the upright pixel `(x, y)` is stored, in an image stored as `width` x `height`.
    #[must_use]
    pub fn stored(self, x: usize, y: usize, width: usize, height: usize) -> (usize, usize) {
        let (w, h) = if self.swaps_axes() { (height, width) } else { (width, height) };
        let x = if self.mirrors_x() { w.saturating_sub(x + 1) } else { x };
        let y = if self.mirrors_y() { h.saturating_sub(y + 1) } else { y };
        if self.swaps_axes() { (y, x) } else { (x, y) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upright reading of the stored picture
    /// ```text
    /// 0 1 2
    /// 3 4 5
    /// ```
    fn upright(value: u32) -> Vec<usize> {
        let orientation = Orientation::from_exif(value).unwrap();
        let (w, h) = orientation.size(3, 2);
        let mut out = Vec::new();
        for y in 0..h as usize {
            for x in 0..w as usize {
                let (sx, sy) = orientation.stored(x, y, 3, 2);
                out.push(sy * 3 + sx);
            }
        }
        out
    }

    #[test]
    fn stored_follows_the_exif_table() {
        assert_eq!(upright(1), [0, 1, 2, 3, 4, 5]);
        assert_eq!(upright(2), [2, 1, 0, 5, 4, 3]);
        assert_eq!(upright(3), [5, 4, 3, 2, 1, 0]);
        assert_eq!(upright(4), [3, 4, 5, 0, 1, 2]);
        assert_eq!(upright(5), [0, 3, 1, 4, 2, 5]);
        assert_eq!(upright(6), [3, 0, 4, 1, 5, 2]);
        assert_eq!(upright(7), [5, 2, 4, 1, 3, 0]);
        assert_eq!(upright(8), [2, 5, 1, 4, 0, 3]);
    }

    #[test]
    fn values_outside_the_table_are_none() {
        assert_eq!(Orientation::from_exif(0), None);
        assert_eq!(Orientation::from_exif(9), None);
    }
}
