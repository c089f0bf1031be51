//! JPEG segments (ITU-T T.81 Annex B) up to the first scan, and where the image ends.

use refmill::failure::{Code, Failure};
use refmill::finding::{Finding, FindingCode};
use refmill::limits::Limits;
use refmill::report::Model;

use super::jpeg_icc::IccChunks;
use super::{Block, Container, Header, corrupt, over_limit, truncated};
use crate::bytes::{Order, slice, u8_at, u16_at};
use crate::open::Opened;

const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;
const EXIF: &[u8] = b"Exif\0";
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";

/// One marker segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The marker's second byte.
    pub marker: u8,
    /// Offset of the marker's first byte.
    pub offset: usize,
    /// What follows the length.
    pub payload: &'a [u8],
}

/// Walks the segments from SOI to the first SOS, which is the last one given.
#[derive(Debug, Clone)]
pub struct Segments<'a> {
    bytes: &'a [u8],
    at: usize,
    done: bool,
}

impl<'a> Segments<'a> {
    /// The segments of a stream that begins with SOI.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 2, done: false }
    }

    /// Offset just past the last segment given.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        if self.done {
            return None;
        }
        let segment = next_segment(self.bytes, self.at)?;
        self.at = segment.offset + 4 + segment.payload.len();
        self.done = is_scan(segment.marker);
        Some(segment)
    }
}

/// The segment at or after `at`: fill bytes and stray bytes before a marker are stepped over, as decoders do.
fn next_segment(bytes: &[u8], mut at: usize) -> Option<Segment<'_>> {
    loop {
        at += bytes.get(at..)?.iter().position(|&byte| byte == 0xff)?;
        let marker = u8_at(bytes, at + 1)?;
        match marker {
            0xff => at += 1,
            0x00 | 0x01 | 0xd0..=0xd7 | SOI => at += 2,
            EOI => return Some(Segment { marker, offset: at, payload: &[] }),
            _ => {
                let length = usize::from(u16_at(bytes, at + 2, Order::Big)?);
                let payload = slice(bytes, at + 4, length.checked_sub(2)?)?;
                return Some(Segment { marker, offset: at, payload });
            }
        }
    }
}

/// Reads the container.
///
/// # Errors
/// [`Code::Truncated`] without a scan, [`Code::Corrupt`] without a frame header, [`Code::Unsupported`] for frames
/// that are no picture of their own.
pub fn read<'a>(opened: &Opened<'a>, limits: &Limits) -> Result<Container<'a>, Failure> {
    let bytes = opened.bytes;
    let mut header = None;
    let mut container =
        Container::new(Header { width: 0, height: 0, bits: 8, model: Model::Rgb, alpha: false, frames: 1 });
    let (mut chunks, mut exif) = (IccChunks::default(), ExifSegments::default());
    let mut scan = None;
    let mut segments = Segments::new(bytes);
    for segment in segments.by_ref() {
        let Segment { marker, offset, payload } = segment;
        match marker {
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf if header.is_none() => {
                header = Some(frame_header(payload, marker, offset)?);
            }
            0xe1 if payload.starts_with(EXIF) => exif.take(&segment, limits, &mut container),
            0xe1 => {
                if let (None, Some(body)) = (&container.xmp, payload.strip_prefix(XMP)) {
                    let place = format!("APP1 at byte {offset}");
                    container.xmp = Some(Block::inside(place, offset, offset + 4 + XMP.len(), body));
                }
            }
            0xe2 => chunks.add(offset, payload),
            SOS => scan = Some(offset),
            _ => {}
        }
    }
    let end = segments.offset();
    let Some(header) = header else {
        return Err(corrupt("no frame header (SOF) before the first scan or the end of the data"));
    };
    if scan.is_none() {
        return Err(truncated(format!(
            "no scan (SOS) in {} bytes; the segments can be followed to byte {end}",
            bytes.len()
        )));
    }
    container.header = header;
    container.icc = chunks.assemble(limits, &mut container.findings);
    // Where pixels were not read there is nothing to be followed.
    match if opened.whole { after_end(bytes, end) } else { Some(0) } {
        None => container.cut = Some(format!("no EOI in {} bytes", bytes.len())),
        Some(0) => {}
        Some(trailing) => {
            let place = format!("byte {}", bytes.len() - trailing);
            let found = format!("{trailing} bytes after EOI");
            container.findings.push(Finding::new(FindingCode::TrailingData, place, found).at(bytes.len() - trailing));
        }
    }
    Ok(container)
}

/// Tells EXIF blocks from the further segments of one that is too long for a segment.
#[derive(Debug, Default)]
pub struct ExifSegments {
    /// Where a further segment would begin.
    next: Option<usize>,
}

impl ExifSegments {
    /// A segment of an extended block, but for its last one, has this many bytes at least.
    const FULL: usize = 65_000;

    /// Whether this APP1 segment with EXIF goes on with the block of the one before.
    pub fn is_continued(&mut self, segment: &Segment<'_>) -> bool {
        let Segment { offset, payload, .. } = *segment;
        let follows = self.next == Some(offset);
        self.next = (payload.len() >= Self::FULL).then_some(offset + 4 + payload.len());
        let body = payload.get(EXIF.len() + 1..).unwrap_or_default();
        follows && !(body.starts_with(b"II*\0") || body.starts_with(b"MM\0*"))
    }

    fn take<'a>(&mut self, segment: &Segment<'a>, limits: &Limits, container: &mut Container<'a>) {
        let Segment { offset, payload, .. } = *segment;
        let head = EXIF.len() + 1;
        let body = payload.get(head..).unwrap_or_default();
        let place = format!("APP1 at byte {offset}");
        if !self.is_continued(segment) {
            return container.exif.push(Block::inside(place, offset, offset + 4 + head, body));
        }
        let Some(block) = container.exif.last_mut() else { return };
        let size = block.bytes.len() + body.len();
        if size as u64 > limits.metadata_bytes {
            return container.findings.push(over_limit(place, offset, size, limits));
        }
        if block.origin.take().is_some() {
            let found = "the EXIF block goes on in the next segment";
            container.findings.push(block.finding(FindingCode::ExifExtended, found));
        }
        block.bytes.to_mut().extend_from_slice(body);
    }
}

fn frame_header(payload: &[u8], marker: u8, offset: usize) -> Result<Header, Failure> {
    let read = || {
        let bits = u8_at(payload, 0)?;
        let height = u16_at(payload, 1, Order::Big)?;
        let width = u16_at(payload, 3, Order::Big)?;
        Some((bits, height, width, u8_at(payload, 5)?))
    };
    let (bits, height, width, components) =
        read().ok_or_else(|| corrupt(format!("frame header at byte {offset} has {} bytes, too few", payload.len())))?;
    if matches!(marker, 0xc5..=0xc7 | 0xcd..=0xcf) {
        return Err(Failure::new(Code::Unsupported, "input is a hierarchical JPEG, which no decoder here reads"));
    }
    if bits != 8 {
        return Err(Failure::new(Code::Unsupported, format!("JPEG with {bits} bits a sample; 8 are read")));
    }
    let model = match components {
        1 => Model::Gray,
        3 => Model::Rgb,
        4 => Model::Cmyk,
        other => {
            return Err(Failure::new(Code::Unsupported, format!("JPEG with {other} components; 1, 3 and 4 are read")));
        }
    };
    Ok(Header { width: width.into(), height: height.into(), bits, model, alpha: false, frames: 1 })
}

/// Whether the marker ends the walk of the segments: no metadata counts behind it.
#[must_use]
pub fn is_scan(marker: u8) -> bool {
    matches!(marker, SOS | EOI)
}

/// Bytes that follow EOI, if there is one. `from` is the offset just past the first SOS header.
#[must_use]
pub fn after_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += memchr::memchr(0xff, bytes.get(at..)?)?;
        match u8_at(bytes, at + 1)? {
            0x00 | 0x01 | 0xd0..=0xd7 => at += 2,
            0xff => at += 1,
            EOI => return bytes.len().checked_sub(at + 2),
            _ => {
                let length = usize::from(u16_at(bytes, at + 2, Order::Big)?);
                at = at.checked_add(2)?.checked_add(length.max(2))?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(bytes: &[u8]) -> Opened<'_> {
        Opened { bytes, whole: true, format: refmill::report::Format::Jpeg }
    }

    fn jpeg(segments: &[&[u8]], tail: &[u8]) -> Vec<u8> {
        let mut out = b"\xff\xd8".to_vec();
        segments.iter().for_each(|segment| out.extend_from_slice(segment));
        out.extend_from_slice(b"\xff\xc0\0\x0b\x08\0\x10\0\x20\x01\x01\x11\0");
        out.extend_from_slice(b"\xff\xda\0\x08\x01\x01\0\0\x3f\0 pixels \xff\xd9");
        out.extend_from_slice(tail);
        out
    }

    #[test]
    fn frame_header_gives_size_and_model() {
        let file = jpeg(&[], b"");
        let container = read(&opened(&file), &Limits::default()).unwrap();
        assert_eq!((container.header.width, container.header.height, container.header.model), (32, 16, Model::Gray));
        assert_eq!(container.findings, []);
    }

    #[test]
    fn bytes_after_eoi_are_found() {
        let file = jpeg(&[], b"PK..");
        let container = read(&opened(&file), &Limits::default()).unwrap();
        assert_eq!(container.findings[0].code, FindingCode::TrailingData);
    }

    #[test]
    fn stream_without_eoi_is_cut() {
        let file = jpeg(&[], b"");
        assert_eq!(read(&opened(&file), &Limits::default()).unwrap().cut, None);
        assert!(read(&opened(&file[..file.len() - 2]), &Limits::default()).unwrap().cut.is_some());
    }

    #[test]
    fn exif_after_xmp_is_found() {
        let xmp = [b"\xff\xe1\0\x22".as_slice(), XMP, b"<x/>"].concat();
        let mut xmp = xmp;
        xmp[3] = u8::try_from(2 + XMP.len() + 4).unwrap();
        let file = jpeg(&[&xmp, b"\xff\xe1\0\x0cExif\0\0MM\0*"], b"");
        let container = read(&opened(&file), &Limits::default()).unwrap();
        assert_eq!(container.exif[0].bytes.as_ref(), b"MM\0*");
        assert_eq!(container.xmp.unwrap().bytes.as_ref(), b"<x/>");
    }

    #[test]
    fn stream_cut_before_the_scan_is_truncated() {
        let file = jpeg(&[], b"");
        assert_eq!(read(&opened(&file[..16]), &Limits::default()).unwrap_err().code, Code::Truncated);
    }
}
