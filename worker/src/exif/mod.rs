//! EXIF (CIPA DC-008): what it says about orientation, colour and size, and what is wrong with it.
//!
//! kamadak-exif reads what is sound. What it refuses is read tag by tag with [`crate::ifd`], under bounds.

mod xmp;

use refmill::finding::{Finding, FindingCode};

pub use xmp::{orientation as xmp_orientation, place as xmp_orientation_at};

use crate::bytes::printable;
use crate::container::Block;
use crate::ifd::{Entry, Ifd, Tiff};

/// Place of the block that is a whole TIFF file; its loops are the container's findings.
pub const TIFF_ITSELF: &str = "IFD0";

const ORIENTATION: u16 = 0x0112;
const EXIF_IFD: u16 = 0x8769;
const COLOR_SPACE: u16 = 0xa001;
const PIXEL_X: u16 = 0xa002;
const PIXEL_Y: u16 = 0xa003;
const INTEROP_IFD: u16 = 0xa005;
const INTEROP_INDEX: u16 = 0x0001;

/// What the first readable EXIF block says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exif {
    /// Orientation of IFD0 as a number, whatever its type.
    pub orientation: Option<u64>,
    /// Where the orientation stands, for people.
    pub orientation_place: String,
    /// Where its entry stands in the file.
    pub orientation_at: Option<usize>,
    /// Whether it stands there as EXIF wants it: SHORT, one value, once.
    pub orientation_regular: bool,
    /// Orientation of IFD1 (the thumbnail's).
    pub thumbnail_orientation: Option<u64>,
    /// Where that stands.
    pub thumbnail: Tagged,
    /// ColorSpace: 1 sRGB, 2 Adobe RGB (not in the standard), 65535 uncalibrated.
    pub color_space: Option<u64>,
    /// InteroperabilityIndex, such as `R98` or `R03`.
    pub interop_index: Option<String>,
    /// Where the colour space is told: ColorSpace, else InteroperabilityIndex.
    pub colour_tag: Tagged,
    /// PixelXDimension and PixelYDimension.
    pub dimensions: Option<(u64, u64)>,
    /// Where the first of them stands.
    pub dimensions_tag: Tagged,
}

/// Where a tag stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tagged {
    /// For people.
    pub place: String,
    /// In the file.
    pub offset: Option<usize>,
}

impl Tagged {
    fn new(block: &Block<'_>, ifd: &str, entry: &Entry<'_>) -> Self {
        let tag = format!("tag 0x{:04X}", entry.tag);
        let what = if block.place == ifd { tag } else { format!("{ifd}, {tag}") };
        let (place, offset) = block.within(&what, entry.offset);
        Self { place, offset }
    }
}

/// Reads the blocks of one file: the first that is readable counts.
#[must_use]
pub fn inspect(blocks: &[Block<'_>], findings: &mut Vec<Finding>) -> Option<Exif> {
    if blocks.is_empty() {
        findings.push(Finding::new(FindingCode::ExifAbsent, "", "no EXIF block"));
        return None;
    }
    if let [_, second, ..] = blocks {
        let places: Vec<&str> = blocks.iter().map(|block| block.place.as_str()).collect();
        let finding = Finding::new(FindingCode::ExifDuplicate, places.join(", "), format!("{} blocks", blocks.len()));
        findings.push(finding.at(second.offset));
    }
    blocks.iter().find_map(|block| read_block(block, findings))
}

fn read_block(block: &Block<'_>, findings: &mut Vec<Finding>) -> Option<Exif> {
    let place = &block.place;
    let Some(tiff) = Tiff::new(&block.bytes) else {
        let found =
            format!("{} bytes that begin with `{}`, no TIFF header", block.bytes.len(), printable(&block.bytes));
        findings.push(block.finding(FindingCode::ExifCorrupt, found));
        return None;
    };
    let is_container = place == TIFF_ITSELF;
    // Only a TIFF file may be a BigTIFF, and kamadak-exif reads none of those.
    let refused = (!(is_container && tiff.is_big())).then(|| refusal(&block.bytes)).flatten();
    let (ifds, looped) = tiff.chain();
    if looped && !is_container {
        let found = format!("IFD{} is one of the earlier ones", ifds.len());
        let at = ifds.last().map_or(0, |ifd| ifd.next_at);
        let (place, offset) = block.within("offset of the next IFD", at);
        findings.push(Finding::new(FindingCode::ExifLoop, place, found).at(offset));
    } else if let Some(problem) = refused {
        findings.push(block.finding(FindingCode::ExifCorrupt, problem));
    }
    let first = ifds.first()?;
    let mut exif = Exif::default();
    orientation(first, block, &mut exif, findings);
    // The second IFD of a TIFF file is another page.
    let thumbnail = ifds.get(1).filter(|_| !is_container).and_then(|ifd| ifd.find(ORIENTATION));
    exif.thumbnail_orientation = thumbnail.and_then(|entry| entry.number(0));
    exif.thumbnail = thumbnail.map(|entry| Tagged::new(block, "IFD1", entry)).unwrap_or_default();
    details(&tiff, first, block, &mut exif);
    Some(exif)
}

/// Why kamadak-exif does not take the block, in a word; `None` if it does.
fn refusal(bytes: &[u8]) -> Option<String> {
    exif::Reader::new().read_raw(bytes.to_vec()).err().map(|error| match error {
        exif::Error::InvalidFormat(reason) => reason.to_lowercase(),
        other => other.to_string().to_lowercase(),
    })
}

fn orientation(ifd: &Ifd<'_>, block: &Block<'_>, exif: &mut Exif, findings: &mut Vec<Finding>) {
    let mut entries = ifd.entries.iter().filter(|entry| entry.tag == ORIENTATION);
    let Some(entry) = entries.next() else { return };
    let twice = entries.next();
    exif.orientation = entry.number(0);
    exif.orientation_regular = entry.kind == 3 && entry.count == 1;
    let Tagged { place, offset } = Tagged::new(block, "IFD0", entry);
    (exif.orientation_place, exif.orientation_at) = (place, offset);
    let place = || exif.orientation_place.clone();
    if let Some(second) = twice {
        let found = format!("tag 0x0112 stands twice, {} and {}", describe(entry), describe(second));
        findings.push(Finding::new(FindingCode::ExifDuplicate, place(), found).at(offset));
    }
    if !exif.orientation_regular {
        let found = format!("{}, not one SHORT", describe(entry));
        findings.push(Finding::new(FindingCode::OrientationInvalid, place(), found).at(offset));
    }
}

/// The value and how it stands there.
fn describe(entry: &Entry<'_>) -> String {
    const NAMES: [&str; 14] = [
        "type 0",
        "BYTE",
        "ASCII",
        "SHORT",
        "LONG",
        "RATIONAL",
        "SBYTE",
        "UNDEFINED",
        "SSHORT",
        "SLONG",
        "SRATIONAL",
        "FLOAT",
        "DOUBLE",
        "IFD",
    ];
    let kind = NAMES.get(usize::from(entry.kind)).map_or(format!("type {}", entry.kind), |name| (*name).to_owned());
    let value = entry.number(0).map_or("unreadable".to_owned(), |value| value.to_string());
    format!("{value} as {kind} with {} values", entry.count)
}

fn details(tiff: &Tiff<'_>, first: &Ifd<'_>, block: &Block<'_>, exif: &mut Exif) {
    let sub = |ifd: &Ifd<'_>, tag| tiff.ifd(ifd.find(tag)?.number(0)?);
    let Some(inner) = sub(first, EXIF_IFD) else { return };
    let number = |tag| inner.find(tag).and_then(|entry| entry.number(0));
    exif.color_space = number(COLOR_SPACE);
    exif.dimensions = number(PIXEL_X).zip(number(PIXEL_Y));
    let tagged = |ifd: &Ifd<'_>, name, tag| ifd.find(tag).map(|entry| Tagged::new(block, name, entry));
    exif.dimensions_tag = tagged(&inner, "Exif IFD", PIXEL_X).unwrap_or_default();
    let interop = sub(&inner, INTEROP_IFD).or_else(|| sub(first, INTEROP_IFD));
    let of_interop = interop.as_ref().and_then(|ifd| tagged(ifd, "Interoperability IFD", INTEROP_INDEX));
    exif.colour_tag = tagged(&inner, "Exif IFD", COLOR_SPACE).or(of_interop).unwrap_or_default();
    exif.interop_index = interop.and_then(|ifd| {
        let value = ifd.find(INTEROP_INDEX)?.value;
        let text = printable(value.split(|&byte| byte == 0).next()?);
        (!text.is_empty()).then_some(text)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> (Option<Exif>, Vec<FindingCode>) {
        let mut findings = Vec::new();
        let block = Block::made("APP1", None, bytes);
        let exif = inspect(&[block], &mut findings);
        (exif, findings.iter().map(|finding| finding.code).collect())
    }

    fn ifd0(entries: &[[u8; 12]], next: u8) -> Vec<u8> {
        let count = u8::try_from(entries.len()).unwrap();
        [b"MM\0*\0\0\0\x08\0".to_vec(), vec![count], entries.concat(), vec![0, 0, 0, next]].concat()
    }

    const SIX: [u8; 12] = [1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0];
    const ONE: [u8; 12] = [1, 0x12, 0, 3, 0, 0, 0, 1, 0, 1, 0, 0];
    const SIX_AS_ASCII: [u8; 12] = [1, 0x12, 0, 2, 0, 0, 0, 2, b'6', 0, 0, 0];

    #[test]
    fn sound_block_gives_its_orientation_without_findings() {
        let (exif, codes) = read(&ifd0(&[SIX], 0));
        assert_eq!((exif.unwrap().orientation, codes), (Some(6), vec![]));
    }

    #[test]
    fn exif_loop_is_found_and_the_orientation_kept() {
        let (exif, codes) = read(&ifd0(&[SIX], 8));
        assert_eq!((exif.unwrap().orientation, codes), (Some(6), vec![FindingCode::ExifLoop]));
    }

    #[test]
    fn exif_duplicate_tag_counts_once() {
        let (exif, codes) = read(&ifd0(&[SIX, ONE], 0));
        assert_eq!((exif.unwrap().orientation, codes), (Some(6), vec![FindingCode::ExifDuplicate]));
    }

    #[test]
    fn orientation_invalid_type_is_read_by_its_value() {
        let (exif, codes) = read(&ifd0(&[SIX_AS_ASCII], 0));
        assert_eq!((exif.unwrap().orientation, codes), (Some(6), vec![FindingCode::OrientationInvalid]));
    }

    #[test]
    fn exif_corrupt_bigtiff_inside_a_segment_is_found() {
        let block = b"MM\0+\0\x08\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0";
        assert_eq!(read(block).1, [FindingCode::ExifCorrupt]);
    }

    #[test]
    fn exif_corrupt_block_gives_nothing() {
        assert_eq!(read(b"garbage"), (None, vec![FindingCode::ExifCorrupt]));
    }

    #[test]
    fn block_cut_inside_ifd0_keeps_what_was_readable() {
        let mut block = ifd0(&[SIX, ONE], 0);
        block.truncate(26);
        let (exif, codes) = read(&block);
        assert_eq!((exif.unwrap().orientation, codes), (Some(6), vec![FindingCode::ExifCorrupt]));
    }
}
