//! The three sdxl tensors on the GPU from encoded images: rates, latencies, and the CPU's bytes to compare with.
//!
//! `cargo run --release -p refmill-worker --example gpu_rate -- MODE FOLDER [SECONDS HOSTS LANES BATCH]`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use refmill::job::{ColourOptions, Depth, ImageWanted, Job, Strip};
use refmill::limits::Limits;
use refmill::policy::Policy;
use refmill::recipe::{Dtype, Filter, Layout, Normalise, Recipe, Size, TensorSpec};
use refmill_worker::device::{Device, Wanted};
use refmill_worker::gpu::Gpu;
use refmill_worker::gpu::batch::{Batches, Finished, Spread};
use refmill_worker::pipeline::Pipeline;

/// supervisor/recipes/sdxl.toml, in its own words.
fn sdxl() -> Recipe {
    let spec = |name: &str, side: u32, filter: Filter, normalise: Normalise| TensorSpec {
        name: name.into(),
        size: Size::Cover { width: side, height: side },
        filter,
        layout: Layout::Nchw,
        dtype: Dtype::F16,
        normalise,
    };
    let mean_std = Normalise::MeanStd {
        mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
        std: [0.268_629_54, 0.261_302_6, 0.275_777_1],
    };
    let tensors = vec![
        spec("controlnet_hint", 1024, Filter::Lanczos3, Normalise::Range { min: 0.0, max: 1.0 }),
        spec("vae_pixels", 1024, Filter::Lanczos3, Normalise::Range { min: -1.0, max: 1.0 }),
        spec("clip_pixels", 224, Filter::Bicubic, mean_std),
    ];
    Recipe { name: "sdxl".into(), background: [255; 3], tensors }
}

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
        recipe: Some(sdxl()),
        colour: ColourOptions::default(),
        limits: Limits::default(),
    }
}

/// A file's path and bytes.
type Read = (PathBuf, Arc<[u8]>);

fn files(folder: &Path) -> Result<Vec<Read>, Box<dyn Error>> {
    let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    Ok(paths.into_iter().map(|path| Ok((path.clone(), std::fs::read(path)?.into()))).collect::<std::io::Result<_>>()?)
}

/// The tensors that the CPU makes of an image; `None` where it is rejected.
fn by_cpu(pipeline: &mut Pipeline, input: &[u8], region: &File) -> Result<Option<Vec<Vec<u8>>>, Box<dyn Error>> {
    use std::os::unix::fs::FileExt;
    let report = pipeline.run(&job(), input, region);
    let Some(artifact) = report.artifacts.first() else { return Ok(None) };
    let mut bytes = vec![0; usize::try_from(artifact.bytes)?];
    region.read_exact_at(&mut bytes, artifact.offset)?;
    let file = safetensors::SafeTensors::deserialize(&bytes)?;
    let tensors = report.tensors.iter().map(|tensor| Ok(file.tensor(&tensor.name)?.data().to_vec()));
    Ok(Some(tensors.collect::<Result<_, safetensors::SafeTensorError>>()?))
}

/// Compares each image's tensors with the CPU's, one by one and all at once.
fn check(batches: &mut Batches, folder: &Path) -> Result<bool, Box<dyn Error>> {
    let mut pipeline = Pipeline::new(Device::start(Wanted::Cpu, None)?);
    let region = tempfile::tempfile()?;
    let files = files(folder)?;
    let mut expected = Vec::new();
    for (_, input) in &files {
        expected.push(by_cpu(&mut pipeline, input, &region)?);
    }
    let mut got = Vec::new();
    for (_, input) in &files {
        got.push(batches.one(input)?);
    }
    let together = Mutex::new(Vec::new());
    let keep = |finished: Finished| together.lock().map(|mut all| all.push(finished)).unwrap_or_default();
    batches.run(files.iter().map(|(_, input)| Arc::clone(input)), &keep)?;
    got.extend(together.into_inner().unwrap_or_default());
    let (mut wrong, mut tensors) = (0, 0);
    let mut decoders: BTreeMap<String, usize> = BTreeMap::new();
    for (number, finished) in got.iter().enumerate() {
        let index = if number < files.len() { number } else { finished.index };
        let (Some((path, _)), Some(expected)) = (files.get(index), expected.get(index)) else { continue };
        *decoders.entry(finished.report.decoder.clone()).or_default() += 1;
        let found = finished.tensors.as_ref().map(|tensors| tensors.to_host()).transpose()?;
        tensors += found.iter().flatten().count();
        if found == *expected {
            continue;
        }
        wrong += 1;
        let pairs = found.iter().flatten().zip(expected.iter().flatten());
        let differing: Vec<usize> = pairs.map(|(a, b)| a.iter().zip(b).filter(|(a, b)| a != b).count()).collect();
        println!("differs: {} decoder {} bytes {differing:?}", path.display(), finished.report.decoder);
    }
    println!(
        "check {}: {} images twice, {tensors} tensors, {wrong} images differ from the CPU's; {decoders:?}",
        folder.display(),
        files.len()
    );
    Ok(wrong == 0)
}

/// Images a second over `time`, the warm-up apart.
fn rate(gpu: &Gpu, batches: &mut Batches, folder: &Path, time: Duration) -> Result<(), Box<dyn Error>> {
    let inputs: Vec<_> = files(folder)?.into_iter().map(|(_, input)| input).collect();
    let count = AtomicUsize::new(0);
    let stages: Mutex<BTreeMap<String, u64>> = Mutex::default();
    let tally = |finished: Finished| {
        if finished.tensors.is_some() {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let mut stages = stages.lock().unwrap_or_else(PoisonError::into_inner);
        for stage in &finished.report.stages {
            *stages.entry(format!("{:?}", stage.stage)).or_default() += stage.micros;
        }
        *stages.entry(finished.report.decoder).or_default() += 1;
    };
    for warm in [true, false] {
        let length = if warm { Duration::from_millis(700) } else { time };
        let before = batches.counts();
        count.store(0, Ordering::Relaxed);
        stages.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let started = Instant::now();
        let endless = inputs.iter().cycle().take_while(|_| started.elapsed() < length).cloned();
        batches.run(endless, &tally)?;
        let (seconds, images) = (started.elapsed().as_secs_f64(), count.load(Ordering::Relaxed));
        let after = batches.counts();
        if !warm {
            let batch_count = after.batches - before.batches;
            println!(
                "rate {}: {:.0} img/s, {images} images in {seconds:.2} s, {batch_count} batches, {} event waits, {} stream waits, decode {:.0} ms, compute {:.0} ms, {} uploads of {} MB, pool {:?}",
                folder.display(),
                images as f64 / seconds,
                after.event_waits - before.event_waits,
                after.stream_waits - before.stream_waits,
                (after.decode_micros - before.decode_micros) as f64 / 1e3,
                (after.compute_micros - before.compute_micros) as f64 / 1e3,
                after.uploads - before.uploads,
                (after.upload_bytes - before.upload_bytes) / 1_000_000,
                gpu.pool()?,
            );
            println!("  sums of the host's stages in us, and images by decoder: {:?}", stages.lock());
        }
    }
    Ok(())
}

/// Median and 99th percentile of one image after the other, from encoded bytes to tensors on the GPU.
fn latency(batches: &mut Batches, folder: &Path) -> Result<(), Box<dyn Error>> {
    for (path, input) in files(folder)? {
        let mut times = Vec::new();
        let mut decoder = String::new();
        for _ in 0..60 {
            let started = Instant::now();
            let finished = batches.one(&input)?;
            times.push(started.elapsed().as_secs_f64() * 1e3);
            decoder = finished.report.decoder;
        }
        times.drain(..10);
        times.sort_by(f64::total_cmp);
        let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
        println!("latency {}: median {:.2} ms, p99 {:.2} ms, {decoder}", path.display(), at(50), at(99));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, folder, rest @ ..] = arguments.as_slice() else {
        return Err("usage: gpu_rate check|rate|latency FOLDER [SECONDS HOSTS LANES BATCH]".into());
    };
    let number = |at: usize, otherwise: usize| rest.get(at).and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let started = Instant::now();
    let gpu = Gpu::start(None)?;
    eprintln!("start: {:.0} ms", started.elapsed().as_secs_f64() * 1e3);
    let spread = Spread { hosts: number(1, 14), lanes: number(2, 2), batch: number(3, 14) };
    eprintln!("{:?}", gpu.device());
    let mut batches = gpu.batches(job(), spread)?;
    let folder = Path::new(folder);
    match mode.as_str() {
        "check" if !check(&mut batches, folder)? => return Err("the devices differ".into()),
        "check" => {}
        "rate" => rate(&gpu, &mut batches, folder, Duration::from_secs(number(0, 3) as u64))?,
        "latency" => latency(&mut batches, folder)?,
        other => return Err(format!("`{other}` is not check, rate or latency").into()),
    }
    Ok(())
}
