//! ICC profiles as bytes (ICC.1:2022): judged before any colour engine sees them.

use std::borrow::Cow;

use refmill::finding::{Finding, FindingCode};
use refmill::report::Model;

use crate::bytes::{Order, index_at, printable, slice, u8_at, u32_at};
use crate::container::Block;

const HEADER: usize = 128;
/// A profile may have fewer tags than this; the largest public ones have a few dozen.
const MAX_TAGS: usize = 256;

/// A profile that is sound as far as its bytes say, and fits the pixels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile<'a> {
    /// Exactly as many bytes as its header says.
    pub bytes: Cow<'a, [u8]>,
    /// Its description, for people.
    pub description: String,
    /// Whether its curves say linear light (gamma 1.0).
    pub linear: bool,
}

/// Judges the profile of an image of `model`; a profile that cannot be used is a finding and `None`.
#[must_use]
pub fn judge<'a>(block: &Block<'a>, model: Model, findings: &mut Vec<Finding>) -> Option<Profile<'a>> {
    match check(&block.bytes, model) {
        Ok(size) => {
            let bytes = match &block.bytes {
                Cow::Borrowed(bytes) => Cow::Borrowed(slice(bytes, 0, size)?),
                Cow::Owned(bytes) => Cow::Owned(slice(bytes, 0, size)?.to_vec()),
            };
            let description = description(&bytes).unwrap_or_default();
            let linear = is_linear(&bytes);
            Some(Profile { bytes, description, linear })
        }
        Err((code, found)) => {
            findings.push(block.finding(code, found));
            None
        }
    }
}

/// The profile's own size, where everything about it holds.
fn check(bytes: &[u8], model: Model) -> Result<usize, (FindingCode, String)> {
    let corrupt = |found: String| (FindingCode::IccCorrupt, found);
    let length = bytes.len();
    let Some(size) = index_at(bytes, 0, Order::Big).filter(|_| length >= HEADER + 4) else {
        return Err((FindingCode::IccTruncated, format!("{length} bytes, the header alone has {HEADER}")));
    };
    if slice(bytes, 36, 4) != Some(b"acsp") {
        let signature = printable(slice(bytes, 36, 4).unwrap_or_default());
        return Err(corrupt(format!("signature is `{signature}`, not `acsp`")));
    }
    if size > length {
        return Err((FindingCode::IccTruncated, format!("the header says {size} bytes, there are {length}")));
    }
    if size < HEADER + 4 {
        return Err(corrupt(format!("the header says {size} bytes, too few for a tag table")));
    }
    let version = u8_at(bytes, 8).unwrap_or(0);
    if !(2..=5).contains(&version) {
        return Err(corrupt(format!("version is {version}, 2 to 5 exist")));
    }
    let class = slice(bytes, 12, 4).unwrap_or_default();
    if !matches!(class, b"scnr" | b"mntr" | b"prtr" | b"spac") {
        let found = format!("device class is `{}`, which is no source of colours", printable(class));
        return Err((FindingCode::IccUnusable, found));
    }
    check_space(bytes, model)?;
    check_intent(bytes)?;
    check_tags(bytes, size)?;
    Ok(size)
}

fn check_space(bytes: &[u8], model: Model) -> Result<(), (FindingCode, String)> {
    let space = slice(bytes, 16, 4).unwrap_or_default();
    let wanted: &[u8] = match model {
        Model::Gray => b"GRAY",
        Model::Rgb => b"RGB ",
        Model::Cmyk => b"CMYK",
        Model::Lab => b"Lab ",
    };
    if space == wanted {
        return Ok(());
    }
    let found = format!("the profile is for `{}`, the pixels are `{}`", printable(space), printable(wanted));
    Err((FindingCode::IccSpaceMismatch, found))
}

fn check_intent(bytes: &[u8]) -> Result<(), (FindingCode, String)> {
    match u32_at(bytes, 64, Order::Big) {
        Some(0..=3) => Ok(()),
        intent => {
            let found = format!("rendering intent is {}, 0 to 3 exist", intent.unwrap_or(u32::MAX));
            Err((FindingCode::IccCorrupt, found))
        }
    }
}

fn check_tags(bytes: &[u8], size: usize) -> Result<(), (FindingCode, String)> {
    let corrupt = |found: String| Err((FindingCode::IccCorrupt, found));
    let count = index_at(bytes, HEADER, Order::Big).unwrap_or(usize::MAX);
    if count == 0 || count > MAX_TAGS || HEADER + 4 + count * 12 > size {
        return corrupt(format!("{count} tags in a profile of {size} bytes, the limit is {MAX_TAGS}"));
    }
    for (signature, offset, length) in tags(bytes) {
        let end = offset.saturating_add(length);
        if end > size {
            return corrupt(format!("tag `{}` ends at {end}, the profile has {size} bytes", printable(signature)));
        }
    }
    Ok(())
}

/// Signature, offset and length of each tag.
fn tags(bytes: &[u8]) -> impl Iterator<Item = (&[u8], usize, usize)> {
    let count = index_at(bytes, HEADER, Order::Big).unwrap_or(0).min(MAX_TAGS);
    (0..count).map_while(move |index| {
        let at = HEADER + 4 + index * 12;
        Some((slice(bytes, at, 4)?, index_at(bytes, at + 4, Order::Big)?, index_at(bytes, at + 8, Order::Big)?))
    })
}

/// The bytes of a tag.
#[must_use]
pub fn tag<'a>(bytes: &'a [u8], signature: &[u8; 4]) -> Option<&'a [u8]> {
    let (_, offset, length) = tags(bytes).find(|(found, _, _)| *found == signature)?;
    slice(bytes, offset, length)
}

/// `desc`: textDescriptionType of version 2, multiLocalizedUnicodeType of version 4.
fn description(bytes: &[u8]) -> Option<String> {
    let tag = tag(bytes, b"desc")?;
    match slice(tag, 0, 4)? {
        b"desc" => {
            let length = index_at(tag, 8, Order::Big)?.min(128);
            let text = tag.get(12..)?.get(..length.saturating_sub(1))?;
            Some(text.iter().filter(|byte| (0x20..0x7f).contains(*byte)).map(|&byte| char::from(byte)).collect())
        }
        b"mluc" => {
            let (length, offset) = (index_at(tag, 20, Order::Big)?.min(256), index_at(tag, 24, Order::Big)?);
            let units = slice(tag, offset, length)?.as_chunks().0.iter().map(|pair| u16::from_be_bytes(*pair));
            Some(char::decode_utf16(units).filter_map(Result::ok).filter(|c| !c.is_control()).collect())
        }
        _ => None,
    }
}

/// Whether the green or gray curve is the identity: `curv` with no entries, or with one gamma of 1.0; `para` with
/// function 0 and gamma 1.0.
fn is_linear(bytes: &[u8]) -> bool {
    let has_lut = [b"A2B0", b"A2B1", b"A2B2"].iter().any(|name| tag(bytes, name).is_some());
    let Some(curve) = tag(bytes, b"gTRC").or_else(|| tag(bytes, b"kTRC")) else { return false };
    let identity = match slice(curve, 0, 4) {
        Some(b"curv") => match index_at(curve, 8, Order::Big) {
            Some(0) => true,
            Some(1) => slice(curve, 12, 2) == Some(&[1, 0]),
            _ => false,
        },
        Some(b"para") => slice(curve, 8, 2) == Some(&[0, 0]) && u32_at(curve, 12, Order::Big) == Some(0x0001_0000),
        _ => false,
    };
    identity && !has_lut
}

/// Whether the colorants are sRGB's, adapted to D50; `None` for profiles without colorants.
#[must_use]
pub fn has_srgb_colorants(bytes: &[u8]) -> Option<bool> {
    const SRGB: [[f64; 3]; 3] = [[0.4361, 0.2225, 0.0139], [0.3851, 0.7169, 0.0971], [0.1431, 0.0606, 0.7139]];
    let mut close = true;
    for (signature, expected) in [b"rXYZ", b"gXYZ", b"bXYZ"].into_iter().zip(SRGB) {
        let colorant = tag(bytes, signature)?;
        for (index, value) in expected.into_iter().enumerate() {
            let stored = u32_at(colorant, 8 + index * 4, Order::Big)?.cast_signed();
            close &= (f64::from(stored) / 65_536.0 - value).abs() < 0.005;
        }
    }
    Some(close)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(edit: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = lcms2::Profile::new_srgb().icc().unwrap();
        edit(&mut bytes);
        bytes
    }

    fn verdict(bytes: &[u8], model: Model) -> Option<FindingCode> {
        let mut findings = Vec::new();
        let block = Block::made("x", None, bytes);
        let judged = judge(&block, model, &mut findings);
        assert_eq!(judged.is_none(), !findings.is_empty());
        findings.first().map(|finding| finding.code)
    }

    #[test]
    fn sound_profile_passes() {
        assert_eq!(verdict(&profile(|_| {}), Model::Rgb), None);
    }

    #[test]
    fn icc_truncated_is_found() {
        assert_eq!(verdict(&profile(|bytes| bytes.truncate(300)), Model::Rgb), Some(FindingCode::IccTruncated));
    }

    #[test]
    fn icc_corrupt_signature_is_found() {
        assert_eq!(verdict(&profile(|bytes| bytes[36] = b'x'), Model::Rgb), Some(FindingCode::IccCorrupt));
    }

    #[test]
    fn icc_space_mismatch_is_found() {
        assert_eq!(verdict(&profile(|_| {}), Model::Cmyk), Some(FindingCode::IccSpaceMismatch));
    }

    #[test]
    fn icc_unusable_class_is_found() {
        let link = profile(|bytes| bytes[12..16].copy_from_slice(b"link"));
        assert_eq!(verdict(&link, Model::Rgb), Some(FindingCode::IccUnusable));
    }

    #[test]
    fn tag_past_the_end_is_icc_corrupt() {
        let bad = profile(|bytes| bytes[HEADER + 8] = 0xff);
        assert_eq!(verdict(&bad, Model::Rgb), Some(FindingCode::IccCorrupt));
    }
}
