//! One picture of each sampling through the engines, against libjpeg-turbo: before any hostile byte, and so that
//! all that the library opens late is open before the confinement closes.

use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr};
use turbojpeg::{Compressor, Decompressor, Image, PixelFormat, Subsamp};

use super::Engine;
use crate::baseline::{Sampling, Stream};
use crate::gpu::allocate;
use crate::gpu::error::GpuError;
use crate::gpu::ycc::{Convert, Layout, Planes};

/// Neither a multiple of the blocks nor even.
const WIDTH: usize = 187;
const HEIGHT: usize = 109;
/// Bytes behind the planes, which nobody may write.
const GUARD: usize = 4096;
const FORMS: [(Sampling, Subsamp); 5] = [
    (Sampling::Full, Subsamp::None),
    (Sampling::Columns, Subsamp::Sub2x1),
    (Sampling::Rows, Subsamp::Sub1x2),
    (Sampling::Both, Subsamp::Sub2x2),
    (Sampling::Gray, Subsamp::Gray),
];

/// What came of the trial.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Samplings whose picture came out as libjpeg-turbo's.
    pub proved: Vec<Sampling>,
    /// The others, and what was wrong with each.
    pub refused: Vec<(Sampling, String)>,
}

impl Verdict {
    /// What was wrong, for people.
    pub fn problems(&self) -> String {
        let one = |(sampling, problem): &(Sampling, String)| format!("{sampling:?} ({problem})");
        self.refused.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// Tries a picture of each sampling.
pub fn judge(engine: &Arc<Engine>, stream: &Arc<CudaStream>, convert: &Convert) -> Verdict {
    let mut verdict = Verdict::default();
    for (sampling, subsamp) in FORMS {
        match compare(engine, stream, convert, sampling, subsamp) {
            Ok(()) => verdict.proved.push(sampling),
            Err(problem) => verdict.refused.push((sampling, problem)),
        }
    }
    verdict
}

fn compare(
    engine: &Arc<Engine>,
    stream: &Arc<CudaStream>,
    convert: &Convert,
    sampling: Sampling,
    subsamp: Subsamp,
) -> Result<(), String> {
    let (jpeg, expected) = picture(subsamp).map_err(|error| error.to_string())?;
    let read = Stream::read(&jpeg).map_err(|refusal| refusal.to_string())?;
    let mut bytes = Vec::new();
    read.rewrite(&mut bytes);
    let layout = Layout::new(read.width, read.height, sampling);
    let decoded = decode(engine, stream, convert, &bytes, layout).map_err(|error| error.to_string())?;
    let found = decoded.ok_or("bytes behind the planes were written")?;
    let rows = found.chunks(layout.rgb_pitch()).filter_map(|found| found.get(..WIDTH * 3));
    difference(&rows.flatten().copied().collect::<Vec<u8>>(), &expected).map_or(Ok(()), Err)
}

/// How pixels differ, in words: how many codes, by how much, and where first. `None` where they are equal.
fn difference(found: &[u8], expected: &[u8]) -> Option<String> {
    if found.len() != expected.len() {
        return Some(format!("{} codes instead of {}", found.len(), expected.len()));
    }
    let apart = || found.iter().zip(expected).map(|(found, expected)| found.abs_diff(*expected));
    let first = apart().position(|by| by != 0)?;
    let (count, most) = (apart().filter(|by| *by != 0).count(), apart().max().unwrap_or(0));
    let (x, y) = (first / 3 % WIDTH, first / 3 / WIDTH);
    Some(format!("{count} of {} codes differ by up to {most}, first at {x}, {y}", expected.len()))
}

/// R, G and B that came out; `None` where bytes behind the planes changed.
fn decode(
    engine: &Arc<Engine>,
    stream: &Arc<CudaStream>,
    convert: &Convert,
    bytes: &[u8],
    layout: Layout,
) -> Result<Option<Vec<u8>>, GpuError> {
    let copied = |error| GpuError::cuda("copying a trial's pixels", error);
    let memory = allocate(stream, layout.bytes + GUARD, "device memory for a trial")?;
    let target = allocate(stream, layout.rgb_pitch() * HEIGHT, "device memory for a trial")?;
    let planes = Planes::new(memory.device_ptr(stream).0, layout.bytes, layout)?;
    let mut batch = engine.batch()?;
    // SAFETY: `bytes` and `memory` outlive the copies below, which wait for the stream.
    unsafe { batch.decode(&[bytes], &[planes], stream) }?;
    // SAFETY: both memories are this function's own and outlive the copies below; only this stream uses them.
    unsafe { convert.run(stream, &planes, target.device_ptr(stream).0, target.num_bytes()) }?;
    let guarded = stream.clone_dtoh(&memory).map_err(copied)?;
    let rgb = stream.clone_dtoh(&target).map_err(copied)?;
    stream.synchronize().map_err(copied)?;
    let untouched = guarded.iter().skip(layout.bytes).all(|&byte| byte == 0);
    Ok(untouched.then_some(rgb))
}

/// A picture of waves and noise as JPEG, and what libjpeg-turbo makes of that.
fn picture(subsamp: Subsamp) -> turbojpeg::Result<(Vec<u8>, Vec<u8>)> {
    let mut state = 7u32;
    let mut noise = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 25
    };
    let pixels: Vec<u8> = (0..WIDTH * HEIGHT * 3)
        .map(|at| u8::try_from((at / 3 % WIDTH + at % 3 * 40 + at / (3 * WIDTH)) % 128).unwrap_or(0))
        .map(|wave| wave.saturating_add(u8::try_from(noise()).unwrap_or(0)))
        .collect();
    let format = PixelFormat::RGB;
    let image = Image { pixels: pixels.as_slice(), width: WIDTH, pitch: WIDTH * 3, height: HEIGHT, format };
    let mut compressor = Compressor::new()?;
    compressor.set_subsamp(subsamp)?;
    compressor.set_quality(92)?;
    let jpeg = compressor.compress_to_vec(image)?;
    let mut expected = vec![0; WIDTH * 3 * HEIGHT];
    let output = Image { pixels: expected.as_mut_slice(), width: WIDTH, pitch: WIDTH * 3, height: HEIGHT, format };
    Decompressor::new()?.decompress(&jpeg, output)?;
    Ok((jpeg, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_that_differ_are_counted_and_placed() {
        let expected = vec![7; WIDTH * HEIGHT * 3];
        let mut found = expected.clone();
        assert_eq!(difference(&found, &expected), None);
        found[3 * (2 * WIDTH + 5) + 1] = 9;
        found[3 * (4 * WIDTH) + 2] = 4;
        let words = difference(&found, &expected);
        assert_eq!(words.as_deref(), Some("2 of 61149 codes differ by up to 3, first at 5, 2"));
        let words = difference(&found[1..], &expected);
        assert_eq!(words.as_deref(), Some("61148 codes instead of 61149"));
    }
}
