//! Profiles with lookup tables, RGB or CMYK, as a grid that lcms2 fills once (`sampling.rs`). Between its nodes
//! colours are interpolated in tetrahedra, in whole numbers. Then come a cube, three by
//! three and the inverse sRGB curve in an order of operations that every device keeps: the same pixels give the same
//! codes everywhere.
//!
//! A node holds the cube roots of its X, Y and Z as CIE 1976 L*a*b* defines them (CIE 15:2004 8.2.1), relative to the
//! white of sRGB: tables of profiles are close to linear there. In sRGB codes they are not, and bend where a colour
//! leaves the gamut: with as many nodes the error was three times as large.

use super::matrix::{ENCODE, ROUND, bounded, encode_table};

/// Cube roots of X, Y and Z in 1/16384 of white's, and nothing: four lanes make a node one load.
pub type Node = [i16; 4];
/// 1 of a cube root in a [`Node`], as a power of two.
pub const NODE_BITS: u32 = 14;
/// The weight 1, as a power of two.
pub const WEIGHT_BITS: u32 = 15;

/// Where a code lies on its axis: the cell in the upper half, the weight of its upper node in the lower.
pub type Step = u32;

/// A grid over device codes of three or four channels.
#[derive(Clone, PartialEq)]
pub struct Grid {
    side: usize,
    /// The last channel's neighbours lie next to each other.
    nodes: Box<[Node]>,
    /// For each channel, the step of each of its 256 or 65,536 codes.
    steps: Vec<Box<[Step]>>,
    /// What X, Y and Z each add to the light of R, G and B, in indices of the sRGB curve's table.
    columns: [[f32; 4]; 3],
}

impl std::fmt::Debug for Grid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grid").field("channels", &self.steps.len()).field("side", &self.side).finish_non_exhaustive()
    }
}

/// One channel's way through the nodes: for the sort its weight comes first, its distance to the next node second.
#[derive(Clone, Copy, Default)]
struct Way {
    base: u32,
    key: u32,
}

impl Grid {
    /// A grid of `side` nodes an axis; `steps` has an entry for each channel, `nodes` as many as that spans.
    pub fn new(side: usize, nodes: Vec<Node>, steps: Vec<Box<[Step]>>, columns: [[f32; 4]; 3]) -> Self {
        Self { side, nodes: nodes.into_boxed_slice(), steps, columns }
    }

    /// Nodes an axis.
    pub fn side(&self) -> usize {
        self.side
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The steps of each channel.
    pub fn steps(&self) -> &[Box<[Step]>] {
        &self.steps
    }

    /// What X, Y and Z each add to R, G and B.
    pub fn columns(&self) -> &[[f32; 4]; 3] {
        &self.columns
    }

    /// Converts RGB codes in place.
    pub fn apply8_in_place(&self, pixels: &mut [u8]) {
        let Some(ways) = self.ways::<3>() else { return };
        for pixel in pixels.as_chunks_mut::<3>().0 {
            *pixel = self.colour(walk(&ways, pixel.map(usize::from)));
        }
    }

    /// Converts CMYK codes.
    pub fn apply8(&self, pixels: &[u8]) -> Vec<u8> {
        let Some(ways) = self.ways::<4>() else { return Vec::new() };
        let mut out = Vec::with_capacity(pixels.len() / 4 * 3);
        for pixel in pixels.as_chunks::<4>().0 {
            out.extend(self.colour(walk(&ways, pixel.map(usize::from))));
        }
        out
    }

    /// Converts RGB or CMYK codes of 16 bits.
    pub fn apply16(&self, pixels: &[u16]) -> Vec<u8> {
        match self.steps.len() {
            3 => self.deep::<3>(pixels),
            _ => self.deep::<4>(pixels),
        }
    }

    fn deep<const N: usize>(&self, pixels: &[u16]) -> Vec<u8> {
        let Some(ways) = self.ways::<N>() else { return Vec::new() };
        let mut out = Vec::with_capacity(pixels.len() / N * 3);
        for pixel in pixels.as_chunks::<N>().0 {
            out.extend(self.colour(walk(&ways, pixel.map(usize::from))));
        }
        out
    }

    /// Each channel's ways, computed once an image; `None` for a grid of other channels.
    fn ways<const N: usize>(&self) -> Option<[Vec<Way>; N]> {
        let mut ways = [const { Vec::new() }; N];
        let mut stride = 1;
        for (ways, steps) in ways.iter_mut().zip(&self.steps).rev() {
            let way = |step: &Step| Way { base: (step >> 16) * stride, key: ((step & 0xffff) << 16) | stride };
            *ways = steps.iter().map(way).collect();
            stride *= u32::try_from(self.side).ok()?;
        }
        (self.steps.len() == N).then_some(ways)
    }

    #[inline(always)]
    fn colour<const N: usize>(&self, (base, keys): (u32, [u32; N])) -> [u8; 3] {
        self.encode(self.roots(base, keys))
    }

    /// Mixes the corners of the tetrahedron that the last three channels lie in: from the base along the axes, largest
    /// weight first. Between two of those mixes the first of four channels is linear. lcms2 does the same, so that
    /// nodes which fall on a profile's own give what it gives.
    #[inline(always)]
    fn roots<const N: usize>(&self, base: u32, keys: [u32; N]) -> [i32; 4] {
        let (mut last, outer) = match *keys.as_slice() {
            [outer, a, b, c] => ([a, b, c], outer),
            [a, b, c] => ([a, b, c], 0),
            _ => ([0; 3], 0),
        };
        sort(&mut last);
        let (mut at, mut before, mut sums) = (base as usize, 1 << WEIGHT_BITS, [0; 4]);
        for key in last {
            self.add(&mut sums, at, before - (key >> 16), outer);
            at += (key & 0xffff) as usize;
            before = key >> 16;
        }
        self.add(&mut sums, at, before, outer);
        sums
    }

    #[inline(always)]
    fn add(&self, sums: &mut [i32; 4], at: usize, weight: u32, outer: u32) {
        let upper = (weight * (outer >> 16) + (1 << (WEIGHT_BITS - 1))) >> WEIGHT_BITS;
        self.add_one(sums, at, weight - upper);
        if outer != 0 {
            self.add_one(sums, at + (outer & 0xffff) as usize, upper);
        }
    }

    #[inline(always)]
    fn add_one(&self, sums: &mut [i32; 4], at: usize, weight: u32) {
        let node = self.nodes.get(at).copied().unwrap_or_default();
        for (sum, root) in sums.iter_mut().zip(node) {
            *sum += i32::from(root) * weight.cast_signed();
        }
    }

    /// From cube roots to codes. The order of the operations is the kernels' as well.
    #[inline(always)]
    fn encode(&self, roots: [i32; 4]) -> [u8; 3] {
        let [x, y, z, _] = roots.map(|root| {
            let root = root as f32 * ONE;
            if root > KNEE { root * root * root } else { (root - OFFSET) * SLOPE }
        });
        let [cx, cy, cz] = &self.columns;
        let mut indices = [0u32; 4];
        for (((index, cx), cy), cz) in indices.iter_mut().zip(cx).zip(cy).zip(cz) {
            *index = (bounded(x * cx + y * cy + z * cz) + ROUND).to_bits();
        }
        let [r, g, b, _] = indices;
        let table = encode_table();
        [r, g, b].map(|index| table.get(index as usize & (ENCODE - 1)).copied().unwrap_or(u8::MAX))
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.nodes) + self.steps.iter().map(|steps| size_of_val(&**steps)).sum::<usize>()
    }
}

/// Scale of a sum of weighted nodes: exact, since it is a power of two.
#[expect(clippy::cast_precision_loss, reason = "a power of two")]
const ONE: f32 = 1.0 / (1u32 << (NODE_BITS + WEIGHT_BITS)) as f32;
/// CIE 15:2004 8.2.1: where the cube root gives way to a line.
const KNEE: f32 = 6.0 / 29.0;
const OFFSET: f32 = 4.0 / 29.0;
const SLOPE: f32 = 108.0 / 841.0;

/// The base node of a pixel and its axes' keys.
#[inline(always)]
fn walk<const N: usize>(ways: &[Vec<Way>; N], codes: [usize; N]) -> (u32, [u32; N]) {
    let (mut base, mut keys) = (0, [0; N]);
    for ((key, ways), code) in keys.iter_mut().zip(ways).zip(codes) {
        let way = ways.get(code).copied().unwrap_or_default();
        base += way.base;
        *key = way.key;
    }
    (base, keys)
}

/// Largest first, without a branch.
#[inline(always)]
fn sort(keys: &mut [u32; 3]) {
    let [a, b, c] = *keys;
    let (a, b) = (a.max(b), a.min(b));
    let (b, c) = (b.max(c), b.min(c));
    *keys = [a.max(b), a.min(b), c];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grid of three nodes an axis whose nodes are told by their place.
    fn grid(value: impl Fn([usize; 3]) -> Node) -> Grid {
        let places = (0..27).map(|at| [at / 9, at / 3 % 3, at % 3]);
        let steps: Box<[Step]> = (0..256u32).map(|code| step(code * 257, 2)).collect();
        Grid::new(3, places.map(value).collect(), vec![steps; 3], [[0.0; 4]; 3])
    }

    fn step(code: u32, cells: u32) -> Step {
        let (cell, rest) = (code * cells / 65_535, code * cells % 65_535);
        if cell == cells {
            ((cell - 1) << 16) | (1 << WEIGHT_BITS)
        } else {
            (cell << 16) | (((rest << 15) + 32_767) / 65_535)
        }
    }

    fn roots(grid: &Grid, pixel: [u8; 3]) -> [i32; 4] {
        let (base, keys) = walk(&grid.ways::<3>().unwrap(), pixel.map(usize::from));
        grid.roots(base, keys)
    }

    #[test]
    fn plane_through_the_nodes_is_met_between_them() {
        let plane = grid(|[r, g, b]| [r as i16 * 1000, g as i16 * 2000, b as i16 * 4000 - 4000, 0]);
        for pixel in [[0, 0, 0], [255, 255, 255], [51, 102, 204], [3, 250, 127], [128, 128, 128]] {
            let [r, g, b] = pixel.map(|code| f64::from(code) / 255.0 * 2.0);
            let wanted = [r * 1000.0, g * 2000.0, b * 4000.0 - 4000.0];
            let got = roots(&plane, pixel).map(|sum| f64::from(sum) / 32_768.0);
            let worst = wanted.iter().zip(got).map(|(w, g)| (w - g).abs()).fold(0.0, f64::max);
            assert!(worst < 0.2, "{pixel:?}: {got:?}, wanted {wanted:?}");
        }
    }

    #[test]
    fn colours_in_a_tetrahedron_are_mixed_of_its_own_corners() {
        // Only the corner that follows red alone has a value, so weight reaches it where red is the largest fraction.
        let corner = grid(|place| if place == [1, 0, 0] { [16_000, 0, 0, 0] } else { [0; 4] });
        let red = |pixel| roots(&corner, pixel)[0];
        assert_eq!(red([0, 64, 100]), 0);
        assert!(red([100, 64, 0]) > 0 && red([100, 99, 98]) < red([100, 50, 49]));
    }

    #[test]
    fn ends_of_the_axes_are_nodes() {
        let told = grid(|[r, g, b]| [(r * 9 + g * 3 + b) as i16, 0, 0, 0]);
        let at = |pixel| roots(&told, pixel)[0] >> WEIGHT_BITS;
        assert_eq!([at([0; 3]), at([255; 3]), at([255, 0, 0]), at([0, 0, 255])], [0, 26, 18, 2]);
    }

    #[test]
    fn first_of_four_channels_is_linear_between_mixes_of_the_others() {
        let steps: Box<[Step]> = (0..256u32).map(|code| step(code * 257, 1)).collect();
        let product = |at: usize| [if at & 0b1001 == 0b1001 { 16_000 } else { 0 }, 0, 0, 0];
        let grid = Grid::new(2, (0..16).map(product).collect(), vec![steps; 4], [[0.0; 4]; 3]);
        let ways = grid.ways::<4>().unwrap();
        let root = |pixel: [usize; 4]| {
            let (base, keys) = walk(&ways, pixel);
            f64::from(grid.roots(base, keys)[0]) / 32_768.0
        };
        for (c, k) in [(255, 255), (51, 255), (255, 51), (102, 204), (0, 255)] {
            let wanted = 16_000.0 * c as f64 / 255.0 * k as f64 / 255.0;
            assert!((root([c, 0, 0, k]) - wanted).abs() < 1.0, "{c} {k}: {}, wanted {wanted}", root([c, 0, 0, k]));
        }
    }

    #[test]
    fn keys_are_sorted_largest_first() {
        for seed in 0..30u32 {
            let mut keys = [seed % 3, seed / 3 % 3, seed % 5];
            let mut wanted = keys;
            wanted.sort_unstable_by(|a, b| b.cmp(a));
            sort(&mut keys);
            assert_eq!(keys, wanted);
        }
    }
}
