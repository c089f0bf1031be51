//! TIFF and BigTIFF: the first IFD's figures, its ICC profile and XMP; the file itself is the EXIF block.

use refmill::failure::{Code, Failure};
use refmill::finding::{Finding, FindingCode};
use refmill::limits::Limits;
use refmill::report::Model;

use super::{Block, Container, Header, corrupt, over_limit};
use crate::exif::TIFF_ITSELF;
use crate::ifd::{Ifd, Tiff};

const WIDTH: u16 = 256;
const HEIGHT: u16 = 257;
const BITS: u16 = 258;
const COMPRESSION: u16 = 259;
const PHOTOMETRIC: u16 = 262;
const STRIP_OFFSETS: u16 = 273;
const SAMPLES: u16 = 277;
const STRIP_BYTES: u16 = 279;
const TILE_OFFSETS: u16 = 324;
const TILE_BYTES: u16 = 325;
const EXTRA_SAMPLES: u16 = 338;
const XMP: u16 = 700;
const ICC: u16 = 34_675;

/// Reads the container.
///
/// # Errors
/// [`refmill::failure::Code::Corrupt`] where the first IFD gives no size.
pub fn read<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Container<'a>, Failure> {
    let tiff = Tiff::new(bytes).ok_or_else(|| corrupt("TIFF header is not whole"))?;
    let (ifds, looped) = tiff.chain();
    let first =
        ifds.first().ok_or_else(|| corrupt(format!("no IFD at byte {}, input has {}", tiff.first, bytes.len())))?;
    readable(first)?;
    let mut container = Container::new(header(first, ifds.len())?);
    container.cut = cut(first, bytes.len());
    if looped {
        let found = format!("the IFD after number {} is one of the earlier ones", ifds.len() - 1);
        let at = ifds.last().map_or(0, |ifd| ifd.next_at);
        let place = format!("IFD chain, offset of the next IFD at byte {at}");
        container.findings.push(Finding::new(FindingCode::ExifLoop, place, found).at(at));
    }
    container.icc = block(first, ICC, "ICC profile tag", limits, &mut container.findings);
    container.xmp = block(first, XMP, "XMP tag", limits, &mut container.findings);
    if let Some(second) = first.entries.iter().filter(|entry| entry.tag == ICC).nth(1) {
        let place = format!("ICC profile tag at byte {}", second.offset);
        container
            .findings
            .push(Finding::new(FindingCode::IccMultiple, place, "the tag stands twice").at(second.offset));
    }
    let at = usize::try_from(tiff.first).unwrap_or(0);
    container.exif.push(Block::inside(TIFF_ITSELF, at, 0, bytes));
    Ok(container)
}

/// Refuses what no decoder here reads.
fn readable(ifd: &Ifd<'_>) -> Result<(), Failure> {
    let compression = ifd.find(COMPRESSION).and_then(|entry| entry.number(0)).unwrap_or(1);
    if matches!(compression, 1 | 4 | 5 | 7 | 8 | 32_773 | 32_946) {
        return Ok(());
    }
    let message = format!("TIFF with compression {compression}; 1, 4, 5, 7, 8, 32773 and 32946 are read");
    Err(Failure::new(Code::Unsupported, message))
}

/// Which strip or tile ends behind the end of the file; a decoder has the last word on whether it needs that part.
fn cut(ifd: &Ifd<'_>, length: usize) -> Option<String> {
    let (offsets, counts) = ifd
        .find(STRIP_OFFSETS)
        .zip(ifd.find(STRIP_BYTES))
        .or_else(|| ifd.find(TILE_OFFSETS).zip(ifd.find(TILE_BYTES)))?;
    // Uncompressed pixels of a single strip need no more than there are, whatever its count says.
    let needed = pixel_bytes(ifd).filter(|_| offsets.count == 1).unwrap_or(u64::MAX);
    let ends = (0..).map_while(|index| offsets.number(index)?.checked_add(counts.number(index)?.min(needed)));
    let (number, end) = (1..).zip(ends).max_by_key(|(_, end)| *end)?;
    (end > length as u64).then(|| format!("strip or tile {number} ends at byte {end}, there are {length}"))
}

/// Bytes of all pixels, where they are stored uncompressed.
fn pixel_bytes(ifd: &Ifd<'_>) -> Option<u64> {
    let number = |tag| ifd.find(tag).and_then(|entry| entry.number(0));
    let row = number(WIDTH)?.checked_mul(number(SAMPLES).unwrap_or(1))?.checked_mul(number(BITS).unwrap_or(1))?;
    (number(COMPRESSION).unwrap_or(1) == 1).then_some(row.div_ceil(8).checked_mul(number(HEIGHT)?)?)
}

fn header(ifd: &Ifd<'_>, frames: usize) -> Result<Header, Failure> {
    let number = |tag| ifd.find(tag).and_then(|entry| entry.number(0));
    let side = |tag, name: &str| {
        let value = number(tag).ok_or_else(|| corrupt(format!("first IFD has no {name} (tag {tag})")))?;
        u32::try_from(value).map_err(|_| corrupt(format!("first IFD says {name} is {value}")))
    };
    let samples = number(SAMPLES).unwrap_or(1);
    let (model, channels) = match number(PHOTOMETRIC) {
        Some(0 | 1) => (Model::Gray, 1),
        Some(5) => (Model::Cmyk, 4),
        Some(8..=10) => (Model::Lab, 3),
        Some(3) => (Model::Rgb, 1),
        _ => (Model::Rgb, 3),
    };
    let extra = ifd.find(EXTRA_SAMPLES).and_then(|entry| entry.number(0));
    Ok(Header {
        width: side(WIDTH, "ImageWidth")?,
        height: side(HEIGHT, "ImageLength")?,
        bits: u8::try_from(number(BITS).unwrap_or(1)).unwrap_or(u8::MAX),
        model,
        alpha: samples > channels && matches!(extra, Some(1 | 2)),
        frames: u32::try_from(frames).unwrap_or(u32::MAX),
    })
}

fn block<'a>(ifd: &Ifd<'a>, tag: u16, name: &str, limits: &Limits, findings: &mut Vec<Finding>) -> Option<Block<'a>> {
    let entry = ifd.find(tag)?;
    let place = format!("{name} at byte {}", entry.offset);
    if entry.value.len() as u64 > limits.metadata_bytes {
        findings.push(over_limit(place, entry.offset, entry.value.len(), limits));
        return None;
    }
    if entry.value.is_empty() && tag == ICC {
        let found = format!("{} bytes of the profile do not lie inside the file", entry.count);
        findings.push(Finding::new(FindingCode::IccTruncated, place.clone(), found).at(entry.offset));
    }
    (!entry.value.is_empty()).then_some(Block { origin: None, ..Block::inside(place, entry.offset, 0, entry.value) })
}
