//! The one door: checks, tests, fuzzing and benchmarks.
fn main() {}
