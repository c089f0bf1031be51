//! What stands behind the first picture of a JPEG file, without its positions: the further pictures of CIPA DC-007
//! (MPF) keep their lengths, so that their index stays true, and what is no such picture goes.

use std::borrow::Cow;

use refmill::finding::Repair;

use super::exif::without_gps;
use super::{stripped, xmp};
use crate::container::jpeg::{Segments, after_end};

const EXIF: &[u8] = b"Exif\0\0";
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
const EXTENDED_XMP: &[u8] = b"http://ns.adobe.com/xmp/extension/\0";
const APP1: u8 = 0xe1;
/// Most pictures that are looked at; further ones go.
const MAX_PICTURES: usize = 64;

/// The tail as it may stay; what went is added to `repairs`.
pub fn without_positions<'a>(tail: &'a [u8], repairs: &mut Vec<Repair>) -> Cow<'a, [u8]> {
    let mut out: Vec<u8> = Vec::new();
    let mut at = 0;
    let mut pictures = 0;
    while let Some(start) = next_picture(tail, at).filter(|_| pictures < MAX_PICTURES) {
        pictures += 1;
        let Some(picture) = tail.get(start..) else { break };
        let Some(rest) = after_end(picture, header_end(picture)) else { break };
        let end = tail.len() - rest;
        blank(tail.get(at..start).unwrap_or_default(), &mut out, repairs);
        let picture = tail.get(start..end).unwrap_or_default();
        out.extend_from_slice(&bare(picture, pictures, repairs));
        at = end;
    }
    let gone = tail.len() - at;
    if gone > 0 {
        repairs.push(stripped(format!("{gone} bytes behind the pictures, in which a position could stand")));
    }
    if out == tail { Cow::Borrowed(tail) } else { Cow::Owned(out) }
}

fn next_picture(tail: &[u8], at: usize) -> Option<usize> {
    Some(at + memchr::memmem::find(tail.get(at..)?, b"\xff\xd8\xff")?)
}

fn header_end(picture: &[u8]) -> usize {
    let mut segments = Segments::new(picture);
    segments.by_ref().for_each(drop);
    segments.offset()
}

/// What stands between two pictures: kept in length alone, since the index counts from the start.
fn blank(between: &[u8], out: &mut Vec<u8>, repairs: &mut Vec<Repair>) {
    if between.iter().any(|byte| *byte != 0) {
        repairs.push(stripped(format!("{} bytes between two pictures", between.len())));
    }
    out.resize(out.len() + between.len(), 0);
}

fn bare<'a>(picture: &'a [u8], number: usize, repairs: &mut Vec<Repair>) -> Cow<'a, [u8]> {
    let mut out = Cow::Borrowed(picture);
    for segment in Segments::new(picture).filter(|segment| segment.marker == APP1) {
        let (payload, begin) = (segment.payload, segment.offset + 4);
        let (what, new) = if let Some(block) = payload.strip_prefix(EXIF) {
            ("EXIF", position_free(block).map(|block| [EXIF, &block].concat()))
        } else if let Some(packet) = payload.strip_prefix(XMP).filter(|packet| xmp::has_gps(packet)) {
            let blanked = xmp::without_gps(packet).unwrap_or_else(|| vec![b' '; packet.len()]);
            ("XMP", Some([XMP, &blanked].concat()))
        } else if payload.starts_with(EXTENDED_XMP) && xmp::has_gps(payload) {
            ("extended XMP", Some(vec![0; payload.len()]))
        } else {
            continue;
        };
        let Some(new) = new else { continue };
        if let Some(place) = out.to_mut().get_mut(begin..begin + payload.len()) {
            place.copy_from_slice(&new);
            repairs.push(stripped(format!("GPS in the {what} of picture {}", number + 1)));
        }
    }
    out
}

/// The block without its position, or blanked where that cannot be taken out alone; `None` where there is none.
fn position_free(block: &[u8]) -> Option<Vec<u8>> {
    match without_gps(block) {
        Some(new) if new == block => None,
        Some(new) => Some(new),
        None => Some(vec![0; block.len()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture with EXIF whose GPS IFD, at 26, has one entry.
    fn picture() -> Vec<u8> {
        let ifd0 = b"MM\0*\0\0\0\x08\0\x01\x88\x25\0\x04\0\0\0\x01\0\0\0\x1a\0\0\0\0";
        let gps = b"\0\x01\0\x01\0\x02\0\0\0\x02N\0\0\0\0\0\0\0";
        let exif = [EXIF, ifd0, gps].concat();
        let length = u16::try_from(exif.len() + 2).unwrap().to_be_bytes();
        let scan = b"\xff\xda\0\x08\x01\x01\0\0\x3f\0 pixels \xff\xd9";
        [b"\xff\xd8\xff\xe1".as_slice(), &length, &exif, scan].concat()
    }

    #[test]
    fn further_picture_loses_its_position_and_keeps_its_length() {
        let tail = [picture(), vec![0; 3], picture()].concat();
        let mut repairs = Vec::new();
        let bare = without_positions(&tail, &mut repairs).into_owned();
        assert_eq!((bare.len(), repairs.len()), (tail.len(), 2));
        assert!(!bare.windows(2).any(|window| window == b"\x88\x25"));
        assert!(matches!(without_positions(&bare, &mut Vec::new()), Cow::Borrowed(_)));
    }

    #[test]
    fn what_is_no_picture_goes_and_is_told() {
        let tail = [picture(), b"....ftypmp42 moov loci".to_vec()].concat();
        let mut repairs = Vec::new();
        assert_eq!(without_positions(&tail, &mut repairs).len(), picture().len());
        assert!(repairs[1].before.starts_with("22 bytes behind the pictures"), "{repairs:?}");
    }
}
