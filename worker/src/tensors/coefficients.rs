//! Resampling weights of one axis in 16-bit fixed point: which source pixels make a target pixel, and how much of
//! each. Bit for bit those of fast_image_resize 6, which resamples on the CPU and keeps its own to itself, so that
//! a GPU kernel can give the same bytes. A test compares the two; the dependency is pinned to its major version.

use refmill::recipe::Filter;

/// Bits that a sum of weighted 8-bit codes leaves for the weights' fraction: sign and overshoot take two of 32.
const MOST_PRECISION: u8 = 32 - 8 - 2;

/// One axis: how a target pixel is made from source pixels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Axis {
    /// Bits of fraction in the weights.
    pub precision: u8,
    /// Room for weights of one target pixel.
    pub window: usize,
    /// First source pixel and count of source pixels, for each target pixel.
    pub bounds: Vec<[u32; 2]>,
    /// `window` weights for each target pixel; those past the count are 0.
    pub weights: Vec<i16>,
}

impl Axis {
    /// The weights for `target` pixels made from `start..start + length` of `pixels` source pixels. Reads beyond
    /// the stretch where the filter reaches, never beyond the source.
    pub fn new(filter: Filter, pixels: u32, (start, length): (f64, f64), target: u32) -> Self {
        let scale = ((start + length) - start) / f64::from(target);
        let widening = scale.max(1.0);
        let reach = support(filter) * widening;
        let narrowing = 1.0 / widening;
        let mut rows = Vec::with_capacity(target as usize);
        for index in 0..target {
            let centre = start + (f64::from(index) + 0.5) * scale;
            rows.push(Row::new(filter, pixels, centre, reach, narrowing));
        }
        Self::fixed_point(&rows)
    }

    /// `count` source pixels from `first` on, as they are.
    pub fn copy(first: u32, count: u32) -> Self {
        let bounds = (first..first.saturating_add(count)).map(|at| [at, 1]).collect();
        Self { precision: 14, window: 1, bounds, weights: vec![1 << 14; count as usize] }
    }

    /// The source pixels that any target pixel reads, as a half-open range.
    pub fn reads(&self) -> (u32, u32) {
        let first = self.bounds.iter().map(|&[first, _]| first).min().unwrap_or(0);
        let end = self.bounds.iter().map(|&[first, count]| first.saturating_add(count)).max().unwrap_or(0);
        (first, end)
    }

    /// The most precision at which the largest weight still fits 16 bits.
    fn precision(rows: &[Row]) -> u8 {
        let largest = rows.iter().flat_map(|row| &row.weights).copied().fold(0.0, f64::max);
        let fits = |precision: u8| (largest * f64::from(1_u32 << (precision + 1))).round() < 32768.0;
        (0..MOST_PRECISION).find(|&precision| !fits(precision)).unwrap_or(MOST_PRECISION - 1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "saturates, as the rounding that it has to match does")]
    fn fixed_point(rows: &[Row]) -> Self {
        let precision = Self::precision(rows);
        let unit = f64::from(1_u32 << precision);
        let window = rows.iter().map(|row| row.weights.len()).max().unwrap_or(0);
        let mut weights = Vec::with_capacity(rows.len() * window);
        let mut bounds = Vec::with_capacity(rows.len());
        for row in rows {
            let end = weights.len() + window;
            weights.extend(row.weights.iter().map(|weight| (weight * unit).round() as i16));
            weights.resize(end, 0);
            bounds.push([row.first, row.weights.len() as u32]);
        }
        Self { precision, window, bounds, weights }
    }
}

/// The weights of one target pixel; they sum up to 1.
struct Row {
    first: u32,
    weights: Vec<f64>,
}

impl Row {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=pixels first")]
    fn new(filter: Filter, pixels: u32, centre: f64, reach: f64, narrowing: f64) -> Self {
        let mut first = (centre - reach).floor().max(0.0) as u32;
        let end = (centre + reach).ceil().min(f64::from(pixels)) as u32;
        let middle = centre - 0.5;
        let mut weights: Vec<f64> =
            (first..end).map(|at| weigh(filter, (f64::from(at) - middle) * narrowing)).collect();
        let idle = weights.iter().take_while(|&&weight| weight == 0.0).count();
        weights.drain(..idle);
        first += idle as u32;
        let sum: f64 = weights.iter().sum();
        if sum != 0.0 {
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        while weights.last() == Some(&0.0) {
            weights.pop();
        }
        Self { first, weights }
    }
}

/// How far a filter reaches, in target pixels.
fn support(filter: Filter) -> f64 {
    match filter {
        Filter::Lanczos3 => 3.0,
        Filter::Bicubic => 2.0,
    }
}

fn weigh(filter: Filter, x: f64) -> f64 {
    match filter {
        Filter::Lanczos3 if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
        Filter::Lanczos3 => 0.0,
        Filter::Bicubic => cubic(x.abs()),
    }
}

fn sinc(x: f64) -> f64 {
    let turn = x * std::f64::consts::PI;
    if x == 0.0 { 1.0 } else { turn.sin() / turn }
}

/// The cubic convolution kernel with a = -0.5, for x from 0 on. The order of operations decides the last bit.
fn cubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}
