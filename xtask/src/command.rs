//! Running commands, and counting what the test harness says.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use crate::environment::{is_ci, root};
use crate::outcome::Outcome;

/// A command of cargo's, in the root and without an input.
pub(crate) fn cargo<const N: usize>(arguments: [&str; N]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::null());
    if is_ci() {
        // What would make the next build faster makes this one slower, and there is no next one.
        command.env("CARGO_INCREMENTAL", "0");
        // A panic names its line without.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    }
    command
}

/// Builds the program, as the tests have it.
pub(crate) fn build_restow() -> Result<(), String> {
    let build = ["build", "--quiet", "--workspace", "--bin", "restow"];
    output_of(&mut cargo(build)).map(drop)
}

/// The name in the registry, and in `--package`, of one of our crates that is published.
pub(crate) fn package(crate_name: &str) -> String {
    format!("restow-{crate_name}")
}

/// A command of the nightly toolchain's cargo, which only rustup's `cargo` can choose.
pub(crate) fn nightly<const N: usize>(arguments: [&str; N]) -> Command {
    let mut command = Command::new("cargo");
    // Set by the cargo that runs us, for itself; they would win over the toolchain that is asked
    // for.
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(variable);
    }
    command
        .arg("+nightly")
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::null());
    command
}

/// The processor time of all commands that have ended, and of those that they started.
pub(crate) fn time_of_children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks_of_children(&stat).map_or(Duration::ZERO, |ticks| Duration::from_millis(ticks * 10))
}

/// `cutime` and `cstime` of `/proc/PID/stat`, behind the name, in hundredths of a second.
fn ticks_of_children(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let times = fields.split(' ').skip(13).take(2);
    times.map(|field| field.parse::<u64>().ok()).sum()
}

/// The same command with a time limit in seconds, which also ends everything that it started.
pub(crate) fn limited(command: &Command, seconds: u64) -> Command {
    behind(
        &["timeout", "--kill-after=10", &seconds.to_string()],
        command,
    )
}

/// The same command with a limit of processor time in seconds, which other work does not shorten,
/// and one by the clock that is only reached by a command that waits for ever.
pub(crate) fn limited_work(command: &Command, seconds: u64) -> Command {
    let limit = format!("ulimit -t {seconds}; exec \"$0\" \"$@\"");
    limited(&behind(&["sh", "-c", &limit], command), 20 * seconds)
}

/// The same command, started by a program that is called with these words before it.
fn behind(words: &[&str], command: &Command) -> Command {
    let mut whole = Command::new(words[0]);
    whole
        .args(&words[1..])
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(root())
        .stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => whole.env(name, value),
            None => whole.env_remove(name),
        };
    }
    whole
}

/// Whether a command can be started and succeeds; what it writes is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// What a command writes to standard output, if it succeeds.
pub(crate) fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("start {command:?}: {error}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{command:?}: {}\n{words}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{command:?}: {error}"))
}

/// Runs a command that is one check.
pub(crate) fn run(command: &mut Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Outcome::passed(),
        Ok(status) => Outcome::failed(format!("{}: {status}", line_of(command))),
        Err(error) => Outcome::failed(format!("{}: {error}", line_of(command))),
    }
}

/// Runs a `cargo test` command whose tests cannot be run one by one (those in documentation, and
/// under Miri), shows what matters of its output, and counts tests.
///
/// Tests that report a skip (`testkit::skip`) pass in the harness's eyes; here they are skipped.
pub(crate) fn run_tests(command: &mut Command) -> Outcome {
    let skips = env::temp_dir().join(format!("restow-skipped-{}-cargo", std::process::id()));
    command.env("RESTOW_SKIPPED", &skips).stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Outcome::failed(format!("{}: {error}", line_of(command))),
    };
    let mut count = Count::default();
    let stdout = child.stdout.take().expect("it is piped");
    for line in BufReader::new(stdout).split(b'\n') {
        match line {
            Ok(line) => {
                let line = String::from_utf8_lossy(&line);
                if count.line(&line) {
                    println!("{line}");
                }
            }
            Err(error) => count
                .failed
                .push(format!("read the tests' output: {error}")),
        }
    }
    let status = child.wait();
    let skipped = fs::read_to_string(&skips).unwrap_or_default();
    let _ = fs::remove_file(&skips);
    let mut outcome = count.outcome(&skipped);
    match status {
        Ok(status) if status.success() => {}
        // A test that failed is listed by its name; any other failure is not listed yet.
        Ok(_) if !outcome.failed.is_empty() => {}
        Ok(status) => outcome
            .failed
            .push(format!("{}: {status}", line_of(command))),
        Err(error) => outcome
            .failed
            .push(format!("{}: {error}", line_of(command))),
    }
    outcome
}

/// The command as a person would type it.
pub(crate) fn line_of(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    let arguments = command
        .get_args()
        .map(|argument| argument.to_string_lossy().into_owned());
    [program]
        .into_iter()
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The test harness's output so far.
#[derive(Default)]
struct Count {
    passed: usize,
    ignored: usize,
    failed: Vec<String>,
    /// As the harness counts them, which is more than the names if an output line was torn.
    failed_count: usize,
}

impl Count {
    /// Counts a line; returns whether it is worth showing.
    fn line(&mut self, line: &str) -> bool {
        if let Some(result) = line.strip_prefix("test result: ") {
            let number = |word: &str| {
                let before = result.split_once(word).map_or("", |(before, _)| before);
                before
                    .trim_end()
                    .rsplit(' ')
                    .next()
                    .and_then(|number| number.parse().ok())
                    .unwrap_or(0)
            };
            self.passed += number("passed;");
            self.ignored += number("ignored;");
            self.failed_count += number("failed;");
            return true;
        }
        let outcome = line
            .strip_prefix("test ")
            .and_then(|rest| rest.rsplit_once(" ... "));
        match outcome {
            Some((_, "ok")) => return false,
            Some((name, "FAILED")) => self.failed.push(name.to_owned()),
            Some((_, outcome)) if outcome.starts_with("ignored") => return false,
            _ => {}
        }
        !line.is_empty() && !line.starts_with("running ")
    }

    fn outcome(mut self, skips: &str) -> Outcome {
        if let Some(unnamed) = self
            .failed_count
            .checked_sub(self.failed.len())
            .filter(|n| *n > 0)
        {
            self.failed
                .push(format!("{unnamed} tests whose names are above"));
        }
        let mut outcome = Outcome {
            passed: self.passed,
            failed: self.failed,
            left: self.ignored,
            ..Outcome::default()
        };
        outcome.count_skips(skips);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(output: &str, skips: &str) -> Outcome {
        let mut count = Count::default();
        for line in output.lines() {
            count.line(line);
        }
        count.outcome(skips)
    }

    #[test]
    fn times_stand_behind_a_name_of_any_characters() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4 100 200 0 0 11 12 1300 14 20 0 1 0 5 6\n";
        assert_eq!(ticks_of_children(stat), Some(1314));
        assert_eq!(ticks_of_children(""), None);
    }

    #[test]
    fn tests_of_all_binaries_are_summed() {
        let output = "running 3 tests\ntest a ... ok\ntest b::c ... FAILED\ntest d ... ignored, needs root\n\n\
            test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.09s\n\
            test result: ok. 12 passed; 0 failed; 6 ignored; 0 measured; 0 filtered out; finished in 0.09s\n";
        let outcome = counted(output, "");
        assert_eq!((outcome.passed, outcome.left), (13, 7));
        assert_eq!(outcome.failed, ["b::c"]);
    }

    /// Cargo would build everything again in another environment.
    #[test]
    fn limited_command_keeps_its_environment() {
        let mut command = Command::new("sh");
        command.args(["-c", "test \"$A\" = 1"]).env("A", "1");
        assert!(succeeds(&mut limited(&command, 9)));
    }

    #[test]
    fn work_is_limited() {
        use std::os::unix::process::ExitStatusExt;

        let mut command = Command::new("sh");
        command
            .args(["-c", "test \"$A\" = 1 && while :; do :; done"])
            .env("A", "1");
        let status = limited_work(&command, 1).status().unwrap();
        assert_eq!(status.signal(), Some(9), "SIGKILL");
    }

    #[test]
    fn failure_without_a_name_still_counts() {
        let output = "test result: FAILED. 1 passed; 2 failed; 0 ignored;\n";
        assert_eq!(
            counted(output, "").failed,
            ["2 tests whose names are above"]
        );
    }

    #[test]
    fn only_what_matters_is_shown() {
        let mut count = Count::default();
        assert!(!count.line("test a ... ok") && !count.line("test a ... ignored, needs root"));
        assert!(count.line("test a ... FAILED") && count.line("thread 'a' panicked at b.rs:1:2:"));
    }
}
