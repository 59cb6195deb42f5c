//! Tests of SquashFS images.

mod create;
mod differential;
mod failures;
mod hostile;
mod keep;
mod kernel;
mod matrix;
mod mutants;
mod reproducible;
mod sources;
mod unreadable;
mod vectors;
