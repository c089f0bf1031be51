//! Matrix profiles (ICC.1:2022 F.3): a curve a channel, three by three, and the inverse sRGB curve. The figures come
//! from lcms2; the arithmetic is ours, since the same tables have to give the same codes on every device.

use std::sync::OnceLock;

use lcms2::{CIEXYZ, Profile, Tag, TagSignature};

/// Entries of the table from light to codes. Where the sRGB curve is steepest an entry is 0.2 of a code wide.
pub const ENCODE: usize = 1 << 14;
/// Adding this to a small positive `f32` leaves its nearest integer in the lowest bits.
pub const ROUND: f32 = 8_388_608.0;

/// What one device code of one channel adds to the light of R, G and B; the fourth lane is always 0. Keeping all
/// three in one vector makes a pixel three loads and two additions.
pub type Light = [f32; 4];

/// A transform from a matrix profile's device codes to sRGB codes.
#[derive(Clone, PartialEq)]
pub struct Matrix {
    /// Light of each device code, for each channel, in indices of `encode`: 256 or 65,536 entries.
    light: [Vec<Light>; 3],
}

impl std::fmt::Debug for Matrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matrix").finish_non_exhaustive()
    }
}

impl Matrix {
    /// The transform of `profile` for codes of `levels` values (256 or 65,536); `None` where it has no matrix or
    /// its figures are not usable.
    pub fn new(profile: &Profile, levels: usize) -> Option<Self> {
        let source = colorants(profile)?;
        let target = inverse(colorants(&Profile::new_srgb())?)?;
        let [[rr, rg, rb], [gr, gg, gb], [br, bg, bb]] = multiply(target, source);
        let red = light_table(profile, TagSignature::RedTRCTag, [rr, gr, br], levels)?;
        let green = light_table(profile, TagSignature::GreenTRCTag, [rg, gg, bg], levels)?;
        let blue = light_table(profile, TagSignature::BlueTRCTag, [rb, gb, bb], levels)?;
        Some(Self { light: [red, green, blue] })
    }

    /// The light of each code of red, green and blue.
    pub fn light(&self) -> &[Vec<Light>; 3] {
        &self.light
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.light.iter().map(|table| size_of_val(table.as_slice())).sum()
    }

    /// Converts 8-bit pixels in place.
    pub fn apply8(&self, pixels: &mut [u8]) {
        let encode = encode_table();
        let [red, green, blue] = &self.light;
        let tables: [Option<&[Light; 256]>; 3] = [red.first_chunk(), green.first_chunk(), blue.first_chunk()];
        let [Some(red), Some(green), Some(blue)] = tables else { return };
        for pixel in pixels.as_chunks_mut::<3>().0 {
            let [r, g, b] = *pixel;
            *pixel = codes(encode, light_of(red, r.into()), light_of(green, g.into()), light_of(blue, b.into()));
        }
    }

    /// Converts 16-bit pixels to 8-bit codes.
    pub fn apply16(&self, pixels: &[u16]) -> Vec<u8> {
        let [red, green, blue] = &self.light;
        let encode = encode_table();
        let mut out = Vec::with_capacity(pixels.len());
        for &[r, g, b] in pixels.as_chunks::<3>().0 {
            out.extend(codes(encode, light_of(red, r.into()), light_of(green, g.into()), light_of(blue, b.into())));
        }
        out
    }
}

#[inline]
fn codes(encode: &[u8; ENCODE], red: Light, green: Light, blue: Light) -> [u8; 3] {
    let mut indices = [0u32; 4];
    for (((index, r), g), b) in indices.iter_mut().zip(red).zip(green).zip(blue) {
        *index = (bounded(r + g + b) + ROUND).to_bits();
    }
    let [r, g, b, _] = indices;
    [r, g, b].map(|index| encode.get(index as usize & (ENCODE - 1)).copied().unwrap_or(u8::MAX))
}

/// Light within the table. Comparisons instead of `clamp`, since no light is NaN and these are one instruction each.
#[inline(always)]
pub fn bounded(light: f32) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "exact")]
    const TOP: f32 = (ENCODE - 1) as f32;
    let light = if light > 0.0 { light } else { 0.0 };
    if light < TOP { light } else { TOP }
}

/// A code always lies inside its table, which the compiler sees for bytes.
#[inline(always)]
fn light_of(table: &[Light], code: usize) -> Light {
    table.get(code).copied().unwrap_or([0.0; 4])
}

/// The light that each code of a channel adds to R, G and B by its `column` of the matrix.
fn light_table(profile: &Profile, curve: TagSignature, column: [f64; 3], levels: usize) -> Option<Vec<Light>> {
    let Tag::ToneCurve(curve) = profile.read_tag(curve) else { return None };
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small numbers")]
    let entry = |code: usize| {
        let light = f64::from(curve.eval(code as f32 / (levels - 1) as f32)) * (ENCODE - 1) as f64;
        let [r, g, b] = column.map(|weight| (weight * light) as f32);
        [r, g, b, 0.0]
    };
    let table: Vec<Light> = (0..levels).map(entry).collect();
    table.iter().flatten().all(|light| light.is_finite()).then_some(table)
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

/// IEC 61966-2-1, from light to codes: entry `i` is the code of light `i / (ENCODE - 1)`.
pub fn encode_table() -> &'static [u8; ENCODE] {
    static TABLE: OnceLock<[u8; ENCODE]> = OnceLock::new();
    let code = |index: usize| {
        #[expect(clippy::cast_precision_loss, reason = "exact")]
        let light = index as f64 / (ENCODE - 1) as f64;
        let signal = if light <= 0.003_130_8 { 12.92 * light } else { 1.055 * light.powf(1.0 / 2.4) - 0.055 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 255")]
        let code = (signal * 255.0).round() as u8;
        code
    };
    TABLE.get_or_init(|| std::array::from_fn(code))
}

/// The product of two matrices of rows.
pub fn multiply(a: [[f64; 3]; 3], b: [[f64; 3]; 3]) -> [[f64; 3]; 3] {
    let [[a0, a1, a2], [b0, b1, b2], [c0, c1, c2]] = b;
    a.map(|[x, y, z]| [x * a0 + y * b0 + z * c0, x * a1 + y * b1 + z * c1, x * a2 + y * b2 + z * c2])
}

/// The inverse of a matrix of rows; `None` where it has none.
pub fn inverse([[a, b, c], [d, e, f], [g, h, i]]: [[f64; 3]; 3]) -> Option<[[f64; 3]; 3]> {
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
