//! What a worker says about a job, checked against what it was asked. Pure. What the supervisor knows better
//! (source, device, blame) is overwritten; what must hold and does not is a [`ClaimError`].

use refmill::failure::Failure;
use refmill::finding::MAX_TEXT;
use refmill::job::{Depth, ImageWanted, Job};
use refmill::recipe::{ALPHA_MASK, MAX_TENSORS};
use refmill::report::{Artifact, ArtifactKind, Device, MAX_FINDINGS, Outcome, REPORT_VERSION, Report};

/// Longest other text in a report, in bytes.
const MAX_NAME: usize = 512;
/// Most stages: each may be named a few times.
const MAX_STAGES: usize = 64;

/// What does not hold. The worker that said it is killed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The answer is to another job.
    #[error("answer is to job {got}, job {asked} was asked")]
    Job {
        /// The job answered.
        got: u64,
        /// The job asked.
        asked: u64,
    },
    /// The report has another form.
    #[error("report is of version {got}, this side reads {REPORT_VERSION}")]
    Version {
        /// The version told.
        got: u32,
    },
    /// A list is longer than it can be.
    #[error("report lists {got} {what}, the limit is {limit}")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many.
        got: usize,
        /// The limit.
        limit: usize,
    },
    /// A text is longer than it can be.
    #[error("report has a text of {got} bytes in {what}, the limit is {limit}")]
    Text {
        /// Where.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The limit.
        limit: usize,
    },
    /// A chromaticity is no number, or none of any colour.
    #[error("report's primaries are no chromaticities")]
    Primaries,
    /// Outcome, error and artifacts contradict each other.
    #[error("report's outcome, error and artifacts contradict each other")]
    Outcome,
    /// The tensors are not the recipe's.
    #[error("report has {got} tensors, not the {asked} of the recipe by name and order")]
    Tensors {
        /// How many it has.
        got: usize,
        /// How many the recipe has.
        asked: usize,
    },
    /// The artifacts are not those that were asked for.
    #[error("report has {got} of artifact `{kind}`, {asked} was asked for")]
    Wanted {
        /// Its kind.
        kind: &'static str,
        /// How many there are.
        got: usize,
        /// How many there should be.
        asked: usize,
    },
    /// An artifact lies outside the output region.
    #[error("artifact of {bytes} bytes at {offset} is not inside the output region of {region} bytes")]
    Range {
        /// Where it begins.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Length of the region.
        region: u64,
    },
    /// Two artifacts share bytes.
    #[error("artifacts overlap in the output region")]
    Overlap,
}

/// Checks the answer to `job` and makes it the supervisor's own.
///
/// # Errors
/// The first [`ClaimError`] found.
pub fn check(id: u64, mut report: Report, job: &Job, region: u64, device: &Device) -> Result<Report, ClaimError> {
    if id != job.id {
        return Err(ClaimError::Job { got: id, asked: job.id });
    }
    if report.version != REPORT_VERSION {
        return Err(ClaimError::Version { got: report.version });
    }
    check_counts(&report, job)?;
    check_texts(&report)?;
    check_primaries(&report)?;
    check_outcome(&report, job)?;
    check_ranges(&report.artifacts, region)?;
    if let Some(failure) = &mut report.error {
        failure.blame = failure.code.blame();
    }
    report.device = Some(device.clone());
    report.source.bytes = job.input_len;
    report.source.blake3.clone_from(&job.source_hash);
    Ok(report)
}

fn check_counts(report: &Report, job: &Job) -> Result<(), ClaimError> {
    let unseen = if job.depth == Depth::Headers { MAX_FINDINGS } else { 0 };
    let lists = [
        ("findings", report.findings.len(), MAX_FINDINGS),
        ("repairs", report.repairs.len(), MAX_FINDINGS),
        ("findings not looked for", report.not_looked_for.len(), unseen),
        ("tensors", report.tensors.len(), MAX_TENSORS + 1),
        ("stages", report.stages.len(), MAX_STAGES),
    ];
    match lists.into_iter().find(|(_, got, limit)| got > limit) {
        Some((what, got, limit)) => Err(ClaimError::Count { what, got, limit }),
        None => Ok(()),
    }
}

fn check_texts(report: &Report) -> Result<(), ClaimError> {
    let findings = report.findings.iter().flat_map(|finding| [&finding.place, &finding.found, &finding.rule]);
    let repairs = report.repairs.iter().flat_map(|repair| [&repair.before, &repair.after, &repair.rule]);
    within("findings", MAX_TEXT, findings)?;
    within("repairs", MAX_TEXT, repairs)?;
    let colour = report.colour.iter();
    within(
        "colour",
        MAX_NAME,
        colour.flat_map(|colour| [&colour.interpretation, &colour.description, &colour.engine]),
    )?;
    within("tensors", MAX_NAME, report.tensors.iter().map(|tensor| &tensor.name))?;
    within("error", Failure::MAX_MESSAGE, report.error.iter().map(|failure| &failure.message))
}

fn check_primaries(report: &Report) -> Result<(), ClaimError> {
    let primaries = report.colour.iter().filter_map(|colour| colour.primaries);
    let mut values = primaries.flat_map(|p| [p.white, p.red, p.green, p.blue]).flatten();
    // PNG's cHRM can say anything up to 42949; what is not finite is no JSON either.
    if values.all(|value| value.abs() < 1e5) { Ok(()) } else { Err(ClaimError::Primaries) }
}

fn within<'a>(what: &'static str, limit: usize, mut texts: impl Iterator<Item = &'a String>) -> Result<(), ClaimError> {
    match texts.find(|text| text.len() > limit) {
        Some(text) => Err(ClaimError::Text { what, got: text.len(), limit }),
        None => Ok(()),
    }
}

fn check_outcome(report: &Report, job: &Job) -> Result<(), ClaimError> {
    if report.outcome == Outcome::Reject {
        let empty = report.artifacts.is_empty() && report.tensors.is_empty();
        return if report.error.is_some() && empty { Ok(()) } else { Err(ClaimError::Outcome) };
    }
    if report.error.is_some() {
        return Err(ClaimError::Outcome);
    }
    let full = job.depth == Depth::Full;
    check_wanted(report, ArtifactKind::Image, "image", full && job.image == ImageWanted::ConvertedPng)?;
    check_wanted(report, ArtifactKind::Repaired, "repaired file", full && job.image == ImageWanted::Lossless)?;
    let thumbnails = full && job.image == ImageWanted::Thumbnails;
    check_wanted(report, ArtifactKind::ThumbnailBefore, "thumbnail of what is stored", thumbnails)?;
    check_wanted(report, ArtifactKind::ThumbnailAfter, "thumbnail of what is meant", thumbnails)?;
    check_wanted(report, ArtifactKind::Tensors, "tensors", full && job.recipe.is_some())?;
    let recipe = job.recipe.as_ref().filter(|_| full);
    let asked = recipe.map(|recipe| recipe.tensors.as_slice()).unwrap_or_default();
    let mut got = report.tensors.iter().map(|tensor| tensor.name.as_str());
    let same = asked.iter().all(|spec| got.next() == Some(spec.name.as_str()));
    let rest = if asked.is_empty() { None } else { Some(ALPHA_MASK) };
    if same && got.next().is_none_or(|name| Some(name) == rest) && got.next().is_none() {
        Ok(())
    } else {
        Err(ClaimError::Tensors { got: report.tensors.len(), asked: asked.len() })
    }
}

fn check_wanted(report: &Report, kind: ArtifactKind, name: &'static str, wanted: bool) -> Result<(), ClaimError> {
    let got = report.artifacts.iter().filter(|artifact| artifact.kind == kind).count();
    let asked = usize::from(wanted);
    if got == asked { Ok(()) } else { Err(ClaimError::Wanted { kind: name, got, asked }) }
}

fn check_ranges(artifacts: &[Artifact], region: u64) -> Result<(), ClaimError> {
    let mut ranges = Vec::with_capacity(artifacts.len());
    for &Artifact { offset, bytes, .. } in artifacts {
        match offset.checked_add(bytes) {
            Some(end) if bytes > 0 && end <= region => ranges.push((offset, end)),
            _ => return Err(ClaimError::Range { offset, bytes, region }),
        }
    }
    ranges.sort_unstable();
    let mut pairs = ranges.iter().zip(ranges.iter().skip(1));
    if pairs.any(|((_, end), (next, _))| next < end) { Err(ClaimError::Overlap) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refmill::failure::{Blame, Code};
    use refmill::finding::{Finding, FindingCode};
    use refmill::geometry::Plan;
    use refmill::limits::Limits;
    use refmill::recipe::{Dtype, Layout};
    use refmill::report::{Source, Tensor};

    fn job() -> Job {
        Job {
            id: 7,
            input_len: 3,
            extension: String::new(),
            source_hash: "ab".into(),
            depth: Depth::Full,
            image: ImageWanted::ConvertedPng,
            strip: refmill::job::Strip::Nothing,
            policy: refmill::policy::Policy::default(),
            recipe: None,
            colour: refmill::job::ColourOptions::default(),
            limits: Limits::default(),
        }
    }

    fn artifact(kind: ArtifactKind, offset: u64, bytes: u64) -> Artifact {
        Artifact { kind, offset, bytes, blake3: String::new(), path: String::new() }
    }

    fn tensor(name: &str) -> Tensor {
        Tensor {
            name: name.into(),
            shape: [1, 3, 2, 2],
            layout: Layout::Nchw,
            dtype: Dtype::F32,
            plan: Plan { fitted: [2, 2], crop: [0, 0], size: [2, 2] },
        }
    }

    fn with_image(offset: u64, bytes: u64) -> Report {
        let mut report = Report::new(Source::default());
        report.artifacts.push(artifact(ArtifactKind::Image, offset, bytes));
        report
    }

    fn checked(report: Report) -> Result<Report, ClaimError> {
        check(7, report, &job(), 100, &Device::default())
    }

    #[test]
    fn artifact_inside_the_region_is_taken() {
        let report = checked(with_image(90, 10)).unwrap();
        assert_eq!((report.source.bytes, report.source.blake3.as_str()), (3, "ab"));
    }

    #[test]
    fn artifact_past_the_region_is_refused() {
        assert!(matches!(checked(with_image(90, 11)), Err(ClaimError::Range { offset: 90, bytes: 11, region: 100 })));
    }

    #[test]
    fn artifact_whose_end_overflows_is_refused() {
        assert!(matches!(checked(with_image(u64::MAX, 2)), Err(ClaimError::Range { .. })));
    }

    #[test]
    fn empty_artifact_is_refused() {
        assert!(matches!(checked(with_image(0, 0)), Err(ClaimError::Range { .. })));
    }

    #[test]
    fn overlapping_ranges_are_refused_in_any_order() {
        let image = artifact(ArtifactKind::Image, 10, 10);
        let tensors = artifact(ArtifactKind::Tensors, 0, 11);
        assert_eq!(check_ranges(&[image.clone(), tensors.clone()], 100), Err(ClaimError::Overlap));
        assert_eq!(check_ranges(&[tensors, image], 100), Err(ClaimError::Overlap));
    }

    #[test]
    fn artifact_that_was_not_asked_for_is_refused() {
        let mut report = with_image(0, 1);
        report.artifacts.push(artifact(ArtifactKind::Tensors, 1, 1));
        assert_eq!(checked(report), Err(ClaimError::Wanted { kind: "tensors", got: 1, asked: 0 }));
    }

    #[test]
    fn missing_artifact_is_refused() {
        let report = Report::new(Source::default());
        assert_eq!(checked(report), Err(ClaimError::Wanted { kind: "image", got: 0, asked: 1 }));
    }

    #[test]
    fn alpha_mask_may_follow_the_recipes_tensors_and_nothing_else() {
        let recipe = crate::recipe::load("clip").unwrap();
        let job = Job { image: ImageWanted::No, recipe: Some(recipe), ..job() };
        let answer = |names: &[&str]| {
            let mut report = Report::new(Source::default());
            report.artifacts.push(artifact(ArtifactKind::Tensors, 0, 1));
            report.tensors = names.iter().map(|name| tensor(name)).collect();
            check(7, report, &job, 100, &Device::default()).map(drop)
        };
        assert_eq!(answer(&["clip_pixels"]), Ok(()));
        assert_eq!(answer(&["clip_pixels", "alpha_mask"]), Ok(()));
        assert_eq!(answer(&["clip_pixels", "other"]), Err(ClaimError::Tensors { got: 2, asked: 1 }));
        assert_eq!(answer(&["alpha_mask"]), Err(ClaimError::Tensors { got: 1, asked: 1 }));
        assert_eq!(answer(&[]), Err(ClaimError::Tensors { got: 0, asked: 1 }));
    }

    #[test]
    fn answer_to_another_job_is_refused() {
        let answer = check(8, with_image(0, 1), &job(), 100, &Device::default());
        assert_eq!(answer, Err(ClaimError::Job { got: 8, asked: 7 }));
    }

    #[test]
    fn report_of_another_version_is_refused() {
        let mut report = with_image(0, 1);
        report.version = 2;
        assert_eq!(checked(report), Err(ClaimError::Version { got: 2 }));
    }

    #[test]
    fn primaries_that_are_no_numbers_are_refused() {
        let mut report = with_image(0, 1);
        let (interpretation, description, engine) = Default::default();
        let primaries =
            refmill::report::Primaries { white: [f64::NAN; 2], red: [0.0; 2], green: [0.0; 2], blue: [0.0; 2] };
        let (primaries, options) = (Some(primaries), refmill::job::ColourOptions::default());
        report.colour = Some(refmill::report::Colour { interpretation, description, primaries, engine, options });
        assert_eq!(checked(report), Err(ClaimError::Primaries));
    }

    #[test]
    fn rejection_without_a_reason_is_refused() {
        let mut report = Report::new(Source::default());
        report.outcome = Outcome::Reject;
        assert_eq!(checked(report), Err(ClaimError::Outcome));
    }

    #[test]
    fn rejection_with_an_artifact_is_refused() {
        let mut report = Report::rejected(Source::default(), Failure::new(Code::Corrupt, "x"));
        report.artifacts.push(artifact(ArtifactKind::Image, 0, 1));
        assert_eq!(checked(report), Err(ClaimError::Outcome));
    }

    #[test]
    fn blame_is_read_from_the_code() {
        let mut report = Report::rejected(Source::default(), Failure::new(Code::Corrupt, "x"));
        report.error.as_mut().unwrap().blame = Blame::Device;
        assert_eq!(checked(report).unwrap().error.unwrap().blame, Blame::Input);
    }

    #[test]
    fn text_over_its_limit_is_refused() {
        let mut report = with_image(0, 1);
        report.find(Finding::new(FindingCode::ExifCorrupt, "", ""));
        report.findings[0].found = "x".repeat(MAX_TEXT + 1);
        assert_eq!(checked(report), Err(ClaimError::Text { what: "findings", got: MAX_TEXT + 1, limit: MAX_TEXT }));
    }

    #[test]
    fn more_findings_than_a_report_holds_are_refused() {
        let mut report = with_image(0, 1);
        report.findings = vec![Finding::new(FindingCode::ExifCorrupt, "", ""); MAX_FINDINGS + 1];
        assert_eq!(checked(report), Err(ClaimError::Count { what: "findings", got: 65, limit: 64 }));
    }
}
