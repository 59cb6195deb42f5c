//! The `restow` command.
fn main() {}
