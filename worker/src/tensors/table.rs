//! Normalisation as a table: an 8-bit code can become only 256 elements a channel, so each is computed once, in
//! f32, and converted once. Both devices read the same tables, which makes their tensors equal.

use half::{bf16, f16};
use refmill::recipe::{Dtype, Normalise};

/// What each code of R, G and B becomes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    dtype: Dtype,
    values: [[f32; 256]; 3],
}

impl Table {
    /// Computes `code * scale + offset` for every code and channel.
    pub fn new(normalise: Normalise, dtype: Dtype) -> Self {
        let (scale, offset) = normalise.affine();
        let mut values = [[0.0; 256]; 3];
        for ((channel, scale), offset) in values.iter_mut().zip(scale).zip(offset) {
            for (value, code) in channel.iter_mut().zip(0_u8..=u8::MAX) {
                *value = f32::from(code) * scale + offset;
            }
        }
        Self { dtype, values }
    }

    /// The tables as f32 elements, little endian.
    pub fn f32(&self) -> [[[u8; 4]; 256]; 3] {
        self.values.map(|channel| channel.map(f32::to_le_bytes))
    }

    /// The tables as f16 or bf16 elements, little endian, rounded to nearest, ties to even.
    pub fn f16(&self) -> [[[u8; 2]; 256]; 3] {
        self.values.map(|channel| {
            channel.map(|value| match self.dtype {
                Dtype::Bf16 => bf16::from_f32(value).to_le_bytes(),
                _ => f16::from_f32(value).to_le_bytes(),
            })
        })
    }

    /// The tables as bytes: the codes themselves, since u8 takes no normalisation.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; 0 to 255 by the recipe")]
    pub fn u8(&self) -> [[[u8; 1]; 256]; 3] {
        self.values.map(|channel| channel.map(|value| [value as u8]))
    }

    /// Appends the tables of the first `channels` channels to `out`, element after element.
    pub fn append(&self, channels: usize, out: &mut Vec<u8>) {
        match self.dtype {
            Dtype::F32 => out.extend(self.f32().iter().take(channels).flatten().flatten()),
            Dtype::F16 | Dtype::Bf16 => out.extend(self.f16().iter().take(channels).flatten().flatten()),
            Dtype::U8 => out.extend(self.u8().iter().take(channels).flatten().flatten()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_maps_both_ends() {
        let table = Table::new(Normalise::Range { min: -1.0, max: 1.0 }, Dtype::F32);
        assert_eq!(table.values[0][0], -1.0);
        assert!((table.values[2][255] - 1.0).abs() <= f32::EPSILON);
    }

    #[test]
    fn mean_and_std_differ_by_channel() {
        let normalise = Normalise::MeanStd { mean: [0.5, 0.25, 0.0], std: [0.5, 0.5, 1.0] };
        let table = Table::new(normalise, Dtype::F32);
        assert_eq!([table.values[0][0], table.values[1][0], table.values[2][0]], [-1.0, -0.5, 0.0]);
    }

    #[test]
    fn bf16_keeps_the_upper_half_of_f32() {
        let mut bytes = Vec::new();
        Table::new(Normalise::Range { min: 0.0, max: 255.0 }, Dtype::Bf16).append(1, &mut bytes);
        assert_eq!((bytes.len(), &bytes[2..4]), (512, &[0x80, 0x3f][..]));
    }

    #[test]
    fn u8_keeps_the_codes() {
        let mut bytes = Vec::new();
        Table::new(Normalise::None, Dtype::U8).append(1, &mut bytes);
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    }
}
