//! Lossless repair, on the fixtures, on the corpus where it is there, and on generated defects: pixels stay, a second
//! repair changes nothing, and an inspection of what came out finds no defect any more.

use std::fs;
use std::path::{Path, PathBuf};

use refmill::finding::FindingCode;
use refmill::job::Strip;
use refmill::limits::Limits;
use refmill::report::Format;
use refmill_worker::decode::{Decoders, Pixels};
use refmill_worker::repair::Repaired;
use refmill_worker::{inspect, open, repair, rewrite};

const STRIPS: [Strip; 4] = [Strip::Nothing, Strip::Gps, Strip::Private, Strip::All];

fn decided(bytes: &[u8]) -> Option<Repaired<'_>> {
    let limits = Limits::default();
    let opened = open::open(bytes, &limits).ok()?;
    let inspected = inspect::inspect(opened, "", &limits, &mut Vec::new()).ok()?;
    inspected.container.cut.is_none().then(|| repair::repair(inspected, &mut Vec::new(), &mut Vec::new()))
}

fn repaired(bytes: &[u8], strip: Strip) -> Option<Vec<u8>> {
    let decided = decided(bytes)?;
    let mut out = Vec::new();
    let written = rewrite::lossless(&decided, strip, &mut out).ok()?;
    assert_eq!(written, out.len() as u64);
    Some(out)
}

fn pixels(bytes: &[u8]) -> Option<(Pixels, Option<Vec<u8>>)> {
    let decoded = Decoders::default().decode(decided(bytes)?, &Limits::default(), &mut Vec::new()).ok()?;
    Some((decoded.pixels, decoded.alpha))
}

fn is_rewritten(bytes: &[u8]) -> bool {
    decided(bytes).is_some_and(|d| matches!(d.opened.format, Format::Jpeg | Format::Png | Format::Webp))
}

/// Everything that is promised of one file, and whether it was rewritten at all.
fn check(name: &Path, bytes: &[u8], strip: Strip) -> bool {
    let Some(once) = repaired(bytes, strip) else { return false };
    let twice = repaired(&once, strip).unwrap_or_else(|| panic!("{}: its repair cannot be repaired", name.display()));
    assert!(once == twice, "{} {strip:?}: a second repair changes {} bytes to {}", name.display(), once.len(), twice.len());
    let (before, after) = (decided(bytes).unwrap(), decided(&once).unwrap());
    assert_eq!(before.orientation, after.orientation, "{} {strip:?}", name.display());
    // What nothing can know is left: the bytes of a chunk of pixels whose checksum is wrong.
    let left: Vec<_> = after.defects.iter().filter(|code| **code != FindingCode::ChecksumMismatch).collect();
    assert!(left.is_empty(), "{} {strip:?}: {left:?} is left", name.display());
    assert_eq!(pixels(bytes), pixels(&once), "{} {strip:?}: other pixels", name.display());
    once != bytes
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

fn check_all(files: &[PathBuf], strips: &[Strip]) -> (usize, usize) {
    let (mut seen, mut changed) = (0, 0);
    for path in files {
        let bytes = fs::read(path).unwrap();
        if is_rewritten(&bytes) {
            seen += 1;
            for strip in strips {
                changed += usize::from(check(path, &bytes, *strip));
            }
        }
    }
    (seen, changed)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

#[test]
fn fixtures_are_repaired_for_good() {
    let all = ["images", "defects"].map(|folder| files(&repository().join("fixtures").join(folder))).concat();
    let (seen, changed) = check_all(&all, &STRIPS);
    assert!(seen >= 25 && changed >= 12, "{seen} files were seen, {changed} changed");
}

#[test]
fn corpus_is_repaired_for_good() {
    let all = [repository().join("shared/corpus/files"), repository().join("../shared/corpus/files")];
    let all = all.map(|folder| files(&folder)).concat();
    if all.is_empty() {
        println!("skipped: there is no ../shared/corpus");
        return;
    }
    let (seen, changed) = check_all(&all, &STRIPS);
    assert!(seen >= 100 && changed >= 100, "{seen} files were seen, {changed} changed");
}

#[test]
fn sound_files_come_out_byte_for_byte() {
    let images = files(&repository().join("fixtures/images"));
    let sound: Vec<_> = images
        .iter()
        .map(|path| fs::read(path).unwrap())
        .filter(|bytes| decided(bytes).is_some_and(|d| d.defects.is_empty() && d.meaning.name() != "adobe_rgb"))
        .collect();
    assert!(sound.len() >= 20, "{} sound files", sound.len());
    assert!(sound.iter().all(|bytes| repaired(bytes, Strip::Nothing).as_ref() == Some(bytes)));
}
