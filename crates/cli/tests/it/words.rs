use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use snapbox::assert::{Action, Assert};
use snapbox::{Data, IntoData};
use testkit::TempDir;

use super::{restow, run_in};

/// Compares words with those that a person has read; `RESTOW_UPDATE=1` rewrites the file.
#[track_caller]
fn snapshot(expected: &Path, got: String) {
    let action = if testkit::updates() {
        Action::Overwrite
    } else {
        Action::Verify
    };
    // Backslashes are part of the text, not of a path.
    let expected = Data::read_from(expected, None).raw();
    Assert::new()
        .action(action)
        .eq(got.into_data().raw(), expected);
}

#[test]
fn help_of_every_subcommand() {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/help");
    let here = Path::new("/");
    for command in [
        "copy", "index", "ls", "cat", "diff", "manifest", "info", "usage", "check", "plan",
        "receive", "send", "mount", "unmount", "delta", "patch",
    ] {
        let (code, help, words) = run_in(here, [command, "--help"]);
        assert_eq!((code, &*words), (0, ""));
        assert!(help.contains("Examples:"), "{command}");
        snapshot(&goldens.join(format!("{command}.txt")), help);
    }
    for command in ["", "verify", "info", "dump", "undump", "convert"] {
        let args = ["stream", command, "--help"].into_iter();
        let (code, help, words) = run_in(here, args.filter(|word| !word.is_empty()));
        assert_eq!((code, &*words), (0, ""));
        assert!(help.contains("Examples:"), "{command}");
        let name = format!("stream {command}").trim_end().replace(' ', "-");
        snapshot(&goldens.join(format!("{name}.txt")), help);
    }
    let (code, help, _) = run_in(here, ["--help"]);
    assert_eq!(code, 0);
    snapshot(&goldens.join("restow.txt"), help);
    // Without a command it helps, which is not what was wanted.
    let (code, out, words) = run_in(here, [""; 0]);
    assert_eq!((code, &*out), (2, ""));
    assert!(
        words.contains("Usage: restow [OPTIONS] <COMMAND>"),
        "{words}"
    );
    let (code, version, _) = run_in(here, ["--version"]);
    assert_eq!(
        (code, version),
        (0, format!("restow {}\n", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn messages_are_verb_path_and_reason() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/d")).unwrap();
    fs::write(dir.join("src/f"), "x").unwrap();
    std::os::unix::fs::symlink("/d", dir.join("src/l")).unwrap();
    std::os::unix::fs::symlink("loop", dir.join("src/loop")).unwrap();
    fs::write(dir.join("x.tar.gz"), b"\x1f\x8b\x08\0").unwrap();
    fs::write(dir.join("x.tar.bz2"), b"BZh9").unwrap();
    fs::write(dir.join("x.sqfs"), b"hsqs").unwrap();
    fs::write(dir.join("x.stream"), b"btrfs-stream\0\x02\0\0\0").unwrap();
    let mut btrfs = vec![0; 70_000];
    btrfs[0x10040..0x10048].copy_from_slice(b"_BHRfS_M");
    fs::write(dir.join("x.btrfs"), btrfs).unwrap();
    fs::write(dir.join("empty"), "").unwrap();
    fs::write(dir.join("text"), "hello").unwrap();
    for (args, words) in [
        (
            &["ls", "missing"][..],
            "open missing: no such file or directory",
        ),
        (
            &["ls", "text"],
            "open text: unknown format (first bytes: 68 65 6c 6c 6f)",
        ),
        (&["ls", "empty"], "open empty: the file is empty"),
        (&["check", "empty"], "open empty: the file is empty"),
        (
            &["info", "text"],
            "open text: unknown format (first bytes: 68 65 6c 6c 6f)",
        ),
        (
            &["check", "src"],
            "open src: a directory, which check does not verify",
        ),
        (
            &["info", "x.stream"],
            "open x.stream: a btrfs send stream: use `restow stream info`",
        ),
        (
            &["ls", "x.sqfs"],
            "open x.sqfs: too short for a squashfs superblock (found 0x4 at byte 0x0)",
        ),
        (
            &["ls", "x.btrfs"],
            "open x.btrfs: superblock's checksum differs (found 0x0 at byte 0x10000)",
        ),
        (
            &["ls", "x.stream"],
            "open x.stream: command 1: send stream ends without an end command (found 0x0 at byte 0x11)",
        ),
        (
            &["ls", "x.tar.gz"],
            "open x.tar.gz: decompress it with gzip: unexpected end of file",
        ),
        (
            &["ls", "x.tar.bz2"],
            "open x.tar.bz2: decompress it with bzip2: decompression not finished but EOF reached",
        ),
        (&["ls", "src", "g"], "find src/g: no such file or directory"),
        (&["ls", "src", "f/g"], "find src/f/g: not a directory"),
        (&["cat", "src", "d"], "read src/d: is a directory"),
        (
            &["cat", "src", "loop"],
            "find src/loop: limit reached: symbolic links followed for one path",
        ),
        (&["diff", "-", "-"], "standard input cannot be both trees"),
        (
            &["copy", "src", "missing/x.tar"],
            "copy src to missing/x.tar: directory missing does not exist",
        ),
        (
            &["copy", "src", "src/f/x.tar"],
            "copy src to src/f/x.tar: write src/f/x.tar: not a directory",
        ),
        (
            &["copy", "missing", "x"],
            "copy missing to x: open missing: no such file or directory",
        ),
        (
            &["copy", "src", "--to", "btrfs", "-"],
            "copy src to standard output: a btrfs image is not written sequentially and cannot go to standard output",
        ),
        (
            &["copy", "src", "y.zip"],
            "copy src to y.zip: restow cannot write the format that this name suggests; choose a format with --to",
        ),
        (
            &["send", "-f", "x.stream", "/proc"],
            "send /proc: the directory is not on btrfs; `restow copy DIR DIR.stream` makes a stream of it",
        ),
        (
            &["copy", "src", "-", "--to", "dir"],
            "copy src to standard output: a directory cannot be written to standard output",
        ),
    ] {
        let expected = (2, String::new(), format!("restow: {words}\n"));
        assert_eq!(run_in(dir.path(), args), expected, "{args:?}");
    }
    // The command line itself.
    for args in [
        &["copy", "src"][..],
        &["frobnicate"],
        &["copy", "src", "x.tar", "-j", "0"],
    ] {
        let (code, out, words) = run_in(dir.path(), args);
        assert_eq!((code, &*out), (2, ""), "{args:?}");
        assert!(words.starts_with("error: "), "{words}");
    }
}

#[test]
fn lists_and_contents() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/d/e")).unwrap();
    fs::write(dir.join("src/d/file"), "content").unwrap();
    fs::write(dir.join("src/d/a\nb"), "").unwrap();
    std::os::unix::fs::symlink("/d/file", dir.join("src/link")).unwrap();
    std::os::unix::fs::symlink("d/../d", dir.join("src/dirlink")).unwrap();
    let touch = testkit::run(
        std::process::Command::new("touch")
            .args(["-h", "-d", "@-1"])
            .arg(dir.join("src/link")),
    );
    assert!(touch.status.success());
    assert_eq!(run_in(dir.path(), ["copy", "src", "x.tar", "-q"]).0, 0);
    for source in ["src", "x.tar"] {
        let out = |args: &[&str]| {
            let (code, out, words) = run_in(dir.path(), args);
            assert_eq!((code, &*words), (0, ""), "{args:?}");
            out
        };
        assert_eq!(out(&["ls", source]), "d\ndirlink\nlink\n");
        assert_eq!(out(&["ls", source, "d"]), "a\\x0ab\ne\nfile\n");
        assert_eq!(out(&["ls", source, "dirlink"]), "a\\x0ab\ne\nfile\n");
        assert_eq!(out(&["ls", "-d", source, "dirlink"]), "dirlink\n");
        assert_eq!(
            out(&["ls", "-R0", source]),
            "d\0d/a\nb\0d/e\0d/file\0dirlink\0link\0"
        );
        assert_eq!(
            out(&["ls", "-R", source, "/d/"]),
            "d/a\\x0ab\nd/e\nd/file\n"
        );
        let line = out(&["ls", "-l", source, "link"]);
        assert!(line.starts_with("lrwxrwxrwx   1 "), "{line}");
        assert!(
            line.ends_with(" 7 1969-12-31 23:59:59 link -> /d/file\n"),
            "{line}"
        );
        assert_eq!(
            out(&["cat", source, "link", "dirlink/file", "../d/./file"]),
            "content".repeat(3)
        );
    }
}

#[test]
fn differences_have_exit_code_1_and_a_line_each() {
    let dir = TempDir::new();
    for side in ["a", "b"] {
        fs::create_dir_all(dir.join(side).join("d")).unwrap();
        for name in ["same", "content", "size", "mode", "linked", "d/x"] {
            fs::write(dir.join(side).join(name), "0123456789").unwrap();
        }
    }
    fs::write(dir.join("b/content"), "0123x56789").unwrap();
    fs::write(dir.join("b/size"), "0").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4711);
    fs::set_permissions(dir.join("b/mode"), mode).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(dir.join("a/mode"), mode).unwrap();
    fs::hard_link(dir.join("a/linked"), dir.join("a/linked too")).unwrap();
    fs::write(dir.join("b/linked too"), "0123456789").unwrap();
    fs::write(dir.join("a/only"), "").unwrap();
    fs::create_dir(dir.join("b/only too")).unwrap();
    fs::remove_file(dir.join("b/d/x")).unwrap();
    std::os::unix::fs::symlink("same", dir.join("b/d/x")).unwrap();
    let (code, found, words) = run_in(dir.path(), ["diff", "--ignore", "mtime", "a", "b"]);
    assert_eq!((code, &*words), (1, ""));
    assert_eq!(
        found,
        "content: contents differ starting at byte 4\n\
         d/x: kind file | symbolic link\n\
         linked too: hard link to linked | no earlier file\n\
         mode: mode 0600 | 4711\n\
         only in a: only (file)\n\
         only in b: only too (directory)\n\
         size: size 10 | 1\n"
    );
    let (code, found, words) = run_in(dir.path(), ["diff", "-q", "a", "b"]);
    assert_eq!((code, &*found, &*words), (1, "", ""));
    let (code, found, words) = run_in(dir.path(), ["diff", "a", "a"]);
    assert_eq!((code, &*found, &*words), (0, "", ""));
}

#[test]
fn a_reader_that_goes_is_no_error() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    for number in 0..2000 {
        fs::write(
            dir.join(format!(
                "src/a rather long name so that it is more than a pipe {number}"
            )),
            "x",
        )
        .unwrap();
    }
    for args in [
        &["ls", "-l", "src"][..],
        &["manifest", "src"],
        // But a part of an archive is none.
        &["copy", "-q", "src", "-"],
    ] {
        let mut child = restow(args)
            .current_dir(dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        let why = "write standard output: the pipe was closed before everything was written";
        let expected = match args[0] {
            "copy" => (2, format!("restow: copy src to standard output: {why}\n")),
            _ => (0, String::new()),
        };
        assert_eq!((output.status.code().unwrap(), words.into()), expected);
    }
}

/// Even if all of it fits in a buffer, so that only the last write fails.
#[test]
fn a_stream_that_nobody_reads_is_an_error() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/f"), "x").unwrap();
    for args in [
        &[
            "copy",
            "-q",
            "--as-subvolume",
            "src:ro",
            ".",
            "disk.btrfs",
            "src",
        ][..],
        &["send", "-q", "-f", "home.stream", "disk.btrfs:src"],
    ] {
        let (code, _, words) = run_in(dir.path(), args);
        assert_eq!(code, 0, "{words}");
    }
    let dump = ["stream", "dump", "--json", "--data", "home.stream"];
    let (code, lines, _) = run_in(dir.path(), dump);
    assert_eq!(code, 0);
    fs::write(dir.join("home.json"), &lines).unwrap();
    for (args, expected) in [
        (
            &["copy", "-q", "--to", "stream", "--name", "s", "src", "-"][..],
            2,
        ),
        (&["send", "-q", "disk.btrfs:src"], 2),
        (
            &[
                "stream",
                "convert",
                "-q",
                "--decompress",
                "home.stream",
                "-",
            ],
            2,
        ),
        (&["stream", "undump", "home.json", "-"], 2),
        (&["stream", "dump", "home.stream"], 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = restow(args);
        command.current_dir(dir.path()).stdout(writer);
        let output = command.stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{args:?}: {words}");
        let why = "the pipe was closed before everything was written\n";
        assert_eq!(words.ends_with(why), expected == 2, "{args:?}: {words}");
    }
}

#[test]
fn a_full_disk_is_reported_for_the_file_that_is_written() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    let (code, _, words) = run_in(dir.path(), ["copy", "-q", "src", "home.stream"]);
    assert_eq!(code, 0, "{words}");
    let dump = ["stream", "dump", "--json", "--data", "home.stream"];
    let (_, lines, _) = run_in(dir.path(), dump);
    fs::write(dir.join("home.json"), &lines).unwrap();
    let (code, _, words) = run_in(dir.path(), ["stream", "undump", "home.json", "/dev/full"]);
    let expected = "restow: write /dev/full: no space left on device\n";
    assert_eq!((code, &*words), (2, expected));
}

#[test]
fn a_full_disk_behind_standard_output_is_an_error_and_behind_standard_error_is_none() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/f"), "x").unwrap();
    let full = || {
        fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let reason = "write standard output: no space left on device";
    for (args, words) in [
        (&["ls", "src"][..], reason),
        (&["cat", "src", "f"], reason),
        (&["manifest", "src"], reason),
        (&["diff", "src", "."], reason),
        (
            &["copy", "src", "-"],
            "copy src to standard output: write standard output: no space left on device",
        ),
    ] {
        let mut command = restow(args);
        let output = command.current_dir(dir.path()).stdout(full()).output();
        let shown = super::shown(&output.unwrap());
        assert_eq!(shown, (2, String::new(), format!("restow: {words}\n")));
    }
    let mut command = restow(["copy", "src", "dst"]);
    let status = command.current_dir(dir.path()).stderr(full()).status();
    assert_eq!(status.unwrap().code(), Some(0));
    assert_eq!(run_in(dir.path(), ["diff", "src", "dst"]).0, 0);
}
