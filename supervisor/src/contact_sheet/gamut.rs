//! The triangle of an image's primaries over that of sRGB, in the CIE 1976 u'v' diagram.

use std::fmt::Write;

use refmill::report::Primaries;

const SRGB: Primaries =
    Primaries { white: [0.3127, 0.3290], red: [0.64, 0.33], green: [0.30, 0.60], blue: [0.15, 0.06] };
/// The spectral locus, CIE 1931 2 degrees, from 400 to 700 nm, as x and y.
const LOCUS: &[[f64; 2]] = &[
    [0.1733, 0.0048],
    [0.1714, 0.0051],
    [0.1644, 0.0109],
    [0.1566, 0.0177],
    [0.1440, 0.0297],
    [0.1355, 0.0399],
    [0.1241, 0.0578],
    [0.1096, 0.0868],
    [0.0913, 0.1327],
    [0.0687, 0.2007],
    [0.0454, 0.2950],
    [0.0235, 0.4127],
    [0.0082, 0.5384],
    [0.0039, 0.6548],
    [0.0139, 0.7502],
    [0.0389, 0.8120],
    [0.0743, 0.8338],
    [0.1142, 0.8262],
    [0.1547, 0.8059],
    [0.1929, 0.7816],
    [0.2296, 0.7543],
    [0.2658, 0.7243],
    [0.3016, 0.6923],
    [0.3373, 0.6589],
    [0.3731, 0.6245],
    [0.4087, 0.5896],
    [0.4441, 0.5547],
    [0.4788, 0.5202],
    [0.5125, 0.4866],
    [0.5448, 0.4544],
    [0.5752, 0.4242],
    [0.6029, 0.3965],
    [0.6270, 0.3725],
    [0.6482, 0.3514],
    [0.6658, 0.3340],
    [0.6915, 0.3083],
    [0.7079, 0.2920],
    [0.7190, 0.2809],
    [0.7260, 0.2740],
    [0.7347, 0.2653],
];

/// Writes the diagram with its caption.
pub fn figure(number: usize, primaries: &Primaries, text: &mut String) {
    let same = area(primaries).is_some_and(|own| (own / area(&SRGB).unwrap_or(1.0) - 1.0).abs() < 0.01);
    let caption = match area(primaries) {
        Some(_) if same => "Gamut: about that of sRGB".to_owned(),
        Some(own) => format!("Gamut: {:.0} % of sRGB\u{2019}s area", own / area(&SRGB).unwrap_or(1.0) * 100.0),
        None => "Gamut".to_owned(),
    };
    // Writing to a String cannot fail.
    writeln!(
        text,
        "<figure class=\"gamut\"><svg viewBox=\"0 0 260 240\" role=\"img\" aria-labelledby=\"gamut-{number}\">\
         <title id=\"gamut-{number}\">Primaries in the CIE 1976 u\u{2032}v\u{2032} diagram: red {}, green {}, blue {}, white {}; \
         {caption}</title>\
         <polygon class=\"locus\" points=\"{}\"/><polygon class=\"srgb\" points=\"{}\"/>\
         <polygon class=\"own\" points=\"{}\"/>{}<text class=\"u\" x=\"252\" y=\"232\">u\u{2032}</text><text x=\"8\" y=\"14\">v\u{2032}</text></svg>\
         <figcaption>{caption}<span class=\"key\"><i class=\"k-own\"></i>image <i class=\"k-srgb\"></i>sRGB</span>\
         </figcaption></figure>",
        pair(primaries.red),
        pair(primaries.green),
        pair(primaries.blue),
        pair(primaries.white),
        points(LOCUS),
        points(&[SRGB.red, SRGB.green, SRGB.blue]),
        points(&[primaries.red, primaries.green, primaries.blue]),
        dots(primaries),
    )
    .ok();
}

fn pair([x, y]: [f64; 2]) -> String {
    format!("x {x:.3} y {y:.3}")
}

fn dots(primaries: &Primaries) -> String {
    let named = [("r", primaries.red), ("g", primaries.green), ("b", primaries.blue), ("w", primaries.white)];
    let dot = |(class, xy)| {
        let [x, y] = place(xy);
        format!("<circle class=\"dot-{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>")
    };
    named.into_iter().map(dot).collect()
}

fn points(corners: &[[f64; 2]]) -> String {
    let point = |&xy: &[f64; 2]| {
        let [x, y] = place(xy);
        format!("{x:.1},{y:.1}")
    };
    corners.iter().map(point).collect::<Vec<_>>().join(" ")
}

/// CIE 1976 UCS; a point without one is at the origin.
fn uv([x, y]: [f64; 2]) -> [f64; 2] {
    let below = -2.0 * x + 12.0 * y + 3.0;
    if below.abs() < 1e-6 { [0.0, 0.0] } else { [4.0 * x / below, 9.0 * y / below] }
}

/// Where a chromaticity stands in the drawing; what lies far outside stands at its edge.
fn place(xy: [f64; 2]) -> [f64; 2] {
    let [u, v] = uv(xy);
    [(10.0 + u * 380.0).clamp(0.0, 260.0), (228.0 - v * 360.0).clamp(0.0, 240.0)]
}

/// The area of the triangle in u'v'; `None` where it has next to none.
fn area(primaries: &Primaries) -> Option<f64> {
    let ([ru, rv], [gu, gv], [bu, bv]) = (uv(primaries.red), uv(primaries.green), uv(primaries.blue));
    let area = ((gu - ru) * (bv - rv) - (bu - ru) * (gv - rv)).abs() / 2.0;
    (area.is_finite() && area > 1e-5).then_some(area)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_stands_where_the_standard_says() {
        let [u, v] = uv(SRGB.white);
        assert!((u - 0.1978).abs() < 1e-3 && (v - 0.4683).abs() < 1e-3, "{u} {v}");
    }

    #[test]
    fn absurd_primaries_stay_inside_the_drawing() {
        assert_eq!(place([1e4, -1e4]).map(|value| (0.0..=260.0).contains(&value)), [true, true]);
        assert_eq!(area(&Primaries { white: [0.0; 2], red: [0.0; 2], green: [0.0; 2], blue: [0.0; 2] }), None);
    }
}
