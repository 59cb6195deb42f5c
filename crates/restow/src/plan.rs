//! Predictions of copies: size and time for each codec, from a sample.

use std::time::Duration;

use tree::{Inventory, Limits as TreeLimits};

use crate::{Result, SourceTree};

pub use ::plan::{
    Candidate, CandidateRow, Choice, Coding, Container, Goal, Limits, Medium, PlanOptions,
    Prediction, PredictionStage, Range, Reason, Sampled, choose, front, marginal, transfer_seconds,
};

impl SourceTree {
    /// Predicts size and time of a copy with each candidate of the options; [`choose`] recommends
    /// one. `clock` gives the time since the source began to be opened, which counts; `stage` is
    /// called with each stage. Nothing is written.
    ///
    /// # Errors
    /// The source cannot be read, or does not fit the format.
    pub fn plan(
        &self,
        options: &PlanOptions,
        clock: &(dyn Fn() -> Duration + Sync),
        stage: &dyn Fn(PredictionStage<'_>),
    ) -> Result<Prediction> {
        let inventory = Inventory::of(&**self.tree(), &TreeLimits::default());
        let prediction =
            inventory.and_then(|inventory| ::plan::predict(&inventory, options, clock, stage));
        prediction.map_err(|error| self.name_error(error))
    }
}
