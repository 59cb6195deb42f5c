//! Long runs of what `cargo xtask test` only samples. Each has a name, and its last result is a row
//! of docs/campaigns.md.

mod list;
pub(crate) mod page;

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use list::{Campaign, Run};
use page::{PAGE, row, with_row};

use crate::command::{self, line_of, nightly, succeeds};
use crate::environment::root;
use crate::harness::harness;
use crate::mutants::mutants;
use crate::outcome::{Outcome, Report};
use crate::suite::{self, Group, Suite};
use crate::{fuzz, test, tools};

/// How long one test of a campaign may take.
const CAMPAIGN_MAX: Duration = Duration::from_secs(24 * 3600);

/// The task: runs the campaigns that are named, or lists them with the age of their results.
/// `stale` names those without a fresh one.
pub(crate) fn campaign(report: &mut Report, arguments: &[String]) {
    let ages = match page::ages() {
        Ok(ages) => ages,
        Err(reason) => return report.step("ages", || Outcome::failed(reason)),
    };
    if arguments.is_empty() {
        for (campaign, age) in &ages {
            let words = campaign.run.words();
            println!("{:<28} {:<20} {words}", campaign.name, age.words());
        }
    }
    for name in arguments {
        let mut named = (ages.iter())
            .filter(|(campaign, age)| campaign.name == name || name == "stale" && age.is_stale())
            .peekable();
        if named.peek().is_none() && name != "stale" {
            let reason =
                format!("there is no campaign \"{name}\"; `cargo xtask campaign` lists them");
            return report.step(name, || Outcome::failed(reason));
        }
        for (campaign, _) in named {
            report.step(campaign.name, || record(campaign));
        }
    }
}

/// Runs a campaign and writes its row.
fn record(campaign: &Campaign) -> Outcome {
    let (start, commit) = (Instant::now(), page::commit());
    let (mut outcome, cases) = match &campaign.run {
        Run::Tests {
            crate_name,
            filter,
            cases,
            as_root,
        } => (run_tests(crate_name, filter, *cases, *as_root), *cases),
        Run::Program { run, .. } => {
            let outcome = run();
            let cases = outcome.passed + outcome.failed.len();
            (outcome, cases as u64)
        }
        Run::Fuzz(target) => run_fuzz(target, minutes(30)),
        Run::Miri {
            crate_name,
            filters,
        } => {
            let outcome = run_miri(crate_name, filters);
            let cases = outcome.passed + outcome.failed.len();
            (outcome, cases as u64)
        }
        Run::Harness { source, sanitizer } => {
            fuzz_for(minutes(20), |seconds| harness(source, *sanitizer, seconds))
        }
        Run::Mutants {
            crate_name,
            caught_min,
            files,
        } => mutants(crate_name, files, *caught_min),
    };
    let was_run = outcome.passed > 0 || !outcome.failed.is_empty();
    if outcome.passed == 0 && outcome.failed.is_empty() && outcome.skipped.is_empty() {
        outcome.failed.push("no test has that name".to_owned());
    }
    if !was_run {
        return outcome;
    }
    let result = match outcome.failed.as_slice() {
        [] => [&["passed".to_owned()], outcome.notes.as_slice()].concat(),
        failed => [&["FAILED".to_owned()], failed, &outcome.notes].concat(),
    };
    let row = row(
        campaign,
        &commit,
        cases,
        &result.join("; "),
        start.elapsed(),
    );
    let written = row.and_then(|row| {
        let path = root().join(PAGE);
        let page = fs::read_to_string(&path).map_err(|error| format!("read {PAGE}: {error}"))?;
        fs::write(&path, with_row(&page, campaign.name, &row))
            .map_err(|error| format!("write {PAGE}: {error}"))
    });
    if let Err(reason) = written {
        outcome.failed.push(reason);
    }
    outcome
}

fn run_tests(crate_name: &str, filter: &str, cases: u64, as_root: bool) -> Outcome {
    let installed = tools::ensure();
    if !installed.failed.is_empty() {
        return installed;
    }
    let root_prefix = match tools::root_prefix() {
        _ if !as_root => None,
        Some(prefix) => Some(tools::mount_prefix(prefix)),
        None => Some(tools::mount_prefix(&["sudo"])),
    };
    let binaries = match suite::build(&["--workspace"]) {
        Ok(binaries) => binaries,
        Err(reason) => return Outcome::failed(reason),
    };
    let of_it = Group {
        prefix: root_prefix.as_deref().unwrap_or_default(),
        binaries: (binaries.into_iter())
            .filter(|binary| binary.crate_name() == crate_name)
            .collect(),
    };
    let mut suite = Suite {
        ignored: as_root,
        filters: &[filter.to_owned()],
        test_max: CAMPAIGN_MAX,
        cases: Some(cases),
        shows_output: true,
        ..Suite::default()
    };
    if as_root {
        suite.jobs = 1;
    }
    suite.run(of_it)
}

/// How long to fuzz: `usual`, unless `RESTOW_MINUTES` is another number.
fn minutes(usual: u64) -> u64 {
    let number = env::var("RESTOW_MINUTES");
    number.map_or(usual, |number| number.parse().unwrap_or(usual))
}

/// The outcome, and how many inputs were tried.
fn run_fuzz(target: &str, minutes: u64) -> (Outcome, u64) {
    match fuzz::build_campaign(target) {
        Ok(()) => fuzz_for(minutes, |seconds| Ok(fuzz::campaign(target, seconds))),
        Err(reason) => (Outcome::skipped(reason), 0),
    }
}

/// Repeats a command that fuzzes until it took these minutes of processor time: by the clock, a
/// machine with other work would try less in the same minutes.
fn fuzz_for(minutes: u64, command_of: impl Fn(u64) -> Result<Command, String>) -> (Outcome, u64) {
    let (mut left, mut inputs) = (Duration::from_secs(minutes * 60), 0);
    while !left.is_zero() {
        // Each run reads what the ones before it have found: a short one does little else.
        let command = match command_of(left.as_secs().max(60)) {
            Ok(command) => command,
            Err(reason) => return (Outcome::skipped(reason), inputs),
        };
        let before = command::time_of_children();
        let (outcome, tried) = fuzzed(command);
        inputs += tried;
        let used = command::time_of_children().saturating_sub(before);
        if !outcome.failed.is_empty() || used.is_zero() {
            return (outcome, inputs);
        }
        left = left.saturating_sub(used);
    }
    let mut outcome = Outcome::passed();
    (outcome.notes).push(format!("{minutes} minutes of processor time"));
    (outcome, inputs)
}

/// Runs tests of a crate_name's library under Miri.
fn run_miri(crate_name: &str, filters: &[&str]) -> Outcome {
    if !succeeds(&mut nightly(["miri", "--version"])) {
        return Outcome::skipped("no Miri: rustup component add miri --toolchain nightly");
    }
    let mut command = test::miri_of(crate_name);
    command.args(["--lib", "--"]).args(filters);
    command::run_tests(&mut command)
}

/// What libFuzzer finds.
fn fuzzed(mut command: Command) -> (Outcome, u64) {
    let child = command.stderr(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            return (
                Outcome::failed(format!("{}: {error}", line_of(&command))),
                0,
            );
        }
    };
    let mut inputs = 0;
    let stderr = child.stderr.take().expect("it is piped");
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        eprintln!("{line}");
        inputs = fuzz::executions(&line).unwrap_or(inputs);
    }
    let outcome = match child.wait() {
        Ok(status) if status.success() => Outcome::passed(),
        Ok(status) => Outcome::failed(format!("{}: {status}", line_of(&command))),
        Err(error) => Outcome::failed(format!("{}: {error}", line_of(&command))),
    };
    (outcome, inputs)
}
