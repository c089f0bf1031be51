//! Baseline JPEG streams as a hardware decoder may be given them (ITU-T T.81 Annexes B and F): one frame, one scan
//! of all components, 8 bits, Huffman-coded. Pure functions on slices.
//!
//! A fixed-function decoder does not say what it met in the bits: it makes pixels of anything. So every stream is
//! read here first. [`Stream::read`] takes the headers, and refuses what the CPU decoder has to do; what is sent is
//! [`Stream::rewrite`]'s, with the tables that count and nothing else; and [`Stream::prove`] follows every code of
//! the scan, so that a stream with a bad code, too little or too much data is the CPU decoder's to judge.

mod huffman;
mod prove;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::bytes::{Order, u8_at, u16_at};
use crate::container::jpeg::{Segment, Segments, after_end};

use huffman::Code;

/// Why a stream is not the hardware's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal(pub &'static str);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// How chroma is sampled, by the usual names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// One component.
    Gray,
    /// 4:4:4, chroma as luma.
    Full,
    /// 4:2:2, half the columns.
    Columns,
    /// 4:4:0, half the rows.
    Rows,
    /// 4:2:0, half of both.
    Both,
}

impl Sampling {
    /// Columns and rows of luma for one of chroma.
    #[must_use]
    pub fn factors(self) -> (u32, u32) {
        match self {
            Self::Gray | Self::Full => (1, 1),
            Self::Columns => (2, 1),
            Self::Rows => (1, 2),
            Self::Both => (2, 2),
        }
    }

    /// Width and height of a chroma plane.
    #[must_use]
    pub fn chroma(self, width: u32, height: u32) -> (u32, u32) {
        let (columns, rows) = self.factors();
        (width.div_ceil(columns), height.div_ceil(rows))
    }
}

/// One component of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Component {
    id: u8,
    factors: (u32, u32),
    quantiser: u8,
    dc: u8,
    ac: u8,
}

/// A stream whose headers were read. Its scan is a claim until [`Stream::prove`] has followed it.
#[derive(Debug, Clone)]
pub struct Stream<'a> {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// How chroma is sampled.
    pub sampling: Sampling,
    components: Vec<Component>,
    quantisers: [Option<&'a [u8; 64]>; 4],
    dc: [Option<&'a [u8]>; 4],
    ac: [Option<&'a [u8]>; 4],
    restart: u16,
    scan: &'a [u8],
}

/// What was met before the scan.
#[derive(Default)]
struct Headers<'a> {
    frame: Option<&'a [u8]>,
    quantisers: [Option<&'a [u8; 64]>; 4],
    dc: [Option<&'a [u8]>; 4],
    ac: [Option<&'a [u8]>; 4],
    restart: u16,
    jfif: bool,
    adobe: Option<u8>,
}

impl<'a> Stream<'a> {
    /// Reads the headers.
    ///
    /// # Errors
    /// [`Refusal`]: the CPU decoder has to do it, and to say what is wrong if anything is.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let mut headers = Headers::default();
        let (mut expected, mut scan_header) = (2, None);
        let mut segments = Segments::new(bytes);
        for segment in segments.by_ref() {
            if segment.offset != expected {
                return Err(Refusal("stray bytes between segments"));
            }
            expected = segment.offset + 4 + segment.payload.len();
            match segment.marker {
                0xda => scan_header = Some(segment.payload),
                _ => headers.take(segment)?,
            }
        }
        let start = segments.offset();
        let trailing = after_end(bytes, start).ok_or(Refusal("no end of image"))?;
        let scan = bytes.len().checked_sub(trailing + 2).and_then(|end| bytes.get(start..end));
        headers.stream(scan_header.ok_or(Refusal("no scan"))?, scan.ok_or(Refusal("no scan"))?)
    }

    /// The stream with nothing but what its pixels need, written into `out`, which is cleared first.
    pub fn rewrite(&self, out: &mut Vec<u8>) {
        out.clear();
        out.reserve(self.scan.len() + 1024);
        out.extend_from_slice(b"\xff\xd8");
        for (id, table) in (0u8..).zip(self.quantisers).filter_map(|(id, table)| Some((id, table?))) {
            out.extend_from_slice(b"\xff\xdb\0\x43");
            out.push(id);
            out.extend_from_slice(table);
        }
        let count = u8::try_from(self.components.len()).unwrap_or(0);
        out.extend_from_slice(&[0xff, 0xc0, 0, 8 + 3 * count, 8]);
        for side in [self.height, self.width] {
            out.extend_from_slice(&u16::try_from(side).unwrap_or(0).to_be_bytes());
        }
        out.push(count);
        for component in &self.components {
            let (h, v) = component.factors;
            out.extend_from_slice(&[component.id, u8::try_from(h << 4 | v).unwrap_or(0x11), component.quantiser]);
        }
        for (class, tables) in [(0u8, self.dc), (0x10, self.ac)] {
            for (id, table) in (0u8..).zip(tables).filter_map(|(id, table)| Some((id, table?))) {
                out.extend_from_slice(b"\xff\xc4");
                out.extend_from_slice(&u16::try_from(table.len() + 3).unwrap_or(0).to_be_bytes());
                out.push(class | id);
                out.extend_from_slice(table);
            }
        }
        if self.restart != 0 {
            out.extend_from_slice(b"\xff\xdd\0\x04");
            out.extend_from_slice(&self.restart.to_be_bytes());
        }
        out.extend_from_slice(&[0xff, 0xda, 0, 6 + 2 * count, count]);
        for component in &self.components {
            out.extend_from_slice(&[component.id, component.dc << 4 | component.ac]);
        }
        out.extend_from_slice(&[0, 63, 0]);
        out.extend_from_slice(self.scan);
        out.extend_from_slice(b"\xff\xd9");
    }

    /// Follows every code of the scan.
    ///
    /// # Errors
    /// [`Refusal`] with the first thing that a decoder would have to guess at.
    pub fn prove(&self) -> Result<(), Refusal> {
        prove::prove(self)
    }
}

impl<'a> Headers<'a> {
    fn take(&mut self, segment: Segment<'a>) -> Result<(), Refusal> {
        let Segment { marker, payload, .. } = segment;
        match marker {
            0xc0 if self.frame.is_none() => self.frame = Some(payload),
            0xc0 => return Err(Refusal("several frames")),
            0xc2 => return Err(Refusal("progressive")),
            0xc9..=0xcc => return Err(Refusal("arithmetic coding")),
            0xc3 => return Err(Refusal("lossless")),
            0xc1 | 0xc5..=0xc7 | 0xcd..=0xcf => return Err(Refusal("not baseline")),
            0xc4 => self.huffman_tables(payload)?,
            0xdb => self.quantisers(payload)?,
            0xdd => {
                let length = payload.len() == 2;
                self.restart = u16_at(payload, 0, Order::Big).filter(|_| length).ok_or(Refusal("restart interval"))?;
            }
            0xe0 => self.jfif |= payload.starts_with(b"JFIF\0") && payload.len() >= 14,
            0xee if payload.starts_with(b"Adobe") && payload.len() >= 12 => self.adobe = u8_at(payload, 11),
            0xe1..=0xef | 0xfe => {}
            _ => return Err(Refusal("unusual segment")),
        }
        Ok(())
    }

    fn huffman_tables(&mut self, mut payload: &'a [u8]) -> Result<(), Refusal> {
        const BAD: Refusal = Refusal("Huffman table");
        while let Some((&name, rest)) = payload.split_first() {
            let counts = rest.get(..16).ok_or(BAD)?;
            let symbols: usize = counts.iter().map(|&count| usize::from(count)).sum();
            let (table, rest) = rest.split_at_checked(16 + symbols).ok_or(BAD)?;
            let tables = if name & 0xf0 == 0 { &mut self.dc } else { &mut self.ac };
            *tables.get_mut(usize::from(name & 0xf)).filter(|_| name < 0x20).ok_or(BAD)? = Some(table);
            payload = rest;
        }
        Ok(())
    }

    fn quantisers(&mut self, mut payload: &'a [u8]) -> Result<(), Refusal> {
        const BAD: Refusal = Refusal("quantisation table");
        while let Some((&name, rest)) = payload.split_first() {
            let (table, rest) = rest.split_first_chunk().ok_or(BAD)?;
            if table.contains(&0) {
                return Err(BAD);
            }
            *self.quantisers.get_mut(usize::from(name)).ok_or(BAD)? = Some(table);
            payload = rest;
        }
        Ok(())
    }

    fn stream(self, scan_header: &[u8], scan: &'a [u8]) -> Result<Stream<'a>, Refusal> {
        const BAD: Refusal = Refusal("frame header");
        let frame = self.frame.ok_or(BAD)?;
        let (Some(8), Some(height @ 1..), Some(width @ 1..)) =
            (u8_at(frame, 0), u16_at(frame, 1, Order::Big), u16_at(frame, 3, Order::Big))
        else {
            return Err(BAD);
        };
        let (count, parts) = frame.get(5..).and_then(<[u8]>::split_first).ok_or(BAD)?;
        let (parts, []) = parts.as_chunks::<3>() else { return Err(BAD) };
        let (selectors, [0, 63, 0]) =
            scan_header.get(1..).and_then(<[u8]>::split_last_chunk::<3>).ok_or(Refusal("scan header"))?
        else {
            return Err(Refusal("scan header"));
        };
        let (selectors, []) = selectors.as_chunks::<2>() else { return Err(Refusal("scan header")) };
        if usize::from(*count) != parts.len() {
            return Err(BAD);
        }
        if scan_header.first() != Some(count) || selectors.len() != parts.len() {
            return Err(Refusal("several scans"));
        }
        let mut components = Vec::with_capacity(parts.len());
        for (&[id, factors, quantiser], &[selected, tables]) in parts.iter().zip(selectors) {
            if selected != id {
                return Err(Refusal("scan header"));
            }
            let factors = (u32::from(factors >> 4), u32::from(factors & 0xf));
            components.push(Component { id, factors, quantiser, dc: tables >> 4, ac: tables & 0xf });
        }
        let sampling = sampling(&mut components)?;
        if sampling != Sampling::Gray {
            self.check_ycc(&components)?;
        }
        let Self { quantisers, dc, ac, restart, .. } = self;
        let (width, height) = (u32::from(width), u32::from(height));
        let stream = Stream { width, height, sampling, components, quantisers, dc, ac, restart, scan };
        stream.check_tables()?;
        Ok(stream)
    }

    /// As libjpeg decides on the colour space: JFIF, then Adobe's marker, then the components' names.
    fn check_ycc(&self, components: &[Component]) -> Result<(), Refusal> {
        let named_rgb = components.iter().map(|component| component.id).eq(*b"RGB");
        match (self.jfif, self.adobe) {
            (true, _) | (false, Some(1)) => Ok(()),
            (false, Some(_)) => Err(Refusal("Adobe transform")),
            (false, None) if named_rgb => Err(Refusal("RGB components")),
            (false, None) => Ok(()),
        }
    }
}

impl Stream<'_> {
    fn check_tables(&self) -> Result<(), Refusal> {
        for component in &self.components {
            let table = |tables: [Option<&[u8]>; 4], which: u8, ac: bool| {
                let table = tables.get(usize::from(which)).copied().flatten().ok_or(Refusal("Huffman table"))?;
                Code::new(table, ac).map(drop)
            };
            table(self.dc, component.dc, false)?;
            table(self.ac, component.ac, true)?;
            let quantiser = self.quantisers.get(usize::from(component.quantiser)).copied().flatten();
            quantiser.ok_or(Refusal("quantisation table"))?;
        }
        Ok(())
    }
}

/// Names the sampling, and takes the factors of a lone component for what they mean: nothing.
fn sampling(components: &mut [Component]) -> Result<Sampling, Refusal> {
    match components {
        [lone] => {
            lone.factors = (1, 1);
            Ok(Sampling::Gray)
        }
        [luma, cb, cr] if (cb.factors, cr.factors) == ((1, 1), (1, 1)) => match luma.factors {
            (1, 1) => Ok(Sampling::Full),
            (2, 1) => Ok(Sampling::Columns),
            (1, 2) => Ok(Sampling::Rows),
            (2, 2) => Ok(Sampling::Both),
            _ => Err(Refusal("unusual sampling factors")),
        },
        [_, _, _] => Err(Refusal("unusual sampling factors")),
        [_, _, _, _] => Err(Refusal("four components (CMYK or YCCK)")),
        _ => Err(Refusal("unusual number of components")),
    }
}
