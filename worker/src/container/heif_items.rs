//! What can be seen of the coded pictures of an AVIF or HEIC file without decoding one (ISO/IEC 14496-12 8.11):
//! whether they lie inside the file, and whether there are any. Boxes are walked under a bound, two levels deep.

use refmill::failure::Failure;

use super::{corrupt, truncated};
use crate::bytes::{Order, index_at, printable, slice, u8_at, u16_at, u64_at};

/// Most boxes that are looked at in one level.
const MAX_BOXES: usize = 4096;

struct Box_<'a> {
    kind: &'a [u8],
    offset: usize,
    /// What it says that it holds, from its header on; it may end past the file.
    end: usize,
    body: &'a [u8],
}

fn boxes(bytes: &[u8]) -> impl Iterator<Item = Box_<'_>> {
    let mut at = 0usize;
    std::iter::from_fn(move || {
        let kind = slice(bytes, at.checked_add(4)?, 4)?;
        let (head, size) = match index_at(bytes, at, Order::Big)? {
            0 => (8, bytes.len() - at),
            1 => (16, usize::try_from(u64_at(bytes, at + 8, Order::Big)?).ok()?),
            size => (8, size),
        };
        let (offset, end) = (at, at.checked_add(size.max(head))?);
        at = end;
        let body = bytes.get(offset + head..end.min(bytes.len())).unwrap_or_default();
        Some(Box_ { kind, offset, end, body })
    })
    .take(MAX_BOXES)
}

/// Checks the file's own frame: boxes that it needs end inside it, and so does the primary item, which is coded data.
///
/// # Errors
/// [`refmill::failure::Code::Truncated`], or [`refmill::failure::Code::Corrupt`] for an item that is no picture.
pub fn check(bytes: &[u8]) -> Result<(), Failure> {
    let needed = |item: &Box_<'_>| matches!(item.kind, b"ftyp" | b"meta" | b"mdat");
    if let Some(cut) = boxes(bytes).find(|item| needed(item) && item.end > bytes.len()) {
        let (name, at) = (printable(cut.kind), cut.offset);
        return Err(truncated(format!("box `{name}` at byte {at} ends at {}, input has {}", cut.end, bytes.len())));
    }
    match primary(bytes) {
        Some(item) => item.check(bytes),
        None => Ok(()),
    }
}

/// Where the primary item's first bytes lie.
struct Item {
    is_hevc: bool,
    offset: usize,
    length: usize,
    extents: u16,
}

impl Item {
    fn check(&self, bytes: &[u8]) -> Result<(), Failure> {
        let Self { offset, length, .. } = *self;
        let Some(data) = slice(bytes, offset, length) else {
            let end = offset.saturating_add(length);
            return Err(truncated(format!("primary item ends at byte {end}, input has {}", bytes.len())));
        };
        // Four bytes of length before each unit: no encoder in use writes another size.
        let unit = index_at(data, 0, Order::Big).and_then(|unit| unit.checked_add(4));
        if self.is_hevc && self.extents == 1 && unit.is_none_or(|unit| unit < 6 || unit > length) {
            let unit = unit.map_or("nothing".into(), |unit| format!("{} bytes", unit - 4));
            return Err(corrupt(format!("primary item of {length} bytes at {offset} begins with a unit of {unit}")));
        }
        Ok(())
    }
}

fn primary(bytes: &[u8]) -> Option<Item> {
    let meta = boxes(bytes).find(|item| item.kind == b"meta")?.body.get(4..)?;
    let child = |kind: &[u8]| boxes(meta).find(|item| item.kind == kind).map(|item| item.body);
    let pitm = child(b"pitm")?;
    // Version 0 of both boxes: 16-bit item numbers. Larger ones are libheif's to judge.
    let number = u16_at(pitm, 4, Order::Big).filter(|_| u8_at(pitm, 0) == Some(0))?;
    let is_hevc = item_kind(child(b"iinf")?, number)? == b"hvc1";
    located(child(b"iloc")?, number, is_hevc)
}

/// The type of an item, from its `infe` of version 2. The count before them has 32 bits from version 1 on.
fn item_kind(iinf: &[u8], number: u16) -> Option<&[u8]> {
    let infos = iinf.get(if u8_at(iinf, 0)? == 0 { 6 } else { 8 }..)?;
    let of = |info: &Box_<'_>| u16_at(info.body, 4, Order::Big) == Some(number) && u8_at(info.body, 0) == Some(2);
    slice(boxes(infos).find(of)?.body, 8, 4)
}

/// The first extent of an item that is stored at an offset in the file.
fn located(iloc: &[u8], number: u16, is_hevc: bool) -> Option<Item> {
    let version = u8_at(iloc, 0).filter(|version| *version <= 1)?;
    let (sizes, bases) = (u8_at(iloc, 4)?, u8_at(iloc, 5)?);
    let (offset_size, length_size) = (usize::from(sizes >> 4), usize::from(sizes & 15));
    let (base_size, index_size) = (usize::from(bases >> 4), if version == 1 { usize::from(bases & 15) } else { 0 });
    let mut at = 8;
    for _ in 0..u16_at(iloc, 6, Order::Big)? {
        let id = u16_at(iloc, at, Order::Big)?;
        at += 2;
        let method = if version == 1 { u16_at(iloc, at, Order::Big)? & 15 } else { 0 };
        at += if version == 1 { 4 } else { 2 };
        let base = sized(iloc, at, base_size)?;
        at += base_size;
        let extents = u16_at(iloc, at, Order::Big)?;
        at += 2;
        if id == number {
            let offset = base.checked_add(sized(iloc, at + index_size, offset_size)?)?;
            let length = sized(iloc, at + index_size + offset_size, length_size)?;
            return (method == 0 && extents > 0 && length > 0).then_some(Item { is_hevc, offset, length, extents });
        }
        at += usize::from(extents) * (index_size + offset_size + length_size);
    }
    None
}

fn sized(data: &[u8], at: usize, size: usize) -> Option<usize> {
    match size {
        0 => Some(0),
        4 => index_at(data, at, Order::Big),
        8 => usize::try_from(u64_at(data, at, Order::Big)?).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refmill::failure::Code;

    const HEIC: &[u8] = include_bytes!("../../../fixtures/images/exif_absent.heic");

    #[test]
    fn whole_file_passes_and_a_cut_one_is_truncated() {
        assert!(check(HEIC).is_ok());
        assert_eq!(check(&HEIC[..HEIC.len() - 1]).unwrap_err().code, Code::Truncated);
    }

    #[test]
    fn item_that_is_text_is_no_picture() {
        let at = primary(HEIC).unwrap().offset;
        let mut dummy = HEIC.to_vec();
        dummy[at..at + 8].copy_from_slice(b"<dummy i");
        assert_eq!(check(&dummy).unwrap_err().code, Code::Corrupt);
    }
}
