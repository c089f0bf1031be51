//! WebP (RFC 9649): metadata chunks are rewritten, VP8X says what there is, and picture chunks are copied.

use std::borrow::Cow;

use refmill::finding::{FindingCode, Repair};
use refmill::job::Strip;

use super::exif::{Fate, Outcome, mend};
use super::{Rewritten, equals, mended_xmp, own_profile, profile_repair, stripped, truth};
use crate::bytes::{Order, index_at, slice, u8_at};
use crate::repair::{Meaning, Repaired};

const FLAG_ICC: u8 = 0x20;
const FLAG_ALPHA: u8 = 0x10;
const FLAG_EXIF: u8 = 0x08;
const FLAG_XMP: u8 = 0x04;

/// Where the first chunk stands. A VP8X anywhere else says nothing, and stays where it is.
const FIRST: usize = 12;

struct Chunk<'a> {
    kind: &'a [u8],
    data: &'a [u8],
    offset: usize,
    end: usize,
}

/// The chunks as far as they can be followed, as inspection follows them, and where they end. A RIFF size that ends
/// before them is wrong: what inspection found behind it counts, so it belongs inside.
fn chunks(bytes: &[u8]) -> (Vec<Chunk<'_>>, usize) {
    let (mut chunks, mut at) = (Vec::new(), 12);
    while at < bytes.len() {
        let read = || {
            let kind = slice(bytes, at, 4)?;
            let data = slice(bytes, at + 8, index_at(bytes, at + 4, Order::Little)?)?;
            Some(Chunk { kind, data, offset: at, end: (at + 8 + data.len() + data.len() % 2).min(bytes.len()) })
        };
        let Some(chunk) = read() else { break };
        at = chunk.end;
        chunks.push(chunk);
    }
    (chunks, at)
}

struct Plan<'r, 'a> {
    repaired: &'r Repaired<'a>,
    strip: Strip,
    exif: Outcome,
    own: Option<Vec<u8>>,
    flags: u8,
    repairs: Vec<Repair>,
    /// Chunks behind VP8X.
    pieces: Vec<Cow<'a, [u8]>>,
}

/// Plans the repaired file.
pub fn rewrite<'a>(repaired: &Repaired<'a>, strip: Strip) -> Rewritten<'a> {
    let bytes = repaired.opened.bytes;
    let (chunks, end) = chunks(bytes);
    let mut exif = mend(&repaired.container.exif, truth(repaired, strip, usize::MAX));
    let mut repairs = std::mem::take(&mut exif.repairs);
    let broken = chunks.iter().any(|chunk| chunk.kind == b"ICCP") && !matches!(repaired.meaning, Meaning::Icc(_));
    let own = own_profile(repaired, broken);
    if broken || own.is_some() {
        let says =
            |own: &Vec<u8>| format!("a profile of {} bytes that says {}", own.len(), repaired.meaning.description());
        repairs.push(profile_repair(repaired, broken, &own.as_ref().map_or("removed".into(), says)));
    }
    let mut plan = Plan { repaired, strip, exif, own, flags: 0, repairs, pieces: Vec::new() };
    if let Some(own) = plan.own.take() {
        plan.write(b"ICCP", &own, FLAG_ICC);
    }
    for chunk in &chunks {
        plan.take(chunk);
    }
    let behind = bytes.get(end..).unwrap_or_default();
    let tail = if strip == Strip::Nothing { behind } else { &[] };
    if tail.len() < behind.len() {
        plan.repairs.push(stripped(format!("{} bytes behind the image", behind.len())));
    }
    plan.finish(&chunks, tail)
}

impl<'a> Plan<'_, 'a> {
    fn take(&mut self, chunk: &Chunk<'a>) {
        match chunk.kind {
            b"VP8X" if chunk.offset == FIRST => {}
            b"ICCP" => {
                let uses = matches!(self.repaired.meaning, Meaning::Icc(_))
                    && self.is(chunk, self.repaired.container.icc.as_ref());
                if uses {
                    self.keep(chunk, FLAG_ICC);
                } else if self.repaired.container.icc.is_some() && matches!(self.repaired.meaning, Meaning::Icc(_)) {
                    self.repairs.push(Repair::new(FindingCode::IccMultiple, place(chunk), "removed"));
                }
            }
            b"EXIF" => self.exif(chunk),
            b"XMP " => self.xmp(chunk),
            b"VP8 " | b"VP8L" | b"ALPH" | b"ANIM" | b"ANMF" => self.keep(chunk, 0),
            _ if self.strip == Strip::All => self.repairs.push(stripped(place(chunk))),
            _ => self.keep(chunk, 0),
        }
    }

    fn is(&self, chunk: &Chunk<'_>, block: Option<&crate::container::Block<'_>>) -> bool {
        block.is_some_and(|block| block.place == place(chunk))
    }

    fn keep(&mut self, chunk: &Chunk<'a>, flag: u8) {
        self.flags |= flag;
        let raw = self.repaired.opened.bytes.get(chunk.offset..chunk.end).unwrap_or_default();
        // The last chunk of a file may lack its padding: it is still the last one, and stays as it is.
        self.pieces.push(Cow::Borrowed(raw));
    }

    fn write(&mut self, kind: &[u8; 4], data: &[u8], flag: u8) {
        self.flags |= flag;
        self.pieces.push(Cow::Owned(encoded(kind, data)));
    }

    fn exif(&mut self, chunk: &Chunk<'a>) {
        let chosen = self.exif.chosen.and_then(|index| self.repaired.container.exif.get(index));
        if !self.is(chunk, chosen) {
            return;
        }
        match std::mem::replace(&mut self.exif.fate, Fate::Keep) {
            Fate::Keep => self.keep(chunk, FLAG_EXIF),
            Fate::Drop => {}
            Fate::Replace(block) => self.write(b"EXIF", &block, FLAG_EXIF),
        }
    }

    fn xmp(&mut self, chunk: &Chunk<'a>) {
        match mended_xmp(self.repaired, chunk.data, self.strip, &mut self.repairs) {
            None => self.keep(chunk, FLAG_XMP),
            Some(packet) if packet.is_empty() => {}
            Some(packet) => self.write(b"XMP ", &packet, FLAG_XMP),
        }
    }

    /// The RIFF header, VP8X with true flags where it is needed, and the rest.
    fn finish(mut self, chunks: &[Chunk<'a>], tail: &'a [u8]) -> Rewritten<'a> {
        let old = chunks.first().filter(|chunk| chunk.kind == b"VP8X" && chunk.data.len() >= 10);
        let told = FLAG_ICC | FLAG_EXIF | FLAG_XMP;
        let extended = match old {
            Some(old) => {
                let before = u8_at(old.data, 0).unwrap_or(0);
                let flags = (before & !told) | self.flags;
                if flags != before {
                    let text = |flags: u8| format!("flags 0x{flags:02x}");
                    self.repairs.push(Repair::new(FindingCode::ContainerFlag, text(before), text(flags)));
                }
                Some(encoded(b"VP8X", &[&[flags], old.data.get(1..).unwrap_or_default()].concat()))
            }
            None if self.flags != 0 => {
                self.repairs.push(Repair::new(FindingCode::ContainerFlag, "no VP8X", "VP8X with its flags"));
                Some(self.extended())
            }
            None => None,
        };
        let mut body: Vec<Cow<'a, [u8]>> = extended.map(Cow::Owned).into_iter().collect();
        body.append(&mut self.pieces);
        let bytes = self.repaired.opened.bytes;
        let old_end = chunks.last().map_or(12, |chunk| chunk.end);
        // The RIFF size alone is no reason to rewrite: it is wrong in files that every reader takes.
        if equals(bytes.get(12..old_end).unwrap_or_default(), &body) && bytes.len() == old_end + tail.len() {
            return Rewritten::unchanged(bytes);
        }
        let length: usize = body.iter().map(|piece| piece.len()).sum();
        let size = u32::try_from(length + 4).unwrap_or(u32::MAX);
        let mut pieces = vec![Cow::Owned([b"RIFF".as_slice(), &size.to_le_bytes(), b"WEBP"].concat())];
        pieces.append(&mut body);
        pieces.push(Cow::Borrowed(tail));
        Rewritten::new(bytes, pieces, self.repairs)
    }

    fn extended(&self) -> Vec<u8> {
        let header = self.repaired.header;
        let alpha = if header.alpha { FLAG_ALPHA } else { 0 };
        let side = |side: u32| side.saturating_sub(1).to_le_bytes();
        let ([a, b, c, _], [d, e, f, _]) = (side(header.width), side(header.height));
        encoded(b"VP8X", &[self.flags | alpha, 0, 0, 0, a, b, c, d, e, f])
    }
}

/// What inspection calls the chunk.
fn place(chunk: &Chunk<'_>) -> String {
    format!("{} at byte {}", crate::bytes::printable(chunk.kind), chunk.offset)
}

fn encoded(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes();
    let padding: &[u8] = if data.len() % 2 == 1 { &[0] } else { &[] };
    [kind.as_slice(), &length, data, padding].concat()
}
