//! The fuzz targets: some seconds of each at every change, and long runs in campaigns.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::{fs, thread};

use crate::command::{cargo, line_of, nightly, output_of, run, succeeds, yielding};
use crate::environment::root;
use crate::outcome::{Outcome, Report};
use crate::tools::{rustc, target_dir};

/// Tells libFuzzer which branches an input takes, as cargo-fuzz does.
pub(crate) const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// How long each target runs in the smoke test: with the seeds, and their mutations.
const SMOKE_SECONDS: u64 = 4;

/// libdeflate has the same table once for each kind of processor.
const ASAN_OPTIONS: &str = "detect_odr_violation=0";

/// Some seconds of each fuzz target.
///
/// Built by the stable toolchain without cargo-fuzz, which would have to be installed, and without
/// AddressSanitizer, which doubles the time: bad memory and leaks are found in campaigns.
pub(crate) fn smoke(report: &mut Report, _: &[String]) {
    smoke_with(report, build);
}

/// The same, with programs from elsewhere: [`build`] can run beside other steps.
pub(crate) fn smoke_with(report: &mut Report, programs: impl FnOnce() -> Result<PathBuf, String>) {
    report.step("fuzz-smoke", || {
        let built = targets().and_then(|targets| Ok((programs()?, targets)));
        let (programs, targets) = match built {
            Ok(built) => built,
            Err(reason) => return Outcome::failed(reason),
        };
        let left = Mutex::new(targets.iter());
        let outcome = Mutex::new(Outcome::default());
        let work = || {
            loop {
                let target = left.lock().expect("no worker panics").next();
                let Some(target) = target else { return };
                let of_it = run_briefly(&programs, target);
                outcome.lock().expect("no worker panics").add(of_it);
            }
        };
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(work);
            }
        });
        outcome.into_inner().expect("no worker panics")
    });
}

/// Builds all targets in time that others leave; gives the directory of the programs.
pub(crate) fn build() -> Result<PathBuf, String> {
    let version = output_of(Command::new(rustc()).arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("rustc names no host")?;
    let folder = target_dir().join("fuzz-smoke");
    let mut command = cargo(["build", "--quiet", "--locked", "--bins", "--manifest-path"]);
    // With `--target`, the flags are not for build scripts.
    command.args(["fuzz/Cargo.toml", "--target", host, "--target-dir"]);
    command.arg(&folder);
    command.env("RUSTFLAGS", format!("--cfg=fuzzing {}", COVERAGE.join(" ")));
    match run(&mut yielding(&command)).failed.pop() {
        Some(reason) => Err(reason),
        None => Ok(folder.join(host).join("debug")),
    }
}

/// Runs a target with its seeds. Its words are shown only if it fails; new inputs are dropped.
fn run_briefly(programs: &Path, target: &str) -> Outcome {
    let folder = programs.join(format!("{target}-inputs"));
    let _ = fs::remove_dir_all(&folder);
    if let Err(error) = fs::create_dir(&folder) {
        return Outcome::failed(format!("create {}: {error}", folder.display()));
    }
    let mut command = Command::new(programs.join(target));
    command.arg(&folder).args(seeds(target));
    limits(&mut command, SMOKE_SECONDS);
    command.arg(format!("-artifact_prefix={}/", folder.display()));
    command.current_dir(root()).stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => {
            let words = String::from_utf8_lossy(&output.stderr);
            let runs = words.lines().filter_map(executions).next_back();
            let _ = fs::remove_dir_all(&folder);
            match runs {
                Some(runs) if runs > 0 => Outcome::passed(),
                _ => Outcome::failed(format!("{target} tried no input:\n{words}")),
            }
        }
        Ok(output) => {
            print!("{}", String::from_utf8_lossy(&output.stdout));
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            Outcome::failed(format!("{}: {}", line_of(&command), output.status))
        }
        Err(error) => Outcome::failed(format!("{}: {error}", line_of(&command))),
    }
}

/// The names of the fuzz targets.
fn targets() -> Result<Vec<String>, String> {
    let folder = root().join("fuzz/targets");
    let files = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let names = files.filter_map(|file| {
        let path = file.ok()?.path();
        path.file_stem()?.to_str().map(str::to_owned)
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

/// The directory of a target's seeds, if it has some.
fn seeds(target: &str) -> Option<PathBuf> {
    let seeds = root().join("fuzz/seeds").join(target);
    seeds.is_dir().then_some(seeds)
}

/// Gives libFuzzer limits to memory and time.
fn limits(command: &mut Command, seconds: u64) {
    command.args(["-rss_limit_mb=1024", "-timeout=10"]);
    command.arg(format!("-max_total_time={seconds}"));
}

/// Builds a fuzz target under AddressSanitizer for [`campaign`], or names the missing program.
pub(crate) fn build_campaign(target: &str) -> Result<(), String> {
    if !succeeds(&mut nightly(["--version"])) {
        return Err("no nightly toolchain: rustup toolchain install nightly".to_owned());
    }
    if !succeeds(&mut nightly(["fuzz", "--version"])) {
        return Err("cargo-fuzz is missing: cargo install cargo-fuzz".to_owned());
    }
    match run(&mut nightly(["fuzz", "build", target])).failed.pop() {
        Some(reason) => Err(reason),
        None => Ok(()),
    }
}

/// A command that runs a fuzz target under AddressSanitizer for this many seconds.
pub(crate) fn campaign(target: &str, seconds: u64) -> Command {
    let mut command = nightly(["fuzz", "run", target]);
    // New inputs go to the first directory; the seeds stay as they are.
    if let Some(seeds) = seeds(target) {
        let corpus = root().join("fuzz/corpus").join(target);
        let _ = fs::create_dir_all(&corpus);
        command.args([corpus, seeds]);
    }
    command.env("ASAN_OPTIONS", ASAN_OPTIONS).arg("--");
    limits(&mut command, seconds);
    command
}

/// How many inputs libFuzzer's last line names: `Done 1234 runs in 61 second(s)`.
pub(crate) fn executions(line: &str) -> Option<u64> {
    let (count, _) = line.strip_prefix("Done ")?.split_once(" runs in ")?;
    count.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_those_of_the_last_line() {
        assert_eq!(executions("Done 1234 runs in 61 second(s)"), Some(1234));
        assert_eq!(executions("#1234 DONE cov: 1"), None);
    }

    /// Cargo builds no target that its manifest does not list.
    #[test]
    fn every_target_is_in_the_manifest() {
        let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
        for target in targets().unwrap() {
            let path = format!("path = \"targets/{target}.rs\"");
            assert!(manifest.contains(&path), "{target}");
        }
    }
}
