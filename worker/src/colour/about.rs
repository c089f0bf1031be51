//! What the report says about colours: their meaning in words, and the primaries as chromaticities.

use refmill::job::ColourOptions;
use refmill::report::{self, Primaries};

use super::matrix::{inverse, multiply};
use super::source::h273_primaries;
use crate::bytes::{Order, u32_at};
use crate::icc;
use crate::repair::{Chromaticities, Meaning};

/// The D50 white of the profile connection space (ICC.1:2022 6.3.4.3).
const D50: [f64; 3] = [0.9642, 1.0, 0.8249];
/// The Bradford cone response (ICC.1:2022 annex E).
const BRADFORD: [[f64; 3]; 3] = [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]];

/// What the report says; `engine` is empty where no pixel was converted.
#[must_use]
pub fn about(meaning: &Meaning<'_>, engine: &str, options: ColourOptions) -> report::Colour {
    report::Colour {
        interpretation: meaning.name().into(),
        description: meaning.description().chars().take(120).collect(),
        primaries: primaries(meaning),
        engine: engine.into(),
        options,
    }
}

fn primaries(meaning: &Meaning<'_>) -> Option<Primaries> {
    match meaning {
        Meaning::Srgb => Some(told(Chromaticities::BT709)),
        Meaning::AdobeRgb => Some(told(Chromaticities::ADOBE_RGB)),
        Meaning::Gamma { chromaticities, .. } => Some(told(*chromaticities)),
        Meaning::Cicp { primaries, .. } => Some(told(h273_primaries(*primaries))),
        Meaning::Icc(profile) => from_profile(&profile.bytes),
        Meaning::CmykNaive | Meaning::Lab => None,
    }
}

fn told(colours: Chromaticities) -> Primaries {
    let Chromaticities { white, red, green, blue } = colours;
    Primaries { white, red, green, blue }
}

/// Colorants with their adaptation to D50 undone: by `chad`, or in profiles of version 2 by what brings D50 to their
/// own white.
fn from_profile(bytes: &[u8]) -> Option<Primaries> {
    let columns = [xyz(bytes, b"rXYZ")?, xyz(bytes, b"gXYZ")?, xyz(bytes, b"bXYZ")?];
    let back = match numbers(bytes, b"chad") {
        Some([a, b, c, d, e, f, g, h, i]) => inverse([[a, b, c], [d, e, f], [g, h, i]])?,
        None => bradford(D50, xyz(bytes, b"wtpt").unwrap_or(D50))?,
    };
    let point = |colour: [f64; 3]| {
        let [x, y, z] = apply(back, colour);
        let sum = x + y + z;
        let point = [round(x / sum), round(y / sum)];
        point.iter().all(|value| value.abs() <= 2.0).then_some(point)
    };
    let [red, green, blue] = columns;
    Some(Primaries { white: point(D50)?, red: point(red)?, green: point(green)?, blue: point(blue)? })
}

/// What makes the white `from` the white `to`.
fn bradford(from: [f64; 3], to: [f64; 3]) -> Option<[[f64; 3]; 3]> {
    let ([a, b, c], [x, y, z]) = (apply(BRADFORD, from), apply(BRADFORD, to));
    let gain = [[x / a, 0.0, 0.0], [0.0, y / b, 0.0], [0.0, 0.0, z / c]];
    Some(multiply(inverse(BRADFORD)?, multiply(gain, BRADFORD)))
}

fn apply(matrix: [[f64; 3]; 3], vector: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum())
}

fn xyz(bytes: &[u8], signature: &[u8; 4]) -> Option<[f64; 3]> {
    numbers(bytes, signature)
}

/// The first numbers of a tag of type XYZ or s15Fixed16Array.
fn numbers<const N: usize>(bytes: &[u8], signature: &[u8; 4]) -> Option<[f64; N]> {
    let tag = icc::tag(bytes, signature)?;
    let mut numbers = [0.0; N];
    for (index, number) in numbers.iter_mut().enumerate() {
        *number = f64::from(u32_at(tag, 8 + index * 4, Order::Big)?.cast_signed()) / 65_536.0;
    }
    Some(numbers)
}

fn round(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: [f64; 2], b: [f64; 2]) -> bool {
        a.iter().zip(b).all(|(a, b)| (a - b).abs() < 0.002)
    }

    #[test]
    fn primaries_of_a_profile_are_those_of_its_own_white() {
        let srgb = from_profile(&lcms2::Profile::new_srgb().icc().unwrap()).unwrap();
        assert!(close(srgb.white, [0.3127, 0.3290]), "{srgb:?}");
        assert!(close(srgb.red, [0.64, 0.33]) && close(srgb.green, [0.30, 0.60]) && close(srgb.blue, [0.15, 0.06]));
    }

    #[test]
    fn profile_without_colorants_has_no_primaries() {
        assert_eq!(from_profile(&[0; 200]), None);
    }
}
