//! `refmill`.
fn main() {}
