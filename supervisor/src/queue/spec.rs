//! What a submission asks for, as it lies in the queue, and its content key. A function of what was submitted alone:
//! the same bytes with the same wishes have the same key and the same names, on every machine.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use refmill::failure::{Code, Failure, Stage};
use refmill::job::ImageWanted;
use refmill::report::REPORT_VERSION;
use serde::{Deserialize, Serialize};

use super::NewJob;
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

/// The job that a submission is in the queue.
///
/// # Errors
/// [`Code::Unreadable`] where a path is not UTF-8, since it could not be stored as it is.
pub fn submission(source: &Path, blake3: &str, order: &Order, out: &Path, urgency: Urgency) -> Result<NewJob, Failure> {
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
    let key = hash(&[&content, folder, stem]);
    let digits = content.get(..NAME_DIGITS).unwrap_or(&content);
    let outputs = outputs(order, out, &format!("{stem}-{digits}"));
    let spec = Spec { source: source.to_owned(), blake3: blake3.to_owned(), order: order.clone(), outputs };
    let payload = serde_json::to_string(&spec).map_err(stored)?;
    Ok(NewJob { key, name: name.to_owned(), payload, priority: urgency.priority, delay_ms: urgency.delay_ms })
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
        submission(Path::new(source), blake3, order, Path::new(out), Urgency::default()).unwrap()
    }

    #[test]
    fn key_is_the_same_for_the_same_wish_and_urgency_does_not_count() {
        let urgent = Urgency { priority: 7, delay_ms: 5 };
        let other = submission(Path::new("/x/a.jpg"), "ab", &order(), Path::new("/out"), urgent).unwrap();
        assert_eq!(job("/x/a.jpg", "ab", &order(), "/out").key, other.key);
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
