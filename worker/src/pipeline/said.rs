//! What the report says besides the stages' own findings: what was decided about each defect, where a profile stands
//! that turned out to be of no use, and what the pixels say about linear light.

use refmill::finding::{Finding, FindingCode, Repair, Severity};
use refmill::report::{MAX_FINDINGS, Report};

use crate::container::Block;
use crate::decode::Decoded;
use crate::evidence;

/// A defect that no stage answered with a value of its own is answered by its rule.
pub fn decisions(report: &mut Report) {
    for finding in report.findings.iter().filter(|finding| finding.severity >= Severity::Defect) {
        let known = report.repairs.iter().any(|repair| repair.code == finding.code);
        if !known && report.repairs.len() < MAX_FINDINGS {
            report.repairs.push(Repair::new(finding.code, finding.found.clone(), finding.code.decision()));
        }
    }
}

/// Where linear light is suspected, the pixels are asked; what they say stands in the report and with the finding.
pub fn linear_evidence(report: &mut Report, decoded: &Decoded<'_>) {
    let mut findings = report.findings.iter_mut();
    let Some(finding) = findings.find(|finding| finding.code == FindingCode::IccLinearSuspected) else { return };
    let Some(found) = evidence::linear(&decoded.pixels) else { return };
    let text = format!("{}; {}", finding.found, evidence::words(&found));
    let (severity, offset) = (finding.severity, finding.offset);
    *finding = Finding { severity, offset, ..Finding::new(finding.code, finding.place.clone(), text) };
    report.linear_evidence = Some(found);
}

/// Where a profile stands.
#[derive(Debug, Clone, Default)]
pub struct ProfilePlace {
    place: String,
    offset: Option<usize>,
}

impl ProfilePlace {
    /// That of the block which holds it.
    pub fn of(block: Option<&Block<'_>>) -> Self {
        block.map(|block| Self { place: block.place.clone(), offset: block.offset }).unwrap_or_default()
    }

    /// Names the place in findings of a profile that was of no use once its transform was to be built.
    pub fn name_in(&self, findings: &mut [Finding]) {
        for finding in findings.iter_mut().filter(|finding| finding.code == FindingCode::IccUnusable) {
            *finding = Finding::new(finding.code, self.place.clone(), finding.found.clone()).at(self.offset);
        }
    }
}

/// That the data ends too early.
pub fn truncated(bytes: u64, found: &str) -> Finding {
    let place = format!("the end, byte {bytes}");
    Finding::new(FindingCode::Truncated, place, found).at(usize::try_from(bytes).ok())
}
