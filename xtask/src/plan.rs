//! The campaigns that compare predictions of `restow plan` with copies of real trees.

use std::env;
use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::command::line_of;
use crate::environment::root;
use crate::outcome::Outcome;

/// Names the trees, with `:` between.
const TREES: &str = "RESTOW_TREES";

/// Builds the command as it is shipped, predicts every tree and copies it with every candidate.
pub(crate) fn campaign() -> Outcome {
    run(&[
        "--release",
        "--package",
        "restow-cli",
        "--test",
        "it",
        "--",
        "plan_real::predictions_of_real_trees",
    ])
}

/// Encodes every tree once with some candidates, draws samples with 100 seeds, and counts the error
/// bars that hold.
pub(crate) fn bars() -> Outcome {
    run(&[
        "--package",
        "restow-plan",
        "--lib",
        "--",
        "tests::bars::bars_and_limits_hold_for_real_trees",
    ])
}

fn run(test: &[&str]) -> Outcome {
    if env::var_os(TREES).is_none() {
        return Outcome::skipped(format!(
            "{TREES} must name trees, with `:` between: sources, programs, photographs, databases"
        ));
    }
    let mut command = Command::new(env!("CARGO"));
    command.arg("test").args(test);
    command.args(["--exact", "--nocapture"]);
    // The seeds of `bars`.
    command.env("RESTOW_CASES", "100");
    command.current_dir(root()).stdout(Stdio::piped());
    let line = line_of(&command);
    let failed = |reason: &dyn Display| Outcome::failed(format!("{line}: {reason}"));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return failed(&error),
    };
    let mut notes = Vec::new();
    let stdout = child.stdout.take().expect("it is piped");
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        println!("{line}");
        notes.extend(line.strip_prefix("campaign: ").map(str::to_owned));
    }
    let outcome = match child.wait() {
        Ok(status) if status.success() => Outcome::passed(),
        Ok(status) => failed(&status),
        Err(error) => failed(&error),
    };
    Outcome { notes, ..outcome }
}
