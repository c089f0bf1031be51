//! The PNG container: any bytes, taken for PNG.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refmill::report::Format;

fuzz_target!(|bytes: &[u8]| refmill_fuzz::container(bytes, Format::Png));
