//! XMP packets changed in place (XMP specification parts 1 and 2): the length stays, so that nothing around them
//! moves. No XML parser: properties are found by their names.

use memchr::memmem;

const ORIENTATION: &[u8] = b"tiff:Orientation";
const GPS: &[u8] = b"exif:GPS";

/// The packet with every `tiff:Orientation` saying `value`; `None` where each one does already.
#[must_use]
pub fn with_orientation(packet: &[u8], value: u8) -> Option<Vec<u8>> {
    let mut out = packet.to_vec();
    let mut from = 0;
    while let Some(at) = out.get(from..).and_then(|rest| memmem::find(rest, ORIENTATION)) {
        from += at + ORIENTATION.len();
        let Some(rest) = out.get_mut(from..) else { break };
        let begin = rest.iter().take(8).position(|byte| !matches!(byte, b'=' | b'"' | b'\'' | b'>' | b' '));
        let Some(rest) = begin.and_then(|begin| rest.get_mut(begin..)) else { continue };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let digits = rest.get_mut(..digits).unwrap_or_default();
        digits.fill(b'0');
        if let Some(last) = digits.last_mut() {
            *last = b'0' + value;
        }
    }
    (out != packet).then_some(out)
}

/// Whether there is any GPS property.
#[must_use]
pub fn has_gps(packet: &[u8]) -> bool {
    memmem::find(packet, GPS).is_some()
}

/// The packet with its GPS properties blanked; `None` where one of them has no end that can be seen.
#[must_use]
pub fn without_gps(packet: &[u8]) -> Option<Vec<u8>> {
    let mut out = packet.to_vec();
    while let Some(at) = memmem::find(&out, GPS) {
        let (begin, end) = property(&out, at)?;
        out.get_mut(begin..end)?.fill(b' ');
    }
    Some(out)
}

/// The bytes of the property whose name begins at `at`: an attribute with its value, or an element to its end tag.
fn property(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let rest = text.get(at..)?;
    let name_length = rest.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b':'))?;
    let name = rest.get(..name_length)?;
    if at.checked_sub(1).and_then(|before| text.get(before)) != Some(&b'<') {
        let equals = name_length + rest.get(name_length..)?.iter().position(|byte| !byte.is_ascii_whitespace())?;
        rest.get(equals).filter(|byte| **byte == b'=')?;
        let open = equals + 1 + rest.get(equals + 1..)?.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let quote = *rest.get(open).filter(|byte| matches!(byte, b'"' | b'\''))?;
        let close = open + 1 + memchr::memchr(quote, rest.get(open + 1..)?)?;
        return Some((at, at + close + 1));
    }
    let head = memchr::memchr(b'>', rest)?;
    if rest.get(head.checked_sub(1)?) == Some(&b'/') {
        return Some((at - 1, at + head + 1));
    }
    let end_tag = [b"</", name, b">"].concat();
    let end = head + memmem::find(rest.get(head..)?, &end_tag)?;
    Some((at - 1, at + end + end_tag.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orientation_is_changed_in_place_in_both_forms() {
        let packet = b"<x tiff:Orientation=\"6\"/><tiff:Orientation>12</tiff:Orientation>";
        let changed = with_orientation(packet, 3).unwrap();
        assert_eq!(changed, b"<x tiff:Orientation=\"3\"/><tiff:Orientation>03</tiff:Orientation>");
        assert_eq!(with_orientation(&changed, 3), None);
    }

    #[test]
    fn gps_is_blanked_in_both_forms_and_the_rest_stays() {
        let packet = b"<x exif:GPSLatitude = '1,2N' a='b'><exif:GPSAltitude>9</exif:GPSAltitude><exif:GPSX/></x>";
        let blank = without_gps(packet).unwrap();
        assert_eq!((blank.len(), has_gps(&blank)), (packet.len(), false));
        let text = String::from_utf8(blank).unwrap();
        assert_eq!(text.split_whitespace().collect::<String>(), "<xa='b'></x>");
    }

    #[test]
    fn gps_without_an_end_is_told() {
        assert_eq!(without_gps(b"<exif:GPSLatitude>1"), None);
    }
}
