//! `refmill inspect` from outside: exit codes, order, and what is shown. Needs the worker beside the program.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use refmill::report::Report;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name)
}

fn inspect(arguments: &[&str], files: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_refmill"));
    assert!(program.with_file_name("refmill-worker").is_file(), "build the worker first");
    let files = files.iter().map(|name| fixture(name));
    Command::new(program).arg("inspect").args(arguments).args(files).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn sound_image_is_one_line_and_exit_code_0() {
    let output = inspect(&[], &["images/orientation6.jpg"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).ends_with("orientation6.jpg  JPEG 48 x 32, turned from 6, sRGB IEC 61966-2-1\n"));
    assert_eq!(text(&output.stderr).lines().last(), Some("1 sound, 0 with a defect, 0 rejected"));
}

#[test]
fn defect_is_a_table_and_exit_code_1() {
    let output = inspect(&[], &["images/orientation1.jpg", "defects/orientation_invalid.jpg"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    assert!(shown.contains("defect    orientation_invalid") && shown.contains("9 \u{2192} 1"), "{shown}");
}

#[test]
fn rejected_image_is_exit_code_3_whatever_follows() {
    let output = inspect(&[], &["bad/html.jpg", "images/orientation1.jpg"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stdout).starts_with("reject"));
}

#[test]
fn strict_rejects_a_defect_and_a_policy_lets_it_pass() {
    let file = ["defects/crc.png"];
    assert_eq!(inspect(&["--strict"], &file).status.code(), Some(3));
    let ignored = inspect(&["--strict", "--policy", "checksum_mismatch=ignore"], &file);
    assert_eq!(ignored.status.code(), Some(0));
}

#[test]
fn unknown_policy_is_exit_code_2() {
    assert_eq!(inspect(&["--policy", "nonsense=ignore"], &["defects/crc.png"]).status.code(), Some(2));
}

#[test]
fn json_has_one_report_a_line_in_the_order_of_the_files() {
    let files = ["defects/crc.png", "bad/zip.jpg", "images/orientation6.jpg", "defects/exif_loop.jpg"];
    let output = inspect(&["--json", "--hash", "--workers", "2"], &files);
    let reports: Vec<Report> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<bool> = reports.iter().zip(files).map(|(report, name)| report.source.name.ends_with(name)).collect();
    assert_eq!(names, [true; 4]);
    assert!(reports.iter().all(|report| report.artifacts.is_empty() && report.source.blake3.len() == 64));
}

#[test]
fn quiet_shows_defects_alone() {
    let output = inspect(&["--quiet"], &["images/orientation1.jpg", "defects/crc.png"]);
    assert_eq!((text(&output.stdout).lines().count(), text(&output.stderr)), (3, ""));
}

#[test]
fn cut_image_is_rejected_without_decoding_it() {
    let output = inspect(&[], &["bad/truncated.jpg", "bad/truncated.png"]);
    let shown = text(&output.stdout);
    assert_eq!((output.status.code(), shown.matches("fatal     truncated").count()), (Some(3), 2), "{shown}");
}
