//! TIFF and BigTIFF: the first IFD's figures, its ICC profile and XMP; the file itself is the EXIF block.

use std::borrow::Cow;

use refmill::failure::Failure;
use refmill::finding::{Finding, FindingCode};
use refmill::limits::Limits;
use refmill::report::Model;

use super::{Block, Container, Header, corrupt, over_limit};
use crate::exif::TIFF_ITSELF;
use crate::ifd::{Ifd, Tiff};

const WIDTH: u16 = 256;
const HEIGHT: u16 = 257;
const BITS: u16 = 258;
const PHOTOMETRIC: u16 = 262;
const SAMPLES: u16 = 277;
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
    let mut container = Container::new(header(first, ifds.len())?);
    if looped {
        let found = format!("the IFD after number {} is one of the earlier ones", ifds.len() - 1);
        container.findings.push(Finding::new(FindingCode::ExifLoop, "IFD chain", found));
    }
    container.icc = block(first, ICC, "ICC profile tag", limits, &mut container.findings);
    container.xmp = block(first, XMP, "XMP tag", limits, &mut container.findings);
    if let Some(second) = first.entries.iter().filter(|entry| entry.tag == ICC).nth(1) {
        let place = format!("ICC profile tag at byte {}", second.offset);
        container.findings.push(Finding::new(FindingCode::IccMultiple, place, "the tag stands twice"));
    }
    container.exif.push(Block { place: TIFF_ITSELF.into(), bytes: Cow::Borrowed(bytes) });
    Ok(container)
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
        findings.push(over_limit(place, entry.value.len(), limits));
        return None;
    }
    (!entry.value.is_empty()).then_some(Block { place, bytes: Cow::Borrowed(entry.value) })
}
