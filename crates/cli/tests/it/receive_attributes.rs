//! `restow receive`: attributes that the receiving side locks, lacks or adds, and what follows the
//! end of a stream.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command as Program, Stdio};

use sendstream::{Command, StreamWriter, Version};
use testkit::{TempDir, run, tool};

use super::receive::{manifest, mounted, send};
use super::{btrfs_in, names, restow, run_in, shown};

/// A stream of the subvolume `name`, built on the one whose name is `parent`.
fn stream(name: &str, parent: Option<&str>, commands: &[Command<'_>]) -> Vec<u8> {
    let uuid = |name: &str| [name.as_bytes()[0]; 16];
    let path = name.as_bytes();
    let start = match parent {
        None => Command::Subvol {
            path,
            uuid: uuid(name),
            ctransid: 9,
        },
        Some(parent) => Command::Snapshot {
            path,
            uuid: uuid(name),
            ctransid: 9,
            clone_uuid: uuid(parent),
            clone_ctransid: 9,
        },
    };
    let mut writer = StreamWriter::new(Vec::new(), Version::V2);
    writer.header().unwrap();
    for command in [start].iter().chain(commands).chain(&[Command::End]) {
        writer.command(command).unwrap();
    }
    writer.into_inner()
}

/// Receives a stream from standard input in a directory; gives exit code and messages.
fn receive(dir: &Path, stream: &[u8], args: &[&str]) -> (i32, String) {
    let mut command = restow(["receive", "-q"]);
    command.args(args).current_dir(dir).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It may end before it has read all.
    let _ = stdin.write_all(stream);
    drop(stdin);
    let (code, out, words) = shown(&child.wait_with_output().unwrap());
    assert_eq!(out, "");
    (code, words)
}

const fn fine() -> (i32, String) {
    (0, String::new())
}

/// The attributes of a directory and of all below it, by `lsattr` or `getfattr`.
fn listed(program: &str, args: &[&str], at: &Path) -> Vec<String> {
    let output = run(Program::new(program).args(args).arg(".").current_dir(at));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// A directory that is immutable can be neither renamed nor deleted, also as a snapshot.
#[test]
#[ignore = "needs root"]
fn a_locked_root_is_locked_last_and_a_failed_try_leaves_nothing() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    // With `lsattr`.
    let Some(chattr) = tool("chattr") else {
        return;
    };
    let mounts = [0; 2].map(|_| mounted(&mkfs, "noatime"));
    let [at, to] = [0, 1].map(|side: usize| mounts[side].path());
    btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
    fs::write(at.join("s/file"), "x").unwrap();
    let mut last: Option<&str> = None;
    let set = |flags: &str| run(chattr.command().args([flags, "s"]).current_dir(at));
    for (name, flags) in [
        ("a", "-d"),
        ("b", "+i"),
        ("c", "+ia"),
        ("d", "+a"),
        ("e", "-d"),
    ] {
        set("-ia");
        fs::write(at.join("s").join(name), name).unwrap();
        set(flags);
        btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", name]);
        let parent = last.map_or(vec![], |last| vec!["-p", last]);
        let sent = send(&btrfs, at, &[&["--proto", "2"], &parent[..]].concat(), name);
        let before = names(to);
        let (code, words) = receive(to, &sent[..sent.len() - 3], &["."]);
        assert_eq!(code, 2, "{words}");
        assert_eq!(names(to), before, "{name}");
        assert_eq!(receive(to, &sent, &["."]), fine(), "{name}");
        let [sent, got] = [at, to].map(|side| listed("lsattr", &["-da"], &side.join(name)));
        assert_eq!(got, sent, "{name}");
        let [sent, got] = [at, to].map(|side| manifest(&side.join(name)));
        assert_eq!(sent.difference(&got), "", "{name}");
        last = Some(name);
    }
    let locked = listed("lsattr", &["-da"], &to.join("c"));
    assert!(locked[0].starts_with("----ia"), "{locked:?}");
}

/// The first stream sets an attribute that cannot be held, and says so; the next ones do not know.
#[test]
fn an_attribute_that_could_not_be_held_is_removed_without_an_error() {
    let long = vec![b'x'; 20_000];
    let (path, xattr_data) = (&b"f"[..], &long[..]);
    for (to, xattr_name) in [
        // No file system has attributes of this kind.
        (&["--to", "directory", "dir"][..], &b"elsewhere.x"[..]),
        // It does not fit in a tree block.
        (&["--to", "image", "--no-verify", "image"], b"user.long"),
    ] {
        let dir = TempDir::new();
        let file = Command::Mkfile { path, ino: 257 };
        let set = Command::SetXattr {
            path,
            xattr_name,
            xattr_data,
        };
        let remove = Command::RemoveXattr { path, xattr_name };
        let owner = ["--no-owners"];
        let to = [
            to,
            if to[1] == "directory" {
                &owner
            } else {
                &[][..]
            },
        ]
        .concat();
        let try_all = |stream: &[u8]| receive(dir.path(), stream, &to);
        let (code, words) = try_all(&stream("a", None, &[file, set]));
        assert_eq!(code, 1, "{words}");
        assert!(
            words.contains("a/f: ") && words.contains("attribute"),
            "{words}"
        );
        assert_eq!(try_all(&stream("b", Some("a"), &[remove])), fine());
        assert_eq!(try_all(&stream("c", Some("b"), &[])), fine());
        // Without a parent, it cannot have been there.
        let (code, words) = try_all(&stream("x", None, &[file, remove]));
        assert_eq!(code, 2, "{words}");
        let missing = Command::RemoveXattr {
            path: b"missing",
            xattr_name,
        };
        let (code, words) = try_all(&stream("d", Some("b"), &[missing]));
        assert_eq!(code, 2, "{words}");
    }
}

/// The same for a subvolume whose parent comes from elsewhere.
#[test]
#[ignore = "needs root"]
fn an_attribute_that_the_parent_lacks_is_removed_on_a_mounted_btrfs() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let target = mounted(&mkfs, "noatime");
    let path = &b"f"[..];
    let file = Command::Mkfile { path, ino: 257 };
    let remove = Command::RemoveXattr {
        path,
        xattr_name: b"user.long",
    };
    let to = target.path();
    assert_eq!(receive(to, &stream("a", None, &[file]), &["."]), fine());
    assert_eq!(
        receive(to, &stream("b", Some("a"), &[remove]), &["."]),
        fine()
    );
    let (code, words) = receive(to, &stream("c", None, &[file, remove]), &["."]);
    assert_eq!(code, 2, "{words}");
    assert_eq!(names(to), ["a", "b"]);
}

/// `btrfs receive` gives the received files what its directory, or the sent one, has.
#[test]
#[ignore = "needs root"]
fn nothing_is_inherited_from_the_directory_that_receives() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let (Some(setfacl), Some(_)) = (tool("setfacl"), tool("getfattr")) else {
        return;
    };
    // With `lsattr`.
    let Some(chattr) = tool("chattr") else {
        return;
    };
    let mounts = [0; 2].map(|_| mounted(&mkfs, "noatime"));
    let [at, to] = [0, 1].map(|side: usize| mounts[side].path());
    let acl = |at: &Path| run(setfacl.command().args(["-d", "-m", "u:1234:rwx"]).arg(at));
    let compress =
        |at: &Path| btrfs_in(&btrfs, at, &["property", "set", ".", "compression", "lzo"]);
    acl(to);
    compress(to);
    btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
    let s = at.join("s");
    let make = |name: &str| {
        fs::create_dir(s.join(format!("d{name}"))).unwrap();
        for dir in ["", "da/"] {
            fs::write(s.join(format!("{dir}f{name}")), name.repeat(9000)).unwrap();
        }
        run(Program::new("mkfifo").arg(s.join(format!("p{name}"))));
    };
    make("a");
    let next = |name: &str, parent: &[&str]| {
        btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", name]);
        let sent = send(&btrfs, at, &[&["--proto", "2"], parent].concat(), name);
        assert_eq!(receive(to, &sent, &["."]), fine(), "{name}");
        let all = ["-R", "-d", "-h", "-m", "-"];
        let [sent, got] = [at, to].map(|side| listed("getfattr", &all, &side.join(name)));
        assert_eq!(got, sent, "{name}");
        let [sent, got] = [at, to].map(|side| listed("lsattr", &["-R"], &side.join(name)));
        assert_eq!(got, sent, "{name}");
        let [sent, got] = [at, to].map(|side| manifest(&side.join(name)));
        assert_eq!(sent.difference(&got), "", "{name}");
    };
    next("a", &[]);
    // Files of the sent root that do not have what it gives.
    acl(&s);
    compress(&s);
    next("b", &["-p", "a"]);
    make("c");
    for name in ["dc", "fc", "da/fc", "pc"] {
        run(setfacl.command().arg("-b").arg(s.join(name)));
    }
    for name in ["dc", "fc"] {
        let property = ["property", "set", name, "compression", ""];
        btrfs_in(&btrfs, &s, &property);
        run(chattr.command().arg("-m").arg(s.join(name)));
    }
    next("c", &["-p", "b"]);
    next("full", &[]);
}

#[test]
fn a_subvolume_with_the_name_of_the_record_breaks_nothing() {
    let dir = TempDir::new();
    let to = ["--to", "directory", "to"];
    let bad = stream(".restow-received", None, &[]);
    let refused = |stream: &[u8]| {
        let (code, words) = receive(dir.path(), stream, &to);
        assert_eq!(code, 2, "{words}");
        assert!(
            words.contains("to/.restow-received is the record"),
            "{words}"
        );
    };
    refused(&bad);
    assert_eq!(names(&dir.join("to")), [""; 0]);
    let good = stream("a", None, &[]);
    refused(&[&good[..], &bad].concat());
    assert_eq!(names(&dir.join("to")), [".restow-received", "a"]);
    let next = stream("b", Some("a"), &[]);
    assert_eq!(receive(dir.path(), &next, &to), fine());
    // Images keep no such record.
    let image = ["--to", "image", "image"];
    assert_eq!(receive(dir.path(), &bad, &image), fine());
    let (code, out, _) = run_in(dir.path(), ["ls", "image"]);
    assert_eq!((code, &*out), (0, ".restow-received\n"));
}

/// Each reader takes the stream that is its own, from a pipe and from a file.
#[test]
fn what_follows_the_end_is_for_the_next_reader() {
    let data = b"some data ".repeat(2000);
    let streams = ["a", "b", "c"].map(|name| {
        let write = Command::Write {
            path: b"f",
            file_offset: 0,
            data: &data,
        };
        let file = Command::Mkfile {
            path: b"f",
            ino: 257,
        };
        stream(name, None, &[file, write])
    });
    let rest = b"not a stream at all";
    let script = "
        set -e
        r() { \"$RESTOW\" receive -q -e \"$@\"; }
        r --to directory --no-owners dir
        r --to image image
        r --dump > dump
        cat > rest";
    for input in ["cat in |", "<in"] {
        let dir = TempDir::new();
        fs::write(dir.join("in"), [&streams.concat()[..], rest].concat()).unwrap();
        let script = match input {
            "<in" => format!("{{ {script}\n}} <in"),
            pipe => format!("{pipe} {{ {script}\n}}"),
        };
        let mut shell = Program::new("sh");
        shell.env("RESTOW", env!("CARGO_BIN_EXE_restow"));
        run(shell.args(["-c", &script]).current_dir(dir.path()));
        assert_eq!(fs::read(dir.join("rest")).unwrap(), rest, "{input}");
        assert!(fs::read(dir.join("dir/a/f")).unwrap() == data, "{input}");
        let (code, out, _) = run_in(dir.path(), ["cat", "image", "b/f"]);
        assert!(code == 0 && out.as_bytes() == data, "{input}");
        let dump = fs::read_to_string(dir.join("dump")).unwrap();
        assert!(dump.starts_with("subvol          ./c "), "{dump}");
        assert_eq!(names(dir.path()), ["dir", "dump", "image", "in", "rest"]);
    }
    // A cut stream is no image, and no device can hold it.
    let dir = TempDir::new();
    let cut = &streams[0][..streams[0].len() - 3];
    let (code, words) = receive(dir.path(), cut, &["-e", "--to", "image", "image"]);
    assert_eq!(code, 2);
    assert!(words.contains("command 4: send stream ends in"), "{words}");
    assert_eq!(names(dir.path()), [""; 0]);
    let mut file = File::create(dir.join("in")).unwrap();
    file.write_all(&streams.concat()).unwrap();
    let args = ["receive", "-q", "-e", "--to", "image", "-f", "in", "image"];
    assert_eq!(run_in(dir.path(), args).0, 0);
    let (code, out, _) = run_in(dir.path(), ["ls", "image"]);
    assert_eq!((code, &*out), (0, "a\n"));
}

/// The same into a mounted btrfs, from a pipe.
#[test]
#[ignore = "needs root"]
fn a_mounted_btrfs_takes_its_stream_and_leaves_the_rest() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let (target, dir) = (mounted(&mkfs, "noatime"), TempDir::new());
    let file = Command::Mkfile {
        path: b"f",
        ino: 257,
    };
    let streams = ["a", "b"].map(|name| stream(name, None, &[file]));
    fs::write(dir.join("in"), [&streams.concat()[..], b"rest"].concat()).unwrap();
    let mut shell = Program::new("sh");
    shell.env("RESTOW", env!("CARGO_BIN_EXE_restow"));
    shell.env("TO", target.path()).current_dir(dir.path());
    let script =
        "set -e; r() { \"$RESTOW\" receive -q -e \"$TO\"; }; cat in | { r; r; cat > rest; }";
    run(shell.args(["-c", script]));
    assert_eq!(fs::read(dir.join("rest")).unwrap(), b"rest");
    assert_eq!(names(target.path()), ["a", "b"]);
}

/// Linux takes the owner 2^32 - 1 for "as it is", and lacks larger ones.
#[test]
fn owners_that_linux_lacks_are_refused_by_all() {
    let last = u64::from(u32::MAX) - 1;
    for (uid, gid, is_owner) in [
        (last, last, true),
        (last + 1, 0, false),
        (0, last + 1, false),
        (1 << 32, 0, false),
        (0, u64::MAX, false),
    ] {
        let dir = TempDir::new();
        let path = &b""[..];
        let chown = Command::Chown { path, uid, gid };
        fs::write(dir.join("in"), stream("a", None, &[chown])).unwrap();
        for args in [
            &["stream", "verify", "in"][..],
            &["stream", "convert", "--proto", "1", "in", "out"],
            &[
                "receive",
                "-q",
                "--to",
                "directory",
                "--no-owners",
                "-f",
                "in",
                "dir",
            ],
            &["receive", "-q", "--to", "image", "-f", "in", "image"],
            &["ls", "-d", "in"],
        ] {
            let (code, out, words) = run_in(dir.path(), args);
            let words = out + &words;
            if is_owner {
                assert_eq!(code, 0, "{args:?}: {words}");
                continue;
            }
            assert!(code == 1 || code == 2, "{args:?}: {words}");
            assert!(words.contains("command 2: "), "{args:?}: {words}");
            assert!(
                words.contains("owner is above 2^32 - 2"),
                "{args:?}: {words}"
            );
        }
        let left = names(&dir.path().join("."));
        assert!(
            is_owner || left.iter().all(|it| it == "in" || it == "dir"),
            "{left:?}"
        );
        // What is wrong with it can be seen.
        let (code, out, _) = run_in(dir.path(), ["stream", "dump", "in"]);
        assert_eq!(code, 0);
        assert!(out.contains(&format!("uid={uid} gid={gid}")), "{out}");
    }
}
