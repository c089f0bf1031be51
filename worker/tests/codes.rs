//! Every finding has fixtures, in every format that can carry it, and a test of its own name.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod support;

use std::collections::BTreeSet;

use refmill::finding::{FindingCode, Severity};
use refmill::job::Depth;
use refmill::report::Format;
use support::{Case, cases};

/// Findings about the picture as a whole: no place in the file is at fault.
const WHOLE: [FindingCode; 11] = [
    FindingCode::ExifAbsent,
    FindingCode::IccAbsentAssumedSrgb,
    FindingCode::CmykWithoutProfile,
    FindingCode::CmykAdobeInverted,
    FindingCode::DepthReduced,
    FindingCode::AlphaComposited,
    FindingCode::AnimatedFirstFrame,
    FindingCode::WrongExtension,
    FindingCode::HdrToneMapped,
    // What was left out is listed with its places in the text.
    FindingCode::MetadataStripped,
    // libjpeg-turbo names no place.
    FindingCode::StreamWarning,
];

macro_rules! tests_of_codes {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name)); })*
        const TESTED: &[&str] = &[$(stringify!($name)),*];
    };
}

tests_of_codes! {
    exif_absent exif_corrupt exif_loop exif_duplicate exif_extended
    orientation_applied orientation_invalid orientation_conflict
    colorspace_conflict adobe_rgb_by_interop dimension_tag_mismatch
    icc_absent_assumed_srgb icc_corrupt icc_truncated icc_chunk_missing icc_chunk_duplicate icc_chunk_out_of_order
    icc_space_mismatch icc_unusable icc_linear_suspected icc_multiple
    png_colour_precedence png_colour_invalid cmyk_without_profile cmyk_adobe_inverted
    depth_reduced alpha_composited animated_first_frame trailing_data wrong_extension truncated
    checksum_mismatch stream_warning container_flag metadata_stripped hdr_tone_mapped over_limit
}

/// The fixtures of a code have it; they are of the formats that the table names for it, and of no others.
#[track_caller]
fn check(name: &str) {
    let code = FindingCode::from_text(name).unwrap();
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.has.contains(name)).collect();
    assert!(!cases.is_empty(), "no fixture has {name}");
    let mut formats = BTreeSet::new();
    for case in cases {
        let report = case.report(Depth::Full);
        let finding = report.findings.iter().find(|finding| finding.code == code);
        let finding = finding.unwrap_or_else(|| panic!("{} {:?}: {:?}", case.name, case.strip, report));
        assert_eq!(finding.severity, code.severity(), "{}", case.name);
        formats.extend(report.source.format.map(|format| format!("{format:?}")));
    }
    let readable = |format: &&Format| cfg!(feature = "heif") || !matches!(format, Format::Avif | Format::Heic);
    let told: BTreeSet<String> = code.formats().iter().filter(readable).map(|format| format!("{format:?}")).collect();
    assert_eq!(formats, told, "formats of the fixtures, and those of the table");
}

#[test]
fn every_code_has_a_test_of_its_name() {
    let tested: BTreeSet<&str> = TESTED.iter().copied().collect();
    let codes: BTreeSet<&str> = FindingCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(tested, codes);
}

#[test]
fn every_finding_says_where_what_and_why() {
    let mut seen = 0;
    for case in cases() {
        for finding in case.report(Depth::Full).findings {
            seen += 1;
            let (name, code) = (&case.name, finding.code);
            assert!(!finding.found.is_empty() && !finding.rule.is_empty(), "{name}: {finding:?}");
            if !WHOLE.contains(&code) || finding.offset.is_some() {
                assert!(!finding.place.is_empty(), "{name}: {finding:?}");
                assert!(finding.offset.is_some_and(|at| at <= case.bytes.len() as u64), "{name}: {finding:?}");
            }
        }
    }
    assert!(seen > 400, "{seen} findings");
}

#[test]
fn every_defect_says_what_was_decided() {
    for case in cases() {
        let report = case.report(Depth::Full);
        if report.error.is_some() || case.strip != refmill::job::Strip::Nothing {
            continue;
        }
        for finding in report.findings.iter().filter(|finding| finding.severity == Severity::Defect) {
            let repair = report.repairs.iter().find(|repair| repair.code == finding.code);
            let repair = repair.unwrap_or_else(|| panic!("{}: {finding:?} has no repair", case.name));
            assert!(!repair.before.is_empty() && !repair.after.is_empty() && !repair.rule.is_empty(), "{repair:?}");
        }
    }
}

#[test]
fn offset_of_a_tag_is_that_of_its_entry_in_the_file() {
    let cases = cases();
    for name in ["jpg", "png", "webp", "tif"].map(|ext| format!("defects/orientation_invalid.{ext}")) {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        let report = case.report(Depth::Inspect);
        let finding = report.findings.iter().find(|finding| finding.code == FindingCode::OrientationInvalid).unwrap();
        let at = usize::try_from(finding.offset.unwrap()).unwrap();
        assert_eq!(&case.bytes[at..at + 10], b"\x12\x01\x03\0\x01\0\0\0\x09\0", "{name}: {finding:?}");
    }
}

#[test]
fn linear_light_comes_with_the_evidence_of_the_pixels() {
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.has.contains("icc_linear_suspected")).collect();
    assert!(cases.len() >= 7, "{}", cases.len());
    for case in cases {
        let report = case.report(Depth::Full);
        let evidence = report.linear_evidence.unwrap_or_else(|| panic!("{}: no evidence", case.name));
        // The card's quarters are spread over the codes, so a half of it is not in one bin.
        assert!(evidence.permille.iter().map(|share| u32::from(*share)).sum::<u32>().abs_diff(1000) <= 8);
        assert!(evidence.lightness_as_linear > evidence.lightness_as_srgb, "{evidence:?}");
        let finding = report.findings.iter().find(|finding| finding.code == FindingCode::IccLinearSuspected).unwrap();
        assert!(finding.found.contains("the median code"), "{finding:?}");
        assert_eq!(case.report(Depth::Inspect).linear_evidence, None, "no pixel is decoded by an inspection");
    }
}
