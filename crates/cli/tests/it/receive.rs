//! `restow receive`, against `btrfs receive` and hostile streams.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command as Program, Stdio};
use std::sync::Arc;

use codec::{Algorithm, Decoder};
use sendstream::{Command, EncodedWrite, Replay, StreamReader, StreamWriter, Version};
use testkit::{
    Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, Tool, cases, newer_tool, run,
    tool,
};
use tree::manifest::Manifest;
use tree::{Aspects, HostDir};

use super::send_incremental::MOUNTED;
use super::{btrfs_in, names, restow, run_in, shown};

/// A stream that Linux made.
pub(crate) fn kernel_made(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../sendstream/testdata")
        .join(format!("{name}.zst"));
    let packed = fs::read(path).unwrap();
    let mut stream = vec![0; 4 << 20];
    let len = Decoder::new().decompress(Algorithm::Zstd, &mut stream, &packed);
    stream.truncate(len.unwrap());
    stream
}

pub(crate) fn manifest(dir: &Path) -> Manifest {
    Manifest::of(&HostDir::open(dir).unwrap(), &Aspects::default()).unwrap()
}

#[test]
fn dump_prints_what_btrfs_receive_prints() {
    let dir = TempDir::new();
    let btrfs = newer_tool("btrfs");
    for name in ["full.v1", "zstd.full.v2c", "inc.v2", "both.v1"] {
        let file = dir.join(name);
        fs::write(&file, kernel_made(name)).unwrap();
        for zone in ["UTC", "Asia/Kolkata", "EST5EDT"] {
            let ours = restow(["receive", "--dump", "-f"])
                .arg(&file)
                .env("TZ", zone)
                .output()
                .unwrap();
            let (code, printed, words) = shown(&ours);
            assert_eq!((code, &*words), (0, ""), "{name}");
            assert!(printed.lines().count() > 10, "{name}");
            let Some(btrfs) = &btrfs else { continue };
            let theirs = run(btrfs
                .command()
                .args(["receive", "--dump", "-f"])
                .arg(&file)
                .env("TZ", zone));
            assert!(ours.stdout == theirs.stdout, "{name} {zone}");
        }
    }
    // A cut stream is an error, after what came before it.
    let whole = kernel_made("full.v1");
    fs::write(dir.join("cut"), &whole[..whole.len() - 10]).unwrap();
    let (code, printed, words) = run_in(dir.path(), ["receive", "--dump", "-f", "cut"]);
    assert_eq!(code, 2, "{words}");
    assert!(printed.starts_with("subvol "));
}

#[test]
fn directories_are_received_and_their_parents_found() {
    let dir = TempDir::new();
    for (file, name) in [("full", "full.v1"), ("inc", "inc.v1")] {
        fs::write(dir.join(file), kernel_made(name)).unwrap();
    }
    for to in ["to", "other"] {
        fs::create_dir(dir.join(to)).unwrap();
    }
    let receive = |file: &str, more: &[&str], to: &str| {
        let args = [
            &["receive", "--to", "directory", "-q", "-f", file, to],
            more,
        ]
        .concat();
        run_in(dir.path(), args)
    };
    // Without its parent, nothing is there.
    let (code, _, words) = receive("inc", &[], "to");
    assert_eq!(code, 2, "{words}");
    assert_eq!(names(&dir.join("to")), [""; 0]);
    let (code, _, words) = receive("full", &[], "to");
    assert!(code <= 1, "{words}");
    let before = manifest(&dir.join("to/a"));
    let (code, _, words) = receive("inc", &[], "to");
    assert!(code <= 1, "{words}");
    assert_eq!(names(&dir.join("to")), [".restow-received", "a", "b"]);
    assert_eq!(before.difference(&manifest(&dir.join("to/a"))), "");
    // As the tree that the streams are.
    if fs::metadata(dir.path()).unwrap().uid() == 0 {
        let mut replay = Replay::new();
        for file in ["full", "inc"] {
            let file = File::open(dir.join(file)).unwrap();
            replay.add(Arc::new(file)).unwrap();
        }
        for (tree, name) in replay.subvolumes().iter().zip(["to/a", "to/b"]) {
            let sent = Manifest::of(&**tree, &Aspects::default()).unwrap();
            assert_eq!(sent.difference(&manifest(&dir.join(name))), "");
        }
    }
    // A second time, the name is taken.
    let (code, _, words) = receive("inc", &[], "to");
    assert_eq!(code, 2);
    assert!(words.contains("to/b already exists"), "{words}");
    // A parent that was changed is found out, and can be taken as it is.
    fs::remove_dir_all(dir.join("to/b")).unwrap();
    fs::write(dir.join("to/a/new"), "x").unwrap();
    let (code, _, words) = receive("inc", &[], "to");
    assert_eq!(code, 2);
    assert!(
        words.contains("to/a was changed after it was received"),
        "{words}"
    );
    assert_eq!(names(&dir.join("to")), [".restow-received", "a"]);
    let (code, _, words) = receive("inc", &["--parent", "to/a"], "other");
    assert!(code <= 1, "{words}");
    assert!(dir.join("other/b/new").exists());
}

/// A new btrfs, mounted.
pub(crate) fn mounted(mkfs: &Tool, options: &str) -> Mount {
    let backing = BackingFile::create(512 << 20);
    run(mkfs.command().arg("--quiet").arg(backing.path()));
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    Mount::new(device, FsType::Btrfs, options)
}

/// Random changes to files and names.
pub(crate) fn change(at: &Path, rng: &mut Rng, steps: u64) {
    for step in 0..steps {
        let dirs = [
            at.to_owned(),
            at.join("d0"),
            at.join("d1"),
            at.join("d0/d2"),
        ];
        let dir = &dirs[rng.below(4) as usize];
        fs::create_dir_all(dir).unwrap();
        let path = dir.join(format!("f{}", rng.below(6)));
        let other = dirs[rng.below(2) as usize].join(format!("f{}", rng.below(6)));
        fs::create_dir_all(other.parent().unwrap()).unwrap();
        let open = || {
            OpenOptions::new()
                .create(true)
                .write(true)
                .truncate(false)
                .open(&path)
        };
        match rng.below(14) {
            0..=4 => {
                // A symlink or device can have the name.
                let Ok(file) = open() else { continue };
                let len = rng.below(300_000) as usize;
                let bytes = if rng.chance(4) {
                    rng.bytes(len)
                } else {
                    format!("line {step} of a text that repeats\n")
                        .repeat(len / 30 + 1)
                        .into_bytes()
                };
                let _ = file.write_all_at(&bytes, rng.below(500_000));
            }
            5 => {
                if let Ok(file) = open() {
                    let _ = file.set_len(rng.below(400_000));
                }
            }
            6 => {
                let _ = fs::remove_file(&path);
            }
            7 => {
                let mut copy = Program::new("cp");
                let _ = copy.arg("--reflink=always").args([&path, &other]).output();
            }
            8 => {
                let _ = fs::rename(&path, &other);
            }
            9 => {
                let _ = fs::hard_link(&path, &other);
            }
            10 => {
                let _ = symlink("f0", &path);
            }
            11 => {
                let mode = rng.below(0o10000) as u32;
                if path.is_file() && !path.is_symlink() {
                    let _ = fs::set_permissions(&path, fs::Permissions::from_mode(mode));
                }
            }
            12 => {
                let mut set = Program::new("setfattr");
                let value = format!("v{step}");
                let _ = set
                    .args(["-h", "-n", "user.x", "-v", &value])
                    .arg(&path)
                    .output();
            }
            _ => {
                let mut punch = Program::new("fallocate");
                let offset = (rng.below(50) * 4096).to_string();
                let _ = punch
                    .args(["--punch-hole", "--offset", &offset, "--length", "40960"])
                    .arg(&path)
                    .output();
            }
        }
    }
}

/// The commands of a stream, without what differs by nature between two file systems: UUIDs,
/// transactions, change times, and the generations in temporary names.
pub(crate) fn normal(stream: &[u8]) -> Vec<String> {
    let path = |path: &[u8]| {
        let names = path.split(|&byte| byte == b'/').map(|name| {
            let name = name.escape_ascii().to_string();
            let parts: Vec<_> = name.split('-').collect();
            match &parts[..] {
                [ino, _, index] if ino.starts_with('o') => format!("{ino}-GEN-{index}"),
                _ => name,
            }
        });
        names.collect::<Vec<_>>().join("/")
    };
    let mut lines = Vec::new();
    let mut reader = StreamReader::new(stream);
    while reader.next_stream().unwrap().is_some() {
        while let Some(record) = reader.next_command().unwrap() {
            let command = record.command;
            let mut line = format!("{} {}", command.name(), path(command.path().unwrap_or(b"")));
            match command {
                Command::Subvol { .. } | Command::Snapshot { .. } => {}
                Command::Rename { path_to, .. } => line += &format!(" {}", path(path_to)),
                Command::Link { path_link, .. } => line += &format!(" {}", path(path_link)),
                Command::Utimes { atime, mtime, .. } => line += &format!(" {atime:?} {mtime:?}"),
                Command::Clone {
                    file_offset,
                    clone_len,
                    clone_path,
                    clone_offset,
                    ..
                } => {
                    line += &format!(
                        " {file_offset} {clone_len} {} {clone_offset}",
                        path(clone_path)
                    );
                }
                Command::Write {
                    file_offset, data, ..
                } => {
                    line += &format!(" {file_offset} {} {:?}", data.len(), tree::sha256(data));
                }
                Command::EncodedWrite(write) => {
                    let digest = tree::sha256(write.data);
                    let bare = EncodedWrite {
                        path: b"",
                        data: b"",
                        ..write
                    };
                    line += &format!(" {bare:?} {digest:?}");
                }
                other => {
                    let shown = format!("{other:?}");
                    let rest = shown.split_once("], ").map_or("", |(_, rest)| rest);
                    line += &format!(" {rest}");
                }
            }
            lines.push(line);
        }
    }
    lines
}

pub(crate) fn send(btrfs: &Tool, at: &Path, options: &[&str], name: &str) -> Vec<u8> {
    let mut command = btrfs.command();
    command.arg("send").args(options).arg(at.join(name));
    run(command.current_dir(at).stderr(Stdio::null())).stdout
}

/// Whether `btrfs receive` has kept the times of the root: a stream of Linux does not always set
/// them after its last change of the root.
fn keeps_root_times(sent: &Path, received: &Path) -> bool {
    let mtime = |dir| fs::metadata(dir).unwrap().modified().unwrap();
    mtime(sent) == mtime(received)
}

#[test]
#[ignore = "needs root"]
fn subvolumes_are_received_as_btrfs_receive_does() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    for seed in 0..cases(3) {
        let mut rng = Rng::new(seed);
        let source = mounted(&mkfs, MOUNTED[seed as usize % MOUNTED.len()]);
        let at = source.path();
        btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
        let snapshot =
            |name: &str| btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", name]);
        change(&at.join("s"), &mut rng, 60);
        snapshot("a");
        change(&at.join("s"), &mut rng, 60);
        snapshot("b");
        let dir = TempDir::new();
        for proto in [
            &["--proto", "1"][..],
            &["--proto", "2"],
            &["--proto", "2", "--compressed-data"],
        ] {
            let targets = [mounted(&mkfs, "noatime"), mounted(&mkfs, "noatime")];
            let incremental = [proto, &["-p", "a"]].concat();
            for (options, name) in [(proto, "a"), (&incremental, "b")] {
                let file = dir.join(name);
                fs::write(&file, send(&btrfs, at, options, name)).unwrap();
                let received = restow(["receive", "-f"])
                    .args([&*file, targets[0].path()])
                    .output()
                    .unwrap();
                let (on_out, words) = match name {
                    "a" => ("", "At subvol a\n"),
                    _ => ("At snapshot b\n", ""),
                };
                let (code, out, told) = shown(&received);
                let rest = told.strip_prefix(words);
                // Linux takes no encoded end of a file that was longer before; `btrfs receive` says
                // nothing then.
                let is_expected = rest.is_some_and(|rest| {
                    rest.is_empty() || rest.ends_with(" written decompressed: invalid argument\n")
                });
                assert!(
                    is_expected && (code, &*out) == (0, on_out),
                    "seed {seed} {options:?}: {told}"
                );
                run(btrfs
                    .command()
                    .args(["receive", "-q", "-f"])
                    .args([&*file, targets[1].path()]));
            }
            let again = ["--proto", "2", "--compressed-data"];
            let again_incremental = [&again[..], &["-p", "a"]].concat();
            for (options, name) in [(&again[..], "a"), (&again_incremental, "b")] {
                let keeps = keeps_root_times(&at.join(name), &targets[1].path().join(name));
                let [ours, theirs] = [&targets[0], &targets[1]].map(|target| {
                    let mut lines = normal(&send(&btrfs, target.path(), options, name));
                    // `btrfs receive` leaves out the attributes of files.
                    lines.retain(|line| !line.starts_with("fileattr "));
                    lines.retain(|line| keeps || !line.starts_with("utimes  "));
                    lines
                });
                let first = ours
                    .iter()
                    .zip(&theirs)
                    .find(|(ours, theirs)| ours != theirs);
                assert_eq!(first, None, "seed {seed} {proto:?} {name}");
                assert_eq!(ours.len(), theirs.len(), "seed {seed} {proto:?} {name}");
            }
            for name in ["a", "b"] {
                let aspects = Aspects {
                    mtime: keeps_root_times(&at.join(name), &targets[1].path().join(name)),
                    ..Aspects::default()
                };
                let of = |dir: &Path| {
                    let dir = HostDir::open(&dir.join(name)).unwrap();
                    Manifest::of(&dir, &aspects).unwrap()
                };
                let sent = of(at);
                for target in &targets {
                    let difference = sent.difference(&of(target.path()));
                    assert_eq!(difference, "", "seed {seed} {proto:?} {name}");
                }
                let show = |target: &Mount| {
                    let path = target.path().join(name);
                    let shown = run(btrfs.command().args(["subvolume", "show"]).arg(path));
                    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
                    let of = |key: &str| {
                        let mut lines = shown.lines();
                        lines.find(|line| line.contains(key)).map(str::to_owned)
                    };
                    (of("Received UUID"), of("Flags"), of("Send transid"))
                };
                assert_eq!(show(&targets[0]), show(&targets[1]));
                assert!(show(&targets[0]).1.unwrap().contains("readonly"));
            }
            assert_eq!(names(targets[0].path()), ["a", "b"]);
        }
    }
}

/// A stream with these commands in a subvolume `s`.
pub(crate) fn stream(commands: &[Command<'_>], has_end: bool) -> Vec<u8> {
    let start = Command::Subvol {
        path: b"s",
        uuid: [7; 16],
        ctransid: 9,
    };
    if has_end {
        return stream_of(start, commands);
    }
    let mut whole = stream_of(start, commands);
    whole.truncate(whole.len() - END_BYTES);
    whole
}

/// The size of the last command.
const END_BYTES: usize = 10;

/// A stream with these commands.
pub(crate) fn stream_of(start: Command<'_>, commands: &[Command<'_>]) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new(), Version::V2);
    writer.header().unwrap();
    for command in [start].iter().chain(commands).chain(&[Command::End]) {
        writer.command(command).unwrap();
    }
    writer.into_inner()
}

#[test]
#[ignore = "needs root"]
fn a_stream_that_means_harm_leaves_nothing() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let target = mounted(&mkfs, "noatime");
    fs::create_dir(target.path().join("in")).unwrap();
    let dir = TempDir::new();
    fs::write(target.path().join("precious"), "x").unwrap();
    let outside = target.path().join("precious");
    let (ino, data) = (257, &b"evil"[..]);
    let file = Command::Mkfile { path: b"f", ino };
    let write = |path| Command::Write {
        path,
        file_offset: 0,
        data,
    };
    let link = |path_link| Command::Symlink {
        path: b"l",
        ino,
        path_link,
    };
    let garbage = |data| {
        Command::EncodedWrite(EncodedWrite {
            path: b"f",
            file_offset: 0,
            unencoded_file_len: 4096,
            unencoded_len: 4096,
            unencoded_offset: 0,
            compression: Algorithm::Zstd,
            encryption: None,
            data,
        })
    };
    let absolute = outside.as_os_str().as_encoded_bytes();
    let null = Command::Mknod {
        path: b"n",
        ino,
        rdev: 0x103,
        mode: 0o020_666,
    };
    let clone = Command::Clone {
        file_offset: 0,
        clone_len: 4096,
        path: b"f",
        clone_uuid: [9; 16],
        clone_ctransid: 1,
        clone_path: b"f",
        clone_offset: 0,
    };
    let parent = Command::Snapshot {
        path: b"t",
        uuid: [8; 16],
        ctransid: 1,
        clone_uuid: [9; 16],
        clone_ctransid: 1,
    };
    let whole = stream(&[file, write(b"f")], true);
    let mut flipped = whole.clone();
    let last = flipped.len() - 15;
    flipped[last] ^= 1;
    let mut cases = vec![
        ("missing end", stream(&[file, write(b"f")], false)),
        ("cut", whole[..whole.len() - 3].to_vec()),
        ("flipped", flipped),
        ("not a stream", b"btrfs-strea".to_vec()),
        ("empty", Vec::new()),
    ];
    let commands: [(&str, Vec<Command<'_>>); 12] = [
        ("dots", vec![write(b"../precious")]),
        ("dots of a subvolume", vec![write(b"../../precious")]),
        ("absolute", vec![write(absolute)]),
        ("through a link", vec![link(b".."), write(b"l/precious")]),
        ("of a link", vec![link(b"../precious"), write(b"l")]),
        ("of an absolute link", vec![link(absolute), write(b"l")]),
        (
            "mode of a link",
            vec![
                link(absolute),
                Command::Chmod {
                    path: b"l",
                    mode: 0,
                },
            ],
        ),
        ("a device", vec![null, write(b"n")]),
        ("garbage", vec![file, garbage(&[0x55; 100])]),
        ("unknown source", vec![file, clone]),
        ("unknown parent", vec![file, parent]),
        (
            "no data",
            vec![
                file,
                Command::UpdateExtent {
                    path: b"f",
                    file_offset: 0,
                    size: 9,
                },
            ],
        ),
    ];
    for (name, commands) in &commands {
        cases.push((name, stream(commands, true)));
    }
    let before = run(btrfs
        .command()
        .args(["subvolume", "list"])
        .arg(target.path()))
    .stdout;
    assert!(before.is_empty());
    for (name, bytes) in cases {
        let path = dir.join("stream");
        fs::write(&path, bytes).unwrap();
        let into = target.path().join("in");
        let received = restow(["receive", "-q", "-f"])
            .args([&*path, &*into])
            .output()
            .unwrap();
        let (code, out, words) = shown(&received);
        assert_eq!((code, &*out), (2, ""), "{name}: {words}");
        assert!(words.starts_with("restow: "), "{name}: {words}");
        assert_eq!(fs::read(&outside).unwrap(), b"x", "{name}");
        // The one before an unknown parent is whole.
        let expected: &[&str] = if name == "unknown parent" {
            &["s"]
        } else {
            &[]
        };
        assert_eq!(names(&into), expected, "{name}");
        if name == "unknown parent" {
            run(btrfs
                .command()
                .args(["subvolume", "delete"])
                .arg(into.join("s")));
        }
        assert_eq!(names(target.path()), ["in", "precious"], "{name}");
    }
    // With --keep, what is there is not marked.
    fs::write(dir.join("stream"), stream(&[file], false)).unwrap();
    let into = target.path().join("in");
    let received = restow(["receive", "--keep", "-q", "-f"])
        .args([&*dir.join("stream"), &*into])
        .output()
        .unwrap();
    assert_eq!(received.status.code(), Some(2));
    let kept = names(&into);
    assert!(
        kept.len() == 1 && kept[0].starts_with(".s.restow-") && kept[0].ends_with(".err"),
        "{kept:?}"
    );
    let show = run(btrfs
        .command()
        .args(["subvolume", "show"])
        .arg(into.join(&kept[0])))
    .stdout;
    let show = String::from_utf8_lossy(&show).into_owned();
    let line = show
        .lines()
        .find(|line| line.contains("Received UUID"))
        .unwrap();
    assert!(line.trim_end().ends_with('-'), "{line}");
    drop(File::open(into.join(&kept[0]).join("f")).unwrap());
}

#[test]
#[ignore = "needs root"]
fn a_parent_that_was_changed_is_not_built_on() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let target = mounted(&mkfs, "noatime");
    let dir = TempDir::new();
    for (file, name) in [("full", "zstd.full.v2c"), ("inc", "zstd.inc.v2c")] {
        fs::write(dir.join(file), kernel_made(name)).unwrap();
    }
    let receive = |file: &str, more: &[&str]| {
        let mut command = restow(["receive", "-q", "-f"]);
        command.args([&*dir.join(file), target.path()]).args(more);
        shown(&command.output().unwrap())
    };
    assert_eq!(receive("full", &[]), (0, String::new(), String::new()));
    let (code, _, words) = receive("full", &[]);
    assert_eq!(code, 2);
    assert!(
        words.contains("the target has a file of the subvolume's name"),
        "{words}"
    );
    assert_eq!(receive("inc", &[]), (0, String::new(), String::new()));
    let path = |name: &str| target.path().join(name);
    run(btrfs.command().args(["subvolume", "delete"]).arg(path("b")));
    let read_only = |value: &str| {
        let set = ["property", "set", "-f", "-ts"];
        let mut command = btrfs.command();
        run(command.args(set).arg(path("a")).args(["ro", value]));
    };
    read_only("false");
    let (code, _, words) = receive("inc", &[]);
    assert_eq!(code, 2, "{words}");
    assert_eq!(names(target.path()), ["a"]);
    fs::write(path("a").join("new"), "x").unwrap();
    read_only("true");
    let (code, _, words) = receive("inc", &[]);
    assert_eq!(code, 2, "{words}");
    assert_eq!(names(target.path()), ["a"]);
    let parent = path("a");
    let (code, _, words) = receive("inc", &["--parent", parent.to_str().unwrap()]);
    assert_eq!((code, &*words), (0, ""));
    assert!(path("b").join("new").exists());
}

#[test]
#[ignore = "needs root"]
fn a_clone_that_linux_refuses_is_copied_if_wanted() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let target = mounted(&mkfs, "noatime");
    let dir = TempDir::new();
    let mkfile = |path| Command::Mkfile { path, ino: 257 };
    let text = b"text ".repeat(4096);
    let write = Command::Write {
        path: b"from",
        file_offset: 0,
        data: &text,
    };
    // No copy on write, and so no checksums, for a file that is still empty.
    let nocow = Command::Fileattr {
        path: b"to",
        fileattr: 3,
    };
    let clone = Command::Clone {
        file_offset: 4096,
        clone_len: 8192,
        path: b"to",
        clone_uuid: [7; 16],
        clone_ctransid: 9,
        clone_path: b"from",
        clone_offset: 4096,
    };
    let commands = [mkfile(b"from"), write, mkfile(b"to"), nocow, clone];
    fs::write(dir.join("stream"), stream(&commands, true)).unwrap();
    let receive = |more: &[&str]| {
        let mut command = restow(["receive", "-f"]);
        command
            .args([&*dir.join("stream"), target.path()])
            .args(more);
        shown(&command.output().unwrap())
    };
    let (code, _, words) = receive(&[]);
    assert_eq!(code, 2, "{words}");
    assert!(words.contains("--clone-fallback copies it"), "{words}");
    assert_eq!(names(target.path()), [""; 0]);
    let (code, _, words) = receive(&["--clone-fallback"]);
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("1 clone copied, 8.2 kB"), "{words}");
    let to = fs::read(target.path().join("s/to")).unwrap();
    assert!(to[..4096] == [0; 4096] && to[4096..] == text[4096..12_288]);
    run(btrfs
        .command()
        .args(["subvolume", "delete"])
        .arg(target.path().join("s")));
}
