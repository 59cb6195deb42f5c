//! What every container offers: its parts, and what a candidate makes of them.

use std::time::Duration;

use codec::Settings;
use tree::{Parallel, Result, ordered};

use crate::candidate::{Candidate, Coding};
use crate::population::Unit;

/// The candidate of the first pass, where parts are encoded as blocks.
pub(crate) const FIRST: Candidate = Candidate {
    coding: Coding::Blocks(Settings::Zstd { level: 1 }),
    block_bytes: None,
};

/// The time since some fixed moment.
pub(crate) type Clock<'a> = &'a (dyn Fn() -> Duration + Sync);

/// The content of a tree, cut as a container cuts it.
pub(crate) trait Cut: Sync {
    /// All parts.
    fn units(&self) -> &[Unit];

    /// Prepares a candidate.
    ///
    /// # Errors
    /// The settings are impossible.
    fn with<'a>(&'a self, candidate: &Candidate) -> Result<Box<dyn Trial + 'a>>;

    /// The candidate of the first pass.
    fn first(&self) -> Candidate {
        FIRST
    }

    /// The most parts that a copy takes before the first of them is written.
    fn in_flight(&self, parallel: Parallel) -> usize {
        parallel.jobs_max()
    }

    /// The size of the result grows in steps of this number of bytes.
    fn step_bytes(&self) -> u32 {
        1
    }

    /// Encodes these parts, ascending, with a fast encoder whose results are a guide to those of
    /// all candidates.
    ///
    /// # Errors
    /// The source cannot be read.
    fn first_pass(
        &self,
        units: &[usize],
        parallel: Parallel,
        clock: Clock<'_>,
    ) -> Result<Vec<Tried>> {
        measure(&*self.with(&self.first())?, units, parallel, clock)
    }

    /// Makes these parts ready, if they are not read from the source one by one. Returns how long
    /// the container then needs to put all parts together without encoding them, in seconds: a
    /// separate step.
    ///
    /// # Errors
    /// The source cannot be read.
    fn load(&mut self, _units: &[usize], _clock: Clock<'_>) -> Result<Option<f64>> {
        Ok(None)
    }
}

/// A candidate for a [`Cut`].
pub(crate) trait Trial: Sync {
    /// A worker, one for each thread.
    fn worker(&self) -> Result<Box<dyn TrialWork + '_>>;

    /// The size of the result if the parts have these lengths.
    ///
    /// # Errors
    /// The tree does not fit the container.
    fn whole(&self, lens: &[u32], parallel: Parallel) -> Result<u64>;
}

/// A thread's memory.
pub(crate) trait TrialWork {
    /// Encodes, decodes and compares a part.
    ///
    /// # Errors
    /// The source cannot be read, or the result is not what was encoded.
    fn run(&mut self, unit: usize, clock: Clock<'_>) -> Result<Tried>;
}

/// What a part was encoded to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried {
    /// Stored length in bytes.
    pub(crate) len: u32,
    /// Seconds to read, encode and verify it.
    pub(crate) encode: f64,
    /// Seconds to decode it: 0 if it is stored as it is.
    pub(crate) decode: f64,
}

/// Tries parts on all threads. The results are in the order of the parts.
pub(crate) fn measure(
    trial: &dyn Trial,
    units: &[usize],
    parallel: Parallel,
    clock: Clock<'_>,
) -> Result<Vec<Tried>> {
    let mut tried = Vec::with_capacity(units.len());
    ordered(
        parallel,
        units.iter(),
        || (trial.worker(), false),
        |(worker, is_warm), &unit| {
            let worker = match worker {
                Ok(worker) => worker,
                Err(error) => return Err(std::mem::replace(error, tree::Error::Changed)),
            };
            // The first use of an encoder's memory takes longer than all later ones.
            if !std::mem::replace(is_warm, true) {
                worker.run(unit, clock)?;
            }
            worker.run(unit, clock)
        },
        |one| {
            tried.push(one);
            Ok(())
        },
    )?;
    Ok(tried)
}

/// Runs a closure, and returns its result and how long it took, in seconds.
pub(crate) fn timed<T>(clock: Clock<'_>, run: impl FnOnce() -> T) -> (T, f64) {
    let start = clock();
    let result = run();
    (result, clock().saturating_sub(start).as_secs_f64())
}
