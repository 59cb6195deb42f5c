//! What the tests need besides this repository: outside programs, and parts of the Rust toolchain.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::command::{cargo, run, succeeds};
use crate::outcome::{Outcome, Report};
use crate::{is_ci, root};

/// Where administrators' programs lie when an ordinary user's `PATH` leaves them out.
const SYSTEM_DIRS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The task.
pub(crate) fn tools(report: &mut Report, _: &[String]) {
    report.step("tools", ensure);
}

/// Installs the outside programs that are missing where that can be done without a question, and otherwise says how.
///
/// Without `CI=true` a program that stays missing is no failure: the tests that ask for it report themselves as skipped.
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
            note: Some(format!(
                "the tests that lack a program run after, as root: {install}"
            )),
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

/// Adds a target's standard library, which is only `core` and `alloc` for one without an operating system.
pub(crate) fn ensure_target(target: &str) -> Result<(), String> {
    let has_target = || {
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(rustc)
            .args(["--print", "target-libdir", "--target", target])
            .output();
        output
            .is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
    };
    if !has_target() {
        println!("installing: rustup target add {target}");
        run(Command::new("rustup").args(["target", "add", target]));
    }
    match has_target() {
        true => Ok(()),
        false => Err(format!(
            "the toolchain lacks the target: rustup target add {target}"
        )),
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

/// The programs that are missing, each with its package, of those that `testkit` lists.
fn missing() -> Result<Vec<(String, String)>, String> {
    let path = root().join("crates/testkit/tools.txt");
    let list =
        fs::read_to_string(&path).map_err(|error| format!("read {}: {error}", path.display()))?;
    let mut missing = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let Some((tool, package)) = line.split_once(char::is_whitespace) else {
            return Err(format!(
                "{}: \"{line}\" is no program and package",
                path.display()
            ));
        };
        if !is_there(tool) {
            missing.push((tool.to_owned(), package.trim().to_owned()));
        }
    }
    Ok(missing)
}
