//! Profiles with lookup tables for the tests: lut16Type (ICC.1:2022 10.10) from codes to L*a*b*.

/// RGB: a wide gamut with `side` nodes an axis.
pub fn rgb(side: usize) -> Vec<u8> {
    profile(b"RGB ", side, &[[0u16, 65_535].as_slice(); 3], |code| {
        let light = [0, 1, 2].map(|at| code[at].powf(2.2));
        lab([
            0.58 * light[0] + 0.19 * light[1] + 0.19 * light[2],
            0.30 * light[0] + 0.63 * light[1] + 0.07 * light[2],
            0.03 * light[0] + 0.07 * light[1] + 0.90 * light[2],
        ])
    })
}

/// CMYK: inks that dim light, with input curves that are bent or not.
pub fn cmyk(side: usize, bent: bool) -> Vec<u8> {
    let curve: Vec<u16> = (0..64u32)
        .map(|at| {
            let code = f64::from(at) / 63.0;
            let place = if bent { code + 0.08 * (std::f64::consts::PI * code).sin() } else { code };
            (place * 65_535.0) as u16
        })
        .collect();
    profile(b"CMYK", side, &[curve.as_slice(); 4], |code| {
        let through = |ink: f64, amount: f64| 1.0 - ink * amount;
        let [c, m, y, k] = [code[0], code[1], code[2], code[3]];
        let black = through(k, 0.97);
        lab([
            through(c, 0.80) * through(m, 0.55) * through(y, 0.05) * black,
            through(c, 0.62) * through(m, 0.80) * through(y, 0.10) * black,
            through(c, 0.30) * through(m, 0.60) * through(y, 0.88) * black,
        ])
    })
}

/// RGB: colours that alternate from node to node of a fine table.
pub fn jagged() -> Vec<u8> {
    let curve: Vec<u16> = (0..256u32).map(|at| (at * 257) as u16 ^ if at % 2 == 0 { 0 } else { 0x3000 }).collect();
    profile(b"RGB ", 2, &[curve.as_slice(); 3], |code| lab([code[0], code[1], code[2]]))
}

/// 16-bit L*a*b* of version 2 of X, Y and Z relative to white.
fn lab(xyz: [f64; 3]) -> [u16; 3] {
    let [x, y, z] = xyz.map(|t| if t > 216.0 / 24_389.0 { t.cbrt() } else { t * 841.0 / 108.0 + 4.0 / 29.0 });
    let (l, a, b) = (116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z));
    [l * 652.8, (a + 128.0) * 256.0, (b + 128.0) * 256.0].map(|value| value.round().clamp(0.0, 65_535.0) as u16)
}

fn profile(space: &[u8; 4], side: usize, curves: &[&[u16]], colour: impl Fn(&[f64]) -> [u16; 3]) -> Vec<u8> {
    let channels = curves.len();
    let mut tag = b"mft2\0\0\0\0".to_vec();
    tag.extend([channels as u8, 3, side as u8, 0]);
    for at in 0..9u32 {
        tag.extend(if at % 4 == 0 { 65_536u32 } else { 0 }.to_be_bytes());
    }
    tag.extend((curves[0].len() as u16).to_be_bytes());
    tag.extend(2u16.to_be_bytes());
    tag.extend(curves.iter().flat_map(|curve| curve.iter()).flat_map(|entry| entry.to_be_bytes()));
    for at in 0..side.pow(channels as u32) {
        let place = |axis: usize| at / side.pow((channels - 1 - axis) as u32) % side;
        let code: Vec<f64> = (0..channels).map(|axis| place(axis) as f64 / (side - 1) as f64).collect();
        tag.extend(colour(&code).into_iter().flat_map(u16::to_be_bytes));
    }
    tag.extend([0u16, 65_535, 0, 65_535, 0, 65_535].into_iter().flat_map(u16::to_be_bytes));
    let white = [0x0000_f6d6u32, 0x0001_0000, 0x0000_d32d];
    let mut wtpt = b"XYZ \0\0\0\0".to_vec();
    wtpt.extend(white.into_iter().flat_map(u32::to_be_bytes));
    let mut out = vec![0; 128 + 4 + 2 * 12];
    out[8..12].copy_from_slice(&[2, 0x40, 0, 0]);
    out[12..16].copy_from_slice(b"prtr");
    out[16..20].copy_from_slice(space);
    out[20..24].copy_from_slice(b"Lab ");
    out[36..40].copy_from_slice(b"acsp");
    white
        .iter()
        .enumerate()
        .for_each(|(at, value)| out[68 + at * 4..72 + at * 4].copy_from_slice(&value.to_be_bytes()));
    out[128..132].copy_from_slice(&2u32.to_be_bytes());
    for (entry, (name, data)) in [(b"A2B0", tag), (b"wtpt", wtpt)].into_iter().enumerate() {
        let start = out.len();
        let at = 132 + entry * 12;
        out[at..at + 4].copy_from_slice(name);
        out[at + 4..at + 8].copy_from_slice(&(start as u32).to_be_bytes());
        out[at + 8..at + 12].copy_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend(data);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    let length = out.len() as u32;
    out[0..4].copy_from_slice(&length.to_be_bytes());
    out
}
