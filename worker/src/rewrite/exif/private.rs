//! What of an EXIF block tells of a person, a place or a single camera.

use refmill::job::Strip;

use super::{GPS_IFD, rebuild};
use crate::ifd::Tiff;

/// Owner, serial numbers, artist, Windows' author and maker notes, by their names in CIPA DC-008 and in DNG.
const TAGS: [(u16, &str); 8] = [
    (0xa430, "CameraOwnerName"),
    (0xa431, "BodySerialNumber"),
    (0xa435, "LensSerialNumber"),
    (0xc62f, "CameraSerialNumber"),
    (0x013b, "Artist"),
    (0x9c9d, "XPAuthor"),
    (0x927c, "MakerNote"),
    (0xc634, "DNGPrivateData"),
];

/// Whether the tag is one of them.
pub fn is_private(tag: u16) -> bool {
    TAGS.iter().any(|(private, _)| *private == tag)
}

/// What goes from the block, by name.
pub fn goes(bytes: &[u8], strip: Strip) -> Vec<String> {
    let Some(tiff) = Tiff::new(bytes).filter(|_| strip != Strip::Nothing) else { return Vec::new() };
    let (chain, _) = tiff.chain();
    let Some(first) = chain.first() else { return Vec::new() };
    let mut names = Vec::new();
    if let Some(entry) = first.find(GPS_IFD) {
        let tags = entry.number(0).and_then(|at| tiff.ifd(at)).map_or(0, |gps| gps.entries.len());
        names.push(format!("GPS IFD with {tags} tags"));
    }
    if strip == Strip::Gps {
        return names;
    }
    let inner = first.find(rebuild::EXIF_IFD).and_then(|entry| tiff.ifd(entry.number(0)?));
    let entries = || chain.iter().chain(&inner).flat_map(|ifd| &ifd.entries);
    let found = TAGS.iter().filter(|(tag, _)| entries().any(|entry| entry.tag == *tag));
    names.extend(found.map(|(tag, name)| format!("{name} (tag 0x{tag:04X})")));
    if chain.len() > 1 {
        names.push("thumbnail in IFD1".into());
    }
    names
}
