//! Frames from a worker: any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| refmill_fuzz::wire(bytes));
