//! PNG: ancillary chunks are rewritten; IHDR, PLTE and IDAT are copied, wrong checksums included, since nothing says
//! what their bytes were.

use std::borrow::Cow;

use refmill::finding::{FindingCode, Repair};
use refmill::job::Strip;

use super::exif::{Fate, Outcome, mend};
use super::{Rewritten, mended_xmp, profile_repair, stripped, truth};
use crate::bytes::slice;
use crate::container::png::{Chunk, Chunks};
use crate::repair::{Meaning, PngSource, Repaired, gama_agrees_with_srgb, png_source};

const XMP: &[u8] = b"XML:com.adobe.xmp";
/// What an sRGB chunk says first: the rendering intent, here perceptual.
const SRGB_DATA: &[u8] = &[0];
/// Chunks that `Strip::All` leaves: pixels, their transparency and depth, animation, light levels.
const ESSENTIAL: [&[u8; 4]; 9] = [b"tRNS", b"sBIT", b"bKGD", b"acTL", b"fcTL", b"fdAT", b"mDCV", b"cLLI", b"sPLT"];

struct Plan<'r, 'a> {
    repaired: &'r Repaired<'a>,
    strip: Strip,
    exif: Outcome,
    source: Option<PngSource>,
    /// Whether the picture gets an sRGB chunk, since something unusable stood there.
    tagged: bool,
    seen: Vec<[u8; 4]>,
    repairs: Vec<Repair>,
    pieces: Vec<Cow<'a, [u8]>>,
}

/// Plans the repaired file.
pub fn rewrite<'a>(repaired: &Repaired<'a>, strip: Strip) -> Rewritten<'a> {
    let bytes = repaired.opened.bytes;
    let has_profile = repaired.container.icc.is_some() && iccp_is_usable(repaired);
    let source = png_source(repaired.container.png, has_profile);
    let mut exif = mend(&repaired.container.exif, truth(repaired, strip, usize::MAX));
    let repairs = std::mem::take(&mut exif.repairs);
    let mut walk = Chunks::new(bytes);
    let chunks: Vec<Chunk<'a>> = walk.by_ref().collect();
    let unusable = chunks.iter().any(|chunk| matches!(&chunk.kind, b"cICP" | b"iCCP" | b"sRGB" | b"gAMA"));
    let tagged = source.is_none() && unusable;
    let source = if tagged { Some(PngSource::Srgb) } else { source };
    let pieces = vec![Cow::Borrowed(slice(bytes, 0, 8).unwrap_or_default())];
    let mut plan = Plan { repaired, strip, exif, source, tagged, seen: Vec::new(), repairs, pieces };
    for chunk in &chunks {
        plan.take(chunk);
        if tagged && chunk.offset == 8 {
            plan.write(*b"sRGB", SRGB_DATA);
        }
    }
    // Where IEND was not reached, what follows may still be needed for the pixels.
    let ended = chunks.last().is_some_and(|chunk| chunk.kind == *b"IEND");
    if strip != Strip::Nothing && ended {
        let tail = bytes.len() - walk.offset();
        if tail > 0 {
            plan.repairs.push(stripped(format!("{tail} bytes behind the image")));
        }
    } else {
        plan.pieces.push(Cow::Borrowed(bytes.get(walk.offset()..).unwrap_or_default()));
    }
    Rewritten::new(bytes, plan.pieces, plan.repairs)
}

/// Whether the profile passed the judgement: it is the meaning, or cICP stands above it.
fn iccp_is_usable(repaired: &Repaired<'_>) -> bool {
    matches!(repaired.meaning, Meaning::Icc(_))
}

impl<'a> Plan<'_, 'a> {
    fn take(&mut self, chunk: &Chunk<'a>) {
        match &chunk.kind {
            b"cICP" | b"iCCP" | b"sRGB" | b"gAMA" | b"cHRM" => self.colour(chunk),
            b"eXIf" => self.exif(chunk, &chunk.place()),
            b"tEXt" | b"zTXt" | b"iTXt" => self.text(chunk),
            kind if self.strip == Strip::All && is_ancillary(*kind) && !ESSENTIAL.contains(&kind) => self.strip(chunk),
            _ => self.keep(chunk),
        }
    }

    /// Copies a chunk. A wrong checksum is made right where the chunk can be done without, and on IEND.
    fn keep(&mut self, chunk: &Chunk<'a>) {
        let mendable = is_ancillary(chunk.kind) || chunk.kind == *b"IEND";
        if !chunk.sound && mendable {
            self.repairs.push(Repair::new(FindingCode::ChecksumMismatch, chunk.place(), "checksum made right"));
            return self.write(chunk.kind, chunk.data);
        }
        let raw = slice(self.repaired.opened.bytes, chunk.offset, chunk.data.len() + 12).unwrap_or_default();
        self.pieces.push(Cow::Borrowed(raw));
    }

    fn strip(&mut self, chunk: &Chunk<'a>) {
        let keyword = chunk.data.split(|&byte| byte == 0).next().filter(|_| chunk.kind.ends_with(b"Xt"));
        let what = keyword.map_or(String::new(), |keyword| format!(", {}", crate::bytes::printable(keyword)));
        self.repairs.push(stripped(format!("{}{what}", chunk.place())));
    }

    fn write(&mut self, kind: [u8; 4], data: &[u8]) {
        self.pieces.push(Cow::Owned(encoded(kind, data)));
    }

    fn colour(&mut self, chunk: &Chunk<'a>) {
        // The one that was read, which is the first readable one; the first where none was.
        let first = self.read(chunk.kind).map_or(!self.seen.contains(&chunk.kind), |offset| offset == chunk.offset);
        self.seen.push(chunk.kind);
        let agrees = gama_agrees_with_srgb(self.repaired.container.png);
        let counts = match (&chunk.kind, self.source) {
            // It has no usable value: the new one counts.
            (b"cICP" | b"iCCP" | b"sRGB" | b"gAMA", _) if self.tagged => false,
            (b"cICP", source) => source == Some(PngSource::Cicp),
            (b"iCCP", source) => source == Some(PngSource::Iccp),
            (b"sRGB", source) => source == Some(PngSource::Srgb),
            (b"gAMA", Some(PngSource::Gama { .. })) => true,
            (b"cHRM", Some(PngSource::Gama { chrm })) => chrm,
            // PNG 3rd edition 11.3.2.5 wants them beside sRGB, for readers that do not know it.
            (_, Some(PngSource::Srgb)) => agrees,
            // cHRM alone says nothing, and an untagged picture stays as it is.
            (b"cHRM", None) => true,
            _ => false,
        };
        if counts && first {
            return if chunk.kind == *b"iCCP" { self.profile(chunk) } else { self.keep(chunk) };
        }
        self.remove(chunk);
    }

    /// Where the chunk stands whose value counts.
    fn read(&self, kind: [u8; 4]) -> Option<usize> {
        let container = &self.repaired.container;
        let [cicp, srgb, gama, chrm] = container.png.offsets;
        match &kind {
            b"iCCP" => container.icc.as_ref().and_then(|block| block.offset),
            b"cICP" => cicp,
            b"sRGB" => srgb,
            b"gAMA" => gama,
            _ => chrm,
        }
    }

    /// A profile that is used; its name has 1 to 79 bytes.
    fn profile(&mut self, chunk: &Chunk<'a>) {
        let name = chunk.data.iter().position(|&byte| byte == 0).unwrap_or(0);
        if (1..=79).contains(&name) {
            return self.keep(chunk);
        }
        let stream = chunk.data.get(name..).unwrap_or_default();
        self.repairs.push(profile_repair(self.repaired, true, "the same profile under a name that is allowed"));
        self.write(*b"iCCP", &[b"ICC profile", stream].concat());
    }

    fn remove(&mut self, chunk: &Chunk<'a>) {
        let after = if self.tagged { "the chunk sRGB" } else { "removed" };
        let code = match (&chunk.kind, self.source) {
            (b"iCCP", Some(PngSource::Iccp)) if Some(chunk.offset) < self.read(chunk.kind) => FindingCode::IccCorrupt,
            (b"iCCP", Some(PngSource::Iccp)) => FindingCode::IccMultiple,
            (b"iCCP", Some(PngSource::Cicp)) => FindingCode::PngColourPrecedence,
            (b"iCCP", _) => return self.repairs.push(profile_repair(self.repaired, true, after)),
            _ if self.tagged => FindingCode::PngColourInvalid,
            _ => FindingCode::PngColourPrecedence,
        };
        self.repairs.push(Repair::new(code, chunk.place(), after));
    }

    /// A chunk that holds EXIF; `place` is what its block is called.
    fn exif(&mut self, chunk: &Chunk<'a>, place: &str) {
        let index = self.repaired.container.exif.iter().position(|block| block.place == place);
        if index.is_none() || self.exif.chosen != index {
            return;
        }
        match std::mem::replace(&mut self.exif.fate, Fate::Keep) {
            Fate::Keep => self.keep(chunk),
            Fate::Drop => {}
            Fate::Replace(block) => self.write(*b"eXIf", &block),
        }
    }

    fn text(&mut self, chunk: &Chunk<'a>) {
        let keyword = chunk.data.split(|&byte| byte == 0).next().unwrap_or_default();
        let private = matches!(self.strip, Strip::Private | Strip::All);
        match keyword {
            b"Raw profile type exif" | b"Raw profile type APP1" => self.raw_exif(chunk),
            XMP if chunk.kind == *b"iTXt" => self.xmp(chunk),
            b"Raw profile type xmp" | b"Raw profile type iptc" | b"Raw profile type 8bim"
                if self.strip != Strip::Nothing =>
            {
                self.strip(chunk);
            }
            b"Author" if private => self.strip(chunk),
            _ if self.strip == Strip::All => self.strip(chunk),
            _ => self.keep(chunk),
        }
    }

    /// EXIF as text: changed, it becomes a chunk of its own; one that does not count is left where nothing has to go.
    fn raw_exif(&mut self, chunk: &Chunk<'a>) {
        let place = format!("{}, raw profile", chunk.place());
        if self.repaired.container.exif.iter().any(|block| block.place == place) {
            self.exif(chunk, &place);
        } else if self.strip == Strip::Nothing {
            self.keep(chunk);
        } else {
            self.strip(chunk);
        }
    }

    fn xmp(&mut self, chunk: &Chunk<'a>) {
        let block = self.repaired.container.xmp.as_ref().filter(|block| block.place == chunk.place());
        let Some(block) = block else {
            // A second packet, or one that cannot be read.
            return if self.strip == Strip::Nothing { self.keep(chunk) } else { self.strip(chunk) };
        };
        match mended_xmp(self.repaired, &block.bytes, self.strip, &mut self.repairs) {
            None => self.keep(chunk),
            Some(packet) if packet.is_empty() => {}
            Some(packet) => self.write(*b"iTXt", &[XMP, b"\0\0\0\0\0", &packet].concat()),
        }
    }
}

fn is_ancillary([first, ..]: [u8; 4]) -> bool {
    first.is_ascii_lowercase()
}

fn encoded(kind: [u8; 4], data: &[u8]) -> Vec<u8> {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&kind);
    hasher.update(data);
    // No longer than the input by more than a few bytes, whose length fits.
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), kind.as_slice(), data, &hasher.finalize().to_be_bytes()].concat()
}
