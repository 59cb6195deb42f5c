//! What came of the steps of a task, counted so that nothing is left out unseen.

use std::time::{Duration, Instant};

/// What came of one step: how much passed, and what failed or was skipped, with reasons.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) passed: u32,
    pub(crate) failed: Vec<String>,
    pub(crate) skipped: Vec<String>,
}

impl Outcome {
    /// One check that passed.
    pub(crate) fn passed() -> Outcome {
        Outcome {
            passed: 1,
            ..Outcome::default()
        }
    }

    /// One check that failed.
    pub(crate) fn failed(reason: impl Into<String>) -> Outcome {
        Outcome {
            failed: vec![reason.into()],
            ..Outcome::default()
        }
    }

    /// One check that this machine cannot do.
    pub(crate) fn skipped(reason: impl Into<String>) -> Outcome {
        Outcome {
            skipped: vec![reason.into()],
            ..Outcome::default()
        }
    }
}

/// The steps that were done, in order.
#[derive(Default)]
pub(crate) struct Report {
    steps: Vec<(String, Duration, Outcome)>,
}

impl Report {
    /// Does a step, after a line that names it.
    pub(crate) fn step(&mut self, name: &str, step: impl FnOnce() -> Outcome) {
        println!("==> {name}");
        let start = Instant::now();
        let outcome = step();
        for failure in &outcome.failed {
            println!("FAILED {failure}");
        }
        for reason in &outcome.skipped {
            println!("SKIPPED {reason}");
        }
        self.steps.push((name.to_owned(), start.elapsed(), outcome));
    }

    pub(crate) fn failed(&self) -> bool {
        self.steps
            .iter()
            .any(|(.., outcome)| !outcome.failed.is_empty())
    }

    /// Prints each step with its time and counts, every failure and skip with its reason, and the sum as the last line.
    pub(crate) fn print(&self) {
        println!(
            "\n{:<24} {:>7} {:>7} {:>7} {:>7}",
            "", "seconds", "passed", "failed", "skipped"
        );
        let (mut passed, mut failed, mut skipped) = (0, Vec::new(), Vec::new());
        for (name, time, outcome) in &self.steps {
            println!(
                "{name:<24} {:>7.1} {:>7} {:>7} {:>7}",
                time.as_secs_f32(),
                outcome.passed,
                outcome.failed.len(),
                outcome.skipped.len()
            );
            passed += outcome.passed;
            failed.extend(
                outcome
                    .failed
                    .iter()
                    .map(|reason| format!("FAILED  {name}: {reason}")),
            );
            skipped.extend(
                outcome
                    .skipped
                    .iter()
                    .map(|reason| format!("SKIPPED {name}: {reason}")),
            );
        }
        for line in skipped.iter().chain(&failed) {
            println!("{line}");
        }
        println!(
            "{passed} passed, {} failed, {} skipped",
            failed.len(),
            skipped.len()
        );
    }
}
