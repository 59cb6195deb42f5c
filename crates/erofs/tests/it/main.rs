//! Tests of EROFS images.

mod hostile;
mod kernel;
mod matrix;
mod vectors;
