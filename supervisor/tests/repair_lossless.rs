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

/// What exiv2, which shares no code with either, complains about; offsets and sizes in it move.
fn grumbles(path: &Path) -> BTreeSet<String> {
    let output = Command::new("exiv2").args(["-pa"]).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = said.lines().filter(|line| line.starts_with("Error") || line.starts_with("Warning"));
    said.map(|line| line.replace(|c: char| c.is_ascii_digit(), "")).collect()
}

/// Whether both readers are there; in CI they have to be.
fn has_readers() -> bool {
    let is_there = |name: &str, option: &str| Command::new(name).arg(option).output().is_ok();
    let both = is_there("exiftool", "-ver") && is_there("exiv2", "--version");
    assert!(
        both || std::env::var_os("CI").is_none(),
        "CI is to run this test: install libimage-exiftool-perl and exiv2"
    );
    if !both {
        println!("skipped: exiftool or exiv2 is missing");
    }
    both
}

/// Repairs the files, and gives for each that was changed its path before and after.
fn changed(folder: &Path, files: &[PathBuf], strip: Option<&str>) -> Vec<(PathBuf, PathBuf)> {
    let mut arguments: Vec<&str> = files.iter().map(|path| path.to_str().unwrap()).collect();
    arguments.extend(["--out", "fixed", "--json"]);
    arguments.extend(strip.iter().flat_map(|strip| ["--strip", *strip]));
    let output = repair(folder, &arguments);
    let reports = String::from_utf8(output.stdout).unwrap();
    let reports = reports.lines().map(|line| serde_json::from_str::<Report>(line).unwrap());
    reports
        .filter_map(|report| {
            let artifact = report.artifacts.first()?;
            (artifact.blake3 != report.source.blake3)
                .then(|| (PathBuf::from(&report.source.name), folder.join(&artifact.path)))
        })
        .collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn exiftool_and_exiv2_have_nothing_new_to_complain_about() {
    if !has_readers() {
        return;
    }
    let fixtures = [entries(&fixtures().join("images")), entries(&fixtures().join("defects"))].concat();
    let corpus = entries(&fixtures_root().join("../shared/corpus/files"));
    let rounds = [None, Some("gps"), Some("private"), Some("all")].map(|strip| (strip, fixtures.clone()));
    let mut seen = 0;
    for (strip, files) in rounds.into_iter().chain([(None, corpus)]).filter(|(_, files)| !files.is_empty()) {
        let folder = tempfile::tempdir().unwrap();
        for (before, after) in changed(folder.path(), &files, strip) {
            seen += 1;
            let new = complaints(&after).difference(&complaints(&before)).cloned().collect::<Vec<_>>();
            assert!(new.is_empty(), "exiftool, {} {strip:?}: {new:?}", after.display());
            let new = grumbles(&after).difference(&grumbles(&before)).cloned().collect::<Vec<_>>();
            assert!(new.is_empty(), "exiv2, {} {strip:?}: {new:?}", after.display());
        }
    }
    assert!(seen >= 200, "{seen} files were changed");
}

fn fixtures_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn broken_exif_is_sound_for_both_readers_once_it_is_mended() {
    if !has_readers() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let names = entries(&fixtures().join("defects"));
    let broken = names.into_iter().filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("exif_") && [".jpg", ".png", ".webp"].iter().any(|end| name.ends_with(end))
    });
    let broken: Vec<PathBuf> = broken.collect();
    let mended = changed(folder.path(), &broken, None);
    assert_eq!(mended.len(), broken.len());
    for (_, after) in mended {
        assert_eq!(grumbles(&after), BTreeSet::new(), "{}", after.display());
        // What EXIF wants to be there and is not is nothing that a repair may make up.
        let left: Vec<String> =
            complaints(&after).into_iter().filter(|text| !text.contains("Missing required")).collect();
        assert!(left.is_empty(), "{}: {left:?}", after.display());
    }
}

/// The GPS tags that exiftool finds in a file, and in the second picture of it.
fn positions(path: &Path) -> (String, String) {
    let run = |arguments: &[&str], path: &Path| Command::new("exiftool").args(arguments).arg(path).output().unwrap();
    let own = run(&["-a", "-G1", "-s", "-GPS:all", "-XMP:GPS*"], path).stdout;
    let second = run(&["-b", "-MPImage2"], path).stdout;
    let picture = path.with_extension("second.jpg");
    fs::write(&picture, second).unwrap();
    let further = run(&["-a", "-G1", "-s", "-GPS:all"], &picture).stdout;
    (String::from_utf8(own).unwrap(), String::from_utf8(further).unwrap())
}

#[test]
fn position_goes_from_every_picture_and_is_listed() {
    if !has_readers() {
        return;
    }
    let folder = copied(&["images/gps_mpf.jpg"]);
    let (own, further) = positions(&folder.path().join("gps_mpf.jpg"));
    assert!(own.contains("GPSLatitude") && further.contains("GPSLatitude"), "{own}{further}");
    let output = repair(folder.path(), &["gps_mpf.jpg", "--strip", "gps", "--out", "fixed", "--json"]);
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    let listed: Vec<&str> = report.repairs.iter().map(|repair| repair.before.as_str()).collect();
    assert_eq!(listed, ["GPS IFD with 3 tags", "GPS in the EXIF of picture 2"]);
    let (own, further) = positions(&folder.path().join("fixed/gps_mpf.jpg"));
    assert_eq!((own.as_str(), further.as_str()), ("", ""));
    // The second picture is still there, and the index still leads to it.
    let second = fs::read(folder.path().join("fixed/gps_mpf.second.jpg")).unwrap();
    assert!(second.starts_with(b"\xff\xd8\xff") && second.ends_with(b"\xff\xd9"), "{} bytes", second.len());
}
