//! `refmill repair` without conversion, from outside: what is written where, and what exiftool says about it. Needs
//! the worker beside the program.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use refmill::report::Report;
use tempfile::TempDir;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

fn repair(folder: &Path, arguments: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_refmill"));
    assert!(program.with_file_name("refmill-worker").is_file(), "build the worker first");
    Command::new(program).current_dir(folder).arg("repair").args(arguments).output().unwrap()
}

fn copied(names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        fs::copy(fixtures().join(name), folder.path().join(Path::new(name).file_name().unwrap())).unwrap();
    }
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn folder_gets_each_file_under_its_true_extension_and_a_report() {
    let folder = copied(&["images/png_named.jpg", "defects/exif_loop.jpg", "images/plain.bmp"]);
    let output = repair(folder.path(), &[".", "--out", "fixed"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let wanted = [
        "exif_loop.jpg",
        "exif_loop.report.json",
        "plain.bmp",
        "plain.report.json",
        "png_named.png",
        "png_named.report.json",
    ];
    assert_eq!(names(&folder.path().join("fixed")), wanted);
    let report: Report =
        serde_json::from_slice(&fs::read(folder.path().join("fixed/exif_loop.report.json")).unwrap()).unwrap();
    assert_eq!(report.repairs.len(), 1);
    let again = repair(folder.path(), &[".", "--out", "fixed"]);
    assert_eq!((again.status.code(), names(&folder.path().join("fixed")).len()), (Some(0), 6), "{again:?}");
}

#[test]
fn input_beside_its_repair_is_not_written_over() {
    let folder = copied(&["defects/exif_loop.jpg"]);
    assert_eq!(repair(folder.path(), &["exif_loop.jpg", "--out", "."]).status.code(), Some(0));
    assert_eq!(names(folder.path()), ["exif_loop.jpg", "exif_loop.jpg.jpg", "exif_loop.jpg.report.json"]);
    assert_eq!(
        fs::read(folder.path().join("exif_loop.jpg")).unwrap(),
        fs::read(fixtures().join("defects/exif_loop.jpg")).unwrap()
    );
}

#[test]
fn file_that_refmill_did_not_make_is_not_replaced() {
    let folder = copied(&["defects/exif_loop.jpg"]);
    fs::create_dir(folder.path().join("fixed")).unwrap();
    fs::write(folder.path().join("fixed/exif_loop.jpg"), "mine").unwrap();
    let output = repair(folder.path(), &["exif_loop.jpg", "--out", "fixed"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(fs::read(folder.path().join("fixed/exif_loop.jpg")).unwrap(), b"mine");
}

#[test]
fn in_place_keeps_a_copy_of_what_it_replaces_and_touches_nothing_else() {
    let folder = copied(&["defects/exif_loop.jpg", "images/plain.jpg"]);
    let before = fs::read(folder.path().join("exif_loop.jpg")).unwrap();
    assert_eq!(repair(folder.path(), &["exif_loop.jpg", "plain.jpg", "--in-place"]).status.code(), Some(0));
    assert_eq!(names(folder.path()), ["exif_loop.jpg", "exif_loop.jpg.orig", "plain.jpg"]);
    assert_eq!(fs::read(folder.path().join("exif_loop.jpg.orig")).unwrap(), before);
    assert_ne!(fs::read(folder.path().join("exif_loop.jpg")).unwrap(), before);
    // What was repaired needs nothing, so the copy is not in the way.
    assert_eq!(repair(folder.path(), &["exif_loop.jpg", "--in-place"]).status.code(), Some(0));
}

#[test]
fn format_that_is_not_rewritten_is_copied_or_refused() {
    let folder = copied(&["images/orientation8.tif"]);
    assert_eq!(repair(folder.path(), &["orientation8.tif", "--out", "a"]).status.code(), Some(0));
    assert_eq!(
        fs::read(folder.path().join("a/orientation8.tif")).unwrap(),
        fs::read(folder.path().join("orientation8.tif")).unwrap()
    );
    let output = repair(folder.path(), &["orientation8.tif", "--out", "b", "--strip", "gps"]);
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("lossless repair of TIFF is not available; use --convert"), "{said}");
}

/// What exiftool complains about.
fn complaints(path: &Path) -> BTreeSet<String> {
    let output =
        Command::new("exiftool").args(["-validate", "-warning", "-error", "-a", "-s3"]).arg(path).output().unwrap();
    // The first line counts the warnings that follow.
    String::from_utf8_lossy(&output.stdout).lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn exiftool_has_nothing_new_to_complain_about() {
    if Command::new("exiftool").arg("-ver").output().is_err() {
        assert!(
            std::env::var_os("CI").is_none(),
            "exiftool is missing, and CI is to run this test: install libimage-exiftool-perl"
        );
        println!("skipped: exiftool is missing");
        return;
    }
    let mut changed = 0;
    for strip in [None, Some("gps"), Some("private"), Some("all")] {
        let folder = tempfile::tempdir().unwrap();
        let (images, defects) = (fixtures().join("images"), fixtures().join("defects"));
        let mut arguments = vec![images.to_str().unwrap(), defects.to_str().unwrap(), "--out", "fixed", "--json"];
        arguments.extend(strip.iter().flat_map(|strip| ["--strip", *strip]));
        let output = repair(folder.path(), &arguments);
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let report: Report = serde_json::from_str(line).unwrap();
            let Some(artifact) = report.artifacts.first().filter(|artifact| artifact.blake3 != report.source.blake3)
            else {
                continue;
            };
            changed += 1;
            let before = complaints(Path::new(&report.source.name));
            let new: Vec<String> =
                complaints(&folder.path().join(&artifact.path)).difference(&before).cloned().collect();
            assert!(new.is_empty(), "{} {strip:?}: {new:?}", artifact.path);
        }
    }
    assert!(changed >= 40, "{changed} files were changed");
}
