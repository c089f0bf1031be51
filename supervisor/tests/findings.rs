//! The published list of findings is the one that the program prints.

use refmill_supervisor::findings;

#[test]
fn published_findings_are_the_programs_own() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/findings.md");
    let published = std::fs::read_to_string(path).unwrap();
    assert_eq!(published, findings::markdown(), "run `refmill explain --markdown > docs/findings.md`");
}
