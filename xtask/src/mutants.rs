//! Mutation tests: small changes of the code, each of which some test must notice.

use std::env;
use std::process::{Command, Stdio};

use crate::command::{cargo, line_of, package, run, succeeds};
use crate::environment::root;
use crate::outcome::Outcome;
use crate::tools::target_dir;

/// The version of cargo-mutants that is installed where there is none.
const VERSION: &str = "27.1.0";

/// Which part of the mutants is tried, such as `3/20`: the mutants 3, 23, 43, ... of the list,
/// which starts at 0.
const PART: &str = "RESTOW_MUTANTS";

/// `cargo mutants`, from where it is installed, or built into the target directory.
fn cargo_mutants() -> Result<Command, String> {
    if succeeds(&mut cargo(["mutants", "--version"])) {
        return Ok(cargo(["mutants"]));
    }
    let folder = target_dir().join("tools");
    let program = folder.join("bin/cargo-mutants");
    if !program.is_file() {
        let mut install = cargo(["install", "cargo-mutants", "--version", VERSION, "--locked"]);
        install.args(["--quiet", "--root"]).arg(&folder);
        install.env("CARGO_TARGET_DIR", folder.join("target"));
        println!("installing: {}", line_of(&install));
        if let Some(reason) = run(&mut install).failed.pop() {
            return Err(reason);
        }
    }
    let mut command = Command::new(program);
    command.arg("mutants").current_dir(root());
    Ok(command)
}

/// Changes the files of a crate one by one, and runs its tests each time. At least `caught_min`
/// percent must be noticed. Also gives how many mutants there were.
pub(crate) fn mutants(name: &str, files: &[&str], caught_min: u64) -> (Outcome, u64) {
    let mut command = match cargo_mutants() {
        Ok(command) => command,
        Err(reason) => return (Outcome::skipped(reason), 0),
    };
    command.args([
        "--package",
        &package(name),
        "--no-shuffle",
        "--colors=never",
    ]);
    command.args(["--minimum-test-timeout", "60", "--output"]);
    command.arg(target_dir().join(format!("mutants-{name}")));
    for file in files {
        command.args(["--file", file]);
    }
    let part = env::var(PART).ok();
    if let Some(part) = &part {
        command.args(["--sharding", "round-robin", "--shard", part]);
    }
    // What the compiler makes of a mutant's stack is no property of the source, and takes minutes.
    command.args(["--", "--", "--skip", "stack::"]);
    // Builds are in a copy of the tree, with a target directory of its own.
    command.env_remove("CARGO_TARGET_DIR").stdin(Stdio::null());
    // It fails if one mutant is missed: what it says counts.
    match command.output() {
        Ok(output) => {
            let words = [output.stdout, output.stderr].concat();
            let (mut outcome, count) = judge(&String::from_utf8_lossy(&words), caught_min);
            if let Some(part) = part {
                outcome.notes.push(format!("part {part} of the mutants"));
            }
            (outcome, count)
        }
        Err(error) => (
            Outcome::failed(format!("{}: {error}", line_of(&command))),
            0,
        ),
    }
}

/// What follows from `91 mutants tested in 5m: 71 caught, 20 unviable`, and from the lines of those
/// that were missed.
fn judge(words: &str, caught_min: u64) -> (Outcome, u64) {
    print!("{words}");
    let summary = words
        .lines()
        .find_map(|line| line.split_once(" mutants tested"));
    let Some((total, counts)) = summary else {
        return (Outcome::failed("cargo-mutants counts nothing"), 0);
    };
    let count = |what: &str| {
        let part = counts.split([',', ':']).map(str::trim);
        let number = part.filter_map(|part| part.strip_suffix(what)?.trim().parse::<u64>().ok());
        number.sum::<u64>()
    };
    // A loop without end is noticed, too.
    let caught = count("caught") + count("timeouts") + count("timeout");
    let missed = count("missed");
    let missing = words.lines().filter_map(|line| line.strip_prefix("MISSED"));
    let missing: Vec<&str> = missing.map(str::trim).collect();
    let mut note = format!("{caught} of {} caught", caught + missed);
    if !missing.is_empty() {
        note += &format!("; not: {}", missing.join(", "));
    }
    let mut outcome = Outcome::passed();
    if caught * 100 < (caught + missed) * caught_min {
        outcome = Outcome::failed(format!("{note}; at least {caught_min} % are to be caught"));
    } else {
        outcome.notes.push(note);
    }
    (outcome, total.trim().parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_judged() {
        let all = "91 mutants tested in 5m: 71 caught, 20 unviable\n";
        let (outcome, count) = judge(all, 100);
        assert!(outcome.failed.is_empty() && outcome.notes == ["71 of 71 caught"]);
        assert_eq!(count, 91);
        let some = "MISSED   a.rs:1:2: replace + with - in 3s build\n\
            25 mutants tested in 1m: 1 missed, 18 caught, 5 unviable, 1 timeouts\n";
        let (outcome, _) = judge(some, 95);
        assert_eq!(
            outcome.notes,
            ["19 of 20 caught; not: a.rs:1:2: replace + with - in 3s build"]
        );
        assert!(!judge(some, 96).0.failed.is_empty());
        assert!(!judge("no summary", 0).0.failed.is_empty());
    }
}
