//! What the pixels themselves say where linear light is declared for them: figures, not a guess.

use refmill::report::LinearEvidence;

use crate::decode::Pixels;

/// How the stored codes are spread, and how light their middle one would be under either reading. `None` for pixels
/// of more than 8 bits, for which linear light is nothing odd, and for those that are neither gray nor RGB.
#[must_use]
pub fn linear(pixels: &Pixels) -> Option<LinearEvidence> {
    let mut counts = [0u64; 256];
    match pixels {
        Pixels::Gray8(codes) => codes.iter().for_each(|code| count(&mut counts, *code)),
        Pixels::Rgb8(codes) => codes.as_chunks().0.iter().for_each(|pixel| count(&mut counts, luma(*pixel))),
        _ => return None,
    }
    let total: u64 = counts.iter().sum();
    let mut below = 0;
    let median = counts.iter().position(|count| {
        below += count;
        below * 2 >= total
    });
    let median = u8::try_from(median.filter(|_| total > 0)?).ok()?;
    let mut permille = [0u16; 16];
    for (share, bin) in permille.iter_mut().zip(counts.as_chunks::<16>().0) {
        let pixels: u64 = bin.iter().sum();
        *share = u16::try_from((pixels * 1000 + total / 2) / total).unwrap_or(1000);
    }
    let light = f64::from(median) / 255.0;
    let decoded = if light <= 0.04045 { light / 12.92 } else { ((light + 0.055) / 1.055).powf(2.4) };
    Some(LinearEvidence {
        permille,
        median_code: median,
        lightness_as_linear: lightness(light),
        lightness_as_srgb: lightness(decoded),
    })
}

/// The evidence in a few words.
#[must_use]
pub fn words(evidence: &LinearEvidence) -> String {
    let LinearEvidence { median_code, lightness_as_linear, lightness_as_srgb, .. } = evidence;
    format!("the median code {median_code} is L* {lightness_as_linear} as linear light, {lightness_as_srgb} as sRGB")
}

fn count(counts: &mut [u64; 256], code: u8) {
    if let Some(count) = counts.get_mut(usize::from(code)) {
        *count += 1;
    }
}

/// Near to the weights of BT.709, in eighths: 2, 5 and 1.
fn luma([red, green, blue]: [u8; 3]) -> u8 {
    let sum = 2 * u16::from(red) + 5 * u16::from(green) + u16::from(blue);
    u8::try_from(sum / 8).unwrap_or(u8::MAX)
}

/// CIE 1976 L* of a relative luminance, rounded.
fn lightness(luminance: f64) -> u8 {
    let lightness =
        if luminance > 216.0 / 24_389.0 { 116.0 * luminance.cbrt() - 16.0 } else { luminance * 24_389.0 / 27.0 };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=100")]
    let rounded = lightness.round().clamp(0.0, 100.0) as u8;
    rounded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mid_gray_reads_as_mid_gray_under_the_reading_that_is_right() {
        let of = |code: u8| linear(&Pixels::Gray8(vec![code; 100])).unwrap();
        // 18 % grey is code 118 in sRGB and 46 in linear light; its L* is 50 either way.
        assert_eq!((of(118).lightness_as_srgb, of(118).lightness_as_linear), (50, 74));
        assert_eq!((of(46).lightness_as_linear, of(46).lightness_as_srgb), (50, 19));
    }

    #[test]
    fn histogram_counts_every_pixel_once() {
        let evidence = linear(&Pixels::Rgb8([[0, 0, 0], [255, 255, 255], [0, 0, 0], [16, 16, 16]].concat())).unwrap();
        assert_eq!((evidence.permille[0], evidence.permille[1], evidence.permille[15]), (500, 250, 250));
        assert_eq!(evidence.median_code, 0);
    }

    #[test]
    fn deep_and_empty_pixels_give_no_evidence() {
        assert!(linear(&Pixels::Gray16(vec![1])).is_none() && linear(&Pixels::Rgb8(Vec::new())).is_none());
    }
}
