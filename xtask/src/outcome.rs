//! What came of the steps of a task, counted so that nothing is left out unseen.

use std::time::{Duration, Instant};

/// What came of one step: how much passed, and what failed or was skipped, with reasons.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) passed: usize,
    pub(crate) failed: Vec<String>,
    pub(crate) skipped: Vec<String>,
    /// Tests that this step leaves to a later one.
    pub(crate) left: usize,
    /// What a person should know at the end, though it is no outcome of a test.
    pub(crate) note: Option<String>,
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
        self.steps.push((name.to_owned(), start.elapsed(), outcome));
    }

    /// How many tests the steps so far have left to a later one.
    pub(crate) fn left(&self) -> usize {
        self.steps.iter().map(|(.., outcome)| outcome.left).sum()
    }

    pub(crate) fn failed(&self) -> bool {
        self.steps
            .iter()
            .any(|(.., outcome)| !outcome.failed.is_empty())
    }

    /// Prints each step with its time and counts, every failure and skip with its reason, and the sum as the last line.
    pub(crate) fn print(&self) {
        println!("\n{:<31} seconds  passed  failed skipped", "");
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for (name, time, outcome) in &self.steps {
            let seconds = time.as_secs_f32();
            let counts = (outcome.passed, outcome.failed.len(), outcome.skipped.len());
            let (now_passed, now_failed, now_skipped) = counts;
            println!("{name:<31} {seconds:>7.1} {now_passed:>7} {now_failed:>7} {now_skipped:>7}");
            passed += now_passed;
            failed += now_failed;
            skipped += now_skipped;
        }
        for (name, _, outcome) in &self.steps {
            for (word, reasons) in [("SKIPPED", &outcome.skipped), ("FAILED", &outcome.failed)] {
                for same in reasons.chunk_by(|a, b| a == b) {
                    let times = match same.len() {
                        1 => String::new(),
                        count => format!("{count} tests: "),
                    };
                    println!("{word} {name}: {times}{}", same[0]);
                }
            }
        }
        for note in self
            .steps
            .iter()
            .filter_map(|(.., outcome)| outcome.note.as_ref())
        {
            println!("NOTE {note}");
        }
        println!("{passed} passed, {failed} failed, {skipped} skipped");
    }
}
