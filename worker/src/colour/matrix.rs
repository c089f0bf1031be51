//! Matrix profiles (ICC.1:2022 F.3): a curve a channel, three by three, and the inverse sRGB curve. The figures come
//! from lcms2; the arithmetic is ours, since the same tables have to give the same codes on every device.

use lcms2::{CIEXYZ, Profile, Tag, TagSignature};

/// Entries of the table from light to codes. Where the sRGB curve is steepest an entry is 0.2 of a code wide.
const ENCODE: usize = 1 << 14;
/// Adding this to a small positive `f32` leaves its nearest integer in the lowest bits.
const ROUND: f32 = 8_388_608.0;

/// A transform from a matrix profile's device codes to sRGB codes.
#[derive(Clone, PartialEq)]
pub struct Matrix {
    /// Light of each device code, for each channel: 256 or 65,536 entries.
    decode: [Vec<f32>; 3],
    /// Device light to sRGB light, scaled to the encode table's indices; rows of R, G, B.
    rows: [[f32; 3]; 3],
    /// sRGB code of each index.
    encode: Vec<u8>,
}

impl std::fmt::Debug for Matrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matrix").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Matrix {
    /// The transform of `profile` for codes of `levels` values (256 or 65,536); `None` where it has no matrix or
    /// its figures are not usable.
    pub fn new(profile: &Profile, levels: usize) -> Option<Self> {
        let source = colorants(profile)?;
        let target = inverse(colorants(&Profile::new_srgb())?)?;
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small, exact numbers")]
        let rows = multiply(target, source).map(|row| row.map(|x| (x * (ENCODE - 1) as f64) as f32));
        let signatures = [TagSignature::RedTRCTag, TagSignature::GreenTRCTag, TagSignature::BlueTRCTag];
        let [red, green, blue] = signatures.map(|signature| decode_table(profile, signature, levels));
        let usable = rows.iter().flatten().all(|value| value.is_finite());
        let decode = [red?, green?, blue?];
        usable.then(|| Self { decode, rows, encode: encode_table() })
    }

    /// Converts 8-bit pixels in place.
    pub fn apply8(&self, pixels: &mut [u8]) {
        let Some(tables) = self.tables8() else { return };
        for pixel in pixels.as_chunks_mut::<3>().0 {
            let [r, g, b] = *pixel;
            let [red, green, blue] = tables;
            *pixel = self.codes([light8(red, r), light8(green, g), light8(blue, b)]);
        }
    }

    /// Converts 16-bit pixels to 8-bit codes.
    pub fn apply16(&self, pixels: &[u16]) -> Vec<u8> {
        let [red, green, blue] = &self.decode;
        let light = |table: &[f32], code: u16| table.get(usize::from(code)).copied().unwrap_or(1.0);
        let convert = |&[r, g, b]: &[u16; 3]| self.codes([light(red, r), light(green, g), light(blue, b)]);
        pixels.as_chunks::<3>().0.iter().flat_map(convert).collect()
    }

    fn tables8(&self) -> Option<[&[f32; 256]; 3]> {
        let [red, green, blue] = &self.decode;
        Some([red.first_chunk()?, green.first_chunk()?, blue.first_chunk()?])
    }

    #[inline]
    fn codes(&self, [r, g, b]: [f32; 3]) -> [u8; 3] {
        #[expect(clippy::cast_precision_loss, reason = "exact")]
        const TOP: f32 = (ENCODE - 1) as f32;
        self.rows.map(|[kr, kg, kb]| {
            let index = (kr * r + kg * g + kb * b).clamp(0.0, TOP) + ROUND;
            let index = index.to_bits() as usize & (ENCODE - 1);
            self.encode.get(index).copied().unwrap_or(u8::MAX)
        })
    }
}

/// A byte always lies inside the table, which the compiler sees.
#[inline]
fn light8(table: &[f32; 256], code: u8) -> f32 {
    table.get(usize::from(code)).copied().unwrap_or(1.0)
}

fn colorants(profile: &Profile) -> Option<[[f64; 3]; 3]> {
    let read = |signature| match profile.read_tag(signature) {
        Tag::CIEXYZ(CIEXYZ { X, Y, Z }) => Some([*X, *Y, *Z]),
        _ => None,
    };
    let red = read(TagSignature::RedColorantTag)?;
    let green = read(TagSignature::GreenColorantTag)?;
    let blue = read(TagSignature::BlueColorantTag)?;
    let [[rx, ry, rz], [gx, gy, gz], [bx, by, bz]] = [red, green, blue];
    Some([[rx, gx, bx], [ry, gy, by], [rz, gz, bz]])
}

fn decode_table(profile: &Profile, signature: TagSignature, levels: usize) -> Option<Vec<f32>> {
    let Tag::ToneCurve(curve) = profile.read_tag(signature) else { return None };
    #[expect(clippy::cast_precision_loss, reason = "at most 65,535")]
    let table: Vec<f32> = (0..levels).map(|code| curve.eval(code as f32 / (levels - 1) as f32)).collect();
    table.iter().all(|light| light.is_finite()).then_some(table)
}

/// IEC 61966-2-1, from light to codes.
fn encode_table() -> Vec<u8> {
    let code = |index: usize| {
        #[expect(clippy::cast_precision_loss, reason = "exact")]
        let light = index as f64 / (ENCODE - 1) as f64;
        let signal = if light <= 0.003_130_8 { 12.92 * light } else { 1.055 * light.powf(1.0 / 2.4) - 0.055 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 255")]
        let code = (signal * 255.0).round() as u8;
        code
    };
    (0..ENCODE).map(code).collect()
}

fn multiply(a: [[f64; 3]; 3], b: [[f64; 3]; 3]) -> [[f64; 3]; 3] {
    let [[a0, a1, a2], [b0, b1, b2], [c0, c1, c2]] = b;
    a.map(|[x, y, z]| [x * a0 + y * b0 + z * c0, x * a1 + y * b1 + z * c1, x * a2 + y * b2 + z * c2])
}

fn inverse([[a, b, c], [d, e, f], [g, h, i]]: [[f64; 3]; 3]) -> Option<[[f64; 3]; 3]> {
    let determinant = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g);
    let adjugate = [
        [e * i - f * h, c * h - b * i, b * f - c * e],
        [f * g - d * i, a * i - c * g, c * d - a * f],
        [d * h - e * g, b * g - a * h, a * e - b * d],
    ];
    (determinant.abs() > 1e-9).then(|| adjugate.map(|row| row.map(|x| x / determinant)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn srgb_through_its_own_matrix_stays_the_same() {
        let matrix = Matrix::new(&Profile::new_srgb(), 256).unwrap();
        let ramp: Vec<u8> = (0..=255).flat_map(|code| [code, 255 - code, code]).collect();
        let mut converted = ramp.clone();
        matrix.apply8(&mut converted);
        assert_eq!(converted, ramp);
    }

    #[test]
    fn inverse_times_matrix_is_the_identity() {
        let matrix = [[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 4.0]];
        let product = multiply(inverse(matrix).unwrap(), matrix);
        assert!((product[0][0] - 1.0).abs() < 1e-12 && product[0][1].abs() < 1e-12);
    }
}
