//! What inspection refuses without decoding a pixel, and what processing refuses: the same, where it can be known.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a helper that fails is a test that fails")]

mod support;

use refmill::job::{Depth, Strip};
use refmill::limits::Limits;
use support::{Case, cases, corpus, refused};

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

#[test]
fn what_inspection_refuses_processing_refuses_too() {
    for case in every_file() {
        let (inspected, full) = (refused(&case.report(Depth::Inspect)), refused(&case.report(Depth::Full)));
        assert!(inspected.is_none() || inspected == full, "{}: {inspected:?}, then {full:?}", case.name);
    }
}

#[test]
fn what_can_be_known_without_pixels_is_refused_by_inspection() {
    let bad: Vec<Case> = cases().into_iter().filter(|case| case.error.is_some()).collect();
    assert!(bad.len() >= 16, "{}", bad.len());
    for case in bad {
        let report = case.report(Depth::Inspect);
        let code = refused(&report).map(|code| code.as_str().to_owned());
        assert_eq!(code, case.error, "{}: {report:?}", case.name);
    }
}

#[test]
fn processing_refuses_little_that_inspection_let_pass() {
    let late: Vec<String> = every_file()
        .iter()
        .filter_map(|case| {
            let failure = case.report(Depth::Full).error?;
            refused(&case.report(Depth::Inspect)).is_none().then(|| format!("{}: {failure}", case.name))
        })
        .collect();
    println!("{late:#?}");
    assert!(late.len() <= 12, "{late:#?}");
}
