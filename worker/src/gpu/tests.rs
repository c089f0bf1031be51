//! The GPU lane: every tensor against the CPU's. On a machine without a GPU each test says aloud that it was
//! skipped; any other failure to start fails it.

use std::time::Instant;

use refmill::recipe::{Dtype, Filter, Layout, Size, TensorSpec};

use super::pinned::Pinned;
use super::*;
use crate::tensors::cpu::CpuDevice;
use crate::tensors::samples::{Noise, noise, sdxl, spec};

/// The GPU, or a line on stderr that says why there is none.
pub(super) fn gpu() -> Option<Gpu> {
    match Gpu::start(None) {
        Ok(gpu) => {
            eprintln!("on {:?}, driver {}", gpu.device(), driver());
            Some(gpu)
        }
        Err(error) if error.is_absent() => {
            eprintln!("skipped: no GPU ({error})");
            None
        }
        Err(error) => panic!("the GPU does not start: {error}"),
    }
}

fn driver() -> String {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    text.lines().next().unwrap_or("of unknown version").into()
}

fn sizes() -> [Size; 8] {
    [
        Size::Cover { width: 24, height: 24 },
        Size::Cover { width: 61, height: 17 },
        Size::Contain { width: 33, height: 57 },
        Size::Stretch { width: 40, height: 9 },
        Size::Stretch { width: 1, height: 1 },
        Size::LongSide { side: 31 },
        Size::Cover { width: 7, height: 300 },
        Size::LongSide { side: 150 },
    ]
}

/// Specs of every size, and of every filter, layout and dtype between them.
fn specs(round: usize) -> Vec<TensorSpec> {
    let dtypes = [Dtype::U8, Dtype::F16, Dtype::Bf16, Dtype::F32];
    let layouts = [Layout::Nchw, Layout::Nhwc];
    let filters = [Filter::Lanczos3, Filter::Bicubic];
    let one = |(index, size)| {
        let at = index + round;
        spec(&format!("t{index}"), size, filters[at / 8 % 2], layouts[at / 4 % 2], dtypes[at % 4])
    };
    sizes().into_iter().enumerate().map(one).collect()
}

/// Compares both devices and returns the number of tensors compared and of bytes that differ.
fn differences(gpu: &mut Gpu, cpu: &mut CpuDevice, image: &SrgbImage, specs: &[TensorSpec]) -> (usize, usize) {
    let want = cpu.derive(image, specs).unwrap();
    let got = gpu.derive(image, specs).unwrap();
    assert_eq!((got.uploads, want.uploads, got.tensors.len()), (1, 0, want.tensors.len()));
    let pairs = got.tensors.iter().zip(&want.tensors);
    let differing = pairs.map(|(got, want)| {
        assert_eq!((&got.spec, got.shape, got.bytes.len()), (&want.spec, want.shape, want.bytes.len()));
        got.bytes.iter().zip(&want.bytes).filter(|(g, w)| g != w).count()
    });
    (want.tensors.len(), differing.sum())
}

fn compare(gpu: &mut Gpu, images: impl Iterator<Item = (SrgbImage, Vec<TensorSpec>)>) {
    let mut cpu = CpuDevice::new();
    let (mut tensors, mut bytes) = (0, 0);
    for (image, specs) in images {
        let (compared, differing) = differences(gpu, &mut cpu, &image, &specs);
        let what = (image.width(), image.height(), image.orientation());
        assert_eq!(differing, 0, "bytes that differ from the CPU's, image {what:?}");
        (tensors, bytes) = (tensors + compared, bytes + differing);
    }
    eprintln!("{tensors} tensors compared, {bytes} bytes differ");
}

#[test]
fn small_images_equal_the_cpu_s_in_every_orientation_fit_filter_layout_and_dtype() {
    let Some(mut gpu) = gpu() else { return };
    let shapes = [(1, 1), (3, 5), (40, 9), (64, 64), (97, 31)];
    let all = shapes.iter().flat_map(|&(w, h)| (1..=8).map(move |orientation| (w, h, orientation)));
    let images =
        all.enumerate().map(|(round, (w, h, orientation))| (noise(w, h, orientation, round % 2 == 0), specs(round)));
    compare(&mut gpu, images);
}

#[test]
fn random_images_equal_the_cpu_s() {
    let Some(mut gpu) = gpu() else { return };
    let mut numbers = Noise(11);
    let images = (0..400).map(|round| {
        let (w, h, orientation) = (1 + numbers.below(400), 1 + numbers.below(400), 1 + numbers.below(8));
        (noise(w, h, orientation, round % 3 == 0), specs(round))
    });
    compare(&mut gpu, images.collect::<Vec<_>>().into_iter());
}

#[test]
fn large_and_long_images_equal_the_cpu_s() {
    let Some(mut gpu) = gpu() else { return };
    let shapes = [(17, 4000, 6), (4000, 17, 3), (4000, 3000, 1), (3000, 4001, 6), (65_500, 3, 8), (1024, 1024, 5)];
    compare(&mut gpu, shapes.into_iter().map(|(w, h, orientation)| (noise(w, h, orientation, true), sdxl())));
}

#[test]
fn two_images_on_their_way_at_once_equal_the_cpu_s() {
    let Some(mut gpu) = gpu() else { return };
    let (first, second) = (noise(300, 200, 6, true), noise(200, 301, 1, false));
    let one = gpu.submit(&first, &specs(0)).unwrap();
    let two = gpu.submit(&second, &specs(1)).unwrap();
    assert!(matches!(gpu.submit(&first, &specs(0)), Err(GpuError::Busy { slots: 2 })));
    let (two, one) = (gpu.finish(two).unwrap(), gpu.finish(one).unwrap());
    assert_eq!(one.tensors, CpuDevice::new().derive(&first, &specs(0)).unwrap().tensors);
    assert_eq!(two.tensors, CpuDevice::new().derive(&second, &specs(1)).unwrap().tensors);
}

#[test]
fn unfinished_image_gives_its_slot_back() {
    let Some(mut gpu) = gpu() else { return };
    let image = noise(300, 200, 6, true);
    (0..5).for_each(|round| drop(gpu.submit(&image, &specs(round)).unwrap()));
    assert_eq!(gpu.derive(&image, &specs(0)).unwrap().uploads, 1);
}

#[test]
fn memory_held_does_not_grow_with_images_of_one_size() {
    let Some(mut gpu) = gpu() else { return };
    let image = noise(2000, 1500, 6, true);
    gpu.derive(&image, &sdxl()).unwrap();
    let held = gpu.held();
    (0..20).for_each(|_| drop(gpu.derive(&image, &sdxl()).unwrap()));
    eprintln!("{held:?}");
    assert_eq!(gpu.held(), held);
}

#[test]
fn other_uuid_is_refused_with_both_named() {
    let Some(gpu) = gpu() else { return };
    let found = gpu.device().uuid;
    assert!(Gpu::start(Some(&found)).is_ok());
    let wrong = "GPU-00000000-0000-0000-0000-000000000000";
    let error = Gpu::start(Some(wrong)).unwrap_err();
    assert_eq!(error, GpuError::OtherDevice { expected: wrong.into(), found });
}

#[test]
fn jpeg_engines_equal_libjpeg_turbo_in_every_sampling() {
    use crate::baseline::Sampling;
    let Some(gpu) = gpu() else { return };
    let Some(engine) = &gpu.loaded.engine else {
        eprintln!("skipped: no JPEG engine ({})", gpu.device().reason);
        return;
    };
    eprintln!("{}", engine.description());
    for sampling in [Sampling::Gray, Sampling::Full, Sampling::Columns, Sampling::Rows, Sampling::Both] {
        eprintln!("{sampling:?}: {}", engine.is_proved(sampling));
    }
    assert!(engine.is_proved(Sampling::Both) && engine.is_proved(Sampling::Full) && engine.is_proved(Sampling::Gray));
}

#[test]
fn pinned_memory_over_its_limit_is_refused() {
    let Some(gpu) = gpu() else { return };
    let mut pinned = Pinned::from_device("pinned memory for a test", 1 << 20);
    assert!(matches!(pinned.grow(&gpu.context, (1 << 20) + 1), Err(GpuError::TooLarge { .. })));
    assert_eq!((pinned.grow(&gpu.context, 5), pinned.held()), (Ok(()), 1 << 20));
}

/// Launches a kernel on an address that no allocation has, past every check.
fn read_nowhere(gpu: &Gpu) {
    use cudarc::driver::{LaunchConfig, PushKernelArg};
    let (nowhere, one) = (8_u64, 1_u32);
    let mut launch = gpu.compute.launch_builder(gpu.loaded.kernels.put_8());
    launch.arg(&nowhere).arg(&one).arg(&one).arg(&one).arg(&nowhere).arg(&nowhere).arg(&one).arg(&one);
    let once = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
    // SAFETY: the kernel's read faults on the GPU and touches no memory of this process, which is what is tested.
    unsafe { launch.launch(once) }.unwrap();
}

#[test]
#[ignore = "loses the CUDA context of the whole process; run it alone, by name, with --ignored"]
fn illegal_address_is_met_by_the_next_image_and_is_sticky() {
    let Some(mut gpu) = gpu() else { return };
    let image = noise(300, 200, 1, false);
    read_nowhere(&gpu);
    let error = gpu.derive(&image, &specs(0)).unwrap_err();
    eprintln!("{error}");
    assert!(error.is_sticky(), "{error}");
    assert!(gpu.derive(&image, &specs(0)).unwrap_err().is_sticky());
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn milliseconds(times: usize, mut work: impl FnMut()) -> f64 {
    let one = |_| {
        let started = Instant::now();
        work();
        started.elapsed().as_secs_f64() * 1e3
    };
    median((0..times).map(one).collect())
}

/// GB/s of plain copies of `bytes` from pinned memory.
fn ceiling(gpu: &Gpu, bytes: usize) -> f64 {
    let mut pinned = Pinned::towards_device("pinned memory for a test", bytes.next_power_of_two());
    pinned.grow(&gpu.context, bytes).unwrap();
    let mut device = allocate(&gpu.copy, bytes, "device memory for a test").unwrap();
    let event = || gpu.context.new_event(Some(cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT)).unwrap();
    let (from, to) = (event(), event());
    let one = |_| {
        from.record(&gpu.copy).unwrap();
        gpu.copy.memcpy_htod(&*pinned.first(bytes).unwrap(), &mut device.slice_mut(..bytes)).unwrap();
        to.record(&gpu.copy).unwrap();
        bytes as f64 / 1e6 / f64::from(from.elapsed_ms(&to).unwrap())
    };
    median((0..30).map(one).collect())
}

fn measure(gpu: &mut Gpu, cpu: &mut CpuDevice, what: &str, image: &SrgbImage) {
    let specs = sdxl();
    let bytes = image.rgb().len();
    gpu.derive(image, &specs).unwrap();
    let mut events = Vec::new();
    let whole = milliseconds(40, || {
        let made = gpu.derive(image, &specs).unwrap();
        gpu.recycle(made);
        events.push(gpu.ring.free.last().unwrap().times().unwrap());
    });
    let part = |pick: fn(&(u64, u64)) -> u64| median(events.iter().map(|times| pick(times) as f64).collect());
    let (up, kernels) = (part(|times| times.0), part(|times| times.1));
    let two = milliseconds(20, || {
        let mut before = gpu.submit(image, &specs).unwrap();
        (0..9).for_each(|_| {
            let next = gpu.submit(image, &specs).unwrap();
            let made = gpu.finish(std::mem::replace(&mut before, next)).unwrap();
            gpu.recycle(made);
        });
        gpu.finish(before).unwrap();
    }) / 10.0;
    let on_cpu = milliseconds(10, || {
        let made = cpu.derive(image, &specs).unwrap();
        cpu.recycle(made);
    });
    eprintln!(
        "| {what} | {whole:.2} | {two:.2} | {:.3} | {:.1} | {:.1} | {:.3} | {on_cpu:.2} |",
        up / 1e3,
        bytes as f64 / 1e3 / up,
        ceiling(gpu, bytes),
        kernels / 1e3,
    );
}

#[test]
#[ignore = "prints times, asserts nothing; run it by hand on a GPU with --ignored --nocapture"]
fn times_of_the_sdxl_tensors() {
    let Some(mut gpu) = gpu() else { return };
    let mut cpu = CpuDevice::new();
    eprintln!("| image | derive ms | two at once ms | htod ms | htod GB/s | plain GB/s | kernels+dtoh ms | CPU ms |");
    eprintln!("|---|---|---|---|---|---|---|---|");
    measure(&mut gpu, &mut cpu, "4000 x 3000", &noise(4000, 3000, 1, false));
    measure(&mut gpu, &mut cpu, "4000 x 3000, turned by 90", &noise(4000, 3000, 6, false));
    measure(&mut gpu, &mut cpu, "3000 x 2000", &noise(3000, 2000, 1, false));
    measure(&mut gpu, &mut cpu, "1200 x 900", &noise(1200, 900, 1, false));
    eprintln!("{:?}", gpu.held());
}

/// A picture of `w` x `h` pixels from `noise`, in Adobe RGB.
fn stored(noise: &[u8], w: u32, h: u32) -> crate::colour::Unconverted {
    let pixels = crate::decode::Pixels::Rgb8(noise[..(w * h * 3) as usize].to_vec());
    let (orientation, meaning) = (crate::orientation::Orientation::UPRIGHT, crate::repair::Meaning::AdobeRgb);
    let decoded = crate::decode::Decoded { width: w, height: h, pixels, alpha: None, orientation, meaning };
    let options = refmill::job::ColourOptions::default();
    crate::colour::ColourStage::default().bind(decoded, options, &mut Vec::new(), &mut Vec::new()).unwrap()
}

/// Derives from pictures of 64 x 64 to `most` pixels, after the largest; gives the milliseconds of each and what the
/// pool had reserved after a tenth of them and at the end.
fn random_sizes(gpu: &mut Gpu, count: usize, most: f64) -> (Vec<f64>, PoolUse, PoolUse) {
    let mut numbers = Noise(41);
    let side = most.sqrt() as u32;
    let noise = numbers.bytes((most * 3.0) as usize + 4096);
    let derive = |gpu: &mut Gpu, w, h| {
        let image = stored(&noise, w, h);
        let started = Instant::now();
        let made = gpu.derive_unconverted(&image, [0; 3], &sdxl()).unwrap();
        assert_eq!(made.uploads, 1);
        gpu.recycle(made);
        started.elapsed().as_secs_f64() * 1e3
    };
    derive(gpu, side, side);
    let mut first = PoolUse::default();
    let times = (0..count)
        .map(|round| {
            // Until then the caches of weights fill.
            if round == count / 10 {
                first = gpu.pool().unwrap();
            }
            let pixels = 4096.0 * (most / 4096.0).powf(f64::from(numbers.below(10_000)) / 1e4);
            let shape = (f64::from(numbers.below(10_000)) / 1e4 - 0.5) * 0.8;
            let w = ((pixels.sqrt() * shape.exp()) as u32).max(1);
            derive(gpu, w, ((pixels / f64::from(w)) as u32).max(1))
        })
        .collect();
    (times, first, gpu.pool().unwrap())
}

#[test]
fn stored_image_goes_up_once_and_two_events_are_waited_for() {
    let Some(mut gpu) = gpu() else { return };
    let noise = Noise(8).bytes(300 * 200 * 3);
    let before = gpu.watch().counts();
    (0..5).for_each(|_| drop(gpu.derive_unconverted(&stored(&noise, 300, 200), [0; 3], &sdxl()).unwrap()));
    let after = gpu.watch().counts();
    // One for the kernels, one for the tensors in host memory; no stream and nothing wider.
    assert_eq!(after.event_waits - before.event_waits, 10);
    assert_eq!((after.uploads - before.uploads, after.stream_waits - before.stream_waits), (5, 0));
    assert_eq!(after.upload_bytes - before.upload_bytes, 5 * 300 * 200 * 3);
}

#[test]
fn reserved_memory_does_not_grow_with_random_sizes() {
    let Some(mut gpu) = gpu() else { return };
    let (_, first, last) = random_sizes(&mut gpu, 300, 12e6);
    eprintln!("{first:?}, then {last:?}");
    assert_eq!(last.reserved, first.reserved);
}

#[test]
#[ignore = "takes minutes and prints times; run it by hand on a GPU with --ignored --nocapture"]
fn ten_thousand_random_sizes_up_to_50_megapixels() {
    let Some(mut gpu) = gpu() else { return };
    let (mut times, first, last) = random_sizes(&mut gpu, 10_000, 50e6);
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times[times.len() * share / 1000];
    eprintln!("{first:?}, then {last:?}");
    eprintln!("10,000 pictures: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms", at(500), at(990), at(999));
    assert_eq!(last.reserved, first.reserved);
}
