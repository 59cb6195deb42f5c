//! The integration tests of `report`.

/// The program in `examples`.
mod examples;
