//! Files that no encoder writes: headers that claim what is not there, and zeros that deflate to next to nothing.

use std::ops::RangeInclusive;

/// A PNG of one black picture; `chunks` stand before its pixels.
pub fn black_png(width: u32, height: u32, chunks: &[Vec<u8>]) -> Vec<u8> {
    let raw = (3 * u64::from(width) + 1) * u64::from(height);
    png(width, height, chunks, &zlib_zeros(raw))
}

/// A PNG that claims `width` x `height` RGB pixels of 8 bits, with `idat` in their place.
pub fn png(width: u32, height: u32, chunks: &[Vec<u8>], idat: &[u8]) -> Vec<u8> {
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    [
        b"\x89PNG\r\n\x1a\n".to_vec(),
        png_chunk(b"IHDR", &header),
        chunks.concat(),
        png_chunk(b"IDAT", idat),
        png_chunk(b"IEND", b""),
    ]
    .concat()
}

pub fn png_chunk(name: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let body = [name.as_slice(), data].concat();
    [&length(data).to_be_bytes(), body.as_slice(), &crc32(&body).to_be_bytes()].concat()
}

/// An `iCCP` chunk whose profile inflates to `bytes` zeros.
pub fn iccp_of_zeros(bytes: u64) -> Vec<u8> {
    png_chunk(b"iCCP", &[b"icc\0\0", zlib_zeros(bytes).as_slice()].concat())
}

/// A JPEG whose frame header claims `width` x `height` grey pixels; a few bytes of scan follow.
pub fn jpeg_claiming(width: u16, height: u16) -> Vec<u8> {
    [jpeg_head(0xc0, width, height), jpeg_scan(0..=63, 0, 0, 64), b"\xff\xd9".to_vec()].concat()
}

/// A progressive JPEG of `side` x `side` grey pixels with as many scans as the standard allows for one component:
/// each of the 64 coefficients comes in 14 of them, bit by bit. All are zero, so a scan of them takes next to no
/// bytes, and as long as any other.
pub fn jpeg_of_896_scans(side: u16) -> Vec<u8> {
    let blocks = usize::from(side).div_ceil(8).pow(2);
    let bands = (0..64).flat_map(|at| (0..14).rev().map(move |low| (at, low)));
    let scans = bands.flat_map(|(at, low)| {
        let high = if low == 13 { 0 } else { low + 1 };
        // A block of DC is one bit; a code and 14 zeros say that the next 16384 blocks of AC are empty.
        let bits = if at == 0 { blocks } else { blocks.div_ceil(16384) * 15 };
        jpeg_scan(at..=at, high, low, bits.div_ceil(8))
    });
    [jpeg_head(0xc2, side, side), scans.collect(), b"\xff\xd9".to_vec()].concat()
}

/// Everything up to the first scan. The only code is `0`, category 0 for DC and a run of 2^14 empty blocks for AC.
fn jpeg_head(frame_marker: u8, width: u16, height: u16) -> Vec<u8> {
    let frame = [&[8][..], &height.to_be_bytes(), &width.to_be_bytes(), &[1, 1, 0x11, 0]].concat();
    let codes = |class: u8, value: u8| [vec![class, 1], vec![0; 15], vec![value]].concat();
    [
        b"\xff\xd8".to_vec(),
        segment(0xdb, &[vec![0], vec![1; 64]].concat()),
        segment(frame_marker, &frame),
        segment(0xc4, &codes(0x00, 0)),
        segment(0xc4, &codes(0x10, 0xe0)),
    ]
    .concat()
}

fn jpeg_scan(band: RangeInclusive<u8>, high: u8, low: u8, zeros: usize) -> Vec<u8> {
    [segment(0xda, &[1, 1, 0, *band.start(), *band.end(), high << 4 | low]), vec![0; zeros]].concat()
}

fn segment(marker: u8, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len() + 2).unwrap();
    [&[0xff, marker][..], &length.to_be_bytes(), data].concat()
}

/// A BMP that claims `width` x `height` pixels of 24 bits.
pub fn bmp_claiming(width: i32, height: i32) -> Vec<u8> {
    let mut bytes = [b"BM".as_slice(), &118_u32.to_le_bytes(), &[0; 4], &54_u32.to_le_bytes()].concat();
    bytes.extend([&40_u32.to_le_bytes()[..], &width.to_le_bytes(), &height.to_le_bytes()].concat());
    bytes.extend([&1_u16.to_le_bytes()[..], &24_u16.to_le_bytes(), &[0; 24], &[7; 64]].concat());
    bytes
}

/// A GIF with a screen of `side` x `side` pixels and one frame of that size.
pub fn gif_claiming(side: u16) -> Vec<u8> {
    let side = side.to_le_bytes();
    let screen = [&side[..], &side, &[0x80, 0, 0], &[0, 0, 0, 255, 255, 255]].concat();
    let frame = [&[0x2c, 0, 0, 0, 0][..], &side, &side, &[0, 2, 2, 0x44, 0x01, 0]].concat();
    [b"GIF89a".as_slice(), &screen, &frame, b";"].concat()
}

/// A TIFF of one strip that claims `side` x `side` grey pixels of 8 bits.
pub fn tiff_claiming(side: u32) -> Vec<u8> {
    let long = |tag: u16, value: u32| entry(tag, 4, value);
    let short = |tag: u16, value: u16| entry(tag, 3, u32::from(value));
    let entries = [
        long(256, side),
        long(257, side),
        short(258, 8),
        short(259, 1),
        short(262, 1),
        long(273, 8),
        short(277, 1),
        long(278, side),
        long(279, 64),
    ];
    let count = u16::try_from(entries.len()).unwrap();
    [b"II*\0\x08\0\0\0".as_slice(), &count.to_le_bytes(), &entries.concat(), &[0; 68]].concat()
}

fn entry(tag: u16, kind: u16, value: u32) -> Vec<u8> {
    [&tag.to_le_bytes()[..], &kind.to_le_bytes(), &1_u32.to_le_bytes(), &value.to_le_bytes()].concat()
}

/// A WebP whose extended header claims a canvas of `side` x `side` pixels.
pub fn webp_claiming(side: u32) -> Vec<u8> {
    let [a, b, c, _] = (side - 1).to_le_bytes();
    let canvas = [0, 0, 0, 0, a, b, c, a, b, c];
    let pixels = b"VP8L\x08\0\0\0\x2f\xff\xff\xff\x0f\0\0\0";
    let body = [b"WEBPVP8X".as_slice(), &10_u32.to_le_bytes(), &canvas, pixels].concat();
    [b"RIFF".as_slice(), &length(&body).to_le_bytes(), &body].concat()
}

/// A zlib stream of `count` zeros, at least one: a zero, then matches of 258 bytes at distance 1, in one block of
/// fixed codes (RFC 1951 3.2.6).
pub fn zlib_zeros(count: u64) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.code(0b110, 3);
    bits.code(0b0011_0000, 8);
    // Length 258 is code 285 of 8 bits, distance 1 is code 0 of 5.
    (0..(count - 1) / 258).for_each(|_| bits.code(0b1100_0101 << 5, 13));
    (0..(count - 1) % 258).for_each(|_| bits.code(0b0011_0000, 8));
    bits.code(0, 7);
    let zeros = u32::try_from(count % 65521).unwrap() << 16 | 1;
    [&[0x78, 0x01][..], &bits.whole(), &zeros.to_be_bytes()].concat()
}

/// Bits in the order of RFC 1951: a code's highest bit first, into each byte from its lowest.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    last: u8,
    used: u32,
}

impl Bits {
    fn code(&mut self, code: u32, length: u32) {
        for bit in (0..length).rev().map(|at| u8::from(code >> at & 1 == 1)) {
            self.last |= bit << self.used;
            self.used += 1;
            if self.used == 8 {
                self.bytes.push(std::mem::take(&mut self.last));
                self.used = 0;
            }
        }
    }

    fn whole(mut self) -> Vec<u8> {
        if self.used > 0 {
            self.bytes.push(self.last);
        }
        self.bytes
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    };
    !bytes.iter().fold(u32::MAX, step)
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap()
}
