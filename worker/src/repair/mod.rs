//! What the findings mean: which orientation is applied and what the stored numbers mean. Metadata only.

mod colour;
mod orientation;

pub use colour::{Chromaticities, Meaning};
use refmill::finding::{Finding, Repair};

use crate::container::Header;
use crate::inspect::Inspected;
use crate::open::Opened;
use crate::orientation::Orientation;

/// An input whose orientation and colours are decided.
#[derive(Debug)]
pub struct Repaired<'a> {
    /// The input.
    pub opened: Opened<'a>,
    /// The header's figures.
    pub header: Header,
    /// What makes the decoder's pixels upright.
    pub orientation: Orientation,
    /// What the decoder's numbers mean.
    pub meaning: Meaning<'a>,
}

/// Decides, and says so.
#[must_use]
pub fn repair<'a>(inspected: Inspected<'a>, findings: &mut Vec<Finding>, repairs: &mut Vec<Repair>) -> Repaired<'a> {
    let orientation = orientation::decide(&inspected, findings, repairs);
    let Inspected { opened, container, exif, profile, .. } = inspected;
    let meaning = colour::decide(opened.format, &container, exif.as_ref(), profile, findings, repairs);
    Repaired { opened, header: container.header, orientation, meaning }
}
