//! The EXIF block of a repaired file. A sound block is kept byte for byte. Values are changed and tags removed where
//! they stand, so that nothing moves and maker notes stay whole; only a block whose structure is broken, or which
//! must lose what is private, is built anew from what can be read.

mod edit;
mod private;
mod rebuild;

pub use edit::without_gps;

use refmill::finding::{Finding, FindingCode, Repair, Severity};
use refmill::job::Strip;

use super::stripped;
use crate::bytes::Order;
use crate::container::Block;
use crate::exif;
use crate::ifd::Tiff;

/// What the block has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truth {
    /// The orientation that counts.
    pub orientation: u8,
    /// What ColorSpace must be where it is there and says something else; `None` leaves it.
    pub color_space: Option<u16>,
    /// The size that PixelXDimension and PixelYDimension must name where they name another.
    pub dimensions: Option<(u32, u32)>,
    /// What goes.
    pub strip: Strip,
    /// Most bytes that a block may have here.
    pub room: usize,
}

/// What becomes of the EXIF blocks of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Which block counts, by its place in the file; the others are removed.
    pub chosen: Option<usize>,
    /// What becomes of that one.
    pub fate: Fate,
    /// What was done and why.
    pub repairs: Vec<Repair>,
}

/// What becomes of one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Byte for byte.
    Keep,
    /// These bytes take its place.
    Replace(Vec<u8>),
    /// Nothing takes its place.
    Drop,
}

const GPS_IFD: u16 = 0x8825;

/// Decides about the blocks of a file, in their order.
#[must_use]
pub fn mend(blocks: &[Block<'_>], truth: Truth) -> Outcome {
    let chosen = blocks.iter().position(|block| is_readable(&block.bytes));
    let mut repairs = Vec::new();
    let Some((index, block)) = chosen.and_then(|index| Some((index, blocks.get(index)?))) else {
        if !blocks.is_empty() {
            repairs.push(Repair::new(FindingCode::ExifCorrupt, "no block can be read", "removed"));
        }
        return Outcome { chosen: None, fate: Fate::Drop, repairs };
    };
    if blocks.len() > 1 {
        let before = format!("{} blocks", blocks.len());
        repairs.push(Repair::new(FindingCode::ExifDuplicate, before, format!("the one in {}", block.place)));
    }
    let fate = mend_block(&block.bytes, truth, &mut repairs);
    Outcome { chosen: Some(index), fate, repairs }
}

/// Whether inspection would take the block.
fn is_readable(bytes: &[u8]) -> bool {
    Tiff::new(bytes).is_some_and(|tiff| tiff.ifd(tiff.first).is_some())
}

fn mend_block(bytes: &[u8], truth: Truth, repairs: &mut Vec<Repair>) -> Fate {
    if truth.strip == Strip::All {
        let fate = only_orientation(bytes, truth.orientation);
        if fate != Fate::Keep {
            let but = if fate == Fate::Drop { "" } else { " but for the orientation" };
            repairs.push(stripped(format!("EXIF block of {} bytes{but}", bytes.len())));
        }
        return fate;
    }
    repairs.extend(private::goes(bytes, truth.strip).into_iter().map(stripped));
    let defects = defects(bytes);
    let structure = |code: &FindingCode| matches!(code, FindingCode::ExifCorrupt | FindingCode::ExifLoop);
    let broken = defects.iter().find(|code| structure(code)).copied();
    if broken.is_none() && (truth.strip != Strip::Private || private::goes(bytes, truth.strip).is_empty()) {
        let mut edits = edit::Edits::default();
        let edited = edit::edit(bytes, truth, &mut edits);
        if self::defects(&edited).is_empty() && !(truth.strip == Strip::Gps && has_gps(&edited)) {
            repairs.append(&mut edits.repairs);
            return if edited == bytes { Fate::Keep } else { Fate::Replace(edited) };
        }
    }
    let built = rebuild::rebuild(bytes, truth);
    let (new, lost) = match built {
        Some(built) if built.is_empty => (Vec::new(), built.lost),
        Some(built) if built.bytes.len() <= truth.room && self::defects(&built.bytes).is_empty() => {
            (built.bytes, built.lost)
        }
        _ => (rebuild::minimal(order(bytes), truth.orientation), vec!["everything but the orientation".to_owned()]),
    };
    let code = broken.or_else(|| defects.first().copied());
    if let Some(code) = code {
        let lost = if lost.is_empty() { "nothing was lost".into() } else { format!("without {}", lost.join(", ")) };
        repairs.push(Repair::new(code, format!("block of {} bytes", bytes.len()), format!("built anew, {lost}")));
    }
    match new {
        new if new.is_empty() => Fate::Drop,
        new if new == bytes => Fate::Keep,
        new => Fate::Replace(new),
    }
}

/// What an inspection of this block alone calls a defect.
fn defects(bytes: &[u8]) -> Vec<FindingCode> {
    let mut findings: Vec<Finding> = Vec::new();
    let block = Block::made("EXIF", None, bytes);
    let read = exif::inspect(&[block], &mut findings);
    let mut codes: Vec<FindingCode> =
        findings.iter().filter(|finding| finding.severity >= Severity::Defect).map(|finding| finding.code).collect();
    let orientation = read.and_then(|exif| exif.orientation);
    if orientation.is_some_and(|value| !(1..=8).contains(&value)) {
        codes.push(FindingCode::OrientationInvalid);
    }
    codes
}

fn has_gps(bytes: &[u8]) -> bool {
    Tiff::new(bytes).and_then(|tiff| tiff.ifd(tiff.first)).is_some_and(|ifd| ifd.find(GPS_IFD).is_some())
}

fn only_orientation(bytes: &[u8], orientation: u8) -> Fate {
    if orientation == 1 {
        return Fate::Drop;
    }
    let new = rebuild::minimal(order(bytes), orientation);
    if new == bytes { Fate::Keep } else { Fate::Replace(new) }
}

/// The byte order of a block that begins with one; big where it does not.
fn order(bytes: &[u8]) -> Order {
    if bytes.starts_with(b"II") { Order::Little } else { Order::Big }
}

#[cfg(test)]
mod tests;
