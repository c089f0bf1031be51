//! The verdict's evidence: container, EXIF, ICC and XMP of one image, before any pixel is decoded.

use refmill::failure::Failure;
use refmill::finding::{Finding, FindingCode, Severity};
use refmill::limits::Limits;

use crate::container::{self, Container};
use crate::exif::{self, Exif};
use crate::icc::{self, Profile};
use crate::open::Opened;

/// An opened input and what its metadata says.
#[derive(Debug)]
pub struct Inspected<'a> {
    /// The input.
    pub opened: Opened<'a>,
    /// Its container.
    pub container: Container<'a>,
    /// The first readable EXIF block.
    pub exif: Option<Exif>,
    /// The profile, where it is sound and fits the pixels.
    pub profile: Option<Profile<'a>>,
    /// Orientation named by XMP.
    pub xmp_orientation: Option<u64>,
    /// The defects found.
    pub defects: Vec<FindingCode>,
}

/// The codes of the defects among some findings.
pub fn defects(findings: &[Finding]) -> impl Iterator<Item = FindingCode> {
    findings.iter().filter(|finding| finding.severity >= Severity::Defect).map(|finding| finding.code)
}

/// Inspects an opened input. `extension` is that of its name, lower case, empty for none.
///
/// # Errors
/// Those of [`container::read`].
pub fn inspect<'a>(
    opened: Opened<'a>,
    extension: &str,
    limits: &Limits,
    findings: &mut Vec<Finding>,
) -> Result<Inspected<'a>, Failure> {
    if !extension.is_empty() && !opened.format.extensions().contains(&extension) {
        let usual = opened.format.extensions().first().copied().unwrap_or_default();
        let found = format!("named .{extension}, content is that of .{usual}");
        findings.push(Finding::new(FindingCode::WrongExtension, "", found));
    }
    let mut container = container::read(&opened, limits)?;
    findings.append(&mut container.findings);
    if container.header.frames > 1 {
        let found = format!("{} frames or pages", container.header.frames);
        findings.push(Finding::new(FindingCode::AnimatedFirstFrame, "", found));
    }
    let exif = exif::inspect(&container.exif, findings);
    let model = container.header.model;
    let profile = container.icc.as_ref().and_then(|block| icc::judge(block, model, findings));
    let xmp_orientation = container.xmp.as_ref().and_then(|block| exif::xmp_orientation(&block.bytes));
    let defects = defects(findings).collect();
    Ok(Inspected { opened, container, exif, profile, xmp_orientation, defects })
}
