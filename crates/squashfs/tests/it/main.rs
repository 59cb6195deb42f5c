//! Tests of SquashFS images.

mod create;
mod differential;
mod hostile;
mod sources;
mod vectors;
