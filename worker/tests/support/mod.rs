//! Fixtures, what is expected of them, and jobs run in this process.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use refmill::failure::Code;
use refmill::job::{ColourOptions, Depth, ImageWanted, Job, Strip};
use refmill::limits::Limits;
use refmill::policy::Policy;
use refmill::recipe::{Dtype, Filter, Layout, Normalise, Recipe, Size, TensorSpec};
use refmill::report::Report;
use refmill_worker::device::{Device, Wanted};
use refmill_worker::headers::Windows;
use refmill_worker::pipeline::Pipeline;
use serde_json::Value;

/// A file and how it is read.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    pub bytes: Vec<u8>,
    pub strip: Strip,
    pub limits: Limits,
    /// Codes of findings that are expected.
    pub has: BTreeSet<String>,
    /// The code of the error that is expected.
    pub error: Option<String>,
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every fixture, and once more for each way to read it that `also` names.
pub fn cases() -> Vec<Case> {
    let root = repository().join("fixtures");
    let table: Value = serde_json::from_slice(&fs::read(root.join("expected.json")).unwrap()).unwrap();
    let mut cases = Vec::new();
    for (name, answer) in table.as_object().unwrap() {
        if answer.get("needs").is_some() && !cfg!(feature = "heif") {
            continue;
        }
        let codes = |value: &Value| serde_json::from_value(value.clone()).unwrap_or_default();
        let mut has: BTreeSet<String> = codes(&answer["has"]);
        let error = answer.get("code").map(|code| code.as_str().unwrap().to_owned());
        if error.as_deref() == Some("truncated") {
            has.insert("truncated".into());
        }
        let bytes = fs::read(root.join(name)).unwrap();
        let plain = Case { name: name.clone(), bytes, strip: Strip::Nothing, limits: Limits::default(), has, error };
        for also in answer["also"].as_array().into_iter().flatten() {
            let limits = also.get("limits").map(|limits| serde_json::from_value(limits.clone()).unwrap());
            let strip = match also["strip"].as_str() {
                Some("gps") => Strip::Gps,
                Some("private") => Strip::Private,
                Some("all") => Strip::All,
                _ => Strip::Nothing,
            };
            let has = codes(&also["has"]);
            cases.push(Case { strip, limits: limits.unwrap_or_default(), has, ..plain.clone() });
        }
        cases.push(plain);
    }
    assert!(cases.len() > 150, "{} cases", cases.len());
    cases
}

/// The files of the corpus, where it is there.
pub fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = std::env::var_os("REFMILL_CORPUS").map_or(repository().join("../shared/corpus"), PathBuf::from);
    let Ok(entries) = fs::read_dir(folder.join("files")) else {
        println!("skipped: there is no ../shared/corpus");
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.display().to_string(), fs::read(path).unwrap())).collect()
}

impl Case {
    /// The job as a whole: converted and with a tensor, or rewritten where something is to be left out.
    pub fn job(&self, depth: Depth) -> Job {
        let image = if self.strip == Strip::Nothing { ImageWanted::ConvertedPng } else { ImageWanted::Lossless };
        let extension = Path::new(&self.name).extension().map(|end| end.to_string_lossy().to_lowercase());
        Job {
            id: 1,
            input_len: self.bytes.len() as u64,
            extension: extension.unwrap_or_default(),
            source_hash: String::new(),
            depth,
            image,
            strip: self.strip,
            policy: Policy::default(),
            recipe: (self.strip == Strip::Nothing).then(recipe),
            colour: ColourOptions::default(),
            limits: self.limits,
        }
    }

    pub fn report(&self, depth: Depth) -> Report {
        run(&self.job(depth), &self.bytes).0
    }
}

fn recipe() -> Recipe {
    let spec = TensorSpec {
        name: "small".into(),
        size: Size::Cover { width: 16, height: 16 },
        filter: Filter::Bicubic,
        layout: Layout::Nhwc,
        dtype: Dtype::F32,
        normalise: Normalise::Range { min: 0.0, max: 255.0 },
    };
    Recipe { name: "small".into(), background: [255; 3], tensors: vec![spec] }
}

/// What a look at the headers says, with windows so small that even fixtures have pixels outside.
pub fn headers(case: &Case) -> Report {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&case.bytes).unwrap();
    let windows = Windows { small: 0, first: 64 };
    let read = refmill_worker::headers::read(&file, case.bytes.len() as u64, windows).unwrap();
    let mut pipeline = Pipeline::new(Device::start(Wanted::Cpu, None).unwrap());
    pipeline.run_encoded(&case.job(Depth::Headers), read.encoded(), &file)
}

/// Runs one job, and gives its first artifact.
pub fn run(job: &Job, bytes: &[u8]) -> (Report, Option<Vec<u8>>) {
    thread_local! {
        static WORK: RefCell<Option<(Pipeline, File)>> = const { RefCell::new(None) };
    }
    WORK.with_borrow_mut(|work| {
        let (pipeline, region) = work.get_or_insert_with(|| {
            (Pipeline::new(Device::start(Wanted::Cpu, None).unwrap()), tempfile::tempfile().unwrap())
        });
        let report = pipeline.run(job, bytes, region);
        let artifact = report.artifacts.first().map(|artifact| {
            let mut file = vec![0; usize::try_from(artifact.bytes).unwrap()];
            region.read_exact_at(&mut file, artifact.offset).unwrap();
            file
        });
        (report, artifact)
    })
}

/// The code of the error, if the job was refused.
pub fn refused(report: &Report) -> Option<Code> {
    report.error.as_ref().map(|failure| failure.code)
}
