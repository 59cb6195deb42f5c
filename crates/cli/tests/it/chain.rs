//! Backups as people make them: daily snapshots of a mounted btrfs, sent, kept, restored, cut,
//! damaged and forged.

#![expect(clippy::print_stdout, reason = "what was cut is printed")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use sendstream::{Command, CommandRecord, EncodedWrite, StreamReader, StreamWriter, Version};
use testkit::{
    Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, Tool, cases, run, tool,
};

use super::receive::{change, mounted};
use super::{btrfs_in, names, run_in};

const DAYS: usize = 10;
/// How the source is mounted: one for each backup.
const MOUNTED: [&str; 3] = [
    "noatime,compress=zstd",
    "noatime",
    "noatime,compress-force=lzo",
];

/// The name of the snapshot of a day, and of its stream.
fn day(number: usize) -> String {
    format!("day{number:02}")
}

/// Runs what must succeed; gives what it says on standard output.
fn done(dir: &Path, args: &[&str]) -> String {
    let (code, out, words) = run_in(dir, args);
    assert_eq!(code, 0, "{args:?}: {words}{out}");
    out
}

/// What a tree holds. The time of its root aside: Linux does not send it if only temporary names
/// changed the root.
fn manifest(dir: &Path, tree: &[&str]) -> String {
    let text = done(dir, &[&["manifest"], tree].concat());
    let lines = text.lines().filter(|line| !line.starts_with(". "));
    lines.collect::<Vec<_>>().join("\n")
}

fn assert_same(found: &str, expected: &str, what: &str) {
    let pairs = found.lines().zip(expected.lines());
    let first = pairs.enumerate().find(|(_, (one, other))| one != other);
    assert_eq!(first, None, "{what}");
    assert_eq!(found.lines().count(), expected.lines().count(), "{what}");
}

/// The snapshots of ten days, their streams, and those that are kept.
struct Backup {
    what: String,
    source: Mount,
    /// Has a stream for each day in `sent` and `kept`.
    dir: TempDir,
    manifests: Vec<String>,
    /// The SHA-256 digests of the kept streams.
    digests: Vec<String>,
}

impl Backup {
    /// Makes the snapshots, sends and converts them, and cuts and continues a transfer.
    fn make(btrfs: &Tool, mkfs: &Tool, seed: u64) -> Backup {
        let rng = &mut Rng::new(seed);
        let options = MOUNTED[seed as usize % MOUNTED.len()];
        let mut backup = Backup {
            what: format!("seed {seed}, {options}"),
            source: mounted(mkfs, options),
            dir: TempDir::new(),
            manifests: Vec::new(),
            digests: Vec::new(),
        };
        let at = backup.source.path().to_owned();
        btrfs_in(btrfs, &at, &["subvolume", "create", "s"]);
        for number in 1..=DAYS {
            live(&at.join("s"), number, rng);
            let snapshot = ["subvolume", "snapshot", "-r", "s", &day(number)];
            btrfs_in(btrfs, &at, &snapshot);
            backup
                .manifests
                .push(manifest(&at.join(day(number)), &["."]));
        }
        for folder in ["sent", "kept"] {
            fs::create_dir(backup.dir.join(folder)).unwrap();
        }
        for number in 1..=DAYS {
            backup.send(btrfs, number);
        }
        backup.cut(rng);
        for number in 1..=DAYS {
            backup.keep(number);
        }
        backup
    }

    fn sent(&self, number: usize) -> PathBuf {
        self.dir.join("sent").join(day(number))
    }

    fn kept(&self, number: usize) -> PathBuf {
        self.dir.join("kept").join(day(number))
    }

    /// The command that sends a day into the file `to`.
    fn arguments(number: usize, to: &str) -> Vec<String> {
        let mut args: Vec<String> = ["send", "-q", "--compressed-data", "-f", to]
            .map(str::to_owned)
            .to_vec();
        if number > 1 {
            args.extend(["-p".to_owned(), day(number - 1)]);
        }
        args.push(day(number));
        args
    }

    fn send(&self, btrfs: &Tool, number: usize) {
        let to = self.sent(number);
        let args = Backup::arguments(number, to.to_str().unwrap());
        let args: Vec<&str> = args.iter().map(|word| &**word).collect();
        done(self.source.path(), &args);
        done(self.dir.path(), &["stream", "verify", to.to_str().unwrap()]);
        let linux = self.dir.join("linux");
        let args = Backup::arguments(number, linux.to_str().unwrap());
        let args: Vec<&str> = args.iter().map(|word| &**word).collect();
        btrfs_in(btrfs, self.source.path(), &args);
        let same = fs::read(&to).unwrap() == fs::read(&linux).unwrap();
        assert!(same, "{}, {}", self.what, day(number));
    }

    /// Cuts the transfer of a day at any byte, and continues it.
    fn cut(&self, rng: &mut Rng) {
        let number = 1 + rng.index(DAYS);
        let whole = fs::read(self.sent(number)).unwrap();
        let at = rng.index(whole.len());
        println!("{}: {} cut at byte {at}", self.what, day(number));
        let part = self.dir.join("part");
        fs::write(&part, &whole[..at]).unwrap();
        let (code, out, _) = run_in(self.dir.path(), ["stream", "verify", "part"]);
        assert_eq!(code, 1, "{}, {number}, cut at {at}: {out}", self.what);
        let part = part.to_str().unwrap();
        let args = Backup::arguments(number, part);
        let mut args: Vec<&str> = args.iter().map(|word| &**word).collect();
        args.extend(["--resume-from", part]);
        done(self.source.path(), &args);
        let same = fs::read(part).unwrap() == whole;
        assert!(same, "{}, {number}, cut at {at}", self.what);
    }

    /// Compresses the stream of a day, verifies the result and notes its digest.
    fn keep(&mut self, number: usize) {
        let [from, to] = [self.sent(number), self.kept(number)];
        let [from, to] = [from.to_str().unwrap(), to.to_str().unwrap()];
        let at = self.dir.path();
        let convert = ["stream", "convert", "-q", "--compress", "zstd:15", from, to];
        done(at, &convert);
        let info = done(at, &["stream", "info", "--json", to]);
        let (_, digest) = info.split_once("\"sha256\":\"").unwrap();
        let digest = digest[..64].to_owned();
        let snapshot = self.source.path().join(day(number));
        let mut verify = vec!["stream", "verify", "--sha256", &digest, to];
        let based = self.based_on(number);
        let based: Vec<&str> = based.iter().map(|word| &**word).collect();
        verify.extend(["--against", snapshot.to_str().unwrap()]);
        verify.extend(based);
        let (_, out, words) = run_in(at, &verify);
        let only_root = |line: &str| line.starts_with(".: ") || !line.contains(": ");
        let rest = out
            .lines()
            .skip_while(|line| !line.starts_with("no errors"));
        let same = rest.clone().count() > 0 && rest.skip(1).all(only_root);
        assert!(same, "{}, {}: {out}{words}", self.what, day(number));
        self.digests.push(digest);
    }

    /// The options that make the days before this one known.
    fn based_on(&self, number: usize) -> Vec<String> {
        let base = |before| {
            let path = self.kept(before).to_str().unwrap().to_owned();
            ["--base".to_owned(), path]
        };
        (1..number).flat_map(base).collect()
    }
}

/// A day in the life of a directory.
fn live(at: &Path, number: usize, rng: &mut Rng) {
    fs::create_dir_all(at.join("photos")).unwrap();
    fs::create_dir_all(at.join("notes")).unwrap();
    fs::write(at.join(format!("photos/{number}.jpg")), rng.bytes(40_000)).unwrap();
    let note = format!("on day {number} this happened\n").repeat(2000);
    fs::write(at.join(format!("notes/{number}.txt")), note).unwrap();
    if number > 3 {
        let old = number - 3;
        let archive = at.join(format!("archive{old}"));
        fs::create_dir(&archive).unwrap();
        fs::rename(
            at.join(format!("notes/{old}.txt")),
            archive.join("notes.txt"),
        )
        .unwrap();
        fs::remove_file(at.join(format!("photos/{old}.jpg"))).unwrap();
    }
    let mut journal = OpenOptions::new();
    let journal = journal.create(true).append(true).open(at.join("journal"));
    let line = format!("day {number}: {}\n", rng.next_u64()).repeat(500);
    journal.unwrap().write_all(line.as_bytes()).unwrap();
    change(at, rng, 15);
}

/// One file, and all files, of a day in the middle, without a btrfs.
fn restore_a_day(backup: &Backup, number: usize) {
    let at = backup.dir.path();
    let kept = backup.kept(number);
    let based = backup.based_on(number);
    let of_day = |before: &[&str], after: &[&str]| {
        let mut args = before.to_vec();
        args.extend(based.iter().map(|word| &**word));
        args.push(kept.to_str().unwrap());
        args.extend(after);
        done(at, &args)
    };
    let snapshot = backup.source.path().join(day(number));
    let note = format!("notes/{number}.txt");
    for file in ["journal", &*note] {
        let expected = fs::read_to_string(snapshot.join(file)).unwrap();
        assert!(of_day(&["cat"], &[file]) == expected, "{file}");
    }
    of_day(&["copy", "-q"], &["restored"]);
    let restored = manifest(at, &["restored"]);
    assert_same(&restored, &backup.manifests[number - 1], "restored by copy");
    fs::remove_dir_all(at.join("restored")).unwrap();
}

/// The whole, by btrfs-progs and by us.
fn restore_all(backup: &Backup, btrfs: &Tool, mkfs: &Tool) {
    let (linux, ours, ext4) = (
        mounted(mkfs, "noatime"),
        mounted(mkfs, "noatime"),
        mounted_ext4(),
    );
    let at = backup.dir.path();
    for number in 1..=DAYS {
        let kept = backup.kept(number);
        let mut receive = btrfs.command();
        run(receive
            .args(["receive", "-q", "-f"])
            .args([&*kept, linux.path()]));
        for (target, to) in [(&ours, "btrfs"), (&ext4, "directory")] {
            let target = target.path().to_str().unwrap();
            let file = kept.to_str().unwrap();
            done(at, &["receive", "-q", "--to", to, "-f", file, target]);
        }
        let file = kept.to_str().unwrap();
        let receive = ["receive", "-q", "--to", "image", "-f", file, "image"];
        done(at, &receive);
    }
    run(btrfs.command().arg("check").arg(at.join("image")));
    let device = LoopDevice::attach(BackingFile::existing(at.join("image")), Access::ReadOnly);
    let image = Mount::new(device, FsType::Btrfs, "subvolid=5");
    for (number, expected) in (1..).zip(&backup.manifests) {
        for (name, target) in [
            ("btrfs-progs", &linux),
            ("btrfs", &ours),
            ("ext4", &ext4),
            ("image", &image),
        ] {
            let found = manifest(&target.path().join(day(number)), &["."]);
            let what = format!("{}, {name}, {}", backup.what, day(number));
            assert_same(&found, expected, &what);
        }
    }
    drop(image);
    fs::remove_file(at.join("image")).unwrap();
}

fn mounted_ext4() -> Mount {
    let mkfs = tool("mkfs.ext4").unwrap();
    let backing = BackingFile::create(64 << 20);
    run(mkfs.command().arg("-q").arg(backing.path()));
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    Mount::new(device, FsType::Ext4, "")
}

/// The stream with each command replaced by `each`; `None` leaves it out.
fn rewritten(
    stream: &[u8],
    mut each: impl FnMut(&CommandRecord<'_>, &mut StreamWriter<Vec<u8>>),
) -> Vec<u8> {
    let mut reader = StreamReader::new(stream);
    let mut writer = StreamWriter::new(Vec::new(), Version::V2);
    assert_eq!(reader.next_stream().unwrap(), Some(Version::V2));
    writer.header().unwrap();
    while let Some(record) = reader.next_command().unwrap() {
        each(&record, &mut writer);
    }
    writer.into_inner()
}

/// The stream without the first command of this name.
fn without(stream: &[u8], name: &str) -> Vec<u8> {
    let mut found = false;
    let cut = rewritten(stream, |record, writer| {
        if !found && record.command.name() == name {
            found = true;
        } else {
            writer.copy(record.bytes).unwrap();
        }
    });
    assert!(found, "{name}");
    cut
}

/// The stream with other bytes in its first encoded write: what `other` makes of it.
fn with_other(
    stream: &[u8],
    other: impl Fn(EncodedWrite<'_>, &mut StreamWriter<Vec<u8>>),
) -> Vec<u8> {
    let mut found = false;
    let changed = rewritten(stream, |record, writer| match record.command {
        Command::EncodedWrite(write) if !found => {
            found = true;
            other(write, writer);
        }
        _ => writer.copy(record.bytes).unwrap(),
    });
    assert!(found);
    changed
}

/// What can go wrong with the third day, and how `stream verify` finds it.
fn damaged(backup: &Backup, rng: &mut Rng) -> Vec<(String, Vec<u8>)> {
    let whole = fs::read(backup.kept(3)).unwrap();
    // Behind the header, which has no checksum.
    let at = 17 + rng.index(whole.len() - 17);
    let mut flipped = whole.clone();
    flipped[at] ^= 1 << rng.below(8);
    let cut = rng.index(whole.len());
    let garbage = rng.bytes(128 << 10);
    let garbage = with_other(&whole, |write, writer| {
        let data = &garbage[..write.data.len()];
        let garbage = EncodedWrite { data, ..write };
        writer.command(&Command::EncodedWrite(garbage)).unwrap();
    });
    let mut all = vec![
        (format!("byte {at} flipped"), flipped),
        (format!("cut at byte {cut}"), whole[..cut].to_vec()),
        ("garbage under a right checksum".to_owned(), garbage),
    ];
    for name in ["snapshot", "mkfile", "mkdir", "rename", "end"] {
        // There may be no new directory.
        if name != "mkdir" || has(&whole, name) {
            all.push((format!("{name} cut out"), without(&whole, name)));
        }
    }
    all
}

fn has(stream: &[u8], name: &str) -> bool {
    let mut found = false;
    rewritten(stream, |record, _| found |= record.command.name() == name);
    found
}

/// Where the first two days were received, and how it is seen that nothing else was.
struct Target {
    name: &'static str,
    path: PathBuf,
    mount: Option<Mount>,
}

impl Target {
    fn receive(&self, file: &Path) -> (i32, String) {
        let to = ["btrfs", "directory", "image"];
        let to = to.into_iter().find(|to| self.name == *to).unwrap();
        let [file, path] = [file, &*self.path].map(|path| path.to_str().unwrap());
        let args = ["receive", "-q", "--to", to, "-f", file, path];
        let (code, out, words) = run_in(Path::new("/"), args);
        assert_eq!(out, "");
        (code, words)
    }

    /// What is received, and what else the directory holds.
    fn state(&self, btrfs: &Tool) -> Vec<u8> {
        match self.name {
            "btrfs" => {
                let list = btrfs_in(btrfs, &self.path, &["subvolume", "list", "-R", "."]);
                // Without their generations: a snapshot changes that of its parent.
                let list = String::from_utf8(list).unwrap();
                let lines = list.lines().map(|line| line.split_once(" received_uuid"));
                let mut state = lines.map(|parts| parts.unwrap().1).collect::<String>();
                state += &names(&self.path).join("\n");
                state.into_bytes()
            }
            "directory" => {
                let mut state = fs::read(self.path.join(".restow-received")).unwrap();
                state.extend(names(&self.path).join("\n").bytes());
                state
            }
            _ => fs::read(&self.path).unwrap(),
        }
    }

    /// Removes the third day, which was received.
    fn remove(&self, btrfs: &Tool, before: &[u8]) {
        match self.name {
            "btrfs" => drop(btrfs_in(
                btrfs,
                &self.path,
                &["subvolume", "delete", &day(3)],
            )),
            "directory" => fs::remove_dir_all(self.path.join(day(3))).unwrap(),
            _ => fs::write(&self.path, before).unwrap(),
        }
    }

    /// Changes the second day, which stays read-only.
    fn change(&self) {
        let write = |at: &Path| fs::write(at.join("journal"), "nothing happened\n").unwrap();
        let in_btrfs = |at: &Path| {
            // `btrfs property set` would remove the received UUID.
            let root = linux::open_dir(&at.join(day(2))).unwrap();
            linux::set_subvolume_read_only(&root, false).unwrap();
            write(&at.join(day(2)));
            linux::set_subvolume_read_only(&root, true).unwrap();
        };
        match self.name {
            "btrfs" => in_btrfs(&self.path),
            "directory" => write(&self.path.join(day(2))),
            _ => {
                let device =
                    LoopDevice::attach(BackingFile::existing(&self.path), Access::ReadWrite);
                let mount = Mount::new(device, FsType::Btrfs, "subvolid=5");
                in_btrfs(mount.path());
                mount.unmount();
            }
        }
    }
}

/// Damaged streams of the third day, and a changed parent, are refused by all targets, which stay
/// as they are.
fn refuse_damage(backup: &Backup, btrfs: &Tool, mkfs: &Tool, rng: &mut Rng) {
    let (btrfs_mount, ext4) = (mounted(mkfs, "noatime"), mounted_ext4());
    let target = |name, mount: Mount| Target {
        name,
        path: mount.path().to_owned(),
        mount: Some(mount),
    };
    let targets = [
        target("btrfs", btrfs_mount),
        target("directory", ext4),
        Target {
            name: "image",
            path: backup.dir.join("image"),
            mount: None,
        },
    ];
    fs::File::create(backup.dir.join("image"))
        .and_then(|image| image.set_len(128 << 20))
        .unwrap();
    let mut make = mkfs.command();
    run(make.arg("--quiet").arg(backup.dir.join("image")));
    let damaged = damaged(backup, rng);
    let file = backup.dir.join("damaged");
    let snapshot = backup.source.path().join(day(3));
    let based = backup.based_on(3);
    for (words, stream) in &damaged {
        fs::write(&file, stream).unwrap();
        // Alone, an incremental stream can name files that only its parent would have.
        let mut verify = vec!["stream", "verify", "damaged"];
        verify.extend(["--against", snapshot.to_str().unwrap()]);
        verify.extend(based.iter().map(|word| &**word));
        let (code, out, _) = run_in(backup.dir.path(), &verify);
        assert_ne!(code, 0, "{}, {words}: {out}", backup.what);
        let (code, out, _) = run_in(backup.dir.path(), &verify[..3]);
        let is_alone = words.ends_with("cut out") && !words.starts_with("end");
        assert!(code == 1 || is_alone, "{}, {words}: {out}", backup.what);
    }
    for target in &targets {
        let what = format!("{}, {}", backup.what, target.name);
        for number in [1, 2] {
            let received = target.receive(&backup.kept(number));
            assert_eq!(received, (0, String::new()), "{what}");
        }
        let before = target.state(btrfs);
        for (words, stream) in &damaged {
            fs::write(&file, stream).unwrap();
            let (code, said) = target.receive(&file);
            assert_eq!(code, 2, "{what}, {words}: {said}");
            let is_same = target.state(btrfs) == before;
            assert!(is_same, "{what}, {words}: {said}");
        }
        // The right one is taken.
        let received = target.receive(&backup.kept(3));
        assert_eq!(received, (0, String::new()), "{what}");
        target.remove(btrfs, &before);
        target.change();
        let before = target.state(btrfs);
        let (code, said) = target.receive(&backup.kept(3));
        assert_eq!(code, 2, "{what}: {said}");
        assert!(said.contains("changed after it was received"), "{said}");
        assert!(target.state(btrfs) == before, "{what}");
    }
    for target in targets {
        drop(target.mount);
    }
    fs::remove_file(backup.dir.join("image")).unwrap();
}

/// What somebody rewrites with right checksums is a good stream, and only its digest is another
/// one.
fn find_forgeries(backup: &Backup) {
    let whole = fs::read(backup.kept(3)).unwrap();
    let forged = with_other(&whole, |write, writer| {
        let len = write.unencoded_file_len as usize;
        let (path, file_offset) = (write.path, write.file_offset);
        let data = &b"forged ".repeat(len / 7 + 1)[..len];
        // As a stream of the first version could not be taken for one of the second.
        let forged = Command::Write {
            path,
            file_offset,
            data,
        };
        writer.command(&forged).unwrap();
    });
    let digest = &backup.digests[2];
    for (name, stream) in [
        ("other content", forged),
        ("chmod cut out", without(&whole, "chmod")),
        ("utimes cut out", without(&whole, "utimes")),
        ("encoded_write cut out", without(&whole, "encoded_write")),
    ] {
        fs::write(backup.dir.join("forged"), stream).unwrap();
        let verify = |more: &[&str]| {
            let args = [&["stream", "verify", "forged"], more].concat();
            run_in(backup.dir.path(), args)
        };
        let (code, out, words) = verify(&[]);
        assert_eq!(code, 0, "{name}: {out}{words}");
        let (code, out, words) = verify(&["--sha256", digest]);
        assert_eq!(code, 1, "{name}: {out}{words}");
        assert!(out.contains("SHA-256 digest is "), "{name}: {out}");
    }
    let (_, help, _) = run_in(backup.dir.path(), ["stream", "verify", "--help"]);
    assert!(help.contains("not forgery"), "{help}");
}

/// Snapshots of ten days, sent with their changes and kept compressed: every way to restore them,
/// and every way to find what went wrong before anything is marked as received.
#[test]
#[ignore = "needs root"]
fn ten_days_are_kept_and_restored() {
    let (Some(btrfs), Some(mkfs), Some(_)) = (tool("btrfs"), tool("mkfs.btrfs"), tool("mkfs.ext4"))
    else {
        return;
    };
    for seed in 0..cases(1) {
        let backup = Backup::make(&btrfs, &mkfs, seed);
        restore_a_day(&backup, 7);
        restore_all(&backup, &btrfs, &mkfs);
        refuse_damage(&backup, &btrfs, &mkfs, &mut Rng::new(!seed));
        find_forgeries(&backup);
    }
}
