//! `refmill inspect` from outside: exit codes, order, and what is shown. Needs the worker beside the program.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use refmill::finding::{FindingCode, Severity};
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

#[test]
fn quick_look_finds_what_is_no_pixel_and_names_what_it_did_not_look_for() {
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large.png");
    // 100 KiB of pixels, their checksum wrong; behind them an EXIF block that says orientation 9.
    let chunk = |kind: &[u8], data: &[u8], crc: u32| {
        [&u32::try_from(data.len()).unwrap().to_be_bytes(), kind, data, &crc.to_be_bytes()].concat()
    };
    let exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x09\0\0\0\0\0\0";
    let file = [
        b"\x89PNG\r\n\x1a\n".to_vec(),
        chunk(b"IHDR", b"\0\0\0\x10\0\0\0\x10\x08\x02\0\0\0", 0x9091_6836),
        chunk(b"IDAT", &vec![7; 100 << 10], 0),
        chunk(b"eXIf", exif, crc(b"eXIf", exif)),
        chunk(b"IEND", b"", 0xae42_6082),
    ];
    std::fs::write(&large, file.concat()).unwrap();
    let codes = |arguments: &[&str]| {
        let output = inspect(arguments, &[large.to_str().unwrap()]);
        let report: Report = serde_json::from_slice(&output.stdout).unwrap();
        let defects = report.findings.iter().filter(|finding| finding.severity > Severity::Info);
        let defects: Vec<FindingCode> = defects.map(|finding| finding.code).collect();
        (defects, report.not_looked_for)
    };
    let (checksum, orientation) = (FindingCode::ChecksumMismatch, FindingCode::OrientationInvalid);
    assert_eq!(codes(&["--json"]), (vec![checksum, orientation], vec![]));
    assert_eq!(codes(&["--json", "--quick"]), (vec![orientation], vec![checksum]));
    let shown = inspect(&["--quick"], &[large.to_str().unwrap()]).stdout;
    assert!(text(&shown).lines().next().unwrap().ends_with(", headers only"), "{}", text(&shown));
}

/// CRC-32 of a PNG chunk.
fn crc(kind: &[u8], data: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    let bytes = kind.iter().chain(data);
    !bytes.fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn quick_look_at_what_is_no_file_is_refused_as_ever() {
    let output = inspect(&["--quick"], &["no/such.png", "bad/empty.jpg", "images/orientation1.jpg"]);
    let shown = text(&output.stdout);
    assert!(shown.contains("cannot read") && shown.contains("has no bytes"), "{shown}");
}
