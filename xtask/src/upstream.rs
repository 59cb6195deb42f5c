//! Upstream's own tests of the kernel's zstd and xxHash, unchanged: what passes with their C code
//! must pass with ours. Nothing of it is kept here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::command::{cargo, output_of};
use crate::outcome::Outcome;
use crate::tools;

/// Names a clone of zstd's repository.
const ZSTD: &str = "RESTOW_ZSTD";

/// Commits with tests for the interface of 2017: the first that became a part of Linux, and the
/// last.
const OF_2017: [&str; 2] = ["a2b21c552", "f9252d834"];
/// Commits with a test for the interface of today.
const OF_TODAY: [&str; 2] = ["v1.5.6", "2dddf0905"];

/// Programs of the interface of 2017, built with their C code and with ours. Their headers stand in
/// for the kernel's, but not for those of the C library.
const BUILD_OF_2017: &str = r#"
    cd "$1/contrib/linux-kernel/test" && lib=$2
    cc -O1 -w -c ../../../lib/common/xxhash.c -o upstream.o
    for source in ../lib/zstd/*.c ../lib/xxhash.c; do
        cc -O1 -w -isystem include -I ../include -I ../lib/zstd -isystem ../../../lib/common -c "$source"
    done
    for test in UserlandTest XXHashUserlandTest; do
        c++ -std=c++14 -O1 -w -include stddef.h -include stdint.h -I ../include -idirafter include \
            -idirafter ../../../lib/common -c $test.cpp
    done
    theirs=$(ls ./*.o | grep -v -e Userland -e upstream)
    c++ UserlandTest.o $theirs -lgtest -lgtest_main -lpthread -o UserlandTest-theirs
    c++ UserlandTest.o "$lib/librestow_zstd_2017.a" -lgtest -lgtest_main -lpthread -o UserlandTest-ours
    c++ XXHashUserlandTest.o upstream.o xxhash.o -lgtest -lgtest_main -lpthread -o XXHashUserlandTest-theirs
    c++ XXHashUserlandTest.o upstream.o "$lib/librestow_zstd.a" -lgtest -lgtest_main -lpthread -o XXHashUserlandTest-ours
"#;
const PROGRAMS_OF_2017: [&str; 2] = ["UserlandTest", "XXHashUserlandTest"];

/// The program of the interface of today, with upstream's headers under the names that they have in
/// the kernel.
const BUILD_OF_TODAY: &str = r#"
    cd "$1/contrib/linux-kernel/test" && lib=$2
    mkdir -p kernel/linux
    cp ../linux_zstd.h kernel/linux/zstd.h
    cp ../../../lib/zstd.h kernel/linux/zstd_lib.h
    cp ../../../lib/zstd_errors.h kernel/linux/zstd_errors.h
    cp ../../../lib/zstd_errors.h kernel/zstd_errors.h
    cc -O1 -w -DZSTD_STATIC_LINKING_ONLY -I kernel -idirafter include test.c "$lib/librestow_zstd.a" -o test-ours
    ./test-ours
"#;

/// Runs the tests of every commit.
pub(crate) fn campaign() -> Outcome {
    let Some(source) = env::var_os(ZSTD).map(PathBuf::from) else {
        return Outcome::skipped(format!("{ZSTD} names no clone of zstd's repository"));
    };
    if !tools::is_there("c++") || !tools::is_there("/usr/include/gtest/gtest.h") {
        return Outcome::skipped("run as root: apt-get install g++ libgtest-dev");
    }
    tried(&source).unwrap_or_else(Outcome::failed)
}

fn tried(source: &Path) -> Result<Outcome, String> {
    let folder = tools::target_dir().join("upstream");
    let _ = fs::remove_dir_all(&folder);
    let library = folder.join("library");
    output_of(cargo(["xtask", "clib"]).arg(&library))?;
    let library = library.join("lib");
    let mut outcome = Outcome::default();
    for commit in OF_2017 {
        let at = unpacked(source, commit, &folder)?;
        shell(BUILD_OF_2017, &at, &library)?;
        for program in PROGRAMS_OF_2017 {
            let path = at.join("contrib/linux-kernel/test").join(program);
            let [theirs, ours] = ["theirs", "ours"]
                .map(|who| verdicts(&path.with_file_name(format!("{program}-{who}"))));
            judge(
                &format!("{commit} {program}"),
                &theirs?,
                &ours?,
                &mut outcome,
            );
        }
    }
    for commit in OF_TODAY {
        let at = unpacked(source, commit, &folder)?;
        match shell(BUILD_OF_TODAY, &at, &library) {
            Ok(_) => outcome.add(Outcome::passed()),
            Err(reason) => outcome.failed.push(format!("{commit} test.c: {reason}")),
        }
    }
    Ok(outcome)
}

/// Compares the verdicts of a program's tests.
fn judge(
    what: &str,
    theirs: &BTreeMap<String, bool>,
    ours: &BTreeMap<String, bool>,
    outcome: &mut Outcome,
) {
    let mut passed = 0;
    for (test, of_theirs) in theirs {
        match (of_theirs, ours.get(test)) {
            (true, Some(true)) => passed += 1,
            (true, _) => outcome.failed.push(format!("{what}: {test}")),
            (false, _) => outcome
                .notes
                .push(format!("{what}: {test} fails with their code")),
        }
    }
    if theirs.is_empty() {
        outcome.failed.push(format!("{what} has no tests"));
    }
    outcome.passed += passed;
    outcome
        .notes
        .push(format!("{what}: {passed} of {}", theirs.len()));
}

/// The tests of a program with GoogleTest, and whether each passes.
fn verdicts(program: &Path) -> Result<BTreeMap<String, bool>, String> {
    let output = Command::new(program).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(lines.lines().filter_map(verdict).collect())
}

/// A verdict, and not the summary at the end, which repeats failures without a time.
fn verdict(line: &str) -> Option<(String, bool)> {
    let (state, test) = line.strip_prefix('[')?.split_once("] ")?;
    let (test, _) = test.split_once(" (")?;
    let is_passed = match state.trim() {
        "OK" => true,
        "FAILED" => false,
        _ => return None,
    };
    Some((test.to_owned(), is_passed))
}

/// Unpacks a commit's tests with the files that they include.
fn unpacked(source: &Path, commit: &str, folder: &Path) -> Result<PathBuf, String> {
    let at = folder.join(commit);
    let script =
        "mkdir -p \"$1\" && git -C \"$0\" archive $2 contrib/linux-kernel lib | tar -x -C \"$1\"";
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", script]);
    output_of(command.arg(source).arg(&at).arg(commit))?;
    Ok(at)
}

/// Runs a script for the sources below a folder with our libraries.
fn shell(script: &str, at: &Path, library: &Path) -> Result<String, String> {
    let mut command = Command::new("sh");
    output_of(command.args(["-ec", script, "sh"]).arg(at).arg(library))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_those_of_googletest() {
        let block = |is_passed| Some(("Block.X".to_owned(), is_passed));
        assert_eq!(verdict("[       OK ] Block.X (2 ms)"), block(true));
        assert_eq!(verdict("[  FAILED  ] Block.X (2 ms)"), block(false));
        assert_eq!(verdict("[  FAILED  ] Block.X"), None);
        assert_eq!(
            verdict("[----------] 5 tests from Block (2 ms total)"),
            None
        );
    }
}
