//! HDR to SDR: PQ and HLG pixels (ITU-R BT.2100-2) are brought to sRGB by the EETF of ITU-R BT.2390-11 section 5.4.1,
//! applied to the largest channel so that hues stay. Reference white is 203 cd/m2 (ITU-R BT.2408-7).

use crate::colour::matrix::{ENCODE, encode_table, inverse, multiply};
use crate::repair::Chromaticities;

/// Light of HDR reference white and of SDR white, in cd/m2.
const WHITE: f64 = 203.0;
/// Light of the brightest mastered highlight that is kept apart from others, in cd/m2.
const PEAK: f64 = 1000.0;
/// Steps of the table from signal to light.
const LEVELS: usize = 1 << 12;

/// A transform from PQ or HLG codes to sRGB codes.
#[derive(Clone, PartialEq)]
pub struct Hdr {
    /// Display light of a signal, in units of reference white; HLG's before its system gamma.
    light: Vec<f64>,
    /// Source primaries to BT.709.
    rows: [[f64; 3]; 3],
    /// Weights of luminance in the source primaries.
    luma: [f64; 3],
    hlg: bool,
}

impl std::fmt::Debug for Hdr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hdr").field("hlg", &self.hlg).finish_non_exhaustive()
    }
}

impl Hdr {
    /// The transform for transfer 16 (PQ) or 18 (HLG) of ITU-T H.273; `None` for others and for unusable primaries.
    pub fn new(primaries: Chromaticities, transfer: u16) -> Option<Self> {
        let source = to_xyz(primaries)?;
        let rows = multiply(inverse(to_xyz(Chromaticities::BT709)?)?, source);
        let [_, luma, _] = source;
        let curve = match transfer {
            16 => pq_light,
            18 => hlg_scene_light,
            _ => return None,
        };
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let light = (0..=LEVELS).map(|step| curve(step as f64 / LEVELS as f64)).collect();
        Some(Self { light, rows, luma, hlg: transfer == 18 })
    }

    /// Converts interleaved 16-bit pixels.
    pub fn apply(&self, pixels: &[u16]) -> Vec<u8> {
        pixels.as_chunks::<3>().0.iter().flat_map(|pixel| self.codes(*pixel)).collect()
    }

    fn codes(&self, pixel: [u16; 3]) -> [u8; 3] {
        let mut light = pixel.map(|code| self.signal_light(code));
        if self.hlg {
            light = self.hlg_display(light);
        }
        let [r, g, b] = light;
        let light = self.rows.map(|[kr, kg, kb]| kr * r + kg * g + kb * b);
        let brightest = light.into_iter().fold(0.0, f64::max);
        let scale = if brightest > 0.0 { roll_off(brightest) / brightest } else { 0.0 };
        light.map(|channel| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "bounded first"
            )]
            let index = ((channel * scale).clamp(0.0, 1.0) * (ENCODE - 1) as f64).round() as usize;
            encode_table().get(index).copied().unwrap_or(u8::MAX)
        })
    }

    /// Between two steps of the table.
    fn signal_light(&self, code: u16) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "small number")]
        let at = f64::from(code) / 65_535.0 * LEVELS as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to LEVELS")]
        let step = at as usize;
        let below = self.light.get(step).copied().unwrap_or(0.0);
        let above = self.light.get(step + 1).copied().unwrap_or(below);
        below + (above - below) * at.fract()
    }

    /// BT.2100 table 5: display light is scene light times its luminance to the power of 0.2, at 1000 cd/m2.
    fn hlg_display(&self, scene: [f64; 3]) -> [f64; 3] {
        let luminance: f64 = scene.iter().zip(self.luma).map(|(light, weight)| light * weight).sum();
        let gain = PEAK / WHITE * luminance.max(0.0).powf(0.2);
        scene.map(|light| light * gain)
    }
}

/// Primaries to XYZ, with Y of white 1.
pub fn to_xyz(colours: Chromaticities) -> Option<[[f64; 3]; 3]> {
    let xyz = |[x, y]: [f64; 2]| [x / y, 1.0, (1.0 - x - y) / y];
    let ([rx, ry, rz], [gx, gy, gz], [bx, by, bz]) = (xyz(colours.red), xyz(colours.green), xyz(colours.blue));
    let columns = [[rx, gx, bx], [ry, gy, by], [rz, gz, bz]];
    let white = xyz(colours.white);
    let [r, g, b] = inverse(columns)?.map(|row| row.iter().zip(white).map(|(a, w)| a * w).sum::<f64>());
    Some(columns.map(|[x, y, z]| [x * r, y * g, z * b]))
}

/// BT.2100 table 4, in units of reference white.
fn pq_light(signal: f64) -> f64 {
    let (m1, m2) = (2610.0 / 16_384.0, 2523.0 / 4096.0 * 128.0);
    let (c1, c2, c3) = (3424.0 / 4096.0, 2413.0 / 4096.0 * 32.0, 2392.0 / 4096.0 * 32.0);
    let power = signal.powf(1.0 / m2);
    10_000.0 / WHITE * ((power - c1).max(0.0) / (c2 - c3 * power)).powf(1.0 / m1)
}

/// The inverse of [`pq_light`].
fn pq_signal(light: f64) -> f64 {
    let (m1, m2) = (2610.0 / 16_384.0, 2523.0 / 4096.0 * 128.0);
    let (c1, c2, c3) = (3424.0 / 4096.0, 2413.0 / 4096.0 * 32.0, 2392.0 / 4096.0 * 32.0);
    let power = (light * WHITE / 10_000.0).clamp(0.0, 1.0).powf(m1);
    ((c1 + c2 * power) / (1.0 + c3 * power)).powf(m2)
}

/// BT.2100 table 5, the inverse OETF: scene light, 0 to 1.
fn hlg_scene_light(signal: f64) -> f64 {
    let (a, b, c) = (0.178_832_77, 0.284_668_92, 0.559_910_73);
    if signal <= 0.5 { signal * signal / 3.0 } else { (((signal - c) / a).exp() + b) / 12.0 }
}

/// BT.2390-11 5.4.1 without black lift: light up to the knee stays, brighter light follows a Hermite spline to white.
fn roll_off(light: f64) -> f64 {
    let source_peak = pq_signal(PEAK / WHITE);
    let target = pq_signal(1.0) / source_peak;
    let knee = 1.5 * target - 0.5;
    let signal = (pq_signal(light) / source_peak).min(1.0);
    if signal < knee {
        return light;
    }
    let t = (signal - knee) / (1.0 - knee);
    let (t2, t3) = (t * t, t * t * t);
    let spline =
        (2.0 * t3 - 3.0 * t2 + 1.0) * knee + (t3 - 2.0 * t2 + t) * (1.0 - knee) + (3.0 * t2 - 2.0 * t3) * target;
    pq_light(spline * source_peak)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BT2020: Chromaticities =
        Chromaticities { white: [0.3127, 0.3290], red: [0.708, 0.292], green: [0.170, 0.797], blue: [0.131, 0.046] };

    fn gray(transfer: u16, signal: f64) -> [u8; 3] {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test's own number")]
        let code = (signal * 65_535.0).round() as u16;
        Hdr::new(BT2020, transfer).unwrap().apply(&[code; 3]).try_into().unwrap()
    }

    #[test]
    fn pq_signal_inverts_pq_light() {
        assert!((pq_light(pq_signal(0.5)) - 0.5).abs() < 1e-9);
        assert!((pq_light(pq_signal(4.0)) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn pq_reference_points_of_bt2100_hold() {
        // 100 cd/m2 is signal 0.508, 1000 cd/m2 is 0.752 (BT.2408-7 table 1).
        assert!((pq_light(0.508) * WHITE - 100.0).abs() < 0.6);
        assert!((pq_light(0.752) * WHITE - 1000.0).abs() < 6.0);
    }

    #[test]
    fn black_stays_black_and_peak_becomes_white() {
        assert_eq!(gray(16, 0.0), [0; 3]);
        assert_eq!(gray(16, 0.752), [255; 3]);
        assert_eq!(gray(18, 1.0), [255; 3]);
    }

    #[test]
    fn gray_stays_gray_and_brighter_is_brighter() {
        let ramp: Vec<[u8; 3]> = (0..=20).map(|step| gray(16, f64::from(step) * 0.0375)).collect();
        assert!(ramp.iter().all(|[r, g, b]| r == g && g == b), "{ramp:?}");
        assert!(ramp.is_sorted());
    }

    #[test]
    fn roll_off_leaves_dark_light_alone() {
        assert!((roll_off(0.05) - 0.05).abs() < 1e-12);
        assert!(roll_off(4.9) <= 1.0 && roll_off(1.0) < 1.0);
    }
}
