//! ICC profiles of our own making (ICC.1:2022, and ICC.1:2001-04 for version 2): sRGB, a profile compatible with
//! Adobe RGB (1998), and gray. Small enough to sit in any picture; made from figures, never copied from a file.

/// Versions of the profile format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 2.4: curves are tables; what every reader takes.
    V2,
    /// 4.4: curves are formulas.
    V4,
}

/// A transfer curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    /// IEC 61966-2-1.
    Srgb,
    /// Adobe RGB (1998) 4.3.1.2: the power 2 51/256.
    AdobeRgb,
}

/// D50 as the header wants it (ICC.1:2022 7.2.16).
const D50: [u32; 3] = [0xf6d6, 0x1_0000, 0xd32d];
/// BT.709 primaries under D65, adapted to D50 by Bradford; the columns add up to D50.
const BT709: [[u32; 3]; 3] = [[0x6fa2, 0x38f5, 0x0390], [0x6299, 0xb785, 0x18da], [0x249b, 0x0f86, 0xb6c3]];
/// Adobe RGB (1998) 4.3.1.1 under D65, adapted likewise.
const ADOBE: [[u32; 3]; 3] = [[0x9c18, 0x4fa5, 0x04fc], [0x348d, 0xa02c, 0x0f95], [0x2631, 0x102f, 0xbe9c]];
/// Bradford from D65 to D50 (ICC.1:2022 annex E).
const CHAD: [i32; 9] =
    [0x0001_0c42, 0x0000_05de, -0x0000_0cdb, 0x0000_0793, 0x0000_fd90, -0x0000_045f, -0x0000_025e, 0x0000_03dc, 0xc06e];
/// One entry for each 8-bit code: what 8-bit pixels meet is exact.
const TABLE_ENTRIES: u16 = 256;

/// sRGB.
#[must_use]
pub fn srgb(version: Version) -> Vec<u8> {
    rgb(version, "sRGB", &BT709, Curve::Srgb)
}

/// Adobe RGB (1998), in another's words.
#[must_use]
pub fn adobe_rgb(version: Version) -> Vec<u8> {
    rgb(version, "Compatible with Adobe RGB (1998)", &ADOBE, Curve::AdobeRgb)
}

/// The neutral axis of sRGB or Adobe RGB.
#[must_use]
pub fn gray(version: Version, curve: Curve) -> Vec<u8> {
    let name = if curve == Curve::Srgb { "Gray, sRGB curve" } else { "Gray, gamma 2.2" };
    let mut tags = common(version, name);
    tags.push((b"kTRC", encoded(version, curve)));
    assemble(version, b"GRAY", tags)
}

type Tag = (&'static [u8; 4], Vec<u8>);

fn rgb(version: Version, name: &str, [red, green, blue]: &[[u32; 3]; 3], curve: Curve) -> Vec<u8> {
    let mut tags = common(version, name);
    tags.extend([(b"rXYZ", xyz(*red)), (b"gXYZ", xyz(*green)), (b"bXYZ", xyz(*blue))]);
    let curve = encoded(version, curve);
    tags.extend([b"rTRC", b"gTRC", b"bTRC"].map(|signature| (signature, curve.clone())));
    assemble(version, b"RGB ", tags)
}

fn common(version: Version, name: &str) -> Vec<Tag> {
    let text = |text: &str| if version == Version::V2 { description_v2(text) } else { localized(text) };
    let rights = "No rights reserved (CC0)";
    let copyright =
        if version == Version::V2 { [b"text\0\0\0\0", rights.as_bytes(), b"\0"].concat() } else { localized(rights) };
    let adaptation = CHAD.iter().flat_map(|value| value.to_be_bytes()).collect::<Vec<u8>>();
    vec![
        (b"desc", text(name)),
        (b"cprt", copyright),
        (b"wtpt", xyz(D50)),
        (b"chad", [b"sf32\0\0\0\0".as_slice(), &adaptation].concat()),
    ]
}

fn xyz(values: [u32; 3]) -> Vec<u8> {
    b"XYZ \0\0\0\0".iter().copied().chain(values.into_iter().flat_map(u32::to_be_bytes)).collect()
}

/// textDescriptionType (ICC.1:2001-04 6.5.17): ASCII alone, the Unicode and ScriptCode parts empty.
fn description_v2(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len() + 1).unwrap_or(1).to_be_bytes();
    [b"desc\0\0\0\0".as_slice(), &length, text.as_bytes(), &[0; 1 + 8 + 3 + 67]].concat()
}

/// multiLocalizedUnicodeType (ICC.1:2022 10.15): one record, en-US.
fn localized(text: &str) -> Vec<u8> {
    let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let length = u32::try_from(units.len()).unwrap_or(0).to_be_bytes();
    let head = b"mluc\0\0\0\0\0\0\0\x01\0\0\0\x0cenUS";
    [head.as_slice(), &length, &[0, 0, 0, 28], &units].concat()
}

fn encoded(version: Version, curve: Curve) -> Vec<u8> {
    match (version, curve) {
        // u8Fixed8: 2 51/256.
        (Version::V2, Curve::AdobeRgb) => b"curv\0\0\0\0\0\0\0\x01\x02\x33".to_vec(),
        (Version::V4, Curve::AdobeRgb) => b"para\0\0\0\0\0\0\0\0\0\x02\x33\0".to_vec(),
        (Version::V2, Curve::Srgb) => {
            let count = u32::from(TABLE_ENTRIES).to_be_bytes();
            let entries = (0..TABLE_ENTRIES).flat_map(|code| table_entry(code).to_be_bytes());
            b"curv\0\0\0\0".iter().copied().chain(count).chain(entries).collect()
        }
        // Function 3: g, a, b, c, d.
        (Version::V4, Curve::Srgb) => {
            let numbers = [2.4, 1.0 / 1.055, 0.055 / 1.055, 1.0 / 12.92, 0.04045].map(fixed);
            b"para\0\0\0\0\0\x03\0\0".iter().copied().chain(numbers.into_iter().flat_map(i32::to_be_bytes)).collect()
        }
    }
}

fn table_entry(code: u16) -> u16 {
    let value = f64::from(code) / f64::from(TABLE_ENTRIES - 1);
    let light = if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) };
    // Between 0 and 65535: the value is between 0 and 1.
    (light * 65_535.0).round() as u16
}

fn fixed(value: f64) -> i32 {
    (value * 65_536.0).round() as i32
}

/// Header, tag table and data; equal tags share their bytes.
fn assemble(version: Version, space: &[u8; 4], tags: Vec<Tag>) -> Vec<u8> {
    let mut data: Vec<u8> = Vec::new();
    let mut placed: Vec<(Vec<u8>, usize)> = Vec::new();
    let start = 128 + 4 + 12 * tags.len();
    let mut table = word(tags.len()).to_vec();
    for (signature, bytes) in tags {
        let shared = placed.iter().find(|(earlier, _)| *earlier == bytes).map(|(_, offset)| *offset);
        let offset = shared.unwrap_or_else(|| {
            let offset = start + data.len();
            data.extend_from_slice(&bytes);
            data.resize(data.len().next_multiple_of(4), 0);
            offset
        });
        table.extend([signature.as_slice(), &word(offset), &word(bytes.len())].concat());
        placed.push((bytes, offset));
    }
    [header(version, space, start + data.len()), table, data].concat()
}

fn word(value: usize) -> [u8; 4] {
    u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes()
}

/// ICC.1:2022 7.2. The date is fixed, so that one build makes the same bytes as another.
fn header(version: Version, space: &[u8; 4], size: usize) -> Vec<u8> {
    let number = if version == Version::V2 { [2, 0x40, 0, 0] } else { [4, 0x40, 0, 0] };
    let date = [0x07, 0xe8, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0];
    let white: Vec<u8> = D50.into_iter().flat_map(u32::to_be_bytes).collect();
    let mut header = [word(size).as_slice(), &[0; 4], &number, b"mntr", space, b"XYZ ", &date, b"acsp"].concat();
    header.resize(64, 0);
    header.extend([[0, 0, 0, 1].as_slice(), &white].concat());
    header.resize(128, 0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use lcms2::{Intent, PixelFormat, Profile, ToneCurve, Transform};

    fn all() -> Vec<Vec<u8>> {
        [Version::V2, Version::V4]
            .into_iter()
            .flat_map(|v| [srgb(v), adobe_rgb(v), gray(v, Curve::Srgb), gray(v, Curve::AdobeRgb)])
            .collect()
    }

    fn codes() -> Vec<[u8; 3]> {
        let steps = || (0..=255u8).step_by(15);
        steps().flat_map(|r| steps().flat_map(move |g| steps().map(move |b| [r, g, b]))).collect()
    }

    fn worst(from: &Profile, to: &Profile) -> u8 {
        let (format, intent) = (PixelFormat::RGB_8, Intent::RelativeColorimetric);
        let transform = Transform::new(from, format, to, format, intent).unwrap();
        let mut out = vec![[0u8; 3]; codes().len()];
        transform.transform_pixels(&codes(), &mut out);
        let pairs = codes().into_iter().flatten().zip(out.into_iter().flatten());
        pairs.map(|(a, b): (u8, u8)| a.abs_diff(b)).max().unwrap()
    }

    #[test]
    fn profiles_are_small_and_their_tables_hold() {
        for bytes in all() {
            assert!((300..3072).contains(&bytes.len()), "{}", bytes.len());
            assert_eq!(bytes.len() as u32, u32::from_be_bytes(bytes[..4].try_into().unwrap()));
            Profile::new_icc(&bytes).unwrap();
        }
    }

    #[test]
    fn profiles_pass_our_own_judgement() {
        use crate::container::Block;
        use refmill::report::Model;
        for bytes in all() {
            let model = if &bytes[16..20] == b"GRAY" { Model::Gray } else { Model::Rgb };
            let mut findings = Vec::new();
            let block = Block::made("", None, bytes.as_slice());
            assert!(crate::icc::judge(&block, model, &mut findings).is_some());
            assert_eq!(findings, []);
        }
    }

    #[test]
    fn srgb_is_the_one_of_lcms2_within_one_code() {
        for version in [Version::V2, Version::V4] {
            let ours = Profile::new_icc(&srgb(version)).unwrap();
            assert!(worst(&ours, &Profile::new_srgb()) <= 1);
            assert!(worst(&Profile::new_srgb(), &ours) <= 1);
        }
    }

    #[test]
    fn adobe_rgb_is_the_one_of_its_figures_within_one_code() {
        let point = |x, y| lcms2::CIExyY { x, y, Y: 1.0 };
        let (red, green, blue) = (point(0.64, 0.33), point(0.21, 0.71), point(0.15, 0.06));
        let primaries = lcms2::CIExyYTRIPLE { Red: red, Green: green, Blue: blue };
        let curve = ToneCurve::new(2.199_218_75);
        let theirs = Profile::new_rgb(&point(0.3127, 0.3290), &primaries, &[&curve, &curve, &curve]).unwrap();
        for version in [Version::V2, Version::V4] {
            assert!(worst(&Profile::new_icc(&adobe_rgb(version)).unwrap(), &theirs) <= 1);
        }
    }

    #[test]
    fn colorants_add_up_to_d50() {
        for colorants in [BT709, ADOBE] {
            let sum: Vec<u32> = (0..3).map(|axis| colorants.iter().map(|column| column[axis]).sum()).collect();
            assert!(sum.iter().zip(D50).all(|(sum, white)| sum.abs_diff(white) <= 1), "{sum:x?}");
        }
    }

    #[test]
    fn gray_is_the_neutral_axis_of_srgb_within_one_code() {
        let (ours, srgb) = (Profile::new_icc(&gray(Version::V2, Curve::Srgb)).unwrap(), Profile::new_srgb());
        let intent = Intent::RelativeColorimetric;
        let transform = Transform::new(&ours, PixelFormat::GRAY_8, &srgb, PixelFormat::RGB_8, intent).unwrap();
        let codes: Vec<u8> = (0..=255).collect();
        let mut out = vec![[0u8; 3]; 256];
        transform.transform_pixels(&codes, &mut out);
        assert!(codes.iter().zip(&out).all(|(code, rgb)| rgb.iter().all(|value| value.abs_diff(*code) <= 1)));
    }
}
