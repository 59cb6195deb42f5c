//! Predicts what a copy of a tree would cost with each codec, level and block size, and chooses one.
//!
//! The content is cut as the container would cut it. One fast encoder is run on all parts, or on very many of a large tree:
//! the *first pass*. A sample of the parts, stratified by kind and by the result of the first pass, is then encoded,
//! decoded and compared with every candidate, by the same code that writes the container. How a candidate's lengths
//! relate to those of the first pass in each stratum gives the lengths of all other parts, and the writer makes its
//! tables for them. So metadata, padding and free space are those of a real image.
//!
//! The sample depends on the tree and the seed only. Times do not: they are read from a clock that the caller provides.
#![forbid(unsafe_code)]

mod archive;
mod candidate;
mod choose;
mod cut;
mod estimate;
mod images;
mod population;
mod predict;
mod stream;

pub use candidate::{Candidate, Coding, Container};
pub use choose::{Choice, Goal, Limits, Reason, choose, front, marginal, transfer_seconds};
pub use predict::{Prediction, Question, Range, Row, Sampled, Stage, predict};
