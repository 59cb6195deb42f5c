//! The fuzz harnesses in C, through the door of the C interface: built with clang's libFuzzer and a
//! sanitizer on both sides.

use std::fs;
use std::process::Command;

use crate::command::{line_of, nightly, run, succeeds};
use crate::environment::root;
use crate::fuzz::COVERAGE;
use crate::tools::{is_there, target_dir};

/// What sees bad memory in Rust and in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sanitizer {
    /// AddressSanitizer, and UndefinedBehaviorSanitizer in C.
    Address,
    /// MemorySanitizer.
    Memory,
}

impl Sanitizer {
    pub(crate) fn of_name(name: &str) -> Option<Sanitizer> {
        let all = [Sanitizer::Address, Sanitizer::Memory];
        all.into_iter().find(|sanitizer| sanitizer.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Sanitizer::Address => "address",
            Sanitizer::Memory => "memory",
        }
    }
}

/// Keeps all checks.
const CHECKS: &str = "-Cdebug-assertions=on -Coverflow-checks=on";

/// The static libraries that the harness calls.
const LIBRARIES: [&str; 2] = ["restow_zstd_2017", "restow_zstd"];

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds a harness of `crates/ffi/tests/c`; gives the command that runs it for this many seconds,
/// or what is missing.
pub(crate) fn harness(source: &str, sanitizer: Sanitizer, seconds: u64) -> Result<Command, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the harness is built for x86-64".to_owned());
    }
    if !succeeds(&mut nightly(["--version"])) {
        return Err("no nightly toolchain: rustup toolchain install nightly".to_owned());
    }
    if !is_there("clang") {
        return Err("clang is missing: apt-get install clang".to_owned());
    }
    let name = sanitizer.name();
    let folder = target_dir().join(format!("harness-{name}"));
    let finished = |command: &mut Command| match run(command).failed.pop() {
        Some(reason) => Err(reason),
        None => Ok(()),
    };
    // Rust checks what a function returns and says no more about it; clang 14 expects a word of
    // each function, and would read that of an earlier one.
    let returned = match sanitizer {
        Sanitizer::Address => "",
        Sanitizer::Memory => "-Cllvm-args=-msan-eager-checks=0",
    };
    let coverage = COVERAGE.join(" ");
    let flags = format!("-Zsanitizer={name} {CHECKS} {returned} {coverage}");
    for package in LIBRARIES {
        // `core` with the sanitizer, too: what it writes would else be unknown to MemorySanitizer.
        let mut build = nightly(["build", "--release", "--quiet", "-Zbuild-std=core"]);
        build.arg("--manifest-path");
        build.arg(root().join("crates/ffi/clib/Cargo.toml"));
        build.args(["--package", package, "--target", TARGET]);
        build.arg("--target-dir").arg(&folder);
        build.env("RUSTFLAGS", &flags);
        // As fast as is needed, and built in a minute.
        build.env("CARGO_PROFILE_RELEASE_LTO", "off");
        build.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        build.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        finished(&mut build)?;
    }
    let program = folder.join(source);
    let mut compile = Command::new("clang");
    compile.args(["-O1", "-g", "-DLIBFUZZER"]);
    compile.arg(match sanitizer {
        Sanitizer::Address => "-fsanitize=fuzzer,address,undefined",
        Sanitizer::Memory => "-fsanitize=fuzzer,memory",
    });
    compile.arg("-fno-sanitize-recover=all");
    compile.arg("-I").arg(root().join("crates/ffi/include"));
    compile.arg(root().join(format!("crates/ffi/tests/c/{source}.c")));
    for package in LIBRARIES {
        compile.arg(folder.join(format!("{TARGET}/release/lib{package}.a")));
    }
    compile.arg("-o").arg(&program);
    finished(&mut compile)?;
    let corpus = folder.join(format!("corpus-{source}"));
    fs::create_dir_all(&corpus).map_err(|error| format!("create {}: {error}", corpus.display()))?;
    let mut command = Command::new(program);
    // A workspace of level 22 is large.
    command.args(["-rss_limit_mb=4096", "-timeout=20", "-max_len=16384"]);
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(corpus).current_dir(&folder);
    println!("{}", line_of(&command));
    Ok(command)
}
