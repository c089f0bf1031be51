//! What a look at the headers reads of a file: everything but coded pixels, wherever it stands. The rest of the file
//! stays zero at its own offsets, so that the containers' readers work as on the whole. Reads by system calls alone.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use refmill::failure::{Code, Failure};

use crate::bytes::{Order, index_at, slice};
use crate::container::jpeg::{Segments, is_scan};
use crate::container::png::is_pixels;
use crate::open::Encoded;

/// How much is read at first, and what is not worth a second look, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Windows {
    /// Files up to this size are read whole: a part of them costs as much.
    pub small: usize,
    /// The first part of larger ones.
    pub first: usize,
}

impl Default for Windows {
    fn default() -> Self {
        Self { small: 48 << 10, first: 16 << 10 }
    }
}

/// Most pixel chunks that are stepped over one by one; a file of more is read whole.
const MAX_STEPS: usize = 1 << 14;
/// Bytes of a picture chunk of WebP that hold its size.
const WEBP_PICTURE: usize = 16;

/// The part of a file that was read.
#[derive(Debug, Default)]
pub struct Headers {
    bytes: Vec<u8>,
    whole: bool,
}

impl Headers {
    /// The bytes, and whether they are all of them.
    #[must_use]
    pub fn encoded(&self) -> Encoded<'_> {
        Encoded { bytes: &self.bytes, whole: self.whole }
    }
}

/// Reads what is not pixels of the `len` bytes in `file`.
///
/// # Errors
/// [`Code::Unreadable`] where the file is shorter than that by now, or cannot be read.
pub fn read(file: &File, len: u64, windows: Windows) -> Result<Headers, Failure> {
    let size = usize::try_from(len).map_err(|_| Failure::over_limit("input size in bytes", len, usize::MAX as u64))?;
    // Fresh zeros: what was read of an earlier file never stands where this one has pixels.
    let mut part = Part { file, bytes: vec![0; size], read: 0 };
    let taken = part.take(windows);
    let whole = taken.map_err(|error| Failure::new(Code::Unreadable, format!("{len} bytes of the input: {error}")))?;
    Ok(Headers { bytes: part.bytes, whole })
}

struct Part<'f> {
    file: &'f File,
    bytes: Vec<u8>,
    /// How much was read from the start on without a gap.
    read: usize,
}

impl Part<'_> {
    /// Whether everything was read.
    fn take(&mut self, windows: Windows) -> io::Result<bool> {
        let whole = self.bytes.len();
        self.fill(if whole <= windows.small { whole } else { windows.first })?;
        let found = match self.bytes.get(..12).unwrap_or_default() {
            _ if self.read == whole => None,
            [0xff, 0xd8, 0xff, ..] => self.jpeg()?,
            [0x89, b'P', b'N', b'G', ..] => self.chunks(8, png)?,
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P'] => self.chunks(12, webp)?,
            _ => None,
        };
        if found.is_none() {
            self.fill(whole)?;
        }
        Ok(self.read == whole)
    }

    /// Everything up to `end` is there afterwards.
    fn fill(&mut self, end: usize) -> io::Result<()> {
        let end = end.min(self.bytes.len());
        if let Some(rest) = self.bytes.get_mut(self.read..end) {
            self.file.read_exact_at(rest, self.read as u64)?;
            self.read = end;
        }
        Ok(())
    }

    /// What of `len` bytes at `at` lies inside the file is there afterwards.
    fn want(&mut self, at: usize, len: usize) -> io::Result<()> {
        let end = at.saturating_add(len).min(self.bytes.len());
        if end <= self.read || at >= end {
            return Ok(());
        }
        // A gap is left only where pixels are stepped over.
        if at <= self.read {
            return self.fill(end);
        }
        self.bytes.get_mut(at..end).map_or(Ok(()), |rest| self.file.read_exact_at(rest, at as u64))
    }

    /// Segments up to the first scan, and the last two bytes: where they are no EOI, only the whole file tells whether
    /// it is cut or goes on behind the picture.
    fn jpeg(&mut self) -> io::Result<Option<()>> {
        let end = self.bytes.len().saturating_sub(2);
        self.want(end, 2)?;
        if slice(&self.bytes, end, 2) != Some(b"\xff\xd9") {
            return Ok(None);
        }
        while self.read < self.bytes.len() {
            let seen = self.bytes.get(..self.read).unwrap_or_default();
            if Segments::new(seen).any(|segment| is_scan(segment.marker)) {
                return Ok(Some(()));
            }
            self.fill(self.read.saturating_mul(4))?;
        }
        Ok(None)
    }

    /// Chunk after chunk, as `layout` has them, to the end of the file or to one that does not fit into it.
    fn chunks(&mut self, mut at: usize, layout: Layout) -> io::Result<Option<()>> {
        for _ in 0..MAX_STEPS {
            self.want(at, 8)?;
            let Some((needed, next)) = layout(&self.bytes, at) else { return Ok(Some(())) };
            self.want(at, needed)?;
            at = next;
        }
        Ok(None)
    }
}

/// How many bytes of the chunk at an offset are needed, and where the next one begins; none where there is no chunk.
type Layout = fn(&[u8], usize) -> Option<(usize, usize)>;

fn png(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let size = index_at(bytes, at, Order::Big)?.checked_add(12)?;
    let next = at.checked_add(size)?;
    let kind = slice(bytes, at.checked_add(4)?, 4)?;
    let ends = kind == b"IEND" || next > bytes.len();
    let needed = if is_pixels(kind) { 8 } else { size };
    Some((needed, if ends { bytes.len() } else { next }))
}

fn webp(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let size = index_at(bytes, at.checked_add(4)?, Order::Little)?.checked_add(8)?;
    let kind = slice(bytes, at, 4)?;
    let is_picture = [b"VP8 ", b"VP8L", b"ALPH", b"ANMF"].iter().any(|picture| kind == picture.as_slice());
    let needed = if is_picture { size.min(8 + WEBP_PICTURE) } else { size };
    Some((needed, at.checked_add(size)?.checked_add(size % 2)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const TINY: Windows = Windows { small: 0, first: 16 };

    fn headers(bytes: &[u8]) -> Headers {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        read(&file, bytes.len() as u64, TINY).unwrap()
    }

    fn image(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/../fixtures/images/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn pixels_of_a_png_are_stepped_over_and_what_follows_them_is_read() {
        let mut png = image("exif_absent.png");
        let end = png.len() - 12;
        let late: &[u8] = b"\0\0\0\x04eXIfMM\0*\0\0\0\0";
        png.splice(end..end, late.iter().copied());
        let read = headers(&png);
        assert!(!read.whole);
        assert_eq!(&read.bytes[end..], &png[end..]);
        let pixels = memchr::memmem::find(&png, b"IDAT").unwrap() + 4;
        assert!(read.bytes[pixels + 8..end - 4].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn jpeg_that_does_not_end_with_eoi_is_read_whole() {
        let mut jpeg = image("exif_absent.jpg");
        let end = jpeg.len() - 2;
        jpeg.splice(end..end, [0; 4096]);
        assert!(!headers(&jpeg).whole);
        jpeg.extend_from_slice(b"PK");
        assert!(headers(&jpeg).whole);
    }

    #[test]
    fn format_whose_pixels_are_anywhere_is_read_whole() {
        assert!(headers(&image("gps.tif")).whole);
    }

    #[test]
    fn file_that_got_shorter_is_unreadable() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(read(&file, 5, TINY).unwrap_err().code, Code::Unreadable);
    }
}
