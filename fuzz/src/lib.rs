//! What the fuzz targets do with their bytes. Each holds a promise besides not crashing, and says which.

use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use refmill::failure::{Blame, Failure};
use refmill::job::{ColourOptions, Depth, ImageWanted, Job, Strip};
use refmill::limits::Limits;
use refmill::policy::Policy;
use refmill::recipe::{Dtype, Filter, Layout, Normalise, Recipe, Size, TensorSpec};
use refmill::report::{Format, Model, Outcome};
use refmill::wire::{self, Event};
use refmill_worker::container::{self, Block};
use refmill_worker::device::{Device, Wanted};
use refmill_worker::headers::{self, Windows};
use refmill_worker::open::{self, Encoded, Opened};
use refmill_worker::pipeline::Pipeline;
use refmill_worker::{exif, icc, inspect, repair};

/// Limits that keep one run short.
fn limits() -> Limits {
    Limits {
        input_bytes: 1 << 20,
        width: 4096,
        height: 4096,
        pixels: 1 << 18,
        frames: 64,
        metadata_bytes: 1 << 18,
        output_bytes: 8 << 20,
        ..Limits::default()
    }
}

/// A refusal must be the input's own: never refmill's.
fn blameless(failure: &Failure) {
    assert!(!matches!(failure.blame, Blame::Internal | Blame::Device), "{failure:?}");
}

/// Reads one container and decides what its metadata means: dimensions that pass are within the limits.
pub fn container(bytes: &[u8], format: Format) {
    let (opened, limits) = (Opened { bytes, whole: true, format }, limits());
    if let Ok(container) = container::read(&opened, &limits) {
        let header = container.header;
        assert!(u64::from(header.width) * u64::from(header.height) <= limits.pixels);
        assert!(container.icc.iter().all(|block| block.bytes.len() as u64 <= limits.metadata_bytes));
    }
    let mut findings = Vec::new();
    match inspect::inspect(opened, "", &limits, &mut findings) {
        Ok(inspected) => {
            let repaired = repair::repair(inspected, &mut findings, &mut Vec::new());
            assert!((1..=8).contains(&repaired.orientation.exif()));
        }
        Err(failure) => blameless(&failure),
    }
}

/// Reads what is not pixels: it says what all bytes say, but for the findings that it names itself.
pub fn headers(bytes: &[u8]) {
    let mut file = tempfile::tempfile().expect("a file for the input");
    file.write_all(bytes).expect("room for the input");
    let read = headers::read(&file, bytes.len() as u64, Windows { small: 0, first: 64 }).expect("the file is there");
    let judged = |encoded: Encoded<'_>| {
        let (opened, mut findings) = (open::open(encoded.bytes, &limits()).ok()?, Vec::new());
        let opened = Opened { whole: encoded.whole, ..opened };
        let outcome = inspect::inspect(opened, "", &limits(), &mut findings).map(|inspected| inspected.container.header);
        Some((outcome, findings, container::unseen(&opened)))
    };
    let (Some((part, mut some, unseen)), Some((whole, mut all, _))) = (judged(read.encoded()), judged(bytes.into()))
    else {
        return;
    };
    some.retain(|finding| !unseen.contains(&finding.code));
    all.retain(|finding| !unseen.contains(&finding.code));
    assert_eq!((part, some), (whole, all));
}

/// Looks for the coded pictures of an AVIF or HEIC file, as is done before libheif sees it.
pub fn heif_items(bytes: &[u8]) {
    if let Err(failure) = container::heif_items::check(bytes) {
        blameless(&failure);
    }
}

/// Reads one EXIF block.
pub fn exif(bytes: &[u8]) {
    let block = Block::made("fuzz", None, bytes);
    drop(exif::inspect(&[block], &mut Vec::new()));
    let _any_number = exif::xmp_orientation(bytes);
}

/// Judges one profile: one that passes has the size that its header says.
pub fn icc(bytes: &[u8]) {
    for model in [Model::Rgb, Model::Gray, Model::Cmyk, Model::Lab] {
        let block = Block::made("fuzz", None, bytes);
        if let Some(profile) = icc::judge(&block, model, &mut Vec::new()) {
            assert!(bytes.starts_with(&profile.bytes));
        }
    }
}

/// Repairs without loss: what comes out is repaired again, and the second repair changes nothing.
pub fn rewrite(bytes: &[u8]) {
    let strips = [Strip::Nothing, Strip::Gps, Strip::Private, Strip::All];
    let strip = strips[bytes.len() % strips.len()];
    let Some(once) = rewritten(bytes, strip) else { return };
    let twice = rewritten(&once, strip).expect("a repaired file is read again");
    assert!(once == twice, "a second repair changes something");
}

/// The repaired file, as a job makes it; `None` where the job rejects its input.
fn rewritten(bytes: &[u8], strip: Strip) -> Option<Vec<u8>> {
    with_pipeline(|pipeline, region| {
        let job = Job { image: ImageWanted::Lossless, recipe: None, strip, ..job(bytes) };
        let report = pipeline.run(&job, bytes, region);
        report.error.iter().for_each(blameless);
        let artifact = report.artifacts.first()?;
        let mut file = vec![0; usize::try_from(artifact.bytes).expect("within the limits")];
        region.read_exact_at(&mut file, artifact.offset).expect("the artifact lies in the region");
        Some(file)
    })
}

/// Runs a whole job: what is not rejected has its artifacts, what is has a reason that is the input's own.
pub fn process(bytes: &[u8]) {
    with_pipeline(|pipeline, region| {
        let report = pipeline.run(&job(bytes), bytes, region);
        match (&report.error, report.outcome) {
            (Some(failure), Outcome::Reject) => blameless(failure),
            (None, Outcome::Ok | Outcome::OkWithRepair) => assert_eq!(report.artifacts.len(), 2),
            _ => panic!("outcome {:?} with error {:?}", report.outcome, report.error),
        }
    });
}

/// One pipeline and one output region for all runs, as a worker has them.
fn with_pipeline<T>(run: impl FnOnce(&mut Pipeline, &File) -> T) -> T {
    thread_local! {
        static WORK: RefCell<Option<(Pipeline, File)>> = const { RefCell::new(None) };
    }
    WORK.with_borrow_mut(|work| {
        let (pipeline, region) = work.get_or_insert_with(|| {
            let device = Device::start(Wanted::Cpu, None).expect("the CPU starts");
            (Pipeline::new(device), tempfile::tempfile().expect("a file for the output"))
        });
        run(pipeline, region)
    })
}

/// A job for image and one tensor.
fn job(bytes: &[u8]) -> Job {
    let spec = TensorSpec {
        name: "t".into(),
        size: Size::Cover { width: 32, height: 24 },
        filter: Filter::Lanczos3,
        layout: Layout::Nchw,
        dtype: Dtype::F16,
        normalise: Normalise::Range { min: -1.0, max: 1.0 },
    };
    Job {
        id: 1,
        input_len: bytes.len() as u64,
        extension: String::new(),
        source_hash: String::new(),
        depth: Depth::Full,
        image: ImageWanted::ConvertedPng,
        strip: Strip::Nothing,
        policy: Policy::default(),
        recipe: Some(Recipe { name: "fuzz".into(), background: [255; 3], tensors: vec![spec] }),
        colour: ColourOptions::default(),
        limits: limits(),
    }
}

/// Decodes one frame: what decodes encodes again.
pub fn wire(bytes: &[u8]) {
    if let Ok(event) = wire::decode::<Event>(bytes) {
        let frame = wire::encode(&event).expect("what came in one frame fits one");
        assert_eq!(wire::decode::<Event>(&frame).as_ref(), Ok(&event));
    }
}
