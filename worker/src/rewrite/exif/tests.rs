use super::*;

/// IFD0 with orientation, Exif and GPS pointers; GPS with a latitude outside of its entry; a maker note whose place
/// matters. Offsets: IFD0 8..50, Exif IFD 50..80, GPS 80..98, latitude 98..122, note 122..132.
fn block(orientation: [u8; 12]) -> Vec<u8> {
    let ifd0 = [
        b"\0\x03".as_slice(),
        &orientation,
        b"\x87\x69\0\x04\0\0\0\x01\0\0\0\x32",
        b"\x88\x25\0\x04\0\0\0\x01\0\0\0\x50",
        &[0; 4],
    ];
    let exif =
        [b"\0\x02".as_slice(), b"\x92\x7c\0\x07\0\0\0\x0a\0\0\0\x7a", b"\xa0\x01\0\x03\0\0\0\x01\0\x02\0\0", &[0; 4]];
    let gps = [b"\0\x01\0\x02\0\x05\0\0\0\x03\0\0\0\x62\0\0\0\0".as_slice(), &[7; 24]];
    [b"MM\0*\0\0\0\x08".as_slice(), &ifd0.concat(), &exif.concat(), &gps.concat(), b"Maker note"].concat()
}

const SIX: [u8; 12] = *b"\x01\x12\0\x03\0\0\0\x01\0\x06\0\0";
const NINE: [u8; 12] = *b"\x01\x12\0\x03\0\0\0\x01\0\x09\0\0";

fn truth(orientation: u8, strip: Strip) -> Truth {
    Truth { orientation, color_space: None, dimensions: None, strip, room: 60_000 }
}

fn mended(bytes: &[u8], truth: Truth) -> Fate {
    let block = Block::made("APP1", None, bytes);
    mend(&[block], truth).fate
}

fn replaced(bytes: &[u8], truth: Truth) -> Vec<u8> {
    match mended(bytes, truth) {
        Fate::Replace(new) => new,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sound_block_is_kept() {
    assert_eq!(mended(&block(SIX), truth(6, Strip::Nothing)), Fate::Keep);
}

#[test]
fn orientation_invalid_is_changed_where_it_stands() {
    let new = replaced(&block(NINE), truth(1, Strip::Nothing));
    assert_eq!(new, block(*b"\x01\x12\0\x03\0\0\0\x01\0\x01\0\0"));
}

#[test]
fn orientation_of_another_type_becomes_a_short() {
    let new = replaced(&block(*b"\x01\x12\0\x04\0\0\0\x01\0\0\0\x06"), truth(6, Strip::Nothing));
    assert_eq!(new, block(SIX));
}

#[test]
fn color_space_is_changed_where_it_stands() {
    let wanted = Truth { color_space: Some(65_535), ..truth(6, Strip::Nothing) };
    let new = replaced(&block(SIX), wanted);
    assert_eq!(new.iter().zip(block(SIX)).filter(|(a, b)| **a != *b).count(), 2);
    assert_eq!(new.len(), block(SIX).len());
}

#[test]
fn gps_goes_with_its_bytes_and_the_maker_note_stays_in_place() {
    let new = replaced(&block(SIX), truth(6, Strip::Gps));
    assert_eq!(new.len(), block(SIX).len());
    assert!(!new.windows(4).any(|window| window == [7; 4]) && !has_gps(&new));
    assert_eq!(&new[122..], b"Maker note");
    assert_eq!(mended(&new, truth(6, Strip::Gps)), Fate::Keep);
}

#[test]
fn private_tags_go_and_the_rest_is_built_anew() {
    let new = replaced(&block(SIX), truth(6, Strip::Private));
    assert!(!new.windows(5).any(|window| window == b"Maker") && !new.contains(&7));
    assert_eq!(mended(&new, truth(6, Strip::Private)), Fate::Keep);
}

#[test]
fn exif_duplicate_block_leaves_the_first_readable_one() {
    let places = [b"garbage".to_vec(), block(SIX), block(NINE)];
    let blocks = places.each_ref().map(|bytes| Block::made("APP1", None, bytes.as_slice()));
    let outcome = mend(&blocks, truth(6, Strip::Nothing));
    assert_eq!((outcome.chosen, outcome.fate), (Some(1), Fate::Keep));
    assert_eq!(outcome.repairs[0].code, FindingCode::ExifDuplicate);
}

#[test]
fn exif_loop_is_cut_and_what_was_readable_kept() {
    let mut looped = block(SIX);
    looped[49] = 8;
    let new = replaced(&looped, truth(6, Strip::Nothing));
    assert_eq!(defects(&new), []);
    assert!(has_gps(&new) && new.contains(&7));
}

#[test]
fn exif_corrupt_value_outside_the_block_is_dropped() {
    let mut cut = block(SIX);
    cut.truncate(125);
    let new = replaced(&cut, truth(6, Strip::Nothing));
    assert_eq!(defects(&new), []);
    assert!(has_gps(&new));
}

#[test]
fn all_leaves_nothing_but_the_orientation() {
    let new = replaced(&block(SIX), truth(6, Strip::All));
    assert_eq!(mended(&new, truth(6, Strip::All)), Fate::Keep);
    assert_eq!(mended(&block(SIX), truth(1, Strip::All)), Fate::Drop);
}
