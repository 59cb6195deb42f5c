//! External programs, and skipping tests that cannot run without them.
//!
//! A skip never goes unnoticed: it is written to standard error, bypassing the test harness's
//! capture, and to the file named by `RESTOW_SKIPPED`, whose entries `cargo xtask test` counts at
//! the end. With `CI=true`, a missing program is a failure.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Program and Debian package, one pair per line; `cargo xtask` reads the same file.
const TOOLS: &str = include_str!("../tools.txt");

/// Where administration programs are if an ordinary user's `PATH` does not include them.
const SYSTEM_DIRS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// An installed external program.
#[derive(Clone, Debug)]
pub struct Tool {
    path: PathBuf,
}

impl Tool {
    /// A command that runs the program in the C locale, without arguments yet.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.env("LC_ALL", "C");
        command
    }

    /// Runs the program with `args`; see [`run`].
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        run(self.command().args(args))
    }

    /// The path of the program.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Finds an external program or (by its absolute path) a library file, or reports that the running
/// test is skipped.
///
/// ```no_run
/// let Some(mksquashfs) = testkit::tool("mksquashfs") else { return };
/// mksquashfs.run(["source", "out.sqfs"]);
/// ```
///
/// # Panics
///
/// With `CI=true` if the program is missing, and always if it is not listed in this crate's
/// `tools.txt`.
#[must_use = "without the program the test must return"]
pub fn tool(name: &str) -> Option<Tool> {
    let package = package(TOOLS, name)
        .unwrap_or_else(|| panic!("`{name}` is not listed in crates/testkit/tools.txt"));
    let found = find(name, env::var_os("PATH").as_deref());
    if found.is_none() {
        let reason = format!("{name} is missing: apt-get install {package}");
        assert!(!is_ci(), "{reason}");
        skip(&reason);
    }
    found.map(|path| Tool { path })
}

/// Finds a program that is newer than Debian 12's, in the folder that `RESTOW_NEWER_TOOLS` names or
/// in its `bin`, or reports that the running test is skipped. A program of another distribution may
/// be a script that runs it with its own C library.
#[must_use = "without the program the test must return"]
pub fn newer_tool(name: &str) -> Option<Tool> {
    let folder = PathBuf::from(env::var_os("RESTOW_NEWER_TOOLS").unwrap_or_default());
    let paths = [folder.join(name), folder.join("bin").join(name)];
    let found = paths
        .into_iter()
        .find(|path| path.is_absolute() && path.is_file());
    if found.is_none() {
        skip(&format!(
            "RESTOW_NEWER_TOOLS names no folder with a newer {name}"
        ));
    }
    found.map(|path| Tool { path })
}

/// Reports that the running test is skipped because this machine cannot run it; the test must then
/// return.
///
/// Use this for causes that no installation can fix, such as missing privileges; it does not fail
/// with `CI=true`.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    // Set by cargo for the tests of a crate. Test names are unique only within it.
    let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
    let test = thread.name().unwrap_or("?");
    let line = format!("SKIPPED {package}::{test}: {reason}\n");
    if let Some(list) = env::var_os("RESTOW_SKIPPED") {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&list)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap_or_else(|error| panic!("write {}: {error}", list.display()));
    }
    // The handle, unlike `eprintln!`, is not captured by the harness. Ignore a closed standard
    // error.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Runs a command to completion and returns its output.
///
/// # Panics
///
/// If it cannot be started or exits with a nonzero status; the message includes its standard error.
pub fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("start {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Whether this process has 256 MiB of address space and `seconds` of processor time. If not, runs
/// `test`, which is the caller, in such a process: unless memory and time are bounded, that dies of
/// a signal.
///
/// # Panics
///
/// If that process fails, or has no such test.
#[must_use = "without the limits the test must return"]
pub fn is_bounded(test: &str, seconds: u64) -> bool {
    const BOUNDED: &str = "RESTOW_TEST_BOUNDED";
    if env::var_os(BOUNDED).is_some() {
        return true;
    }
    let limits = format!("ulimit -v 262144 && ulimit -t {seconds} && exec \"$0\" \"$@\"");
    let mut child = Command::new("sh");
    child.args(["-c", &limits]);
    child.arg(env::current_exe().expect("name this program"));
    child.args([test, "--exact", "--nocapture"]);
    // One heap for all threads: otherwise each would reserve 64 MiB of addresses.
    child.env(BOUNDED, "1").env("MALLOC_ARENA_MAX", "1");
    let words = run(&mut child).stdout;
    let words = String::from_utf8_lossy(&words);
    assert!(words.contains("1 passed"), "{words}");
    false
}

/// The processor time of all threads of this process, in seconds.
///
/// # Panics
///
/// If `/proc` is not mounted.
pub fn processor_seconds() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("read /proc/self/stat");
    ticks_of(&stat) / 100
}

/// `utime` and `stime` of `/proc/PID/stat`, in hundredths of a second.
fn ticks_of(stat: &str) -> u64 {
    let (_, fields) = stat.rsplit_once(") ").expect("it has a name");
    let times = fields.split(' ').skip(11).take(2);
    times
        .map(|field| field.parse::<u64>().expect("it has times"))
        .sum()
}

/// Whether everything that can be installed must be present.
pub(crate) fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| value == "true")
}

fn package<'a>(tools: &'a str, name: &str) -> Option<&'a str> {
    tools
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(char::is_whitespace))
        .find(|(tool, _)| *tool == name)
        .map(|(_, package)| package.trim())
}

fn find(name: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    env::split_paths(path.unwrap_or_default())
        .chain(SYSTEM_DIRS.iter().map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 250 31 99 99 20 0 1 0 5";
        assert_eq!(ticks_of(stat), 281);
    }

    #[test]
    fn package_is_found_by_the_whole_name() {
        let tools = "# comment\nmkfs.btrfs  btrfs-progs\nbtrfs btrfs-progs\ntar tar\n";
        assert_eq!(package(tools, "mkfs.btrfs"), Some("btrfs-progs"));
        assert_eq!(package(tools, "mkfs"), None);
        assert_eq!(package(tools, "#"), None);
    }

    #[test]
    fn search_takes_files_in_the_order_of_the_path() {
        let dir = crate::TempDir::new();
        fs::create_dir_all(dir.path().join("a/restow-test-tool")).unwrap();
        fs::create_dir(dir.path().join("b")).unwrap();
        fs::write(dir.path().join("b/restow-test-tool"), "").unwrap();
        let path = env::join_paths([dir.path().join("a"), dir.path().join("b")]).unwrap();
        let expected = dir.path().join("b/restow-test-tool");
        assert_eq!(find("restow-test-tool", Some(&path)), Some(expected));
        assert_eq!(find("restow-no-such-tool", Some(&path)), None);
    }

    #[test]
    #[should_panic(expected = "not listed in crates/testkit/tools.txt")]
    fn unlisted_tool_is_refused() {
        let _ = tool("a-program-that-nobody-listed");
    }

    #[test]
    #[should_panic(expected = "wanted by the test")]
    fn failing_command_panics_with_its_words() {
        run(Command::new("sh").args(["-c", "echo wanted by the test >&2; exit 3"]));
    }
}
