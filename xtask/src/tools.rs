//! What the tests need besides this repository: outside programs, and parts of the Rust toolchain.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use crate::command::{cargo, line_of, output_of, run, succeeds};
use crate::environment::{is_ci, root};
use crate::outcome::{Outcome, Report};

/// Where administrators' programs lie when an ordinary user's `PATH` leaves them out.
const SYSTEM_DIRS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The version of actionlint that runs here.
const ACTIONLINT: &str = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7";
/// The version of cargo-deny that is installed where there is none.
const CARGO_DENY: &str = "0.20.2";

/// The task.
pub(crate) fn tools(report: &mut Report, _: &[String]) {
    report.step("tools", ensure);
}

/// Installs the outside programs that are missing where that can be done without a question, and
/// otherwise says how.
///
/// Without `CI=true` a program that stays missing is not a failure: the tests that ask for it
/// report themselves as skipped.
pub(crate) fn ensure() -> Outcome {
    let missing = match missing() {
        Ok(missing) if missing.is_empty() => return Outcome::passed(),
        Ok(missing) => missing,
        Err(reason) => return Outcome::failed(reason),
    };
    let packages: BTreeSet<&str> = missing
        .iter()
        .map(|(_, package)| package.as_str())
        .collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    let install = format!(
        "apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    );
    println!(
        "missing: {}",
        missing
            .iter()
            .map(|(tool, _)| tool.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    );
    match root_prefix() {
        Some(prefix) if is_there("apt-get") => {
            println!("installing: {install}");
            let apt = |arguments: &[&str]| {
                let mut words = prefix.to_vec();
                words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
                words.extend(arguments);
                run(Command::new(words[0]).args(&words[1..]))
            };
            apt(&["update", "-q"]);
            apt(&[
                &["install", "-q", "-y", "--no-install-recommends"],
                &*packages,
            ]
            .concat());
        }
        Some(_) => println!(
            "this is no Debian-like system: install what these packages hold: {}",
            packages.join(" ")
        ),
        None => {}
    }
    match self::missing() {
        Ok(missing) if missing.is_empty() => Outcome::passed(),
        Ok(missing) if is_ci() => {
            let lines = missing
                .iter()
                .map(|(tool, package)| format!("{tool} is missing (package {package})"));
            Outcome {
                failed: lines.collect(),
                ..Outcome::default()
            }
        }
        // The tests that want them report themselves.
        Ok(_) => Outcome {
            notes: vec![format!(
                "the tests that lack a program run after, as root: {install}"
            )],
            ..Outcome::default()
        },
        Err(reason) => Outcome::failed(reason),
    }
}

/// Adds the formatter and the lints to the toolchain if it lacks them.
pub(crate) fn ensure_components() -> Outcome {
    for (component, subcommand) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        if !succeeds(&mut cargo([subcommand, "--version"])) {
            println!("installing: rustup component add {component}");
            let added = run(Command::new("rustup").args(["component", "add", component]));
            if !added.failed.is_empty() {
                return added;
            }
        }
    }
    Outcome::passed()
}

/// `cargo deny`, from where it is installed, or built into the target directory.
///
/// Built without optimisation it is there in a third of the time, and takes a second to run all the
/// same: docs/decisions/one-door.md.
pub(crate) fn cargo_deny() -> Result<Command, String> {
    if succeeds(&mut cargo(["deny", "--version"])) {
        return Ok(cargo(["deny"]));
    }
    let folder = target_dir().join("tools");
    let program = folder.join("bin/cargo-deny");
    if !program.is_file() {
        let mut install = cargo(["install", "cargo-deny", "--version", CARGO_DENY, "--locked"]);
        install.args(["--debug", "--no-default-features", "--quiet", "--root"]);
        install.arg(&folder).env("CARGO_PROFILE_DEV_DEBUG", "0");
        install.env("CARGO_TARGET_DIR", folder.join("target"));
        println!("installing: {}", line_of(&install));
        let installed = run(&mut install);
        let _ = fs::remove_dir_all(folder.join("target"));
        if let Some(reason) = installed.failed.into_iter().next() {
            return Err(reason);
        }
    }
    let mut command = Command::new(program);
    command.arg("deny").current_dir(root()).stdin(Stdio::null());
    Ok(command)
}

/// actionlint, from where it is installed, or built by Go into the target directory.
pub(crate) fn actionlint() -> Result<Command, String> {
    let mut command = Command::new("actionlint");
    if !succeeds(Command::new("actionlint").arg("-version")) {
        let folder = target_dir().join("tools/bin");
        let program = folder.join("actionlint");
        if !program.is_file() {
            if !succeeds(Command::new("go").arg("version")) {
                return Err("needs actionlint, or Go to build it".to_owned());
            }
            let mut install = Command::new("go");
            install.args(["install", ACTIONLINT]).env("GOBIN", &folder);
            println!("installing: {}", line_of(&install));
            if let Some(reason) = run(&mut install).failed.into_iter().next() {
                return Err(reason);
            }
        }
        command = Command::new(program);
    }
    command.current_dir(root()).stdin(Stdio::null());
    Ok(command)
}

/// The directory for build output of cargo.
pub(crate) fn target_dir() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Adds a target's standard library, which is only `core` and `alloc` for one without an operating
/// system.
pub(crate) fn ensure_target(target: &str) -> Result<(), String> {
    let has_target = || {
        let output = Command::new(rustc())
            .args(["--print", "target-libdir", "--target", target])
            .output();
        output
            .is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
    };
    if !has_target() {
        println!("installing: rustup target add {target}");
        run(Command::new("rustup").args(["target", "add", target]));
    }
    if has_target() {
        Ok(())
    } else {
        Err(format!(
            "the toolchain lacks the target: rustup target add {target}"
        ))
    }
}

/// The compiler of the toolchain that runs us.
pub(crate) fn rustc() -> OsString {
    env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

/// Adds the sources of the standard library to the toolchain if it lacks them.
pub(crate) fn ensure_rust_source() -> Result<(), String> {
    let sysroot = output_of(Command::new(rustc()).args(["--print", "sysroot"]))?;
    let core = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/src/lib.rs");
    if !core.is_file() {
        println!("installing: rustup component add rust-src");
        run(Command::new("rustup").args(["component", "add", "rust-src"]));
    }
    if core.is_file() {
        Ok(())
    } else {
        Err("the toolchain lacks its sources: rustup component add rust-src".to_owned())
    }
}

/// The words before a command that give it root's rights without asking anybody, if there are such.
pub(crate) fn root_prefix() -> Option<&'static [&'static str]> {
    if is_root() {
        Some(&[])
    } else if is_ci() && succeeds(Command::new("sudo").args(["-n", "true"])) {
        Some(&["sudo", "-n"])
    } else {
        None
    }
}

/// The words before a test that mounts.
pub(crate) fn mount_prefix(root_prefix: &[&str]) -> Vec<String> {
    let mut words = root_prefix.to_vec();
    if !words.is_empty() {
        words.push(
            "--preserve-env=CI,RESTOW_SKIPPED,RESTOW_CASES,RESTOW_UPDATE,RESTOW_NEWER_TOOLS,CARGO_PKG_NAME,CARGO_MANIFEST_DIR,PATH",
        );
    }
    words.extend(["unshare", "--mount", "--propagation", "private", "--"]);
    words.into_iter().map(str::to_owned).collect()
}

/// Gives a test a temporary directory in memory, which no other process sees and no kill leaves.
const IN_MEMORY: &str = "mount -t tmpfs -o mode=1777 tmpfs /dev/shm && TMPDIR=/dev/shm exec \"$@\"";

/// The same words for a test that need not wait for a disk: most of its time goes into `fsync` and
/// unlinking there. `None` without root's rights, or if Linux has no user's attributes in memory.
pub(crate) fn memory_prefix(root_prefix: &[&str]) -> Option<Vec<String>> {
    let mut words = mount_prefix(root_prefix);
    words.extend(["sh", "-c", IN_MEMORY, "sh"].map(str::to_owned));
    let mut probe = Command::new(&words[0]);
    probe.args(&words[1..]);
    probe.args(["setfattr", "-n", "user.x", "-v", "1", "/dev/shm"]);
    succeeds(&mut probe).then_some(words)
}

/// Whether this process has root's rights.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Whether a program is there, or, for an absolute path, that file.
pub(crate) fn is_there(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(SYSTEM_DIRS.iter().map(PathBuf::from));
    directories
        .map(|directory| directory.join(program))
        .any(|path| path.is_file())
}

/// The programs that are missing, each with its package, of those that `testkit` lists; libFuzzer
/// is in C++.
fn missing() -> Result<Vec<(String, String)>, String> {
    let path = root().join("crates/testkit/tools.txt");
    let list =
        fs::read_to_string(&path).map_err(|error| format!("read {}: {error}", path.display()))?;
    let mut missing = Vec::new();
    let lines = list.lines().chain(["c++ g++"]);
    for line in lines.filter(|line| !line.starts_with('#')) {
        let Some((tool, package)) = line.split_once(char::is_whitespace) else {
            return Err(format!(
                "{}: \"{line}\" is not a program and a package",
                path.display()
            ));
        };
        if !is_there(tool) {
            missing.push((tool.to_owned(), package.trim().to_owned()));
        }
    }
    Ok(missing)
}
