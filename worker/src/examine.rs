//! What jobs need, tried out with the confinement closed: a built-in image through every stage, and on a GPU each of
//! the things that can be wrong with one, alone.

use std::fs::File;
use std::os::unix::fs::FileExt;

use refmill::examine::{Examination, Outcome, Trial, Tried};
use refmill::job::{ColourOptions, Depth, ImageWanted, Job, Strip};
use refmill::limits::Limits;
use refmill::policy::Policy;
use refmill::recipe::{Dtype, Filter, Layout, Normalise, Recipe, Size, TensorSpec};
use refmill::report::ArtifactKind;

use crate::device::Device;
use crate::pipeline::Pipeline;

/// A JPEG in Display P3 that has to be turned.
const IMAGE: &[u8] = include_bytes!("../../fixtures/images/p3_orientation6.jpg");
/// CRC-32 of the bytes of the tensor that is made of it.
const TENSOR_CRC: u32 = 0x890c_74ea;
/// Longest header of a safetensors file that is made here, in bytes.
const MAX_HEADER: u64 = 1 << 20;

/// Tries everything. `region` is the output region, which is written over.
#[must_use]
pub fn examine(pipeline: &mut Pipeline, region: &File, expected: Option<&str>) -> Examination {
    let image = match image(pipeline, region) {
        Ok(seen) => Tried::new(Trial::Image, Outcome::Passed, seen),
        Err(problem) => Tried::new(Trial::Image, Outcome::Failed, problem),
    };
    let mut told = Examination { tried: vec![image], free: None };
    match pipeline.device_mut() {
        Device::Cpu(..) => {
            let skipped = |trial: &Trial| Tried::new(*trial, Outcome::Skipped, "no GPU");
            told.tried.extend(Trial::ALL.iter().skip(1).map(skipped));
        }
        Device::Cuda(gpu) => {
            let (tried, free) = gpu.examine(expected);
            told.tried.extend(tried);
            told.free = free;
        }
    }
    told
}

fn image(pipeline: &mut Pipeline, region: &File) -> Result<String, String> {
    let report = pipeline.run(&job(), IMAGE, region);
    if let Some(failure) = report.error {
        return Err(format!("the built-in image ends with {}: {}", failure.code.as_str(), failure.message));
    }
    let tensors = report.artifacts.iter().find(|artifact| artifact.kind == ArtifactKind::Tensors);
    let tensors = tensors.ok_or("the built-in image has no tensor")?;
    let bytes = values(region, tensors.offset, tensors.bytes).map_err(|error| format!("the tensor: {error}"))?;
    let crc = crc32fast::hash(&bytes);
    if crc != TENSOR_CRC {
        return Err(format!("the built-in image's tensor has CRC {crc:08x}, it must be {TENSOR_CRC:08x}"));
    }
    Ok(format!("decoded, converted, turned, resampled and written; {} bytes as they must be", bytes.len()))
}

/// The elements of a safetensors file in the region, without its header.
fn values(region: &File, offset: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let mut header = [0; 8];
    region.read_exact_at(&mut header, offset)?;
    let skipped = u64::from_le_bytes(header).min(MAX_HEADER).saturating_add(8);
    let count = usize::try_from(len.saturating_sub(skipped).min(MAX_HEADER)).unwrap_or(0);
    let mut bytes = vec![0; count];
    region.read_exact_at(&mut bytes, offset.saturating_add(skipped))?;
    Ok(bytes)
}

fn job() -> Job {
    let tensor = TensorSpec {
        name: "examined".into(),
        size: Size::Cover { width: 29, height: 31 },
        filter: Filter::Lanczos3,
        layout: Layout::Nhwc,
        dtype: Dtype::U8,
        normalise: Normalise::None,
    };
    let recipe = Recipe { name: "examined".into(), background: [255; 3], tensors: vec![tensor] };
    Job {
        id: 0,
        input_len: IMAGE.len() as u64,
        extension: "jpg".into(),
        source_hash: String::new(),
        depth: Depth::Full,
        image: ImageWanted::No,
        strip: Strip::Nothing,
        policy: Policy::default(),
        recipe: Some(recipe),
        colour: ColourOptions::default(),
        limits: Limits { output_bytes: 1 << 20, ..Limits::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Wanted;

    #[test]
    fn cpu_passes_the_image_and_skips_what_needs_a_gpu() {
        let mut pipeline = Pipeline::new(Device::start(Wanted::Cpu, None).unwrap());
        let told = examine(&mut pipeline, &tempfile::tempfile().unwrap(), None);
        assert_eq!(told.contradiction(), None);
        let outcomes: Vec<_> = told.tried.iter().map(|tried| tried.outcome).collect();
        assert_eq!((outcomes[0], told.tried[0].seen.contains("as they must be")), (Outcome::Passed, true), "{told:?}");
        assert_eq!(outcomes[1..], [Outcome::Skipped; 9]);
    }

    #[test]
    fn region_that_cannot_be_written_is_a_failed_trial() {
        let mut pipeline = Pipeline::new(Device::start(Wanted::Cpu, None).unwrap());
        let told = examine(&mut pipeline, &File::open("/dev/null").unwrap(), None);
        assert_eq!(told.tried[0].outcome, Outcome::Failed, "{told:?}");
    }

    #[test]
    fn gpu_passes_every_trial_or_there_is_none() {
        let mut pipeline = Pipeline::new(Device::start(Wanted::Auto, None).unwrap());
        let told = examine(&mut pipeline, &tempfile::tempfile().unwrap(), None);
        eprintln!("on {:?}: {told:#?}", pipeline.device().about());
        assert!(told.tried.iter().all(|tried| tried.outcome != Outcome::Failed), "{told:?}");
    }
}
