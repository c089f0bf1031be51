//! Follows a scan code by code without keeping a coefficient.

use super::huffman::{Code, END, Entry};
use super::{Component, Refusal, Sampling, Stream};

/// No coefficient of an 8-bit picture is larger once it is dequantised, rounding and all; decoders part ways beyond.
const LARGEST: u32 = 8191;
const SHORT: Refusal = Refusal("scan ends too early");

/// What one block of an MCU is coded with.
struct Block<'a> {
    component: usize,
    dc: &'a Code,
    ac: &'a Code,
    /// Largest value's bits at each place, in zigzag order; places past the block take none.
    most: [u8; 256],
    step: i32,
}

/// Bits of the scan, the next one highest.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    word: u64,
    have: u32,
}

impl Bits<'_> {
    /// Makes at least 32 bits ready, unless a marker or the end comes first.
    #[inline(always)]
    fn fill(&mut self) {
        const LOW: u64 = 0x0101_0101_0101_0101;
        if self.have >= 32 {
            return;
        }
        if let Some(chunk) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<8>) {
            let next = u64::from_be_bytes(*chunk);
            if (!next).wrapping_sub(LOW) & next & (LOW << 7) == 0 {
                // Bits past `have` are set twice, to the same.
                self.word |= next >> self.have;
                self.at += ((63 - self.have) >> 3) as usize;
                self.have |= 56;
                return;
            }
        }
        self.fill_slowly();
    }

    #[cold]
    fn fill_slowly(&mut self) {
        // What the quick way set past `have` is set again below, unless a marker comes first.
        self.word &= !(u64::MAX.checked_shr(self.have).unwrap_or(0));
        while self.have <= 56 {
            let taken = match self.bytes.get(self.at..) {
                Some([0xff, 0, ..]) => 2,
                Some([0xff, ..] | []) | None => return,
                Some(_) => 1,
            };
            let byte = self.bytes.get(self.at).copied().unwrap_or(0);
            self.word |= u64::from(byte) << (56 - self.have);
            self.have += 8;
            self.at += taken;
        }
    }

    /// Takes the next code and the value behind it.
    #[inline(always)]
    fn take(&mut self, code: &Code) -> Result<(Entry, u64), Refusal> {
        self.fill();
        let entry = code.find(self.word);
        let bits = entry.bits();
        if bits == 0 {
            return Err(if self.have < 16 { SHORT } else { Refusal("scan has a bad code") });
        }
        if bits > self.have {
            return Err(SHORT);
        }
        let word = self.word;
        self.word <<= bits;
        self.have -= bits;
        Ok((entry, word))
    }

    /// Passes the restart marker of this number, which has to be next.
    fn restart(&mut self, number: u32) -> Result<(), Refusal> {
        const BAD: Refusal = Refusal("restart marker is not where it should be");
        let marker = [0xff, 0xd0 | u8::try_from(number & 7).unwrap_or(0)];
        let next = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<2>);
        if self.have >= 8 || next != Some(&marker) {
            return Err(BAD);
        }
        (self.at, self.word, self.have) = (self.at + 2, 0, 0);
        Ok(())
    }
}

pub(super) fn prove(stream: &Stream<'_>) -> Result<(), Refusal> {
    let codes =
        |tables: &[Option<&[u8]>; 4], ac: bool| tables.map(|table| table.and_then(|table| Code::new(table, ac).ok()));
    let (dc, ac) = (codes(&stream.dc, false), codes(&stream.ac, true));
    let mut blocks = Vec::new();
    for (index, component) in stream.components.iter().enumerate() {
        let (columns, rows) = component.factors;
        for _ in 0..columns * rows {
            blocks.push(block(stream, index, component, &dc, &ac).ok_or(Refusal("Huffman table"))?);
        }
    }
    let (columns, rows) = match stream.sampling {
        Sampling::Gray => (1, 1),
        sampling => sampling.factors(),
    };
    let total = u64::from(stream.width.div_ceil(8 * columns)) * u64::from(stream.height.div_ceil(8 * rows));
    let mut bits = Bits { bytes: stream.scan, at: 0, word: 0, have: 0 };
    let (mut done, mut restarts) = (0, 0);
    while done < total {
        if done > 0 {
            bits.restart(restarts)?;
            restarts += 1;
        }
        let run = if stream.restart == 0 { total } else { u64::from(stream.restart).min(total - done) };
        follow(&mut bits, &blocks, run)?;
        done += run;
    }
    let rest = bits.bytes.len().saturating_sub(bits.at);
    if rest > 0 || bits.have >= 8 { Err(Refusal("bytes after the last block")) } else { Ok(()) }
}

fn block<'a>(
    stream: &Stream<'_>,
    index: usize,
    component: &Component,
    dc: &'a [Option<Code>; 4],
    ac: &'a [Option<Code>; 4],
) -> Option<Block<'a>> {
    let steps = (*stream.quantisers.get(usize::from(component.quantiser))?)?;
    let mut most = [0; 256];
    for (most, &step) in most.iter_mut().zip(steps) {
        *most = u8::try_from((LARGEST / u32::from(step) + 1).ilog2()).ok()?;
    }
    let (dc, ac) = (dc.get(usize::from(component.dc))?.as_ref()?, ac.get(usize::from(component.ac))?.as_ref()?);
    Some(Block { component: index, dc, ac, most, step: i32::from(*steps.first()?) })
}

/// Follows `run` MCUs, whose DC coefficients are counted from 0.
fn follow(bits: &mut Bits<'_>, blocks: &[Block<'_>], run: u64) -> Result<(), Refusal> {
    const LARGE: Refusal = Refusal("coefficient is too large");
    let mut levels = [0i32; 4];
    for _ in 0..run {
        for block in blocks {
            let (entry, word) = bits.take(block.dc)?;
            let level = levels.get_mut(block.component).ok_or(LARGE)?;
            *level += difference(entry, word);
            if (*level * block.step).unsigned_abs() > LARGEST {
                return Err(LARGE);
            }
            let mut place = 1;
            let mut large = false;
            while place < 64 {
                let (entry, _) = bits.take(block.ac)?;
                place += entry.moved();
                let most = block.most.get((place as usize).wrapping_sub(1) & 0xff).copied().unwrap_or(0);
                large |= entry.size() > u32::from(most);
            }
            if large {
                return Err(LARGE);
            }
            if place > 64 && place < END {
                return Err(Refusal("block has too many coefficients"));
            }
        }
    }
    Ok(())
}

/// The value of a DC difference, T.81 F.2.2.1.
#[inline(always)]
fn difference(entry: Entry, word: u64) -> i32 {
    let size = entry.size();
    if size == 0 {
        return 0;
    }
    let raw = i32::try_from(word << (entry.bits() - size) >> (64 - size)).unwrap_or(0);
    if raw >> (size - 1) == 0 { raw - (1 << size) + 1 } else { raw }
}
