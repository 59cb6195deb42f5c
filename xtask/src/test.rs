//! Everything that runs a test or a measurement.

use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::command::{cargo, line_of, nightly, output_of, package, run, run_tests};
use crate::environment::{is_ci, root};
use crate::outcome::{Outcome, Report};
use crate::suite::{self, Binary, Group, Suite};
use crate::{check, kmod, tidy, tools};

/// How long `cargo xtask test` may take on two cores, from a clone, in seconds.
#[cfg(test)]
const TEST_SECONDS_MAX: u64 = 1200;

/// The steps that are done beside the tests that mount, which come one after the other.
#[cfg(test)]
const BESIDE_KERNEL: [&str; 5] = [
    "tests in documentation",
    "features of zstd",
    "no standard library",
    "kmod",
    "kmod-boot",
];

/// The seconds of it that each step may take: a crate's tests sample more than its share can hold
/// with `testkit::cases`, and a campaign tries all of it. Times decide no test, so a step that is
/// over its share is only marked.
const SHARES: &[(&str, u64)] = &[
    ("tools", 36),
    ("rustfmt and clippy", 4),
    ("format", 4),
    ("tidy", 4),
    ("clippy", 100),
    ("documentation", 40),
    ("cargo-deny", 2),
    ("actionlint", 8),
    ("crates of fuzz", 2),
    ("build", 356),
    ("crates/xxhash", 2),
    ("crates/lzo", 5),
    ("crates/codec", 5),
    ("crates/zstd", 48),
    ("crates/ffi", 25),
    ("crates/linux", 2),
    ("crates/tree", 12),
    ("crates/squashfs", 72),
    ("crates/btrfs", 26),
    ("crates/erofs", 8),
    ("crates/oci", 4),
    ("crates/patch", 2),
    ("crates/delta", 12),
    ("crates/sendstream", 6),
    ("crates/fuse", 2),
    ("crates/plan", 3),
    ("crates/remote", 15),
    ("crates/report", 2),
    ("crates/restow", 4),
    ("crates/cli", 88),
    ("crates/testkit", 2),
    ("bench", 13),
    ("bench/zstd-portable", 1),
    ("fuzz/smoke", 4),
    ("xtask", 4),
    ("tests in documentation", 22),
    ("features of zstd", 130),
    ("no standard library", 22),
    ("kernel", 262),
    ("kmod", 52),
    ("kmod-boot", 36),
];

/// The crates whose tests would wait for the disk most of the time. Those of the others meet one,
/// as people do.
const IN_MEMORY: &[&str] = &[
    "crates/squashfs",
    "crates/btrfs",
    "crates/sendstream",
    "crates/cli",
];

/// One of its tests takes half a minute, which would be waited for if it came last.
const LONG_ALONE: &str = "bench";

/// The crates that promise to need no standard library, each with sets of features that are
/// promised to do without.
const NO_STD: &[(&str, &[&str])] = &[
    ("xxhash", &[""]),
    ("lzo", &[""]),
    (
        "zstd",
        &[
            "arch,decompress",
            "arch,compress",
            "arch,compress,decompress",
            "compress,decompress",
        ],
    ),
    (
        "ffi",
        &[
            "xxhash",
            "compress,modern",
            "decompress,modern",
            "compress,decompress,export,legacy",
        ],
    ),
];

/// Features of zstd that are promised to work without the others.
const FEATURES: &[&str] = &["arch,decompress", NO_PANIC, "compress,decompress"];

/// Where tests are few, optimising for them would take longer than they do.
const BARELY_OPTIMISED: &str = "profile.dev.package.restow-zstd.opt-level=1";

/// As a kernel has the encoder: without the checks of a development build, which panic.
const NO_PANIC: &str = "arch,compress,no-panic";
const UNCHECKED: [&str; 2] = [
    "profile.dev.package.restow-zstd.debug-assertions=false",
    "profile.dev.package.restow-zstd.overflow-checks=false",
];

/// Targets that have no operating system, hence no standard library to fall back to: the processor
/// that most has been written for, another one, and one of 32 bits.
const BARE_TARGETS: [&str; 3] = [
    "x86_64-unknown-none",
    "aarch64-unknown-none",
    "thumbv7em-none-eabi",
];

/// Everything that this machine can run.
pub(crate) fn test(report: &mut Report, _: &[String]) {
    report.budget(SHARES);
    report.step("tools", tools::ensure);
    check::style(report);
    report.step("documentation", check::documentation);
    check::changed_crates(report);
    check::workflows(report);
    report.step("crates of fuzz", || {
        let fetch = [
            "fetch",
            "--quiet",
            "--locked",
            "--manifest-path",
            "fuzz/Cargo.toml",
        ];
        run(&mut cargo(fetch))
    });
    let mut binaries = Vec::new();
    report.step("build", || build(&["--workspace"], &mut binaries));
    let members = match tidy::members(&root()) {
        Ok(members) => members,
        Err(error) => {
            let reason = format!("read manifests: {error}");
            return report.step("tests", || Outcome::failed(reason));
        }
    };
    let mut folders: Vec<&str> = members.iter().map(|member| &*member.folder).collect();
    folders.sort_by_key(|folder| *folder != LONG_ALONE);
    of_crates(report, &folders, &binaries);
    let left = report.left();
    thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let mut report = Report::default();
            report.budget(SHARES);
            report.step("tests in documentation", check::doc_tests);
            report.step("features of zstd", features);
            report.step("no standard library", no_std);
            kmod::steps(&mut report);
            report
        });
        report.step("kernel", || match tools::root_prefix() {
            Some(prefix) => run_kernel(prefix, &binaries, &[], false),
            None => Outcome {
                skipped: vec!["needs root: cargo xtask kernel".to_owned(); left],
                ..Outcome::default()
            },
        });
        report.append(beside.join().expect("it counts what fails"));
    });
}

/// The tests of the crates in `folders`, in one queue. The time of a crate is its part of it.
fn of_crates(report: &mut Report, folders: &[&str], binaries: &[Binary]) {
    let in_memory = tools::memory_prefix(&[]).unwrap_or_default();
    let groups: Vec<Group<'_>> = (folders.iter())
        .map(|folder| Group {
            prefix: if IN_MEMORY.contains(folder) {
                &in_memory
            } else {
                &[]
            },
            binaries: check::of_crate(binaries, folder),
        })
        .collect();
    let suite = Suite::default();
    println!("==> tests of {} crates", folders.len());
    for (folder, outcome) in folders.iter().zip(suite.run_each(&groups)) {
        let time: Duration = outcome.tests.iter().map(|test| test.time).sum();
        report.add(folder, time.div_f64(suite.jobs as f64), outcome);
    }
}

/// The tests that mount, in private mount namespaces. They are built as the user who calls and run
/// as root.
pub(crate) fn kernel(report: &mut Report, arguments: &[String]) {
    let (flags, filters): (Vec<String>, Vec<String>) =
        (arguments.iter().cloned()).partition(|argument| argument.starts_with("--"));
    if let Some(other) = flags.iter().find(|flag| *flag != "--nocapture") {
        return report.step("kernel", || {
            Outcome::failed(format!("there is no option {other}"))
        });
    }
    report.step("tools", tools::ensure);
    let prefix: &[&str] = if tools::is_root() { &[] } else { &["sudo"] };
    let mut binaries = Vec::new();
    report.step("build", || build(&["--workspace"], &mut binaries));
    report.step("kernel", || {
        run_kernel(prefix, &binaries, &filters, !flags.is_empty())
    });
}

fn run_kernel(
    prefix: &[&str],
    binaries: &[Binary],
    filters: &[String],
    shows_output: bool,
) -> Outcome {
    let prefix = tools::memory_prefix(prefix).unwrap_or_else(|| tools::mount_prefix(prefix));
    let of = |binaries| Group {
        prefix: &prefix,
        binaries,
    };
    let suite = Suite {
        ignored: true,
        filters,
        // Two images of btrfs with one UUID cannot be mounted at the same time.
        jobs: 1,
        shows_output,
        ..Suite::default()
    };
    // Images of SquashFS have no UUID, and the tests of its crate mount no other.
    let (of_squashfs, others): (Vec<_>, Vec<_>) =
        (binaries.iter().cloned()).partition(|binary| binary.folder.ends_with("crates/squashfs"));
    thread::scope(|scope| {
        let beside = scope.spawn(|| suite.run(of(of_squashfs)));
        let mut outcome = suite.run(of(others));
        outcome.add(beside.join().expect("it counts what fails"));
        outcome
    })
}

/// Builds tests into `binaries`.
fn build(arguments: &[&str], binaries: &mut Vec<Binary>) -> Outcome {
    match suite::build(arguments) {
        Ok(built) => {
            *binaries = built;
            Outcome::passed()
        }
        Err(reason) => Outcome::failed(reason),
    }
}

/// Features of zstd with which it builds without a warning, and so does its documentation.
const BUILDS: &[&str] = &[
    "",
    "arch",
    "std",
    "compress",
    "decompress",
    "arch,compress",
    "arch,decompress",
];

/// The tests of zstd with each set of features alone, and beside them the builds, which one
/// processor does.
fn features() -> Outcome {
    thread::scope(|scope| {
        let builds = scope.spawn(feature_builds);
        let mut outcome = feature_tests();
        outcome.add(builds.join().expect("it counts what fails"));
        outcome
    })
}

/// Builds zstd and its documentation in a directory that no other cargo locks.
fn feature_builds() -> Outcome {
    let mut outcome = Outcome::default();
    for features in BUILDS {
        for command in ["rustc", "rustdoc"] {
            let mut build = cargo([command]);
            build.env("CARGO_TARGET_DIR", tools::target_dir().join("features"));
            if command == "rustc" {
                build.args(["--profile", "check"]);
            }
            build.args([
                "--quiet",
                "--package",
                "restow-zstd",
                "--lib",
                "--no-default-features",
            ]);
            build.args(["--features", features, "--", "-Dwarnings"]);
            println!("{}", line_of(&build));
            outcome.add(run(&mut build));
        }
    }
    outcome
}

fn feature_tests() -> Outcome {
    let mut outcome = Outcome::default();
    for package in WITHOUT_C {
        outcome.add(without_c(package));
    }
    let mut tests = cargo(["test", "--quiet", "--package", WITHOUT_C[0], "--tests"]);
    tests.args(["--no-default-features", "--features", ZSTD_AS_BUILT]);
    outcome.add(run_tests(&mut tests));
    for features in FEATURES {
        println!("zstd: {features}");
        let mut binaries = Vec::new();
        let mut arguments = vec![
            "--package",
            "restow-zstd",
            "--no-default-features",
            "--features",
            features,
            "--config",
            BARELY_OPTIMISED,
        ];
        if *features == NO_PANIC {
            for unchecked in UNCHECKED {
                arguments.extend(["--config", unchecked]);
            }
        }
        let built = build(&arguments, &mut binaries);
        outcome.failed.extend(built.failed);
        let mut of_it = Suite::default().run(binaries.into());
        // The same names as before, which say nothing about the features.
        for test in &mut of_it.tests {
            test.name += &format!(" ({features})");
        }
        outcome.add(of_it);
    }
    outcome
}

/// The crates that read and write zstd without a library in C.
const WITHOUT_C: &[&str] = &["restow-codec", "restow-squashfs", "restow-btrfs"];

/// Zstd alone, with the features that it has when all crates are built, so that it is not compiled
/// again.
const ZSTD_AS_BUILT: &str = "zstd,zstd/default,zstd/steps";

const ZSTD_ALONE: [&str; 3] = ["--no-default-features", "--features", "zstd"];

/// Builds a crate with zstd alone, and fails if anything in it calls a C compiler or links a
/// library in C.
fn without_c(package: &str) -> Outcome {
    let mut build = cargo(["check", "--quiet", "--package", package]);
    build.args(ZSTD_ALONE);
    println!("{}", line_of(&build));
    let mut outcome = run(&mut build);
    let mut tree = cargo(["tree", "--package", package, "--edges", "normal,build"]);
    tree.args(ZSTD_ALONE).args(["--prefix", "none"]);
    match output_of(&mut tree) {
        Ok(crates) => {
            let mut names = crates.lines().filter_map(|line| line.split(' ').next());
            let of_c =
                |name: &&str| name.ends_with("-sys") && *name != "linux-raw-sys" || *name == "cc";
            if let Some(name) = names.find(of_c) {
                let what = format!("{package} builds C with zstd alone: {name}");
                outcome.failed.push(what);
            }
        }
        Err(reason) => outcome.failed.push(reason),
    }
    outcome
}

/// The codecs' tests under Miri, which finds undefined behaviour.
pub(crate) fn miri(report: &mut Report, arguments: &[String]) {
    for (name, _) in NO_STD {
        report.step(&format!("miri {name}"), || {
            let mut command = miri_of(name);
            if *name == "ffi" {
                // The others are programs in C.
                command.arg("--lib");
            }
            run_tests(command.args(arguments))
        });
    }
}

/// The command that runs the tests of a crate under Miri.
pub(crate) fn miri_of(name: &str) -> Command {
    let mut command = nightly(["miri", "test", "--package", &package(name)]);
    // Miri hides the environment and the files from the tests by default.
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    command
}

/// One table of docs/BENCHMARKS.md, or a measurement of one's own.
pub(crate) fn bench(report: &mut Report, arguments: &[String]) {
    report.step("bench", || run_bench(arguments));
}

/// The tables of docs/published.md that are named, or all.
pub(crate) fn tables(report: &mut Report, arguments: &[String]) {
    let all = [&["published".to_owned()], arguments].concat();
    report.step("tables", || run_bench(&all));
}

fn run_bench(arguments: &[String]) -> Outcome {
    // Some tables compare the program itself.
    let built = run(&mut cargo([
        "build",
        "--release",
        "--package",
        "restow-cli",
    ]));
    if !built.failed.is_empty() {
        return built;
    }
    run(cargo(["run", "--release", "--package", "bench", "--"]).args(arguments))
}

fn no_std() -> Outcome {
    let mut outcome = Outcome::default();
    for target in BARE_TARGETS {
        if let Err(reason) = tools::ensure_target(target) {
            if is_ci() {
                outcome.failed.push(reason);
            } else {
                outcome.skipped.push(reason);
            }
            continue;
        }
        for (name, sets) in NO_STD {
            for features in *sets {
                let mut command = cargo(["check", "--quiet", "--target", target]);
                command.args(["--package", &package(name), "--no-default-features"]);
                command.args(["--features", features]);
                println!("{}", line_of(&command));
                outcome.add(run(&mut command));
            }
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_no_more_than_the_time() {
        let (mut sum, mut beside, mut kernel) = (0, 0, 0);
        for (step, seconds) in SHARES {
            match *step {
                "kernel" => kernel = *seconds,
                step if BESIDE_KERNEL.contains(&step) => beside += seconds,
                _ => sum += seconds,
            }
        }
        sum += kernel.max(beside);
        assert!(sum <= TEST_SECONDS_MAX, "{sum}");
    }

    #[test]
    fn each_crate_has_a_share() {
        for member in tidy::members(&root()).unwrap() {
            let has_share = SHARES.iter().any(|(step, _)| *step == member.folder);
            assert!(
                has_share,
                "{} has no share in xtask/src/test.rs",
                member.folder
            );
        }
    }
}
