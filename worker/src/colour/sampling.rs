//! Fills grids: lcms2 evaluates a profile at the nodes, at its most exact, and says on colours between them whether
//! the grid is close enough. It is the authority; where it disagrees, there is no grid.

use lcms2::{CIExyY, CIExyYTRIPLE, Flags, PixelFormat, Profile, ToneCurve, Transform};
use refmill::failure::{Code, Failure};
use refmill::job::{ColourOptions, Intent};

use super::curves::{Axis, axes};
use super::engine;
use super::grid::{Grid, NODE_BITS, Node, Step, WEIGHT_BITS};
use super::hdr::to_xyz;
use super::matrix::{ENCODE, inverse};
use crate::repair::Chromaticities;

/// Colours between the nodes on which a grid is compared with lcms2.
const CHECKED: usize = 8192;
/// The largest difference that is accepted there, in 8-bit codes. A code itself is up to half a code off, and colours
/// that were not checked lie somewhat further off than those that were: this keeps all within 2.
const ACCEPTED: f32 = 1.75;
/// Nodes an axis where a profile's own tables suggest none.
const SIDES: [[usize; 2]; 2] = [[33, 65], [17, 25]];
/// Most nodes an axis, for three channels and for four.
const MOST: [usize; 2] = [65, 25];

/// The grid of `profile` for codes of `N` channels (3 is RGB, 4 is CMYK) and `levels` values (256 or 65,536); `None`
/// where none comes close enough to lcms2.
///
/// # Errors
/// [`Code::Colour`] where lcms2 builds no transform.
pub fn sample<const N: usize>(
    profile: &Profile,
    bytes: &[u8],
    levels: usize,
    options: ColourOptions,
) -> Result<Option<Grid>, Failure> {
    let lcms = Sampler::<N>::new(profile, options)?;
    let matrix = white_relative().and_then(|rows| Some((rows, inverse(rows)?)));
    let Some((rows, back)) = matrix else { return Ok(None) };
    let own = axes::<N>(bytes, signature(options.intent));
    let by_own = own.iter().flat_map(|(side, axes)| {
        let doubled = [side.saturating_sub(1) + 1, side.saturating_sub(1) * 2 + 1];
        doubled.map(|side| (side, axes.clone()))
    });
    let even = std::array::from_fn::<_, N, _>(|_| Axis::even());
    let plain = SIDES.get(N - 3).into_iter().flatten().map(|&side| (side, even.clone()));
    for (side, axes) in by_own.chain(plain) {
        if side < 2 || MOST.get(N - 3).is_none_or(|&most| side > most) {
            continue;
        }
        let grid = fill(&lcms, side, &axes, levels, rows, back);
        if worst(&grid, &lcms, levels) <= ACCEPTED {
            return Ok(Some(grid));
        }
    }
    Ok(None)
}

/// The tag that lcms2 takes for an intent, where a profile has it (ICC.1:2022 table 25).
fn signature(intent: Intent) -> &'static [u8; 4] {
    match intent {
        Intent::Perceptual => b"A2B0",
        Intent::RelativeColorimetric | Intent::AbsoluteColorimetric => b"A2B1",
        Intent::Saturation => b"A2B2",
    }
}

/// BT.709 light to X, Y and Z of which white has 1 each.
fn white_relative() -> Option<[[f64; 3]; 3]> {
    Some(to_xyz(Chromaticities::BT709)?.map(|row| row.map(|entry| entry / row.iter().sum::<f64>())))
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small numbers")]
fn fill<const N: usize>(
    lcms: &Sampler<N>,
    side: usize,
    axes: &[Axis; N],
    levels: usize,
    rows: [[f64; 3]; 3],
    back: [[f64; 3]; 3],
) -> Grid {
    let places: Vec<[f32; N]> = (0..side)
        .map(|at| {
            std::array::from_fn(|axis| axes.get(axis).map_or(0.0, |axis| axis.code(at as f64 / (side - 1) as f64)))
        })
        .collect();
    let mut nodes: Vec<Node> = Vec::with_capacity(side.pow(N as u32));
    let mut codes = Vec::with_capacity(side);
    for row in 0..side.pow(N as u32 - 1) {
        codes.clear();
        codes.extend((0..side).map(|column| {
            let (mut rest, mut code) = (row * side + column, [0.0; N]);
            for (axis, value) in code.iter_mut().enumerate().rev() {
                *value = places.get(rest % side).and_then(|place| place.get(axis)).copied().unwrap_or(0.0);
                rest /= side;
            }
            code
        }));
        nodes.extend(lcms.light(&codes).into_iter().map(|light| node(rows, light)));
    }
    let steps = axes.iter().map(|axis| (0..levels).map(|code| step(axis.position(code, levels), side)).collect());
    let scale = (ENCODE - 1) as f64;
    let column = |at: usize| {
        let mut column = [0.0; 4];
        for (entry, row) in column.iter_mut().zip(back) {
            *entry = row.get(at).map_or(0.0, |weight| (weight * scale) as f32);
        }
        column
    };
    Grid::new(side, nodes, steps.collect(), std::array::from_fn(column))
}

/// The cube roots of a colour's X, Y and Z.
fn node(rows: [[f64; 3]; 3], light: [f32; 3]) -> Node {
    let mut node = Node::default();
    for (root, row) in node.iter_mut().zip(rows) {
        let value: f64 = row.iter().zip(light).map(|(weight, light)| weight * f64::from(light)).sum();
        let exact = if value > 216.0 / 24_389.0 { value.cbrt() } else { value * 841.0 / 108.0 + 4.0 / 29.0 };
        #[expect(clippy::cast_possible_truncation, reason = "saturates, and NaN becomes 0")]
        let rounded = (exact * f64::from(1 << NODE_BITS)).round() as i16;
        *root = rounded;
    }
    node
}

/// The step of a place from 0 to 1 on an axis.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "bounded")]
fn step(position: f64, side: usize) -> Step {
    let cells = (side - 1) as f64;
    let place = position.clamp(0.0, 1.0) * cells;
    let cell = place.floor().min(cells - 1.0);
    let weight = ((place - cell) * f64::from(1u32 << WEIGHT_BITS)).round();
    ((cell as u32) << 16) | weight as u32
}

/// The largest difference from lcms2, in 8-bit codes.
fn worst<const N: usize>(grid: &Grid, lcms: &Sampler<N>, levels: usize) -> f32 {
    let codes = scattered(CHECKED * N);
    let top = f32::from(if levels > 256 { u16::MAX } else { u16::from(u8::MAX) });
    let (light, got) = if levels > 256 {
        (
            codes.as_chunks::<N>().0.iter().map(|code| code.map(|c| f32::from(c) / top)).collect::<Vec<_>>(),
            grid.apply16(&codes),
        )
    } else {
        let mut bytes: Vec<u8> = codes.iter().map(|code| code.to_be_bytes()[0]).collect();
        let light = bytes.as_chunks::<N>().0.iter().map(|code| code.map(|c| f32::from(c) / top)).collect();
        if N == 3 {
            grid.apply8_in_place(&mut bytes);
        } else {
            bytes = grid.apply8(&bytes);
        }
        (light, bytes)
    };
    let wanted = lcms.light(&light);
    let pairs = got.as_chunks::<3>().0.iter().flatten().zip(wanted.iter().flatten());
    pairs.map(|(&got, &light)| (f32::from(got) - code(light)).abs()).fold(0.0, f32::max)
}

/// IEC 61966-2-1, not rounded.
fn code(light: f32) -> f32 {
    let light = light.clamp(0.0, 1.0);
    255.0 * if light <= 0.003_130_8 { 12.92 * light } else { 1.055 * light.powf(1.0 / 2.4) - 0.055 }
}

/// Codes that are spread as if at random, and are the same each time.
fn scattered(count: usize) -> Vec<u16> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let [high, low, ..] = state.to_be_bytes();
        u16::from_be_bytes([high, low])
    };
    (0..count).map(|_| next()).collect()
}

/// lcms2 in floats, every stage as the profile has it, to light of sRGB's primaries without bounds.
struct Sampler<const N: usize> {
    transform: Transform<[f32; N], [f32; 3]>,
}

impl<const N: usize> Sampler<N> {
    fn new(profile: &Profile, options: ColourOptions) -> Result<Self, Failure> {
        let refused = |error: lcms2::Error| Failure::new(Code::Colour, format!("lcms2 builds no transform: {error}"));
        let point = |[x, y]: [f64; 2]| CIExyY { x, y, Y: 1.0 };
        let Chromaticities { white, red, green, blue } = Chromaticities::BT709;
        let primaries = CIExyYTRIPLE { Red: point(red), Green: point(green), Blue: point(blue) };
        let line = ToneCurve::new(1.0);
        let target = Profile::new_rgb(&point(white), &primaries, &[&line, &line, &line]).map_err(refused)?;
        let format = if N == 3 { PixelFormat::RGB_FLT } else { PixelFormat::CMYK_FLT };
        let flags = engine::flags(options) | Flags::NO_OPTIMIZE;
        let intent = engine::intent(options);
        let transform = Transform::new_flags(profile, format, &target, PixelFormat::RGB_FLT, intent, flags);
        Ok(Self { transform: transform.map_err(refused)? })
    }

    /// Light of codes over 0 to 1.
    fn light(&self, codes: &[[f32; N]]) -> Vec<[f32; 3]> {
        // lcms2 takes inks as percentages.
        let scale = if N == 4 { 100.0 } else { 1.0 };
        let codes: Vec<[f32; N]> = codes.iter().map(|code| code.map(|channel| channel * scale)).collect();
        let mut light = vec![[0.0; 3]; codes.len()];
        self.transform.transform_pixels(&codes, &mut light);
        light
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::lut_profiles::{cmyk, rgb};

    /// CIEDE2000 (CIE 142:2001) of two colours of linear light.
    fn difference(left: [f32; 3], right: [f32; 3]) -> f64 {
        let lab = |light: [f32; 3]| {
            let [x, y, z] =
                node(white_relative().unwrap(), light).first_chunk::<3>().unwrap().map(|f| f64::from(f) / 16_384.0);
            [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
        };
        let ([l1, a1, b1], [l2, a2, b2]) = (lab(left), lab(right));
        let mean = f64::midpoint(a1.hypot(b1), a2.hypot(b2)).powi(7);
        let g = 0.5 * (1.0 - (mean / (mean + 25f64.powi(7))).sqrt());
        let (a1, a2) = (a1 * (1.0 + g), a2 * (1.0 + g));
        let (c1, c2) = (a1.hypot(b1), a2.hypot(b2));
        let hue = |a: f64, b: f64| b.atan2(a).to_degrees().rem_euclid(360.0);
        let (h1, h2) = (hue(a1, b1), hue(a2, b2));
        let mut turn = h2 - h1;
        turn -= if turn > 180.0 {
            360.0
        } else if turn < -180.0 {
            -360.0
        } else {
            0.0
        };
        let dh = 2.0 * (c1 * c2).sqrt() * (turn.to_radians() / 2.0).sin();
        let (l, c) = (f64::midpoint(l1, l2), f64::midpoint(c1, c2));
        let h = if (h1 - h2).abs() <= 180.0 { f64::midpoint(h1, h2) } else { (f64::midpoint(h1, h2) + 180.0) % 360.0 };
        let cosine = |scale: f64, offset: f64| (scale * h + offset).to_radians().cos();
        let t = 1.0 - 0.17 * cosine(1.0, -30.0) + 0.24 * cosine(2.0, 0.0) + 0.32 * cosine(3.0, 6.0)
            - 0.20 * cosine(4.0, -63.0);
        let sl = 1.0 + 0.015 * (l - 50.0).powi(2) / (20.0 + (l - 50.0).powi(2)).sqrt();
        let (sc, sh) = (1.0 + 0.045 * c, 1.0 + 0.015 * c * t);
        let rc = 2.0 * (c.powi(7) / (c.powi(7) + 25f64.powi(7))).sqrt();
        let rt = -(60.0 * (-((h - 275.0) / 25.0).powi(2)).exp()).to_radians().sin() * rc;
        let (dl, dc, dh) = ((l2 - l1) / sl, (c2 - c1) / sc, dh / sh);
        (dl * dl + dc * dc + dh * dh + rt * dc * dh).sqrt()
    }

    /// The largest and the mean difference in codes, and the largest CIEDE2000, over all combinations of codes that
    /// lie `stride` apart.
    fn dense<const N: usize>(bytes: &[u8], intent: Intent, stride: usize) -> Option<(Grid, u8, f64, f64)> {
        let profile = Profile::new_icc(bytes).unwrap();
        let options = ColourOptions { intent, ..ColourOptions::default() };
        let grid = sample::<N>(&profile, bytes, 256, options).unwrap()?;
        let ramp: Vec<u8> = (0..=255).step_by(stride).collect();
        let codes: Vec<[u8; N]> = (0..ramp.len().pow(N as u32))
            .map(|at| std::array::from_fn(|axis| ramp[at / ramp.len().pow(axis as u32) % ramp.len()]))
            .collect();
        let lcms = Sampler::<N>::new(&profile, options).unwrap();
        let light = lcms.light(&codes.iter().map(|code| code.map(|c| f32::from(c) / 255.0)).collect::<Vec<_>>());
        let mut got = codes.as_flattened().to_vec();
        if N == 3 {
            grid.apply8_in_place(&mut got)
        } else {
            got = grid.apply8(&got)
        }
        let decode = |code: u8| {
            let signal = f32::from(code) / 255.0;
            if signal <= 0.040_45 { signal / 12.92 } else { ((signal + 0.055) / 1.055).powf(2.4) }
        };
        let (mut worst, mut sum, mut worst_de) = (0, 0.0, 0.0f64);
        for (got, light) in got.as_chunks::<3>().0.iter().zip(&light) {
            let wanted = light.map(|light| code(light).round() as u8);
            let apart = got.iter().zip(wanted).map(|(g, w)| g.abs_diff(w)).max().unwrap();
            worst = worst.max(apart);
            sum += f64::from(apart);
            worst_de = worst_de.max(difference(got.map(decode), light.map(|light| light.clamp(0.0, 1.0))));
        }
        Some((grid, worst, sum / codes.len() as f64, worst_de))
    }

    #[test]
    fn grid_of_rgb_tables_is_within_two_steps_of_lcms2() {
        let (grid, worst, _, de) = dense::<3>(&rgb(17), Intent::RelativeColorimetric, 5).unwrap();
        assert!(worst <= 2 && de < 1.0, "{grid:?}: {worst} codes, dE00 {de}");
    }

    #[test]
    fn grid_of_cmyk_tables_is_within_two_steps_of_lcms2_in_every_intent() {
        use Intent as I;
        for intent in [I::Perceptual, I::RelativeColorimetric, I::Saturation, I::AbsoluteColorimetric] {
            let (grid, worst, _, de) = dense::<4>(&cmyk(9, true), intent, 15).unwrap();
            assert!(worst <= 2 && de < 1.5, "{intent:?}, {grid:?}: {worst} codes, dE00 {de}");
        }
    }

    #[test]
    fn nodes_of_a_grid_lie_on_those_of_the_profile() {
        let (even, ..) = dense::<4>(&cmyk(6, false), Intent::RelativeColorimetric, 51).unwrap();
        let (bent, ..) = dense::<4>(&cmyk(6, true), Intent::RelativeColorimetric, 51).unwrap();
        assert_eq!(((even.side() - 1) % 5, (bent.side() - 1) % 5), (0, 0));
    }

    #[test]
    fn deep_codes_take_the_same_way_as_bytes() {
        let bytes = rgb(17);
        let profile = Profile::new_icc(&bytes).unwrap();
        let grid = |levels| sample::<3>(&profile, &bytes, levels, ColourOptions::default()).unwrap().unwrap();
        let mut codes: Vec<u8> = (0..=255).flat_map(|code: u8| [code, 255 - code, code / 2]).collect();
        let deep: Vec<u16> = codes.iter().map(|&code| u16::from(code) * 257).collect();
        grid(256).apply8_in_place(&mut codes);
        assert_eq!(grid(1 << 16).apply16(&deep), codes);
    }

    #[test]
    fn profile_that_no_grid_comes_close_to_has_none() {
        // Two nodes and steep curves: colours change by far more within a cell than a grid can follow.
        let bytes = crate::colour::lut_profiles::jagged();
        let profile = Profile::new_icc(&bytes).unwrap();
        assert_eq!(sample::<3>(&profile, &bytes, 256, ColourOptions::default()).unwrap(), None);
    }

    #[test]
    fn ciede2000_meets_a_published_pair() {
        // Linear light of L*a*b* (50, 2.6772, -79.7751) and (50, 0, -82.7485): 2.0425 (Sharma, Wu and Dalal 2005).
        let light = |lab: [f64; 3]| {
            let y = (lab[0] + 16.0) / 116.0;
            let xyz = [y + lab[1] / 500.0, y, y - lab[2] / 200.0].map(|f| f.powi(3));
            let back = inverse(white_relative().unwrap()).unwrap();
            back.map(|row| row.iter().zip(xyz).map(|(a, b)| a * b).sum::<f64>() as f32)
        };
        let got = difference(light([50.0, 2.6772, -79.7751]), light([50.0, 0.0, -82.7485]));
        assert!((got - 2.0425).abs() < 0.02, "{got}");
    }

    /// Nanoseconds a pixel of a smooth picture, by a grid and by lcms2's own 8-bit path.
    fn nanoseconds(grid: &Grid, bytes: &[u8], intent: Intent) -> (f64, f64) {
        let cmyk = &bytes[16..20] == b"CMYK";
        let (channels, format) = if cmyk { (4, PixelFormat::CMYK_8) } else { (3, PixelFormat::RGB_8) };
        let area = 2_000_000;
        let wave = |at: usize| (127.5 + 127.5 * (at as f64 / 700.0 * (1 + at % channels) as f64).sin()) as u8;
        let pixels: Vec<u8> = (0..area * channels).map(wave).collect();
        let mut times = [f64::MAX; 2];
        for _ in 0..5 {
            let mut copy = pixels.clone();
            let started = std::time::Instant::now();
            if cmyk {
                drop(grid.apply8(&copy))
            } else {
                grid.apply8_in_place(&mut copy)
            }
            times[0] = times[0].min(started.elapsed().as_secs_f64());
            let options = ColourOptions { intent, ..ColourOptions::default() };
            let (profile, target) = (Profile::new_icc(bytes).unwrap(), Profile::new_srgb());
            let flags = engine::flags(options);
            let intent = engine::intent(options);
            let lcms: Transform<u8, u8> =
                Transform::new_flags(&profile, format, &target, PixelFormat::RGB_8, intent, flags).unwrap();
            let mut out = vec![0; area * 3];
            let started = std::time::Instant::now();
            lcms.transform_pixels(&pixels, &mut out);
            times[1] = times[1].min(started.elapsed().as_secs_f64());
        }
        (times[0] * 1e9 / area as f64, times[1] * 1e9 / area as f64)
    }

    #[test]
    #[ignore = "prints errors and times of the profiles in target/profiles, asserts nothing"]
    fn errors_of_real_profiles() {
        let mut paths: Vec<_> =
            std::fs::read_dir("../target/profiles").unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let bytes = std::fs::read(&path).unwrap();
            for intent in [Intent::RelativeColorimetric, Intent::Perceptual] {
                let started = std::time::Instant::now();
                let found = if &bytes[16..20] == b"CMYK" {
                    dense::<4>(&bytes, intent, 11)
                } else {
                    dense::<3>(&bytes, intent, 3)
                };
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                let seconds = started.elapsed().as_secs_f64();
                match found {
                    Some((grid, worst, mean, de)) => {
                        let (own, theirs) = nanoseconds(&grid, &bytes, intent);
                        eprintln!(
                            "{name} {intent:?}: side {}, worst {worst}, mean {mean:.4} codes, dE00 {de:.2}; {own:.1} ns a \
                             pixel, lcms2 {theirs:.1}",
                            grid.side()
                        );
                    }
                    None => eprintln!("{name} {intent:?}: no grid, {seconds:.2} s"),
                }
            }
        }
    }
}
