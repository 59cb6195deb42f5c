//! The integration tests of `plan`.

/// The program in `examples`.
mod examples;
/// Which parts are tried.
mod samples;
