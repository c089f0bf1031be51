//! Pictures and specs that the tests of both devices share.

use refmill::recipe::{Dtype, Filter, Layout, Normalise, Size, TensorSpec};

use crate::orientation::Orientation;
use crate::srgb::SrgbImage;

/// Numbers that look random and are the same in every run.
pub(crate) struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(count).collect()
    }

    pub fn below(&mut self, bound: u32) -> u32 {
        (self.next() >> 32) as u32 % bound
    }
}

/// A picture of noise: the hardest on overshoot and rounding.
pub(crate) fn noise(width: u32, height: u32, orientation: u32, alpha: bool) -> SrgbImage {
    let area = (width * height) as usize;
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15 ^ u64::from(width) << 32 ^ u64::from(height));
    let rgb = noise.bytes(3 * area);
    let alpha = alpha.then(|| noise.bytes(area));
    SrgbImage::claim(width, height, rgb, alpha, Orientation::from_exif(orientation).unwrap()).unwrap()
}

/// The same picture, its pixels stored upright.
pub(crate) fn stored_upright(image: &SrgbImage) -> SrgbImage {
    let (w, h) = image.upright_size();
    let (width, height) = (image.width() as usize, image.height() as usize);
    let places = (0..h as usize).flat_map(|y| (0..w as usize).map(move |x| (x, y)));
    let places: Vec<usize> =
        places.map(|(x, y)| image.orientation().stored(x, y, width, height)).map(|(x, y)| y * width + x).collect();
    let rgb = places.iter().flat_map(|at| &image.rgb()[3 * at..3 * at + 3]).copied().collect();
    let alpha = image.alpha().map(|alpha| places.iter().map(|&at| alpha[at]).collect());
    SrgbImage::claim(w, h, rgb, alpha, Orientation::UPRIGHT).unwrap()
}

pub(crate) fn spec(name: &str, size: Size, filter: Filter, layout: Layout, dtype: Dtype) -> TensorSpec {
    let normalise = match dtype {
        Dtype::U8 => Normalise::None,
        Dtype::F32 => Normalise::MeanStd {
            mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
            std: [0.268_629_54, 0.261_302_6, 0.275_777_1],
        },
        Dtype::F16 | Dtype::Bf16 => Normalise::Range { min: -1.0, max: 1.0 },
    };
    TensorSpec { name: name.into(), size, filter, layout, dtype, normalise }
}

/// The 8-bit codes as they are, pixel after pixel.
pub(crate) fn codes(size: Size, filter: Filter) -> TensorSpec {
    spec("codes", size, filter, Layout::Nhwc, Dtype::U8)
}

/// What the built-in recipe for SDXL asks for.
pub(crate) fn sdxl() -> Vec<TensorSpec> {
    let large = Size::Cover { width: 1024, height: 1024 };
    let small = Size::Cover { width: 224, height: 224 };
    let hint = TensorSpec {
        normalise: Normalise::Range { min: 0.0, max: 1.0 },
        ..spec("controlnet_hint", large, Filter::Lanczos3, Layout::Nchw, Dtype::F16)
    };
    let vae = spec("vae_pixels", large, Filter::Lanczos3, Layout::Nchw, Dtype::F16);
    let clip =
        TensorSpec { dtype: Dtype::F16, ..spec("clip_pixels", small, Filter::Bicubic, Layout::Nchw, Dtype::F32) };
    vec![hint, vae, clip]
}

/// The largest difference between two lists of codes.
pub(crate) fn worst(left: &[u8], right: &[u8]) -> u8 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(l, r)| l.abs_diff(*r)).max().unwrap_or(0)
}
