//! PNG chunks (PNG 3rd edition, W3C): header, colour chunks, EXIF, XMP, and whether checksums hold.

use std::io::Read;

use refmill::failure::Failure;
use refmill::finding::{Finding, FindingCode};
use refmill::limits::Limits;
use refmill::report::Model;

use super::{Block, Container, Header, PngColour, corrupt, png_text, truncated};
use crate::bytes::{Order, index_at, printable, slice, u8_at, u32_at};
use crate::open::Opened;

const SIGNATURE: usize = 8;
/// Findings about checksums beyond this many add nothing.
const MAX_CHECKSUM_FINDINGS: usize = 4;

/// One chunk.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// Four letters.
    pub kind: [u8; 4],
    /// Offset of its length field.
    pub offset: usize,
    /// Its data.
    pub data: &'a [u8],
    /// Whether its CRC is right.
    pub sound: bool,
}

impl Chunk<'_> {
    /// Its name and offset, as findings and blocks name it.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{} at byte {}", printable(&self.kind), self.offset)
    }
}

/// Walks the chunks up to and including IEND, or to the first that does not lie inside the file.
#[derive(Debug, Clone)]
pub struct Chunks<'a> {
    bytes: &'a [u8],
    at: usize,
    ended: bool,
    /// Whether pixels are there, so that their checksums can be right.
    pixels: bool,
}

impl<'a> Chunks<'a> {
    /// The chunks of a file with the PNG signature.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: SIGNATURE, ended: false, pixels: true }
    }

    /// Offset just past the last chunk given.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Chunk<'a>> {
        if self.ended {
            return None;
        }
        let offset = self.at;
        let length = index_at(self.bytes, offset, Order::Big)?;
        let kind: [u8; 4] = slice(self.bytes, offset + 4, 4)?.try_into().ok()?;
        let data = slice(self.bytes, offset + 8, length)?;
        let after = offset.checked_add(8)?.checked_add(length)?;
        let crc = u32_at(self.bytes, after, Order::Big)?;
        let sound = || {
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&kind);
            hasher.update(data);
            hasher.finalize() == crc
        };
        let sound = !self.pixels && is_pixels(&kind) || sound();
        self.at = after + 4;
        self.ended = kind == *b"IEND";
        Some(Chunk { kind, offset, data, sound })
    }
}

/// Whether a chunk of this name holds coded pixels.
#[must_use]
pub fn is_pixels(kind: &[u8]) -> bool {
    kind == b"IDAT" || kind == b"fdAT"
}

/// Reads the container.
///
/// # Errors
/// [`refmill::failure::Code::Corrupt`] where IHDR is not first or not sound,
/// [`refmill::failure::Code::Truncated`] without image data.
pub fn read<'a>(opened: &Opened<'a>, limits: &Limits) -> Result<Container<'a>, Failure> {
    let bytes = opened.bytes;
    let mut chunks = Chunks { pixels: opened.whole, ..Chunks::new(bytes) };
    let first = chunks.next().ok_or_else(|| truncated(format!("no whole chunk in {} bytes", bytes.len())))?;
    let mut container = Container::new(header(&first)?);
    let mut has_data = false;
    let mut wrong_checksums = 0;
    for chunk in chunks.by_ref() {
        if !chunk.sound {
            wrong_checksums += 1;
            if wrong_checksums <= MAX_CHECKSUM_FINDINGS {
                let finding = Finding::new(FindingCode::ChecksumMismatch, chunk.place(), "CRC is wrong");
                container.findings.push(finding.at(chunk.offset));
            }
        }
        has_data |= chunk.kind == *b"IDAT";
        take_chunk(&chunk, &mut container, limits);
    }
    if !has_data {
        return Err(truncated("no whole IDAT chunk before the end of the data"));
    }
    if !chunks.ended && slice(bytes, chunks.at + 4, 4) == Some(b"IDAT") {
        container.cut = Some(format!("IDAT at byte {} does not end within {} bytes", chunks.at, bytes.len()));
    }
    if chunks.ended && chunks.at < bytes.len() {
        let found = format!("{} bytes after IEND", bytes.len() - chunks.at);
        let finding = Finding::new(FindingCode::TrailingData, format!("byte {}", chunks.at), found);
        container.findings.push(finding.at(chunks.at));
    }
    Ok(container)
}

fn header(chunk: &Chunk<'_>) -> Result<Header, Failure> {
    let read = || {
        let width = u32_at(chunk.data, 0, Order::Big)?;
        let height = u32_at(chunk.data, 4, Order::Big)?;
        Some((width, height, u8_at(chunk.data, 8)?, u8_at(chunk.data, 9)?))
    };
    if chunk.kind != *b"IHDR" {
        return Err(corrupt(format!("first chunk is `{}`, not IHDR", printable(&chunk.kind))));
    }
    let (width, height, bits, colour_type) =
        read().ok_or_else(|| corrupt(format!("IHDR has {} bytes, 13 are needed", chunk.data.len())))?;
    let (model, alpha) = match colour_type {
        0 => (Model::Gray, false),
        2 | 3 => (Model::Rgb, false),
        4 => (Model::Gray, true),
        6 => (Model::Rgb, true),
        other => return Err(corrupt(format!("IHDR colour type is {other}; 0, 2, 3, 4 and 6 exist"))),
    };
    Ok(Header { width, height, bits, model, alpha, frames: 1 })
}

fn take_chunk<'a>(chunk: &Chunk<'a>, container: &mut Container<'a>, limits: &Limits) {
    let data = chunk.data;
    match &chunk.kind {
        b"tRNS" => container.header.alpha = true,
        b"acTL" => container.header.frames = u32_at(data, 0, Order::Big).unwrap_or(1).max(1),
        b"gAMA" | b"sRGB" | b"cICP" | b"cHRM" => take_colour(chunk, &mut container.png),
        b"eXIf" => {
            let body = super::without_exif_prefix(data);
            let origin = chunk.offset + 8 + data.len() - body.len();
            container.exif.push(Block::inside(chunk.place(), chunk.offset, origin, body));
        }
        b"iCCP" => take_profile(chunk, container, limits),
        b"tEXt" | b"zTXt" | b"iTXt" => png_text::take(chunk, container, limits),
        _ => {}
    }
}

/// The first readable chunk of each kind counts.
fn take_colour(chunk: &Chunk<'_>, colour: &mut PngColour) {
    let (data, [cicp, srgb, gama, chrm]) = (chunk.data, &mut colour.offsets);
    let (taken, place) = match &chunk.kind {
        b"cICP" => (set(&mut colour.cicp, data.try_into().ok()), cicp),
        b"sRGB" => (set(&mut colour.srgb, u8_at(data, 0)), srgb),
        b"gAMA" => (set(&mut colour.gama, u32_at(data, 0, Order::Big)), gama),
        _ => {
            let mut values = [0; 8];
            let mut slots = values.iter_mut().enumerate();
            let complete =
                slots.all(|(index, value)| u32_at(data, index * 4, Order::Big).map(|read| *value = read).is_some());
            (set(&mut colour.chrm, complete.then_some(values)), chrm)
        }
    };
    if taken {
        *place = Some(chunk.offset);
    }
}

fn set<T>(slot: &mut Option<T>, value: Option<T>) -> bool {
    let takes = slot.is_none() && value.is_some();
    if takes {
        *slot = value;
    }
    takes
}

fn take_profile<'a>(chunk: &Chunk<'a>, container: &mut Container<'a>, limits: &Limits) {
    let place = chunk.place();
    if container.icc.is_some() {
        let finding = Finding::new(FindingCode::IccMultiple, place, "a second iCCP chunk");
        container.findings.push(finding.at(chunk.offset));
        return;
    }
    let mut find =
        |code, found: String| container.findings.push(Finding::new(code, place.clone(), found).at(chunk.offset));
    let Some(name) = chunk.data.iter().position(|&byte| byte == 0) else {
        return find(FindingCode::IccCorrupt, "the profile name has no end".into());
    };
    if !(1..=79).contains(&name) {
        find(FindingCode::IccCorrupt, format!("the profile name has {name} bytes, 1 to 79 are allowed"));
    }
    let stream = chunk.data.get(name + 2..).unwrap_or_default();
    match inflate(stream, limits.metadata_bytes) {
        Ok(bytes) => container.icc = Some(Block::made(place, Some(chunk.offset), bytes)),
        Err(Inflate::Broken) => find(FindingCode::IccCorrupt, "the zlib stream is broken".into()),
        Err(Inflate::OverLimit) => find(
            FindingCode::OverLimit,
            format!("the profile inflates to more than {} bytes, the limit", limits.metadata_bytes),
        ),
    }
}

/// Why a zlib stream was not inflated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inflate {
    /// It is damaged.
    Broken,
    /// It holds more than the limit.
    OverLimit,
}

/// Inflates a zlib stream (RFC 1950) of at most `limit` bytes.
///
/// # Errors
/// [`Inflate`].
pub fn inflate(stream: &[u8], limit: u64) -> Result<Vec<u8>, Inflate> {
    let mut out = Vec::new();
    let mut reader = flate2::read::ZlibDecoder::new(stream).take(limit + 1);
    #[expect(clippy::disallowed_methods, reason = "bounded by take")]
    let read = reader.read_to_end(&mut out);
    match read {
        Ok(_) if out.len() as u64 > limit => Err(Inflate::OverLimit),
        Ok(_) => Ok(out),
        Err(_) => Err(Inflate::Broken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(kind);
        hasher.update(data);
        let length = u32::try_from(data.len()).unwrap();
        [&length.to_be_bytes(), kind.as_slice(), data, &hasher.finalize().to_be_bytes()].concat()
    }

    fn png(chunks: &[Vec<u8>]) -> Vec<u8> {
        let ihdr = chunk(b"IHDR", &[0, 0, 0, 4, 0, 0, 0, 3, 8, 2, 0, 0, 0]);
        [b"\x89PNG\r\n\x1a\n".to_vec(), ihdr, chunks.concat(), chunk(b"IDAT", b"x"), chunk(b"IEND", b"")].concat()
    }

    fn opened(bytes: &[u8]) -> Opened<'_> {
        Opened { bytes, whole: true, format: refmill::report::Format::Png }
    }

    fn deflate(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn profile_is_inflated() {
        let file = png(&[chunk(b"iCCP", &[b"p\0\0".to_vec(), deflate(b"profile")].concat())]);
        let container = read(&opened(&file), &Limits::default()).unwrap();
        assert_eq!(container.icc.unwrap().bytes.as_ref(), b"profile");
        assert_eq!((container.header.width, container.header.height), (4, 3));
    }

    #[test]
    fn profile_that_inflates_past_the_limit_is_left() {
        let file = png(&[chunk(b"iCCP", &[b"p\0\0".to_vec(), deflate(&vec![0; 5000])].concat())]);
        let container = read(&opened(&file), &Limits { metadata_bytes: 4999, ..Limits::default() }).unwrap();
        assert_eq!((container.icc, container.findings[0].code), (None, FindingCode::OverLimit));
    }

    #[test]
    fn broken_zlib_stream_is_icc_corrupt() {
        let file = png(&[chunk(b"iCCP", b"p\0\0garbage")]);
        let container = read(&opened(&file), &Limits::default()).unwrap();
        assert_eq!((container.icc, container.findings[0].code), (None, FindingCode::IccCorrupt));
    }

    #[test]
    fn wrong_crc_is_found() {
        let mut file = png(&[chunk(b"gAMA", &[0, 0, 0xb1, 0x8f])]);
        let at = file.windows(4).position(|window| window == b"gAMA").unwrap() + 8;
        file[at] ^= 1;
        let container = read(&opened(&file), &Limits::default()).unwrap();
        assert_eq!(container.findings[0].code, FindingCode::ChecksumMismatch);
    }
}
