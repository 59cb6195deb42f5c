//! Tests of EROFS images.

mod hand;
mod hostile;
mod kernel;
mod matrix;
mod peer;
mod vectors;
