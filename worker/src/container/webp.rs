//! WebP chunks (WebP container specification): VP8X flags, ICCP, EXIF, XMP, frames.

use refmill::failure::Failure;
use refmill::finding::{Finding, FindingCode};
use refmill::limits::Limits;
use refmill::report::Model;

use super::{Block, Container, Header, corrupt, over_limit, truncated, without_exif_prefix};
use crate::bytes::{Order, index_at, printable, slice, u8_at, u16_at, u32_at};

const FLAG_ICC: u8 = 0x20;
const FLAG_ALPHA: u8 = 0x10;
const FLAG_EXIF: u8 = 0x08;

/// Reads the container.
///
/// # Errors
/// [`refmill::failure::Code::Truncated`] or [`refmill::failure::Code::Corrupt`] without a picture chunk.
pub fn read<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Container<'a>, Failure> {
    let mut container =
        Container::new(Header { width: 0, height: 0, bits: 8, model: Model::Rgb, alpha: false, frames: 0 });
    let mut flags = None;
    let mut at = 12usize;
    while let Some((kind, data)) = chunk(bytes, at) {
        let place = format!("{} at byte {at}", printable(kind));
        match kind {
            b"VP8X" if at == 12 => {
                flags = u8_at(data, 0);
                container.header.alpha = flags.is_some_and(|flags| flags & FLAG_ALPHA != 0);
                set_size(&mut container.header, size24(data, 4), size24(data, 7));
            }
            b"ICCP" if data.len() as u64 > limits.metadata_bytes => {
                container.findings.push(over_limit(place, at, data.len(), limits));
            }
            b"ICCP" if container.icc.is_some() => {
                container.findings.push(Finding::new(FindingCode::IccMultiple, place, "a second ICCP chunk").at(at));
            }
            b"ICCP" => container.icc = Some(Block::inside(place, at, at + 8, data)),
            b"EXIF" => {
                let body = without_exif_prefix(data);
                container.exif.push(Block::inside(place, at, at + 8 + data.len() - body.len(), body));
            }
            b"XMP " => {
                container.xmp.get_or_insert(Block::inside(place, at, at + 8, data));
            }
            b"ANMF" => container.header.frames = container.header.frames.saturating_add(1),
            b"VP8 " | b"VP8L" => still(kind, data, &mut container.header),
            _ => {}
        }
        at = at.saturating_add(8).saturating_add(data.len()).saturating_add(data.len() % 2);
    }
    ending(bytes, at, &mut container);
    if container.header.frames == 0 {
        let what = format!("no picture chunk (VP8, VP8L or ANMF) in {} bytes", bytes.len());
        return Err(if container.cut.is_some() { truncated(what) } else { corrupt(what) });
    }
    if let Some(flags) = flags {
        let denied = [(FLAG_ICC, container.icc.as_ref()), (FLAG_EXIF, container.exif.first())];
        let denied = denied.into_iter().filter(|(flag, _)| flags & flag == 0).filter_map(|(_, block)| block);
        let findings =
            denied.map(|block| block.finding(FindingCode::ContainerFlag, "VP8X flags say there is no such chunk"));
        container.findings.extend(findings);
    }
    Ok(container)
}

/// What the RIFF size says about the end of the file; `at` is where the last whole chunk ends.
fn ending(bytes: &[u8], at: usize, container: &mut Container<'_>) {
    let claimed = index_at(bytes, 4, Order::Little).unwrap_or(usize::MAX).saturating_add(8);
    if claimed > bytes.len() && at < claimed {
        container.cut = Some(format!("the RIFF header says {claimed} bytes, there are {}", bytes.len()));
    }
    // A size that does not even hold its own header says nothing; one byte more is padding.
    if let Some(trailing) = bytes.len().checked_sub(claimed).filter(|count| *count > 1 && claimed >= 12) {
        let found = format!("{trailing} bytes after the RIFF chunk");
        container.findings.push(Finding::new(FindingCode::TrailingData, format!("byte {claimed}"), found).at(claimed));
    }
}

fn chunk(bytes: &[u8], at: usize) -> Option<(&[u8], &[u8])> {
    let kind = slice(bytes, at, 4)?;
    let length = index_at(bytes, at.checked_add(4)?, Order::Little)?;
    Some((kind, slice(bytes, at.checked_add(8)?, length)?))
}

fn size24(data: &[u8], at: usize) -> Option<u32> {
    let &[a, b, c] = slice(data, at, 3)? else { return None };
    Some(u32::from_le_bytes([a, b, c, 0]) + 1)
}

fn set_size(header: &mut Header, width: Option<u32>, height: Option<u32>) {
    if header.width == 0
        && let (Some(width), Some(height)) = (width, height)
    {
        (header.width, header.height) = (width, height);
    }
}

/// A still picture: size from the bit stream (RFC 6386 9.1; WebP lossless 3.4) where no VP8X gave it.
fn still(kind: &[u8], data: &[u8], header: &mut Header) {
    header.frames = header.frames.max(1);
    if kind == b"VP8L" {
        let bits = u32_at(data, 1, Order::Little);
        header.alpha |= bits.is_some_and(|bits| bits >> 28 & 1 == 1);
        set_size(header, bits.map(|bits| (bits & 0x3fff) + 1), bits.map(|bits| (bits >> 14 & 0x3fff) + 1));
    } else {
        let side = |at| u16_at(data, at, Order::Little).map(|side| u32::from(side & 0x3fff));
        set_size(header, side(6), side(8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webp(chunks: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
        let mut out = b"RIFF\0\0\0\0WEBP".to_vec();
        for (kind, data) in chunks {
            out.extend_from_slice(kind.as_slice());
            out.extend_from_slice(&u32::try_from(data.len()).unwrap().to_le_bytes());
            out.extend_from_slice(data);
            out.resize(out.len() + data.len() % 2, 0);
        }
        out
    }

    const LOSSLESS_2X3: &[u8] = &[0x2f, 1, 0x80, 0, 0];

    #[test]
    fn container_flag_denying_exif_is_found() {
        let file = webp(&[(b"VP8X", &[0, 0, 0, 0, 1, 0, 0, 2, 0, 0]), (b"VP8L", LOSSLESS_2X3), (b"EXIF", b"MM\0*")]);
        let container = read(&file, &Limits::default()).unwrap();
        assert_eq!(container.findings[0].code, FindingCode::ContainerFlag);
        assert_eq!((container.header.width, container.header.height), (2, 3));
    }

    #[test]
    fn lossless_size_is_read_from_the_bit_stream() {
        let container_bytes = webp(&[(b"VP8L", LOSSLESS_2X3)]);
        let container = read(&container_bytes, &Limits::default()).unwrap();
        assert_eq!((container.header.width, container.header.height), (2, 3));
    }

    #[test]
    fn icc_multiple_profiles_are_the_first() {
        let file = webp(&[(b"VP8L", LOSSLESS_2X3), (b"ICCP", b"one"), (b"ICCP", b"two")]);
        let container = read(&file, &Limits::default()).unwrap();
        assert_eq!(container.icc.unwrap().bytes.as_ref(), b"one");
        assert_eq!(container.findings[0].code, FindingCode::IccMultiple);
    }

    #[test]
    fn profile_over_the_limit_is_found() {
        let file = webp(&[(b"VP8L", LOSSLESS_2X3), (b"ICCP", b"four")]);
        let container = read(&file, &Limits { metadata_bytes: 3, ..Limits::default() }).unwrap();
        assert_eq!((container.icc, container.findings[0].code), (None, FindingCode::OverLimit));
    }

    #[test]
    fn riff_size_tells_trailing_data_from_a_cut_file() {
        let mut file = webp(&[(b"VP8L", LOSSLESS_2X3)]);
        file[4] = u8::try_from(file.len() - 8).unwrap();
        file.extend_from_slice(b"more");
        let container = read(&file, &Limits::default()).unwrap();
        assert_eq!((container.cut, container.findings[0].code), (None, FindingCode::TrailingData));
        file[4] += 5;
        assert!(read(&file, &Limits::default()).unwrap().cut.is_some());
    }

    #[test]
    fn late_header_chunk_says_nothing() {
        let late = [0x20, 0, 0, 0, 9, 0, 0, 9, 0, 0];
        let file = webp(&[(b"VP8L", LOSSLESS_2X3), (b"VP8X", &late)]);
        let container = read(&file, &Limits::default()).unwrap();
        assert_eq!((container.header.width, container.header.height), (2, 3));
    }

    #[test]
    fn file_without_a_picture_is_refused() {
        assert!(read(&webp(&[(b"EXIF", b"MM\0*")]), &Limits::default()).is_err());
    }
}
