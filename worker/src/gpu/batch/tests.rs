//! The GPU lane of the batches: every tensor against the CPU's. On a machine without a GPU each test says aloud that
//! it was skipped.

use std::sync::{Arc, Mutex};

use refmill::job::{ColourOptions, Depth, ImageWanted, Job, Strip};
use refmill::limits::Limits;
use refmill::policy::Policy;
use refmill::recipe::Recipe;
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp, Transform, Transformer};

use super::*;
use crate::baseline::Stream;
use crate::gpu::tests::gpu;
use crate::gpu::ycc::{Layout, Planes};
use crate::tensors::cpu::CpuDevice;
use crate::tensors::samples::{Noise, sdxl};

const SPREAD: Spread = Spread { hosts: 3, lanes: 2, batch: 5 };

fn job() -> Job {
    Job {
        id: 0,
        input_len: 0,
        extension: String::new(),
        source_hash: String::new(),
        depth: Depth::Full,
        image: ImageWanted::No,
        strip: Strip::Nothing,
        policy: Policy::default(),
        recipe: Some(Recipe { name: "sdxl".into(), background: [255; 3], tensors: sdxl() }),
        colour: ColourOptions::default(),
        limits: Limits::default(),
    }
}

fn jpeg(width: usize, height: usize, subsamp: Subsamp, numbers: &mut Noise) -> Vec<u8> {
    let code = |at: usize| (at / 3 % width + at / 3 / width * 2 + at % 3 * 50) % 190;
    let pixels: Vec<u8> =
        (0..width * height * 3).map(|at| u8::try_from(code(at) + numbers.below(60) as usize).unwrap()).collect();
    let image = Image { pixels: pixels.as_slice(), width, pitch: width * 3, height, format: PixelFormat::RGB };
    let mut compressor = Compressor::new().unwrap();
    compressor.set_subsamp(subsamp).unwrap();
    compressor.set_quality(88).unwrap();
    compressor.compress_to_vec(image).unwrap()
}

fn progressive(bytes: &[u8]) -> Vec<u8> {
    let mut transform = Transform::default();
    transform.progressive = true;
    Transformer::new().unwrap().transform_to_vec(&transform, bytes).unwrap()
}

/// What the CPU makes of an image; `None` where it is rejected.
fn by_cpu(input: &[u8]) -> Option<Vec<Vec<u8>>> {
    let job = job();
    let mut run = crate::pipeline::Run::new(&job, input.len(), crate::pulse::Pulse::default());
    let repaired = crate::pipeline::judge(&mut run, input).ok()?;
    let decoded = crate::pipeline::decode(&mut run, &mut crate::decode::Decoders::default(), repaired).ok()?;
    let bound = crate::pipeline::plan(&mut run, &mut crate::colour::ColourStage::default(), decoded).ok()?;
    let mut image = bound.into_srgb().ok()?;
    let recipe = job.recipe.as_ref().unwrap();
    image.composite(recipe.background);
    let derived = CpuDevice::new().derive(&image, &recipe.tensors).unwrap();
    Some(derived.tensors.into_iter().map(|tensor| tensor.bytes).collect())
}

/// Images of every kind, and whether the engines are expected to decode them.
fn images() -> Vec<(Vec<u8>, bool)> {
    let mut numbers = Noise(21);
    let mut images = Vec::new();
    let forms = [Subsamp::None, Subsamp::Sub2x1, Subsamp::Sub2x2, Subsamp::Gray];
    for (width, height) in [(64, 64), (301, 203), (1031, 777), (2, 90), (1, 1), (5, 3)] {
        images.extend(forms.map(|form| (jpeg(width, height, form, &mut numbers), true)));
    }
    let fixtures: [&[u8]; 7] = [
        include_bytes!("../../../../fixtures/images/restart.jpg"),
        include_bytes!("../../../../fixtures/images/orientation3.jpg"),
        include_bytes!("../../../../fixtures/images/orientation6.jpg"),
        include_bytes!("../../../../fixtures/images/orientation7.jpg"),
        include_bytes!("../../../../fixtures/images/p3_orientation6.jpg"),
        include_bytes!("../../../../fixtures/images/adobe_r03.jpg"),
        include_bytes!("../../../../fixtures/defects/icc_truncated.jpg"),
    ];
    images.extend(fixtures.map(|bytes| (bytes.to_vec(), true)));
    images.push((progressive(&jpeg(500, 400, Subsamp::Sub2x2, &mut numbers)), false));
    let others: [&[u8]; 5] = [
        include_bytes!("../../../../fixtures/images/cmyk.jpg"),
        include_bytes!("../../../../fixtures/images/rgba.png"),
        include_bytes!("../../../../fixtures/images/gray16.png"),
        include_bytes!("../../../../fixtures/bad/truncated.jpg"),
        include_bytes!("../../../../fixtures/bad/html.jpg"),
    ];
    images.extend(others.map(|bytes| (bytes.to_vec(), false)));
    images
}

fn compare(finished: &Finished, (input, by_engines): &(Vec<u8>, bool), has_engines: bool) {
    let found = finished.tensors.as_ref().map(|tensors| tensors.to_host().unwrap());
    let index = finished.index;
    assert!(found == by_cpu(input), "image {index}: {}, {:?}", finished.report.decoder, finished.report.error);
    let decoded = finished.report.decoder == "nvjpeg";
    assert_eq!(decoded, *by_engines && has_engines, "image {index}: {}", finished.report.decoder);
}

#[test]
fn images_of_every_kind_equal_the_cpu_s_in_batches_and_alone_and_one_event_a_batch_is_waited_for() {
    let Some(gpu) = gpu() else { return };
    let has_engines = gpu.loaded.engine.is_some();
    let mut batches = gpu.batches(job(), SPREAD).unwrap();
    let images = images();
    let all = Mutex::new(Vec::new());
    let inputs: Vec<Arc<[u8]>> = images.iter().map(|(bytes, _)| Arc::from(bytes.as_slice())).collect();
    batches.run(inputs.iter().cloned(), &|finished| all.lock().unwrap().push(finished)).unwrap();
    let all = all.into_inner().unwrap();
    assert_eq!(all.len(), images.len());
    all.iter().for_each(|finished| compare(finished, &images[finished.index], has_engines));
    let counts = batches.counts();
    eprintln!("{counts:?}");
    assert_eq!((counts.event_waits, counts.stream_waits), (counts.batches, 0));
    for (index, input) in inputs.iter().enumerate() {
        let finished = Finished { index, ..batches.one(input).unwrap() };
        compare(&finished, &images[index], has_engines);
    }
}

#[test]
fn images_of_ever_new_sizes_take_no_more_memory() {
    let Some(gpu) = gpu() else { return };
    let mut numbers = Noise(5);
    let mut batches = gpu.batches(job(), SPREAD).unwrap();
    let mut round = || {
        let size = |numbers: &mut Noise| 64 + numbers.below(700) as usize;
        let inputs: Vec<Arc<[u8]>> = (0..120)
            .map(|_| jpeg(size(&mut numbers), size(&mut numbers), Subsamp::Sub2x2, &mut numbers).into())
            .collect();
        batches.run(inputs.into_iter(), &drop).unwrap();
        gpu.pool().unwrap()
    };
    let (first, last) = (round(), (0..4).map(|_| round()).last().unwrap());
    eprintln!("{first:?}, then {last:?}");
    assert!(last.used <= first.used + (8 << 20) && last.reserved <= first.reserved + (64 << 20));
}

#[test]
fn engines_survive_streams_that_nobody_proved() {
    let Some(gpu) = gpu() else { return };
    let Some(engine) = &gpu.loaded.engine else {
        eprintln!("skipped: no JPEG engine ({})", gpu.device().reason);
        return;
    };
    let mut numbers = Noise(77);
    let whole = jpeg(301, 203, Subsamp::Sub2x2, &mut numbers);
    let mut decoder = engine.batch().unwrap();
    let layout = Layout::new(301, 203, crate::baseline::Sampling::Both);
    let memory = crate::gpu::allocate(&gpu.compute, layout.bytes, "planes").unwrap();
    let (start, _guard) = cudarc::driver::DevicePtr::device_ptr(&memory, &gpu.compute);
    let planes = [Planes::new(start, layout.bytes, layout).unwrap()];
    let (mut taken, mut refused) = (0, 0);
    for round in 0..150 {
        let mut bytes = Vec::new();
        Stream::read(&whole).unwrap().rewrite(&mut bytes);
        let middle = bytes.len() / 4;
        if round % 5 == 0 {
            bytes.truncate(middle + numbers.below(5000) as usize);
        }
        for _ in 0..1 + numbers.below(20) {
            let at = middle + numbers.below(u32::try_from(bytes.len() - middle).unwrap()) as usize;
            bytes[at] = u8::try_from(numbers.below(256)).unwrap();
        }
        // SAFETY: the bytes and the planes' memory live until the stream is waited for, just below.
        let decoded = unsafe { decoder.decode(&[&bytes], &planes, &gpu.compute) };
        gpu.compute.synchronize().unwrap();
        if decoded.is_ok() { taken += 1 } else { refused += 1 }
    }
    eprintln!("{taken} damaged streams taken, {refused} refused");
    drop(decoder);
    let mut batches = gpu.batches(job(), SPREAD).unwrap();
    let input: Arc<[u8]> = whole.clone().into();
    compare(&batches.one(&input).unwrap(), &(whole, true), true);
}
