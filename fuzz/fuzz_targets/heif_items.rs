//! The boxes of AVIF and HEIC that are read before libheif: any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| refmill_fuzz::heif_items(bytes));
