//! Incremental streams of images: received by Linux, and compared with its own.

#![expect(clippy::print_stdout, reason = "campaigns print what differs")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command as Program;

use sendstream::{Command, StreamReader};
use testkit::{
    Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, Tool, cases, run, tool,
};

use super::receive::{mounted, normal, send};
use super::{btrfs_in, run_in};

pub(crate) const MOUNTED: [&str; 6] = [
    "noatime,compress-force=zstd",
    "noatime,compress-force=lzo",
    "noatime",
    "noatime,compress=zstd",
    "noatime,compress-force=zlib",
    "noatime,nodatasum",
];
const KINDS: [(&str, &[&str]); 4] = [
    ("v1", &["--proto", "1"]),
    ("v2", &["--proto", "2"]),
    ("v2c", &["--compressed-data"]),
    ("no data", &["--no-data"]),
];

/// Runs what must succeed; gives what it says on standard output.
fn done(dir: &Path, args: &[&str]) -> String {
    let (code, out, words) = run_in(dir, args);
    assert_eq!(code, 0, "{args:?}: {words}{out}");
    out
}

/// What a directory or subvolume holds, without the empty directories where nested subvolumes were:
/// these are not sent.
fn manifest(dir: &Path, tree: &str) -> Vec<String> {
    let text = done(dir, &["manifest", tree]);
    let lines = text.lines().filter(|line| !line.contains("nested"));
    lines.map(str::to_owned).collect()
}

/// Checks that two manifests are equal.
fn assert_same(found: &[String], expected: &[String], what: &str) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected, "{what}");
    }
    assert_eq!(found.len(), expected.len(), "{what}");
}

/// The directories below a directory and itself, and all other files.
fn listed(at: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut dirs, mut files, mut next) = (Vec::new(), Vec::new(), vec![at.to_owned()]);
    while let Some(dir) = next.pop() {
        let entries = fs::read_dir(&dir).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() && !path.is_symlink() {
                next.push(path);
            } else {
                files.push(path);
            }
        }
        dirs.push(dir);
    }
    (dirs, files)
}

fn program(name: &str, args: &[&str], path: &Path) {
    let _ = Program::new(name).args(args).arg(path).output();
}

/// Changes a tree at random. What cannot be done is left out.
fn change(at: &Path, rng: &mut Rng, steps: usize) {
    for step in 0..steps {
        let (dirs, files) = listed(at);
        let regular = files
            .iter()
            .filter(|path| !path.is_symlink() && path.is_file());
        let regular: Vec<&PathBuf> = regular.collect();
        let dir = |rng: &mut Rng| dirs[rng.index(dirs.len())].clone();
        let name = |rng: &mut Rng| {
            let letter = char::from(b'a' + rng.below(6) as u8);
            let name = if rng.chance(3) {
                letter.to_string()
            } else {
                format!("{letter}{}", rng.below(4))
            };
            dir(rng).join(name)
        };
        let new = name(rng);
        let is_free = fs::symlink_metadata(&new).is_err();
        let kind = rng.below(25);
        let file = (!files.is_empty()).then(|| files[rng.index(files.len().max(1))].clone());
        let content =
            (!regular.is_empty()).then(|| regular[rng.index(regular.len().max(1))].clone());
        let open = |path: &Path| OpenOptions::new().write(true).open(path).unwrap();
        match (kind, file, content) {
            (0..=2, ..) => drop(fs::create_dir(&new)),
            (3..=5, ..) if is_free => {
                let data = match rng.below(3) {
                    0 => {
                        let len = rng.index(3000);
                        rng.bytes(len)
                    }
                    1 => {
                        let len = rng.index(300_000);
                        rng.bytes(len)
                    }
                    _ => format!("line {step} of a text\n")
                        .repeat(1 + rng.index(15_000))
                        .into_bytes(),
                };
                fs::write(&new, data).unwrap();
            }
            (6..=8, ..) => drop(fs::rename(dir(rng), &new)),
            (9, Some(file), _) => drop(fs::rename(file, &new)),
            (10, ..) => {
                let dir = dir(rng);
                if dir != at && listed(&dir).1.len() < 4 {
                    fs::remove_dir_all(dir).unwrap();
                }
            }
            (11, Some(file), _) => fs::remove_file(file).unwrap(),
            (12, _, Some(content)) => drop(fs::hard_link(content, &new)),
            (13, ..) => drop(symlink("a target", &new)),
            (14, _, Some(content)) => open(&content).set_len(rng.below(400_000)).unwrap(),
            (15..=16, _, Some(content)) => {
                let [offset, len] =
                    [rng.below(80), 1 + rng.below(30)].map(|it| (it * 4096).to_string());
                let args: &[&str] = match (kind, rng.below(2)) {
                    (15, _) => &["-p", "-o", &offset, "-l", &len],
                    (_, 0) => &["-n", "-o", &offset, "-l", &len],
                    _ => &["-o", &offset, "-l", &len],
                };
                program("fallocate", args, &content);
            }
            (17, _, Some(content)) if is_free => {
                let mut copy = Program::new("cp");
                run(copy.arg("--reflink=always").args([&content, &new]));
            }
            (18, _, Some(content)) => {
                let mode = fs::Permissions::from_mode(rng.below(0o10000) as u32);
                fs::set_permissions(content, mode).unwrap();
            }
            (19, Some(file), _) => {
                let [user, group] = [0; 2].map(|_| Some(rng.below(5) as u32));
                lchown(file, user, group).unwrap();
            }
            (20, _, Some(content)) => {
                let attribute = format!("user.{}", rng.below(4));
                let value = format!("value {step}");
                let args: &[&str] = if rng.chance(3) {
                    &["-x", &attribute]
                } else {
                    &["-n", &attribute, "-v", &value]
                };
                program("setfattr", args, &content);
            }
            (21..=22, _, Some(content)) => {
                let len = rng.index(30_000);
                let bytes = rng.bytes(len);
                open(&content)
                    .write_all_at(&bytes, rng.below(300_000))
                    .unwrap();
            }
            (23, ..) => {
                let (one, other) = (dir(rng), dir(rng));
                if !one.starts_with(&other) && !other.starts_with(&one) {
                    let between = at.join("between");
                    for (from, to) in [(&one, &between), (&other, &one), (&between, &other)] {
                        fs::rename(from, to).unwrap();
                    }
                }
            }
            (24, _, Some(content)) => program("chattr", &["+A"], &content),
            _ => {}
        }
    }
}

fn subvolume(btrfs: &Tool, at: &Path) {
    let mut create = btrfs.command();
    run(create.args(["subvolume", "create"]).arg(at));
}

fn snapshot(btrfs: &Tool, from: &Path, to: &Path) {
    let mut snapshot = btrfs.command();
    run(snapshot
        .args(["subvolume", "snapshot", "-r"])
        .args([from, to]));
}

fn receive(btrfs: &Tool, stream: &Path, target: &Path) {
    let mut receive = btrfs.command();
    run(receive.args(["receive", "-q", "-f"]).args([stream, target]));
}

/// The commands of a stream, clones without their source, and without the times of the root
/// directory, which Linux leaves out where only temporary names changed it.
fn without_sources(stream: &[u8]) -> Vec<String> {
    commands(stream, false)
}

/// The commands of a stream, without the times of the root directory.
pub(crate) fn commands(stream: &[u8], has_sources: bool) -> Vec<String> {
    let mut reader = StreamReader::new(stream);
    let mut lines = Vec::new();
    while reader.next_stream().unwrap().is_some() {
        while let Some(record) = reader.next_command().unwrap() {
            lines.push(match record.command {
                Command::Utimes { path: b"", .. } => continue,
                Command::Write {
                    path,
                    file_offset,
                    data,
                } => {
                    let (path, digest) = (path.escape_ascii(), tree::sha256(data));
                    format!("write {path} {file_offset} {} {digest:?}", data.len())
                }
                Command::Clone {
                    file_offset,
                    clone_len,
                    path,
                    ..
                } if !has_sources => {
                    format!("clone {} {file_offset} {clone_len}", path.escape_ascii())
                }
                command => {
                    let path = command.path().unwrap_or_default().escape_ascii();
                    format!("{} {path} {command:?}", command.name())
                }
            });
        }
    }
    lines
}

/// Streams of one image, as Linux makes them.
struct Sent {
    image: BackingFile,
    /// The pair, the index of [`KINDS`], and the stream.
    linux: Vec<([&'static str; 2], usize, Vec<u8>)>,
    /// What the subvolumes `a`, `b`, ... hold.
    manifests: Vec<Vec<String>>,
}

/// Sends pairs of a file system's snapshots, and unmounts it.
fn sent(btrfs: &Tool, mount: Mount, pairs: &[[&'static str; 2]], names: &[&str]) -> Sent {
    let at = mount.path();
    let mut linux = Vec::new();
    for pair in pairs {
        for (kind, (_, options)) in KINDS.iter().enumerate() {
            let parent = at.join(pair[0]);
            let options = [&["-q", "-p", parent.to_str().unwrap()], *options].concat();
            linux.push((*pair, kind, send(btrfs, at, &options, pair[1])));
        }
    }
    let image = mount.unmount();
    let tree = |name: &&str| format!("{}:{name}", image.path().display());
    let manifests = names
        .iter()
        .map(|name| manifest(Path::new("."), &tree(name)));
    Sent {
        manifests: manifests.collect(),
        linux,
        image,
    }
}

/// How many streams are the same bytes as those of Linux, the same but for sources of clones, and
/// others.
#[derive(Debug, Default)]
struct Equal {
    bytes: u64,
    commands: u64,
    others: u64,
    /// Results of receiving, and how many of them Linux sends again as it does those of its own
    /// streams.
    results: u64,
    same_results: u64,
}

impl Sent {
    /// Sends the same, and compares.
    fn compare(&self, dir: &Path, equal: &mut Equal, what: &str) {
        let image = self.image.path().display();
        for (pair, kind, linux) in &self.linux {
            let [parent, child] = pair.map(|name| format!("{image}:{name}"));
            let args = ["send", "-q", "-p", &parent, "-f", "stream", &child];
            done(dir, &[&args[..], KINDS[*kind].1].concat());
            let ours = fs::read(dir.join("stream")).unwrap();
            if ours == *linux {
                equal.bytes += 1;
                continue;
            }
            let [ours, linux] = [&ours, linux].map(|stream| without_sources(stream));
            if ours == linux {
                equal.commands += 1;
            } else {
                equal.others += 1;
                let pairs = ours.iter().zip(&linux);
                let same = pairs.take_while(|(ours, linux)| ours == linux).count();
                let line = |lines: &[String]| {
                    lines
                        .get(same)
                        .map(|line| line[..line.len().min(300)].to_owned())
                };
                println!("other commands: {what}, {pair:?}, {}", KINDS[*kind].0);
                println!("{:?}, by Linux {:?}", line(&ours), line(&linux));
            }
        }
    }

    /// Receives a full stream of the first subvolume and our changes to the others, in all kinds,
    /// and compares what is there with the subvolumes, and with what Linux makes of its own streams
    /// if these have the same commands.
    fn receive(
        &self,
        tools: [&Tool; 2],
        dir: &Path,
        names: &[&'static str],
        what: &str,
        equal: &mut Equal,
    ) {
        let [btrfs, mkfs] = tools;
        let image = self.image.path().display();
        for (kind, (words, options)) in KINDS.iter().enumerate().take(3) {
            let targets = [mounted(mkfs, "noatime"), mounted(mkfs, "noatime")];
            let mut is_same = true;
            for (turn, name) in names.iter().enumerate() {
                let child = format!("{image}:{name}");
                let parent = turn.checked_sub(1).map(|before| names[before]);
                let known = parent.map(|parent| format!("{image}:{parent}"));
                let mut args = vec!["send", "-q", "-f", "stream"];
                if let Some(known) = &known {
                    args.extend(["-p", known]);
                }
                done(dir, &[&args[..], options, &[&child]].concat());
                let stream = dir.join("stream");
                receive(btrfs, &stream, targets[0].path());
                let received = manifest(&targets[0].path().join(name), ".");
                let what = format!("{what}, {words}, {name}");
                assert_same(&received, &self.manifests[turn], &what);
                // Full streams are the same bytes.
                if let Some(parent) = parent {
                    let ours = fs::read(&stream).unwrap();
                    let same =
                        |it: &&([&str; 2], usize, Vec<u8>)| (it.0, it.1) == ([parent, name], kind);
                    let (_, _, linux) = self.linux.iter().find(same).unwrap();
                    is_same &= commands(&ours, true) == commands(linux, true);
                    fs::write(&stream, linux).unwrap();
                }
                receive(btrfs, &stream, targets[1].path());
            }
            let mut are_same = true;
            for (turn, name) in names.iter().enumerate() {
                let mut options = vec!["-q", "--compressed-data"];
                if let Some(before) = turn.checked_sub(1) {
                    options.extend(["-p", names[before]]);
                }
                let sent = [&targets[0], &targets[1]]
                    .map(|target| normal(&send(btrfs, target.path(), &options, name)));
                // The times of the root directory are right in ours.
                let sent = sent.map(|mut lines| {
                    lines.retain(|line| !line.starts_with("utimes  "));
                    lines
                });
                if is_same {
                    assert_same(
                        &sent[0],
                        &sent[1],
                        &format!("{what}, {words}, {name} sent again"),
                    );
                }
                are_same &= sent[0] == sent[1];
            }
            equal.results += 1;
            equal.same_results += u64::from(are_same);
        }
    }
}

#[test]
#[ignore = "needs root"]
fn random_changes_are_received_by_linux() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let mut equal = Equal::default();
    let count = cases(2_u64);
    for seed in 0..count {
        let mut rng = Rng::new(seed);
        let options = MOUNTED[seed as usize % MOUNTED.len()];
        let what = format!("seed {seed}, {options}");
        let mount = mounted(&mkfs, options);
        let at = mount.path();
        subvolume(&btrfs, &at.join("s"));
        for name in ["a", "b", "c"] {
            let steps = 20 + rng.index(60);
            change(&at.join("s"), &mut rng, steps);
            snapshot(&btrfs, &at.join("s"), &at.join(name));
        }
        let pairs = [["a", "b"], ["b", "c"], ["a", "c"], ["c", "a"]];
        let sent = sent(&btrfs, mount, &pairs, &["a", "b", "c"]);
        let dir = TempDir::new();
        sent.compare(dir.path(), &mut equal, &what);
        let names = ["a", "b", "c"];
        sent.receive([&btrfs, &mkfs], dir.path(), &names, &what, &mut equal);
        sent.receive_back(&btrfs, &mkfs, dir.path(), &what);
    }
    let Equal {
        bytes,
        commands,
        others,
        results,
        same_results,
    } = equal;
    println!(
        "campaign: {count} seeds; of {} streams, {bytes} are those of Linux, {commands} but for sources of clones and the root's times; {same_results} of {results} results are sent again as those of Linux",
        bytes + commands + others
    );
    assert!(bytes + commands > 4 * others);
}

impl Sent {
    /// Receives the way back from the last subvolume to the first.
    fn receive_back(&self, btrfs: &Tool, mkfs: &Tool, dir: &Path, what: &str) {
        let image = self.image.path().display();
        let [first, last] = ["a", "c"].map(|name| format!("{image}:{name}"));
        let target = mounted(mkfs, "noatime");
        for args in [&[&*last][..], &["-p", &last, &first]] {
            done(dir, &[&["send", "-q", "-f", "stream"], args].concat());
            receive(btrfs, &dir.join("stream"), target.path());
        }
        let received = manifest(&target.path().join("a"), ".");
        assert_same(&received, &self.manifests[0], &format!("{what}, back"));
    }
}

/// The inode number of a file.
fn number(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).unwrap().ino()
}

/// What the parent of the hard cases holds.
fn lay_out(at: &Path, btrfs: &Tool) {
    let dirs = [
        "r1/r2/r3/r4/r5",
        "swap/a",
        "swap/b",
        "to_file",
        "gone/inner/deep",
        "late/low",
        "x/y/z",
        "holes",
        "many",
    ];
    for dir in dirs {
        fs::create_dir_all(at.join(dir)).unwrap();
    }
    for file in [
        "r1/r2/f",
        "swap/a/one",
        "swap/b/two",
        "swap/f1",
        "swap/f2",
        "to_dir",
        "gone/inner/deep/f",
        "gone/inner/g",
        "late/low/f",
        "many/first",
        "capable",
        "suid",
    ] {
        fs::write(at.join(file), file).unwrap();
    }
    // Real files with the names that others have meanwhile.
    for number in 256..300 {
        fs::write(at.join(format!("o{number}-7-0")), "real").unwrap();
    }
    for link in 0..1100 {
        fs::hard_link(at.join("many/first"), at.join(format!("many/{link}"))).unwrap();
    }
    let text = "what compresses well\n".repeat(40_000);
    fs::write(at.join("shared"), &text[..40_000]).unwrap();
    fs::write(at.join("overwritten"), &text).unwrap();
    for file in ["holes/end", "holes/middle", "holes/shrunk", "holes/grown"] {
        fs::write(at.join(file), Rng::new(3).bytes(300_000)).unwrap();
    }
    subvolume(btrfs, &at.join("x/nested"));
    fs::write(at.join("x/nested/f"), "not sent").unwrap();
    program("setcap", &["cap_net_raw=ep"], &at.join("capable"));
    fs::set_permissions(at.join("suid"), fs::Permissions::from_mode(0o4755)).unwrap();
}

/// Changes that are hard to send.
fn change_hard(at: &Path, btrfs: &Tool) {
    let rename = |from: &str, to: &str| fs::rename(at.join(from), at.join(to)).unwrap();
    // A chain of directories, upside down.
    rename("r1/r2/r3/r4/r5", "top");
    rename("r1/r2/r3/r4", "top/r4");
    rename("r1/r2/r3", "top/r4/r3");
    rename("r1/r2", "top/r4/r3/r2");
    rename("r1", "top/r4/r3/r2/r1");
    for (one, other) in [("swap/a", "swap/b"), ("swap/f1", "swap/f2")] {
        rename(one, "between");
        rename(other, one);
        rename("between", other);
    }
    fs::remove_dir(at.join("to_file")).unwrap();
    fs::write(at.join("to_file"), "now a file").unwrap();
    fs::remove_file(at.join("to_dir")).unwrap();
    fs::create_dir(at.join("to_dir")).unwrap();
    rename("late/low", "new_low");
    rename("gone/inner/g", "to_dir/g");
    fs::remove_dir_all(at.join("gone")).unwrap();
    fs::create_dir_all(at.join("gone/inner")).unwrap();
    // A loop of three names.
    rename("x/y/z", "z");
    rename("x/y", "z/y");
    rename("x/nested", "z/nested");
    rename("x", "z/y/x");
    for link in (0..1100).step_by(2) {
        fs::remove_file(at.join(format!("many/{link}"))).unwrap();
        fs::hard_link(at.join("many/first"), at.join(format!("top/{link}"))).unwrap();
    }
    rename("many/first", "many/last");
    for copy in 0..1100 {
        let to = at.join(format!("to_dir/{copy}"));
        let mut clone = Program::new("cp");
        run(clone.arg("--reflink=always").args([at.join("shared"), to]));
    }
    let open = |path: &str| OpenOptions::new().write(true).open(at.join(path)).unwrap();
    for part in 0..6 {
        let noise = Rng::new(part).bytes(9000);
        open("overwritten")
            .write_all_at(&noise, part * 130_000 + 777)
            .unwrap();
    }
    program(
        "fallocate",
        &["-p", "-o", "200704", "-l", "99296"],
        &at.join("holes/end"),
    );
    program(
        "fallocate",
        &["-p", "-o", "8192", "-l", "65536"],
        &at.join("holes/middle"),
    );
    open("holes/shrunk").set_len(12_345).unwrap();
    open("holes/grown").set_len(5_000_000).unwrap();
    open("capable").write_all_at(b"changed", 0).unwrap();
    program("setcap", &["cap_net_raw=ep"], &at.join("capable"));
    lchown(at.join("suid"), Some(3), Some(3)).unwrap();
    fs::set_permissions(at.join("suid"), fs::Permissions::from_mode(0o4711)).unwrap();
    subvolume(btrfs, &at.join("z/nested2"));
    // Names that are those of the temporary ones of what is new.
    for number in 1500..1600 {
        drop(File::create(at.join(format!("o{number}-8-0"))));
    }
}

#[test]
#[ignore = "needs root"]
fn hard_changes_are_received_by_linux() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let mount = mounted(&mkfs, "noatime,compress-force=zstd");
    let at = mount.path();
    subvolume(&btrfs, &at.join("s"));
    lay_out(&at.join("s"), &btrfs);
    snapshot(&btrfs, &at.join("s"), &at.join("a"));
    change_hard(&at.join("s"), &btrfs);
    snapshot(&btrfs, &at.join("s"), &at.join("b"));
    // The same numbers for other files: snapshots of another subvolume.
    subvolume(&btrfs, &at.join("t"));
    for name in ["one", "two", "three"] {
        fs::write(at.join("t").join(name), name.repeat(3000)).unwrap();
    }
    assert_eq!(number(&at.join("t/one")), 257);
    snapshot(&btrfs, &at.join("t"), &at.join("c"));
    let names = ["a", "b", "c"];
    let pairs = [["a", "b"], ["b", "c"]];
    let linux = sent(&btrfs, mount, &pairs, &names);
    let dir = TempDir::new();
    let mut equal = Equal::default();
    linux.compare(dir.path(), &mut equal, "hard cases");
    println!("campaign: {equal:?}");
    linux.receive(
        [&btrfs, &mkfs],
        dir.path(),
        &names,
        "hard cases",
        &mut equal,
    );
    linux.receive_back(&btrfs, &mkfs, dir.path(), "hard cases");
}

/// `btrfs send` loses it: the change of the owner takes it away, and nothing sets it again.
#[test]
#[ignore = "needs root"]
fn programs_keep_the_rights_of_a_new_owner() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let mount = mounted(&mkfs, "noatime");
    let at = mount.path();
    subvolume(&btrfs, &at.join("s"));
    let program = at.join("s/program");
    fs::write(&program, "x").unwrap();
    let set_mode = || fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
    set_mode();
    snapshot(&btrfs, &at.join("s"), &at.join("a"));
    lchown(&program, Some(7), Some(7)).unwrap();
    set_mode();
    snapshot(&btrfs, &at.join("s"), &at.join("b"));
    let sent = sent(&btrfs, mount, &[["a", "b"]], &["a", "b"]);
    let dir = TempDir::new();
    let equal = &mut Equal::default();
    sent.receive([&btrfs, &mkfs], dir.path(), &["a", "b"], "program", equal);
}

#[test]
#[ignore = "needs root"]
fn parents_are_chosen_and_refused_as_btrfs_send_does() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let mount = mounted(&mkfs, "noatime");
    let at = mount.path();
    subvolume(&btrfs, &at.join("s"));
    for name in ["a", "b", "c", "d"] {
        let content = Rng::new(u64::from(name.as_bytes()[0])).bytes(200_000);
        fs::write(at.join("s").join(name), content).unwrap();
        snapshot(&btrfs, &at.join("s"), &at.join(name));
    }
    subvolume(&btrfs, &at.join("other"));
    let mut copy = Program::new("cp");
    run(copy
        .arg("--reflink=always")
        .args([at.join("d/d"), at.join("other/copy")]));
    snapshot(&btrfs, &at.join("other"), &at.join("e"));
    let dir = TempDir::new();
    let clones = [
        &["-c", "a", "b"][..],
        &["-c", "a", "-c", "b", "-c", "c", "d"],
        &["-c", "c", "-c", "a", "-c", "d", "b"],
        &["-p", "a", "-c", "d", "e"],
        // Several at once: with -c and without -p, each is a source for the next.
        &["a", "b", "e"],
        &["-e", "a", "b", "e"],
        &["-c", "a", "b", "c", "d"],
        &["-c", "a", "-e", "d", "c", "b"],
        &["-c", "a", "-c", "e", "b", "d", "a"],
        &["-c", "c", "b", "c"],
        &["-c", "c", "c"],
        &["-p", "a", "b", "c", "d"],
        &["-p", "a", "-c", "d", "-e", "b", "c", "e"],
        &["-p", "a", "-c", "c", "b", "c"],
    ];
    let mut streams = Vec::new();
    for args in clones {
        streams.push(btrfs_in(&btrfs, at, &[&["send", "-q"], args].concat()));
    }
    let backing = mount.unmount();
    let image = backing.path().display();
    let with_image = |args: &[&str]| -> Vec<String> {
        let word = |word: &&str| {
            if word.starts_with('-') {
                (*word).to_owned()
            } else {
                format!("{image}:{word}")
            }
        };
        args.iter().map(word).collect()
    };
    for (args, linux) in clones.iter().zip(&streams) {
        let known = with_image(args);
        let known: Vec<&str> = known.iter().map(|word| &**word).collect();
        done(
            dir.path(),
            &[&["send", "-q", "-f", "stream"], &known[..]].concat(),
        );
        let ours = fs::read(dir.join("stream")).unwrap();
        assert!(ours == *linux, "{args:?}");
    }
    let other = BackingFile::create(300 << 20);
    run(mkfs.command().arg("--quiet").arg(other.path()));
    let device = LoopDevice::attach(other, Access::ReadWrite);
    let mount = Mount::new(device, FsType::Btrfs, "");
    subvolume(&btrfs, &mount.path().join("s"));
    snapshot(&btrfs, &mount.path().join("s"), &mount.path().join("a"));
    let other = mount.unmount();
    let elsewhere = format!("{}:a", other.path().display());
    let here = |name: &str| format!("{image}:{name}");
    for (known, name, expected) in [
        (["-p", &elsewhere], "a", "is in another image"),
        (["-c", &elsewhere], "a", "is in another image"),
        (["-p", &here("a")], "a", "is the subvolume itself"),
        (["-p", &here("s")], "a", "not read-only"),
        (["-c", &here("s")], "a", "not read-only"),
        (["-c", &here("e")], "a", "name the parent with -p"),
        (["-p", &here("gone")], "a", "no subvolume gone"),
    ] {
        let child = here(name);
        let args = [&["send", "-q", "-f", "x"], &known[..], &[&child]].concat();
        let (code, _, words) = run_in(dir.path(), args);
        assert!(code == 2 && words.contains(expected), "{known:?}: {words}");
        assert!(!dir.join("x").exists());
    }
}
