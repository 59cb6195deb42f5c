//! The test suites of btrfs-progs and fstests, run twice: with btrfs-progs, and with our `send`,
//! `receive` and `mkfs.btrfs` in its place. What passes with theirs must pass with ours. Nothing of
//! these suites is kept here: they have another licence.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

use crate::command::{cargo, limited, output_of, run, succeeds};
use crate::outcome::Outcome;
use crate::tools;

/// Names a checkout of btrfs-progs, whose programs are built and run its tests.
const BTRFS_PROGS: &str = "RESTOW_BTRFS_PROGS";
/// Names a checkout of fstests, which is built.
const FSTESTS: &str = "RESTOW_FSTESTS";

/// Builds each of them in its folder.
const BUILD_BTRFS_PROGS: &str = "[ -x configure ] || ./autogen.sh
    [ -e Makefile.inc ] || ./configure --disable-documentation --disable-python
    make -s all btrfs-corrupt-block btrfs-find-root btrfs-select-super fssum";
const BUILD_FSTESTS: &str = "make -s";

/// Seconds that one test, and all of fstests, may take.
const TEST_SECONDS_MAX: u64 = 600;
const FSTESTS_SECONDS_MAX: u64 = 12 * 3600;

/// Tests that ask for what we do in another way, and why.
const DIFFERENCES: [(&str, &str); 6] = [
    (
        "029-send-p-different-mountpoints",
        "wants parents at another mount point of the same file system refused, which restow finds",
    ),
    (
        "001-basic-profiles",
        "wants mixed block groups and raid5, which are refused by name",
    ),
    ("007-mix-nodesize-sectorsize", SECTORS),
    ("008-sectorsize-nodesize-combination", SECTORS),
    (
        "013-reserved-1M-for-single",
        "wants mixed block groups, which are refused by name",
    ),
    (
        "021-rfeatures-quota-rootdir",
        "wants quotas, which are refused by name",
    ),
];
const SECTORS: &str = "wants sectors of other sizes than 4 KiB, which are refused by name";

/// What the tests take from the folder that they test, besides `btrfs`.
const PROGRAMS: [&str; 4] = [MKFS_BTRFS, "btrfs-image", "btrfstune", "btrfs-convert"];
/// What they want beside themselves.
const INTERNAL: [&str; 5] = [
    "Documentation",
    "btrfs-corrupt-block",
    "btrfs-find-root",
    "btrfs-select-super",
    "fssum",
];

/// The suite of `mkfs.btrfs`, and the program.
const MKFS: &str = "mkfs";
const MKFS_BTRFS: &str = "mkfs.btrfs";

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    NotRun(String),
    Failed(String),
}

/// The tests of btrfs-progs that call `btrfs send` or `btrfs receive`, and those of `mkfs.btrfs`.
pub(crate) fn btrfs_progs() -> Outcome {
    let Some(source) = env::var_os(BTRFS_PROGS).map(PathBuf::from) else {
        return Outcome::skipped(format!("{BTRFS_PROGS} names no checkout of btrfs-progs"));
    };
    let prepared = prepare(Some(&source)).and_then(|folder| {
        let tests = lay_out(&folder, &source)?;
        Ok((folder, tests))
    });
    let (folder, tests) = match prepared {
        Ok(prepared) => prepared,
        Err(reason) => return Outcome::skipped(reason),
    };
    let names = match names(&tests) {
        Ok(names) if names.is_empty() => {
            return Outcome::failed(format!("{} has no tests", source.display()));
        }
        Ok(names) => names,
        Err(error) => return Outcome::failed(format!("read {}: {error}", tests.display())),
    };
    let mut outcome = Outcome::default();
    let mut passed = Vec::new();
    for (suite, name) in &names {
        let ours = if *suite == MKFS { "ours-mkfs" } else { "ours" };
        let [theirs, ours] =
            ["theirs", ours].map(|whose| run_one(&tests, suite, name, &folder.join(whose)));
        println!("{name}: btrfs-progs {theirs:?}, restow {ours:?}");
        if theirs == Verdict::Passed && ours == Verdict::Passed {
            let number = name.split('-').next().unwrap_or(name);
            passed.push(format!("{suite} {number}"));
        }
        judge(name, &theirs, &ours, &mut outcome);
    }
    let version = fs::read_to_string(source.join("VERSION")).unwrap_or_default();
    let summary = format!(
        "btrfs-progs {}: {} of {} tests pass with both ({})",
        version.trim(),
        passed.len(),
        names.len(),
        passed.join(", ")
    );
    outcome.notes.insert(0, summary);
    outcome
}

/// The group `send` of fstests.
pub(crate) fn fstests() -> Outcome {
    let Some(checkout) = env::var_os(FSTESTS).map(PathBuf::from) else {
        return Outcome::skipped(format!("{FSTESTS} names no checkout of fstests"));
    };
    if !checkout.join("check").is_file() {
        return Outcome::failed(format!("{} has no fstests", checkout.display()));
    }
    let prepared = prepare(None).and_then(|folder| {
        build_checkout(&checkout, BUILD_FSTESTS)?;
        Ok(folder)
    });
    let folder = match prepared {
        Ok(folder) => folder,
        Err(reason) => return Outcome::skipped(reason),
    };
    let run = |whose: &str| run_fstests(&checkout, &folder, whose);
    let both = run("theirs").and_then(|theirs| Ok((theirs, run("ours")?)));
    let (theirs, ours) = match both {
        Ok(both) => both,
        Err(reason) => return Outcome::failed(reason),
    };
    let mut outcome = Outcome::default();
    for (name, theirs) in &theirs {
        let same = ours.iter().find(|(other, _)| other == name);
        let missing = Verdict::Failed("not in the list".to_owned());
        let ours = same.map_or(&missing, |(_, verdict)| verdict);
        judge(name, theirs, ours, &mut outcome);
    }
    if theirs.is_empty() {
        outcome.failed.push("fstests ran no test".to_owned());
    }
    let summary = format!("{} of {} pass with both", outcome.passed, theirs.len());
    outcome.notes.insert(0, summary);
    outcome
}

/// Adds what came of a test with their program and with ours.
fn judge(name: &str, theirs: &Verdict, ours: &Verdict, outcome: &mut Outcome) {
    let difference = DIFFERENCES.iter().find(|(test, _)| *test == name);
    match (theirs, ours) {
        (Verdict::Passed, Verdict::Passed) if difference.is_some() => outcome
            .failed
            .push(format!("{name} passes: it is no difference any more")),
        (Verdict::Passed, Verdict::Passed) => outcome.passed += 1,
        (Verdict::Passed, Verdict::Failed(_)) if let Some((_, reason)) = difference => {
            outcome.notes.push(format!("{name} {reason}"));
        }
        (Verdict::Passed, Verdict::Failed(reason) | Verdict::NotRun(reason)) => {
            outcome.failed.push(format!("{name}: {reason}"));
        }
        (Verdict::NotRun(reason), _) => {
            outcome.notes.push(format!("{name} not run: {reason}"));
        }
        (Verdict::Failed(reason), _) => outcome
            .notes
            .push(format!("{name} fails with btrfs-progs: {reason}")),
    }
}

/// Makes the folders `theirs` and `ours` with a `btrfs` each, in a folder that is returned.
/// Programs of btrfs-progs are those of the checkout, which is built, or the installed ones.
fn prepare(checkout: Option<&Path>) -> Result<PathBuf, String> {
    let target = built()?;
    if let Some(checkout) = checkout {
        build_checkout(checkout, BUILD_BTRFS_PROGS)?;
    }
    let folder = target.join("outside");
    let made = make_programs(&folder, &target.join("debug/restow"), checkout);
    made.map_err(|error| format!("make {}: {error}", folder.display()))?;
    Ok(folder)
}

fn build_checkout(checkout: &Path, script: &str) -> Result<(), String> {
    let mut build = Command::new("sh");
    build.args(["-ec", script]).current_dir(checkout);
    match run(&mut build).failed.pop() {
        Some(reason) => Err(format!("build {}: {reason}", checkout.display())),
        None => Ok(()),
    }
}

/// Builds the command for the root user; returns the target directory.
pub(crate) fn built() -> Result<PathBuf, String> {
    if !tools::is_root() {
        return Err("needs root".to_owned());
    }
    let built = run(&mut cargo(["build", "-q", "-p", "restow-cli"]));
    match built.failed.first() {
        Some(reason) => Err(reason.clone()),
        None => Ok(tools::target_dir()),
    }
}

fn make_programs(folder: &Path, restow: &Path, checkout: Option<&Path>) -> io::Result<()> {
    for whose in ["theirs", "ours", "ours-mkfs"] {
        let dir = folder.join(whose);
        remove_all(&dir)?;
        fs::create_dir_all(&dir)?;
        for program in PROGRAMS.iter().filter_map(|name| found(name, checkout)) {
            symlink(&program, dir.join(program.file_name().unwrap_or_default()))?;
        }
    }
    let btrfs = found("btrfs", checkout).ok_or(io::ErrorKind::NotFound)?;
    symlink(&btrfs, folder.join("theirs/btrfs"))?;
    symlink(&btrfs, folder.join("ours-mkfs/btrfs"))?;
    // A copy: another build would replace the program while it is tried.
    let tried = folder.join("restow");
    fs::copy(restow, &tried)?;
    let mkfs = folder.join("ours-mkfs").join(MKFS_BTRFS);
    fs::remove_file(&mkfs)?;
    symlink(&tried, mkfs)?;
    let (restow, btrfs) = (tried.display(), btrfs.display());
    // `btrfs receive` makes no directories; ours does on other file systems, unless it may make
    // only subvolumes.
    let shim = format!(
        "#!/bin/sh\n\
         case \"$1\" in\n\
         send) exec {restow} \"$@\" ;;\n\
         receive)\n\
         \tfor word; do [ \"$word\" = --dump ] && exec {restow} \"$@\"; done\n\
         \tshift; exec {restow} receive --to btrfs \"$@\" ;;\n\
         *) exec {btrfs} \"$@\" ;;\n\
         esac\n"
    );
    write_program(&folder.join("ours/btrfs"), &shim)
}

fn write_program(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// Removes a directory, if it exists.
pub(crate) fn remove_all(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Where a program lies: in the checkout, if there is one, or installed.
fn found(name: &str, checkout: Option<&Path>) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let dirs = checkout.map(Path::to_owned).into_iter().chain(dirs);
    dirs.map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Copies the tests, which write beside themselves, and adds what they want there.
fn lay_out(folder: &Path, source: &Path) -> Result<PathBuf, String> {
    let tests = folder.join("tests");
    let lay_out = || -> io::Result<()> {
        remove_all(&tests)?;
        let mut copy = Command::new("cp");
        if !succeeds(copy.arg("-a").arg(source.join("tests")).arg(&tests)) {
            return Err(io::Error::other("its tests cannot be copied"));
        }
        for name in INTERNAL {
            symlink(source.join(name), tests.join(name))?;
        }
        Ok(())
    };
    lay_out().map_err(|error| format!("{}: {error}", source.display()))?;
    Ok(tests)
}

/// The suite and the name of each test that sends or receives, or makes file systems.
fn names(tests: &Path) -> io::Result<Vec<(&'static str, String)>> {
    let mut names = Vec::new();
    for suite in ["misc", "cli", MKFS] {
        for entry in fs::read_dir(tests.join(format!("{suite}-tests")))? {
            let entry = entry?;
            let script = fs::read(entry.path().join("test.sh")).unwrap_or_default();
            let script = String::from_utf8_lossy(&script);
            let calls = ["btrfs\" send", "btrfs\" receive"];
            if suite == MKFS || calls.iter().any(|call| script.contains(call)) {
                names.push((suite, entry.file_name().to_string_lossy().into_owned()));
            }
        }
    }
    names.sort();
    Ok(names)
}

/// Runs a test of btrfs-progs with the programs in `top`.
fn run_one(tests: &Path, suite: &str, name: &str, top: &Path) -> Verdict {
    let script = tests.join(format!("{suite}-tests.sh"));
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "--"])
        .arg(script);
    let mut command = limited(&command, TEST_SECONDS_MAX);
    command.current_dir(tests).env("TOP", top).env("TEST", name);
    let output = command.output();
    detach(tests);
    match output {
        Ok(output) => verdict(
            output.status.success(),
            &String::from_utf8_lossy(&output.stdout),
        ),
        Err(error) => Verdict::Failed(error.to_string()),
    }
}

/// Detaches the loop devices that a failed test has left.
fn detach(tests: &Path) {
    let mut list = Command::new("losetup");
    let columns = "NAME,BACK-INO,BACK-FILE";
    let listed = output_of(list.args(["--list", "--noheadings", "--output", columns]));
    for line in listed.unwrap_or_default().lines() {
        let mut words = line.trim().splitn(2, char::is_whitespace);
        let (Some(name), Some(rest)) = (words.next(), words.next()) else {
            continue;
        };
        let (ino, file) = (rest.trim().split_once(char::is_whitespace)).unwrap_or_default();
        if is_below(tests, file.trim(), ino) {
            succeeds(Command::new("losetup").args(["--detach", name]));
        }
    }
}

/// Whether the file of a loop device is below `tests`. The mount namespace in which it was attached
/// is gone, so that its path begins at the root of its mount.
fn is_below(tests: &Path, file: &str, ino: &str) -> bool {
    tests.ancestors().any(|mounted| {
        let path = mounted.join(file.trim_start_matches('/'));
        let is_it = |found: fs::Metadata| found.ino().to_string() == ino;
        path.starts_with(tests) && fs::metadata(&path).is_ok_and(is_it)
    })
}

/// What the script for a suite says after its only test.
fn verdict(has_passed: bool, words: &str) -> Verdict {
    let mut lines = words.lines().map(str::trim);
    let reason = |line: &str| {
        ["[NOTRUN] ", "[SKIPPED] "]
            .iter()
            .find_map(|it| line.strip_prefix(it).map(str::to_owned))
    };
    if !has_passed {
        // The first line names the test, the last one says that it failed.
        let reason = lines.nth(1).unwrap_or("no reason given");
        return Verdict::Failed(reason.to_owned());
    }
    match lines.find_map(reason) {
        Some(reason) => Verdict::NotRun(reason),
        None => Verdict::Passed,
    }
}

/// Runs the group with the programs of one side; gives each test and what came of it.
fn run_fstests(
    checkout: &Path,
    folder: &Path,
    whose: &str,
) -> Result<Vec<(String, Verdict)>, String> {
    // A private mount namespace, and devices that are detached whatever happens.
    let script = "\
        set -e\n\
        cd \"$FOLDER\"\n\
        for name in test scratch; do rm -f $name.img; truncate -s 12G $name.img; mkdir -p $name; done\n\
        export FSTYP=btrfs TEST_DEV=$(losetup -f --show test.img)\n\
        export SCRATCH_DEV=$(losetup -f --show scratch.img)\n\
        trap 'cd \"$FOLDER\"; umount test scratch 2>/dev/null || true; losetup -d $TEST_DEV $SCRATCH_DEV; rm -f *.img' EXIT\n\
        export TEST_DIR=$PWD/test SCRATCH_MNT=$PWD/scratch\n\
        mkfs.btrfs -q -f $TEST_DEV\n\
        cd \"$CHECKOUT\"\n\
        ./check -g btrfs/send || true\n";
    let path = env::var("PATH").unwrap_or_default();
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "--",
        "bash",
        "-c",
        script,
    ]);
    let mut command = limited(&command, FSTESTS_SECONDS_MAX);
    command
        .env("FOLDER", folder)
        .env("CHECKOUT", checkout)
        .env("PATH", format!("{}:{path}", folder.join(whose).display()));
    output_of(&mut command).map(|words| fstests_verdicts(&words))
}

/// What `check` prints for each test: `btrfs/007 12s ... 13s`, `btrfs/016 ... [not run] why`, `-
/// output mismatch`.
fn fstests_verdicts(words: &str) -> Vec<(String, Verdict)> {
    let mut verdicts: Vec<(String, Verdict)> = Vec::new();
    for line in words.lines() {
        let failure = ["- output mismatch", "_check_", "[failed"];
        let has_failed = failure.iter().any(|it| line.contains(it));
        if line.starts_with("btrfs/") {
            let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            // A file of this machine says more.
            let rest = rest.split(" (see ").next().unwrap_or(rest);
            let verdict = match rest.split_once("[not run]") {
                Some((_, reason)) => Verdict::NotRun(reason.trim().to_owned()),
                None if has_failed => Verdict::Failed(rest.trim().to_owned()),
                None => Verdict::Passed,
            };
            verdicts.push((name.to_owned(), verdict));
        } else if let Some((_, last)) = verdicts.last_mut()
            && has_failed
        {
            *last = Verdict::Failed(line.trim().to_owned());
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_loop_device_begins_at_its_mount() {
        let tests = env::temp_dir().join(format!("restow-loops-{}", std::process::id()));
        fs::create_dir_all(tests.join("a")).unwrap();
        let image = tests.join("a/image");
        fs::write(&image, "").unwrap();
        let ino = fs::metadata(&image).unwrap().ino().to_string();
        let shown = format!("/{}/a/image", tests.file_name().unwrap().display());
        assert!(is_below(&tests, &shown, &ino));
        assert!(is_below(&tests, &image.display().to_string(), &ino));
        assert!(!is_below(&tests, &shown, "0") && !is_below(&tests, "/b/image", &ino));
        assert!(!is_below(&tests.join("b"), &shown, &ino));
        fs::remove_dir_all(tests).unwrap();
    }

    #[test]
    fn verdicts_are_those_of_the_scripts() {
        let failed = |reason: &str| Verdict::Failed(reason.to_owned());
        let title = "    [TEST/misc]   016-send\n";
        assert_eq!(verdict(true, title), Verdict::Passed);
        let words = format!("{title}    [NOTRUN] fix not available\n");
        let not_run = Verdict::NotRun("fix not available".to_owned());
        assert_eq!(verdict(true, &words), not_run);
        let words = format!("{title}expected output\ntest failed for case 016-send\n");
        assert_eq!(verdict(false, &words), failed("expected output"));
        let words = "FSTYP -- btrfs\n\nbtrfs/007  12s ...  13s\nbtrfs/016 ... [not run] no xfs_io\n\
                     btrfs/030 3s ... - output mismatch (see x)\nbtrfs/038 1s\n\
                     _check_dmesg: something found\nRan: btrfs/007\n";
        let expected = [
            ("btrfs/007", Verdict::Passed),
            ("btrfs/016", Verdict::NotRun("no xfs_io".to_owned())),
            ("btrfs/030", failed("3s ... - output mismatch")),
            ("btrfs/038", failed("_check_dmesg: something found")),
        ];
        let expected = expected.map(|(name, verdict)| (name.to_owned(), verdict));
        assert_eq!(fstests_verdicts(words), expected);
    }

    #[test]
    fn what_passes_with_theirs_must_pass_with_ours() {
        let mut outcome = Outcome::default();
        let failed = Verdict::Failed("why".to_owned());
        judge("1-x", &Verdict::Passed, &Verdict::Passed, &mut outcome);
        judge("2-x", &Verdict::Passed, &failed, &mut outcome);
        judge("3-x", &failed, &Verdict::Passed, &mut outcome);
        judge(DIFFERENCES[0].0, &Verdict::Passed, &failed, &mut outcome);
        assert_eq!(
            (outcome.passed, &*outcome.failed),
            (1, &["2-x: why".to_owned()][..])
        );
        assert_eq!(outcome.notes.len(), 2);
        judge(
            DIFFERENCES[0].0,
            &Verdict::Passed,
            &Verdict::Passed,
            &mut outcome,
        );
        assert_eq!(outcome.failed.len(), 2);
    }
}
