//! The `restow` command.
#![forbid(unsafe_code)]

fn main() {}
