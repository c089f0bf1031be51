//! The TIFF container: any bytes, taken for TIFF.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refmill::report::Format;

fuzz_target!(|bytes: &[u8]| refmill_fuzz::container(bytes, Format::Tiff));
