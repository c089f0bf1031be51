//! A small bounded reader of TIFF structures (TIFF 6.0 section 2, BigTIFF): the tags that refmill needs, one by
//! one, also from blocks that stricter readers refuse. No recursion, no allocation beyond one value.

use crate::bytes::{Order, slice, u8_at, u16_at, u32_at, u64_at};

/// Most entries of one IFD that are looked at.
const MAX_ENTRIES: u64 = 1024;
/// Most IFDs of one chain that are followed.
const MAX_IFDS: usize = 10_001;

/// A TIFF header: byte order, offset width and the first IFD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiff<'a> {
    data: &'a [u8],
    order: Order,
    big: bool,
    /// Offset of IFD0.
    pub first: u64,
}

/// One IFD entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The tag.
    pub tag: u16,
    /// The field type: 1 BYTE, 2 ASCII, 3 SHORT, 4 LONG, 5 RATIONAL, ...
    pub kind: u16,
    /// How many values.
    pub count: u64,
    /// Offset of the entry.
    pub offset: usize,
    /// The values' bytes; empty where they do not lie inside the data.
    pub value: &'a [u8],
    order: Order,
}

/// The entries that could be read of one IFD, and what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ifd<'a> {
    /// Entries in file order.
    pub entries: Vec<Entry<'a>>,
    /// Offset of the next IFD; 0 at the end of the chain, `None` where it cannot be read.
    pub next: Option<u64>,
    /// Where that offset stands.
    pub next_at: usize,
    /// Whether all entries that the count promises were there.
    pub complete: bool,
}

impl<'a> Tiff<'a> {
    /// Reads the header; `None` where it is not one.
    #[must_use]
    pub fn new(data: &'a [u8]) -> Option<Self> {
        let order = match slice(data, 0, 2)? {
            b"II" => Order::Little,
            b"MM" => Order::Big,
            _ => return None,
        };
        match u16_at(data, 2, order)? {
            42 => Some(Self { data, order, big: false, first: u32_at(data, 4, order)?.into() }),
            43 if u16_at(data, 4, order)? == 8 => Some(Self { data, order, big: true, first: u64_at(data, 8, order)? }),
            _ => None,
        }
    }

    /// Whether it is a BigTIFF, with offsets of 8 bytes.
    #[must_use]
    pub fn is_big(&self) -> bool {
        self.big
    }

    /// Bytes of an offset, and of the part of an entry that holds small values.
    #[must_use]
    pub fn offset_bytes(&self) -> usize {
        if self.big { 8 } else { 4 }
    }

    /// A 16-bit number in the file's byte order.
    #[must_use]
    pub fn short(&self, value: u16) -> [u8; 2] {
        if self.order == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    /// The IFD at `offset`; `None` where not even its count can be read.
    #[must_use]
    pub fn ifd(&self, offset: u64) -> Option<Ifd<'a>> {
        let at = usize::try_from(offset).ok().filter(|at| *at > 0)?;
        let (count, head, width) = if self.big {
            (u64_at(self.data, at, self.order)?, 8, 20)
        } else {
            (u16_at(self.data, at, self.order)?.into(), 2, 12)
        };
        let mut entries = Vec::new();
        let mut cursor = at.checked_add(head)?;
        for _ in 0..count.min(MAX_ENTRIES) {
            let Some(entry) = self.entry(cursor) else { break };
            entries.push(entry);
            cursor = cursor.checked_add(width)?;
        }
        let complete = entries.len() as u64 == count;
        let next = if !complete {
            None
        } else if self.big {
            u64_at(self.data, cursor, self.order)
        } else {
            u32_at(self.data, cursor, self.order).map(u64::from)
        };
        Some(Ifd { entries, next, next_at: cursor, complete })
    }

    fn entry(&self, at: usize) -> Option<Entry<'a>> {
        let (order, inline) = (self.order, if self.big { 8 } else { 4 });
        let tag = u16_at(self.data, at, order)?;
        let kind = u16_at(self.data, at + 2, order)?;
        let count = if self.big { u64_at(self.data, at + 4, order)? } else { u32_at(self.data, at + 4, order)?.into() };
        let field = at + 4 + inline;
        slice(self.data, field, inline)?;
        let size = usize::try_from(count).ok().and_then(|count| count.checked_mul(type_size(kind)));
        let value = size.and_then(|size| {
            if size <= inline {
                slice(self.data, field, size)
            } else {
                let offset =
                    if self.big { u64_at(self.data, field, order)? } else { u32_at(self.data, field, order)?.into() };
                slice(self.data, usize::try_from(offset).ok()?, size)
            }
        });
        Some(Entry { tag, kind, count, offset: at, value: value.unwrap_or_default(), order })
    }

    /// The chain of IFDs from the first on, and whether it ran into itself.
    #[must_use]
    pub fn chain(&self) -> (Vec<Ifd<'a>>, bool) {
        let (mut ifds, mut seen) = (Vec::new(), std::collections::HashSet::new());
        let mut offset = self.first;
        while offset != 0 && ifds.len() < MAX_IFDS {
            if !seen.insert(offset) {
                return (ifds, true);
            }
            let Some(ifd) = self.ifd(offset) else { break };
            offset = ifd.next.unwrap_or(0);
            ifds.push(ifd);
        }
        (ifds, false)
    }
}

impl<'a> Ifd<'a> {
    /// The first entry of a tag.
    #[must_use]
    pub fn find(&self, tag: u16) -> Option<&Entry<'a>> {
        self.entries.iter().find(|entry| entry.tag == tag)
    }
}

impl Entry<'_> {
    /// The value with this index as a whole number: BYTE, SHORT, LONG, LONG8 and IFD offsets, the decimal
    /// digits of ASCII, and rationals that are whole.
    #[must_use]
    pub fn number(&self, index: usize) -> Option<u64> {
        match self.kind {
            1 | 6 | 7 => u8_at(self.value, index).map(u64::from),
            2 => std::str::from_utf8(self.value).ok()?.trim_matches(['\0', ' ']).parse().ok(),
            3 | 8 => u16_at(self.value, index.checked_mul(2)?, self.order).map(u64::from),
            4 | 9 | 13 => u32_at(self.value, index.checked_mul(4)?, self.order).map(u64::from),
            5 | 10 => {
                let at = index.checked_mul(8)?;
                let (above, below) = (u32_at(self.value, at, self.order)?, u32_at(self.value, at + 4, self.order)?);
                (below != 0 && above % below == 0).then(|| u64::from(above / below))
            }
            16..=18 => u64_at(self.value, index.checked_mul(8)?, self.order),
            _ => None,
        }
    }
}

fn type_size(kind: u16) -> usize {
    match kind {
        3 | 8 => 2,
        4 | 9 | 11 | 13 => 4,
        5 | 10 | 12 | 16..=18 => 8,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIENTATION_6: &[u8] = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";

    #[test]
    fn short_value_is_read_inline() {
        let ifd = Tiff::new(ORIENTATION_6).unwrap().ifd(8).unwrap();
        assert_eq!(ifd.find(0x112).unwrap().number(0), Some(6));
        assert_eq!((ifd.next, ifd.complete), (Some(0), true));
    }

    #[test]
    fn ifd_that_claims_too_many_entries_is_incomplete() {
        let mut block = ORIENTATION_6.to_vec();
        (block[8], block[9]) = (0xff, 0xff);
        let ifd = Tiff::new(&block).unwrap().ifd(8).unwrap();
        assert!(!ifd.complete);
        assert_eq!(ifd.find(0x112).unwrap().number(0), Some(6));
    }

    #[test]
    fn chain_that_runs_into_itself_is_told() {
        let mut block = ORIENTATION_6.to_vec();
        block[25] = 8;
        let (ifds, looped) = Tiff::new(&block).unwrap().chain();
        assert_eq!((ifds.len(), looped), (1, true));
    }

    #[test]
    fn value_outside_the_data_is_empty() {
        let block = b"II*\0\x08\0\0\0\x01\0\x12\x01\x04\0\xff\0\0\0\xff\xff\xff\xff\0\0\0\0";
        let ifd = Tiff::new(block).unwrap().ifd(8).unwrap();
        assert_eq!(ifd.entries[0].value, b"");
    }
}
