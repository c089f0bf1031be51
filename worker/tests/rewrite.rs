//! Lossless repair, on the fixtures, on the corpus where it is there, and on generated defects: pixels stay, a second
//! repair changes nothing, and an inspection of what came out finds no defect any more.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

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
    assert!(
        once == twice,
        "{} {strip:?}: a second repair changes {} bytes to {}",
        name.display(),
        once.len(),
        twice.len()
    );
    let (before, after) = (decided(bytes).unwrap(), decided(&once).unwrap());
    assert_eq!(before.orientation, after.orientation, "{} {strip:?}", name.display());
    // What nothing can know is left: the bytes of a chunk of pixels whose checksum is wrong.
    let left: Vec<_> = after.defects.iter().filter(|code| **code != FindingCode::ChecksumMismatch).collect();
    assert!(left.is_empty(), "{} {strip:?}: {left:?} is left", name.display());
    // Not assert_eq: it would print every pixel.
    let same = pixels(bytes).is_none_or(|pixels_before| pixels(&once) == Some(pixels_before));
    assert!(same, "{} {strip:?}: other pixels", name.display());
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
    println!("{seen} files, {changed} changes");
    assert!(seen >= 100 && changed >= 100, "{seen} files were seen, {changed} changed");
}

/// A small generator of numbers (Knuth's MMIX constants): the same damage in every run.
struct Damage(u64);

impl Damage {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    /// One to four bytes of the first `reach` changed, or a stretch of them taken out or doubled.
    fn done_to(&mut self, bytes: &[u8], reach: usize) -> Vec<u8> {
        let (mut out, reach) = (bytes.to_vec(), reach.min(bytes.len()));
        let (at, length) = (self.below(reach), 1 + self.below(24));
        match self.below(8) {
            0 => drop(out.drain(at..(at + length).min(reach))),
            1 => drop(out.splice(at..at, bytes[at..(at + length).min(reach)].to_vec())),
            _ => (0..1 + self.below(4)).for_each(|_| out[self.below(reach)] = [0, 1, 2, 8, 255, 0x2a][self.below(6)]),
        }
        out
    }
}

/// A WebP with a profile and EXIF in front of its picture.
fn tagged_webp() -> Vec<u8> {
    let plain = fs::read(repository().join("fixtures/images/rgba.webp")).unwrap();
    let chunk = |kind: &[u8; 4], data: &[u8]| {
        let length = u32::try_from(data.len()).unwrap().to_le_bytes();
        [kind.as_slice(), &length, data, &[0][..data.len() % 2]].concat()
    };
    let exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let profile = rewrite::profiles::adobe_rgb(rewrite::profiles::Version::V4);
    let chunks = [chunk(b"VP8X", &[0x38, 0, 0, 0, 47, 0, 0, 31, 0, 0]), chunk(b"ICCP", &profile), chunk(b"EXIF", exif)];
    let body = [b"WEBP".as_slice(), &chunks.concat(), &plain[12..]].concat();
    [b"RIFF".as_slice(), &u32::try_from(body.len()).unwrap().to_le_bytes(), &body].concat()
}

/// Where the coded picture begins: what lies behind it is no metadata.
fn picture_at(bytes: &[u8]) -> usize {
    let signs: [&[u8]; 4] = [b"\xff\xdb", b"IDAT", b"VP8 ", b"VP8L"];
    signs.iter().filter_map(|sign| bytes.windows(sign.len()).position(|window| window == *sign)).min().unwrap() - 4
}

#[test]
fn damaged_metadata_is_repaired_for_good() {
    let names = ["images/orientation6", "images/adobe_r03", "images/p3_orientation6", "defects/orientation_conflict"];
    let more =
        ["defects/icc_chunks_reversed", "defects/exif_loop"].iter().chain(&names).map(|name| format!("{name}.jpg"));
    let names = more.chain(["images/p3.png", "defects/crc.png", "defects/icc_broken.png"].map(str::to_owned));
    let fixtures = names.map(|name| (fs::read(repository().join("fixtures").join(&name)).unwrap(), name));
    let mut damage = Damage(1);
    let mut changed = 0;
    for (bytes, name) in fixtures.chain([(tagged_webp(), "tagged.webp".to_owned())]) {
        for round in 0..600 {
            let damaged = damage.done_to(&bytes, picture_at(&bytes).min(if round % 2 == 0 { 160 } else { 2000 }));
            if is_rewritten(&damaged) {
                let name = PathBuf::from(format!("{name} round {round}"));
                changed += usize::from(check(&name, &damaged, STRIPS[round % 4]));
            }
        }
    }
    assert!(changed > 1000, "{changed} changed");
}

/// Whether something is said twice, or of another size: no defect, and made true all the same.
fn is_contradictory(bytes: &[u8]) -> bool {
    let (limits, mut findings) = (Limits::default(), Vec::new());
    let inspected = inspect::inspect(open::open(bytes, &limits).unwrap(), "", &limits, &mut findings).unwrap();
    drop(repair::repair(inspected, &mut findings, &mut Vec::new()));
    let codes = [FindingCode::PngColourPrecedence, FindingCode::DimensionTagMismatch];
    findings.iter().any(|finding| codes.contains(&finding.code))
}

#[test]
fn sound_files_come_out_byte_for_byte() {
    let images = files(&repository().join("fixtures/images"));
    let sound: Vec<_> = images
        .iter()
        .map(|path| fs::read(path).unwrap())
        .filter(|bytes| decided(bytes).is_some_and(|d| d.defects.is_empty() && d.meaning.name() != "adobe_rgb"))
        .filter(|bytes| !is_contradictory(bytes))
        .collect();
    assert!(sound.len() >= 80, "{} sound files", sound.len());
    let changed = sound.iter().filter(|bytes| repaired(bytes, Strip::Nothing).as_ref() != Some(bytes)).count();
    assert_eq!(changed, 0);
}

#[test]
fn sound_profile_behind_a_broken_one_stays() {
    let read = |name: &str| fs::read(repository().join("fixtures").join(name)).unwrap();
    let (sound, broken) = (read("images/p3.png"), read("defects/icc_zlib.png"));
    let start = broken.windows(4).position(|window| window == b"iCCP").unwrap() - 4;
    let length = u32::from_be_bytes(broken[start..start + 4].try_into().unwrap());
    let chunk = &broken[start..start + 12 + usize::try_from(length).unwrap()];
    let both = [&sound[..33], chunk, &sound[33..]].concat();
    assert_eq!(decided(&both).unwrap().meaning.name(), decided(&sound).unwrap().meaning.name());
    assert!(check(Path::new("both.png"), &both, Strip::Nothing));
    assert_eq!(repaired(&both, Strip::Nothing).unwrap(), repaired(&sound, Strip::Nothing).unwrap());
}
