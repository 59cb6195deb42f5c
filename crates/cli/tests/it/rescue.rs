//! Directories that are merged or replaced, and sources that cannot be read as a whole.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};

use testkit::{Rng, TempDir, tool};

use crate::{names, restow, run_in, shown};

/// A tree, and a directory with files of the same and of other names.
fn trees(dir: &TempDir) {
    fs::create_dir_all(dir.join("src/sub/new")).unwrap();
    fs::create_dir(dir.join("src/clash")).unwrap();
    fs::write(dir.join("src/clash/below"), "ours").unwrap();
    fs::write(dir.join("src/sub/both"), "ours").unwrap();
    fs::write(dir.join("src/sub/dir"), "ours").unwrap();
    fs::write(dir.join("src/sub/new/file"), "ours").unwrap();
    fs::create_dir_all(dir.join("dst/sub/dir")).unwrap();
    fs::write(dir.join("dst/sub/dir/file"), "theirs").unwrap();
    fs::write(dir.join("dst/sub/both"), "theirs").unwrap();
    fs::write(dir.join("dst/clash"), "theirs").unwrap();
    fs::write(dir.join("dst/other"), "theirs").unwrap();
    let touch = |path: &str, time: &str| {
        let mut command = Command::new("touch");
        testkit::run(command.args(["-d", time]).arg(dir.join(path)));
    };
    touch("src/sub/both", "@1500000000");
}

#[test]
fn merge_replaces_files_and_names_what_clashes() {
    let dir = TempDir::new();
    trees(&dir);
    assert_eq!(run_in(dir.path(), ["copy", "-q", "src", "src.tar"]).0, 0);
    assert_eq!(run_in(dir.path(), ["copy", "-q", "src", "src.sqfs"]).0, 0);
    assert_eq!(run_in(dir.path(), ["copy", "-q", "src", "src.btrfs"]).0, 0);
    let read = |path: &str| fs::read_to_string(dir.join(path)).unwrap();
    for source in ["src.tar", "src", "src.sqfs", "src.btrfs"] {
        let args = ["copy", "-q", "--merge", source, "dst"];
        let (code, _, words) = run_in(dir.path(), args);
        let expected = "\
            restow: dst/clash: not merged: a file is there, and a directory does not replace it\n\
            restow: dst/sub/dir: not merged: a directory is there, and a file does not replace it\n";
        assert_eq!((code, &*words), (1, expected));
        assert_eq!(names(&dir.join("dst")), ["clash", "other", "sub"]);
        assert_eq!(read("dst/sub/both"), "ours");
        assert_eq!(read("dst/sub/new/file"), "ours");
        for path in ["dst/clash", "dst/other", "dst/sub/dir/file"] {
            assert_eq!(read(path), "theirs");
        }
        fs::write(dir.join("dst/sub/both"), "theirs").unwrap();
        fs::remove_dir_all(dir.join("dst/sub/new")).unwrap();
    }
    for option in ["--keep-existing", "--keep-newer"] {
        let args = ["copy", "--merge", option, "src.tar", "dst"];
        let (code, _, words) = run_in(dir.path(), args);
        assert_eq!(code, 1, "{words}");
        assert!(
            words.contains("restow: 1 file in the destination kept\n"),
            "{words}"
        );
        assert_eq!(
            (&*read("dst/sub/both"), &*read("dst/sub/new/file")),
            ("theirs", "ours")
        );
        fs::remove_dir_all(dir.join("dst/sub/new")).unwrap();
    }
    // The working directory is merged into as any other; a directory that does not exist is made.
    fs::remove_file(dir.join("dst/clash")).unwrap();
    fs::remove_dir_all(dir.join("dst/sub/dir")).unwrap();
    let args = ["copy", "-q", "--merge", "../src.tar", "."];
    assert_eq!(
        run_in(&dir.join("dst"), args),
        (0, String::new(), String::new())
    );
    assert_eq!(
        run_in(dir.path(), ["copy", "-q", "--merge", "src", "made"]).0,
        0
    );
    assert_eq!(run_in(dir.path(), ["diff", "src", "made"]).0, 0);
}

#[test]
fn options_for_an_existing_directory_exclude_each_other() {
    let dir = TempDir::new();
    trees(&dir);
    for args in [
        &["--merge", "--replace"][..],
        &["--merge", "--overwrite"],
        &["--replace", "--overwrite"],
        &["--keep-existing"],
        &["--merge", "--keep-existing", "--keep-newer"],
    ] {
        let all = [&["copy"], args, &["src", "dst"]].concat();
        let (code, _, words) = run_in(dir.path(), all);
        assert_eq!(code, 2, "{args:?}");
        assert!(words.starts_with("error: "), "{words}");
    }
    for option in ["--merge", "--replace"] {
        let (code, _, words) = run_in(dir.path(), ["copy", option, "src", "x.tar"]);
        let expected =
            format!("restow: copy src to x.tar: {option} does not apply to a tar archive\n");
        assert_eq!((code, words), (2, expected));
        let (code, _, words) = run_in(
            dir.path(),
            ["copy", option, "--to", "dir", "src", "dst/other"],
        );
        let expected = "restow: copy src to dst/other: dst/other is not a directory\n";
        assert_eq!((code, &*words), (2, expected));
    }
    assert_eq!(fs::read(dir.join("dst/other")).unwrap(), b"theirs");
}

#[test]
fn replace_says_what_went_and_refuses_what_must_stay() {
    let dir = TempDir::new();
    trees(&dir);
    let (code, _, words) = run_in(dir.path(), ["copy", "src", "dst"]);
    let held = "dst holds 6 entries; --merge puts the tree into it, --replace deletes its contents";
    assert_eq!(
        (code, words),
        (2, format!("restow: copy src to dst: {held}\n"))
    );
    // A source that fails costs nothing.
    fs::write(dir.join("bad.tar"), [1; 2000]).unwrap();
    assert_eq!(
        run_in(dir.path(), ["copy", "--replace", "bad.tar", "dst"]).0,
        2
    );
    assert_eq!(names(&dir.join("dst")), ["clash", "other", "sub"]);
    let (code, _, words) = run_in(dir.path(), ["copy", "--replace", "src", "dst"]);
    assert_eq!(code, 0, "{words}");
    assert!(
        words.contains("restow: 6 entries of the old directory deleted\n"),
        "{words}"
    );
    assert_eq!(run_in(dir.path(), ["diff", "src", "dst"]).0, 0);
    assert_eq!(names(dir.path()), ["bad.tar", "dst", "src"]);

    assert_eq!(run_in(dir.path(), ["copy", "-q", "src", "src.tar"]).0, 0);
    let source = dir.join("src.tar");
    let refused = |from: &str, to: &str, home: &str| {
        let mut command = restow(["copy", "--replace"]);
        command.arg(&source).arg(to).current_dir(dir.join(from));
        let output = command.env("HOME", dir.join(home)).output().unwrap();
        let (code, _, words) = shown(&output);
        assert_eq!(code, 2, "{to}: {words}");
        words
    };
    let home = "is or contains the home directory";
    assert!(refused(".", "dst", "dst").contains(home));
    assert!(refused(".", "dst", "dst/sub").contains(home));
    assert!(refused(".", "/", "nowhere").contains(home));
    let working = "the working directory is in it";
    assert!(refused("dst", ".", "nowhere").contains(working));
    assert!(refused("dst/sub/new", "../..", "nowhere").contains(working));
    symlink("dst", dir.join("link")).unwrap();
    assert!(refused("dst/sub", "../../link", "nowhere").contains(working));
    assert!(dir.join("dst/sub/new/file").exists());
}

#[test]
#[ignore = "needs root"]
fn replace_refuses_mount_points_and_merge_names_other_file_systems() {
    let dir = TempDir::new();
    trees(&dir);
    let mount = |path: &str| {
        let args = ["-t", "tmpfs", "-o", "size=2m", "tmpfs"];
        testkit::run(Command::new("mount").args(args).arg(dir.join(path)));
    };
    mount("dst/sub");
    fs::write(dir.join("dst/sub/mounted"), "theirs").unwrap();
    let mut said = Vec::new();
    for to in ["dst", "dst/sub"] {
        said.push(run_in(dir.path(), ["copy", "--replace", "src", to]));
    }
    let merged = run_in(dir.path(), ["copy", "-q", "--merge", "src", "dst"]);
    let inside = run_in(dir.path(), ["copy", "-q", "--merge", "src", "dst/sub"]);
    let left = names(&dir.join("dst/sub"));
    testkit::run(Command::new("umount").arg(dir.join("dst/sub")));
    for (code, _, words) in said {
        assert_eq!(code, 2, "{words}");
        assert!(
            words.contains("a directory with a mount point at or below it"),
            "{words}"
        );
    }
    assert_eq!(merged.0, 1);
    let other = "dst/sub: not merged: it is on another file system";
    assert!(merged.2.contains(other), "{}", merged.2);
    assert_eq!(inside, (0, String::new(), String::new()));
    assert_eq!(left, ["clash", "mounted", "sub"]);
}

/// An image with a bad byte in the content of one file.
fn damage(dir: &TempDir, image: &str, content: &[u8]) {
    let mut bytes = fs::read(dir.join(image)).unwrap();
    let at = bytes
        .windows(64)
        .position(|part| part == &content[..64])
        .unwrap();
    bytes[at] ^= 1;
    fs::write(dir.join(image), bytes).unwrap();
}

#[test]
fn damage_costs_files_only_or_parts_of_them_in_every_destination() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/sub")).unwrap();
    let content = Rng::new(3).bytes(1_000_000);
    fs::write(dir.join("src/sub/bad"), &content).unwrap();
    for n in 0..20 {
        fs::write(dir.join(format!("src/sub/{n}")), Rng::new(n).bytes(20_000)).unwrap();
    }
    let args = ["copy", "-q", "--compress", "none", "src", "x.btrfs"];
    assert_eq!(run_in(dir.path(), args).0, 0);
    damage(&dir, "x.btrfs", &content[500_000 / 4096 * 4096..]);
    let bad = 500_000 / 4096 * 4096;
    for to in ["out", "out.tar", "out.sqfs", "out.btrfs"] {
        assert_eq!(
            run_in(dir.path(), ["copy", "-q", "x.btrfs", to]).0,
            2,
            "{to}"
        );
        let args = ["copy", "-q", "--skip-unreadable", "x.btrfs", to];
        let (code, _, words) = run_in(dir.path(), args);
        assert_eq!(code, 1, "{to}: {words}");
        assert!(
            words.starts_with("restow: sub/bad in x.btrfs: skipped, cannot be read: "),
            "{words}"
        );
        assert_eq!(words.lines().count(), 1, "{to}: {words}");
        let (_, found, _) = run_in(dir.path(), ["diff", "--ignore", "mtime", "src", to]);
        assert_eq!(found, "only in src: sub/bad (file)\n", "{to}");

        let kept = format!("kept-{to}");
        let args = ["copy", "-q", "--keep-damaged", "x.btrfs", &kept];
        let (code, _, words) = run_in(dir.path(), args);
        assert_eq!(code, 1, "{to}: {words}");
        let start = format!(
            "restow: sub/bad in x.btrfs: kept in part, with zeros in place of bytes {bad}-{}, ",
            bad + 4095
        );
        assert!(words.starts_with(&start), "{to}: {words}");
        assert_eq!(words.lines().count(), 1, "{to}: {words}");
        let output = restow(["cat", &kept, "sub/bad"])
            .current_dir(dir.path())
            .output();
        let mut expected = content.clone();
        expected[bad..bad + 4096].fill(0);
        assert!(output.unwrap().stdout == expected, "{to}");
    }
}

#[test]
fn a_file_that_changes_names_both_options() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/changes"), vec![b'x'; 3_000_000]).unwrap();
    // The reader of a pipe that is not read from holds the copy up, with some of the file not yet
    // read.
    let run = |options: &[&str]| {
        let mut command = restow(["copy", "-j1", "-q"]);
        command
            .args(options)
            .args(["src", "-"])
            .current_dir(dir.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdout.take().unwrap();
        let mut first = [0; 512];
        std::io::Read::read_exact(&mut pipe, &mut first).unwrap();
        fs::write(dir.join("src/changes"), vec![b'y'; 2_000_000]).unwrap();
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut pipe, &mut rest).unwrap();
        fs::write(dir.join("src/changes"), vec![b'x'; 3_000_000]).unwrap();
        (
            shown(&child.wait_with_output().unwrap()),
            [&first[..], &rest].concat(),
        )
    };
    let ((code, _, words), _) = run(&[]);
    assert_eq!(code, 2, "{words}");
    let reason = "the file changed while it was read; --accept-changed takes it as it is read, \
                  --skip-unreadable leaves it out\n";
    assert!(words.ends_with(reason), "{words}");
    let ((code, _, words), archive) = run(&["--accept-changed"]);
    assert_eq!(
        (code, &*words),
        (1, "restow: src/changes: changed while it was read\n")
    );
    fs::write(dir.join("x.tar"), archive).unwrap();
    let (_, listed, _) = run_in(dir.path(), ["ls", "-l", "x.tar", "changes"]);
    assert!(listed.contains(" 3000000 "), "{listed}");
    let (code, _, words) = run_in(dir.path(), ["copy", "--accept-changed", "x.tar", "y"]);
    assert_eq!(code, 2, "{words}");
    assert!(
        words.ends_with("--accept-changed applies to directories only\n"),
        "{words}"
    );
}

#[test]
fn standard_input_is_an_image_if_it_can_seek() {
    let dir = TempDir::new();
    trees(&dir);
    // A file of that name is not meant.
    fs::write(dir.join("-"), "not an image").unwrap();
    for image in ["x.btrfs", "x.sqfs"] {
        assert_eq!(run_in(dir.path(), ["copy", "-q", "src", image]).0, 0);
        for args in [
            &["ls", "-"][..],
            &["check", "-"],
            &["info", "-"],
            &["cat", "-", "sub/both"],
        ] {
            let file = fs::File::open(dir.join(image)).unwrap();
            let mut command = restow(args);
            let output = command.current_dir(dir.path()).stdin(file).output();
            let (code, out, words) = shown(&output.unwrap());
            assert_eq!((code, &*words), (0, ""), "{args:?}: {out}");
            let mut from_pipe = restow(args);
            from_pipe.current_dir(dir.path()).stdin(Stdio::piped());
            from_pipe.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = from_pipe.spawn().unwrap();
            let bytes = fs::read(dir.join(image)).unwrap();
            let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), &bytes);
            let (code, _, words) = shown(&child.wait_with_output().unwrap());
            assert_eq!(code, 2, "{args:?}");
            assert!(
                words.contains("image from a pipe; save it to a file first"),
                "{words}"
            );
        }
    }
}

/// An access control list that Linux refuses is lost: that is said, and no success.
#[test]
fn what_an_archive_loses_is_named_and_exits_with_1() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/file"), "content").unwrap();
    fs::set_permissions(dir.join("src/file"), fs::Permissions::from_mode(0o644)).unwrap();
    let Some(tar) = tool("tar") else {
        return;
    };
    let mut command = tar.command();
    command
        .current_dir(dir.join("src"))
        .args(["--format=pax", "-cf", "../x.tar"]);
    command.args(["--pax-option=SCHILY.acl.access:=user::rw-", "file"]);
    testkit::run(&mut command);
    let (code, _, words) = run_in(dir.path(), ["copy", "-q", "x.tar", "y"]);
    let expected = "restow: x.tar: 1 text access control list cannot be read: \
                    unknown names, or no list that Linux accepts\n";
    assert_eq!((code, &*words), (1, expected));
    assert_eq!(
        fs::metadata(dir.join("y/file")).unwrap().mode() & 0o777,
        0o644
    );
}

/// Archives that lead out of the directory: by their own link, by an existing link, and by name.
#[test]
fn hostile_archives_merge_nothing_outside() {
    let dir = TempDir::new();
    let Some(tar) = tool("tar") else {
        return;
    };
    let run = |from: &str, args: &[&str]| {
        let mut command = tar.command();
        testkit::run(command.current_dir(dir.join(from)).args(args));
    };
    fs::create_dir_all(dir.join("one")).unwrap();
    fs::create_dir_all(dir.join("two/link")).unwrap();
    fs::create_dir(dir.join("outside")).unwrap();
    fs::write(dir.join("two/link/file"), "ours").unwrap();
    symlink("../outside", dir.join("one/link")).unwrap();
    run("one", &["-cf", "../own.tar", "link"]);
    run("two", &["-rf", "../own.tar", "link/file"]);
    run("two", &["-cf", "../planted.tar", "link"]);
    run(
        "two",
        &[
            "-P",
            "-cf",
            "../up.tar",
            "--transform",
            "s,^link,../outside,",
            "link/file",
        ],
    );
    for (archive, expected) in [("own.tar", 2), ("planted.tar", 1), ("up.tar", 2)] {
        for option in ["--merge", "--keep-existing", "--keep-newer"] {
            let _ = fs::remove_dir_all(dir.join("dst"));
            fs::create_dir(dir.join("dst")).unwrap();
            symlink("../outside", dir.join("dst/link")).unwrap();
            let mut args = vec!["copy", "-q", "--merge", archive, "dst"];
            if option != "--merge" {
                args.push(option);
            }
            let (code, _, words) = run_in(dir.path(), &args);
            assert_eq!(code, expected, "{args:?}: {words}");
            assert!(names(&dir.join("outside")).is_empty(), "{args:?}");
            assert_eq!(names(&dir.join("dst")), ["link"], "{args:?}");
            assert!(dir.join("dst/link").is_symlink(), "{args:?}");
        }
    }
}

/// A tar archive of GNU tar with three files, of which the second is large.
fn three_files(dir: &TempDir) -> Vec<u8> {
    let files = dir.join("three");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("a"), "first").unwrap();
    fs::write(files.join("b"), Rng::new(4).bytes(50_000)).unwrap();
    fs::write(files.join("c"), "last").unwrap();
    let mut tar = Command::new("tar");
    tar.args(["-cf", "-", "a", "b", "c"]).current_dir(&files);
    testkit::run(&mut tar).stdout
}

#[test]
fn whole_members_of_damaged_archives_are_kept() {
    let dir = TempDir::new();
    let whole = three_files(&dir);
    let in_dir = |args: &[&str]| run_in(dir.path(), args.iter().copied());
    // GNU tar extracts a and c after a damaged header of b.
    let mut damaged = whole.clone();
    damaged[1024 + 3] ^= 1;
    fs::write(dir.join("header.tar"), &damaged).unwrap();
    let (code, _, words) = in_dir(&["copy", "-q", "header.tar", "x"]);
    assert_eq!(code, 2, "{words}");
    assert!(
        words.contains("wrong checksum") && words.contains("at byte 0x400"),
        "{words}"
    );
    assert!(
        words.ends_with("--skip-unreadable leaves it out\n"),
        "{words}"
    );
    for option in ["--skip-unreadable", "--keep-damaged"] {
        let (code, _, words) = in_dir(&["copy", "-q", option, "header.tar", "x"]);
        assert_eq!(code, 1, "{words}");
        assert!(
            words.contains("a member is left out: tar header has a wrong checksum"),
            "{words}"
        );
        assert_eq!(names(&dir.join("x")), ["a", "c"]);
        fs::remove_dir_all(dir.join("x")).unwrap();
    }
    // Cut within b, plain and compressed.
    fs::write(dir.join("cut.tar"), &whole[..30_000]).unwrap();
    let gzip = |bytes: &[u8], name: &str| {
        fs::write(dir.join("plain"), bytes).unwrap();
        testkit::run(
            Command::new("gzip")
                .args(["-kf", "plain"])
                .current_dir(dir.path()),
        );
        fs::rename(dir.join("plain.gz"), dir.join(name)).unwrap();
    };
    gzip(&whole, "cut.tar.gz");
    let packed = fs::read(dir.join("cut.tar.gz")).unwrap();
    fs::write(dir.join("cut.tar.gz"), &packed[..30_000]).unwrap();
    let cut_words = |archive: &str| match archive {
        "cut.tar" => "cut off within its last file, at byte 30000: members may be missing",
        _ => "decompression ended early",
    };
    for archive in ["cut.tar", "cut.tar.gz"] {
        let (code, words, _) = in_dir(&["check", archive]);
        assert_eq!((code, words.lines().count()), (1, 2), "{words}");
        assert!(words.contains("1 error in 2 names"), "{words}");
        assert_eq!(in_dir(&["copy", "-q", archive, "x"]).0, 2);
        for to in ["x", "x.squashfs", "x.tar"] {
            let (code, _, words) = in_dir(&["copy", "-q", "--skip-unreadable", archive, to]);
            assert_eq!(code, 1, "{words}");
            let b = "b in ARCHIVE: skipped, cannot be read: archive is cut off within this file";
            let lines = [cut_words(archive), &b.replace("ARCHIVE", archive)];
            assert!(lines.iter().all(|line| words.contains(line)), "{words}");
            assert_eq!(words.lines().count(), 2, "{words}");
            let (_, listed, _) = in_dir(&["ls", to]);
            assert_eq!(listed, "a\n", "{archive} {to}");
        }
        fs::remove_dir_all(dir.join("x")).unwrap();
        let (code, _, words) = in_dir(&["copy", "-q", "--keep-damaged", archive, "x"]);
        assert_eq!((code, words.lines().count()), (1, 2), "{words}");
        let b = format!("b in {archive}: kept in part, with zeros in place of bytes ");
        assert!(words.contains(&b), "{words}");
        assert!(!words.contains("left out"), "{words}");
        let kept = fs::read(dir.join("x/b")).unwrap();
        assert_eq!(kept.len(), 50_000);
        assert_eq!(kept[..20_000], whole[1536..21_536], "{archive}");
        assert!(kept[49_000..].iter().all(|&byte| byte == 0));
        fs::remove_dir_all(dir.join("x")).unwrap();
        for file in ["x.squashfs", "x.tar"] {
            fs::remove_file(dir.join(file)).unwrap();
        }
    }
    // Without an end marker, after b.
    fs::write(dir.join("end.tar"), &whole[..1536 + 50_176]).unwrap();
    let (code, _, words) = in_dir(&["copy", "-q", "end.tar", "x"]);
    assert_eq!(
        (code, names(&dir.join("x"))),
        (1, vec!["a".into(), "b".into()])
    );
    assert!(
        words.contains("may have been cut off between two members"),
        "{words}"
    );
}

#[test]
fn check_takes_archives_and_streams() {
    let dir = TempDir::new();
    let whole = three_files(&dir);
    let check = |args: &[&str]| run_in(dir.path(), ["check"].iter().chain(args).copied());
    fs::write(dir.join("a.tar"), &whole).unwrap();
    let (code, words, _) = check(&["a.tar"]);
    assert_eq!(
        (code, words.starts_with("0 errors in 3 names, ")),
        (0, true),
        "{words}"
    );
    fs::write(dir.join("end.tar"), &whole[..1024]).unwrap();
    let (code, words, _) = check(&["end.tar"]);
    assert_eq!(
        (code, words.contains("archive has no end marker")),
        (1, true),
        "{words}"
    );
    let mut damaged = whole.clone();
    damaged[3] ^= 1;
    fs::write(dir.join("header.tar"), &damaged).unwrap();
    let (code, words, _) = check(&["header.tar"]);
    assert_eq!(
        (code, words.contains("1 error in 2 names")),
        (1, true),
        "{words}"
    );
    for ending in ["gz", "xz", "zst"] {
        let name = format!("three.tar.{ending}");
        assert_eq!(run_in(dir.path(), ["copy", "-q", "three", &name]).0, 0);
        assert_eq!(check(&[&name]).0, 0, "{ending}");
        let mut packed = fs::read(dir.join(&name)).unwrap();
        let middle = packed.len() / 2;
        packed[middle] ^= 0x40;
        fs::write(dir.join("bad"), packed).unwrap();
        let (code, words, _) = check(&["bad"]);
        assert_eq!(code, 1, "{ending}: {words}");
    }
    // Two archives in one file; what is behind the first counts only on demand.
    fs::write(dir.join("two.tar"), [&whole[..], &damaged].concat()).unwrap();
    assert_eq!(check(&["two.tar"]).0, 0);
    let (code, words, _) = check(&["--ignore-zeros", "two.tar"]);
    assert!(code == 1 && words.contains("1 error in 3 names"), "{words}");
    let (code, _, words) = check(&["--ignore-zeros", "three"]);
    let expected = "a directory: --ignore-zeros does not apply\n";
    assert!(code == 2 && words.ends_with(expected), "{words}");
    assert_eq!(run_in(dir.path(), ["copy", "-q", "three", "s.stream"]).0, 0);
    let (code, words, _) = check(&["s.stream"]);
    assert_eq!((code, words.contains("no errors: ")), (0, true), "{words}");
    let mut stream = fs::read(dir.join("s.stream")).unwrap();
    stream[100] ^= 1;
    fs::write(dir.join("bad.stream"), stream).unwrap();
    assert_eq!(check(&["bad.stream"]).0, 1);
}

#[test]
#[ignore = "needs root"]
fn an_unreadable_directory_is_named_once_and_its_files_are() {
    let (Some(_), Some(_)) = (tool("setpriv"), tool("setfattr")) else {
        return;
    };
    let dir = TempDir::new();
    let words = r#"
cp $restow r; chmod 755 .; mkdir -p src/closed src/open; mkdir -m 777 out
echo 1 > src/closed/f; echo 2 > src/open/f; setfattr -n user.a -v 1 src/closed; chmod 700 src/closed
for to in x.squashfs x.btrfs x.tar x; do
    code=0; setpriv --reuid 65534 --clear-groups ./r copy -q --skip-unreadable \
        $([ $to != x ] || echo --no-owners) src out/$to 2> words || code=$?
    [ $code = 1 ]
    echo 'restow: src/closed: left empty, cannot be read: permission denied' | diff - words
done
"#;
    super::mount_points::in_own_mounts(dir.path(), words);
}

#[test]
#[ignore = "needs root"]
fn a_device_that_only_root_can_make_is_a_loss() {
    let Some(_) = tool("setpriv") else { return };
    let dir = TempDir::new();
    let words = r#"
cp $restow r; chmod 755 .; mkdir src; mkdir -m 777 out; mknod src/null c 1 3; $restow copy -q src x.tar
code=0; setpriv --reuid 65534 --clear-groups ./r copy --json --no-owners x.tar out/x > done || code=$?
[ $code = 1 ]; [ ! -e out/x/null ]
grep -q '"losses":\[{"path":"null","message":"out/x/null: device file not preserved: ' done
grep -q '"not_preserved":\[\]' done
"#;
    super::mount_points::in_own_mounts(dir.path(), words);
}
