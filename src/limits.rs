//! Finite bounds on what one image may cost. Every one is checked before the memory it bounds is allocated.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::{Code, Failure};

/// Bounds on one job. All are strict: an image that exceeds one is refused with [`Code::OverLimit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Encoded input, in bytes.
    pub input_bytes: u64,
    /// Width as stored, in pixels.
    pub width: u32,
    /// Height as stored, in pixels.
    pub height: u32,
    /// Width times height, in pixels; for animated formats of the whole canvas.
    pub pixels: u64,
    /// Frames or pages in the container, although only the first is used.
    pub frames: u32,
    /// Any one metadata block (EXIF, ICC, XMP) once inflated, in bytes.
    pub metadata_bytes: u64,
    /// Everything that a job may produce, in bytes.
    pub output_bytes: u64,
    /// From the job's start in the worker to its last event, in milliseconds; kept by the supervisor's clock.
    pub wall_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            input_bytes: 256 << 20,
            width: 65_500,
            height: 65_500,
            pixels: 100_000_000,
            frames: 10_000,
            metadata_bytes: 16 << 20,
            output_bytes: 1 << 30,
            wall_ms: 60_000,
        }
    }
}

impl Limits {
    /// Checks the dimensions that a header claims.
    ///
    /// # Errors
    /// [`Code::OverLimit`] with the first bound that does not hold; [`Code::Corrupt`] for an empty image.
    pub fn check_dimensions(&self, width: u32, height: u32) -> Result<(), Failure> {
        if width == 0 || height == 0 {
            return Err(Failure::new(Code::Corrupt, format!("header says {width} x {height} pixels, an empty image")));
        }
        self.check("image width in pixels", u64::from(width), u64::from(self.width))?;
        self.check("image height in pixels", u64::from(height), u64::from(self.height))?;
        self.check("image area in pixels", u64::from(width) * u64::from(height), self.pixels)
    }

    /// Checks one value against its bound.
    ///
    /// # Errors
    /// [`Code::OverLimit`] naming `what`, the value and the limit.
    pub fn check(&self, what: &str, value: u64, limit: u64) -> Result<(), Failure> {
        if value > limit { Err(Failure::over_limit(what, value, limit)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_over_the_area_limit_are_refused_with_value_and_limit() {
        let failure = Limits::default().check_dimensions(30_000, 30_000).unwrap_err();
        assert_eq!(failure.code, Code::OverLimit);
        assert_eq!(failure.message, "image area in pixels is 900000000, the limit is 100000000");
    }

    #[test]
    fn dimensions_at_the_limit_are_accepted() {
        assert_eq!(Limits::default().check_dimensions(10_000, 10_000), Ok(()));
    }

    #[test]
    fn empty_image_is_corrupt() {
        assert_eq!(Limits::default().check_dimensions(0, 7).unwrap_err().code, Code::Corrupt);
    }
}
