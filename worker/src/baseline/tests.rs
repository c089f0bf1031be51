use turbojpeg::{Compressor, Decompressor, Image, PixelFormat, Subsamp, Transform, Transformer};

use super::*;
use crate::tensors::samples::Noise;

const RESTART: &[u8] = include_bytes!("../../../fixtures/images/restart.jpg");
const CMYK: &[u8] = include_bytes!("../../../fixtures/images/cmyk.jpg");

/// A picture with smooth and noisy parts.
fn picture(width: usize, height: usize, numbers: &mut Noise) -> Vec<u8> {
    let code = |x: usize, y: usize, noise: u32| u8::try_from((x * 3 + y * 2) % 200 + noise as usize).unwrap();
    (0..width * height * 3).map(|at| code(at / 3 % width, at / 3 / width, numbers.below(48))).collect()
}

fn compress(width: usize, height: usize, subsamp: Subsamp, quality: i32, numbers: &mut Noise) -> Vec<u8> {
    let pixels = picture(width, height, numbers);
    let image = Image { pixels: pixels.as_slice(), width, pitch: width * 3, height, format: PixelFormat::RGB };
    let mut compressor = Compressor::new().unwrap();
    compressor.set_subsamp(subsamp).unwrap();
    compressor.set_quality(quality).unwrap();
    compressor.compress_to_vec(image).unwrap()
}

/// The pixels, and whether libjpeg had something to say.
fn decompress(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut decompressor = Decompressor::new().unwrap();
    let header = decompressor.read_header(bytes).ok()?;
    let (width, height) = (header.width, header.height);
    let mut pixels = vec![0; width * height * 3];
    let image = Image { pixels: pixels.as_mut_slice(), width, pitch: width * 3, height, format: PixelFormat::RGB };
    decompressor.decompress(bytes, image).ok()?;
    Some(pixels)
}

fn forms() -> Vec<(Vec<u8>, Sampling)> {
    let mut numbers = Noise(3);
    let samplings = [
        (Subsamp::None, Sampling::Full),
        (Subsamp::Sub2x1, Sampling::Columns),
        (Subsamp::Sub1x2, Sampling::Rows),
        (Subsamp::Sub2x2, Sampling::Both),
        (Subsamp::Gray, Sampling::Gray),
    ];
    let sizes = [(1, 1), (17, 9), (5, 40), (64, 64), (123, 77)];
    let mut forms = Vec::new();
    for (subsamp, sampling) in samplings {
        for (width, height) in sizes {
            for quality in [35, 90, 100] {
                forms.push((compress(width, height, subsamp, quality, &mut numbers), sampling));
            }
        }
    }
    forms
}

fn rewritten(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![1, 2, 3];
    Stream::read(bytes).unwrap().rewrite(&mut out);
    out
}

#[test]
fn sound_streams_of_every_sampling_are_proved_and_rewritten_to_the_same_pixels() {
    let forms = forms();
    for (bytes, sampling) in &forms {
        let stream = Stream::read(bytes).unwrap();
        assert_eq!(stream.sampling, *sampling);
        assert_eq!(stream.prove(), Ok(()), "{sampling:?} {} x {}", stream.width, stream.height);
        assert_eq!(decompress(&rewritten(bytes)), decompress(bytes));
    }
    assert_eq!(forms.len(), 75);
}

#[test]
fn restart_markers_are_followed_and_kept() {
    let stream = Stream::read(RESTART).unwrap();
    assert!(stream.restart > 0);
    assert_eq!(stream.prove(), Ok(()));
    assert_eq!(decompress(&rewritten(RESTART)), decompress(RESTART));
}

#[test]
fn metadata_is_not_sent() {
    let bytes = include_bytes!("../../../fixtures/images/p3_orientation6.jpg");
    let out = rewritten(bytes);
    assert_eq!(Stream::read(&out).map(|stream| stream.scan.to_vec()), Ok(Stream::read(bytes).unwrap().scan.to_vec()));
    assert!(Segments::new(&out).all(|segment| !matches!(segment.marker, 0xe0..=0xef | 0xfe)));
}

/// The promise that matters: what is proved, libjpeg decodes without a word.
#[test]
fn damaged_stream_that_is_proved_is_one_that_libjpeg_takes_without_a_warning() {
    let mut numbers = Noise(9);
    let (mut proved, mut refused) = (0, 0);
    for (bytes, _) in forms().into_iter().filter(|(bytes, _)| bytes.len() > 900) {
        for _ in 0..60 {
            let mut damaged = bytes.clone();
            let at = 2 + numbers.below(u32::try_from(bytes.len()).unwrap() - 2) as usize;
            damaged[at] ^= 1 << numbers.below(8);
            let Ok(stream) = Stream::read(&damaged) else {
                refused += 1;
                continue;
            };
            if stream.prove().is_err() {
                refused += 1;
                continue;
            }
            proved += 1;
            let pixels = decompress(&damaged);
            assert!(pixels.is_some(), "byte {at} of {}", bytes.len());
            assert_eq!(decompress(&rewritten(&damaged)), pixels, "byte {at} of {}", bytes.len());
        }
    }
    assert!(proved > 50 && refused > 500, "{proved} proved, {refused} refused");
}

#[test]
fn stream_cut_anywhere_is_refused() {
    let bytes = compress(64, 48, Subsamp::Sub2x2, 90, &mut Noise(4));
    for length in 0..bytes.len() {
        let mut cut = bytes[..length].to_vec();
        let refused = |bytes: &[u8]| Stream::read(bytes).and_then(|stream| stream.prove()).is_err();
        assert!(refused(&cut), "{length} of {} bytes", bytes.len());
        cut.extend_from_slice(b"\xff\xd9");
        assert!(refused(&cut) || length + 2 >= bytes.len(), "{length} of {} bytes, and EOI", bytes.len());
    }
}

#[test]
fn bytes_between_the_last_block_and_the_end_are_refused() {
    let mut bytes = compress(64, 48, Subsamp::Sub2x2, 90, &mut Noise(4));
    let end = bytes.len() - 2;
    bytes.splice(end..end, [0x12, 0x34]);
    assert_eq!(Stream::read(&bytes).unwrap().prove(), Err(Refusal("bytes after the last block")));
}

#[test]
fn what_the_engine_cannot_do_is_named() {
    let progressive = {
        let mut transform = Transform::default();
        transform.progressive = true;
        Transformer::new().unwrap().transform_to_vec(&transform, RESTART).unwrap()
    };
    let refusal = |bytes: &[u8]| Stream::read(bytes).map(drop).unwrap_err().0;
    assert_eq!(refusal(&progressive), "progressive");
    assert_eq!(refusal(CMYK), "four components (CMYK or YCCK)");
}
