//! Tests of EROFS images.

mod hand;
mod hostile;
mod kernel;
mod matrix;
mod vectors;
