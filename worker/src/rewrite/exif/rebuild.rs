//! An EXIF block built anew from what can be read of a broken one: every value lies inside the block, every tag
//! stands once and in order, and no offset leads anywhere twice.

use std::collections::BTreeMap;

use refmill::job::Strip;

use super::private::is_private;
use super::{Truth, order};
use crate::bytes::{Order, slice};
use crate::ifd::{Entry, Ifd, Tiff};

/// Pointer to the Exif IFD.
pub const EXIF_IFD: u16 = 0x8769;
const INTEROP_IFD: u16 = 0xa005;
const MAKER_NOTE: u16 = 0x927c;
const ORIENTATION: u16 = 0x0112;
const COLOR_SPACE: u16 = 0xa001;
const PIXELS: [u16; 2] = [0xa002, 0xa003];
const THUMBNAIL: [u16; 2] = [0x0201, 0x0202];
/// Offsets into a file that is not there any more: strips, tiles and further IFDs.
const OFFSETS: [u16; 7] = [0x0111, 0x0117, 0x0144, 0x0145, 0x014a, 0x0190, 0x8290];
/// Maker notes whose offsets count from their own start, or which bring a TIFF header of their own.
const SELF_CONTAINED: [&[u8]; 5] = [b"Apple iOS\0", b"Nikon\0\x02", b"FUJIFILM", b"OLYMPUS\0II", b"OM SYSTEM\0"];
const SHORT: u16 = 3;
const LONG: u16 = 4;
const RATIONAL: u16 = 5;

/// A block that was built.
#[derive(Debug)]
pub struct Built {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What could not be taken over, in words.
    pub lost: Vec<String>,
    /// Whether it says nothing at all.
    pub is_empty: bool,
}

#[derive(Debug, Clone)]
struct Field {
    kind: u16,
    count: u32,
    value: Vec<u8>,
}

type Fields = BTreeMap<u16, Field>;

/// Builds the block; `None` where not even the first IFD can be read.
pub fn rebuild(bytes: &[u8], truth: Truth) -> Option<Built> {
    let tiff = Tiff::new(bytes)?;
    let (chain, _) = tiff.chain();
    let first = chain.first()?;
    let (order, private) = (order(bytes), matches!(truth.strip, Strip::Private | Strip::All));
    let mut reader = Reader { budget: bytes.len(), lost: Vec::new(), private };
    let sub = |ifd: &Ifd<'_>, tag| tiff.ifd(ifd.find(tag)?.number(0)?);
    let mut zeroth = reader.fields(first);
    let inner = sub(first, EXIF_IFD);
    let mut exif = inner.as_ref().map(|ifd| reader.fields(ifd)).unwrap_or_default();
    let gps = if truth.strip == Strip::Nothing { sub(first, super::GPS_IFD) } else { None };
    let gps = gps.map(|ifd| reader.fields(&ifd)).unwrap_or_default();
    let interop = inner.as_ref().and_then(|ifd| sub(ifd, INTEROP_IFD)).map(|ifd| reader.fields(&ifd));
    let thumbnail = chain.get(1).filter(|_| !private).and_then(|ifd| thumbnail(bytes, ifd));
    if chain.len() > 1 && thumbnail.is_none() && !private {
        reader.lost.push("thumbnail".into());
    }
    if zeroth.contains_key(&ORIENTATION) || truth.orientation != 1 {
        zeroth.insert(ORIENTATION, number(order, SHORT, truth.orientation.into()));
    }
    if let Some(value) = truth.color_space.filter(|_| exif.contains_key(&COLOR_SPACE)) {
        exif.insert(COLOR_SPACE, number(order, SHORT, value.into()));
    }
    correct_size(&mut exif, truth, order);
    let is_empty = zeroth.is_empty() && exif.is_empty() && gps.is_empty() && thumbnail.is_none();
    let mut writer = Writer { order, out: Vec::new() };
    writer.block(zeroth, exif, gps, interop.unwrap_or_default(), thumbnail);
    Some(Built { bytes: writer.out, lost: reader.lost, is_empty })
}

/// A block that says nothing but the orientation, with the tags that EXIF wants in every IFD0 (CIPA DC-008 4.6.8):
/// 72 pixels per inch where nobody knows, and centred chroma.
pub fn minimal(order: Order, orientation: u8) -> Vec<u8> {
    let inch = [number(order, LONG, 72).value, number(order, LONG, 1).value].concat();
    let resolution = || Field { kind: RATIONAL, count: 1, value: inch.clone() };
    let short = |value| number(order, SHORT, value);
    let fields = Fields::from([
        (ORIENTATION, short(orientation.into())),
        (0x011a, resolution()),
        (0x011b, resolution()),
        (0x0128, short(2)),
        (0x0213, short(1)),
    ]);
    let mut writer = Writer { order, out: Vec::new() };
    writer.block(fields, Fields::new(), Fields::new(), Fields::new(), None);
    writer.out
}

fn correct_size(exif: &mut Fields, truth: Truth, order: Order) {
    let Some((width, height)) = truth.dimensions else { return };
    let read = |tag: &u16| exif.get(tag).and_then(|field| field.number(order));
    let [x, y] = PIXELS;
    if let (Some(old_x), Some(old_y)) = (read(&x), read(&y))
        && (old_x, old_y) != (width, height)
        && (old_y, old_x) != (width, height)
    {
        exif.insert(x, number(order, LONG, width));
        exif.insert(y, number(order, LONG, height));
    }
}

impl Field {
    fn number(&self, order: Order) -> Option<u32> {
        match self.kind {
            SHORT => crate::bytes::u16_at(&self.value, 0, order).map(u32::from),
            LONG => crate::bytes::u32_at(&self.value, 0, order),
            _ => None,
        }
    }
}

fn number(order: Order, kind: u16, value: u32) -> Field {
    let short = u16::try_from(value).unwrap_or(u16::MAX);
    let value = match (kind, order) {
        (SHORT, Order::Big) => short.to_be_bytes().to_vec(),
        (SHORT, Order::Little) => short.to_le_bytes().to_vec(),
        (_, Order::Big) => value.to_be_bytes().to_vec(),
        (_, Order::Little) => value.to_le_bytes().to_vec(),
    };
    Field { kind, count: 1, value }
}

/// The JPEG thumbnail of IFD1, if all of it is there.
fn thumbnail(bytes: &[u8], ifd: &Ifd<'_>) -> Option<Vec<u8>> {
    let [offset, length] = THUMBNAIL.map(|tag| ifd.find(tag).and_then(|entry| entry.number(0)));
    let (offset, length) = (usize::try_from(offset?).ok()?, usize::try_from(length?).ok()?);
    slice(bytes, offset, length).filter(|jpeg| jpeg.starts_with(&[0xff, 0xd8])).map(<[u8]>::to_vec)
}

struct Reader {
    /// Bytes of values that may still be taken: values can share bytes, and copies of them must not multiply.
    budget: usize,
    lost: Vec<String>,
    private: bool,
}

impl Reader {
    fn fields(&mut self, ifd: &Ifd<'_>) -> Fields {
        let mut fields = Fields::new();
        if !ifd.complete {
            self.lost.push("entries past the end".into());
        }
        for entry in &ifd.entries {
            let is_pointer = [EXIF_IFD, super::GPS_IFD, INTEROP_IFD].contains(&entry.tag);
            let is_gone = self.private && is_private(entry.tag);
            if is_pointer || is_gone || OFFSETS.contains(&entry.tag) || fields.contains_key(&entry.tag) {
                continue;
            }
            match self.field(entry) {
                Some(field) => drop(fields.insert(entry.tag, field)),
                None => self.lost.push(format!("tag 0x{:04X}", entry.tag)),
            }
        }
        fields
    }

    fn field(&mut self, entry: &Entry<'_>) -> Option<Field> {
        let count = u32::try_from(entry.count).ok().filter(|count| *count > 0)?;
        if entry.value.is_empty() || !(1..=12).contains(&entry.kind) {
            return None;
        }
        let moves = entry.tag == MAKER_NOTE && !SELF_CONTAINED.iter().any(|start| entry.value.starts_with(start));
        if moves {
            return None;
        }
        self.budget = self.budget.checked_sub(entry.value.len())?;
        Some(Field { kind: entry.kind, count, value: entry.value.to_vec() })
    }
}

struct Writer {
    order: Order,
    out: Vec<u8>,
}

impl Writer {
    fn block(&mut self, mut zeroth: Fields, mut exif: Fields, gps: Fields, interop: Fields, thumb: Option<Vec<u8>>) {
        let order = self.order;
        self.out.extend_from_slice(if order == Order::Big { b"MM\0*\0\0\0\x08" } else { b"II*\0\x08\0\0\0" });
        let pointer = || number(order, LONG, 0);
        if !interop.is_empty() {
            exif.insert(INTEROP_IFD, pointer());
        }
        if !exif.is_empty() {
            zeroth.insert(EXIF_IFD, pointer());
        }
        if !gps.is_empty() {
            zeroth.insert(super::GPS_IFD, pointer());
        }
        let next = self.ifd(&zeroth, EXIF_IFD, &exif, &interop, &gps);
        let Some(thumb) = thumb else { return };
        let at = self.out.len();
        self.patch(next, at);
        let compression = number(order, SHORT, 6);
        let length = number(order, LONG, u32::try_from(thumb.len()).unwrap_or(0));
        let [offset_tag, length_tag] = THUMBNAIL;
        let fields = Fields::from([(0x0103, compression), (offset_tag, pointer()), (length_tag, length)]);
        let (places, _) = self.table(&fields);
        let here = self.out.len();
        places.iter().filter(|(tag, _)| *tag == offset_tag).for_each(|(_, place)| self.patch(*place, here));
        self.out.extend_from_slice(&thumb);
    }

    /// IFD0 and what hangs on it; gives where the offset of IFD1 stands.
    fn ifd(&mut self, zeroth: &Fields, exif_tag: u16, exif: &Fields, interop: &Fields, gps: &Fields) -> usize {
        let (places, next) = self.table(zeroth);
        for (tag, place) in places {
            let here = self.out.len();
            if tag == exif_tag {
                self.patch(place, here);
                for (tag, place) in self.table(exif).0 {
                    if tag == INTEROP_IFD {
                        let here = self.out.len();
                        self.patch(place, here);
                        self.table(interop);
                    }
                }
            } else if tag == super::GPS_IFD {
                self.patch(place, here);
                self.table(gps);
            }
        }
        next
    }

    /// One IFD with its values behind it; gives where each value field stands, and the offset of the next IFD.
    fn table(&mut self, fields: &Fields) -> (Vec<(u16, usize)>, usize) {
        let start = self.out.len();
        let mut values_at = start + 2 + fields.len() * 12 + 4;
        let (mut places, mut values) = (Vec::new(), Vec::new());
        self.short(u16::try_from(fields.len()).unwrap_or(u16::MAX));
        for (tag, field) in fields {
            self.short(*tag);
            self.short(field.kind);
            self.long(field.count as usize);
            places.push((*tag, self.out.len()));
            if field.value.len() <= 4 {
                let end = self.out.len() + 4;
                self.out.extend_from_slice(&field.value);
                self.out.resize(end, 0);
            } else {
                self.long(values_at);
                values.extend_from_slice(&field.value);
                values.resize(values.len().next_multiple_of(2), 0);
                values_at = start + 2 + fields.len() * 12 + 4 + values.len();
            }
        }
        let next = self.out.len();
        self.long(0);
        self.out.extend_from_slice(&values);
        (places, next)
    }

    fn short(&mut self, value: u16) {
        self.out.extend(if self.order == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    fn word(&self, value: usize) -> [u8; 4] {
        // A block is smaller than its input, whose length fits.
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        if self.order == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn long(&mut self, value: usize) {
        self.out.extend(self.word(value));
    }

    fn patch(&mut self, at: usize, value: usize) {
        let word = self.word(value);
        if let Some(place) = self.out.get_mut(at..at + 4) {
            place.copy_from_slice(&word);
        }
    }
}
