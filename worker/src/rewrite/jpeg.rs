//! JPEG: segments up to the first scan are rewritten, everything from there on is copied.

use std::borrow::Cow;

use refmill::finding::Repair;
use refmill::job::Strip;

use super::exif::{Fate, mend};
use super::{Rewritten, jpeg_tail, mended_xmp, mpf, own_profile, profile_repair, stripped, truth, xmp};
use crate::bytes::{slice, u8_at};
use crate::container::jpeg::{ExifSegments, Segment, Segments, after_end};
use crate::repair::{Meaning, Repaired};

const EXIF: &[u8] = b"Exif\0";
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
const EXTENDED_XMP: &[u8] = b"http://ns.adobe.com/xmp/extension/\0";
const ICC: &[u8] = b"ICC_PROFILE\0";
const APP0: u8 = 0xe0;
const APP1: u8 = 0xe1;
const APP2: u8 = 0xe2;
/// Photoshop's resources, IPTC among them.
const APP13: u8 = 0xed;
/// Adobe's: it names the colour transform.
const APP14: u8 = 0xee;
const COM: u8 = 0xfe;
const SOS: u8 = 0xda;
/// Most bytes of a segment behind its length.
const PAYLOAD: usize = 65_533;
const EXIF_PART: usize = PAYLOAD - 6;
const ICC_CHUNK: usize = PAYLOAD - ICC.len() - 2;

/// What becomes of the profile's segments.
enum Profile {
    Keep,
    /// Any that are there go, and this one is written, or none.
    Write(Option<Vec<u8>>),
}

/// Plans the repaired file.
pub fn rewrite<'a>(repaired: &Repaired<'a>, strip: Strip) -> Rewritten<'a> {
    let bytes = repaired.opened.bytes;
    let mut walk = Segments::new(bytes);
    let segments: Vec<Segment<'a>> = walk.by_ref().collect();
    let is_extended = repaired.container.exif.iter().any(|block| block.bytes.len() > EXIF_PART);
    let room = if is_extended { usize::MAX } else { EXIF_PART };
    let mut exif = mend(&repaired.container.exif, truth(repaired, strip, room));
    let mut repairs = std::mem::take(&mut exif.repairs);
    let profile = profile(repaired, &segments, &mut repairs);
    let mut plan = Plan { pieces: vec![Cow::Borrowed(slice(bytes, 0, 2).unwrap_or_default())], index: None };
    let mut new_exif: Vec<Vec<u8>> = match &exif.fate {
        Fate::Replace(block) => {
            block.chunks(EXIF_PART).map(|part| segment(APP1, &[b"Exif\0\0", part].concat())).collect()
        }
        Fate::Keep | Fate::Drop => Vec::new(),
    };
    let mut new_icc = match &profile {
        Profile::Write(Some(profile)) => icc_segments(profile),
        Profile::Keep | Profile::Write(None) => Vec::new(),
    };
    let (mut blocks, mut parts) = (0, ExifSegments::default());
    for &Segment { marker, offset, payload } in &segments {
        let raw = || Cow::Borrowed(slice(bytes, offset, 4 + payload.len()).unwrap_or_default());
        if marker != APP0 {
            plan.pieces.extend(std::mem::take(&mut new_exif).into_iter().map(Cow::Owned));
        }
        let is_profile = marker == APP2 && payload.starts_with(ICC);
        if is_profile || !matches!(marker, APP0 | APP1 | APP2) {
            plan.pieces.extend(std::mem::take(&mut new_icc).into_iter().map(Cow::Owned));
        }
        match marker {
            APP1 if payload.starts_with(EXIF) => {
                blocks += usize::from(!parts.is_continued(&Segment { marker, offset, payload }));
                if exif.chosen == Some(blocks - 1) && exif.fate == Fate::Keep {
                    plan.pieces.push(raw());
                }
            }
            APP1 if payload.starts_with(XMP) => {
                let packet = payload.strip_prefix(XMP).unwrap_or_default();
                match mended_xmp(repaired, packet, strip, &mut repairs) {
                    None => plan.pieces.push(raw()),
                    Some(packet) if packet.is_empty() => {}
                    Some(packet) => plan.pieces.push(Cow::Owned(segment(APP1, &[XMP, &packet].concat()))),
                }
            }
            APP2 if is_profile && matches!(profile, Profile::Write(_)) => {}
            APP2 if payload.starts_with(mpf::TAG) && matches!(strip, Strip::Nothing | Strip::Gps) => {
                plan.index = Some(Index { piece: plan.pieces.len(), offset, payload });
                plan.pieces.push(raw());
            }
            SOS => break,
            _ if is_stripped(marker, payload, strip) => repairs.push(stripped(name(marker, payload, offset))),
            _ => plan.pieces.push(raw()),
        }
    }
    plan.finish(repaired, segments.last(), walk.offset(), strip, repairs)
}

/// What a segment is called that went.
fn name(marker: u8, payload: &[u8], offset: usize) -> String {
    let what = match marker {
        COM => "comment".to_owned(),
        APP1 if payload.starts_with(EXTENDED_XMP) => "extended XMP".to_owned(),
        APP2 if payload.starts_with(mpf::TAG) => "index of further pictures".to_owned(),
        APP13 => "Photoshop and IPTC resources".to_owned(),
        _ => format!("APP{}", marker & 0x0f),
    };
    format!("{what} at byte {offset}")
}

fn is_stripped(marker: u8, payload: &[u8], strip: Strip) -> bool {
    let extended = marker == APP1 && payload.starts_with(EXTENDED_XMP);
    let index = marker == APP2 && payload.starts_with(mpf::TAG);
    let private = marker == APP13 || extended || index || (marker == APP0 && payload.starts_with(b"JFXX\0"));
    let is_profile = marker == APP2 && payload.starts_with(ICC);
    match strip {
        Strip::Nothing => false,
        // Its parts are named by the hash of the whole, so that no part can be changed.
        Strip::Gps => extended && xmp::has_gps(payload),
        Strip::Private => private,
        Strip::All => private || (matches!(marker, 0xe1..=0xef | COM) && marker != APP14 && !is_profile),
    }
}

fn segment(marker: u8, payload: &[u8]) -> Vec<u8> {
    // Every caller keeps to PAYLOAD.
    let length = u16::try_from(payload.len() + 2).unwrap_or(u16::MAX);
    [&[0xff, marker], length.to_be_bytes().as_slice(), payload].concat()
}

fn icc_segments(profile: &[u8]) -> Vec<Vec<u8>> {
    let total = u8::try_from(profile.len().div_ceil(ICC_CHUNK)).unwrap_or(u8::MAX);
    let chunks = (1..=total).zip(profile.chunks(ICC_CHUNK));
    chunks.map(|(number, chunk)| segment(APP2, &[ICC, &[number, total], chunk].concat())).collect()
}

fn profile(repaired: &Repaired<'_>, segments: &[Segment<'_>], repairs: &mut Vec<Repair>) -> Profile {
    let chunks: Vec<&[u8]> =
        segments.iter().filter(|s| s.marker == APP2).filter_map(|s| s.payload.strip_prefix(ICC)).collect();
    let is_canonical = (1..).zip(&chunks).all(|(number, chunk)| {
        u8_at(chunk, 0).map(usize::from) == Some(number) && u8_at(chunk, 1).map(usize::from) == Some(chunks.len())
    });
    let broken = !chunks.is_empty();
    match (&repaired.meaning, &repaired.container.icc) {
        (Meaning::Icc(_), Some(_)) if is_canonical => Profile::Keep,
        (Meaning::Icc(_), Some(whole)) => {
            repairs.push(profile_repair(repaired, broken, "the same profile, its chunks in order and each once"));
            Profile::Write(Some(whole.bytes.to_vec()))
        }
        _ => {
            let own = own_profile(repaired, broken);
            match &own {
                Some(own) => {
                    let after =
                        format!("a profile of {} bytes that says {}", own.len(), repaired.meaning.description());
                    repairs.push(profile_repair(repaired, broken, &after));
                }
                None if broken => repairs.push(profile_repair(repaired, broken, "removed")),
                None => return Profile::Keep,
            }
            Profile::Write(own)
        }
    }
}

/// Where the index of a multi-picture file went.
struct Index<'a> {
    piece: usize,
    offset: usize,
    payload: &'a [u8],
}

struct Plan<'a> {
    pieces: Vec<Cow<'a, [u8]>>,
    index: Option<Index<'a>>,
}

impl<'a> Plan<'a> {
    /// The scans, what follows them, and the index of the pictures that stand there.
    fn finish(
        mut self,
        repaired: &Repaired<'a>,
        scan: Option<&Segment<'a>>,
        header_end: usize,
        strip: Strip,
        mut repairs: Vec<Repair>,
    ) -> Rewritten<'a> {
        let bytes = repaired.opened.bytes;
        let begin = scan.map_or(bytes.len(), |scan| scan.offset);
        let end = bytes.len() - after_end(bytes, header_end).unwrap_or(0);
        self.pieces.push(Cow::Borrowed(bytes.get(begin..end).unwrap_or_default()));
        let length = |pieces: &[Cow<'_, [u8]>]| pieces.iter().map(|piece| piece.len() as i64).sum::<i64>();
        if let Some(index) = &self.index {
            let grown = length(&self.pieces) - end as i64;
            let before = length(self.pieces.get(..index.piece).unwrap_or_default()) - index.offset as i64;
            let new = mpf::corrected(index.payload, grown, grown - before).filter(|_| grown != 0 || before != 0);
            if let (Some(new), Some(piece)) = (new, self.pieces.get_mut(index.piece)) {
                *piece = Cow::Owned(segment(APP2, &new));
            }
        }
        let tail = bytes.get(end..).unwrap_or_default();
        match strip {
            Strip::Nothing => self.pieces.push(Cow::Borrowed(tail)),
            Strip::Gps => self.pieces.push(jpeg_tail::without_positions(tail, &mut repairs)),
            Strip::Private | Strip::All if tail.is_empty() => {}
            Strip::Private | Strip::All => repairs.push(stripped(format!("{} bytes behind the image", tail.len()))),
        }
        Rewritten::new(bytes, self.pieces, repairs)
    }
}
