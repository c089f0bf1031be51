//! What the findings mean: which orientation is applied and what the stored numbers mean. Metadata only.

mod colour;
mod orientation;

pub use colour::{Chromaticities, Meaning, PngSource, gama_agrees_with_srgb, png_source};
use refmill::finding::{Finding, FindingCode, Repair};

use crate::container::{Container, Header};
use crate::exif::Exif;
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
    /// What else the container holds: what a lossless repair rewrites.
    pub container: Container<'a>,
    /// The first readable EXIF block.
    pub exif: Option<Exif>,
    /// The defects found on the way.
    pub defects: Vec<FindingCode>,
}

/// Decides, and says so.
#[must_use]
pub fn repair<'a>(inspected: Inspected<'a>, findings: &mut Vec<Finding>, repairs: &mut Vec<Repair>) -> Repaired<'a> {
    let orientation = orientation::decide(&inspected, findings, repairs);
    let Inspected { opened, container, exif, profile, mut defects, .. } = inspected;
    let meaning = colour::decide(opened.format, &container, exif.as_ref(), profile, findings, repairs);
    defects.extend(crate::inspect::defects(findings));
    Repaired { opened, header: container.header, orientation, meaning, container, exif, defects }
}
