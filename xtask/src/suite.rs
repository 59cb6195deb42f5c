//! Runs test binaries, each test in a process of its own: that gives the time of each test, and a
//! limit to it.
//!
//! `cargo test` gives neither on the stable toolchain: one test that hangs holds the whole run up,
//! without a name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use crate::command::{cargo, line_of};
use crate::outcome::{Outcome, Test};

/// How long one test may take. The slowest take half a minute on an idle machine, and several times
/// that on a busy one; more than this is a hang, or belongs in a campaign.
pub(crate) const TEST_MAX: Duration = Duration::from_secs(300);

/// What `timeout` exits with when it ended the test: by SIGTERM, and by SIGKILL where that did not
/// help.
const TIMED_OUT: [i32; 2] = [124, 137];

/// What the test harness exits with when a test failed.
const FAILED: i32 = 101;

/// A binary with tests in it, built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    /// Where its manifest lies.
    pub(crate) folder: PathBuf,
    executable: PathBuf,
}

impl Binary {
    /// The crate's name in this repository: that of its folder.
    pub(crate) fn crate_name(&self) -> &str {
        let name = self.folder.file_name().and_then(|name| name.to_str());
        name.unwrap_or("?")
    }
}

/// Builds the tests that `arguments` of `cargo test` select, without those in documentation.
pub(crate) fn build(arguments: &[&str]) -> Result<Vec<Binary>, String> {
    let mut command = cargo(["test", "--no-run", "--tests"]);
    command.args(arguments);
    command.arg("--message-format=json-render-diagnostics");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{}: {error}", line_of(&command)))?;
    if !output.status.success() {
        return Err(format!("{}: {}", line_of(&command), output.status));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| binary(line).transpose())
        .collect()
}

/// The test binary that one of cargo's messages announces, if it does.
fn binary(message: &str) -> Result<Option<Binary>, String> {
    let after = |key: &str| message.split_once(key).map(|(_, rest)| rest);
    let profile = after("\"profile\":{").and_then(|rest| rest.split('}').next());
    let is_test = profile.is_some_and(|profile| profile.contains("\"test\":true"));
    let string = |key: &str| after(key).and_then(|rest| rest.split('"').next());
    let (Some(executable), Some(manifest)) =
        (string("\"executable\":\""), string("\"manifest_path\":\""))
    else {
        return Ok(None);
    };
    if !is_test {
        return Ok(None);
    }
    if executable.contains('\\') || manifest.contains('\\') {
        return Err(format!("a path that JSON escapes: {executable}"));
    }
    Ok(Some(Binary {
        folder: Path::new(manifest)
            .parent()
            .unwrap_or(Path::new("/"))
            .to_owned(),
        executable: executable.into(),
    }))
}

/// Binaries whose tests are counted together.
pub(crate) struct Group<'a> {
    /// The words before each test's command.
    pub(crate) prefix: &'a [String],
    pub(crate) binaries: Vec<Binary>,
}

/// They need no words before their commands.
impl From<Vec<Binary>> for Group<'_> {
    fn from(binaries: Vec<Binary>) -> Self {
        Group {
            prefix: &[],
            binaries,
        }
    }
}

/// A test: its group by number, its binary and its name.
type Place<'a> = (usize, &'a Binary, String);

/// Which tests of the binaries run, and how.
pub(crate) struct Suite<'a> {
    /// The ignored tests instead of the others.
    pub(crate) ignored: bool,
    /// Only tests whose names contain one of these, unless it is empty.
    pub(crate) filters: &'a [String],
    /// Tests at the same time.
    pub(crate) jobs: usize,
    /// For one test.
    pub(crate) test_max: Duration,
    /// No test starts later than this.
    pub(crate) until: Option<Instant>,
    /// How many cases a sampled test runs, where that is not its own number.
    pub(crate) cases: Option<u64>,
    /// What the tests print is shown, also of those that pass.
    pub(crate) shows_output: bool,
}

impl Default for Suite<'_> {
    fn default() -> Self {
        Suite {
            ignored: false,
            filters: &[],
            jobs: thread::available_parallelism().map_or(1, usize::from),
            test_max: TEST_MAX,
            until: None,
            cases: None,
            shows_output: false,
        }
    }
}

/// What came of a test.
enum Verdict {
    Passed,
    Failed(String),
    NotStarted,
}

impl Suite<'_> {
    /// Runs the tests of one group.
    pub(crate) fn run(&self, group: Group<'_>) -> Outcome {
        self.run_each(&[group]).pop().expect("of each group")
    }

    /// Runs the tests of all groups in one queue, so that no processor waits for the last test of a
    /// group, and says what came of each group.
    ///
    /// Tests that report a skip (`testkit::skip`) pass in the harness's eyes; here they are
    /// skipped.
    pub(crate) fn run_each(&self, groups: &[Group<'_>]) -> Vec<Outcome> {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let mut outcomes: Vec<Outcome> = groups.iter().map(|_| Outcome::default()).collect();
        let (mut tests, mut skips) = (Vec::new(), Vec::new());
        for (number, (group, outcome)) in groups.iter().zip(&mut outcomes).enumerate() {
            for binary in &group.binaries {
                match self.list(group.prefix, binary) {
                    Ok((wanted, left)) => {
                        tests.extend(wanted.into_iter().map(|name| (number, binary, name)));
                        outcome.left += left;
                    }
                    Err(reason) => outcome.failed.push(reason),
                }
            }
            let run = RUNS.fetch_add(1, Ordering::Relaxed);
            let file = format!("restow-skipped-{}-{run}", std::process::id());
            skips.push(env::temp_dir().join(file));
        }
        let run_one = |(number, binary, name): &Place<'_>| {
            self.run_one(groups[*number].prefix, binary, name, &skips[*number])
        };
        let done = self.run_all(&tests, run_one);
        for ((number, binary, name), (verdict, notes, time)) in tests.iter().zip(done) {
            let outcome = &mut outcomes[*number];
            let name = format!("{}::{name}", binary.crate_name());
            match verdict {
                Verdict::Passed => outcome.passed += 1,
                Verdict::Failed(reason) => outcome.failed.push(format!("{name}{reason}")),
                Verdict::NotStarted => {
                    let reason = "no time was left for it; `cargo xtask test` runs it";
                    outcome.skipped.push(reason.to_owned());
                }
            }
            outcome.notes.extend(notes);
            outcome.tests.push(Test { name, time });
        }
        for (outcome, skips) in outcomes.iter_mut().zip(&skips) {
            outcome.count_skips(&fs::read_to_string(skips).unwrap_or_default());
            let _ = fs::remove_file(skips);
        }
        outcomes
    }

    /// The names of the wanted tests, and how many are ignored and not wanted.
    fn list(&self, prefix: &[String], binary: &Binary) -> Result<(Vec<String>, usize), String> {
        let ask = |more: &[&str]| {
            let mut command = self.command(prefix, binary, Path::new(""));
            command.args(["--list", "--format", "terse"]).args(more);
            let output = command.output();
            let output = output.map_err(|error| format!("{}: {error}", line_of(&command)))?;
            if output.status.success() {
                Ok(names(&String::from_utf8_lossy(&output.stdout)))
            } else {
                Err(format!("{}: {}", line_of(&command), output.status))
            }
        };
        let is_wanted = |name: &String| {
            self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter))
        };
        let ignored = ask(&["--ignored"])?;
        if self.ignored {
            return Ok((ignored.into_iter().filter(is_wanted).collect(), 0));
        }
        let left = ignored.iter().filter(|name| is_wanted(name)).count();
        let ignored: BTreeSet<String> = ignored.into_iter().collect();
        let all = ask(&[])?.into_iter();
        let wanted = all.filter(|name| is_wanted(name) && !ignored.contains(name));
        Ok((wanted.collect(), left))
    }

    /// The verdicts in the order of the tests, what a campaign's tests report, and how long each
    /// took.
    fn run_all(
        &self,
        tests: &[Place<'_>],
        run_one: impl Fn(&Place<'_>) -> (Verdict, Vec<String>) + Sync,
    ) -> Vec<(Verdict, Vec<String>, Duration)> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(test) = tests.get(index) else {
                    return;
                };
                let start = Instant::now();
                let (verdict, notes) = if self.until.is_some_and(|until| start >= until) {
                    (Verdict::NotStarted, Vec::new())
                } else {
                    run_one(test)
                };
                let time = start.elapsed();
                let mut done = done.lock().expect("no worker panics");
                if let Verdict::Failed(reason) = &verdict {
                    let (_, binary, name) = test;
                    println!("{}::{name} failed{reason}", binary.crate_name());
                }
                done.push((index, (verdict, notes, time)));
            }
        };
        thread::scope(|scope| {
            for _ in 0..self.jobs.min(tests.len()) {
                scope.spawn(work);
            }
        });
        let mut done = done.into_inner().expect("no worker panics");
        done.sort_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, what)| what).collect()
    }

    fn run_one(
        &self,
        prefix: &[String],
        binary: &Binary,
        name: &str,
        skips: &Path,
    ) -> (Verdict, Vec<String>) {
        let mut command = self.command(prefix, binary, skips);
        command.args(["--exact", name]);
        if self.ignored {
            command.arg("--ignored");
        }
        if self.shows_output {
            command.arg("--nocapture");
        }
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                let reason = format!(": {}: {error}", line_of(&command));
                return (Verdict::Failed(reason), Vec::new());
            }
        };
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let verdict = verdict(&output, &stdout, self.test_max);
        if self.shows_output || matches!(verdict, Verdict::Failed(_)) {
            print!("{stdout}{stderr}");
        }
        let reports = stdout.lines().chain(stderr.lines());
        let reports = reports.filter_map(|line| line.strip_prefix("campaign: "));
        (verdict, reports.map(str::to_owned).collect())
    }

    /// The start of a command of the binary, with what cargo would give it.
    fn command(&self, prefix: &[String], binary: &Binary, skips: &Path) -> Command {
        let seconds = self.test_max.as_secs().to_string();
        let mut words = prefix.to_vec();
        // It ends the test and all that the test has started.
        words.extend(["timeout", "--kill-after=10", &seconds].map(str::to_owned));
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg(&binary.executable)
            .current_dir(&binary.folder)
            .env("CARGO_MANIFEST_DIR", &binary.folder)
            .env("CARGO_PKG_NAME", binary.crate_name())
            .env("RESTOW_SKIPPED", skips)
            .stdin(Stdio::null());
        if let Some(cases) = self.cases {
            command.env("RESTOW_CASES", cases.to_string());
        }
        command
    }
}

/// The tests in a terse list.
fn names(list: &str) -> Vec<String> {
    list.lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect()
}

fn verdict(output: &Output, stdout: &str, test_max: Duration) -> Verdict {
    match output.status.code() {
        // A binary that knows no test of that name succeeds as well.
        Some(0) if stdout.contains("1 passed") => Verdict::Passed,
        Some(0) => Verdict::Failed(": the harness did not run it".to_owned()),
        Some(FAILED) => Verdict::Failed(String::new()),
        Some(code) if TIMED_OUT.contains(&code) => {
            let seconds = test_max.as_secs();
            Verdict::Failed(format!(": it was ended after {seconds} s: does it hang?"))
        }
        _ => Verdict::Failed(format!(": {}", output.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_test_binaries_are_taken_from_the_messages() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let message = |test: bool, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"{}\",\"target\":{{\"test\":true}},\
                 \"profile\":{{\"opt_level\":\"1\",\"test\":{test}}},\"executable\":{executable}}}",
                manifest.display()
            )
        };
        let found = binary(&message(true, "\"/t/xtask-1\"")).unwrap().unwrap();
        assert_eq!(found.crate_name(), "xtask");
        assert_eq!(found.folder, Path::new(env!("CARGO_MANIFEST_DIR")));
        assert_eq!(found.executable, Path::new("/t/xtask-1"));
        assert_eq!(binary(&message(false, "\"/t/xtask\"")), Ok(None));
        assert_eq!(binary(&message(true, "null")), Ok(None));
        assert_eq!(
            binary("{\"reason\":\"build-finished\",\"success\":true}"),
            Ok(None)
        );
        assert!(binary(&message(true, "\"/a\\\"b\"")).is_err());
    }

    #[test]
    fn names_are_those_of_tests() {
        assert_eq!(
            names("a::b: test\nc: bench\n\n1 test, 1 benchmark\n"),
            ["a::b"]
        );
    }

    /// A stand-in for a test binary: a script that lists four tests, one of them ignored, and does
    /// what their names say.
    fn stand_in(name: &str) -> (PathBuf, Binary) {
        let folder = env::temp_dir().join(format!("restow-suite-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("x")).unwrap();
        let executable = folder.join("tests");
        let script = "#!/bin/sh\n\
            case \"$*\" in\n\
            *--list*--ignored*) echo 'mounts: test' ;;\n\
            *--list*) printf 'passes: test\\nhangs: test\\nskips: test\\nmounts: test\\n' ;;\n\
            *passes*|*mounts*--ignored*) echo campaign: $RESTOW_CASES cases; echo '1 passed; 0 failed' ;;\n\
            *mounts*) echo '0 passed; 1 ignored' ;;\n\
            *skips*) echo 'SKIPPED x::skips: no luck' >> \"$RESTOW_SKIPPED\"; echo '1 passed' ;;\n\
            *hangs*) exec tail -f /dev/null ;;\n\
            esac\n";
        fs::write(&executable, script).unwrap();
        fs::set_permissions(&executable, fs::Permissions::from_mode(0o755)).unwrap();
        let binary = Binary {
            folder: folder.join("x"),
            executable,
        };
        (folder, binary)
    }

    #[test]
    fn hanging_test_is_ended_and_named() {
        let (folder, binary) = stand_in("hangs");
        let suite = Suite {
            test_max: Duration::from_secs(1),
            cases: Some(7),
            ..Suite::default()
        };
        let outcome = suite.run(vec![binary].into());
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(
            outcome.failed,
            ["x::hangs: it was ended after 1 s: does it hang?"]
        );
        assert_eq!((outcome.passed, outcome.left), (1, 1));
        assert_eq!(outcome.skipped, ["x::skips: no luck"]);
        assert_eq!(outcome.notes, ["7 cases"]);
        assert!(outcome.tests.iter().any(|test| test.time >= suite.test_max));
    }

    #[test]
    fn each_group_has_its_own_tests_and_skips() {
        let (folder, binary) = stand_in("groups");
        let filters = ["s".to_owned()];
        let suite = Suite {
            test_max: Duration::from_secs(1),
            filters: &filters,
            ..Suite::default()
        };
        let prefix = ["env".to_owned()];
        let with_prefix = Group {
            prefix: &prefix,
            binaries: vec![binary.clone()],
        };
        let outcomes = suite.run_each(&[vec![binary].into(), Vec::new().into(), with_prefix]);
        fs::remove_dir_all(folder).unwrap();
        for outcome in [&outcomes[0], &outcomes[2]] {
            assert_eq!((outcome.passed, outcome.left), (1, 1));
            assert_eq!(outcome.skipped, ["x::skips: no luck"]);
            assert_eq!(outcome.tests.len(), 3);
        }
        assert_eq!(outcomes[1], Outcome::default());
    }

    #[test]
    fn tests_without_time_are_counted() {
        let (folder, binary) = stand_in("late");
        let suite = Suite {
            until: Some(Instant::now()),
            ..Suite::default()
        };
        let outcome = suite.run(vec![binary].into());
        fs::remove_dir_all(folder).unwrap();
        assert_eq!((outcome.passed, outcome.skipped.len()), (0, 3));
        assert_eq!(outcome.failed, [""; 0]);
    }

    #[test]
    fn filters_and_ignored_tests() {
        let (folder, binary) = stand_in("filters");
        let filters = ["mou".to_owned(), "other".to_owned()];
        let suite = Suite {
            ignored: true,
            filters: &filters,
            ..Suite::default()
        };
        let outcome = suite.run(vec![binary.clone()].into());
        assert_eq!((outcome.passed, outcome.failed.len()), (1, 0));
        let none = Suite {
            filters: &filters,
            ..Suite::default()
        };
        let outcome = none.run(vec![binary].into());
        fs::remove_dir_all(folder).unwrap();
        assert_eq!((outcome.passed, outcome.left), (0, 1));
    }
}
