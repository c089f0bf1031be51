//! Findings: what was wrong or remarkable about an image's metadata, in the standards' own words, and
//! [`Repair`]s: what was decided because of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::truncate_utf8;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; the image is sound.
    Info,
    /// Contradictory or defective metadata: the answer rests on a rule, and a repair says which.
    Defect,
    /// The image cannot be used as it is.
    Fatal,
}

macro_rules! finding_codes {
    ($($variant:ident, $text:literal, $severity:ident, $meaning:literal, $rule:literal;)*) => {
        /// Stable codes of findings. A code is never renamed or reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum FindingCode {
            $(#[doc = $meaning] $variant,)*
        }

        impl FindingCode {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The code as it stands in reports.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// How much it matters.
            #[must_use]
            pub fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }

            /// What it means, in one sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }

            /// The rule that decides, with its source.
            #[must_use]
            pub fn rule(self) -> &'static str {
                match self { $(Self::$variant => $rule,)* }
            }
        }
    };
}

finding_codes! {
    ExifAbsent, "exif_absent", Info, "The file carries no EXIF.", "CIPA DC-008 (EXIF 3.0) 4.5: EXIF is optional; orientation 1 and sRGB are assumed";
    ExifCorrupt, "exif_corrupt", Defect, "The EXIF structure is damaged; what could be read was kept.", "TIFF 6.0 section 2: header, IFD and value offsets must lie inside the block";
    ExifLoop, "exif_loop", Defect, "An IFD refers back to itself or to an earlier one.", "TIFF 6.0 section 2: the chain of IFDs ends with offset 0; a repeated offset ends it here";
    ExifDuplicate, "exif_duplicate", Defect, "There is more than one EXIF block, or a tag stands twice in one IFD.", "TIFF 6.0 section 2: tags of an IFD are unique; the first readable one counts";
    OrientationApplied, "orientation_applied", Info, "The stored pixels are not upright; the orientation was applied.", "CIPA DC-008 (EXIF 3.0) 4.6.5: tag 0x0112";
    OrientationInvalid, "orientation_invalid", Defect, "The orientation value or its type is not one that EXIF allows.", "CIPA DC-008 (EXIF 3.0) 4.6.5: SHORT, one value, 1 to 8; another type is read by its value, another value counts as 1";
    OrientationConflict, "orientation_conflict", Defect, "Two places in the file name different orientations.", "EXIF IFD0 beats XMP and IFD1; in AVIF and HEIC the container's irot and imir beat EXIF (ISO/IEC 23008-12 6.5.10)";
    ColorspaceConflict, "colorspace_conflict", Defect, "The EXIF ColorSpace contradicts the embedded profile.", "the embedded ICC profile beats EXIF ColorSpace (0xA001)";
    AdobeRgbByInterop, "adobe_rgb_by_interop", Info, "No profile, but EXIF says Adobe RGB (ColorSpace 2, or InteroperabilityIndex R03).", "DCF 2.0 (CIPA DC-009) 3.5: R03 marks the optional colour space, Adobe RGB";
    DimensionTagMismatch, "dimension_tag_mismatch", Info, "EXIF PixelXDimension or PixelYDimension is not the size of the pixels.", "the coded dimensions count";
    IccAbsentAssumedSrgb, "icc_absent_assumed_srgb", Info, "No profile and no other colour information: the pixels were taken as sRGB.", "W3C CSS Color 4 section 12: untagged images are sRGB";
    IccCorrupt, "icc_corrupt", Defect, "The embedded profile is damaged and was not used.", "ICC.1:2022 7.2: size, signature `acsp`, device class and tag table must be sound";
    IccTruncated, "icc_truncated", Defect, "The embedded profile ends before its own size says, and was not used.", "ICC.1:2022 7.2.2: the profile size covers the whole profile";
    IccChunkMissing, "icc_chunk_missing", Defect, "A chunk of the profile is missing; the rest was not used.", "ICC.1:2022 B.4: all chunks 1..n must be present";
    IccChunkDuplicate, "icc_chunk_duplicate", Defect, "A chunk of the profile stands twice.", "ICC.1:2022 B.4: each chunk number is unique; equal copies are dropped, different ones make the profile unusable";
    IccChunkOutOfOrder, "icc_chunk_out_of_order", Defect, "The chunks of the profile are not in sequence, or their numbers do not fit their count.", "ICC.1:2022 B.4: chunk numbers count from 1 to the total; they are put in order";
    IccSpaceMismatch, "icc_space_mismatch", Defect, "The profile is for another colour model than the pixels', and was not used.", "ICC.1:2022 7.2.6: the data colour space must be that of the pixels";
    IccUnusable, "icc_unusable", Defect, "The profile cannot be a source: wrong class, or no transform can be built from it.", "ICC.1:2022 8: input, display, output and colour space profiles can be a source";
    IccLinearSuspected, "icc_linear_suspected", Info, "Linear light (gamma 1.0) is declared for 8-bit pixels.", "8-bit linear data bands in the shadows; the declaration is followed";
    IccMultiple, "icc_multiple", Defect, "There is more than one profile; the first counts.", "PNG 3rd edition 11.3.2.3, ICC.1:2022 B: one profile an image";
    PngColourPrecedence, "png_colour_precedence", Info, "Several PNG chunks describe the colour; the strongest counts.", "PNG 3rd edition 4.3: cICP, then iCCP, then sRGB, then gAMA with cHRM";
    PngColourInvalid, "png_colour_invalid", Defect, "A PNG colour chunk has an impossible or unusable value and was ignored.", "PNG 3rd edition 11.3.2: cICP full range with matrix 0; gAMA not 0; cHRM a real triangle";
    CmykWithoutProfile, "cmyk_without_profile", Info, "CMYK pixels without a profile: converted by (1-C)(1-K).", "PDF 1.7 10.3.5: the naive conversion, for want of a characterisation";
    CmykAdobeInverted, "cmyk_adobe_inverted", Info, "CMYK is stored inverted, as Adobe's programs write it.", "Adobe TN 5116: APP14; every common reader inverts";
    DepthReduced, "depth_reduced", Info, "More than 8 bits a channel were converted first and then reduced to 8.", "scaled, never clipped";
    AlphaComposited, "alpha_composited", Info, "Transparent pixels were composited on the recipe's background; alpha is kept as a mask.", "sRGB codes, straight alpha: out = a*c + (1-a)*background";
    AnimatedFirstFrame, "animated_first_frame", Info, "The file holds several frames or pages; the first was used.", "one image a job";
    TrailingData, "trailing_data", Info, "Bytes follow the end of the image.", "ignored; MPF pictures and appended archives stand there";
    WrongExtension, "wrong_extension", Info, "The file name's extension is not that of its content.", "the signature counts, never the name";
    Truncated, "truncated", Fatal, "The data ends before the image does.", "a picture that is partly grey is not used as a reference";
    ChecksumMismatch, "checksum_mismatch", Defect, "A chunk's checksum is wrong; the pixels could be decoded all the same.", "PNG 3rd edition 5.3: CRC of a chunk";
    StreamWarning, "stream_warning", Defect, "The decoder had to step over damage that does not cost pixels.", "ITU-T T.81: extraneous bytes and unknown markers are skipped";
    ContainerFlag, "container_flag", Defect, "A metadata chunk is present although the header's flag denies it.", "WebP container specification, VP8X flags: honoured all the same";
    HdrToneMapped, "hdr_tone_mapped", Info, "PQ or HLG pixels were brought to SDR.", "ITU-R BT.2408: reference white at 203 cd/m2; brighter light is rolled off";
    OverLimit, "over_limit", Defect, "A metadata block exceeds its limit and was not read.", "limits.metadata_bytes";
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// What kind of finding.
    pub code: FindingCode,
    /// How much it matters.
    pub severity: Severity,
    /// Where: segment, chunk, IFD, tag, byte offset. Empty where it concerns the whole file.
    pub place: String,
    /// What was found there.
    pub found: String,
    /// The rule that decides, with its source.
    pub rule: String,
}

/// What was changed or decided because of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Repair {
    /// The finding that asked for it.
    pub code: FindingCode,
    /// The value as found.
    pub before: String,
    /// The value that was used instead.
    pub after: String,
    /// The rule that was applied.
    pub rule: String,
}

/// Longest text in a finding or a repair, in bytes; a longer one is cut.
pub const MAX_TEXT: usize = 240;

fn text(value: impl Into<String>) -> String {
    let mut value = value.into();
    truncate_utf8(&mut value, MAX_TEXT);
    value
}

impl Finding {
    /// A finding with its code's own severity and rule.
    #[must_use]
    pub fn new(code: FindingCode, place: impl Into<String>, found: impl Into<String>) -> Self {
        Self { code, severity: code.severity(), place: text(place), found: text(found), rule: text(code.rule()) }
    }
}

impl Repair {
    /// A repair by the rule of its finding.
    #[must_use]
    pub fn new(code: FindingCode, before: impl Into<String>, after: impl Into<String>) -> Self {
        Self { code, before: text(before), after: text(after), rule: text(code.rule()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_text_matches_its_serialised_form() {
        let texts: Vec<String> = FindingCode::ALL.iter().map(|c| serde_json::to_string(c).unwrap()).collect();
        let expected: Vec<String> = FindingCode::ALL.iter().map(|c| format!("\"{}\"", c.as_str())).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn text_longer_than_the_limit_is_cut() {
        let finding = Finding::new(FindingCode::ExifCorrupt, "x".repeat(1000), "y");
        assert_eq!(finding.place.len(), MAX_TEXT);
    }
}
