//! Tests of EROFS images.

mod create;
mod hand;
mod hostile;
mod keep;
mod kernel;
mod matrix;
mod peer;
mod reuse;
mod vectors;
