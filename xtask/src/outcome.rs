//! What came of the steps of a task, counted so that nothing is left out unseen.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How many of the slowest tests are shown.
const SLOWEST: usize = 12;

/// A test that takes less than this is not slow, however fast the others are.
const SLOW: Duration = Duration::from_secs(2);

/// What came of one step: how much passed, and what failed or was skipped, with reasons.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) passed: usize,
    pub(crate) failed: Vec<String>,
    pub(crate) skipped: Vec<String>,
    /// Tests that this step leaves to a later one.
    pub(crate) left: usize,
    /// What a person should know at the end, though it is not the outcome of a test.
    pub(crate) notes: Vec<String>,
    /// The tests whose times are known.
    pub(crate) tests: Vec<Test>,
}

/// A test that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    /// Its package and its name.
    pub(crate) name: String,
    pub(crate) time: Duration,
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

    /// Adds what came of another part of the step.
    pub(crate) fn add(&mut self, other: Outcome) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
        self.left += other.left;
        self.notes.extend(other.notes);
        self.tests.extend(other.tests);
    }

    /// Takes the tests that passed in the harness's eyes, but reported a skip, from those that
    /// passed. `list` is what `testkit::skip` wrote.
    pub(crate) fn count_skips(&mut self, list: &str) {
        let mut tests = BTreeSet::new();
        for line in list.lines() {
            let reason = line.strip_prefix("SKIPPED ").unwrap_or(line);
            let test = reason.split_once(": ").map_or(reason, |(test, _)| test);
            // One that lacks two programs is still one test.
            if tests.insert(test) {
                self.skipped.push(reason.to_owned());
            }
        }
        self.passed = self.passed.saturating_sub(tests.len());
    }
}

/// What came of one check.
impl From<Result<(), String>> for Outcome {
    fn from(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Outcome::passed(),
            Err(reason) => Outcome::failed(reason),
        }
    }
}

/// One step that was done.
struct Step {
    name: String,
    time: Duration,
    /// How long it should take at most, if it has a share of the task's time.
    share: Option<Duration>,
    outcome: Outcome,
}

/// The steps that were done, in order.
#[derive(Default)]
pub(crate) struct Report {
    steps: Vec<Step>,
    /// The share of the time that each step has, by its name.
    shares: &'static [(&'static str, u64)],
}

impl Report {
    /// Gives the steps that follow shares of the task's time: their names and seconds.
    pub(crate) fn budget(&mut self, shares: &'static [(&'static str, u64)]) {
        self.shares = shares;
    }

    /// Does a step, after a line that names it.
    pub(crate) fn step(&mut self, name: &str, step: impl FnOnce() -> Outcome) {
        println!("==> {name}");
        let start = Instant::now();
        let outcome = step();
        self.add(name, start.elapsed(), outcome);
    }

    /// Adds a step that was done.
    pub(crate) fn add(&mut self, name: &str, time: Duration, outcome: Outcome) {
        for failure in &outcome.failed {
            println!("FAILED {failure}");
        }
        let share = self.shares.iter().find(|(step, _)| *step == name);
        self.steps.push(Step {
            name: name.to_owned(),
            time,
            share: share.map(|(_, seconds)| Duration::from_secs(*seconds)),
            outcome,
        });
    }

    /// Adds the steps of another report.
    pub(crate) fn append(&mut self, other: Report) {
        self.steps.extend(other.steps);
    }

    /// How many tests the steps so far have left to a later one.
    pub(crate) fn left(&self) -> usize {
        self.steps.iter().map(|step| step.outcome.left).sum()
    }

    pub(crate) fn failed(&self) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|step| !step.outcome.failed.is_empty())
    }

    /// Prints each step with its time and counts, and the time of `all`; the slowest tests, every
    /// failure and skip with its reason, and the sum as the last line.
    pub(crate) fn print(&self, all: Duration) {
        println!("\n{}", self.table(all));
        for line in self.slowest() {
            println!("{line}");
        }
        for Step { name, outcome, .. } in &self.steps {
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
        for note in self.steps.iter().flat_map(|step| &step.outcome.notes) {
            println!("NOTE {note}");
        }
        println!("{}", self.sum());
    }

    /// A line for each step, and one for all, of which some may run beside others: seconds, the
    /// share of the time that a step has, and counts.
    fn table(&self, all: Duration) -> String {
        let has_shares = self.steps.iter().any(|step| step.share.is_some());
        let share_of = |share: Option<Duration>| {
            share.map_or(String::new(), |share| share.as_secs().to_string())
        };
        let line = |name: &str, seconds: &str, share: &str, counts: [&str; 3]| {
            let [passed, failed, skipped] = counts;
            let share = if has_shares {
                format!(" {share:>6}")
            } else {
                String::new()
            };
            format!("{name:<31} {seconds:>7}{share} {passed:>7} {failed:>7} {skipped:>7}\n")
        };
        let mut text = line("", "seconds", "share", ["passed", "failed", "skipped"]);
        for step in &self.steps {
            let outcome = &step.outcome;
            let counts = [outcome.passed, outcome.failed.len(), outcome.skipped.len()]
                .map(|count| count.to_string());
            let mut row = line(
                &step.name,
                &format!("{:.1}", step.time.as_secs_f32()),
                &share_of(step.share),
                counts.each_ref().map(String::as_str),
            );
            if step.share.is_some_and(|share| step.time > share) {
                row.truncate(row.trim_end().len());
                row += "  over its share\n";
            }
            text += &row;
        }
        let seconds = format!("{:.1}", all.as_secs_f32());
        let row = line("all", &seconds, "", [""; 3]);
        text + row.trim_end()
    }

    /// The slowest tests of all steps, the slowest first.
    fn slowest(&self) -> Vec<String> {
        let mut tests: Vec<&Test> = (self.steps.iter())
            .flat_map(|step| &step.outcome.tests)
            .filter(|test| test.time >= SLOW)
            .collect();
        tests.sort_by_key(|test| std::cmp::Reverse(test.time));
        tests.truncate(SLOWEST);
        let lines = tests
            .iter()
            .map(|test| format!("SLOW {:>6.1} s {}", test.time.as_secs_f32(), test.name));
        lines.collect()
    }

    /// How many passed, failed and were skipped.
    fn sum(&self) -> String {
        let sum = |count: fn(&Outcome) -> usize| -> usize {
            self.steps.iter().map(|step| count(&step.outcome)).sum()
        };
        format!(
            "{} passed, {} failed, {} skipped",
            sum(|outcome| outcome.passed),
            sum(|outcome| outcome.failed.len()),
            sum(|outcome| outcome.skipped.len())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, seconds: u64, share: Option<u64>, outcome: Outcome) -> Step {
        Step {
            name: name.to_owned(),
            time: Duration::from_secs(seconds),
            share: share.map(Duration::from_secs),
            outcome,
        }
    }

    #[test]
    fn skipped_test_is_not_a_passed_one() {
        let mut outcome = Outcome {
            passed: 3,
            ..Outcome::default()
        };
        outcome.count_skips(
            "SKIPPED tree::a::b: tar is missing\nSKIPPED tree::a::b: xz is missing\nSKIPPED zstd::c: no root\n",
        );
        assert_eq!(outcome.passed, 1);
        assert_eq!(
            outcome.skipped,
            ["tree::a::b: tar is missing", "zstd::c: no root"]
        );
    }

    #[test]
    fn steps_stand_beside_their_shares() {
        let report = Report {
            steps: vec![
                step("format", 2, Some(10), Outcome::passed()),
                step("kernel", 31, Some(30), Outcome::failed("x")),
                step("other", 1, None, Outcome::skipped("y")),
            ],
            shares: &[],
        };
        let table = report.table(Duration::from_secs(34));
        let lines: Vec<Vec<&str>> = (table.lines())
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[1], ["format", "2.0", "10", "1", "0", "0"]);
        assert_eq!(lines[2][..6], ["kernel", "31.0", "30", "0", "1", "0"]);
        assert!(table.contains("over its share"));
        assert_eq!(lines[3], ["other", "1.0", "0", "0", "1"]);
        assert_eq!(lines[4], ["all", "34.0"]);
        assert_eq!(report.sum(), "1 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn slowest_tests_come_first() {
        let test = |name: &str, seconds| Test {
            name: name.to_owned(),
            time: Duration::from_secs(seconds),
        };
        let tests = vec![test("a", 3), test("b", 9), test("c", 1)];
        let outcome = Outcome {
            tests,
            ..Outcome::default()
        };
        let report = Report {
            steps: vec![step("x", 0, None, outcome)],
            shares: &[],
        };
        let lines = report.slowest();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].ends_with("9.0 s b") && lines[1].ends_with("3.0 s a"));
    }
}
