//! The one door: everything that is done to this repository, by people and by machines, is a task
//! here.
//!
//! No dependencies, so that `cargo xtask` starts in a second.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it talks to a person"
)]

mod api;
mod archives;
mod campaign;
mod changed;
mod check;
mod clib;
mod command;
mod cross;
mod debian_changelog;
mod environment;
mod fleets;
mod fuzz;
mod harness;
mod history;
mod kmod;
mod machines;
mod mutants;
mod oldest;
mod outcome;
mod outside;
mod package;
mod plan;
mod suite;
mod test;
mod tidy;
mod tools;
mod upstream;

use std::env;
use std::process::ExitCode;
use std::time::Instant;

use outcome::Report;

/// Does the task with the arguments that follow its name.
type Task = fn(&mut Report, &[String]);

/// Every task: its name, what does it, and its line of help.
const TASKS: &[(&str, Task, &str)] = &[
    (
        "check",
        check::check,
        "what to run at each change: formatting, tidy, lints, tests of the crates that it concerns",
    ),
    (
        "test",
        test::test,
        "everything that this machine can run, the kernel tests as root",
    ),
    (
        "kernel",
        test::kernel,
        "the tests that mount (root); arguments select tests by name",
    ),
    (
        "kmod",
        kmod::kmod,
        "builds the kernel modules for Debian's current kernel, or one that is named (6.12, newest, arm64), and inspects them",
    ),
    (
        "kmod-boot",
        kmod::kmod_boot,
        "boots that kernel with the modules in QEMU, and tries what they promise",
    ),
    (
        "kmod-consumers",
        kmod::kmod_consumers,
        "the same with Linux's SquashFS, btrfs and crypto API on our modules: up to 15 minutes",
    ),
    (
        "kmod-exercise",
        kmod::kmod_exercise,
        "fsx and fsstress of fstests (RESTOW_FSTESTS) on btrfs and f2fs on our modules, and EROFS",
    ),
    (
        "kmod-tree",
        kmod::kmod_tree,
        "puts the modules into the sources of that kernel, and builds a small one with them",
    ),
    (
        "kmod-series",
        kmod::kmod_series,
        "patches that add the codecs' sources to lib/restow of the kernel tree that is named, in the folder named after it",
    ),
    (
        "kmod-deb",
        kmod::kmod_deb,
        "builds the Debian package restow-dkms, in the folder that is named",
    ),
    (
        "kmod-dkms",
        kmod::kmod_dkms,
        "installs the package for DKMS in a Debian on btrfs, boots it, also from SquashFS, and removes it",
    ),
    (
        "kmod-icount",
        kmod::kmod_icount,
        "instructions in the kernel, compared with Linux's own zstd, for the files that are named",
    ),
    (
        "kmod-original",
        kmod::kmod_original,
        "the sizes and memory that the kernel's first zstd published, beside ours, for a file such as silesia.tar",
    ),
    (
        "fleets",
        fleets::fleets,
        "objects and parts of images with stores and engines of other projects",
    ),
    (
        "machines",
        machines::machines,
        "simulates one image of 1 TB made by up to 1,000 machines, the table of docs/fleets.md",
    ),
    (
        "campaign",
        campaign::campaign,
        "long runs by their names, which write their results to docs/campaigns.md; `stale`: those without a fresh one; without a name, lists them",
    ),
    (
        "tidy",
        check::tidy,
        "the rules of the house that no compiler knows",
    ),
    (
        "deny",
        check::deny,
        "licences, bans and sources of outside crates (cargo-deny)",
    ),
    (
        "miri",
        test::miri,
        "the codecs' tests under Miri (nightly); arguments go to `cargo miri test`",
    ),
    (
        "bench",
        test::bench,
        "one table of docs/BENCHMARKS.md by its name; without one, lists them and the options",
    ),
    (
        "tables",
        test::tables,
        "the tables of docs/published.md that are named, or all, with their plots; --help lists the options",
    ),
    (
        "clib",
        clib::clib,
        "builds the C libraries and installs them with their headers, below the folder that is named",
    ),
    (
        "pages",
        package::pages,
        "man pages and completions from the command's definition, below the folder that is named",
    ),
    (
        "static",
        package::static_program,
        "the command and restow-patch, or the one that is named, each as one file that needs no library (musl), tried in an empty root",
    ),
    (
        "deb",
        package::deb,
        "the Debian package: built, installed, removed, and inspected by lintian",
    ),
    (
        "cross",
        cross::cross,
        "the libraries for other processors, the command for aarch64, and their tests under QEMU; arguments select targets",
    ),
    (
        "api",
        api::api,
        "the public items of the libraries, or of those named, compared with their lists in docs/api (nightly, cargo-public-api)",
    ),
    (
        "oldest",
        oldest::oldest,
        "the libraries that are named, built with Debian 13's compiler, which is unpacked and not installed",
    ),
    (
        "package",
        package::crates,
        "packs every crate that is published and builds it from its package; arguments go to `cargo publish --dry-run`",
    ),
    (
        "tools",
        tools::tools,
        "installs the outside programs that the tests ask, or names them",
    ),
];

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let Some(name) = arguments.next() else {
        println!("usage: cargo xtask <task> [arguments]\n");
        for (name, _, help) in TASKS {
            println!("  {name:<14} {help}");
        }
        return ExitCode::SUCCESS;
    };
    let Some((_, task, help)) = TASKS.iter().find(|(task, ..)| *task == name) else {
        eprintln!("there is no task \"{name}\"; `cargo xtask` lists them");
        return ExitCode::from(2);
    };
    let arguments: Vec<String> = arguments.collect();
    // Those with options of their own say so. The others would test all, or install into a folder
    // of that name.
    if arguments == ["--help"] && !help.contains("--help") {
        println!("cargo xtask {name}: {help}");
        return ExitCode::SUCCESS;
    }
    let (mut report, start) = (Report::default(), Instant::now());
    task(&mut report, &arguments);
    report.print(start.elapsed());
    if report.failed() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
