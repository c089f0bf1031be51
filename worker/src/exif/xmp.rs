//! The orientation that an XMP packet names (XMP specification part 2, `tiff:Orientation`), read without an XML
//! parser: it is compared with EXIF's, never applied.

const NAME: &[u8] = b"tiff:Orientation";

/// Where `tiff:Orientation` stands in the packet.
#[must_use]
pub fn place(packet: &[u8]) -> Option<usize> {
    memchr::memmem::find(packet, NAME)
}

/// The value of `tiff:Orientation`, as an attribute or an element.
#[must_use]
pub fn orientation(packet: &[u8]) -> Option<u64> {
    let at = place(packet)?;
    let rest = packet.get(at + NAME.len()..)?;
    let value: Vec<u8> = rest
        .iter()
        .copied()
        .take(8)
        .skip_while(|byte| matches!(byte, b'=' | b'"' | b'\'' | b'>' | b' '))
        .take_while(u8::is_ascii_digit)
        .collect();
    std::str::from_utf8(&value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orientation_is_read_from_both_forms() {
        assert_eq!(orientation(b"<x tiff:Orientation=\"6\"/>"), Some(6));
        assert_eq!(orientation(b"<tiff:Orientation>3</tiff:Orientation>"), Some(3));
    }

    #[test]
    fn packet_without_it_is_none() {
        assert_eq!(orientation(b"<tiff:Make>x</tiff:Make>"), None);
    }
}
