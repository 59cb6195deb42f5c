//! What is run at each change, and the checks that run no test.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::campaign::page;
use crate::changed::{self, Changed};
use crate::command::{cargo, limited, output_of, run, run_tests};
use crate::environment::{is_ci, root};
use crate::outcome::{Outcome, Report};
use crate::suite::{self, Binary, Suite};
use crate::{tidy, tools};

/// How long `cargo xtask check` may take: no test is started later.
const CHECK_MAX: Duration = Duration::from_secs(300);

/// How long building and running the examples in the documentation may take: a few seconds, unless
/// one hangs.
const DOC_TESTS_SECONDS_MAX: u64 = 600;

/// What cargo-deny checks here; advisories need the network.
const DENY_CHECKS: [&str; 3] = ["bans", "licenses", "sources"];

/// What the last run of cargo-deny that passed has looked at.
const DENY_PASSED: &str = "deny.passed";

/// Formatting, tidy, lints, and the tests of the crates that a change concerns.
pub(crate) fn check(report: &mut Report, _: &[String]) {
    let until = Instant::now() + CHECK_MAX;
    style(report);
    let changed = changed::files().and_then(|files| {
        let members = tidy::members(&root()).map_err(|error| format!("read manifests: {error}"))?;
        Ok(changed::crates(&members, &files))
    });
    let changed = match changed {
        Ok(changed) => changed,
        Err(reason) => return report.step("what changed", || Outcome::failed(reason)),
    };
    if changed == Changed::default() {
        let reason = "no crate changed since this branch left main, or in the last commit";
        return report.step("tests", || Outcome::skipped(reason));
    }
    println!("changed: {}", changed.touched.join(", "));
    println!("built or tested with it: {}", changed.dependent.join(", "));
    let mut binaries = Vec::new();
    report.step("build", || match suite::build(&["--workspace"]) {
        Ok(built) => {
            binaries = built;
            Outcome::passed()
        }
        Err(reason) => Outcome::failed(reason),
    });
    for folder in changed.touched.iter().chain(&changed.dependent) {
        let suite = Suite {
            until: Some(until),
            ..Suite::default()
        };
        report.step(folder, || suite.run(of_crate(&binaries, folder).into()));
    }
    report.step("tests in documentation", doc_tests);
}

/// Formatting, tidy and lints.
pub(crate) fn style(report: &mut Report) {
    report.step("rustfmt and clippy", tools::ensure_components);
    report.step("format", || run(&mut cargo(["fmt", "--all", "--check"])));
    tidy(report, &[]);
    report.step("clippy", || {
        run(&mut cargo([
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]))
    });
}

/// The rules of the house.
pub(crate) fn tidy(report: &mut Report, _: &[String]) {
    report.step("tidy", || {
        let mut outcome = tidy::tidy(&root());
        outcome.notes.extend(page::stale_note());
        outcome
    });
}

/// Licences, bans and sources of the outside crates. What passes is written down for
/// [`changed_crates`].
pub(crate) fn deny(report: &mut Report, _: &[String]) {
    report.step("cargo-deny", || {
        let mut outcome = run_deny();
        if outcome.failed.is_empty() && outcome.skipped.is_empty() {
            let written = deny_inputs().and_then(|inputs| {
                fs::write(root().join(DENY_PASSED), inputs).map_err(|error| error.to_string())
            });
            outcome.failed.extend(written.err());
        }
        outcome
    });
}

/// The same, if anything has changed that the verdict depends on: cargo-deny takes a minute to
/// build, and the sources of outside crates never change.
pub(crate) fn changed_crates(report: &mut Report) {
    report.step("cargo-deny", || {
        let passed = fs::read_to_string(root().join(DENY_PASSED));
        if passed.is_ok_and(|passed| deny_inputs() == Ok(passed)) {
            return Outcome::passed();
        }
        let mut outcome = run_deny();
        let note = format!("{DENY_PASSED} is of other crates: cargo xtask deny writes it");
        outcome.notes.push(note);
        outcome
    });
}

fn run_deny() -> Outcome {
    match tools::cargo_deny() {
        Ok(mut deny) => run(deny
            .args(["--log-level", "error", "check"])
            .args(DENY_CHECKS)),
        Err(reason) if is_ci() => Outcome::failed(reason),
        Err(reason) => Outcome::skipped(reason),
    }
}

/// What git calls the content of each file that cargo-deny looks at.
fn deny_inputs() -> Result<String, String> {
    let members = tidy::members(&root()).map_err(|error| format!("read manifests: {error}"))?;
    let manifests = members
        .iter()
        .map(|member| member.folder.clone() + "/Cargo.toml");
    let mut files = ["Cargo.lock", "Cargo.toml", "deny.toml"]
        .map(str::to_owned)
        .to_vec();
    files.extend(manifests);
    let mut git = Command::new("git");
    let hashes = output_of(git.arg("hash-object").args(&files).current_dir(root()))?;
    let lines = hashes.lines().zip(&files);
    Ok(lines
        .map(|(hash, file)| format!("{hash} {file}\n"))
        .collect())
}

/// The workflows have no mistake that actionlint knows.
pub(crate) fn workflows(report: &mut Report) {
    report.step("actionlint", || match tools::actionlint() {
        Ok(mut actionlint) => run(&mut actionlint),
        Err(reason) if is_ci() => Outcome::failed(reason),
        Err(reason) => Outcome::skipped(reason),
    });
}

/// The documentation is built, and its links lead somewhere.
pub(crate) fn documentation() -> Outcome {
    run(cargo(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"))
}

/// The examples in the documentation run.
pub(crate) fn doc_tests() -> Outcome {
    // Cargo runs them even for a crate whose manifest says that they do not run there.
    let mut command = cargo(["test", "--workspace", "--doc", "--no-fail-fast"]);
    command.args(["--exclude", "zstd-portable"]);
    run_tests(&mut limited(&command, DOC_TESTS_SECONDS_MAX))
}

/// The test binaries of the crate in a folder.
pub(crate) fn of_crate(binaries: &[Binary], folder: &str) -> Vec<Binary> {
    let folder: PathBuf = root().join(folder);
    let of_it = binaries.iter().filter(|binary| binary.folder == folder);
    of_it.cloned().collect()
}
