//! The fuzz targets in campaigns. At every change, `fuzz/smoke` tries them without libFuzzer.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::command::{nightly, run, succeeds};
use crate::environment::root;

/// Tells libFuzzer which branches an input takes, as cargo-fuzz does.
pub(crate) const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// libdeflate has the same table once for each kind of processor.
const ASAN_OPTIONS: &str = "detect_odr_violation=0";

/// The directory of a target's seeds, if it has some.
fn seeds(target: &str) -> Option<PathBuf> {
    let seeds = root().join("fuzz/seeds").join(target);
    seeds.is_dir().then_some(seeds)
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
    command.env("ASAN_OPTIONS", ASAN_OPTIONS);
    command.args(["--", "-rss_limit_mb=1024", "-timeout=10"]);
    command.arg(format!("-max_total_time={seconds}"));
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
}
