//! What a submission asks for, as it lies in the queue, and its content key. A function of what was submitted alone:
//! the same bytes with the same wishes have the same key and the same names, on every machine.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use refmill::failure::{Code, Failure, Stage};
use refmill::job::ImageWanted;
use refmill::recipe::{Size, TensorSpec};
use refmill::report::REPORT_VERSION;
use serde::{Deserialize, Serialize};

use super::NewJob;
use super::tenant;
use crate::naming::{self, IMAGE, REPORT, TENSORS};
use crate::pool::Order;
use crate::publish::{Outputs, Target};

/// Context of the content hash; another form of the key has another one.
const CONTEXT: &str = "refmill 2026 queue content key 1";
/// Digits of the content hash in names: 48 bits, which two images of a folder with one stem do not share.
const NAME_DIGITS: usize = 12;

/// One submission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The image, by its absolute path.
    pub source: PathBuf,
    /// BLAKE3-256 of its bytes, hexadecimal, as they were submitted.
    pub blake3: String,
    /// What is asked of it.
    pub order: Order,
    /// Where its artifacts go.
    pub outputs: Outputs,
}

/// When and before whom a submission is worked on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Urgency {
    /// Higher ones go first.
    pub priority: i32,
    /// How long it must wait, in milliseconds.
    pub delay_ms: u32,
}

/// What is submitted: a file as it was read, and for whom.
#[derive(Debug, Clone, Copy)]
pub struct Original<'a> {
    /// Whose job it becomes.
    pub tenant: &'a str,
    /// The image, by its absolute path.
    pub path: &'a Path,
    /// BLAKE3-256 of its bytes, hexadecimal.
    pub blake3: &'a str,
}

/// The job that a submission is in the queue. Two tenants that submit the same have a job each.
///
/// # Errors
/// [`Code::Unreadable`] where a path is not UTF-8, since it could not be stored as it is.
pub fn submission(original: Original<'_>, order: &Order, out: &Path, urgency: Urgency) -> Result<NewJob, Failure> {
    let Original { tenant, path: source, blake3 } = original;
    let refused = |why: String| Failure::new(Code::Unreadable, why).at(Stage::Intake);
    let (Some(name), Some(folder)) = (source.to_str(), out.to_str()) else {
        let message = format!("path {} or {} is not UTF-8, the queue stores no other", source.display(), out.display());
        return Err(refused(message));
    };
    let stored = |error: serde_json::Error| refused(format!("cannot store the submission of {name}: {error}"));
    let wishes = serde_json::to_string(order).map_err(stored)?;
    let version = format!("{} {REPORT_VERSION}", env!("CARGO_PKG_VERSION"));
    let content = hash(&[&version, blake3, &wishes]);
    let stem = source.file_stem().and_then(OsStr::to_str).unwrap_or("image");
    let key = match tenant {
        // As it was before there were tenants.
        tenant::DEFAULT => hash(&[&content, folder, stem]),
        tenant => hash(&[&content, folder, stem, tenant]),
    };
    let digits = content.get(..NAME_DIGITS).unwrap_or(&content);
    let outputs = outputs(order, out, &format!("{stem}-{digits}"));
    let spec = Spec { source: source.to_owned(), blake3: blake3.to_owned(), order: order.clone(), outputs };
    let payload = serde_json::to_string(&spec).map_err(stored)?;
    let Urgency { priority, delay_ms } = urgency;
    let (tenant, name, device_bytes) = (tenant.to_owned(), name.to_owned(), device_bytes(order));
    Ok(NewJob { tenant, key, name, payload, priority, delay_ms, device_bytes })
}

/// The most device memory that an order can need for one image, in bytes: as many pixels as its limits allow, with
/// alpha, and its tensors at their largest, with a mask. Nothing without tensors, which are all that a GPU makes. What
/// is known before an image is looked at; most need far less. A worker's own share, its context and its kernels, is
/// not in it.
#[must_use]
pub fn device_bytes(order: &Order) -> u64 {
    const RGBA: u64 = 4;
    let Some(recipe) = &order.recipe else { return 0 };
    let tensors = recipe.tensors.iter().map(tensor_bytes);
    order.limits.pixels.saturating_mul(RGBA).saturating_add(tensors.fold(0, u64::saturating_add))
}

/// Colour and mask of one tensor, in bytes.
fn tensor_bytes(spec: &TensorSpec) -> u64 {
    const PLANES: u64 = 4;
    let (width, height) = match spec.size {
        Size::Cover { width, height } | Size::Contain { width, height } | Size::Stretch { width, height } => {
            (width, height)
        }
        Size::LongSide { side } => (side, side),
    };
    let element = u64::try_from(spec.dtype.bytes()).unwrap_or(u64::MAX);
    [width.into(), height.into(), element].into_iter().fold(PLANES, u64::saturating_mul)
}

/// The hash of a list, which no other list has.
fn hash(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

fn outputs(order: &Order, out: &Path, name: &str) -> Outputs {
    let file = |ending| naming::file(out, OsStr::new(name), ending);
    Outputs {
        image: (order.image != ImageWanted::No).then(|| Target::File(file(IMAGE))),
        tensors: order.recipe.is_some().then(|| Target::File(file(TENSORS))),
        report: Some(file(REPORT)),
        // A name with the content's hash is ours, also where a supervisor ended before it wrote the report.
        force: true,
        ..Outputs::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refmill::job::ColourOptions;
    use refmill::limits::Limits;

    fn order() -> Order {
        Order::new(ImageWanted::ConvertedPng, None, ColourOptions::default(), Limits::default())
    }

    fn job(source: &str, blake3: &str, order: &Order, out: &str) -> NewJob {
        let original = Original { tenant: tenant::DEFAULT, path: Path::new(source), blake3 };
        submission(original, order, Path::new(out), Urgency::default()).unwrap()
    }

    fn of(tenant: &str) -> NewJob {
        let original = Original { tenant, path: Path::new("/x/a.jpg"), blake3: "ab" };
        submission(original, &order(), Path::new("/out"), Urgency { priority: 7, delay_ms: 5 }).unwrap()
    }

    #[test]
    fn key_is_the_same_for_the_same_wish_and_urgency_does_not_count() {
        assert_eq!(job("/x/a.jpg", "ab", &order(), "/out").key, of(tenant::DEFAULT).key);
    }

    #[test]
    fn tenants_that_submit_the_same_have_a_job_each() {
        let (one, other) = (of("one"), of("other"));
        assert_ne!(one.key, other.key);
        assert_eq!(one.payload, other.payload);
    }

    #[test]
    fn device_memory_is_bounded_by_the_limits_and_the_recipe() {
        let clip = Order { recipe: Some(crate::recipe::load("clip").unwrap()), ..order() };
        let limits = Limits { pixels: 1_000, ..Limits::default() };
        // One tensor of 224 x 224 in f32 with its mask.
        assert_eq!(device_bytes(&Order { limits, ..clip }), 4_000 + 224 * 224 * 4 * 4);
        assert_eq!(device_bytes(&order()), 0);
    }

    #[test]
    fn key_differs_by_bytes_wish_folder_and_name() {
        let converted = order();
        let none = Order { image: ImageWanted::No, ..order() };
        let keys: std::collections::HashSet<String> = [
            job("/x/a.jpg", "ab", &converted, "/out"),
            job("/x/a.jpg", "ac", &converted, "/out"),
            job("/x/a.jpg", "ab", &none, "/out"),
            job("/x/a.jpg", "ab", &converted, "/other"),
            job("/x/b.jpg", "ab", &converted, "/out"),
        ]
        .map(|job| job.key)
        .into();
        assert_eq!(keys.len(), 5);
    }

    #[test]
    fn images_of_one_stem_and_other_bytes_write_other_files() {
        let spec = |job: NewJob| serde_json::from_str::<Spec>(&job.payload).unwrap();
        let one = spec(job("/x/a.jpg", "ab", &order(), "/out"));
        let other = spec(job("/y/a.jpg", "ac", &order(), "/out"));
        assert_ne!(one.outputs.report, other.outputs.report);
        let report = one.outputs.report.unwrap();
        assert!(report.to_str().unwrap().starts_with("/out/a-"), "{report:?}");
        assert_eq!(one.order, order());
    }
}
