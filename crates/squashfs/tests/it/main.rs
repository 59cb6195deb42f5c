//! Tests of SquashFS images.

mod differential;
mod hostile;
mod sources;
