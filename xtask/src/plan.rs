//! The campaign that compares predictions of `restow plan` with copies of real trees.

use std::env;
use std::process::Command;

use crate::command::line_of;
use crate::environment::root;
use crate::outcome::Outcome;

/// Names the trees, with `:` between.
const TREES: &str = "RESTOW_TREES";

/// Builds the command as it is shipped, predicts every tree and copies it with every candidate.
pub(crate) fn campaign() -> Outcome {
    if env::var_os(TREES).is_none() {
        return Outcome::skipped(format!(
            "{TREES} must name trees, with `:` between: sources, programs, photographs, databases"
        ));
    }
    let mut command = Command::new(env!("CARGO"));
    command.args([
        "test",
        "--release",
        "--package",
        "restow-cli",
        "--test",
        "it",
        "--",
    ]);
    command.args(["--exact", "--nocapture"]);
    command.arg("plan_real::predictions_of_real_trees");
    match command.current_dir(root()).status() {
        Ok(status) if status.success() => Outcome::passed(),
        Ok(status) => Outcome::failed(format!("{}: {status}", line_of(&command))),
        Err(error) => Outcome::failed(format!("{}: {error}", line_of(&command))),
    }
}
