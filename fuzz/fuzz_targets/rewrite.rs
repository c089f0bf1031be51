//! Lossless repair: any bytes, twice.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| refmill_fuzz::rewrite(bytes));
