#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod archive;
mod candidate;
mod choose;
mod cut;
mod estimate;
mod images;
mod population;
mod predict;
mod schedule;
mod stream;
#[cfg(test)]
mod tests;

pub use candidate::{Candidate, Coding, Container};
pub use choose::{Choice, Goal, Limits, Reason, choose, front, marginal, transfer_seconds};
pub use predict::{
    CandidateRow, Medium, PlanOptions, Prediction, PredictionStage, Range, Sampled, predict,
};
