//! The tensors on the CPU, with fast_image_resize. Buffers are kept from one image to the next.

use std::fmt;
use std::time::Instant;

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use refmill::failure::{Code, Failure};
use refmill::recipe::{Dtype, Filter, Layout, TensorSpec};

use super::{Channels, Derivation, Derived, Resampling, Spares, Table, Target, Work, upright};
use crate::orientation::Orientation;
use crate::srgb::SrgbImage;

/// The CPU as a device: one thread.
#[derive(Default)]
pub struct CpuDevice {
    resizer: Resizer,
    stored: Vec<u8>,
    upright: Vec<u8>,
    spares: Spares,
}

impl fmt::Debug for CpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = self.stored.capacity() + self.upright.capacity() + self.spares.held();
        let kept = own + self.resizer.size_of_internal_buffers();
        f.debug_struct("CpuDevice").field("bytes_kept", &kept).finish()
    }
}

impl CpuDevice {
    /// A device that keeps no memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Derives all tensors of `specs`, and a mask of the image's alpha where it has any.
    ///
    /// # Errors
    /// [`Code::Internal`] where the resizer refuses what was planned.
    pub fn derive(&mut self, image: &SrgbImage, specs: &[TensorSpec]) -> Result<Derivation, Failure> {
        let started = Instant::now();
        let work = Work::new(image, specs);
        let mut tensors: Vec<Option<Derived>> = work.targets.iter().map(|_| None).collect();
        for (index, resampling) in work.resamplings.iter().enumerate() {
            self.resample(image, resampling)?;
            self.turn(resampling, image.orientation());
            for (slot, target) in tensors.iter_mut().zip(&work.targets).filter(|(_, t)| t.resampling == index) {
                let bytes = self.spares.take(target.bytes());
                *slot = Some(normalise(&self.upright, target, bytes));
            }
        }
        let derive_micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(Derivation { tensors: tensors.into_iter().flatten().collect(), derive_micros, ..Derivation::default() })
    }

    /// Takes tensors back that are no longer needed, so that the next image's need no fresh memory.
    pub fn recycle(&mut self, derivation: Derivation) {
        self.spares.give(derivation);
    }

    fn resample(&mut self, image: &SrgbImage, resampling: &Resampling) -> Result<(), Failure> {
        let (pixels, kind) = match resampling.channels {
            Channels::Rgb => (image.rgb(), PixelType::U8x3),
            Channels::Alpha => (image.alpha().unwrap_or_default(), PixelType::U8),
        };
        let (x, y) = (resampling.x, resampling.y);
        let refused = |error: &dyn fmt::Display| {
            let what = format!("resampling {} x {} to {} x {} pixels", x.pixels, y.pixels, x.target, y.target);
            Failure::new(Code::Internal, format!("{what}: {error}"))
        };
        self.stored.resize(resampling.bytes(), 0);
        let source = ImageRef::new(image.width(), image.height(), pixels, kind).map_err(|e| refused(&e))?;
        let mut target = Image::from_slice_u8(x.target, y.target, &mut self.stored, kind).map_err(|e| refused(&e))?;
        let filter = match resampling.filter {
            Filter::Lanczos3 => FilterType::Lanczos3,
            Filter::Bicubic => FilterType::CatmullRom,
        };
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(filter))
            .crop(x.start, y.start, x.length, y.length)
            .use_alpha(false);
        self.resizer.resize(&source, &mut target, &options).map_err(|e| refused(&e))
    }

    /// Leaves the resampled pixels upright in `self.upright`.
    fn turn(&mut self, resampling: &Resampling, orientation: Orientation) {
        if orientation == Orientation::UPRIGHT {
            std::mem::swap(&mut self.stored, &mut self.upright);
            return;
        }
        self.upright.resize(self.stored.len(), 0);
        let width = resampling.x.target as usize;
        match resampling.channels {
            Channels::Rgb => upright::turn::<3>(&self.stored, width, orientation, &mut self.upright),
            Channels::Alpha => upright::turn::<1>(&self.stored, width, orientation, &mut self.upright),
        }
    }
}

/// Makes a tensor from upright 8-bit pixels, in the buffer `bytes`.
fn normalise(pixels: &[u8], target: &Target, mut bytes: Vec<u8>) -> Derived {
    let table = Table::new(target.spec.normalise, target.spec.dtype);
    match target.spec.dtype {
        Dtype::F32 => look_up(pixels, target, &table.f32(), &mut bytes),
        Dtype::F16 | Dtype::Bf16 => look_up(pixels, target, &table.f16(), &mut bytes),
        Dtype::U8 => look_up(pixels, target, &table.u8(), &mut bytes),
    }
    Derived { spec: target.spec.clone(), plan: target.plan, shape: target.shape(), bytes }
}

fn look_up<const N: usize>(pixels: &[u8], target: &Target, tables: &[[[u8; N]; 256]; 3], bytes: &mut [u8]) {
    let (elements, _) = bytes.as_chunks_mut::<N>();
    let [red, green, blue] = tables;
    match (target.channels, target.spec.layout) {
        (Channels::Alpha, _) => {
            elements.iter_mut().zip(pixels).for_each(|(element, &code)| *element = element_of(red, code));
        }
        (Channels::Rgb, Layout::Nhwc) => {
            let (pixels, _) = pixels.as_chunks::<3>();
            let (elements, _) = elements.as_chunks_mut::<3>();
            for (element, &[r, g, b]) in elements.iter_mut().zip(pixels) {
                *element = [element_of(red, r), element_of(green, g), element_of(blue, b)];
            }
        }
        (Channels::Rgb, Layout::Nchw) => {
            let (pixels, _) = pixels.as_chunks::<3>();
            let mut planes = elements.chunks_exact_mut(pixels.len().max(1));
            let (Some(reds), Some(greens), Some(blues)) = (planes.next(), planes.next(), planes.next()) else {
                return;
            };
            for (((&[r, g, b], to_r), to_g), to_b) in pixels.iter().zip(reds).zip(greens).zip(blues) {
                *to_r = element_of(red, r);
                *to_g = element_of(green, g);
                *to_b = element_of(blue, b);
            }
        }
    }
}

#[inline]
fn element_of<const N: usize>(table: &[[u8; N]; 256], code: u8) -> [u8; N] {
    // Every code has an element, so the compiler drops the test.
    table.get(usize::from(code)).copied().unwrap_or([0; N])
}
