//! Changes to an EXIF block that move nothing: values are written where they stand, and an entry that goes is
//! closed up inside its IFD, its value blanked.

use refmill::finding::{FindingCode, Repair};
use refmill::job::Strip;

use super::{GPS_IFD, Truth, order};
use crate::bytes::{Order, index_at};
use crate::ifd::{Entry, Ifd, Tiff};

const ORIENTATION: u16 = 0x0112;
const EXIF_IFD: u16 = 0x8769;
const COLOR_SPACE: u16 = 0xa001;
const PIXEL_X: u16 = 0xa002;
const PIXEL_Y: u16 = 0xa003;
const SHORT: u16 = 3;
const LONG: u16 = 4;

/// What was changed.
#[derive(Debug, Default)]
pub struct Edits {
    /// The changes that have a finding.
    pub repairs: Vec<Repair>,
}

/// The block with its values made true; the same bytes where they are.
pub fn edit(bytes: &[u8], truth: Truth, edits: &mut Edits) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let Some(tiff) = Tiff::new(bytes).filter(|tiff| !tiff.is_big()) else { return out };
    let Some(first) = tiff.ifd(tiff.first) else { return out };
    orientation(&mut out, &first, truth, edits);
    thumbnail(&mut out, &tiff, &first, truth, edits);
    if let Some(inner) = first.find(EXIF_IFD).and_then(|entry| tiff.ifd(entry.number(0)?)) {
        color_space(&mut out, &inner, truth, edits);
        dimensions(&mut out, &inner, truth, edits);
    }
    if truth.strip != Strip::Nothing {
        remove_gps(&mut out, &tiff, &first);
    }
    let twice: Vec<usize> = first.entries.iter().filter(|e| e.tag == ORIENTATION).skip(1).map(|e| e.offset).collect();
    let gps = first.entries.iter().filter(|e| e.tag == GPS_IFD && truth.strip != Strip::Nothing).map(|e| e.offset);
    let mut gone: Vec<usize> = twice.into_iter().chain(gps).collect();
    gone.sort_unstable();
    close_up(&mut out, &tiff, &first, &gone);
    out
}

/// The block without its GPS IFD, and of the same length; `None` where it cannot be taken out in place.
#[must_use]
pub fn without_gps(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = bytes.to_vec();
    let tiff = Tiff::new(bytes).filter(|tiff| !tiff.is_big())?;
    let first = tiff.ifd(tiff.first).filter(|ifd| ifd.complete)?;
    remove_gps(&mut out, &tiff, &first);
    let gone: Vec<usize> = first.entries.iter().filter(|e| e.tag == GPS_IFD).map(|e| e.offset).collect();
    close_up(&mut out, &tiff, &first, &gone);
    (!super::has_gps(&out)).then_some(out)
}

fn orientation(out: &mut [u8], first: &Ifd<'_>, truth: Truth, edits: &mut Edits) {
    let mut entries = first.entries.iter().filter(|entry| entry.tag == ORIENTATION);
    let Some(entry) = entries.next() else { return };
    let wanted = u64::from(truth.orientation);
    let is_right = entry.kind == SHORT && entry.count == 1 && entry.number(0) == Some(wanted);
    let before = entry.number(0).map_or("unreadable".to_owned(), |value| value.to_string());
    if entries.next().is_some() {
        edits.repairs.push(Repair::new(FindingCode::ExifDuplicate, "tag 0x0112 twice", wanted.to_string()));
    }
    if !is_right {
        set(out, entry, SHORT, truth.orientation.into());
        let after = format!("{wanted} as one SHORT");
        edits.repairs.push(Repair::new(FindingCode::OrientationInvalid, before, after));
    }
}

/// IFD1 says of the thumbnail what IFD0 says of the picture.
fn thumbnail(out: &mut [u8], tiff: &Tiff<'_>, first: &Ifd<'_>, truth: Truth, edits: &mut Edits) {
    let second = first.next.filter(|next| *next != tiff.first).and_then(|next| tiff.ifd(next));
    let Some(entry) = second.as_ref().and_then(|ifd| ifd.find(ORIENTATION)) else { return };
    let wanted = u64::from(truth.orientation);
    if let Some(before) = entry.number(0).filter(|value| *value != wanted) {
        set(out, entry, SHORT, truth.orientation.into());
        let before = format!("IFD1 {before}");
        edits.repairs.push(Repair::new(FindingCode::OrientationConflict, before, wanted.to_string()));
    }
}

fn color_space(out: &mut [u8], inner: &Ifd<'_>, truth: Truth, edits: &mut Edits) {
    let Some((entry, wanted)) = inner.find(COLOR_SPACE).zip(truth.color_space) else { return };
    if entry.number(0) != Some(wanted.into()) {
        set(out, entry, SHORT, wanted.into());
        let before = entry.number(0).map_or("unreadable".to_owned(), |value| value.to_string());
        edits.repairs.push(Repair::new(FindingCode::ColorspaceConflict, before, wanted.to_string()));
    }
}

fn dimensions(out: &mut [u8], inner: &Ifd<'_>, truth: Truth, edits: &mut Edits) {
    let Some((width, height)) = truth.dimensions else { return };
    let Some((x, y)) = inner.find(PIXEL_X).zip(inner.find(PIXEL_Y)) else { return };
    let (Some(old_x), Some(old_y)) = (x.number(0), y.number(0)) else { return };
    let (wide, high) = (u64::from(width), u64::from(height));
    if (old_x, old_y) == (wide, high) || (old_y, old_x) == (wide, high) {
        return;
    }
    for (entry, value) in [(x, width), (y, height)] {
        let kind = if entry.kind == SHORT && value <= u32::from(u16::MAX) { SHORT } else { LONG };
        set(out, entry, kind, value);
    }
    let after = format!("{width} x {height}");
    edits.repairs.push(Repair::new(FindingCode::DimensionTagMismatch, format!("{old_x} x {old_y}"), after));
}

/// Makes an entry hold one number.
fn set(out: &mut [u8], entry: &Entry<'_>, kind: u16, value: u32) {
    let order = order(out);
    let short = |value: u16| if order == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() };
    let long = |value: u32| if order == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut field = long(value);
    if kind == SHORT {
        let [a, b] = short(u16::try_from(value).unwrap_or(u16::MAX));
        field = [a, b, 0, 0];
    }
    write(out, entry.offset + 2, &short(kind));
    write(out, entry.offset + 4, &long(1));
    write(out, entry.offset + 8, &field);
}

fn write(out: &mut [u8], at: usize, bytes: &[u8]) {
    // The entry was read from there, so it lies inside.
    if let Some(place) = out.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Takes entries out of an IFD: the later ones move up, and the IFD ends where it ended before with zeros.
fn close_up(out: &mut [u8], tiff: &Tiff<'_>, ifd: &Ifd<'_>, gone: &[usize]) {
    let (Some(first), Ok(left)) = (ifd.entries.first(), u16::try_from(ifd.entries.len() - gone.len())) else { return };
    if gone.is_empty() || !ifd.complete {
        return;
    }
    let start = first.offset;
    let next = out.get(ifd.next_at..ifd.next_at + 4).map(<[u8]>::to_vec).unwrap_or_default();
    let kept: Vec<u8> = ifd
        .entries
        .iter()
        .filter(|entry| !gone.contains(&entry.offset))
        .filter_map(|entry| out.get(entry.offset..entry.offset + 12))
        .flatten()
        .copied()
        .chain(next)
        .collect();
    if let Some(area) = out.get_mut(start..ifd.next_at + 4) {
        area.fill(0);
    }
    write(out, start, &kept);
    write(out, start - 2, &tiff.short(left));
}

/// Blanks the GPS IFD and the values that only it uses.
fn remove_gps(out: &mut [u8], tiff: &Tiff<'_>, first: &Ifd<'_>) {
    let Some(gps) = first.find(GPS_IFD).and_then(|entry| tiff.ifd(entry.number(0)?)) else { return };
    let inner = first.find(EXIF_IFD).and_then(|entry| tiff.ifd(entry.number(0)?));
    let kept: Vec<(usize, usize)> =
        first.entries.iter().chain(inner.iter().flat_map(|ifd| &ifd.entries)).flat_map(|e| spans(out, e)).collect();
    let tables = [Some(first), inner.as_ref()].into_iter().flatten().filter_map(table);
    let kept: Vec<(usize, usize)> = kept.into_iter().chain(tables).collect();
    let own: Vec<(usize, usize)> = gps.entries.iter().flat_map(|e| spans(out, e)).chain(table(&gps)).collect();
    for (begin, end) in own {
        for at in begin..end {
            let used = kept.iter().any(|(from, to)| (*from..*to).contains(&at));
            if let Some(byte) = out.get_mut(at).filter(|_| !used) {
                *byte = 0;
            }
        }
    }
}

/// Where the value of an entry lies, if not inside it.
fn spans(bytes: &[u8], entry: &Entry<'_>) -> Option<(usize, usize)> {
    let at = index_at(bytes, entry.offset + 8, order(bytes)).filter(|_| entry.value.len() > 4)?;
    Some((at, at.checked_add(entry.value.len())?))
}

/// Where the IFD itself lies, with its count and the offset of the next one.
fn table(ifd: &Ifd<'_>) -> Option<(usize, usize)> {
    let begin = ifd.entries.first()?.offset.checked_sub(2)?;
    Some((begin, begin + 2 + ifd.entries.len() * 12 + 4))
}
