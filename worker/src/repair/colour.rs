//! What the stored numbers mean: the first rule that applies, strongest first.

use refmill::finding::{Finding, FindingCode, Repair};
use refmill::report::{Format, Model};

use crate::container::{Container, Nclx, PngColour};
use crate::exif::Exif;
use crate::icc::Profile;

/// Chromaticities of white, red, green and blue, as x and y.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chromaticities {
    /// White point.
    pub white: [f64; 2],
    /// Red primary.
    pub red: [f64; 2],
    /// Green primary.
    pub green: [f64; 2],
    /// Blue primary.
    pub blue: [f64; 2],
}

impl Chromaticities {
    /// sRGB and BT.709 (ITU-R BT.709-6 1.3).
    pub const BT709: Self =
        Self { white: [0.3127, 0.3290], red: [0.64, 0.33], green: [0.30, 0.60], blue: [0.15, 0.06] };
    /// Adobe RGB (1998) 4.3.1.
    pub const ADOBE_RGB: Self =
        Self { white: [0.3127, 0.3290], red: [0.64, 0.33], green: [0.21, 0.71], blue: [0.15, 0.06] };

    fn from_png(values: [u32; 8]) -> Self {
        let [wx, wy, rx, ry, gx, gy, bx, by] = values.map(|value| f64::from(value) / 100_000.0);
        Self { white: [wx, wy], red: [rx, ry], green: [gx, gy], blue: [bx, by] }
    }

    /// Whether the points span a triangle that a transform can be built from.
    fn is_usable(&self) -> bool {
        let [[rx, ry], [gx, gy], [bx, by]] = [self.red, self.green, self.blue];
        let area = (gx - rx) * (by - ry) - (bx - rx) * (gy - ry);
        area.abs() > 1e-4 && [self.white, self.red, self.green, self.blue].iter().all(|point| point[1] > 1e-4)
    }

    fn is_close_to(&self, other: &Self) -> bool {
        let flat = |c: &Self| [c.white, c.red, c.green, c.blue].concat();
        flat(self).iter().zip(flat(other)).all(|(a, b)| (a - b).abs() < 0.002)
    }
}

/// What the stored numbers mean.
#[derive(Debug, Clone, PartialEq)]
pub enum Meaning<'a> {
    /// sRGB (IEC 61966-2-1); gray pixels are its neutral axis.
    Srgb,
    /// An embedded ICC profile.
    Icc(Profile<'a>),
    /// Adobe RGB (1998), told by EXIF alone.
    AdobeRgb,
    /// A pure power curve over chromaticities: PNG gAMA with or without cHRM.
    Gamma {
        /// Exponent from stored numbers to light.
        exponent: f64,
        /// Primaries and white.
        chromaticities: Chromaticities,
    },
    /// Coding-independent code points (ITU-T H.273): colour primaries and transfer characteristics.
    Cicp {
        /// Colour primaries.
        primaries: u16,
        /// Transfer characteristics.
        transfer: u16,
    },
    /// CMYK without a profile.
    CmykNaive,
    /// CIE L*a*b*, D50.
    Lab,
}

impl Meaning<'_> {
    /// The word in the report.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Srgb => "srgb",
            Self::Icc(_) => "icc",
            Self::AdobeRgb => "adobe_rgb",
            Self::Gamma { chromaticities, .. } if *chromaticities == Chromaticities::BT709 => "gama",
            Self::Gamma { .. } => "gama_chrm",
            Self::Cicp { .. } => "cicp",
            Self::CmykNaive => "cmyk_naive",
            Self::Lab => "lab",
        }
    }

    /// The figures behind the word.
    #[must_use]
    pub fn description(&self) -> String {
        match self {
            Self::Icc(profile) => profile.description.clone(),
            Self::Gamma { exponent, chromaticities } => {
                let Chromaticities { white, red, green, blue } = chromaticities;
                format!("exponent {exponent:.4}, white {white:?}, red {red:?}, green {green:?}, blue {blue:?}")
            }
            Self::Cicp { primaries, transfer } => format!("primaries {primaries}, transfer {transfer}"),
            Self::Srgb => "sRGB IEC 61966-2-1".into(),
            Self::AdobeRgb => "Adobe RGB (1998)".into(),
            Self::CmykNaive => "(1-C)(1-K)".into(),
            Self::Lab => "CIE L*a*b*, D50".into(),
        }
    }
}

/// Decides, and says so.
pub fn decide<'a>(
    format: Format,
    container: &Container<'_>,
    exif: Option<&Exif>,
    profile: Option<Profile<'a>>,
    findings: &mut Vec<Finding>,
    repairs: &mut Vec<Repair>,
) -> Meaning<'a> {
    let meaning = match format {
        Format::Png => png(container, profile, findings),
        Format::Avif | Format::Heic => {
            profile.map(Meaning::Icc).or_else(|| container.nclx.and_then(nclx)).unwrap_or(Meaning::Srgb)
        }
        _ => profile.map(Meaning::Icc).or_else(|| adobe_by_exif(exif, findings)).unwrap_or(Meaning::Srgb),
    };
    let meaning = match (meaning, container.header.model) {
        (Meaning::Srgb, Model::Cmyk) => {
            findings.push(Finding::new(FindingCode::CmykWithoutProfile, "", "four channels, no usable profile"));
            Meaning::CmykNaive
        }
        (Meaning::Srgb | Meaning::AdobeRgb, Model::Lab) => Meaning::Lab,
        (meaning, _) => meaning,
    };
    follow_up(&meaning, container, exif, findings);
    if !matches!(meaning, Meaning::Icc(_))
        && let Some(code) = findings.iter().map(|finding| finding.code).rfind(|code| unusable(*code))
    {
        repairs.push(Repair::new(code, "the embedded profile", meaning.description()));
    }
    meaning
}

fn unusable(code: FindingCode) -> bool {
    use FindingCode as C;
    matches!(
        code,
        C::IccCorrupt
            | C::IccTruncated
            | C::IccUnusable
            | C::IccSpaceMismatch
            | C::IccChunkMissing
            | C::IccChunkDuplicate
            | C::IccChunkOutOfOrder
    )
}

/// Findings that rest on the decision.
fn follow_up(meaning: &Meaning<'_>, container: &Container<'_>, exif: Option<&Exif>, findings: &mut Vec<Finding>) {
    if let Meaning::Icc(profile) = meaning {
        if profile.linear && container.header.bits <= 8 {
            let found = format!("the curve of `{}` is the identity", profile.description);
            findings.push(about_profile(container, FindingCode::IccLinearSuspected, found));
        }
        let is_srgb = crate::icc::has_srgb_colorants(&profile.bytes);
        if exif.and_then(|exif| exif.color_space) == Some(1) && is_srgb == Some(false) {
            let found = format!("ColorSpace is 1 (sRGB), the profile is `{}`", profile.description);
            let tag = exif.map(|exif| exif.colour_tag.clone()).unwrap_or_default();
            findings.push(Finding::new(FindingCode::ColorspaceConflict, tag.place, found).at(tag.offset));
        }
    } else if matches!(meaning, Meaning::Gamma { exponent, .. } if (exponent - 1.0).abs() < 0.01)
        && container.header.bits <= 8
    {
        let [_, _, gama, _] = container.png.offsets;
        findings.push(chunk(FindingCode::IccLinearSuspected, "gAMA", gama, "gamma is 1.0"));
    } else if matches!(meaning, Meaning::Srgb)
        && container.icc.is_none()
        && container.png.srgb.is_none()
        && container.nclx.is_none()
        && exif.and_then(|exif| exif.color_space) != Some(1)
    {
        findings.push(Finding::new(FindingCode::IccAbsentAssumedSrgb, "", "no colour information"));
    }
    let stored = (u64::from(container.header.width), u64::from(container.header.height));
    if let Some((x, y)) = exif.and_then(|exif| exif.dimensions)
        && (x, y) != stored
        && (y, x) != stored
    {
        let found = format!("EXIF says {x} x {y}, the pixels are {} x {}", stored.0, stored.1);
        let tag = exif.map(|exif| exif.dimensions_tag.clone()).unwrap_or_default();
        findings.push(Finding::new(FindingCode::DimensionTagMismatch, tag.place, found).at(tag.offset));
    }
}

fn about_profile(container: &Container<'_>, code: FindingCode, found: String) -> Finding {
    match &container.icc {
        Some(block) => block.finding(code, found),
        None => Finding::new(code, "ICC", found),
    }
}

/// A finding about a PNG chunk.
fn chunk(code: FindingCode, name: &str, at: Option<usize>, found: impl Into<String>) -> Finding {
    let place = at.map_or(name.to_owned(), |at| format!("{name} at byte {at}"));
    Finding::new(code, place, found).at(at)
}

fn png<'a>(container: &Container<'_>, profile: Option<Profile<'a>>, findings: &mut Vec<Finding>) -> Meaning<'a> {
    let chunks = container.png;
    let cicp = chunks.cicp.and_then(|values| png_cicp(values, chunks.offsets, findings));
    let gamma = png_gamma(chunks, findings);
    let [at_cicp, at_srgb, at_gama, _] = chunks.offsets;
    let at_iccp = container.icc.as_ref().and_then(|block| block.offset);
    let candidates = [
        ("cICP", at_cicp, cicp),
        ("iCCP", at_iccp, profile.map(Meaning::Icc)),
        ("sRGB", at_srgb, chunks.srgb.map(|_| Meaning::Srgb)),
        ("gAMA", at_gama, gamma),
    ];
    let present: Vec<(&str, Option<usize>)> =
        candidates.iter().filter(|(.., meaning)| meaning.is_some()).map(|(name, at, _)| (*name, *at)).collect();
    if let [(first, at), _, ..] = present.as_slice() {
        let names: Vec<&str> = present.iter().map(|(name, _)| *name).collect();
        let found = format!("{} describe the colour, {first} counts", names.join(", "));
        findings.push(chunk(FindingCode::PngColourPrecedence, first, *at, found));
    }
    candidates.into_iter().find_map(|(.., meaning)| meaning).unwrap_or(Meaning::Srgb)
}

/// Which chunk of a PNG the meaning comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PngSource {
    /// cICP.
    Cicp,
    /// iCCP.
    Iccp,
    /// sRGB.
    Srgb,
    /// gAMA, and cHRM where it is usable.
    Gama {
        /// Whether cHRM counts.
        chrm: bool,
    },
}

/// The chunk that counts; `profile` says whether iCCP holds one that can be used. `None` for an untagged picture.
#[must_use]
pub fn png_source(chunks: PngColour, profile: bool) -> Option<PngSource> {
    let mut ignored = Vec::new();
    if chunks.cicp.and_then(|values| png_cicp(values, chunks.offsets, &mut ignored)).is_some() {
        return Some(PngSource::Cicp);
    }
    if profile {
        return Some(PngSource::Iccp);
    }
    if chunks.srgb.is_some() {
        return Some(PngSource::Srgb);
    }
    ignored.clear();
    png_gamma(chunks, &mut ignored).map(|_| PngSource::Gama { chrm: chunks.chrm.is_some() && ignored.is_empty() })
}

/// Whether gAMA and cHRM of a PNG say what its sRGB chunk says, as PNG 3rd edition 11.3.2.5 wants them beside it.
#[must_use]
pub fn gama_agrees_with_srgb(chunks: PngColour) -> bool {
    // cHRM alone is held to the same chromaticities.
    let gama = chunks.gama.or(Some(45_455));
    png_gamma(PngColour { gama, ..chunks }, &mut Vec::new()) == Some(Meaning::Srgb)
}

fn png_cicp<'a>(values: [u8; 4], [at, ..]: [Option<usize>; 4], findings: &mut Vec<Finding>) -> Option<Meaning<'a>> {
    let [primaries, transfer, matrix, full] = values;
    let meaning = code_points(primaries.into(), transfer.into());
    if matrix == 0 && full == 1 && meaning.is_some() {
        return meaning;
    }
    let found = format!("primaries {primaries}, transfer {transfer}, matrix {matrix}, full range {full}");
    findings.push(chunk(FindingCode::PngColourInvalid, "cICP", at, found));
    None
}

fn png_gamma<'a>(chunks: PngColour, findings: &mut Vec<Finding>) -> Option<Meaning<'a>> {
    let gama = chunks.gama?;
    let [_, _, at_gama, at_chrm] = chunks.offsets;
    if gama == 0 {
        findings.push(chunk(FindingCode::PngColourInvalid, "gAMA", at_gama, "0"));
        return None;
    }
    let exponent = 100_000.0 / f64::from(gama);
    let chromaticities = match chunks.chrm.map(Chromaticities::from_png) {
        None => Chromaticities::BT709,
        Some(given) if given.is_close_to(&Chromaticities::BT709) => Chromaticities::BT709,
        Some(given) if given.is_usable() => given,
        Some(given) => {
            findings.push(chunk(FindingCode::PngColourInvalid, "cHRM", at_chrm, format!("{given:?}")));
            Chromaticities::BT709
        }
    };
    let is_srgb = chromaticities == Chromaticities::BT709 && gama.abs_diff(45_455) <= 10;
    Some(if is_srgb { Meaning::Srgb } else { Meaning::Gamma { exponent, chromaticities } })
}

fn nclx<'a>(nclx: Nclx) -> Option<Meaning<'a>> {
    code_points(nclx.primaries, nclx.transfer)
}

/// Primaries and transfer of ITU-T H.273 that can be converted; those of sRGB and BT.709 video are sRGB.
fn code_points<'a>(primaries: u16, transfer: u16) -> Option<Meaning<'a>> {
    match (primaries, transfer) {
        (1 | 2, 1 | 2 | 6 | 13) => Some(Meaning::Srgb),
        (1 | 4..=7 | 9 | 11 | 12 | 22, 1 | 4..=8 | 13..=16 | 18) => Some(Meaning::Cicp { primaries, transfer }),
        (2, 4..=8 | 14..=16 | 18) => Some(Meaning::Cicp { primaries: 1, transfer }),
        _ => None,
    }
}

/// DCF option file: ColorSpace 2, or 65535 with InteroperabilityIndex R03.
fn adobe_by_exif<'a>(exif: Option<&Exif>, findings: &mut Vec<Finding>) -> Option<Meaning<'a>> {
    let exif = exif?;
    let r03 = exif.interop_index.as_deref() == Some("R03");
    let told = exif.color_space == Some(2) || (r03 && exif.color_space != Some(1));
    told.then(|| {
        let index = exif.interop_index.as_deref().unwrap_or("absent");
        let space = exif.color_space.map_or("absent".to_owned(), |space| space.to_string());
        let found = format!("ColorSpace {space}, InteroperabilityIndex {index}");
        let tag = exif.colour_tag.clone();
        findings.push(Finding::new(FindingCode::AdobeRgbByInterop, tag.place, found).at(tag.offset));
        Meaning::AdobeRgb
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::Header;

    fn png_meaning(chunks: PngColour) -> (Meaning<'static>, Vec<FindingCode>) {
        let mut findings = Vec::new();
        let header = Header { width: 1, height: 1, bits: 8, model: Model::Rgb, alpha: false, frames: 1 };
        let meaning = png(&Container { png: chunks, ..Container::new(header) }, None, &mut findings);
        (meaning, findings.iter().map(|finding| finding.code).collect())
    }

    #[test]
    fn png_colour_precedence_prefers_cicp() {
        let chunks = PngColour { cicp: Some([12, 13, 0, 1]), srgb: Some(0), ..PngColour::default() };
        let (meaning, codes) = png_meaning(chunks);
        assert_eq!(meaning, Meaning::Cicp { primaries: 12, transfer: 13 });
        assert_eq!(codes, [FindingCode::PngColourPrecedence]);
    }

    #[test]
    fn png_colour_invalid_cicp_is_ignored() {
        let chunks = PngColour { cicp: Some([12, 13, 0, 0]), ..PngColour::default() };
        assert_eq!(png_meaning(chunks), (Meaning::Srgb, vec![FindingCode::PngColourInvalid]));
    }

    #[test]
    fn gama_of_srgb_is_srgb() {
        let chunks = PngColour { gama: Some(45_455), ..PngColour::default() };
        assert_eq!(png_meaning(chunks), (Meaning::Srgb, vec![]));
    }

    #[test]
    fn gama_of_zero_is_invalid() {
        let chunks = PngColour { gama: Some(0), ..PngColour::default() };
        assert_eq!(png_meaning(chunks), (Meaning::Srgb, vec![FindingCode::PngColourInvalid]));
    }

    #[test]
    fn adobe_rgb_by_interop_needs_no_profile() {
        let exif = Exif { color_space: Some(65_535), interop_index: Some("R03".into()), ..Exif::default() };
        assert_eq!(adobe_by_exif(Some(&exif), &mut Vec::new()), Some(Meaning::AdobeRgb));
    }
}
