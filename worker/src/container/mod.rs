//! Finds EXIF, ICC, XMP and the header's figures in each container format, without decoding a pixel.
//! Pure functions on slices; nothing is inflated or collected past the metadata limit.

pub mod bmp;
pub mod gif;
#[cfg(feature = "heif")]
pub mod heif;
pub mod heif_items;
pub mod jpeg;
pub mod jpeg_icc;
pub mod png;
mod png_text;
pub mod tiff;
pub mod webp;

use std::borrow::Cow;

use refmill::failure::{Code, Failure};
use refmill::finding::{Finding, FindingCode};
use refmill::limits::Limits;
use refmill::report::{Format, Model};

use crate::open::Opened;

/// A metadata block and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block<'a> {
    /// Segment or chunk and its offset, for people.
    pub place: String,
    /// Where the segment, chunk or entry begins in the file.
    pub offset: Option<usize>,
    /// Where the first of `bytes` stands in the file, if they stand there as they are.
    pub origin: Option<usize>,
    /// Its payload.
    pub bytes: Cow<'a, [u8]>,
}

impl<'a> Block<'a> {
    /// A block at `offset`, whose payload stands as it is at `origin`.
    #[must_use]
    pub fn inside(place: impl Into<String>, offset: usize, origin: usize, bytes: &'a [u8]) -> Self {
        Self { place: place.into(), offset: Some(offset), origin: Some(origin), bytes: Cow::Borrowed(bytes) }
    }

    /// A block at `offset`, if anything is known of it, whose payload had to be put together.
    #[must_use]
    pub fn made(place: impl Into<String>, offset: Option<usize>, bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        Self { place: place.into(), offset, origin: None, bytes: bytes.into() }
    }

    /// A finding about the block as a whole.
    #[must_use]
    pub fn finding(&self, code: FindingCode, found: impl Into<String>) -> Finding {
        Finding::new(code, self.place.clone(), found).at(self.offset)
    }

    /// Where something `at` bytes into the payload stands, for people and in the file.
    #[must_use]
    pub fn within(&self, what: &str, at: usize) -> (String, Option<usize>) {
        match self.origin.and_then(|origin| origin.checked_add(at)) {
            Some(offset) => (format!("{}, {what} at byte {offset}", self.place), Some(offset)),
            None => (format!("{}, {what} at byte {at} of the block", self.place), self.offset),
        }
    }
}

/// What the header says about the pixels as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Bits a channel.
    pub bits: u8,
    /// Colour model.
    pub model: Model,
    /// Alpha channel or transparent colour.
    pub alpha: bool,
    /// Frames or pages.
    pub frames: u32,
}

/// Colour chunks of a PNG (PNG 3rd edition 11.3.2), as stored, the first of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PngColour {
    /// Where cICP, sRGB, gAMA and cHRM stand, in that order.
    pub offsets: [Option<usize>; 4],
    /// gAMA, times 100,000.
    pub gama: Option<u32>,
    /// cHRM: white x, y, red x, y, green x, y, blue x, y, times 100,000.
    pub chrm: Option<[u32; 8]>,
    /// sRGB: rendering intent.
    pub srgb: Option<u8>,
    /// cICP: primaries, transfer, matrix, full range.
    pub cicp: Option<[u8; 4]>,
}

/// nclx colour information of AVIF and HEIC (ISO/IEC 23001-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nclx {
    /// Colour primaries.
    pub primaries: u16,
    /// Transfer characteristics.
    pub transfer: u16,
}

/// What a container holds besides pixels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container<'a> {
    /// The header's figures.
    pub header: Header,
    /// EXIF blocks in the order of the file, from the TIFF header on, prefix removed.
    pub exif: Vec<Block<'a>>,
    /// The profile, put together; `None` also where it could not be.
    pub icc: Option<Block<'a>>,
    /// XMP packet.
    pub xmp: Option<Block<'a>>,
    /// PNG colour chunks.
    pub png: PngColour,
    /// AVIF and HEIC colour information.
    pub nclx: Option<Nclx>,
    /// Whether the decoder applies the container's own orientation and EXIF's must not be applied on top.
    pub upright_by_container: bool,
    /// Where the data ends before the image does, in words; a decoder has the last word on it.
    pub cut: Option<String>,
    /// What was found on the way.
    pub findings: Vec<Finding>,
}

impl Container<'_> {
    pub(crate) fn new(header: Header) -> Self {
        Self {
            header,
            exif: Vec::new(),
            icc: None,
            xmp: None,
            png: PngColour::default(),
            nclx: None,
            upright_by_container: false,
            cut: None,
            findings: Vec::new(),
        }
    }
}

/// Reads the container of an opened input, and holds its header to the limits.
///
/// # Errors
/// [`Code::Corrupt`] or [`Code::Truncated`] where the container itself cannot be followed to its pixels,
/// [`Code::OverLimit`] for its figures, [`Code::Unsupported`] for features that are not read.
pub fn read<'a>(opened: &Opened<'a>, limits: &Limits) -> Result<Container<'a>, Failure> {
    let container = match opened.format {
        Format::Jpeg => jpeg::read(opened, limits),
        Format::Png => png::read(opened, limits),
        Format::Webp => webp::read(opened.bytes, limits),
        Format::Tiff => tiff::read(opened.bytes, limits),
        Format::Gif => gif::read(opened.bytes, limits),
        Format::Bmp => bmp::read(opened.bytes, limits),
        #[cfg(feature = "heif")]
        Format::Avif | Format::Heic => heif::read(opened.bytes, limits),
        #[cfg(not(feature = "heif"))]
        Format::Avif | Format::Heic => Err(heif_missing(opened.format)),
    }?;
    limits.check_dimensions(container.header.width, container.header.height)?;
    limits.check("frames in the container", u64::from(container.header.frames), u64::from(limits.frames))?;
    Ok(container)
}

/// The findings that are not looked for, or not everywhere, where pixels were not read.
#[must_use]
pub fn unseen(opened: &Opened<'_>) -> Vec<FindingCode> {
    match opened.format {
        _ if opened.whole => Vec::new(),
        Format::Jpeg => vec![FindingCode::TrailingData, FindingCode::Truncated],
        Format::Png => vec![FindingCode::ChecksumMismatch],
        _ => Vec::new(),
    }
}

#[cfg(not(feature = "heif"))]
fn heif_missing(format: Format) -> Failure {
    let name = if format == Format::Avif { "AVIF" } else { "HEIC" };
    let hint = "install Debian's libdav1d-dev and libde265-dev and build with `--features heif`";
    Failure::new(Code::Unsupported, format!("input is {name}, and this build reads none: {hint}"))
}

fn corrupt(what: impl Into<String>) -> Failure {
    Failure::new(Code::Corrupt, what)
}

fn truncated(what: impl Into<String>) -> Failure {
    Failure::new(Code::Truncated, what)
}

/// A metadata block that is larger than its limit.
fn over_limit(place: impl Into<String>, offset: impl Into<Option<usize>>, size: usize, limits: &Limits) -> Finding {
    let found = format!("{size} bytes, the limit is {}", limits.metadata_bytes);
    Finding::new(FindingCode::OverLimit, place, found).at(offset)
}

/// The EXIF block without the `Exif\0\0` that some containers keep in front of the TIFF header.
fn without_exif_prefix(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"Exif\0\0").unwrap_or(bytes)
}
