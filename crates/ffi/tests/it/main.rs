//! The tests of the ffi crate: programs in C, compiled with the headers, linked with the final
//! libraries, and run.
#![forbid(unsafe_code)]

/// An example, compiled as its users do.
mod example;
/// Headers say what the Rust says.
mod headers;
/// How the libraries are linked: what they need, what they show, beside whom they can be.
mod linking;
/// What the interfaces promise.
mod promises;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What warns of everything, and takes a warning for an error.
const STRICT: [&str; 5] = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O2"];

/// The folder of this crate.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder for what tests make.
fn scratch() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ffi");
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Where the libraries are installed with their headers. The first caller builds them.
fn installed() -> PathBuf {
    let prefix = scratch().join("installed");
    // One test at a time.
    let lock = File::create(scratch().join("lock")).expect("a lock");
    lock.lock().expect("a lock");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(["run", "--quiet", "--package", "xtask", "--", "clib"]);
    command.arg(&prefix).current_dir(folder());
    output_of(&mut command);
    prefix
}

/// Compiles a program of `tests/c` with installed libraries, or others by their paths. `None` if
/// there is no compiler.
fn compile(name: &str, flags: &[&str], libraries: &[&str]) -> Option<PathBuf> {
    let mut cc = testkit::tool("cc")?.command();
    let prefix = installed();
    // Tests may run in threads of one process, and compile the same.
    static PROGRAMS: AtomicUsize = AtomicUsize::new(0);
    let number = PROGRAMS.fetch_add(1, Ordering::Relaxed);
    let program = scratch().join(format!("{name}-{}-{number}", std::process::id()));
    cc.args(STRICT)
        .args(flags)
        .arg("-I")
        .arg(prefix.join("include"))
        .arg("-I")
        .arg(scratch())
        .arg("-o")
        .arg(&program)
        .arg(folder().join(format!("tests/c/{name}.c")));
    for library in libraries {
        cc.arg(prefix.join("lib").join(library));
    }
    output_of(&mut cc);
    Some(program)
}

/// What a command writes to standard output. It must succeed.
fn output_of(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (said, wrote) = (
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout),
    );
    assert!(
        output.status.success(),
        "{command:?}: {}\n{wrote}{said}",
        output.status
    );
    wrote.into_owned()
}
