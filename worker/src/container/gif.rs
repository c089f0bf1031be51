//! GIF blocks (GIF89a specification): screen size, frames, and the ICC extension.

use refmill::failure::Failure;
use refmill::finding::{Finding, FindingCode};
use refmill::limits::Limits;
use refmill::report::Model;

use super::{Block, Container, Header, truncated};
use crate::bytes::{Order, slice, u8_at, u16_at};

/// Reads the container.
///
/// # Errors
/// [`refmill::failure::Code::Truncated`] without a logical screen or without an image.
pub fn read<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Container<'a>, Failure> {
    let (Some(width), Some(height), Some(flags)) =
        (u16_at(bytes, 6, Order::Little), u16_at(bytes, 8, Order::Little), u8_at(bytes, 10))
    else {
        return Err(truncated(format!("logical screen descriptor needs 13 bytes, input has {}", bytes.len())));
    };
    let header =
        Header { width: width.into(), height: height.into(), bits: 8, model: Model::Rgb, alpha: false, frames: 0 };
    let mut container = Container::new(header);
    blocks(bytes, 13 + table(flags), limits, &mut container);
    if container.header.frames == 0 {
        return Err(truncated("no image descriptor before the end of the data"));
    }
    Ok(container)
}

/// Bytes of the colour table that the flags announce.
fn table(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

/// Walks blocks until the trailer, the end of the data, or something that is no block.
fn blocks(bytes: &[u8], mut at: usize, limits: &Limits, container: &mut Container<'_>) -> Option<()> {
    loop {
        match u8_at(bytes, at)? {
            0x21 => {
                let label = u8_at(bytes, at + 1)?;
                let first = sub_block(bytes, at + 2)?;
                if label == 0xf9 && u8_at(first, 0)? & 1 == 1 && container.header.frames == 0 {
                    container.header.alpha = true;
                }
                let body = at + 3 + first.len();
                if label == 0xff && first == b"ICCRGBG1012" {
                    profile(bytes, at, body, limits, container);
                }
                at = skip(bytes, body)?;
            }
            0x2c => {
                if container.header.frames == 0 {
                    canvas(bytes, at, container);
                }
                container.header.frames = container.header.frames.saturating_add(1);
                let flags = u8_at(bytes, at + 9)?;
                let end = skip(bytes, at.checked_add(11)?.checked_add(table(flags))?);
                if end.is_none() && container.header.frames == 1 {
                    container.cut = Some(format!("the image at byte {at} does not end within {} bytes", bytes.len()));
                }
                at = end?;
            }
            0x3b => {
                trailing(bytes, at + 1, container);
                return None;
            }
            _ => return None,
        }
        if u64::from(container.header.frames) > u64::from(limits.frames) {
            return None;
        }
    }
}

/// The profile in the application extension at `at`, whose sub-blocks begin at `body`.
fn profile(bytes: &[u8], at: usize, body: usize, limits: &Limits, container: &mut Container<'_>) {
    let place = format!("application extension at byte {at}");
    let mut find = |code, found: String| container.findings.push(Finding::new(code, place.clone(), found).at(at));
    match joined(bytes, body, limits.metadata_bytes) {
        _ if container.icc.is_some() => find(FindingCode::IccMultiple, "a second ICC extension".into()),
        Joined::Whole(profile) => container.icc = Some(Block::made(place, Some(at), profile)),
        Joined::OverLimit => {
            find(FindingCode::OverLimit, format!("profile of more than {} bytes, the limit", limits.metadata_bytes));
        }
        Joined::Cut => find(FindingCode::IccTruncated, "the data ends inside the extension".into()),
    }
}

fn trailing(bytes: &[u8], end: usize, container: &mut Container<'_>) {
    if let Some(count) = bytes.len().checked_sub(end).filter(|count| *count > 0) {
        let found = format!("{count} bytes after the trailer");
        container.findings.push(Finding::new(FindingCode::TrailingData, format!("byte {end}"), found).at(end));
    }
}

/// The canvas holds the first image whole, also where the logical screen is too small for it (GIF89a section 20).
fn canvas(bytes: &[u8], at: usize, container: &mut Container<'_>) -> Option<()> {
    let number = |offset| u16_at(bytes, at + offset, Order::Little).map(u32::from);
    let (right, bottom) = (number(1)? + number(5)?, number(3)? + number(7)?);
    let header = &mut container.header;
    if right > header.width || bottom > header.height {
        let found = format!("image ends at {right} x {bottom}, the screen has {} x {}", header.width, header.height);
        (header.width, header.height) = (header.width.max(right), header.height.max(bottom));
        let place = format!("image descriptor at byte {at}");
        container.findings.push(Finding::new(FindingCode::StreamWarning, place, found).at(at));
    }
    Some(())
}

fn sub_block(bytes: &[u8], at: usize) -> Option<&[u8]> {
    slice(bytes, at + 1, usize::from(u8_at(bytes, at)?))
}

/// Offset just past the sub-blocks that begin at `at`.
fn skip(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let block = sub_block(bytes, at)?;
        at += 1 + block.len();
        if block.is_empty() {
            return Some(at);
        }
    }
}

/// What sub-blocks hold together.
enum Joined {
    Whole(Vec<u8>),
    OverLimit,
    Cut,
}

fn joined(bytes: &[u8], mut at: usize, limit: u64) -> Joined {
    let mut out = Vec::new();
    while let Some(block) = sub_block(bytes, at) {
        at += 1 + block.len();
        if block.is_empty() {
            return Joined::Whole(out);
        }
        out.extend_from_slice(block);
        if out.len() as u64 > limit {
            return Joined::OverLimit;
        }
    }
    Joined::Cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_and_the_profile_is_joined() {
        let image = b"\x2c\0\0\0\0\x02\0\x02\0\0\x02\x01\x00\0";
        let icc = b"\x21\xff\x0bICCRGBG1012\x02ab\x01c\0";
        let file = [b"GIF89a\x02\0\x02\0\0\0\0".as_slice(), icc, image, image, b"\x3b"].concat();
        let container = read(&file, &Limits::default()).unwrap();
        assert_eq!(container.header.frames, 2);
        assert_eq!(container.icc.unwrap().bytes.as_ref(), b"abc");
    }

    #[test]
    fn first_image_that_does_not_end_is_cut() {
        let whole = b"GIF89a\x02\0\x02\0\0\0\0\x2c\0\0\0\0\x02\0\x02\0\0\x02\x01\x00\0\x3bxx";
        let sound = read(whole, &Limits::default()).unwrap();
        assert_eq!((sound.cut, sound.findings[0].code), (None, FindingCode::TrailingData));
        assert!(read(&whole[..25], &Limits::default()).unwrap().cut.is_some());
    }

    #[test]
    fn screen_without_an_image_is_truncated() {
        assert!(read(b"GIF89a\x02\0\x02\0\0\0\0\x3b", &Limits::default()).is_err());
    }
}
