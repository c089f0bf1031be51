//! The operators' page says what the program says.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use refmill_supervisor::config;

#[test]
fn configuration_reference_is_the_programs_own() {
    let page = include_str!("../../docs/operate.md");
    let (_, rest) = page.split_once("<!-- keys:begin -->\n").unwrap();
    let (keys, _) = rest.split_once("<!-- keys:end -->").unwrap();
    assert_eq!(keys, config::reference(), "print it with `refmill config keys`");
}

#[test]
fn bounds_that_the_page_names_are_those_of_the_share() {
    let page = include_str!("../../docs/operate.md");
    let lead = refmill_supervisor::queue::share::LEAD;
    assert!(page.contains(&format!("at most {lead} of its own jobs")));
    assert!(page.contains(&format!("at most {} * (v / w + 1)", lead + 1)));
}
