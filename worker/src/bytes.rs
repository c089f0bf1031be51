//! Bounded reads from hostile bytes: every read answers `None` past the end, none panics.

/// Byte order of multi-byte numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Most significant byte first.
    Big,
    /// Least significant byte first.
    Little,
}

/// The `len` bytes at `offset`.
#[must_use]
pub fn slice(data: &[u8], offset: usize, len: usize) -> Option<&[u8]> {
    data.get(offset..offset.checked_add(len)?)
}

fn array<const N: usize>(data: &[u8], offset: usize) -> Option<[u8; N]> {
    slice(data, offset, N)?.try_into().ok()
}

/// The byte at `offset`.
#[must_use]
pub fn u8_at(data: &[u8], offset: usize) -> Option<u8> {
    data.get(offset).copied()
}

/// The 16-bit number at `offset`.
#[must_use]
pub fn u16_at(data: &[u8], offset: usize, order: Order) -> Option<u16> {
    let raw = array(data, offset)?;
    Some(if order == Order::Big { u16::from_be_bytes(raw) } else { u16::from_le_bytes(raw) })
}

/// The 32-bit number at `offset`.
#[must_use]
pub fn u32_at(data: &[u8], offset: usize, order: Order) -> Option<u32> {
    let raw = array(data, offset)?;
    Some(if order == Order::Big { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) })
}

/// The 64-bit number at `offset`.
#[must_use]
pub fn u64_at(data: &[u8], offset: usize, order: Order) -> Option<u64> {
    let raw = array(data, offset)?;
    Some(if order == Order::Big { u64::from_be_bytes(raw) } else { u64::from_le_bytes(raw) })
}

/// The 32-bit number at `offset` as an index into memory.
#[must_use]
pub fn index_at(data: &[u8], offset: usize, order: Order) -> Option<usize> {
    usize::try_from(u32_at(data, offset, order)?).ok()
}

/// Bytes as text for a message: printable ASCII, the rest as dots, at most 32 characters.
#[must_use]
pub fn printable(data: &[u8]) -> String {
    data.iter().take(32).map(|&b| if (0x20..0x7f).contains(&b) { char::from(b) } else { '.' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_past_the_end_is_none() {
        assert_eq!(u32_at(&[1, 2, 3], 0, Order::Big), None);
        assert_eq!(slice(&[1, 2, 3], usize::MAX, 2), None);
    }

    #[test]
    fn order_decides_the_value() {
        assert_eq!(u16_at(&[1, 2], 0, Order::Big), Some(0x0102));
        assert_eq!(u16_at(&[1, 2], 0, Order::Little), Some(0x0201));
    }
}
