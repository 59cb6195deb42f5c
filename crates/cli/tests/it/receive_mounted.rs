//! `restow receive` into a mounted btrfs: options, attributes, parents and failures.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command as Program, Stdio};

use sendstream::{Command, StreamWriter, Version};
use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, Tool, run, tool};

use super::receive::{change, mounted};
use super::send_mounted::without_privilege;
use super::{btrfs_in, names, restow, run_in, shown};

/// Receives a file into a directory; gives exit code and messages.
fn receive(file: &Path, into: &Path, more: &[&str]) -> (i32, String) {
    let mut command = restow(["receive", "-q", "-f"]);
    let output = command.args([file, into]).args(more).output().unwrap();
    let (code, out, words) = shown(&output);
    assert_eq!(out, "");
    (code, words)
}

/// What `btrfs subvolume show` says on the line with this word.
fn shown_of(btrfs: &Tool, subvolume: &Path, word: &str) -> String {
    let show = btrfs_in(btrfs, subvolume, &["subvolume", "show", "."]);
    let show = String::from_utf8_lossy(&show).into_owned();
    let line = show.lines().find_map(|line| line.trim().strip_prefix(word));
    line.unwrap().trim_start_matches(':').trim().to_owned()
}

fn list(btrfs: &Tool, at: &Path) -> String {
    String::from_utf8_lossy(&btrfs_in(btrfs, at, &["subvolume", "list", "."])).into_owned()
}

/// A stream of a subvolume with this name and these commands.
fn stream(name: &[u8], version: Version, commands: &[Command<'_>]) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new(), version);
    writer.header().unwrap();
    let start = Command::Subvol {
        path: name,
        uuid: [name[0]; 16],
        ctransid: 9,
    };
    for command in [start].iter().chain(commands).chain(&[Command::End]) {
        writer.command(command).unwrap();
    }
    writer.into_inner()
}

#[test]
fn a_stream_with_verity_is_refused_before_anything_is_written() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("to")).unwrap();
    let commands = [
        Command::Mkfile {
            path: b"f",
            ino: 257,
        },
        Command::EnableVerity {
            path: b"f",
            verity_algorithm: 1,
            verity_block_size: 4096,
            verity_salt_data: b"",
            verity_sig_data: b"",
        },
    ];
    fs::write(dir.join("v3"), stream(b"s", Version::V3, &commands)).unwrap();
    let (code, _, words) = run_in(dir.path(), ["receive", "--to", "btrfs", "-f", "v3", "to"]);
    assert_eq!(code, 2);
    // Before it is found that this is no btrfs.
    assert!(words.contains("read v3: command 3: "), "{words}");
    assert!(words.contains("fs-verity"), "{words}");
}

#[test]
#[ignore = "needs root"]
fn several_subvolumes_ends_and_errors_are_received_as_asked() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let source = mounted(&mkfs, "noatime");
    let at = source.path();
    btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
    for name in ["a", "b"] {
        change(&at.join("s"), &mut Rng::new(3), 30);
        btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", name]);
    }
    let target = mounted(&mkfs, "noatime");
    let to = target.path();
    let dir = TempDir::new();
    let file = dir.join("stream");
    let manifest = |at: &Path| run_in(at, ["manifest", "."]).1;
    let expected = ["a", "b"].map(|name| manifest(&at.join(name)));
    let clear = || {
        for name in names(to) {
            btrfs_in(&btrfs, to, &["subvolume", "delete", &name]);
        }
    };
    for (args, more, got) in [
        (&["send", "-e", "a", "b"][..], &[][..], &["a", "b"][..]),
        (&["send", "a", "b"], &[], &["a", "b"]),
        (&["send", "a", "b"], &["-e"], &["a"]),
        (&["send", "-e", "a", "b"], &["-e"], &["a", "b"]),
        (
            &["send", "--compressed-data", "a"],
            &["--force-decompress"],
            &["a"],
        ),
    ] {
        fs::write(&file, btrfs_in(&btrfs, at, args)).unwrap();
        assert_eq!(receive(&file, to, more), (0, String::new()), "{args:?}");
        assert_eq!(names(to), got, "{args:?} {more:?}");
        for (name, expected) in got.iter().zip(&expected) {
            assert_eq!(manifest(&to.join(name)), *expected, "{args:?}");
            assert_ne!(shown_of(&btrfs, &to.join(name), "Received UUID"), "-");
        }
        clear();
    }
    // Two of its commands fail; the other subvolume is whole.
    let [one, other] = [257, 258].map(|ino| Command::Mkfile { path: b"f", ino });
    let gone = Command::Unlink { path: b"gone" };
    let bad = stream(b"bad", Version::V1, &[gone, one, gone]);
    let good = stream(b"good", Version::V1, &[other]);
    fs::write(&file, [bad, good].concat()).unwrap();
    for (limit, got, failed) in [
        (&[][..], &[][..], "command 2"),
        (&["-E", "2"], &[], "command 4"),
        (&["-E", "3"], &["good"], "2 commands failed"),
        (&["-E", "0"], &["good"], "2 commands failed"),
    ] {
        let (code, words) = receive(&file, to, limit);
        assert_eq!(code, 2, "{limit:?}: {words}");
        assert!(words.contains(failed), "{limit:?}: {words}");
        assert_eq!(names(to), got, "{limit:?}");
        clear();
    }
}

/// The attributes of all files, by path.
fn attributes(at: &Path) -> String {
    let output = run(Program::new("lsattr").args(["-R", "-a"]).current_dir(at));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<_> = text.lines().filter(|line| line.contains('/')).collect();
    lines.sort_unstable_by_key(|line| line.split_once(' ').map(|(_, path)| path));
    lines.join("\n")
}

#[test]
#[ignore = "needs root"]
fn file_attributes_are_those_that_were_sent() {
    let (Some(btrfs), Some(mkfs), Some(chattr)) =
        (tool("btrfs"), tool("mkfs.btrfs"), tool("chattr"))
    else {
        return;
    };
    let mounts = [mounted(&mkfs, "noatime"), mounted(&mkfs, "noatime")];
    let [at, to] = [0, 1].map(|side: usize| mounts[side].path());
    btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
    let path = |name: &str| at.join("s").join(name);
    fs::create_dir(path("dir")).unwrap();
    let files = ["A", "d", "i", "a", "S", "iA", "m", "plain", "dir/in"];
    for name in files {
        fs::write(path(name), name.repeat(5000)).unwrap();
    }
    for name in ["C", "late"] {
        fs::write(path(name), "").unwrap();
    }
    let set = |how: &str, name: &str| {
        run(chattr.command().args([how, name]).current_dir(at.join("s")));
    };
    let dir = TempDir::new();
    let mut last: Option<&str> = None;
    let mut next = |name: &'static str| {
        btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", name]);
        let parent = last.map_or(vec![], |last| vec!["-p", last]);
        let args = [&["send", "--proto", "2"][..], &parent, &[name]].concat();
        fs::write(dir.join(name), btrfs_in(&btrfs, at, &args)).unwrap();
        last = Some(name);
        let received = receive(&dir.join(name), to, &[]);
        let shown = [at, to].map(|side| attributes(&side.join(name)));
        (received, shown)
    };
    let (received, [sent, got]) = next("one");
    assert_eq!((received, got), ((0, String::new()), sent));
    for name in ["A", "d", "i", "a", "S", "iA", "m", "C"] {
        set(&format!("+{name}"), name);
    }
    set("+D", "dir");
    set("+i", "dir");
    let (received, [sent, got]) = next("two");
    assert_eq!(received, (0, String::new()));
    assert_eq!(got, sent);
    assert!(
        sent.lines().filter(|line| line.contains('i')).count() >= 3,
        "{sent}"
    );
    // What is locked in both changes in between.
    for name in ["i", "dir"] {
        set("-i", name);
    }
    set("-a", "a");
    fs::write(path("i"), "other content").unwrap();
    fs::write(path("a"), "cut").unwrap();
    fs::rename(path("dir/in"), path("dir/renamed")).unwrap();
    fs::write(path("dir/new"), "new").unwrap();
    for name in ["i", "dir"] {
        set("+i", name);
    }
    set("+a", "a");
    set("-A", "A");
    let (received, [sent, got]) = next("three");
    assert_eq!(received, (0, String::new()));
    assert_eq!(got, sent);
    // Linux does not send the times of a root that is only changed on the way, by temporary names.
    let manifest = |side: &Path, name: &str| {
        let text = run_in(&side.join(name), ["manifest", "."]).1;
        let lines = text.lines().filter(|line| !line.starts_with(". "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(manifest(to, "three"), manifest(at, "three"));
    // An empty file that is no longer copied on write, and is then filled: its data comes before
    // the attribute.
    set("+C", "late");
    fs::write(path("late"), "content".repeat(1000)).unwrap();
    let (received, [sent, got]) = next("four");
    assert_eq!(received.0, 1, "{}", received.1);
    assert!(
        received
            .1
            .contains("late: file attributes not preserved: no copy on write"),
        "{}",
        received.1
    );
    let differing = sent.lines().zip(got.lines()).filter(|(a, b)| a != b);
    assert_eq!(differing.count(), 1);
    assert_eq!(manifest(to, "four"), manifest(at, "four"));
}

#[test]
#[ignore = "needs root"]
fn a_parent_that_btrfs_received_is_built_on_unless_it_was_changed() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let mounts = [mounted(&mkfs, "noatime"), mounted(&mkfs, "noatime")];
    let [at, to] = [0, 1].map(|side: usize| mounts[side].path());
    btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
    for name in ["a", "b"] {
        for number in 0..50 {
            let path = at.join(format!("s/{name}{number}"));
            fs::write(path, Rng::new(number).bytes(200_000)).unwrap();
        }
        btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", name]);
    }
    let dir = TempDir::new();
    for (file, args) in [
        ("full", &["send", "a"][..]),
        ("inc", &["send", "-p", "a", "b"]),
    ] {
        fs::write(dir.join(file), btrfs_in(&btrfs, at, args)).unwrap();
    }
    run(btrfs
        .command()
        .args(["receive", "-f"])
        .args([&*dir.join("full"), to]));
    // It was marked before all of it had its extents.
    run(Program::new("sync").arg("-f").arg(to));
    let root = linux::open_dir(&to.join("a")).unwrap();
    let id = linux::subvolume_id(&root).unwrap();
    let info = || linux::subvolume(&root, id).unwrap().unwrap();
    assert!(info().ctransid > info().rtransid, "{:?}", info());
    assert_eq!(receive(&dir.join("inc"), to, &[]), (0, String::new()));
    let delete = || btrfs_in(&btrfs, to, &["subvolume", "delete", "b"]);
    delete();
    // Whatever changes it is seen, also if it is read-only again and still has its received UUID.
    let changes: [&dyn Fn(&Path); 4] = [
        &|at| fs::write(at.join("new"), "x").unwrap(),
        &|at| fs::remove_file(at.join("new")).unwrap(),
        &|at| {
            let file = File::options().write(true).open(at.join("a1")).unwrap();
            file.write_all_at(b"x", 0).unwrap();
        },
        &|at| fs::rename(at.join("a2"), at.join("a2.new")).unwrap(),
    ];
    for (number, change) in changes.iter().enumerate() {
        let received = info();
        // The clock of change times has a coarser step than that of the receive.
        loop {
            fs::write(to.join("clock"), "x").unwrap();
            let now = linux::stat_at(linux::open_dir(to).unwrap(), b"clock").unwrap();
            if now.ctime > received.rtime {
                break;
            }
        }
        fs::remove_file(to.join("clock")).unwrap();
        linux::set_subvolume_read_only(&root, false).unwrap();
        change(&to.join("a"));
        linux::set_subvolume_read_only(&root, true).unwrap();
        assert_eq!(info().received_uuid, received.received_uuid);
        let (code, words) = receive(&dir.join("inc"), to, &[]);
        assert_eq!(code, 2, "change {number}");
        assert!(
            words.contains("was changed after it was received"),
            "{words}"
        );
        assert_eq!(names(to), ["a"]);
        // As if it had been received like this.
        linux::set_subvolume_read_only(&root, false).unwrap();
        linux::set_subvolume_received(&root, received.received_uuid, received.stransid).unwrap();
        linux::set_subvolume_read_only(&root, true).unwrap();
    }
    // Writable, it may change at any time.
    linux::set_subvolume_read_only(&root, false).unwrap();
    let (code, words) = receive(&dir.join("inc"), to, &[]);
    assert_eq!(code, 2);
    assert!(words.contains("not read-only"), "{words}");
}

/// Sends go forth and back between two file systems; each parent is known by the UUID that it has
/// at its origin.
#[test]
#[ignore = "needs root"]
fn parents_are_found_in_both_directions() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let mounts = [mounted(&mkfs, "noatime"), mounted(&mkfs, "noatime")];
    let sides = [0, 1].map(|side: usize| mounts[side].path());
    let dir = TempDir::new();
    let file = dir.join("stream");
    let mut rng = Rng::new(11);
    btrfs_in(&btrfs, sides[0], &["subvolume", "create", "work0"]);
    change(&sides[0].join("work0"), &mut rng, 40);
    let snapshot = |side: &Path, from: &str, to: &str, is_read_only: bool| {
        let mut args = vec!["subvolume", "snapshot"];
        args.extend(is_read_only.then_some("-r"));
        btrfs_in(&btrfs, side, &[&args[..], &[from, to]].concat());
    };
    snapshot(sides[0], "work0", "snap0", true);
    fs::write(&file, btrfs_in(&btrfs, sides[0], &["send", "snap0"])).unwrap();
    assert_eq!(receive(&file, sides[1], &[]), (0, String::new()));
    for turn in 1..5 {
        let (from, to) = (sides[turn % 2], sides[1 - turn % 2]);
        let [last, work, now] = [
            format!("snap{}", turn - 1),
            format!("work{turn}"),
            format!("snap{turn}"),
        ];
        snapshot(from, &last, &work, false);
        change(&from.join(&work), &mut rng, 40);
        snapshot(from, &work, &now, true);
        let sent = btrfs_in(&btrfs, from, &["send", "--proto", "2", "-p", &last, &now]);
        fs::write(&file, sent).unwrap();
        assert_eq!(receive(&file, to, &[]), (0, String::new()), "turn {turn}");
        let manifest = |side: &Path| run_in(&side.join(&now), ["manifest", "."]).1;
        assert_eq!(manifest(to), manifest(from), "turn {turn}");
    }
}

#[test]
#[ignore = "needs root"]
fn what_cannot_be_received_leaves_nothing() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let mount = mounted(&mkfs, "noatime");
    let to = mount.path();
    let file = Command::Mkfile {
        path: b"f",
        ino: 257,
    };
    let noise = Rng::new(1).bytes(40_000);
    let mut commands = vec![file];
    // And a file that could not be removed by name.
    commands.push(Command::Fileattr {
        path: b"f",
        fileattr: 1 << 6,
    });
    let writes = (0..10_000_u64).map(|number| Command::Write {
        path: b"f",
        file_offset: number * 40_000,
        data: &noise,
    });
    commands.extend(writes);
    let whole = stream(b"s", Version::V2, &commands);
    // Interrupted while it waits for more.
    for signal in ["INT", "TERM", "HUP"] {
        let mut child = Program::new("env")
            .arg("--default-signal=INT,TERM,HUP")
            .arg(env!("CARGO_BIN_EXE_restow"))
            .args(["receive", "-q"])
            .arg(to)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(&whole[..5 << 20]).unwrap();
        assert_eq!(names(to).len(), 1);
        let mut kill = Program::new("kill");
        run(kill.args(["-s", signal, &child.id().to_string()]));
        let output = child.wait_with_output().unwrap();
        let (code, _, words) = shown(&output);
        assert!((129..=143).contains(&code), "{signal}: {code} {words}");
        drop(input);
        assert_eq!(names(to), [""; 0], "{signal}");
        assert_eq!(list(&btrfs, to), "", "{signal}");
    }
    let dir = TempDir::new();
    fs::write(dir.join("stream"), &whole).unwrap();
    // Without privilege.
    let stream = dir.join("stream");
    let args = [
        "receive",
        "-f",
        stream.to_str().unwrap(),
        to.to_str().unwrap(),
    ];
    let (code, _, words) = shown(&without_privilege(args).output().unwrap());
    assert_eq!(code, 2);
    assert!(words.contains("only by root; `--to directory`"), "{words}");
    assert_eq!(names(to), [""; 0]);
    drop(mount);
    // Without space.
    let backing = BackingFile::create(150 << 20);
    run(mkfs.command().arg("--quiet").arg(backing.path()));
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    let small = Mount::new(device, FsType::Btrfs, "noatime");
    let (code, words) = receive(&stream, small.path(), &[]);
    assert_eq!(code, 2);
    assert!(
        words.contains("no space left on the file system for 40000 bytes"),
        "{words}"
    );
    assert_eq!(names(small.path()), [""; 0]);
    assert_eq!(list(&btrfs, small.path()), "");
}

/// Linux keeps the compressed inline data of a file that grows by `fallocate` or a shared range,
/// and the receiver stores it again when it makes the file longer.
#[test]
#[ignore = "needs root"]
fn compressed_inline_data_with_more_behind_it_is_received() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let source = mounted(&mkfs, "noatime,compress-force=zstd");
    let at = source.path();
    btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
    let path = |name: &str| at.join("s").join(name);
    for name in ["grown", "shared"] {
        fs::write(path(name), b"text\n".repeat(200)).unwrap();
    }
    fs::write(path("long"), b"more\n".repeat(40_000)).unwrap();
    run(Program::new("sync").arg("-f").arg(at));
    run(Program::new("fallocate")
        .args(["-l", "20000"])
        .arg(path("grown")));
    let (long, shared) = (File::open(path("long")).unwrap(), path("shared"));
    let shared = File::options().write(true).open(shared).unwrap();
    linux::clone_range(&long, 0, 131_072, &shared, 4096).unwrap();
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "a"]);
    let dir = TempDir::new();
    let file = dir.join("stream");
    let args = ["send", "--proto", "2", "--compressed-data", "a"];
    fs::write(&file, btrfs_in(&btrfs, at, &args)).unwrap();
    let dump = btrfs_in(&btrfs, dir.path(), &["receive", "--dump", "-f", "stream"]);
    let dump = String::from_utf8_lossy(&dump).into_owned();
    assert_eq!(
        dump.matches("unencoded_file_len=1000,").count(),
        2,
        "{dump}"
    );
    let target = mounted(&mkfs, "noatime");
    let (ours, theirs) = (target.path().join("ours"), target.path().join("theirs"));
    let as_dirs = target.path().join("dirs");
    for to in [&ours, &theirs, &as_dirs] {
        fs::create_dir(to).unwrap();
    }
    run(btrfs
        .command()
        .args(["receive", "-q", "-f"])
        .args([&file, &theirs]));
    assert_eq!(receive(&file, &ours, &[]), (0, String::new()));
    assert_eq!(
        receive(&file, &as_dirs, &["--to", "directory"]),
        (0, String::new())
    );
    let manifest = |at: &Path| run_in(at, ["manifest", "."]).1;
    for to in [ours, theirs, as_dirs] {
        assert_eq!(manifest(&to.join("a")), manifest(&at.join("a")));
    }
}

/// A snapshot reaches the last place once from where it was made and once by way of another file
/// system, whose transactions are others; and Linux raises the transaction of a snapshot that is
/// deduplicated. Each target builds on what it has, as `btrfs receive` does.
#[test]
#[ignore = "needs root"]
fn a_parent_of_another_transaction_is_built_on() {
    let tools = ["btrfs", "mkfs.btrfs", "python3"].map(tool);
    let [Some(btrfs), Some(mkfs), Some(python)] = tools else {
        return;
    };
    let mounts = [0; 3].map(|_| mounted(&mkfs, "noatime"));
    let [laptop, nas, offsite] = [0, 1, 2].map(|side: usize| mounts[side].path());
    let dir = TempDir::new();
    btrfs_in(&btrfs, laptop, &["subvolume", "create", "s"]);
    let twice = Rng::new(5).bytes(1 << 20);
    for name in ["one", "two"] {
        fs::write(laptop.join("s").join(name), &twice).unwrap();
    }
    btrfs_in(&btrfs, laptop, &["subvolume", "snapshot", "-r", "s", "a"]);
    fs::write(laptop.join("s/one"), "short").unwrap();
    change(&laptop.join("s"), &mut Rng::new(6), 40);
    btrfs_in(&btrfs, laptop, &["subvolume", "snapshot", "-r", "s", "b"]);
    let send = |from: &Path, args: &[&str], to: &str| {
        fs::write(dir.join(to), btrfs_in(&btrfs, from, args)).unwrap();
        dir.join(to)
    };
    let full = send(laptop, &["send", "a"], "full");
    // Both of Linux, as transactions of a new file system are small and could be equal by chance.
    for number in 0..5 {
        fs::write(nas.join("clock"), number.to_string()).unwrap();
        run(Program::new("sync").arg("-f").arg(nas));
    }
    for (file, to) in [
        (full.clone(), nas),
        (send(laptop, &["send", "-p", "a", "b"], "inc"), nas),
    ] {
        run(btrfs
            .command()
            .args(["receive", "-q", "-f"])
            .args([&*file, to]));
    }
    let by_nas = send(nas, &["send", "-p", "a", "b"], "by nas");
    // The snapshot is read-only, which deduplication by root passes over.
    let dedupe = "
import fcntl, struct
one, two = open('a/one'), open('a/two')
args = bytearray(struct.pack('=QQHHI qQQiI', 0, 1 << 20, 1, 0, 0, two.fileno(), 0, 0, 0, 0))
fcntl.ioctl(one, 0xc0189436, args)
assert struct.unpack_from('=Qi', args, 40) == (1 << 20, 0), args
";
    run(python.command().args(["-c", dedupe]).current_dir(laptop));
    run(Program::new("sync").arg("-f").arg(laptop));
    let deduplicated = send(laptop, &["send", "-p", "a", "b"], "deduplicated");
    let manifest = |at: &Path| run_in(at, ["manifest", "."]).1;
    let expected = manifest(&laptop.join("b"));
    // Only `-v` prints a word about the transaction: fstests' btrfs/191 compares the output.
    let receive_other = |file: &Path, to: &Path, more: &[&str], verbose: bool| {
        let mut command = restow(["receive", "-f"]);
        command.args([file, to]).args(more);
        let received = command.args(verbose.then_some("-v")).output().unwrap();
        let (code, _, words) = shown(&received);
        assert_eq!(code, 0, "{words}");
        let count = words.matches("was received from transaction").count();
        assert_eq!(count, usize::from(verbose), "{words}");
    };
    for (turn, file) in [by_nas, deduplicated].iter().enumerate() {
        let to = ["mounted", "theirs", "dirs"].map(|name| offsite.join(format!("{name}{turn}")));
        for (kind, to) in to.iter().enumerate() {
            fs::create_dir(to).unwrap();
            if kind == 1 {
                for file in [&full, file] {
                    run(btrfs
                        .command()
                        .args(["receive", "-q", "-f"])
                        .args([file, to]));
                }
            } else {
                let more: &[&str] = if kind == 2 {
                    &["--to", "directory"]
                } else {
                    &[]
                };
                assert_eq!(receive(&full, to, more), (0, String::new()));
                receive_other(file, to, more, turn == 0);
            }
            assert_eq!(manifest(&to.join("b")), expected, "{turn} {}", to.display());
        }
        // A received UUID must not be there twice.
        for (side, name) in [(0, "b"), (0, "a"), (1, "b"), (1, "a")] {
            btrfs_in(&btrfs, &to[side], &["subvolume", "delete", name]);
        }
        let image = dir.join(format!("image{turn}"));
        let more = ["--to", "image"];
        assert_eq!(receive(&full, &image, &more), (0, String::new()));
        receive_other(file, &image, &more, turn == 0);
        let device = LoopDevice::attach(BackingFile::existing(&image), Access::ReadWrite);
        let mount = Mount::new(device, FsType::Btrfs, "noatime");
        assert_eq!(manifest(&mount.path().join("b")), expected, "{turn} image");
    }
}
