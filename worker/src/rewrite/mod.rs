//! Lossless repair: the same file with its metadata made true. Coded pixels are copied bit by bit; a file that needs
//! nothing comes out as it is, and a repaired one needs nothing.
//!
//! What a picture means does not change: an untagged one stays untagged, and a profile of our own ([`profiles`]) is
//! embedded only where a broken one stood (sRGB, on gray pixels gray with sRGB's curve) or where EXIF alone told of
//! Adobe RGB. Pixels are not turned: orientation 6 stays 6. Data after the end of the image is kept, such as the
//! further pictures of CIPA DC-007 (MPF), whose offsets are corrected. [`Strip::Gps`] takes the position out of those
//! pictures too and drops what else stands there; the other strips drop all of it.

pub mod exif;
mod jpeg;
mod jpeg_tail;
mod mpf;
mod png;
pub mod profiles;
mod webp;
pub mod xmp;

use std::borrow::Cow;
use std::io::Write;

use refmill::failure::{Code, Failure};
use refmill::finding::{FindingCode, Repair};
use refmill::job::Strip;
use refmill::report::{Format, Model};

use crate::icc;
use crate::repair::{Meaning, Repaired};
use exif::Truth;
use profiles::{Curve, Version};

/// A file as it shall be: pieces of the input, and what was made anew.
#[derive(Debug)]
pub struct Rewritten<'a> {
    pieces: Vec<Cow<'a, [u8]>>,
    /// What was changed because of a finding.
    pub repairs: Vec<Repair>,
}

impl<'a> Rewritten<'a> {
    fn unchanged(bytes: &'a [u8]) -> Self {
        Self { pieces: vec![Cow::Borrowed(bytes)], repairs: Vec::new() }
    }

    /// The pieces, or the input as it is where they come to the same.
    fn new(bytes: &'a [u8], pieces: Vec<Cow<'a, [u8]>>, repairs: Vec<Repair>) -> Self {
        if equals(bytes, &pieces) { Self::unchanged(bytes) } else { Self { pieces, repairs } }
    }

    /// Whether it is the input, byte for byte.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        matches!(self.pieces.as_slice(), [Cow::Borrowed(_)])
    }

    /// Writes the file and gives its length.
    ///
    /// # Errors
    /// [`Code::Internal`] where `out` refuses.
    pub fn write(&self, out: &mut dyn Write) -> Result<u64, Failure> {
        let mut written = 0;
        for piece in &self.pieces {
            let failed = |error| Failure::new(Code::Internal, format!("repaired file could not be written: {error}"));
            out.write_all(piece).map_err(failed)?;
            written += piece.len() as u64;
        }
        Ok(written)
    }
}

/// Whether the pieces come to these bytes.
fn equals(bytes: &[u8], pieces: &[Cow<'_, [u8]>]) -> bool {
    let rest = pieces.iter().try_fold(bytes, |rest, piece| rest.strip_prefix(piece.as_ref()));
    rest.is_some_and(<[u8]>::is_empty)
}

/// Writes the losslessly repaired file and gives its length.
///
/// # Errors
/// Those of [`rewrite`] and [`Rewritten::write`].
pub fn lossless(repaired: &Repaired<'_>, strip: Strip, out: &mut dyn Write) -> Result<u64, Failure> {
    rewrite(repaired, strip)?.write(out)
}

/// Plans the losslessly repaired file.
///
/// # Errors
/// [`Code::Unsupported`] where something is to be repaired in a format that is not rewritten.
pub fn rewrite<'a>(repaired: &Repaired<'a>, strip: Strip) -> Result<Rewritten<'a>, Failure> {
    match repaired.opened.format {
        Format::Jpeg => Ok(jpeg::rewrite(repaired, strip)),
        Format::Png => Ok(png::rewrite(repaired, strip)),
        Format::Webp => Ok(webp::rewrite(repaired, strip)),
        other => as_it_is(repaired, strip, other),
    }
}

fn as_it_is<'a>(repaired: &Repaired<'a>, strip: Strip, format: Format) -> Result<Rewritten<'a>, Failure> {
    let has_metadata = !repaired.container.exif.is_empty() || repaired.container.xmp.is_some();
    if repaired.defects.is_empty() && (strip == Strip::Nothing || !has_metadata) {
        return Ok(Rewritten::unchanged(repaired.opened.bytes));
    }
    let name = format!("{format:?}").to_uppercase();
    Err(Failure::new(Code::Unsupported, format!("lossless repair of {name} is not available; use --convert")))
}

/// What EXIF has to say after the repair, in at most `room` bytes.
fn truth(repaired: &Repaired<'_>, strip: Strip, room: usize) -> Truth {
    Truth {
        orientation: repaired.orientation.exif(),
        color_space: color_space(repaired),
        dimensions: Some((repaired.header.width, repaired.header.height)),
        strip,
        room,
    }
}

/// What ColorSpace must become, where what it says is contradicted by what counts. 65535 is right beside any profile,
/// and the habit of 2 for Adobe RGB is left beside a profile that is not sRGB.
fn color_space(repaired: &Repaired<'_>) -> Option<u16> {
    const SRGB: u16 = 1;
    const UNCALIBRATED: u16 = 65_535;
    let told = repaired.exif.as_ref()?.color_space?;
    match (&repaired.meaning, told) {
        (Meaning::Icc(profile), 1) => (icc::has_srgb_colorants(&profile.bytes) == Some(false)).then_some(UNCALIBRATED),
        (Meaning::Icc(profile), 2) => {
            (icc::has_srgb_colorants(&profile.bytes) == Some(true) && !profile.linear).then_some(SRGB)
        }
        (Meaning::AdobeRgb, 2) => own_profile(repaired, false).map(|_| UNCALIBRATED),
        (Meaning::Srgb, 2) => Some(SRGB),
        _ => None,
    }
}

/// A profile of our own that says what the pixels mean, where one is called for; `broken` says whether one stood
/// there that is not used.
fn own_profile(repaired: &Repaired<'_>, broken: bool) -> Option<Vec<u8>> {
    match (&repaired.meaning, repaired.header.model) {
        (Meaning::AdobeRgb, Model::Rgb) => Some(profiles::adobe_rgb(Version::V2)),
        (Meaning::AdobeRgb, Model::Gray) => Some(profiles::gray(Version::V2, Curve::AdobeRgb)),
        (Meaning::Srgb, Model::Rgb) if broken => Some(profiles::srgb(Version::V2)),
        (Meaning::Srgb, Model::Gray) if broken => Some(profiles::gray(Version::V2, Curve::Srgb)),
        _ => None,
    }
}

/// What is said about a profile that was replaced, removed or added.
fn profile_repair(repaired: &Repaired<'_>, broken: bool, after: &str) -> Repair {
    if !broken {
        return Repair::new(FindingCode::AdobeRgbByInterop, "no profile", after);
    }
    let about = |code: &&FindingCode| code.as_str().starts_with("icc_") || **code == FindingCode::OverLimit;
    let code = repaired.defects.iter().rev().find(about).copied().unwrap_or(FindingCode::IccCorrupt);
    Repair::new(code, "the embedded profile", after)
}

/// That something was left out because it was asked for.
fn stripped(what: impl Into<String>) -> Repair {
    Repair::new(FindingCode::MetadataStripped, what, "removed")
}

/// The XMP packet as it shall be; `None` where it shall be as it is. An empty one is to be dropped.
fn mended_xmp(repaired: &Repaired<'_>, packet: &[u8], strip: Strip, repairs: &mut Vec<Repair>) -> Option<Vec<u8>> {
    if matches!(strip, Strip::Private | Strip::All) {
        repairs.push(stripped(format!("XMP packet of {} bytes", packet.len())));
        return Some(Vec::new());
    }
    let orientation = repaired.orientation.exif();
    let turned = xmp::with_orientation(packet, orientation);
    if turned.is_some() {
        repairs.push(Repair::new(FindingCode::OrientationConflict, "XMP tiff:Orientation", orientation.to_string()));
    }
    let packet = turned.as_deref().unwrap_or(packet);
    if strip == Strip::Gps && xmp::has_gps(packet) {
        repairs.push(stripped("GPS properties of the XMP packet"));
        return Some(xmp::without_gps(packet).unwrap_or_default());
    }
    turned
}
