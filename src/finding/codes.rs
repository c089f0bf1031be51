//! The table of findings: everything that is said about a code in a report, by `refmill explain` and in
//! `docs/findings.md`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Severity;
use crate::report::Format::{self, Avif, Bmp, Gif, Heic, Jpeg, Png, Tiff, Webp};

const EVERY: &[Format] = &[Jpeg, Png, Webp, Tiff, Gif, Bmp, Avif, Heic];
const WITH_EXIF: &[Format] = &[Jpeg, Png, Webp, Tiff, Avif, Heic];
const EXIF_BLOCK: &[Format] = &[Jpeg, Png, Webp, Avif, Heic];
const WITH_ALPHA: &[Format] = &[Png, Webp, Tiff, Gif, Bmp, Avif, Heic];
const WITH_FRAMES: &[Format] = &[Png, Webp, Tiff, Gif, Avif, Heic];
const DEEP: &[Format] = &[Png, Tiff, Avif, Heic];
const JPEG: &[Format] = &[Jpeg];
const PNG: &[Format] = &[Png];
const WEBP: &[Format] = &[Webp];
const JPEG_TIFF: &[Format] = &[Jpeg, Tiff];
const JPEG_GIF: &[Format] = &[Jpeg, Gif];
const JPEG_PNG_WEBP_TIFF: &[Format] = &[Jpeg, Png, Webp, Tiff];
const JPEG_PNG_WEBP: &[Format] = &[Jpeg, Png, Webp];
const JPEG_WEBP_TIFF: &[Format] = &[Jpeg, Webp, Tiff];
const PNG_AVIF_HEIC: &[Format] = &[Png, Avif, Heic];
const JPEG_PNG_WEBP_GIF: &[Format] = &[Jpeg, Png, Webp, Gif];
const JPEG_PNG_WEBP_TIFF_GIF: &[Format] = &[Jpeg, Png, Webp, Tiff, Gif];

/// What there is to say about a code.
struct Entry {
    text: &'static str,
    severity: Severity,
    formats: &'static [Format],
    meaning: &'static str,
    rule: &'static str,
    decision: &'static str,
    remedy: &'static str,
}

macro_rules! finding_codes {
    ($($variant:ident $text:literal $severity:ident $formats:ident
        $meaning:literal $rule:literal $decision:literal $remedy:literal;)*) => {
        /// Stable codes of findings. A code is never renamed or reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum FindingCode {
            $(#[doc = $meaning] $variant,)*
        }

        impl FindingCode {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            fn entry(self) -> &'static Entry {
                match self {
                    $(Self::$variant => &Entry {
                        text: $text,
                        severity: Severity::$severity,
                        formats: $formats,
                        meaning: $meaning,
                        rule: $rule,
                        decision: $decision,
                        remedy: $remedy,
                    },)*
                }
            }
        }
    };
}

// Columns: variant, code, severity, formats that can carry it; what it means, in one sentence; the rule that decides,
// with its source; what is decided, in a few words; what the user can do.
finding_codes! {
    ExifAbsent "exif_absent" Info EXIF_BLOCK
        "The file carries no EXIF."
        "CIPA DC-008-2023 (Exif 3.0): EXIF is optional; Orientation then counts as 1"
        "orientation counts as 1"
        "Nothing, unless a camera wrote the file: then some program dropped the EXIF, and the picture may lie on its side for good.";
    ExifCorrupt "exif_corrupt" Defect WITH_EXIF
        "The EXIF structure is damaged; what could be read was kept."
        "TIFF 6.0 section 2: the header, every IFD and every value lie inside the block"
        "what can be read is kept"
        "Let `refmill repair` rebuild it, or take the file from its source again. Look at the orientation: it may be among what was lost.";
    ExifLoop "exif_loop" Defect WITH_EXIF
        "An IFD refers back to itself or to an earlier one."
        "TIFF 6.0 section 2: the chain of IFDs ends with offset 0; a repeated offset ends it here"
        "the chain is read once"
        "Rebuild the EXIF. A file like this was damaged or made to hang readers: ask where it comes from.";
    ExifDuplicate "exif_duplicate" Defect WITH_EXIF
        "There is more than one EXIF block, or a tag stands twice in one IFD."
        "TIFF 6.0 section 2: entries of an IFD are sorted by tag, so unique; of blocks and of tags the first readable one counts"
        "the first readable one counts"
        "Remove the copies. Programs differ in which one they take, so the picture may be turned in one and not in the other.";
    ExifExtended "exif_extended" Info JPEG
        "The EXIF is longer than a segment and goes on in the next ones."
        "CIPA DC-008-2023 (Exif 3.0) 4.7.2 gives EXIF one APP1 segment; further ones that follow at once and begin with no TIFF header go on with it, as exiftool writes and reads them"
        "the segments are put together"
        "Nothing, if only the thumbnail or the maker note is cut elsewhere: many readers take the first segment alone.";
    OrientationApplied "orientation_applied" Info JPEG_PNG_WEBP_TIFF
        "The stored pixels are not upright; the orientation was applied."
        "CIPA DC-008-2023 (Exif 3.0), tag 0x0112 Orientation"
        "turned upright"
        "Nothing. Where pixels are read without their EXIF, such as in training code, use the repaired image.";
    OrientationInvalid "orientation_invalid" Defect WITH_EXIF
        "The orientation value or its type is not one that EXIF allows."
        "CIPA DC-008-2023 (Exif 3.0), tag 0x0112: SHORT, one value, 1 to 8; another type is read by its value, another value counts as 1"
        "another type is read, another value is 1"
        "Look at the picture: if it lies on its side, write the right orientation; else write 1.";
    OrientationConflict "orientation_conflict" Defect WITH_EXIF
        "Two places in the file name different orientations."
        "EXIF IFD0 beats IFD1, the thumbnail's, and XMP tiff:Orientation (XMP part 2); neither is ever applied. In AVIF and HEIC irot and imir beat EXIF (ISO/IEC 23008-12 6.5.10, 6.5.12)"
        "IFD0 beats IFD1 and XMP, the container beats EXIF"
        "Look at the repaired image. If it is upright, write its orientation into both places; if not, the other place was right.";
    ColorspaceConflict "colorspace_conflict" Defect WITH_EXIF
        "The EXIF ColorSpace contradicts the embedded profile."
        "CIPA DC-008-2023 (Exif 3.0), tag 0xA001 ColorSpace: 1 is sRGB; the embedded profile (ICC.1:2022 annex B) beats it"
        "the profile counts"
        "Nothing for the colours. To please readers of the tag, write 65535 (uncalibrated).";
    AdobeRgbByInterop "adobe_rgb_by_interop" Info JPEG_WEBP_TIFF
        "No profile, but EXIF says Adobe RGB (ColorSpace 2, or InteroperabilityIndex R03)."
        "DCF 2.0 (CIPA DC-009-2010): a DCF option file carries InteroperabilityIndex R03 and Adobe RGB; ColorSpace 2 is a habit of cameras"
        "read as Adobe RGB (1998)"
        "Embed the profile: nearly every other program shows this file too pale.";
    DimensionTagMismatch "dimension_tag_mismatch" Info WITH_EXIF
        "EXIF PixelXDimension or PixelYDimension is not the size of the pixels."
        "CIPA DC-008-2023 (Exif 3.0), tags 0xA002 and 0xA003; the coded dimensions count"
        "the coded size counts"
        "Nothing. The picture was cropped or scaled by a program that left its EXIF as it was.";
    IccAbsentAssumedSrgb "icc_absent_assumed_srgb" Info EVERY
        "No profile and no other colour information: the pixels were taken as sRGB."
        "CSS Color Module Level 4, untagged images; IEC 61966-2-1"
        "read as sRGB"
        "Nothing where the picture comes from the web. One from a camera or a scanner may be meant otherwise: ask its maker for the profile.";
    IccCorrupt "icc_corrupt" Defect EVERY
        "The embedded profile is damaged and was not used."
        "ICC.1:2022 7.2 and 7.3: header fields have defined values, the signature is `acsp`, every tag lies inside the profile"
        "the profile is not used"
        "Get the picture again, or embed the profile that it was made with. Until then its colours rest on the next rule that applies.";
    IccTruncated "icc_truncated" Defect EVERY
        "The embedded profile ends before its own size says, and was not used."
        "ICC.1:2022 7.2.2: the profile size field is that of the whole profile"
        "the profile is not used"
        "As for icc_corrupt. Something cut the metadata: other blocks may be cut as well.";
    IccChunkMissing "icc_chunk_missing" Defect JPEG
        "A chunk of the profile is missing; the rest was not used."
        "ICC.1:2022 annex B, embedding in JPEG: chunks are numbered 1 to n and all of them are there"
        "the profile is not used"
        "Get the picture again, or embed its profile anew. Readers that glue the rest together show wrong colours.";
    IccChunkDuplicate "icc_chunk_duplicate" Defect JPEG
        "A chunk of the profile stands twice."
        "ICC.1:2022 annex B, embedding in JPEG: each chunk number is unique; equal copies are dropped, different ones make the profile unusable"
        "equal copies are dropped"
        "Embed the profile anew: some programs refuse such a file's profile altogether.";
    IccChunkOutOfOrder "icc_chunk_out_of_order" Defect JPEG
        "The chunks of the profile are not in sequence, or their numbers do not fit their count."
        "ICC.1:2022 annex B, embedding in JPEG: numbers count from 1 to the total; chunks are put in that order"
        "put in order by number"
        "Embed the profile anew: some programs read the chunks in the order of the file.";
    IccSpaceMismatch "icc_space_mismatch" Defect EVERY
        "The profile is for another colour model than the pixels', and was not used."
        "ICC.1:2022 7.2.6: the data colour space is that of the pixels"
        "the profile is not used"
        "Find out what the pixels are. Often a CMYK or gray picture was made RGB and kept its old profile: embed that of the new space.";
    IccUnusable "icc_unusable" Defect EVERY
        "The profile cannot be a source: wrong class, or no transform can be built from it."
        "ICC.1:2022 7.2.5 and 8: input, display, output and colour space profiles with their required tags can be a source"
        "the profile is not used"
        "Embed a profile that describes the pixels; a device link or an abstract profile never does.";
    IccLinearSuspected "icc_linear_suspected" Info EVERY
        "Linear light (gamma 1.0) is declared for 8-bit pixels."
        "ICC.1:2022 10.6 and 10.18 (curves), PNG 3rd edition 11.3.2.2 (gAMA): the declaration is followed; 8-bit linear data bands in the shadows"
        "the declaration is followed"
        "Look at the repaired image. If it is far too bright, the pixels are not linear: remove the profile or the gAMA chunk.";
    IccMultiple "icc_multiple" Defect JPEG_PNG_WEBP_TIFF_GIF
        "There is more than one profile; the first counts."
        "PNG 3rd edition 11.3.2.3, RFC 9649 2.7.1.4, ICC.1:2022 annex B: one profile an image"
        "the first one counts"
        "Remove all but the right one. Readers differ in which one they take.";
    PngColourPrecedence "png_colour_precedence" Info PNG
        "Several PNG chunks describe the colour; the strongest counts."
        "PNG 3rd edition 4.3: cICP, then iCCP, then sRGB, then gAMA with cHRM"
        "the strongest chunk counts"
        "Nothing, where they agree. Older programs may read the weaker chunk and show other colours.";
    PngColourInvalid "png_colour_invalid" Defect PNG
        "A PNG colour chunk has an impossible or unusable value and was ignored."
        "PNG 3rd edition 11.3.2: cICP with matrix 0 and code points of ITU-T H.273 tables 2 and 3 (full range is read here), gAMA not 0, cHRM a triangle"
        "the chunk is ignored"
        "Remove the chunk, or write the right values.";
    CmykWithoutProfile "cmyk_without_profile" Info JPEG_TIFF
        "CMYK pixels without a profile: converted by (1-C)(1-K)."
        "ISO 32000-1 10.3.5 (PDF 1.7): the conversion without a characterisation of the inks"
        "read as (1-C)(1-K)"
        "Ask for the press profile and embed it: colours are a guess without one, and often too vivid.";
    CmykAdobeInverted "cmyk_adobe_inverted" Info JPEG
        "CMYK is stored inverted, as Adobe's programs write it."
        "Adobe Technical Note 5116, APP14 marker; every common reader inverts, with or without the marker"
        "inverted while decoding"
        "Nothing, if the picture is no negative.";
    DepthReduced "depth_reduced" Info DEEP
        "More than 8 bits a channel were converted first and then reduced to 8."
        "refmill: converted at full depth, then scaled and rounded, never clipped"
        "scaled to 8 bits"
        "Nothing. Keep the original where the depth matters.";
    AlphaComposited "alpha_composited" Info WITH_ALPHA
        "Transparent pixels were composited on the recipe's background; alpha is kept as a mask."
        "PNG 3rd edition 13.16, on sRGB codes: out = alpha x colour + (1 - alpha) x background"
        "put on the recipe's background"
        "Choose the background in the recipe; the mask is the tensor `alpha_mask`.";
    AnimatedFirstFrame "animated_first_frame" Info WITH_FRAMES
        "The file holds several frames or pages; the first was used."
        "refmill: one image a job; PNG 3rd edition 4.9, RFC 9649 2.7.1.1, GIF89a, TIFF 6.0 section 2"
        "the first one counts"
        "Take the file apart first where another frame is wanted.";
    TrailingData "trailing_data" Info JPEG_PNG_WEBP_GIF
        "Bytes follow the end of the image."
        "ITU-T T.81 B.2.1 (EOI), PNG 3rd edition 5.6 (IEND), RFC 9649 2.4 (RIFF size), GIF89a 27 (trailer): what follows is ignored"
        "ignored"
        "Nothing for a phone's picture: a second picture (CIPA DC-007 MPF) or a video may stand there. In a file from a stranger it may be a hidden archive.";
    WrongExtension "wrong_extension" Info EVERY
        "The file name's extension is not that of its content."
        "refmill: the signature counts, never the name"
        "the signature counts"
        "Rename the file: programs that trust names refuse it.";
    Truncated "truncated" Fatal EVERY
        "The data ends before the image does."
        "ITU-T T.81 B.2.1, PNG 3rd edition 5.6, RFC 9649 2.4, GIF89a: an image has an end; a picture that is partly gray is no reference"
        "rejected"
        "Get the file again: a download or a copy was broken off.";
    ChecksumMismatch "checksum_mismatch" Defect PNG
        "A chunk's checksum is wrong; the pixels could be decoded all the same."
        "PNG 3rd edition 5.3 and 5.5: CRC of a chunk"
        "the chunk is read all the same"
        "Get the file again if you can. Compare the picture with its source: a bit of it is not what it was.";
    StreamWarning "stream_warning" Defect JPEG_GIF
        "The decoder had to step over damage that does not cost pixels."
        "ITU-T T.81 B.1.1: markers and their segments; GIF89a 18 and 20: an image lies inside its screen"
        "stepped over"
        "Have the file written again by a sound program, such as by `refmill repair`.";
    ContainerFlag "container_flag" Defect WEBP
        "A metadata chunk is present although the header's flag denies it."
        "RFC 9649 2.7, VP8X flags: honoured all the same"
        "the chunk is read all the same"
        "Set the flag: strict readers never look at the chunk.";
    MetadataStripped "metadata_stripped" Info JPEG_PNG_WEBP
        "Metadata was left out because `--strip` asked for it."
        "refmill: --strip gps takes the position out, private what tells of people and single cameras as well, all everything but orientation and colour"
        "left out"
        "Nothing. The file as it was keeps what is missing here: delete it where that must not be kept.";
    HdrToneMapped "hdr_tone_mapped" Info PNG_AVIF_HEIC
        "PQ or HLG pixels were brought to SDR."
        "ITU-R BT.2390-11 5.4.1 (EETF) with reference white at 203 cd/m2 (ITU-R BT.2408-7); transfers 16 and 18 of ITU-T H.273 table 3"
        "tone-mapped to sRGB"
        "Look at the highlights. Where a graded SDR version exists, use that instead.";
    OverLimit "over_limit" Defect EVERY
        "A metadata block exceeds its limit and was not read."
        "refmill: limits.metadata_bytes bounds any one block once inflated"
        "the block is not read"
        "Raise `--limit metadata_bytes=N` where the block is honest; some inflate to gigabytes on purpose.";
}

impl FindingCode {
    /// The code as it stands in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.entry().text
    }

    /// The code of this text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }

    /// How much it matters.
    #[must_use]
    pub fn severity(self) -> Severity {
        self.entry().severity
    }

    /// The formats that can carry it.
    #[must_use]
    pub fn formats(self) -> &'static [Format] {
        self.entry().formats
    }

    /// What it means, in one sentence.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        self.entry().meaning
    }

    /// The rule that decides, with its source.
    #[must_use]
    pub fn rule(self) -> &'static str {
        self.entry().rule
    }

    /// What is decided by that rule, in a few words.
    #[must_use]
    pub fn decision(self) -> &'static str {
        self.entry().decision
    }

    /// What the user can do about it.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        self.entry().remedy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::MAX_TEXT;

    #[test]
    fn rule_of_every_code_fits_a_report() {
        let longest = FindingCode::ALL.iter().map(|code| code.rule().len()).max();
        assert!(longest <= Some(MAX_TEXT), "{longest:?}");
    }

    #[test]
    fn code_is_found_by_its_text() {
        assert_eq!(FindingCode::from_text("icc_multiple"), Some(FindingCode::IccMultiple));
        assert_eq!(FindingCode::from_text("ICC_MULTIPLE"), None);
    }
}
