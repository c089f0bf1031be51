//! `refmill inspect --contact-sheet` from outside: one file that asks for nothing, runs nothing, and shows what an
//! image says as text. Needs the worker beside the program.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a helper that fails is a test that fails")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// As long as the description of the fixture's profile, which it replaces.
const HOSTILE_DESCRIPTION: &[u8; 25] = b"\"><svg onload=alert(1)>&'";
const DESCRIPTION: &[u8; 25] = b"Display P3 (made by hand)";
const HOSTILE_NAME: &str = "\"><script>alert(1)<b>'.jpg";

/// The sheet of an image that says hostile things, of one that cannot be read, and the program's exit code.
fn sheet() -> (String, Option<i32>) {
    let program = Path::new(env!("CARGO_BIN_EXE_refmill"));
    assert!(program.with_file_name("refmill-worker").is_file(), "build the worker first");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let folder = tempfile::tempdir().unwrap();
    let mut image = fs::read(fixtures.join("images/p3_orientation6.jpg")).unwrap();
    let at = image.windows(DESCRIPTION.len()).position(|window| window == DESCRIPTION).unwrap();
    image.splice(at..at + DESCRIPTION.len(), *HOSTILE_DESCRIPTION);
    fs::write(folder.path().join(HOSTILE_NAME), image).unwrap();
    let out = folder.path().join("sheet.html");
    let mut command = Command::new(program);
    command.args(["inspect", "--quiet", "--contact-sheet"]).arg(&out);
    let output = command.arg(folder.path().join(HOSTILE_NAME)).arg(fixtures.join("bad/html.jpg")).output().unwrap();
    (fs::read_to_string(out).unwrap(), output.status.code())
}

fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!(" {name}=\"");
    html.split(start.as_str()).skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

#[test]
fn sheet_asks_for_nothing_and_runs_nothing() {
    let (html, code) = sheet();
    assert_eq!(code, Some(3));
    assert!(html.contains("content=\"default-src 'none'; img-src data:; style-src 'nonce-"));
    let lower = html.to_lowercase();
    let active = ["http:", "https:", "<script", "javascript:", "<iframe", "<object", "<link", "@import", "url("];
    assert_eq!(active.iter().filter(|word| lower.contains(**word)).collect::<Vec<_>>(), Vec::<&&str>::new());
    assert!(attributes(&html, "src").iter().all(|source| source.starts_with("data:image/png;base64,")));
    assert!(attributes(&html, "href").iter().all(|target| target.starts_with('#')));
}

#[test]
fn what_an_image_and_its_name_say_is_text() {
    let (html, _) = sheet();
    assert!(html.contains("&quot;&gt;&lt;svg onload=alert(1)&gt;&amp;&#39;"));
    assert!(html.contains("&quot;&gt;&lt;script&gt;alert(1)&lt;b&gt;&#39;.jpg"));
    assert!(!html.contains("<svg onload") && !html.contains("<b>'"));
}

#[test]
fn sheet_holds_both_thumbnails_the_gamut_and_the_findings() {
    let (html, _) = sheet();
    let pictures = attributes(&html, "src");
    assert_eq!((pictures.len(), pictures[0] == pictures[1]), (2, false));
    assert!(html.contains("<figcaption>Before</figcaption>") && html.contains("<figcaption>After</figcaption>"));
    assert!(html.contains("class=\"gamut\"") && html.contains("<code>orientation_applied</code>"));
    assert!(html.contains("not decoded") && html.contains("not_an_image: "));
}

#[test]
fn every_picture_and_drawing_has_a_text() {
    let (html, _) = sheet();
    assert_eq!(html.matches("<img alt=\"").count(), html.matches("<img").count());
    assert_eq!(html.matches("<svg viewBox").count(), html.matches("<title id=\"gamut-").count());
}
