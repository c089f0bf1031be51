//! A transform as a GPU runs it: which kernel of worker/kernels/colour.cu, and the bytes of its tables. HDR and what
//! lcms2 does itself stay on the CPU: the one computes in double precision, the other is no table.

use std::sync::Arc;

use super::engine::{Engine, Kind};
use super::matrix::encode_table;

/// A kernel, one for each form of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// RGB that is sRGB.
    Plain,
    /// Gray, by what each code becomes.
    Table,
    /// (1-C)(1-K).
    Naive,
    /// RGB through curves and a matrix.
    Matrix,
    /// RGB through a grid.
    RgbGrid,
    /// CMYK through a grid.
    CmykGrid,
}

impl Kernel {
    /// Channels of a pixel that it reads.
    #[must_use]
    pub fn channels(self) -> usize {
        match self {
            Self::Table => 1,
            Self::Plain | Self::Matrix | Self::RgbGrid => 3,
            Self::Naive | Self::CmykGrid => 4,
        }
    }
}

/// What a GPU does to pixels of one kind. Two of the same transform share their tables' allocation.
#[derive(Debug, Clone)]
pub struct Program {
    /// The kernel.
    pub kernel: Kernel,
    /// Whether samples have 16 bits.
    pub deep: bool,
    /// Nodes an axis of a grid, else 0.
    pub side: u32,
    /// The tables, little endian; empty where the kernel has none.
    pub tables: Arc<[u8]>,
}

impl Program {
    /// The program of `engine` for pixels of `kind`; `None` where the CPU has to convert.
    pub fn new(engine: &Engine, kind: Kind) -> Option<Self> {
        use Kind as K;
        let (kernel, side, tables) = match (engine, kind) {
            (Engine::Identity, K::Rgb8 | K::Rgb16) => (Kernel::Plain, 0, Vec::new()),
            (Engine::Identity, K::Gray8) => (Kernel::Table, 0, padded((0..=u8::MAX).map(|code| [code; 3]))),
            (Engine::Identity, K::Gray16) => {
                let codes = crate::decode::to_8_bits(&(0..=u16::MAX).collect::<Vec<_>>());
                (Kernel::Table, 0, padded(codes.into_iter().map(|code| [code; 3])))
            }
            (Engine::NaiveCmyk, K::Cmyk8 | K::Cmyk16) => (Kernel::Naive, 0, Vec::new()),
            (Engine::Table(table), K::Gray8 | K::Gray16) => (Kernel::Table, 0, padded(table.iter().copied())),
            (Engine::Matrix(matrix), K::Rgb8 | K::Rgb16) => {
                let light = matrix.light().iter().flatten().flatten().flat_map(|light| light.to_le_bytes());
                (Kernel::Matrix, 0, encode_table().iter().copied().chain(light).collect())
            }
            (Engine::Grid(grid), K::Rgb8 | K::Rgb16 | K::Cmyk8 | K::Cmyk16) => {
                let kernel = if grid.steps().len() == 3 { Kernel::RgbGrid } else { Kernel::CmykGrid };
                // A fourth column makes what follows begin at a multiple of 64.
                let columns = grid.columns().iter().chain([&[0.0; 4]]).flatten().flat_map(|entry| entry.to_le_bytes());
                let steps = grid.steps().iter().flatten().flat_map(|step| step.to_le_bytes());
                let nodes = grid.nodes().iter().flatten().flat_map(|root| root.to_le_bytes());
                let tables = encode_table().iter().copied().chain(columns).chain(steps).chain(nodes).collect();
                (kernel, u32::try_from(grid.side()).ok()?, tables)
            }
            _ => return None,
        };
        Some(Self { kernel, deep: kind.levels() > 256, side, tables: tables.into() })
    }

    /// Bytes that the kernel reads of its tables.
    #[must_use]
    pub fn reads(&self) -> usize {
        let (levels, channels) = (if self.deep { 1 << 16 } else { 1 << 8 }, self.kernel.channels());
        let encode = encode_table().len();
        match self.kernel {
            Kernel::Plain | Kernel::Naive => 0,
            Kernel::Table => levels * 4,
            Kernel::Matrix => encode + 3 * levels * 16,
            Kernel::RgbGrid | Kernel::CmykGrid => {
                encode + 64 + channels * levels * 4 + (self.side as usize).pow(if channels == 3 { 3 } else { 4 }) * 8
            }
        }
    }
}

fn padded(codes: impl Iterator<Item = [u8; 3]>) -> Vec<u8> {
    codes.flat_map(|[r, g, b]| [r, g, b, 0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::engine::build;
    use crate::colour::lut_profiles::{cmyk, rgb};
    use crate::icc::Profile;
    use crate::repair::Meaning;
    use refmill::job::ColourOptions;
    use std::borrow::Cow;

    fn program(meaning: &Meaning<'_>, kind: Kind) -> Option<Program> {
        Program::new(&build(meaning, kind, ColourOptions::default()).unwrap(), kind)
    }

    fn icc(bytes: Vec<u8>) -> Meaning<'static> {
        Meaning::Icc(Profile { bytes: Cow::Owned(bytes), description: String::new(), linear: false })
    }

    #[test]
    fn tables_are_as_long_as_their_kernel_reads() {
        let all = [
            (Meaning::Srgb, Kind::Rgb8, Kernel::Plain),
            (Meaning::Srgb, Kind::Gray16, Kernel::Table),
            (Meaning::CmykNaive, Kind::Cmyk16, Kernel::Naive),
            (Meaning::AdobeRgb, Kind::Rgb8, Kernel::Matrix),
            (Meaning::AdobeRgb, Kind::Rgb16, Kernel::Matrix),
            (Meaning::AdobeRgb, Kind::Gray8, Kernel::Table),
            (icc(rgb(17)), Kind::Rgb8, Kernel::RgbGrid),
            (icc(cmyk(9, true)), Kind::Cmyk16, Kernel::CmykGrid),
        ];
        for (meaning, kind, kernel) in all {
            let program = program(&meaning, kind).unwrap();
            assert_eq!((program.kernel, program.tables.len()), (kernel, program.reads()), "{kind:?}");
        }
    }

    #[test]
    fn hdr_and_lab_have_no_program() {
        let pq = Meaning::Cicp { primaries: 9, transfer: 16 };
        assert!(program(&pq, Kind::Rgb16).is_none() && program(&Meaning::Lab, Kind::Lab8).is_none());
    }
}
