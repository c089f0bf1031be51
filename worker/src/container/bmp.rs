//! Windows bitmap headers: size, depth, and the profile that a version 5 header embeds.

use refmill::failure::Failure;
use refmill::finding::{Finding, FindingCode};
use refmill::limits::Limits;
use refmill::report::Model;

use super::{Block, Container, Header, over_limit, truncated};
use crate::bytes::{Order, index_at, slice, u16_at, u32_at};

const FILE_HEADER: usize = 14;

/// Reads the container.
///
/// # Errors
/// [`refmill::failure::Code::Truncated`] where the header is not whole.
pub fn read<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Container<'a>, Failure> {
    let header = header(bytes)
        .ok_or_else(|| truncated(format!("bitmap header is not whole, input has {} bytes", bytes.len())))?;
    let mut container = Container::new(header);
    profile(bytes, limits, &mut container);
    container.cut = pixels_end(bytes)
        .filter(|end| *end > bytes.len() as u64)
        .map(|end| format!("the pixels end at byte {end}, there are {}", bytes.len()));
    Ok(container)
}

fn header(bytes: &[u8]) -> Option<Header> {
    let core = u32_at(bytes, FILE_HEADER, Order::Little)? == 12;
    let (width, height, bits) = if core {
        let side = |at| u16_at(bytes, at, Order::Little).map(u32::from);
        (side(18)?, side(20)?, u16_at(bytes, 24, Order::Little)?)
    } else {
        let height = u32_at(bytes, 22, Order::Little)?.cast_signed().unsigned_abs();
        (u32_at(bytes, 18, Order::Little)?, height, u16_at(bytes, 28, Order::Little)?)
    };
    let bits = if bits > 24 || bits <= 8 { 8 } else { u8::try_from(bits / 3).unwrap_or(8) };
    Some(Header { width, height, bits, model: Model::Rgb, alpha: false, frames: 1 })
}

/// Where uncompressed pixels end; `None` for compressed ones.
fn pixels_end(bytes: &[u8]) -> Option<u64> {
    let stored = u32_at(bytes, FILE_HEADER, Order::Little)? >= 40 && u32_at(bytes, 30, Order::Little)? == 0;
    let (width, bits) = (u32_at(bytes, 18, Order::Little)?, u16_at(bytes, 28, Order::Little)?);
    let height = u32_at(bytes, 22, Order::Little)?.cast_signed().unsigned_abs();
    let row = u64::from(width).checked_mul(u64::from(bits))?.div_ceil(32).checked_mul(4)?;
    let pixels = row.checked_mul(u64::from(height))?;
    stored.then_some(pixels.checked_add(u32_at(bytes, 10, Order::Little)?.into())?)
}

/// BITMAPV5HEADER: bV5CSType at 56 of the header, offset and size of the profile at 112 and 116.
fn profile<'a>(bytes: &'a [u8], limits: &Limits, container: &mut Container<'a>) -> Option<()> {
    if u32_at(bytes, FILE_HEADER, Order::Little)? < 124 {
        return None;
    }
    let place = format!("BITMAPV5HEADER at byte {FILE_HEADER}");
    match slice(bytes, FILE_HEADER + 56, 4)? {
        b"DEBM" => {
            let start = FILE_HEADER.checked_add(index_at(bytes, FILE_HEADER + 112, Order::Little)?)?;
            let size = index_at(bytes, FILE_HEADER + 116, Order::Little)?;
            match slice(bytes, start, size) {
                Some(data) if data.len() as u64 <= limits.metadata_bytes => {
                    container.icc = Some(Block::inside(format!("profile at byte {start}"), start, start, data));
                }
                Some(data) => {
                    container.findings.push(over_limit(place, FILE_HEADER, data.len(), limits));
                }
                None => {
                    let found = format!("profile of {size} bytes at byte {start}, input has {}", bytes.len());
                    container.findings.push(Finding::new(FindingCode::IccTruncated, place, found).at(FILE_HEADER));
                }
            }
        }
        b"KNIL" => {
            let found = "the header names a profile in another file, which is never opened";
            container.findings.push(Finding::new(FindingCode::IccAbsentAssumedSrgb, place, found).at(FILE_HEADER));
        }
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmap_shorter_than_its_pixels_is_cut() {
        let mut file = vec![0; 54 + 16];
        file[..2].copy_from_slice(b"BM");
        (file[10], file[14], file[18], file[22], file[28]) = (54, 40, 2, 2, 24);
        assert_eq!(read(&file, &Limits::default()).unwrap().cut, None);
        file.pop();
        let cut = read(&file, &Limits::default()).unwrap().cut;
        assert_eq!(cut.as_deref(), Some("the pixels end at byte 70, there are 69"));
    }
}
