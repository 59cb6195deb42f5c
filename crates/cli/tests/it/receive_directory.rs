//! `restow receive --to directory`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use codec::Algorithm;
use sendstream::{Command, EncodedWrite, Replay};
use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, cases, run, tool};
use tree::manifest::Manifest;
use tree::{Aspects, Time};

use super::receive::{change, manifest, mounted, send, stream};
use super::send_incremental::MOUNTED;
use super::{btrfs_in, names, restow, run_in};

const fn at(seconds: i64) -> Time {
    Time {
        seconds,
        nanoseconds: 7,
    }
}

const fn utimes(path: &[u8], seconds: i64) -> Command<'_> {
    Command::Utimes {
        path,
        atime: at(seconds),
        mtime: at(seconds),
        ctime: at(seconds),
        otime: None,
    }
}

const fn mkfile(path: &[u8]) -> Command<'_> {
    Command::Mkfile { path, ino: 257 }
}

const fn mkdir(path: &[u8]) -> Command<'_> {
    Command::Mkdir { path, ino: 257 }
}

const fn write<'a>(path: &'a [u8], file_offset: u64, data: &'a [u8]) -> Command<'a> {
    Command::Write {
        path,
        file_offset,
        data,
    }
}

const fn chmod(path: &[u8], mode: u64) -> Command<'_> {
    Command::Chmod { path, mode }
}

const fn chown(path: &[u8], id: u64) -> Command<'_> {
    Command::Chown {
        path,
        uid: id,
        gid: id,
    }
}

const fn rename<'a>(path: &'a [u8], path_to: &'a [u8]) -> Command<'a> {
    Command::Rename { path, path_to }
}

const fn set_xattr<'a>(path: &'a [u8], name: &'a [u8], value: &'a [u8]) -> Command<'a> {
    Command::SetXattr {
        path,
        xattr_name: name,
        xattr_data: value,
    }
}

const fn clone<'a>(from: (&'a [u8], u64), len: u64, to: (&'a [u8], u64)) -> Command<'a> {
    Command::Clone {
        file_offset: to.1,
        clone_len: len,
        path: to.0,
        clone_uuid: [7; 16],
        clone_ctransid: 9,
        clone_path: from.0,
        clone_offset: from.1,
    }
}

/// Receives a stream into `to` below a directory; gives exit code and messages.
fn receive(dir: &TempDir, stream: &[u8], more: &[&str]) -> (i32, String) {
    fs::create_dir_all(dir.join("to")).unwrap();
    fs::write(dir.join("stream"), stream).unwrap();
    let args = ["receive", "--to", "directory", "-f", "stream", "to"];
    let (code, _, words) = run_in(dir.path(), [&args[..], more].concat());
    (code, words)
}

/// What a stream is as a tree.
fn sent(stream: &[u8]) -> Manifest {
    let mut replay = Replay::new();
    replay.add(Arc::new(stream.to_vec())).unwrap();
    Manifest::of(&*replay.subvolumes()[0], &Aspects::default()).unwrap()
}

fn is_root(dir: &TempDir) -> bool {
    fs::metadata(dir.path()).unwrap().uid() == 0
}

#[test]
#[ignore = "needs root"]
fn what_the_system_does_on_its_own_is_undone() {
    let dir = TempDir::new();
    // u::rwx,u:1000:rwx,g::r-x,m::rwx,o::r-x
    let acl = b"\x02\0\0\0\x01\0\x07\0\xff\xff\xff\xff\x02\0\x07\0\xe8\x03\0\0\x04\0\x05\0\xff\xff\xff\xff\
        \x10\0\x07\0\xff\xff\xff\xff\x20\0\x05\0\xff\xff\xff\xff";
    let capability = b"\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let data = vec![0x55; 20_000];
    let mut commands = vec![
        // What is made in the root would inherit both.
        set_xattr(b"", b"system.posix_acl_default", acl),
        chown(b"", 5),
        chmod(b"", 0o2755),
        utimes(b"", 100),
        mkfile(b"f"),
        mkdir(b"d"),
        // Cleared by a new owner, and by writing.
        chmod(b"f", 0o6755),
        set_xattr(b"f", b"security.capability", capability),
        chown(b"f", 3),
        utimes(b"f", 200),
        write(b"f", 4096, &data),
        Command::Link {
            path: b"d/link",
            path_link: b"f",
        },
        utimes(b"d", 300),
        write(b"d/link", 0, b"start"),
        mkfile(b"d/a"),
        mkfile(b"d/b"),
        rename(b"d/b", b"d/c"),
        Command::Unlink { path: b"d/a" },
        // Its times are those of a file about which nothing is said.
        clone((b"f", 4096), 8192, (b"d/c", 8192)),
        clone((b"f", 4097), 100, (b"d/c", 3)),
        Command::Fallocate {
            path: b"d/c",
            fallocate_mode: 3,
            file_offset: 9000,
            size: 5000,
        },
        Command::Fallocate {
            path: b"d/c",
            fallocate_mode: 0,
            file_offset: 1 << 40,
            size: 5000,
        },
        Command::Truncate {
            path: b"f",
            size: 6000,
        },
        Command::Mkfifo {
            path: b"d/p",
            ino: 260,
            rdev: None,
            mode: None,
        },
        Command::Mknod {
            path: b"d/null",
            ino: 260,
            rdev: 0x103,
            mode: 0o020_666,
        },
        Command::Symlink {
            path: b"d/l",
            ino: 261,
            path_link: b"../f",
        },
        utimes(b"d/l", 400),
        chown(b"d/l", 9),
        chmod(b"d/c", 0o4000),
        write(b"d/c", 0, b"x"),
    ];
    // More directories than are remembered.
    let many: Vec<[Vec<u8>; 2]> = (0..40)
        .map(|number| [format!("many{number}"), format!("many{number}/f")].map(String::into_bytes))
        .collect();
    for [outer, _] in &many {
        commands.extend([mkdir(outer), utimes(outer, 500)]);
    }
    for _ in 0..2 {
        for [_, inner] in &many {
            commands.extend([
                mkfile(inner),
                rename(inner, b"moved"),
                rename(b"moved", inner),
            ]);
        }
        for [_, inner] in &many {
            commands.push(Command::Unlink { path: inner });
        }
    }
    commands.push(rename(b"many3", b"d/many"));
    commands.push(Command::Rmdir { path: b"many4" });
    let stream = stream(&commands, true);
    let (code, words) = receive(&dir, &stream, &["-q"]);
    assert_eq!((code, &*words), (0, ""));
    let difference = sent(&stream).difference(&manifest(&dir.join("to/s")));
    assert_eq!(difference, "");
    assert_eq!(names(&dir.join("to")), [".restow-received", "s"]);
}

/// As with `copy`; but what holds the directory must be there.
#[test]
fn the_directory_is_made_if_it_is_not_there() {
    let dir = TempDir::new();
    let stream = stream(&[mkdir(b"d")], true);
    fs::write(dir.join("stream"), &stream).unwrap();
    for (to, code) in [("new", 0), ("no/new", 2), ("stream", 2)] {
        let (found, _, words) = run_in(dir.path(), [&RECEIVE[..6], &[to]].concat());
        assert_eq!(found, code, "{to}: {words}");
    }
    assert!(dir.join("new/s/d").is_dir());
    assert_eq!(fs::read(dir.join("stream")).unwrap(), stream);
    // Nothing is made for a stream that is not there.
    let (found, _, _) = run_in(dir.path(), ["receive", "--to", "directory", "-f", "x", "y"]);
    assert_eq!((found, dir.join("y").exists()), (2, false));
}

const RECEIVE: [&str; 7] = ["receive", "--to", "directory", "-q", "-f", "stream", "to"];

/// What [`RECEIVE`] in `dir` does for another user than root; `None` if this cannot be tried.
fn received_by_nobody(dir: &Path) -> Option<std::process::Output> {
    let setpriv = tool("setpriv")?;
    fs::copy(env!("CARGO_BIN_EXE_restow"), dir.join("restow")).unwrap();
    for path in [dir, &dir.join("to")] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    let mut command = setpriv.command();
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    command.arg(dir.join("restow")).args(RECEIVE);
    Some(command.current_dir(dir).output().unwrap())
}

/// ext4 gives the inode number of a removed file to the next one.
#[test]
#[ignore = "needs root"]
fn a_file_is_not_taken_for_a_removed_one_with_its_number() {
    let Some(mkfs) = tool("mkfs.ext4") else {
        return;
    };
    // Room for the program itself, which has its debug information.
    let backing = BackingFile::create(512 << 20);
    run(mkfs.command().arg("-q").arg(backing.path()));
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    let mount = Mount::new(device, FsType::Ext4, "");
    let dir = mount.path();
    let device = Command::Mknod {
        path: b"null",
        ino: 258,
        rdev: 0x103,
        mode: 0o020_666,
    };
    let commands = [
        device,
        Command::Unlink { path: b"null" },
        mkfile(b"f"),
        write(b"f", 0, b"content"),
    ];
    fs::create_dir(dir.join("to")).unwrap();
    fs::write(dir.join("stream"), stream(&commands, true)).unwrap();
    let Some(output) = received_by_nobody(dir) else {
        return;
    };
    let (code, _, words) = super::shown(&output);
    assert_eq!((code, &*words), (0, ""));
    assert_eq!(fs::read(dir.join("to/s/f")).unwrap(), b"content");
}

#[test]
fn an_ordinary_user_gets_what_the_system_permits() {
    let dir = TempDir::new();
    let commands = [
        utimes(b"", 100),
        mkdir(b"d"),
        chmod(b"d", 0o555),
        utimes(b"d", 200),
        mkdir(b"d/deep"),
        chmod(b"d/deep", 0o311),
        mkfile(b"d/deep/f"),
        chmod(b"d/deep/f", 0o400),
        write(b"d/deep/f", 0, b"content"),
        set_xattr(b"d/deep/f", b"user.x", b"value"),
        utimes(b"d/deep/f", 300),
        Command::Mknod {
            path: b"o258-9-0",
            ino: 258,
            rdev: 0x103,
            mode: 0o020_666,
        },
        rename(b"o258-9-0", b"d/null"),
        chmod(b"d/null", 0o666),
        mkfile(b"other"),
        chown(b"other", 1),
        chmod(b"other", 0o4755),
        chmod(b"", 0o500),
    ];
    fs::create_dir(dir.join("to")).unwrap();
    fs::write(dir.join("stream"), stream(&commands, true)).unwrap();
    let output = if is_root(&dir) {
        match received_by_nobody(dir.path()) {
            Some(output) => output,
            None => return,
        }
    } else {
        restow(RECEIVE).current_dir(dir.path()).output().unwrap()
    };
    let (code, _, words) = super::shown(&output);
    // The record needs a directory that can be listed.
    assert_eq!(code, 2, "{words}");
    assert!(
        words.contains("write to/s: read d/deep: permission denied"),
        "{words}"
    );
    let mode = |path: &str| fs::symlink_metadata(dir.join(path)).unwrap().mode() & 0o7777;
    assert_eq!(mode("to/s"), 0o500);
    assert_eq!(mode("to/s/d"), 0o555);
    let time = |path: &str| fs::symlink_metadata(dir.join(path)).unwrap().mtime();
    assert_eq!((time("to/s"), time("to/s/d")), (100, 200));
    if is_root(&dir) {
        assert_eq!(mode("to/s/d/deep"), 0o311);
        assert_eq!(mode("to/s/d/deep/f"), 0o400);
        assert_eq!(time("to/s/d/deep/f"), 300);
        assert_eq!(fs::read(dir.join("to/s/d/deep/f")).unwrap(), b"content");
        assert_eq!(names(&dir.join("to/s/d")), ["deep"]);
        assert_eq!(mode("to/s/other"), 0o755);
    }
    for path in ["to/s", "to/s/d", "to/s/d/deep"] {
        fs::set_permissions(dir.join(path), fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn a_stream_that_means_harm_leaves_nothing_in_a_directory() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("to")).unwrap();
    fs::write(dir.join("precious"), "x").unwrap();
    let outside = dir.join("precious");
    let absolute = outside.as_os_str().as_encoded_bytes();
    let link = |path_link| Command::Symlink {
        path: b"l",
        ino: 257,
        path_link,
    };
    let garbage = Command::EncodedWrite(EncodedWrite {
        path: b"f",
        file_offset: 0,
        unencoded_file_len: 4096,
        unencoded_len: 4096,
        unencoded_offset: 0,
        compression: Algorithm::Zstd,
        encryption: None,
        data: &[0x55; 100],
    });
    let file = mkfile(b"f");
    for (commands, words) in [
        (vec![write(b"../precious", 0, b"evil")], ".."),
        (vec![write(absolute, 0, b"evil")], "absolute"),
        (
            vec![link(b".."), write(b"l/precious", 0, b"evil")],
            "not a directory",
        ),
        (
            vec![link(absolute), write(b"l", 0, b"evil")],
            "not a regular file",
        ),
        (
            vec![
                link(absolute),
                Command::Truncate {
                    path: b"l",
                    size: 0,
                },
            ],
            "not a regular file",
        ),
        (vec![link(b".."), mkfile(b"l/new")], "not a directory"),
        (
            vec![link(b".."), rename(b"l/precious", b"f")],
            "not a directory",
        ),
        (vec![file, file], "new name is that of another file"),
        (
            vec![file, mkfile(b"g"), rename(b"f", b"g")],
            "new name is that of another file",
        ),
        (vec![mkdir(b"d"), rename(b"d", b"d/e")], "invalid argument"),
        (vec![file, garbage], "zstd"),
        (
            vec![
                file,
                write(b"f", 0, b"four"),
                clone((b"f", 1), 4, (b"f", 9)),
            ],
            "beyond the end",
        ),
        (
            vec![
                file,
                write(b"f", 0, b"four"),
                clone((b"f", u64::MAX), 4, (b"f", 9)),
            ],
            "largest possible file",
        ),
        (
            vec![
                file,
                write(b"f", 0, b"four"),
                clone((b"f", 0), 4, (b"f", u64::MAX - 2)),
            ],
            "largest possible file",
        ),
        (
            vec![
                file,
                Command::Truncate {
                    path: b"f",
                    size: u64::MAX,
                },
            ],
            "",
        ),
        (vec![Command::Unlink { path: b"f" }], "no such file"),
    ] {
        let (code, told) = receive(&dir, &stream(&commands, true), &["-q"]);
        let is_expected = told.to_lowercase().contains(words);
        assert!(code == 2 && is_expected, "{words}: {told}");
        assert_eq!(names(&dir.join("to")), [""; 0], "{told}");
        assert_eq!(fs::read(&outside).unwrap(), b"x");
    }
    for broken in [stream(&[file], false), Vec::new(), b"btrfs-strea".to_vec()] {
        assert_eq!(receive(&dir, &broken, &["-q"]).0, 2);
        assert_eq!(names(&dir.join("to")), [""; 0]);
    }
}

#[test]
#[ignore = "needs root"]
fn a_parent_is_copied_with_all_that_it_has() {
    let dir = TempDir::new();
    let capability = b"\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let base = [
        chmod(b"", 0o2750),
        utimes(b"", 100),
        mkdir(b"d"),
        mkfile(b"d/f"),
        write(b"d/f", 1 << 30, b"content"),
        chown(b"d/f", 3),
        chmod(b"d/f", 0o6755),
        set_xattr(b"d/f", b"security.capability", capability),
        set_xattr(b"d", b"user.x", b"value"),
        utimes(b"d/f", 200),
        Command::Link {
            path: b"link",
            path_link: b"d/f",
        },
        Command::Symlink {
            path: b"l",
            ino: 261,
            path_link: b"d/f",
        },
        utimes(b"l", 400),
        Command::Mknod {
            path: b"null",
            ino: 260,
            rdev: 0x103,
            mode: 0o020_666,
        },
        utimes(b"d", 300),
    ];
    let base = stream(&base, true);
    assert_eq!(receive(&dir, &base, &["-q"]), (0, String::new()));
    let next = super::receive::stream_of(
        Command::Snapshot {
            path: b"t",
            uuid: [8; 16],
            ctransid: 10,
            clone_uuid: [7; 16],
            clone_ctransid: 9,
        },
        &[
            write(b"link", 0, b"new"),
            rename(b"d", b"e"),
            clone((b"e/f", 1 << 30), 7, (b"l2", 0)),
        ],
    );
    // The clone is to no file.
    assert_eq!(receive(&dir, &next, &["-q"]).0, 2);
    assert_eq!(names(&dir.join("to")), [".restow-received", "s"]);
    let commands = [
        write(b"link", 0, b"new"),
        rename(b"d", b"e"),
        mkfile(b"g"),
        Command::Clone {
            file_offset: 9,
            clone_len: 7,
            path: b"g",
            clone_uuid: [7; 16],
            clone_ctransid: 9,
            clone_path: b"d/f",
            clone_offset: 1 << 30,
        },
    ];
    let start = Command::Snapshot {
        path: b"t",
        uuid: [8; 16],
        ctransid: 10,
        clone_uuid: [7; 16],
        clone_ctransid: 9,
    };
    let next = super::receive::stream_of(start, &commands);
    assert_eq!(receive(&dir, &next, &["-q"]), (0, String::new()));
    let mut replay = Replay::new();
    replay.add(Arc::new(base)).unwrap();
    replay.add(Arc::new(next)).unwrap();
    for (tree, name) in replay.subvolumes().iter().zip(["s", "t"]) {
        let must = Manifest::of(&**tree, &Aspects::default()).unwrap();
        assert_eq!(must.difference(&manifest(&dir.join("to").join(name))), "");
    }
    // Holes stay.
    assert!(fs::metadata(dir.join("to/t/link")).unwrap().blocks() < 100);
}

#[test]
fn several_streams_are_received_up_to_the_end_that_was_asked_for() {
    let dir = TempDir::new();
    let both = [stream(&[mkfile(b"f")], true), {
        let whole = stream(&[mkfile(b"g")], true);
        whole[..whole.len() - 3].to_vec()
    }];
    let (code, words) = receive(&dir, &both.concat(), &["-q", "-e", "--no-owners"]);
    assert_eq!((code, &*words), (0, ""));
    assert_eq!(names(&dir.join("to/s")), ["f"]);
}

#[test]
#[ignore = "needs root"]
fn clones_are_shared_where_the_file_system_can() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let target = mounted(&mkfs, "noatime");
    let data = vec![0x55; 65_536];
    let commands = [
        mkfile(b"f"),
        write(b"f", 0, &data[..40_000]),
        write(b"f", 40_000, &data[..25_536]),
        mkfile(b"g"),
        clone((b"f", 4096), 32_768, (b"g", 0)),
        clone((b"f", 1), 100, (b"g", 65_536)),
    ];
    let stream = stream(&commands, true);
    for (to, words) in [
        (target.path(), "1 clone shared, 1 clone copied, 100 B"),
        (TempDir::new().path(), "copied"),
    ] {
        fs::create_dir_all(to).unwrap();
        let file = to.join("stream");
        fs::write(&file, &stream).unwrap();
        let output = restow(["receive", "--to", "directory", "-v", "-f"])
            .args([&*file, to])
            .output()
            .unwrap();
        let (code, _, told) = super::shown(&output);
        assert_eq!(code, 0, "{told}");
        assert!(told.contains(words), "{told}");
        assert_eq!(sent(&stream).difference(&manifest(&to.join("s"))), "");
    }
}

#[test]
#[ignore = "needs root"]
fn streams_of_linux_make_the_directories_that_were_sent() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    for seed in 0..cases(2) {
        let mut rng = Rng::new(seed);
        let source = mounted(&mkfs, MOUNTED[seed as usize % MOUNTED.len()]);
        let at = source.path();
        btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
        for name in ["a", "b", "c"] {
            change(&at.join("s"), &mut rng, 60);
            btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", name]);
        }
        for proto in [
            &["--proto", "1"][..],
            &["--proto", "2", "--compressed-data"],
        ] {
            let [plain, other] = [TempDir::new(), TempDir::new()];
            let on_btrfs = mounted(&mkfs, "noatime");
            for (name, parent) in [("a", None), ("b", Some("a")), ("c", Some("b"))] {
                let more = parent.map_or(vec![], |parent| vec!["-p", parent]);
                let file = other.join("stream");
                fs::write(&file, send(&btrfs, at, &[proto, &more].concat(), name)).unwrap();
                for to in [plain.path(), on_btrfs.path()] {
                    let received = restow(["receive", "--to", "directory", "-q", "-f"])
                        .args([&*file, to])
                        .stdin(Stdio::null())
                        .output()
                        .unwrap();
                    let (code, _, words) = super::shown(&received);
                    assert!(code <= 1, "seed {seed} {name}: {words}");
                    let is = manifest(&Path::new(to).join(name));
                    let difference = manifest(&at.join(name)).difference(&is);
                    assert_eq!(difference, "", "seed {seed} {proto:?} {name}");
                }
            }
        }
    }
}
