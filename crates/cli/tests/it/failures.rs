//! What goes wrong in the midst of a copy: said clearly, exit code 2, and nothing under the final
//! name.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::TempDir;

use crate::{names, restow, run_in, shown};

/// Every kind of result, and what it is called.
const RESULTS: [&str; 4] = ["out.sqfs", "out.btrfs", "out.tar", "out"];

fn source(dir: &TempDir) {
    fs::create_dir_all(dir.join("src/sub")).unwrap();
    for n in 0..40 {
        let noise = testkit::Rng::new(n).bytes(100_000);
        fs::write(dir.join(format!("src/sub/{n}")), noise).unwrap();
    }
}

/// Four MiB on a disk of two.
#[test]
#[ignore = "needs root"]
fn a_full_disk_leaves_nothing() {
    let dir = TempDir::new();
    source(&dir);
    fs::create_dir(dir.join("disk")).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=2m", "tmpfs"];
    testkit::run(Command::new("mount").args(mount).arg(dir.join("disk")));
    let mut said = Vec::new();
    for to in RESULTS {
        let path = format!("disk/{to}");
        for (args, old) in [
            (&["copy", "-q"][..], false),
            (&["copy", "-q", "--overwrite"], true),
        ] {
            if old {
                fs::write(dir.join("disk/out.sqfs"), "old").unwrap();
            }
            let args: Vec<&str> = args.iter().copied().chain(["src", &path]).collect();
            said.push((
                args.join(" "),
                run_in(dir.path(), &args),
                names(&dir.join("disk")),
                old,
            ));
            let _ = fs::remove_file(dir.join("disk/out.sqfs"));
        }
    }
    testkit::run(Command::new("umount").arg(dir.join("disk")));
    for (args, (code, _, words), left, old) in said {
        assert_eq!(code, 2, "{args}: {words}");
        assert!(
            words.to_lowercase().contains("no space left on device"),
            "{args}: {words}"
        );
        assert!(words.contains("disk/out"), "{args}: {words}");
        let expected: &[&str] = if old { &["out.sqfs"] } else { &[] };
        assert_eq!(left, expected, "{args}");
    }
}

/// The program as somebody who may not read all; `None` when a tool is missing.
fn as_user(dir: &TempDir, args: &[&str]) -> Option<Command> {
    let program = env!("CARGO_BIN_EXE_restow");
    let mut command = if fs::read(dir.join("src/sub/7")).is_ok() {
        // Whoever runs this may read all: the program must not.
        let setpriv = testkit::tool("setpriv")?;
        // The program may lie where others cannot reach it. Another process makes the copy: what
        // this one has open for writing, a child that another test starts just then has open, too,
        // and it cannot be run.
        testkit::run(Command::new("cp").args([Path::new(program), &dir.join("restow")]));
        let mut command = setpriv.command();
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command.arg(dir.join("restow"));
        command
    } else {
        Command::new(program)
    };
    command
        .args(args)
        .current_dir(dir.path())
        .stdin(Stdio::null());
    Some(command)
}

/// A tree of which not all may be read, and a directory that anybody may write to.
fn secrets(dir: &TempDir) {
    source(dir);
    let mode = |path: &str, mode: u32| {
        fs::set_permissions(dir.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("src/sub/7", 0o000);
    fs::create_dir(dir.join("to")).unwrap();
    mode("to", 0o777);
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    let dir = TempDir::new();
    secrets(&dir);
    for to in RESULTS {
        let Some(mut command) = as_user(&dir, &["copy", "-q", "src", &format!("to/{to}")]) else {
            return;
        };
        let (code, _, words) = shown(&command.output().unwrap());
        assert_eq!(code, 2, "{to}: {words}");
        let named = words.contains("src/sub/7: permission denied");
        assert!(named, "{to}: {words}");
        assert!(names(&dir.join("to")).is_empty(), "{to}");
    }
}

#[test]
fn what_may_not_be_read_is_left_out_and_listed() {
    let dir = TempDir::new();
    secrets(&dir);
    fs::create_dir(dir.join("src/closed")).unwrap();
    fs::write(dir.join("src/closed/inside"), "unseen").unwrap();
    fs::write(dir.join("src/small"), "unread").unwrap();
    for path in ["src/closed", "src/small"] {
        fs::set_permissions(dir.join(path), fs::Permissions::from_mode(0o000)).unwrap();
    }
    for image in ["to/x.sqfs", "to/x.btrfs", "to/x.tar", "to/x"] {
        let mut args = vec!["copy", "-q", "--skip-unreadable", "src", image];
        if image == "to/x" {
            args.push("--no-owners");
        }
        let Some(mut command) = as_user(&dir, &args) else {
            return;
        };
        let (code, _, words) = shown(&command.output().unwrap());
        assert_eq!(code, 1, "{image}: {words}");
        for line in [
            "src/sub/7: skipped, cannot be read: permission denied",
            "src/small: skipped, cannot be read: permission denied",
            "src/closed: left empty, cannot be read: permission denied",
        ] {
            assert!(words.contains(line), "{image}: {words}");
        }
        assert_eq!(words.lines().count(), 3, "{image}: {words}");
        if image.ends_with("fs") {
            let (code, out, _) = run_in(dir.path(), ["check", image]);
            assert_eq!(code, 0, "{image}: {out}");
        }
        let (_, listed, _) = run_in(dir.path(), ["ls", "-R", image]);
        let listed: Vec<&str> = listed.split_whitespace().collect();
        let is_listed = |name: &str| listed.iter().any(|line| line.ends_with(name));
        assert!(is_listed("sub/8") && is_listed("closed"), "{listed:?}");
        assert!(!is_listed("sub/7") && !is_listed("small"), "{listed:?}");
    }
}

#[test]
fn a_full_output_is_blamed_and_not_the_source() {
    let dir = TempDir::new();
    source(&dir);
    for to in ["x.sqfs", "x.btrfs", "x.tar"] {
        assert_eq!(run_in(dir.path(), ["copy", "-q", "src", to]).0, 0);
    }
    for args in [
        &["info", "x.btrfs"][..],
        &["info", "x.btrfs", "--path", "sub"],
        &["info", "x.sqfs"],
        &["check", "x.btrfs"],
        &["check", "x.sqfs"],
        &["ls", "-lR", "x.btrfs"],
        &["cat", "x.tar", "sub/1"],
        &["manifest", "src"],
        &["diff", "src", "src/sub"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        let mut command = restow(args);
        let output = command.current_dir(dir.path()).stdout(full.unwrap());
        let (code, _, words) = shown(&output.output().unwrap());
        let expected = "restow: write standard output: no space left on device\n";
        assert_eq!((code, &*words), (2, expected), "{args:?}");
    }
}

#[test]
fn a_folder_for_temporary_files_that_fails_is_named() {
    let dir = TempDir::new();
    source(&dir);
    assert_eq!(run_in(dir.path(), ["copy", "-q", "src", "x.tar"]).0, 0);
    let mut command = restow(["ls", "-"]);
    let archive = fs::read(dir.join("x.tar")).unwrap();
    command.current_dir(dir.path()).env("TMPDIR", "missing");
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    // It may end before it has read everything.
    let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), &archive);
    let (code, _, words) = shown(&child.wait_with_output().unwrap());
    let expected = "restow: open standard input: write in missing: no such file or directory\n";
    assert_eq!((code, &*words), (2, expected));
}

#[test]
#[ignore = "needs root"]
fn a_full_folder_for_temporary_files_is_named() {
    let dir = TempDir::new();
    source(&dir);
    assert_eq!(run_in(dir.path(), ["copy", "-q", "src", "x.tar"]).0, 0);
    let archive = fs::File::open(dir.join("x.tar")).unwrap();
    let gzip = testkit::tool("gzip").map(|gzip| {
        let mut command = gzip.command();
        command.args(["-1", "-c"]).stdin(archive);
        fs::write(dir.join("x.tar.gz"), testkit::run(&mut command).stdout).unwrap();
    });
    fs::create_dir(dir.join("disk")).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=2m", "tmpfs"];
    testkit::run(Command::new("mount").args(mount).arg(dir.join("disk")));
    let mut command = restow(["ls", "x.tar.gz"]);
    command.current_dir(dir.path()).env("TMPDIR", "disk");
    let shown = shown(&command.output().unwrap());
    testkit::run(Command::new("umount").arg(dir.join("disk")));
    if gzip.is_some() {
        let words = "restow: open x.tar.gz: decompress it with gzip: write in disk: \
                     no space left on device\n";
        assert_eq!(shown, (2, String::new(), words.to_owned()));
    }
}
