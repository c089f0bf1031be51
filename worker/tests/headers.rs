//! A look at the headers says what a whole inspection says, but for what it names itself.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use std::collections::BTreeMap;

use refmill::finding::{Finding, FindingCode, Repair};
use refmill::job::{Depth, Strip};
use refmill::limits::Limits;
use refmill::report::Report;
use support::{Case, cases, corpus, headers, refused};

fn every_file() -> Vec<Case> {
    let of_corpus = corpus().into_iter().map(|(name, bytes)| Case {
        name,
        bytes,
        strip: Strip::Nothing,
        limits: Limits::default(),
        has: Default::default(),
        error: None,
    });
    cases().into_iter().filter(|case| case.strip == Strip::Nothing).chain(of_corpus).collect()
}

fn without<'r>(report: &'r Report, unseen: &[FindingCode]) -> Vec<&'r Finding> {
    report.findings.iter().filter(|finding| !unseen.contains(&finding.code)).collect()
}

fn decided<'r>(report: &'r Report, unseen: &[FindingCode]) -> Vec<&'r Repair> {
    report.repairs.iter().filter(|repair| !unseen.contains(&repair.code)).collect()
}

/// Late APP segments, eXIf behind the pixels, EXIF at the end of a WebP, items of AVIF and HEIC at any offset: the
/// fixtures have them all.
#[test]
fn headers_alone_tell_what_a_whole_inspection_tells() {
    let mut parts: BTreeMap<String, u32> = BTreeMap::new();
    for case in every_file() {
        let (part, whole) = (headers(&case), case.report(Depth::Inspect));
        let unseen = &part.not_looked_for;
        assert_eq!(without(&part, unseen), without(&whole, unseen), "{}", case.name);
        assert_eq!(refused(&part), refused(&whole), "{}", case.name);
        assert_eq!(decided(&part, unseen), decided(&whole, unseen), "{}", case.name);
        assert_eq!((&part.image, &part.colour), (&whole.image, &whole.colour), "{}", case.name);
        let format = part.source.format.map(|format| format!("{format:?}")).unwrap_or_default();
        *parts.entry(format).or_default() += u32::from(!unseen.is_empty());
    }
    assert!(parts["Jpeg"] > 40 && parts["Png"] > 20, "{parts:?}");
}

#[test]
fn inspection_and_processing_look_for_everything() {
    for case in cases() {
        assert_eq!(case.report(Depth::Inspect).not_looked_for, [], "{}", case.name);
    }
}
