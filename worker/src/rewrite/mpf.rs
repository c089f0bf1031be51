//! The index of a multi-picture file (CIPA DC-007-2021 5.2): its offsets count from its own header, and the size of
//! the first picture stands in it; both change with the segments around them.

use crate::bytes::{Order, u32_at};
use crate::ifd::Tiff;

/// What an APP2 segment with the index begins with.
pub const TAG: &[u8] = b"MPF\0";
const ENTRIES: u16 = 0xb002;
const ENTRY_BYTES: usize = 16;

/// The payload with the first picture longer by `grown` bytes, and the others further away by `moved`.
#[must_use]
pub fn corrected(payload: &[u8], grown: i64, moved: i64) -> Option<Vec<u8>> {
    let body = payload.strip_prefix(TAG)?;
    let tiff = Tiff::new(body).filter(|tiff| !tiff.is_big())?;
    let order = if body.starts_with(b"II") { Order::Little } else { Order::Big };
    let ifd = tiff.ifd(tiff.first)?;
    let entry = ifd.find(ENTRIES)?;
    let begin = usize::try_from(u32_at(body, entry.offset + 8, order)?).ok()?;
    let mut out = payload.to_vec();
    for index in 0..entry.value.len() / ENTRY_BYTES {
        let at = begin + index * ENTRY_BYTES;
        let offset = u32_at(body, at + 8, order)?;
        let (field, change) = if offset == 0 { (at + 4, grown) } else { (at + 8, moved) };
        let value = u32::try_from(i64::from(u32_at(body, field, order)?) + change).ok()?;
        let word = if order == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() };
        out.get_mut(TAG.len() + field..TAG.len() + field + 4)?.copy_from_slice(&word);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pictures: the first of 1000 bytes, the second of 50 bytes at 900.
    fn index() -> Vec<u8> {
        let entry =
            |size: u32, offset: u32| [&[0; 4], &size.to_be_bytes()[..], &offset.to_be_bytes(), &[0; 4]].concat();
        let head = b"MM\0*\0\0\0\x08\0\x01\xb0\x02\0\x07\0\0\0\x20\0\0\0\x1a\0\0\0\0";
        [TAG, head, &entry(1000, 0), &entry(50, 900)].concat()
    }

    #[test]
    fn offsets_and_the_first_size_follow() {
        let new = corrected(&index(), 10, -5).unwrap();
        let entries = TAG.len() + 26;
        assert_eq!(u32_at(&new, entries + 4, Order::Big), Some(1010));
        assert_eq!(u32_at(&new, entries + 16 + 4, Order::Big), Some(50));
        assert_eq!(u32_at(&new, entries + 16 + 8, Order::Big), Some(895));
    }

    #[test]
    fn index_that_cannot_be_read_is_none() {
        assert_eq!(corrected(b"MPF\0MM\0*", 1, 1), None);
    }
}
