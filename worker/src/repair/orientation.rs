//! Which orientation is applied: EXIF's, unless the container has its own.

use refmill::finding::{Finding, FindingCode, Repair};

use crate::exif;
use crate::inspect::Inspected;
use crate::orientation::Orientation;

/// Decides, and says so.
pub fn decide(inspected: &Inspected<'_>, findings: &mut Vec<Finding>, repairs: &mut Vec<Repair>) -> Orientation {
    let exif = inspected.exif.as_ref();
    let stored = exif.and_then(|exif| exif.orientation);
    let (place, at) = exif.map_or((String::new(), None), |exif| (exif.orientation_place.clone(), exif.orientation_at));
    if inspected.container.upright_by_container {
        if let Some(value) = stored.filter(|value| *value != 1) {
            let found = format!("EXIF says {value}; the decoder applies the container's own transforms");
            findings.push(Finding::new(FindingCode::OrientationConflict, place, found).at(at));
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
                findings.push(Finding::new(FindingCode::OrientationInvalid, place.clone(), found).at(at));
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
        let finding = Finding::new(FindingCode::OrientationApplied, place, format!("orientation {value}"));
        findings.push(finding.at(at));
        repairs.push(Repair::new(FindingCode::OrientationApplied, value, "1"));
    }
    applied
}

/// What XMP and IFD1, the thumbnail's, say otherwise.
fn conflicts(inspected: &Inspected<'_>, applied: Orientation, findings: &mut Vec<Finding>, repairs: &mut Vec<Repair>) {
    let wanted = u64::from(applied.exif());
    let stored = inspected.exif.as_ref().and_then(|exif| exif.orientation);
    let ifd0 = stored.map_or("IFD0 says nothing".to_owned(), |_| format!("IFD0 says {wanted}"));
    let mut conflict = |name: &str, value: u64, place: String, at: Option<usize>| {
        let found = format!("{name} says {value}, {ifd0}");
        findings.push(Finding::new(FindingCode::OrientationConflict, place, found).at(at));
        let before = format!("{name} {value}");
        repairs.push(Repair::new(FindingCode::OrientationConflict, before, wanted.to_string()));
    };
    if let Some((exif, value)) = inspected.exif.as_ref().and_then(|exif| Some((exif, exif.thumbnail_orientation?)))
        && value != wanted
    {
        conflict("IFD1", value, exif.thumbnail.place.clone(), exif.thumbnail.offset);
    }
    if let (Some(value), Some(block)) = (inspected.xmp_orientation, &inspected.container.xmp)
        && value != wanted
    {
        let at = exif::xmp_orientation_at(&block.bytes).unwrap_or(0);
        let (place, offset) = block.within("tiff:Orientation", at);
        conflict("XMP", value, place, offset);
    }
}
