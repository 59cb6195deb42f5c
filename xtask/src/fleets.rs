//! Tries the promises of docs/guides/remote.md and docs/fleets.md with stores and engines of other
//! projects: moto, versitygw and azurite; GNU parallel, Slurm, Ray and Dask.

use std::fs;

use crate::command::{build_restow, output_of};
use crate::outcome::{Outcome, Report};
use crate::tools;

const SCRIPT: &str = include_str!("fleets.sh");

/// The task.
pub(crate) fn fleets(report: &mut Report, _: &[String]) {
    report.step("fleets", campaign);
}

/// Runs the script, whose lines are the results of its checks.
pub(crate) fn campaign() -> Outcome {
    tried().unwrap_or_else(Outcome::failed)
}

fn tried() -> Result<Outcome, String> {
    build_restow()?;
    let target = tools::target_dir();
    let folder = target.join("fleets");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut script = std::process::Command::new("sh");
    script.args(["-c", SCRIPT, "fleets"]);
    script.arg(target.join("debug/restow")).arg(&folder);
    let said = output_of(&mut script)?;
    let _ = fs::remove_dir_all(&folder);
    let mut outcome = Outcome::default();
    for line in said.lines() {
        match line.split_once(' ') {
            Some(("ok", _)) => outcome.passed += 1,
            Some(("FAILED", words)) => outcome.failed.push(words.to_owned()),
            Some(("SKIPPED", words)) => outcome.skipped.push(words.to_owned()),
            _ => outcome.failed.push(format!("the script said: {line}")),
        }
    }
    if outcome.passed == 0 && outcome.skipped.is_empty() {
        outcome.failed.push("nothing was tried".to_owned());
    }
    Ok(outcome)
}
