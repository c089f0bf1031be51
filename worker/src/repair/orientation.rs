//! Which orientation is applied: EXIF's, unless the container has its own.

use refmill::finding::{Finding, FindingCode, Repair};

use crate::inspect::Inspected;
use crate::orientation::Orientation;

/// Decides, and says so.
pub fn decide(inspected: &Inspected<'_>, findings: &mut Vec<Finding>, repairs: &mut Vec<Repair>) -> Orientation {
    let exif = inspected.exif.as_ref();
    let stored = exif.and_then(|exif| exif.orientation);
    let place = exif.map_or(String::new(), |exif| exif.orientation_place.clone());
    if inspected.container.upright_by_container {
        if let Some(value) = stored.filter(|value| *value != 1) {
            let found = format!("EXIF says {value}; the decoder applies the container's own transforms");
            findings.push(Finding::new(FindingCode::OrientationConflict, place, found));
            repairs.push(Repair::new(FindingCode::OrientationConflict, value.to_string(), "1"));
        }
        return Orientation::UPRIGHT;
    }
    let applied = match stored {
        None => Orientation::UPRIGHT,
        Some(value) => match u32::try_from(value).ok().and_then(Orientation::from_exif) {
            Some(orientation) => orientation,
            None => {
                let found = format!("value is {value}, 1 to 8 exist");
                findings.push(Finding::new(FindingCode::OrientationInvalid, place.clone(), found));
                repairs.push(Repair::new(FindingCode::OrientationInvalid, value.to_string(), "1"));
                Orientation::UPRIGHT
            }
        },
    };
    if let (Some(exif), Some(value)) = (exif, stored)
        && !exif.orientation_regular
    {
        repairs.push(Repair::new(FindingCode::OrientationInvalid, value.to_string(), applied.exif().to_string()));
    }
    conflicts(inspected, applied, findings, repairs);
    if applied != Orientation::UPRIGHT {
        let value = applied.exif().to_string();
        findings.push(Finding::new(FindingCode::OrientationApplied, place, format!("orientation {value}")));
        repairs.push(Repair::new(FindingCode::OrientationApplied, value, "1"));
    }
    applied
}

/// XMP says something else. IFD1 describes the thumbnail alone and is not compared.
fn conflicts(inspected: &Inspected<'_>, applied: Orientation, findings: &mut Vec<Finding>, repairs: &mut Vec<Repair>) {
    let stored_in_exif = inspected.exif.as_ref().is_some_and(|exif| exif.orientation.is_some());
    if let Some(value) = inspected.xmp_orientation.filter(|value| *value != u64::from(applied.exif())) {
        let exif = if stored_in_exif { format!("EXIF says {}", applied.exif()) } else { "EXIF says nothing".into() };
        findings.push(Finding::new(FindingCode::OrientationConflict, "XMP", format!("XMP says {value}, {exif}")));
        repairs.push(Repair::new(FindingCode::OrientationConflict, value.to_string(), applied.exif().to_string()));
    }
}
