//! Pixels that are sRGB: the only kind that can be uploaded. The type is made by the colour stage alone.

use crate::orientation::Orientation;

/// An image in sRGB, 8 bits a channel, as stored: not yet upright.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SrgbImage {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
    alpha: Option<Vec<u8>>,
    orientation: Orientation,
}

impl SrgbImage {
    /// Claims that `rgb` (interleaved, `3 * width * height` bytes) and `alpha` (`width * height` bytes, straight)
    /// are sRGB. Only the colour stage and tests may claim so; `None` when the lengths do not fit.
    pub(crate) fn claim(
        width: u32,
        height: u32,
        rgb: Vec<u8>,
        alpha: Option<Vec<u8>>,
        orientation: Orientation,
    ) -> Option<Self> {
        let area = (width as usize).checked_mul(height as usize)?;
        let fits = area > 0 && rgb.len() == area.checked_mul(3)? && alpha.as_ref().is_none_or(|a| a.len() == area);
        fits.then_some(Self { width, height, rgb, alpha, orientation })
    }

    /// Stored width in pixels.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Stored height in pixels.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Interleaved R, G, B, rows top to bottom as stored, without padding.
    #[must_use]
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// Straight alpha, one byte a pixel, where the image has any.
    #[must_use]
    pub fn alpha(&self) -> Option<&[u8]> {
        self.alpha.as_deref()
    }

    /// What makes the pixels upright.
    #[must_use]
    pub fn orientation(&self) -> Orientation {
        self.orientation
    }

    /// Upright width and height in pixels.
    #[must_use]
    pub fn upright_size(&self) -> (u32, u32) {
        self.orientation.size(self.width, self.height)
    }

    /// Replaces transparency by `background`; alpha stays as a mask.
    pub fn composite(&mut self, background: [u8; 3]) {
        let Some(alpha) = &self.alpha else { return };
        for (pixel, &a) in self.rgb.chunks_exact_mut(3).zip(alpha) {
            for (code, &back) in pixel.iter_mut().zip(&background) {
                let mixed = (u32::from(*code) * u32::from(a) + u32::from(back) * u32::from(255 - a) + 127) / 255;
                *code = u8::try_from(mixed).unwrap_or(u8::MAX);
            }
        }
    }

    /// Gives the pixel buffers back for the next image.
    #[must_use]
    pub fn into_buffers(self) -> (Vec<u8>, Option<Vec<u8>>) {
        (self.rgb, self.alpha)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composite_mixes_straight_alpha_over_the_background() {
        let mut image =
            SrgbImage::claim(2, 1, vec![255, 0, 0, 9, 9, 9], Some(vec![128, 0]), Orientation::UPRIGHT).unwrap();
        image.composite([0, 0, 255]);
        assert_eq!(image.rgb(), [128, 0, 127, 0, 0, 255]);
    }

    #[test]
    fn claim_of_too_few_bytes_is_none() {
        assert_eq!(SrgbImage::claim(2, 2, vec![0; 11], None, Orientation::UPRIGHT), None);
    }
}
