//! Huffman codes as a proof needs them (ITU-T T.81 Annex C): how many bits a symbol takes with its value, and how
//! far it moves in the block.

use super::Refusal;

/// Bits that are looked up at once; longer codes are rare.
const QUICK: u32 = 10;
/// Moves past the end of any block: the block's end was said.
pub const END: u32 = 128;

/// One code word's meaning, packed: bits of code and value, size of the value, coefficients moved. 0 for no code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Entry(u32);

impl Entry {
    fn new(length: u32, size: u32, moved: u32) -> Self {
        Self((length + size) | size << 8 | moved << 16)
    }

    /// Bits of the code and the value behind it.
    #[inline(always)]
    pub fn bits(self) -> u32 {
        self.0 & 0xff
    }

    /// Bits of the value.
    #[inline(always)]
    pub fn size(self) -> u32 {
        self.0 >> 8 & 0xff
    }

    /// Coefficients that it moves on.
    #[inline(always)]
    pub fn moved(self) -> u32 {
        self.0 >> 16
    }
}

/// One table.
#[derive(Debug, Clone)]
pub struct Code {
    quick: Box<[Entry; 1 << QUICK]>,
    /// For each length from 11 bits on: the first 16-bit word past its codes, and its codes' entries from the last.
    long: Vec<(u32, u32, Vec<Entry>)>,
}

impl Code {
    /// Reads 16 counts and as many symbols, for AC coefficients or for DC.
    ///
    /// # Errors
    /// [`Refusal`] where the code is not one, or has symbols that baseline streams do not.
    pub fn new(table: &[u8], ac: bool) -> Result<Self, Refusal> {
        const BAD: Refusal = Refusal("Huffman table");
        let (counts, mut symbols) = table.split_at_checked(16).ok_or(BAD)?;
        let mut quick = Box::new([Entry::default(); 1 << QUICK]);
        let mut long = Vec::new();
        let mut next = 0u32;
        for (length, &count) in (1u32..).zip(counts) {
            let (these, rest) = symbols.split_at_checked(usize::from(count)).ok_or(BAD)?;
            symbols = rest;
            let entries: Result<Vec<Entry>, Refusal> = these.iter().map(|&symbol| entry(length, symbol, ac)).collect();
            let entries = entries?;
            let first = next;
            next += u32::from(count);
            // A code of ones alone is reserved.
            if next >= 1 << length {
                return Err(BAD);
            }
            if let Some(spread) = QUICK.checked_sub(length) {
                let places = quick.get_mut((first << spread) as usize..).unwrap_or_default();
                places.chunks_mut(1 << spread).zip(entries).for_each(|(places, entry)| places.fill(entry));
            } else if count > 0 {
                long.push((next << (16 - length), length, entries.into_iter().rev().collect()));
            }
            next <<= 1;
        }
        if symbols.is_empty() { Ok(Self { quick, long }) } else { Err(BAD) }
    }

    /// The code that `word`, from its highest bit on, begins with.
    #[inline(always)]
    pub fn find(&self, word: u64) -> Entry {
        let quick = self.quick.get((word >> (64 - QUICK)) as usize).copied().unwrap_or_default();
        if quick.bits() != 0 { quick } else { self.find_long(word) }
    }

    #[cold]
    fn find_long(&self, word: u64) -> Entry {
        let word = u32::try_from(word >> 48).unwrap_or(0);
        let found = self.long.iter().find(|(past, _, _)| word < *past);
        let entry =
            found.and_then(|(past, length, entries)| entries.get(((past - 1 - word) >> (16 - length)) as usize));
        entry.copied().unwrap_or_default()
    }
}

/// T.81 F.1.2: categories 0 to 11 for DC; run and category 1 to 10, end of block and sixteen zeros for AC.
fn entry(length: u32, symbol: u8, ac: bool) -> Result<Entry, Refusal> {
    let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 0xf));
    match (ac, run, size) {
        (false, 0, 0..=11) => Ok(Entry::new(length, size, 1)),
        (true, 0, 0) => Ok(Entry::new(length, 0, END)),
        (true, 15, 0) => Ok(Entry::new(length, 0, 16)),
        (true, _, 1..=10) => Ok(Entry::new(length, size, run + 1)),
        _ => Err(Refusal("Huffman table")),
    }
}
