//! Source profiles for meanings that come without one: built by lcms2 from chromaticities and curves.

use std::borrow::Cow;

use lcms2::{CIExyY, CIExyYTRIPLE, Profile, ToneCurve};
use refmill::failure::{Code, Failure};

use super::engine::Kind;
use crate::repair::{Chromaticities, Meaning};

/// What tells one meaning's transform from another's.
pub fn key<'m>(meaning: &'m Meaning<'_>) -> Cow<'m, [u8]> {
    match meaning {
        Meaning::Icc(profile) => Cow::Borrowed(&profile.bytes),
        other => Cow::Owned(format!("{} {}", other.name(), other.description()).into_bytes()),
    }
}

/// The profile of a meaning, for pixels of `kind`.
///
/// # Errors
/// [`Code::Colour`] where lcms2 refuses.
pub fn profile(meaning: &Meaning<'_>, kind: Kind) -> Result<Profile, Failure> {
    match meaning {
        Meaning::Icc(profile) => Profile::new_icc(&profile.bytes).map_err(|error| refused(&error)),
        Meaning::Srgb | Meaning::CmykNaive => Ok(Profile::new_srgb()),
        Meaning::Lab => {
            let d50 = CIExyY { x: 0.3457, y: 0.3585, Y: 1.0 };
            Profile::new_lab4_context(lcms2::GlobalContext::new(), &d50).map_err(|error| refused(&error))
        }
        // Adobe RGB (1998) 4.3.1.2: gamma is 2 and 51/256.
        Meaning::AdobeRgb => from_curve(Chromaticities::ADOBE_RGB, &ToneCurve::new(2.199_218_75), kind),
        Meaning::Gamma { exponent, chromaticities } => from_curve(*chromaticities, &ToneCurve::new(*exponent), kind),
        Meaning::Cicp { primaries, transfer } => from_curve(h273_primaries(*primaries), &h273_curve(*transfer)?, kind),
    }
}

fn refused(error: &lcms2::Error) -> Failure {
    Failure::new(Code::Colour, format!("lcms2: {error}"))
}

fn from_curve(colours: Chromaticities, curve: &ToneCurve, kind: Kind) -> Result<Profile, Failure> {
    let point = |[x, y]: [f64; 2]| CIExyY { x, y, Y: 1.0 };
    let profile = if matches!(kind, Kind::Gray8 | Kind::Gray16) {
        Profile::new_gray(&point([0.3457, 0.3585]), curve)
    } else {
        let primaries =
            CIExyYTRIPLE { Red: point(colours.red), Green: point(colours.green), Blue: point(colours.blue) };
        Profile::new_rgb(&point(colours.white), &primaries, &[curve, curve, curve])
    };
    profile.map_err(|error| refused(&error))
}

/// ITU-T H.273 table 2.
pub fn h273_primaries(code: u16) -> Chromaticities {
    let d65 = [0.3127, 0.3290];
    let make = |white, red, green, blue| Chromaticities { white, red, green, blue };
    match code {
        4 => make([0.310, 0.316], [0.67, 0.33], [0.21, 0.71], [0.14, 0.08]),
        5 => make(d65, [0.64, 0.33], [0.29, 0.60], [0.15, 0.06]),
        6 | 7 => make(d65, [0.630, 0.340], [0.310, 0.595], [0.155, 0.070]),
        9 => make(d65, [0.708, 0.292], [0.170, 0.797], [0.131, 0.046]),
        11 => make([0.314, 0.351], [0.680, 0.320], [0.265, 0.690], [0.150, 0.060]),
        12 => make(d65, [0.680, 0.320], [0.265, 0.690], [0.150, 0.060]),
        22 => make(d65, [0.630, 0.340], [0.295, 0.605], [0.155, 0.077]),
        _ => Chromaticities::BT709,
    }
}

/// ITU-T H.273 table 3, as displays show it: camera curves are read through ITU-R BT.1886.
fn h273_curve(code: u16) -> Result<ToneCurve, Failure> {
    let parametric = |params: &[f64]| ToneCurve::new_parametric(4, params).map_err(|error| refused(&error));
    match code {
        1 | 6 | 14 | 15 => Ok(ToneCurve::new(2.4)),
        4 => Ok(ToneCurve::new(2.2)),
        5 => Ok(ToneCurve::new(2.8)),
        7 => parametric(&[1.0 / 0.45, 1.0 / 1.1115, 0.1115 / 1.1115, 0.25, 0.0913]),
        8 => Ok(ToneCurve::new(1.0)),
        _ => parametric(&[2.4, 1.0 / 1.055, 0.055 / 1.055, 1.0 / 12.92, 0.04045]),
    }
}
