//! Recognises the format by its signature, never by its name, and holds the encoded bytes to their limit.

use refmill::failure::{Code, Failure};
use refmill::limits::Limits;
use refmill::report::Format;

use crate::bytes::{Order, index_at, printable, slice};

/// Encoded bytes as a job has them.
#[derive(Debug, Clone, Copy)]
pub struct Encoded<'a> {
    /// As many as the input has.
    pub bytes: &'a [u8],
    /// Whether all of them were read; else zeros stand in the place of pixels.
    pub whole: bool,
}

impl<'a> From<&'a [u8]> for Encoded<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, whole: true }
    }
}

/// Encoded bytes whose format is known.
#[derive(Debug, Clone, Copy)]
pub struct Opened<'a> {
    /// The whole input.
    pub bytes: &'a [u8],
    /// Whether its pixels were read as well; else zeros stand in their place.
    pub whole: bool,
    /// What its signature says.
    pub format: Format,
}

/// Opens the input.
///
/// # Errors
/// [`Code::Empty`], [`Code::OverLimit`], [`Code::NotAnImage`], or [`Code::Unsupported`] with the format's name.
pub fn open<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Opened<'a>, Failure> {
    if bytes.is_empty() {
        return Err(Failure::new(Code::Empty, "input has 0 bytes"));
    }
    limits.check("input size in bytes", bytes.len() as u64, limits.input_bytes)?;
    if let Some(format) = sniff(bytes) {
        return Ok(Opened { bytes, whole: true, format });
    }
    if let Some(name) = FOREIGN_IMAGES.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, name)| name) {
        return Err(Failure::new(Code::Unsupported, format!("input is {name}, which this version does not read")));
    }
    let what = OTHER_FILES
        .iter()
        .find(|(magic, _)| starts_with_ignoring_case(bytes, magic))
        .map_or(String::new(), |(_, name)| format!("; it looks like {name}"));
    let start = printable(slice(bytes, 0, bytes.len().min(16)).unwrap_or_default());
    Err(Failure::new(Code::NotAnImage, format!("input begins with `{start}`, no image signature{what}")))
}

const FOREIGN_IMAGES: &[(&[u8], &str)] = &[
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "a JPEG 2000 codestream"),
    (b"8BPS", "a Photoshop document"),
    (b"qoif", "QOI"),
    (b"\0\0\x01\0", "a Windows icon"),
    (b"v/1\x01", "OpenEXR"),
    (b"#?RADIANCE", "Radiance HDR"),
];

const OTHER_FILES: &[(&[u8], &str)] = &[
    (b"<!doctype html", "an HTML page, perhaps an error page saved as an image"),
    (b"<html", "an HTML page, perhaps an error page saved as an image"),
    (b"<svg", "SVG, which has no pixels"),
    (b"<?xml", "XML, perhaps SVG, which has no pixels"),
    (b"{", "JSON"),
    (b"%pdf", "a PDF"),
    (b"pk\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip"),
];

fn starts_with_ignoring_case(bytes: &[u8], magic: &[u8]) -> bool {
    slice(bytes, 0, magic.len()).is_some_and(|start| start.eq_ignore_ascii_case(magic))
}

fn sniff(bytes: &[u8]) -> Option<Format> {
    let at = |offset, magic: &[u8]| slice(bytes, offset, magic.len()) == Some(magic);
    if at(0, b"\xff\xd8\xff") {
        Some(Format::Jpeg)
    } else if at(0, b"\x89PNG\r\n\x1a\n") {
        Some(Format::Png)
    } else if at(0, b"RIFF") && at(8, b"WEBP") {
        Some(Format::Webp)
    } else if [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"].iter().any(|magic| at(0, *magic)) {
        Some(Format::Tiff)
    } else if at(0, b"GIF87a") || at(0, b"GIF89a") {
        Some(Format::Gif)
    } else if at(0, b"BM") {
        Some(Format::Bmp)
    } else if at(4, b"ftyp") {
        heif_brand(bytes)
    } else {
        None
    }
}

/// AVIF or HEIC by the brands of the `ftyp` box (ISO/IEC 14496-12 4.3); other ISO media files are neither.
fn heif_brand(bytes: &[u8]) -> Option<Format> {
    let size = index_at(bytes, 0, Order::Big)?.clamp(16, 256).min(bytes.len());
    let box_ = slice(bytes, 8, size.saturating_sub(8))?;
    let brands: Vec<&[u8]> = box_.chunks_exact(4).enumerate().filter(|(i, _)| *i != 1).map(|(_, b)| b).collect();
    if brands.iter().any(|brand| matches!(*brand, b"avif" | b"avis")) {
        return Some(Format::Avif);
    }
    let heif = [b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"mif2", b"mif3", b"msf1"];
    brands.iter().any(|brand| heif.iter().any(|known| known.as_slice() == *brand)).then_some(Format::Heic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(bytes: &[u8]) -> Code {
        open(bytes, &Limits::default()).unwrap_err().code
    }

    #[test]
    fn html_named_as_an_image_is_called_html() {
        let failure = open(b"<!DOCTYPE html><p>404", &Limits::default()).unwrap_err();
        assert_eq!(failure.code, Code::NotAnImage);
        assert!(failure.message.contains("HTML page"), "{}", failure.message);
    }

    #[test]
    fn empty_input_is_empty() {
        assert_eq!(code(b""), Code::Empty);
    }

    #[test]
    fn known_foreign_format_is_unsupported() {
        assert_eq!(code(b"\xff\x0a rest"), Code::Unsupported);
    }

    #[test]
    fn input_over_the_byte_limit_is_refused() {
        let limits = Limits { input_bytes: 3, ..Limits::default() };
        assert_eq!(open(b"\xff\xd8\xff\xe0", &limits).unwrap_err().code, Code::OverLimit);
    }

    #[test]
    fn mif1_with_an_avif_brand_is_avif() {
        let file = b"\0\0\0\x18ftypmif1\0\0\0\0mif1avif";
        assert_eq!(sniff(file), Some(Format::Avif));
    }

    #[test]
    fn mp4_is_not_an_image() {
        assert_eq!(code(b"\0\0\0\x14ftypisom\0\0\0\0mp41"), Code::NotAnImage);
    }
}
