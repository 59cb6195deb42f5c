//! The report of `restow plan`: a prediction, its subject and the recommendation.

use std::path::Path;

use restow::Kernel;
use restow::plan::{
    CandidateRow, Choice, Container, Limits, Prediction, marginal, transfer_seconds,
};

/// A prediction and its subject.
pub(super) struct Report<'a> {
    /// The seed of the sample.
    pub(super) seed: u64,
    /// The number of threads, if the user gave one.
    pub(super) given_threads: Option<u16>,
    /// The Linux that must read an EROFS image, if the user gave one.
    pub(super) min_kernel: Option<Kernel>,
    /// The source as it was typed.
    pub(super) src: &'a Path,
    pub(super) name: String,
    pub(super) container: Container,
    pub(super) threads: usize,
    /// Bytes that the destination stores in a second.
    pub(super) write_rate: f64,
    /// How long the prediction took, in seconds.
    pub(super) seconds: f64,
    pub(super) limits: Limits,
    pub(super) prediction: Prediction,
    /// The rows from the fastest to the slowest.
    pub(super) order: Vec<usize>,
    /// The rows that are best in something, from the fastest to the smallest.
    pub(super) front: Vec<usize>,
    pub(super) advice: Option<Advice>,
}

impl Report<'_> {
    pub(super) fn rows(&self) -> &[CandidateRow] {
        &self.prediction.rows
    }

    pub(super) fn words(&self, row: &CandidateRow) -> String {
        row.candidate.words(self.container)
    }

    /// The step to a row from the one before it on the front, if it has one.
    pub(super) fn step(&self, row: usize) -> Option<(f64, f64)> {
        let at = self.front.iter().position(|&it| it == row)?;
        let before = *self.front.get(at.checked_sub(1)?)?;
        Some(marginal(&self.rows()[before], &self.rows()[row]))
    }

    pub(super) fn is_chosen(&self, row: usize) -> bool {
        (self.advice.as_ref()).is_some_and(|advice| advice.choice.row == row)
    }

    /// Seconds to send a row's result and to unpack it, if there is a link.
    pub(super) fn transfer(&self, row: &CandidateRow) -> Option<f64> {
        let rate = self.limits.link_rate?;
        Some(transfer_seconds(row, rate))
    }
}

/// A recommendation.
pub(super) struct Advice {
    pub(super) choice: Choice,
    /// The choice, and its reason.
    pub(super) sentence: String,
    pub(super) reason: String,
    /// The command that makes it.
    pub(super) command: String,
}
