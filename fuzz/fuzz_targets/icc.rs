//! The ICC profile: any bytes, for each colour model, up to the transform.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| refmill_fuzz::icc(bytes));
