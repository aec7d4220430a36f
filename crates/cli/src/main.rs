//! The program `haul`.
#![forbid(unsafe_code)]
fn main() {}
