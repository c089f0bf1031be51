//! JPEG through libjpeg-turbo (TurboJPEG 3): baseline, progressive, arithmetic, lossless; gray, RGB, CMYK, YCCK.

use refmill::failure::{Code, Failure};
use refmill::finding::{Finding, FindingCode};
use refmill::report::Model;
use turbojpeg::{DecompressHeader, Decompressor, Image, PixelFormat};

use super::{Pixels, Raster, corrupt};
use crate::container::Header;
use crate::container::jpeg::Segments;

/// A progressive image has a few dozen scans; thousands are an attack on time.
const MAX_SCANS: u32 = 100;

/// What libjpeg says for damage that it steps over. The pixels are all there, at worst a few of them wrong.
const HARMLESS: &[&str] =
    &["extraneous bytes before marker", "Unknown Adobe color transform", "unknown JFIF revision", "bad ICC marker"];
/// A decoder that lives as long as its worker.
#[derive(Debug, Default)]
pub struct JpegDecoder {
    decompressor: Option<Decompressor>,
}

impl JpegDecoder {
    /// Decodes into `buffer`, which is grown as needed.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        header: &Header,
        buffer: Vec<u8>,
        findings: &mut Vec<Finding>,
    ) -> Result<Raster, Failure> {
        let mut decompressor = match self.decompressor.take() {
            Some(decompressor) => decompressor,
            None => {
                let mut fresh = Decompressor::new().map_err(|error| internal(&error))?;
                fresh.set_scan_limit(MAX_SCANS).map_err(|error| internal(&error))?;
                fresh
            }
        };
        let raster = read(&mut decompressor, bytes, header, buffer, findings)?;
        // Kept after a success alone: after an error TurboJPEG can refuse every image that follows.
        self.decompressor = Some(decompressor);
        Ok(raster)
    }
}

fn read(
    decompressor: &mut Decompressor,
    bytes: &[u8],
    header: &Header,
    buffer: Vec<u8>,
    findings: &mut Vec<Finding>,
) -> Result<Raster, Failure> {
    match decompressor.read_header(bytes) {
        Ok(found) => decompress(decompressor, bytes, &found, header, buffer, findings),
        Err(error) => {
            // A warning about a metadata segment hides the header from us: without those segments there is none.
            let found = note_warning(&error.to_string(), findings);
            found.ok_or_else(|| failure(&error))?;
            let bare = without_metadata(bytes);
            let found = decompressor.read_header(&bare).map_err(|error| failure(&error))?;
            decompress(decompressor, &bare, &found, header, buffer, findings)
        }
    }
}

fn decompress(
    decompressor: &mut Decompressor,
    bytes: &[u8],
    found: &DecompressHeader,
    header: &Header,
    mut buffer: Vec<u8>,
    findings: &mut Vec<Finding>,
) -> Result<Raster, Failure> {
    let format = match header.model {
        Model::Gray => PixelFormat::GRAY,
        Model::Cmyk => PixelFormat::CMYK,
        Model::Rgb | Model::Lab => PixelFormat::RGB,
    };
    let (width, height) = (found.width, found.height);
    if (width, height) != (header.width as usize, header.height as usize) {
        return Err(corrupt(format!(
            "decoder reads {width} x {height}, the frame header says {} x {}",
            header.width, header.height
        )));
    }
    let pitch = width * format.size();
    buffer.resize(pitch * height, 0);
    let output = Image { pixels: buffer.as_mut_slice(), width, pitch, height, format };
    if let Err(error) = decompressor.decompress(bytes, output) {
        note_warning(&error.to_string(), findings).ok_or_else(|| failure(&error))?;
    }
    let pixels = match header.model {
        Model::Gray => Pixels::Gray8(buffer),
        Model::Cmyk => {
            // Adobe's programs write CMYK inverted, and readers take it so with or without the Adobe marker.
            findings.push(Finding::new(FindingCode::CmykAdobeInverted, "", format!("{:?}", found.colorspace)));
            buffer.iter_mut().for_each(|ink| *ink = !*ink);
            Pixels::Cmyk8(buffer)
        }
        Model::Rgb | Model::Lab => Pixels::Rgb8(buffer),
    };
    Ok(Raster { width: header.width, height: header.height, pixels, alpha: None })
}

/// Records a warning that costs no pixels; `None` for any other error.
fn note_warning(message: &str, findings: &mut Vec<Finding>) -> Option<()> {
    let harmless = HARMLESS.iter().any(|known| message.contains(known));
    harmless.then(|| findings.push(Finding::new(FindingCode::StreamWarning, "", message)))
}

fn failure(error: &turbojpeg::Error) -> Failure {
    let message = error.to_string();
    let truncated = message.contains("remature end");
    let code = if message.contains("scans") {
        return Failure::new(Code::OverLimit, format!("JPEG has more than {MAX_SCANS} scans, the limit"));
    } else if truncated {
        Code::Truncated
    } else if message.contains("Unsupported") || message.contains("not supported") {
        Code::Unsupported
    } else {
        Code::Corrupt
    };
    Failure::new(code, format!("libjpeg-turbo: {message}"))
}

fn internal(error: &turbojpeg::Error) -> Failure {
    Failure::new(Code::Internal, format!("libjpeg-turbo did not start: {error}"))
}

/// The stream without APPn and COM segments, but with what tells the colour model: JFIF and a whole Adobe marker.
fn without_metadata(bytes: &[u8]) -> Vec<u8> {
    let mut out = b"\xff\xd8".to_vec();
    let mut segments = Segments::new(bytes);
    let mut has_jfif = false;
    for segment in segments.by_ref() {
        let keep = match segment.marker {
            0xe0 if !has_jfif && segment.payload.starts_with(b"JFIF\0") => {
                has_jfif = true;
                out.extend_from_slice(b"\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0");
                false
            }
            0xee => segment.payload.starts_with(b"Adobe") && segment.payload.len() >= 12,
            0xe0..=0xef | 0xfe => false,
            _ => true,
        };
        if keep {
            let end = segment.offset + 4 + segment.payload.len();
            out.extend_from_slice(bytes.get(segment.offset..end).unwrap_or_default());
        }
    }
    out.extend_from_slice(bytes.get(segments.offset()..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::jpeg;
    use refmill::limits::Limits;

    const PLAIN: &[u8] = include_bytes!("../../../fixtures/images/plain.jpg");

    #[test]
    fn image_after_a_damaged_one_is_decoded() {
        let mut damaged = PLAIN.to_vec();
        let frame = damaged.windows(2).position(|window| matches!(window, [0xff, 0xc0..=0xc2])).unwrap();
        // Sampling factors of the first component: 15 x 15, 4 x 4 is the most.
        damaged[frame + 11] = 0xff;
        let header =
            jpeg::read(&crate::open::open(PLAIN, &Limits::default()).unwrap(), &Limits::default()).unwrap().header;
        let mut decoder = JpegDecoder::default();
        let refused = decoder.decode(&damaged, &header, Vec::new(), &mut Vec::new());
        assert!(refused.err().unwrap().message.contains("sampling factors"));
        assert!(decoder.decode(PLAIN, &header, Vec::new(), &mut Vec::new()).is_ok());
    }
}
