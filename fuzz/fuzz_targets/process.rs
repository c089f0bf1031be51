//! The whole job: any bytes through every stage to image and tensors, under small limits.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| refmill_fuzz::process(bytes));
