//! Real files, public and generated, where a corpus lies beside the repository.

use std::collections::BTreeSet;
use std::path::PathBuf;

use refmill::failure::Code;

use crate::support::fixtures::{files, repository};
use crate::support::scratch::Scratch;

/// How many files the corpus has.
const FILES: usize = 226;

/// The corpus: `REFMILL_CORPUS`, else `../shared/corpus` where that exists.
fn corpus() -> Option<PathBuf> {
    let named = std::env::var_os("REFMILL_CORPUS").map(PathBuf::from);
    let usual = repository("../shared/corpus");
    let found = named.or_else(|| usual.is_dir().then_some(usual));
    if found.is_none() {
        // Not a failure in CI: the corpus is no part of the repository.
        eprintln!("skipped: no corpus at ../shared/corpus, and REFMILL_CORPUS names none");
    }
    found
}

#[test]
fn every_file_of_the_corpus_ends_with_a_report_and_no_failure_of_refmill() {
    let Some(corpus) = corpus() else { return };
    let scratch = Scratch::new();
    let inputs = files(&corpus.join("files"));
    let arguments = inputs.iter().map(|path| path.to_str().unwrap());
    let ended = scratch.run(arguments.chain(["--json", "--no-image", "--recipe", "clip"])).with_code(1);
    let reports = ended.reports();
    let named: BTreeSet<&str> = reports.iter().map(|report| report.source.name.as_str()).collect();
    assert_eq!((inputs.len(), reports.len(), named.len()), (FILES, FILES, FILES));
    let own = [
        Code::WorkerCrashed,
        Code::WorkerHung,
        Code::WorkerProtocol,
        Code::Internal,
        Code::Unwritable,
        Code::Unreadable,
    ];
    let blamed: Vec<String> = reports
        .iter()
        .filter_map(|report| Some((report, report.error.as_ref()?)))
        .filter(|(_, failure)| own.contains(&failure.code))
        .map(|(report, failure)| format!("{}: {failure}", report.source.name))
        .collect();
    assert!(blamed.is_empty(), "{blamed:#?}");
}
