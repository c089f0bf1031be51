//! The published schema of the report is the one that the program prints.

use refmill_supervisor::commands::report_schema;

#[test]
fn published_schema_is_the_programs_own() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/report.schema.json");
    let published = std::fs::read_to_string(path).unwrap();
    assert_eq!(published, report_schema(), "run `refmill schema > docs/report.schema.json`");
}
