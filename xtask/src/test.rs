//! Everything that runs a test or a measurement.

use std::process::Command;

use crate::command::{cargo, line_of, nightly, output_of, run, run_tests, succeeds};
use crate::outcome::{Outcome, Report};
use crate::{check, is_ci, root, tools};

/// The crates that promise to need no standard library, each with sets of features that are promised to do without.
const NO_STD: &[(&str, &[&str])] = &[
    ("xxhash", &[""]),
    ("lzo", &[""]),
    (
        "zstd",
        &[
            "decompress",
            "compress",
            "compress,decompress",
            "compress,decompress,portable",
        ],
    ),
];

/// Features that are promised to work without the others.
const FEATURES: &[(&str, &str)] = &[
    ("zstd", "decompress"),
    ("zstd", "compress"),
    ("zstd", "compress,decompress,portable"),
];

/// Targets that have no operating system, hence no standard library to fall back to: the processor that most has been
/// written for, another one, and one of 32 bits.
const BARE_TARGETS: [&str; 3] = [
    "x86_64-unknown-none",
    "aarch64-unknown-none",
    "thumbv7em-none-eabi",
];

/// Everything that this machine can run.
pub(crate) fn test(report: &mut Report, _: &[String]) {
    report.step("tools", tools::ensure);
    check::check(report, &[]);
    report.step("tests", || {
        run_tests(&mut cargo(["test", "--workspace", "--no-fail-fast"]))
    });
    for (name, features) in FEATURES.iter().filter(|(name, _)| is_member(name)) {
        report.step(&format!("{name}: {features}"), || {
            let mut command = cargo([
                "test",
                "--no-fail-fast",
                "--no-default-features",
                "--lib",
                "--tests",
            ]);
            run_tests(command.args(["--package", name, "--features", features]))
        });
    }
    report.step("no standard library", no_std);
    let left = report.left();
    report.step("kernel", || match tools::root_prefix() {
        Some(prefix) => run_kernel(prefix, &[]),
        None => Outcome {
            skipped: vec!["needs root: cargo xtask kernel".to_owned(); left],
            ..Outcome::default()
        },
    });
    fuzz_smoke(report, &[]);
}

/// The tests that mount, in private mount namespaces. They are built as the user who calls and run as root.
pub(crate) fn kernel(report: &mut Report, arguments: &[String]) {
    report.step("tools", tools::ensure);
    let prefix: &[&str] = if tools::is_root() { &[] } else { &["sudo"] };
    report.step("kernel", || run_kernel(prefix, arguments));
}

fn run_kernel(prefix: &[&str], arguments: &[String]) -> Outcome {
    let host = match host() {
        Ok(host) => host.to_uppercase().replace('-', "_"),
        Err(reason) => return Outcome::failed(reason),
    };
    let mut runner = prefix.join(" ");
    if !prefix.is_empty() {
        runner +=
            " --preserve-env=CI,RESTOW_SKIPPED,RESTOW_CASES,RESTOW_UPDATE,CARGO_PKG_NAME,PATH ";
    }
    runner += "unshare --mount --propagation private --";
    let mut command = cargo([
        "test",
        "--workspace",
        "--no-fail-fast",
        "--lib",
        "--bins",
        "--tests",
    ]);
    command.env(format!("CARGO_TARGET_{host}_RUNNER"), runner);
    // One at a time: the kernel's log and its loop devices are shared by all.
    command
        .args(["--", "--ignored", "--test-threads=1"])
        .args(arguments);
    run_tests(&mut command)
}

/// 10 seconds of each fuzz target.
pub(crate) fn fuzz_smoke(report: &mut Report, _: &[String]) {
    let skip =
        |report: &mut Report, reason: &str| report.step("fuzz-smoke", || Outcome::skipped(reason));
    if !root().join("fuzz/Cargo.toml").is_file() {
        return skip(report, "there are no fuzz targets yet");
    }
    if !succeeds(&mut nightly(["--version"])) {
        return skip(
            report,
            "no nightly toolchain: rustup toolchain install nightly",
        );
    }
    if !succeeds(&mut nightly(["fuzz", "--version"])) {
        return skip(report, "cargo-fuzz is missing: cargo install cargo-fuzz");
    }
    let targets = match output_of(&mut nightly(["fuzz", "list"])) {
        Ok(targets) => targets,
        Err(reason) => return report.step("fuzz-smoke", || Outcome::failed(reason)),
    };
    for target in targets.lines() {
        report.step(&format!("fuzz {target}"), || {
            let mut command = nightly(["fuzz", "run", target]);
            // New inputs go to the first directory; the seeds stay as they are.
            let seeds = format!("fuzz/seeds/{target}");
            if root().join(&seeds).is_dir() {
                let corpus = format!("fuzz/corpus/{target}");
                let _ = std::fs::create_dir_all(root().join(&corpus));
                command.args([corpus, seeds]);
            }
            // libdeflate has the same table once for each kind of processor.
            command.env("ASAN_OPTIONS", "detect_odr_violation=0");
            run(command.args([
                "--",
                "-max_total_time=10",
                "-rss_limit_mb=1024",
                "-timeout=10",
            ]))
        });
    }
}

/// The codecs' tests under Miri, which finds undefined behaviour.
pub(crate) fn miri(report: &mut Report, arguments: &[String]) {
    for (name, _) in NO_STD.iter().filter(|(name, _)| is_member(name)) {
        report.step(&format!("miri {name}"), || {
            let mut command = nightly(["miri", "test", "--package", name]);
            // Miri hides the environment and the files from the tests unless told otherwise.
            command.env("MIRIFLAGS", "-Zmiri-disable-isolation");
            run_tests(command.args(arguments))
        });
    }
}

/// The benchmarks.
pub(crate) fn bench(report: &mut Report, arguments: &[String]) {
    report.step("bench", || match is_member("bench") {
        true => run(cargo(["run", "--release", "--package", "bench", "--"]).args(arguments)),
        false => Outcome::failed("there are no benchmarks yet"),
    });
}

fn no_std() -> Outcome {
    let mut outcome = Outcome::default();
    for target in BARE_TARGETS {
        if let Err(reason) = tools::ensure_target(target) {
            match is_ci() {
                true => outcome.failed.push(reason),
                false => outcome.skipped.push(reason),
            }
            continue;
        }
        for (name, sets) in NO_STD.iter().filter(|(name, _)| is_member(name)) {
            for features in *sets {
                let mut command = cargo(["check", "--quiet", "--target", target]);
                command.args(["--package", name, "--no-default-features"]);
                command.args(["--features", features]);
                println!("{}", line_of(&command));
                let one = run(&mut command);
                outcome.passed += one.passed;
                outcome.failed.extend(one.failed);
            }
        }
    }
    outcome
}

/// The target triple of this machine.
fn host() -> Result<String, String> {
    let version = output_of(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// Whether a crate has joined the workspace.
fn is_member(name: &str) -> bool {
    [
        format!("crates/{name}/Cargo.toml"),
        format!("{name}/Cargo.toml"),
    ]
    .iter()
    .any(|manifest| root().join(manifest).is_file())
}
