use std::collections::BTreeMap;

use refmill::recipe::{Dtype, Filter, Layout, Normalise, Size};
use safetensors::SafeTensors;

use super::cpu::CpuDevice;
use super::samples::{Noise, codes, noise, sdxl, spec, stored_upright, worst};
use super::work::Stretch;
use refmill::recipe::ALPHA_MASK;

use super::{Axis, Channels, Derivation, Resampling, Work, derived_bytes, safetensors_file};
use crate::orientation::Orientation;
use crate::srgb::SrgbImage;
use crate::tensors::Shape;

fn derive(image: &SrgbImage, specs: &[refmill::recipe::TensorSpec]) -> Derivation {
    CpuDevice::new().derive(image, specs).unwrap()
}

fn only(image: &SrgbImage, size: Size, filter: Filter) -> Vec<u8> {
    derive(image, &[codes(size, filter)]).tensors.remove(0).bytes
}

/// What the kernels do, one pixel after the other.
fn pass(axis: &Axis, at: usize, source: impl Fn(usize) -> u8) -> u8 {
    let [first, count] = axis.bounds[at];
    let weights = &axis.weights[at * axis.window..][..count as usize];
    let half = 1 << (axis.precision - 1);
    let sum = weights.iter().zip(first as usize..).fold(half, |sum, (&w, x)| sum + i32::from(source(x)) * i32::from(w));
    (sum >> axis.precision).clamp(0, 255) as u8
}

fn axis(filter: Filter, stretch: Stretch) -> Axis {
    match stretch.is_exact() {
        true => Axis::copy(stretch.start as u32, stretch.target),
        false => Axis::new(filter, stretch.pixels, (stretch.start, stretch.length), stretch.target),
    }
}

/// Resamples with the weights of [`Axis`] alone.
fn reference(image: &SrgbImage, resampling: &Resampling) -> Vec<u8> {
    let (pixels, n) = match resampling.channels {
        Channels::Rgb => (image.rgb(), 3),
        Channels::Alpha => (image.alpha().unwrap(), 1),
    };
    let row = image.width() as usize * n;
    let (x, y) = (axis(resampling.filter, resampling.x), axis(resampling.filter, resampling.y));
    let (w, h) = (x.bounds.len(), y.bounds.len());
    let tall: Vec<u8> = (0..h * row).map(|at| pass(&y, at / row, |line| pixels[line * row + at % row])).collect();
    (0..h * w * n).map(|at| pass(&x, at / n % w, |column| tall[at / n / w * row + column * n + at % n])).collect()
}

fn size(noise: &mut Noise, kind: u32) -> Size {
    let (width, height) = (1 + noise.below(90), 1 + noise.below(90));
    match kind % 4 {
        0 => Size::Cover { width, height },
        1 => Size::Contain { width, height },
        2 => Size::Stretch { width, height },
        _ => Size::LongSide { side: width },
    }
}

/// Compares fast_image_resize with [`Axis`] on `rounds` random sizes, and returns the worst difference.
fn worst_of_random_sizes(rounds: u32) -> u8 {
    let mut numbers = Noise(7);
    let mut device = CpuDevice::new();
    let one = |round: u32| {
        let image = noise(1 + numbers.below(150), 1 + numbers.below(150), 1, true);
        let filter = if round % 8 < 4 { Filter::Lanczos3 } else { Filter::Bicubic };
        let specs = [codes(size(&mut numbers, round), filter)];
        let work = Work::new(&image, &specs);
        let made = device.derive(&image, &specs).unwrap();
        let pairs = made.tensors.iter().zip(&work.targets);
        pairs.map(|(t, target)| worst(&t.bytes, &reference(&image, &work.resamplings[target.resampling]))).max()
    };
    (0..rounds).filter_map(one).max().unwrap()
}

#[test]
fn resampling_equals_the_fixed_point_weights_in_every_bit() {
    assert_eq!(worst_of_random_sizes(2000), 0);
}

#[test]
fn resampling_of_a_large_picture_equals_the_fixed_point_weights() {
    let image = noise(1733, 977, 1, true);
    let work = Work::new(&image, &sdxl());
    let specs = sdxl().into_iter().map(|s| codes(s.size, s.filter)).collect::<Vec<_>>();
    let made = derive(&image, &specs);
    assert_eq!(worst(&made.tensors[0].bytes, &reference(&image, &work.resamplings[0])), 0);
    assert_eq!(worst(&made.tensors[2].bytes, &reference(&image, &work.resamplings[1])), 0);
}

#[test]
fn enlarged_crop_whose_pixels_fall_on_source_pixels_stays_in_the_picture() {
    let image = noise(11, 8, 1, false);
    let size = Size::Cover { width: 24, height: 24 };
    let work = Work::new(&image, &[codes(size, Filter::Bicubic)]);
    assert_eq!(worst(&only(&image, size, Filter::Bicubic), &reference(&image, &work.resamplings[0])), 0);
}

/// Whether the first and last target pixel read the outermost source pixels, in every covered size up to `side`.
fn windows_in_order(side: u32) -> bool {
    let specs: Vec<_> = [Filter::Lanczos3, Filter::Bicubic]
        .into_iter()
        .flat_map(|filter| (1..side).map(move |to| codes(Size::Cover { width: to, height: to }, filter)))
        .collect();
    let images =
        (1..side).flat_map(|from| [(from, 8, 1), (from, 8, 2), (from, 21, 1)].map(|(w, h, o)| noise(w, h, o, false)));
    images.flat_map(|image| Work::new(&image, &specs).resamplings).all(|resampling| {
        let axis = axis(resampling.filter, resampling.x);
        let last = axis.bounds.last().map(|&[first, count]| first + count);
        (axis.bounds.first().map(|bound| bound[0]), last) == (Some(axis.reads().0), Some(axis.reads().1))
    })
}

#[test]
fn first_and_last_window_are_the_outermost() {
    assert!(windows_in_order(64));
}

#[test]
fn identity_size_passes_through() {
    let image = noise(37, 19, 1, false);
    let size = Size::Stretch { width: 37, height: 19 };
    assert_eq!(only(&image, size, Filter::Lanczos3), image.rgb());
}

#[test]
fn odd_crop_without_scaling_is_the_same_for_every_orientation() {
    (1..=8).for_each(|orientation| {
        let image = noise(37, 20, orientation, false);
        let side = Size::Cover { width: 20, height: 20 };
        let upright = stored_upright(&image);
        assert_eq!(only(&image, side, Filter::Lanczos3), only(&upright, side, Filter::Lanczos3), "{orientation}");
    });
}

/// A picture whose codes grow by 2 a column and 1 a row, upright, in the orientation's storage.
fn ramp(width: u32, height: u32, orientation: u32) -> SrgbImage {
    let orientation = Orientation::from_exif(orientation).unwrap();
    let (w, h) = orientation.size(width, height);
    let mut rgb = vec![0; (w * h * 3) as usize];
    (0..w as usize * h as usize).for_each(|at| {
        let (x, y) = (at % w as usize, at / w as usize);
        let (sx, sy) = orientation.stored(x, y, width as usize, height as usize);
        let place = 3 * (sy * width as usize + sx);
        rgb[place..place + 3].fill((2 * x + y) as u8);
    });
    SrgbImage::claim(width, height, rgb, None, orientation).unwrap()
}

fn worst_of_orientations(make: impl Fn(u32) -> SrgbImage, filter: Filter, size: Size) -> u8 {
    let one = |orientation| {
        let image = make(orientation);
        worst(&only(&image, size, filter), &only(&stored_upright(&image), size, filter))
    };
    (1..=8).map(one).max().unwrap()
}

#[test]
fn odd_crop_of_a_ramp_is_the_same_for_every_orientation() {
    // 53 x 31 covers 24 x 24: fitted 41 x 24, 17 columns too many, 8 of them at the upright left.
    let size = Size::Cover { width: 24, height: 24 };
    let worst = worst_of_orientations(|o| ramp(53, 31, o), Filter::Bicubic, size);
    assert!(worst <= 1, "{worst}");
}

/// Noise of so little contrast that no overshoot is clipped: clipping between the two passes does depend on which
/// axis comes first, and turning by 90 degrees changes that.
fn faint_noise(orientation: u32) -> SrgbImage {
    let strong = noise(53, 31, orientation, false);
    let rgb = strong.rgb().iter().map(|code| 96 + code / 4).collect();
    SrgbImage::claim(53, 31, rgb, None, strong.orientation()).unwrap()
}

#[test]
fn noise_resampled_before_turning_differs_from_after_by_rounding_only() {
    let size = Size::Cover { width: 24, height: 17 };
    let worst = worst_of_orientations(faint_noise, Filter::Lanczos3, size);
    assert!(worst <= 1, "{worst}");
}

#[test]
fn tensors_of_one_size_and_filter_share_a_resampling() {
    let work = Work::new(&noise(40, 30, 6, false), &sdxl());
    assert_eq!((work.resamplings.len(), work.targets.len()), (2, 3));
}

#[test]
fn alpha_becomes_a_mask_like_the_first_tensor() {
    let image = noise(40, 30, 1, true);
    let made = derive(&image, &sdxl());
    let mask = made.tensors.last().unwrap();
    assert_eq!((mask.spec.name.as_str(), mask.shape), (ALPHA_MASK, [1, 1, 1024, 1024]));
    assert_eq!(mask.spec.normalise, Normalise::Range { min: 0.0, max: 1.0 });
}

#[test]
fn alpha_mask_of_the_recipe_is_left_alone() {
    let image = noise(4, 3, 1, true);
    let size = Size::Stretch { width: 4, height: 3 };
    let made = derive(&image, &[spec(ALPHA_MASK, size, Filter::Bicubic, Layout::Nhwc, Dtype::U8)]);
    assert_eq!((made.tensors.len(), made.tensors[0].bytes.as_slice()), (1, image.rgb()));
}

#[test]
fn u8_alpha_mask_holds_the_codes() {
    let image = noise(4, 3, 3, true);
    let made = derive(&image, &[codes(Size::Stretch { width: 4, height: 3 }, Filter::Bicubic)]);
    let reversed: Vec<u8> = image.alpha().unwrap().iter().rev().copied().collect();
    assert_eq!(made.tensors[1].bytes, reversed);
}

#[test]
fn planar_layout_holds_the_channels_one_after_the_other() {
    let image = SrgbImage::claim(2, 1, vec![1, 2, 3, 4, 5, 6], None, Orientation::UPRIGHT).unwrap();
    let size = Size::Stretch { width: 2, height: 1 };
    let made = derive(&image, &[spec("t", size, Filter::Bicubic, Layout::Nchw, Dtype::U8)]);
    assert_eq!((made.tensors[0].shape, made.tensors[0].bytes.as_slice()), ([1, 3, 1, 2], &[1, 4, 2, 5, 3, 6][..]));
}

#[test]
fn f32_elements_follow_the_mean_and_std() {
    let image = SrgbImage::claim(1, 1, vec![255, 128, 0], None, Orientation::UPRIGHT).unwrap();
    let size = Size::Stretch { width: 1, height: 1 };
    let made = derive(&image, &[spec("t", size, Filter::Bicubic, Layout::Nchw, Dtype::F32)]);
    let red = f32::from_le_bytes(made.tensors[0].bytes[..4].try_into().unwrap());
    assert!((red - (1.0 - 0.481_454_66) / 0.268_629_54).abs() < 1e-6, "{red}");
}

#[test]
fn tensors_in_recycled_memory_are_the_same() {
    let (large, small) = (noise(90, 70, 6, true), noise(30, 41, 1, false));
    let mut device = CpuDevice::new();
    let first = device.derive(&large, &sdxl()).unwrap();
    device.recycle(first.clone());
    device.derive(&small, &sdxl()).unwrap();
    assert_eq!(device.derive(&large, &sdxl()).unwrap().tensors, first.tensors);
}

#[test]
fn derived_bytes_is_what_deriving_makes() {
    let image = noise(40, 30, 5, true);
    let made = derive(&image, &sdxl());
    assert_eq!(
        derived_bytes(Shape::of(&image), &sdxl()),
        made.tensors.iter().map(|t| t.bytes.len() as u64).sum::<u64>()
    );
}

fn metadata() -> BTreeMap<String, String> {
    (0..20).map(|i| (format!("key {i}"), format!("\"{i}\"\n"))).collect()
}

fn mixed() -> Derivation {
    let size = Size::Stretch { width: 3, height: 1 };
    let dtypes = [("a", Dtype::U8), ("b", Dtype::F32), ("c", Dtype::Bf16), ("d", Dtype::F16)];
    let specs = dtypes.map(|(name, dtype)| spec(name, size, Filter::Bicubic, Layout::Nchw, dtype));
    derive(&noise(9, 5, 1, false), &specs)
}

#[test]
fn safetensors_file_is_read_back_by_the_format_s_own_crate() {
    let made = mixed();
    let mut file = Vec::new();
    let written = safetensors_file::write(&made, &metadata(), &mut file).unwrap();
    let read = SafeTensors::deserialize(&file).unwrap();
    let (header, read_metadata) = SafeTensors::read_metadata(&file).unwrap();
    assert_eq!((written, header % 8), (file.len() as u64, 0));
    assert_eq!(read_metadata.metadata().as_ref().unwrap()["key 7"], "\"7\"\n");
    assert_eq!(read.tensor("b").unwrap().data(), made.tensors[1].bytes);
    assert_eq!(read.tensor("a").unwrap().shape(), [1, 3, 1, 3]);
    assert_eq!(read.tensor("c").unwrap().dtype(), safetensors::Dtype::BF16);
}

#[test]
fn safetensors_file_of_the_same_input_is_the_same() {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    safetensors_file::write(&mixed(), &metadata(), &mut first).unwrap();
    safetensors_file::write(&mixed(), &metadata(), &mut second).unwrap();
    assert_eq!(first, second);
}

#[test]
fn safetensors_file_that_does_not_fit_is_over_the_limit() {
    let mut room = [0; 40];
    let failure = safetensors_file::write(&mixed(), &metadata(), &mut room.as_mut_slice()).unwrap_err();
    assert_eq!(failure.code, refmill::failure::Code::OverLimit);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn milliseconds(mut work: impl FnMut()) -> f64 {
    let one = |_| {
        let started = std::time::Instant::now();
        work();
        started.elapsed().as_secs_f64() * 1e3
    };
    median((0..15).map(one).collect())
}

fn print_time(what: &str, image: &SrgbImage, specs: &[refmill::recipe::TensorSpec]) {
    let mut device = CpuDevice::new();
    let time = milliseconds(|| {
        let made = device.derive(image, specs).unwrap();
        device.recycle(made);
    });
    let orientation = image.orientation().exif();
    eprintln!("| {} x {}, orientation {orientation} | {what} | {time:.2} ms |", image.width(), image.height());
}

#[test]
#[ignore = "prints times, asserts nothing; run it by hand, in release, with --ignored --nocapture"]
fn times_of_the_sdxl_tensors_on_the_cpu() {
    let codes: Vec<_> = sdxl().iter().map(|spec| codes(spec.size, spec.filter)).collect();
    [(4000, 3000, 1), (4000, 3000, 6), (1200, 900, 1)].map(|(w, h, o)| noise(w, h, o, false)).iter().for_each(
        |image| {
            print_time("three tensors", image, &sdxl());
            print_time("large resampling alone", image, &codes[..1]);
            print_time("small resampling alone", image, &codes[2..]);
        },
    );
}
