//! Metadata in PNG text chunks: XMP, and EXIF as ImageMagick's "Raw profile type" wrote it before eXIf existed.

use std::borrow::Cow;

use refmill::limits::Limits;

use super::png::{Chunk, inflate};
use super::{Block, Container, without_exif_prefix};

const XMP: &[u8] = b"XML:com.adobe.xmp";

/// Takes what a text chunk holds, if it is metadata that has no chunk of its own in the file.
pub fn take<'a>(chunk: &Chunk<'a>, container: &mut Container<'a>, limits: &Limits) {
    let Chunk { kind, offset, data, .. } = *chunk;
    let Some(end) = data.iter().position(|&byte| byte == 0) else { return };
    let (keyword, rest) = data.split_at(end);
    if keyword == XMP && kind == *b"iTXt" && container.xmp.is_none() {
        container.xmp = international(rest, limits).map(|bytes| match bytes {
            // The text is the end of the chunk.
            Cow::Borrowed(text) => Block::inside(chunk.place(), offset, offset + 8 + data.len() - text.len(), text),
            Cow::Owned(text) => Block::made(chunk.place(), Some(offset), text),
        });
    } else if matches!(keyword, b"Raw profile type exif" | b"Raw profile type APP1") && container.exif.is_empty() {
        let text = match &kind {
            b"tEXt" => rest.get(1..).map(<[u8]>::to_vec),
            b"zTXt" => rest.get(2..).and_then(|stream| inflate(stream, limits.metadata_bytes).ok()),
            _ => None,
        };
        if let Some(bytes) = text.as_deref().and_then(raw_profile) {
            let body = without_exif_prefix(&bytes).to_vec();
            container.exif.push(Block::made(format!("{}, raw profile", chunk.place()), Some(offset), body));
        }
    }
}

/// iTXt: after the keyword a zero, compression flag and method, language, zero, translated keyword, zero, text.
fn international<'a>(rest: &'a [u8], limits: &Limits) -> Option<Cow<'a, [u8]>> {
    let &[_, compressed, _, ref tail @ ..] = rest else { return None };
    let language = tail.iter().position(|&byte| byte == 0)?;
    let tail = tail.get(language + 1..)?;
    let translated = tail.iter().position(|&byte| byte == 0)?;
    let text = tail.get(translated + 1..)?;
    if compressed == 0 { Some(Cow::Borrowed(text)) } else { inflate(text, limits.metadata_bytes).ok().map(Cow::Owned) }
}

/// `\nNAME\n  LENGTH\nHEX…`, white space anywhere in the hexadecimal part.
fn raw_profile(text: &[u8]) -> Option<Vec<u8>> {
    let mut lines = text.splitn(4, |&byte| byte == b'\n');
    let (_, _name, length, hex) = (lines.next()?, lines.next()?, lines.next()?, lines.next()?);
    let length: usize = std::str::from_utf8(length).ok()?.trim().parse().ok()?;
    let mut digits = hex.iter().filter(|byte| !byte.is_ascii_whitespace()).map(|&byte| char::from(byte).to_digit(16));
    let mut out = Vec::new();
    while out.len() < length {
        let (high, low) = (digits.next()??, digits.next()??);
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_profile_is_read_from_hexadecimal() {
        assert_eq!(raw_profile(b"\nexif\n      4\n4d4d\n002a\n"), Some(b"MM\0*".to_vec()));
    }

    #[test]
    fn raw_profile_that_claims_more_than_it_has_is_none() {
        assert_eq!(raw_profile(b"\nexif\n 4000000000\n4d4d"), None);
    }
}
