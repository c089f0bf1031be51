//! AVIF and HEIC items (ISO/IEC 23008-12) through libheif: EXIF, colour boxes, size. No pixel is decoded here.

use std::borrow::Cow;

use libheif_rs::{ColorSpace, HeifContext, ImageHandle, SecurityLimits};
use refmill::failure::Failure;
use refmill::limits::Limits;
use refmill::report::Model;

use super::{Block, Container, Header, Nclx, corrupt, heif_items, over_limit, without_exif_prefix};

/// Opens the file in libheif with our limits as its own.
///
/// # Errors
/// [`refmill::failure::Code::Corrupt`] with libheif's reason.
pub fn context<'a>(bytes: &'a [u8], limits: &Limits) -> Result<HeifContext<'a>, Failure> {
    let mut context = HeifContext::read_from_bytes(bytes).map_err(|error| corrupt(reason(&error)))?;
    let mut security = SecurityLimits::new();
    security.set_max_image_size_pixels(limits.pixels);
    security.set_max_color_profile_size(u32::try_from(limits.metadata_bytes).unwrap_or(u32::MAX));
    context.set_security_limits(&security).map_err(|error| corrupt(reason(&error)))?;
    Ok(context)
}

/// libheif's own words, in ours.
pub fn reason(error: &libheif_rs::HeifError) -> String {
    format!("libheif: {}", error.message.trim_end_matches('.'))
}

/// Reads the container.
///
/// # Errors
/// [`refmill::failure::Code::Corrupt`] where libheif finds no primary image.
pub fn read<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Container<'a>, Failure> {
    heif_items::check(bytes)?;
    let context = context(bytes, limits)?;
    let handle = context.primary_image_handle().map_err(|error| corrupt(reason(&error)))?;
    let bits = handle.luma_bits_per_pixel();
    let header = Header {
        width: handle.width(),
        height: handle.height(),
        bits,
        model: if is_monochrome(&handle) { Model::Gray } else { Model::Rgb },
        alpha: handle.has_alpha_channel(),
        frames: u32::try_from(context.image_ids().len()).unwrap_or(u32::MAX).max(1),
    };
    let mut container = Container::new(header);
    container.upright_by_container = true;
    colour(bytes, &handle, limits, &mut container);
    metadata(bytes, &handle, limits, &mut container);
    Ok(container)
}

/// Whether the image has luma alone and no alpha, and is decoded as such.
pub fn is_monochrome(handle: &ImageHandle) -> bool {
    matches!(handle.preferred_decoding_colorspace(), Ok(ColorSpace::Monochrome)) && !handle.has_alpha_channel()
}

/// An item or box that libheif handed over, with its place in the file, if it stands there in one piece.
fn found<'a>(file: &[u8], what: &str, skipped: usize, data: Vec<u8>) -> Block<'a> {
    let start = memchr::memmem::find(file, &data).filter(|_| !data.is_empty());
    let place = start.map_or(what.to_owned(), |start| format!("{what} at byte {start}"));
    let bytes = if skipped == 0 { data } else { data.get(skipped..).unwrap_or_default().to_vec() };
    let origin = start.and_then(|start| start.checked_add(skipped));
    Block { place, offset: start, origin, bytes: Cow::Owned(bytes) }
}

fn colour(file: &[u8], handle: &ImageHandle, limits: &Limits, container: &mut Container<'_>) {
    if let Some(profile) = handle.color_profile_raw().filter(|profile| !profile.data.is_empty()) {
        if profile.data.len() as u64 > limits.metadata_bytes {
            let block = found(file, "colr box", 0, profile.data);
            container.findings.push(over_limit(block.place, block.offset, block.bytes.len(), limits));
        } else {
            container.icc = Some(found(file, "colr box", 0, profile.data));
        }
    }
    if let Some(nclx) = handle.color_profile_nclx() {
        container.nclx =
            Some(Nclx { primaries: nclx.color_primaries() as u16, transfer: nclx.transfer_characteristics() as u16 });
    }
}

/// EXIF items begin with the offset of the TIFF header (ISO/IEC 23008-12 A.2.1).
fn metadata(file: &[u8], handle: &ImageHandle, limits: &Limits, container: &mut Container<'_>) {
    for metadata in handle.all_metadata() {
        if metadata.raw_data.len() as u64 > limits.metadata_bytes {
            let block = found(file, "metadata item", 0, metadata.raw_data);
            container.findings.push(over_limit(block.place, block.offset, block.bytes.len(), limits));
            continue;
        }
        if metadata.item_type.0 == *b"Exif" {
            let offset = crate::bytes::index_at(&metadata.raw_data, 0, crate::bytes::Order::Big).unwrap_or(0);
            let start = offset.saturating_add(4);
            let whole = metadata.raw_data.len();
            let body = metadata.raw_data.get(start..).unwrap_or_default();
            let skipped = whole - without_exif_prefix(body).len();
            container.exif.push(found(file, "Exif item", skipped, metadata.raw_data));
        } else if metadata.content_type == "application/rdf+xml" && container.xmp.is_none() {
            container.xmp = Some(found(file, "XMP item", 0, metadata.raw_data));
        }
    }
}
