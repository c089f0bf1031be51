//! The contact sheet in a real browser: it asks for nothing, runs nothing, and shows everything.

use std::process::Command;

use serde_json::Value;

use crate::support::fixtures::{fixture, repository};
use crate::support::scratch::Scratch;
use crate::support::skipped;

/// As long as the description of the fixture's profile, which it replaces.
const HOSTILE_DESCRIPTION: &[u8; 25] = b"\"><svg onload=alert(1)>&'";
const DESCRIPTION: &[u8; 25] = b"Display P3 (made by hand)";
const HOSTILE_NAME: &str = "\"><script>alert(1)<b>'.jpg";

/// What the browser found on the sheet of five images: sound, hostile, defective, transparent and unreadable.
fn seen() -> Option<Value> {
    let browser = std::env::var_os("REFMILL_TEST_CHROMIUM").unwrap_or_else(|| "chromium".into());
    if Command::new(&browser).arg("--version").output().is_err() {
        skipped("chromium is missing: apt-get install chromium");
        return None;
    }
    let scratch = Scratch::new();
    let mut hostile = std::fs::read(fixture("images/p3_orientation6.jpg")).unwrap();
    let at = hostile.windows(DESCRIPTION.len()).position(|window| window == DESCRIPTION).unwrap();
    hostile.splice(at..at + DESCRIPTION.len(), *HOSTILE_DESCRIPTION);
    scratch.write(HOSTILE_NAME, hostile);
    let others = ["images/p3.png", "defects/orientation_conflict.jpg", "images/rgba.png", "bad/html.jpg"].map(fixture);
    let others = others.iter().map(|path| path.to_str().unwrap());
    let arguments = ["inspect", "--quiet", "--contact-sheet", "sheet.html", HOSTILE_NAME];
    scratch.refmill(arguments.into_iter().chain(others)).with_code(3);
    let script = repository("tests/support/browse.py");
    let shot = std::env::var_os("REFMILL_TEST_SHOTS")
        .map_or(scratch.path("shot"), |folder| std::path::PathBuf::from(folder).join("sheet"));
    let mut command = Command::new("python3");
    let output = command.arg(script).arg(scratch.path("sheet.html")).arg(shot).args(["1280", "390"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn contact_sheet_in_a_browser_asks_for_nothing_and_shows_everything() {
    let Some(seen) = seen() else { return };
    let page = seen["page"].as_str().unwrap();
    let requests: Vec<&str> = seen["requests"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let abroad: Vec<&&str> =
        requests.iter().filter(|url| **url != page && !url.starts_with("data:image/png")).collect();
    assert!(requests.contains(&page) && abroad.is_empty(), "{requests:?}");
    assert_eq!(seen["errors"], Value::Array(Vec::new()));
    for facts in seen["facts"].as_array().unwrap() {
        let images: Vec<[u64; 2]> = serde_json::from_value(facts["images"].clone()).unwrap();
        // Two of each image that can be decoded, each with its pixels, and one of them turned.
        assert_eq!(images.len(), 8, "{facts}");
        assert!(images.contains(&[32, 48]) && images.iter().all(|[w, h]| (*w, *h) == (32, 48) || (*w, *h) == (48, 32)));
        let gamuts = facts["gamuts"].as_array().unwrap();
        let drawn = |gamut: &&Value| gamut["width"].as_f64() > Some(60.0) && gamut["height"].as_f64() > Some(60.0);
        assert_eq!((gamuts.len(), gamuts.iter().filter(drawn).count()), (4, 4), "{facts}");
        assert!(gamuts.iter().all(|gamut| gamut["stroke"].as_str().is_some_and(|colour| colour.starts_with("rgb"))));
        let elements: Vec<&str> = facts["elements"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(!["script", "iframe", "object", "link"].iter().any(|name| elements.contains(name)), "{elements:?}");
        assert_eq!((&facts["handlers"], &facts["styled"]), (&Value::from(0), &Value::from("solid")));
        let text = facts["text"].as_str().unwrap();
        let description = std::str::from_utf8(HOSTILE_DESCRIPTION).unwrap();
        let said = [HOSTILE_NAME, description, "orientation_conflict", "IFD0 says 6", "not_an_image"];
        assert_eq!(
            said.iter().filter(|said| !text.contains(**said)).collect::<Vec<_>>(),
            Vec::<&&str>::new(),
            "{text}"
        );
        assert_eq!(facts["overflow"], Value::from(0), "at {} pixels the page is wider than its window", facts["width"]);
    }
}
