//! Send streams of a large part of /usr: what goes wrong in one of many thousand extents.

#![expect(clippy::print_stdout, reason = "campaigns print what was compared")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::process::Command as Program;

use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, Tool, cases};
use testkit::{run, tool};

use super::mounted::sized;
use super::receive::{normal, send};
use super::send_incremental::commands;
use super::{btrfs_in, run_in};

const IMAGE_BYTES: u64 = 6 << 30;

/// Runs what must succeed; gives what it says on standard output.
fn done(dir: &Path, args: &[&str]) -> String {
    let (code, out, words) = run_in(dir, args);
    assert_eq!(code, 0, "{args:?}: {words}{out}");
    out
}

/// What a tree holds. The time of its root aside, which Linux does not always send.
fn manifest(dir: &Path, tree: &str) -> Vec<String> {
    let text = done(dir, &["manifest", tree]);
    let lines = text.lines().filter(|line| !line.starts_with(". "));
    lines.map(str::to_owned).collect()
}

fn assert_same(found: &[String], expected: &[String], what: &str) {
    let pairs = found.iter().zip(expected);
    let first = pairs.enumerate().find(|(_, (one, other))| one != other);
    assert_eq!(first, None, "{what}");
    assert_eq!(found.len(), expected.len(), "{what}");
}

/// Copies the first `count` files of /usr, without those of 2 MB and more.
fn lay_out(at: &Path, count: u64) {
    let mut copy = Program::new("sh");
    copy.arg("-c").arg(format!(
        "find . -xdev \\( -type f -size -2000k -o -type l \\) | LC_ALL=C sort | head -n {count} | \
         tar -cf - --no-xattrs -T - | tar -xf - -C {}",
        at.display()
    ));
    run(copy.current_dir("/usr"));
}

/// All regular files below a directory.
fn files(at: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(at).unwrap().map(Result::unwrap).collect();
    entries.sort_unstable_by_key(fs::DirEntry::path);
    for entry in entries {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

/// Changes one of 20 files.
fn change(at: &Path, rng: &mut Rng) {
    let mut all = Vec::new();
    files(at, &mut all);
    for (number, path) in all.iter().enumerate() {
        if !rng.chance(20) {
            continue;
        }
        let open = || OpenOptions::new().write(true).open(path).unwrap();
        let len = fs::metadata(path).unwrap().len();
        let new = path.with_file_name(format!("new {number}"));
        match rng.below(10) {
            0 => fs::remove_file(path).unwrap(),
            1 => fs::rename(path, new).unwrap(),
            2 => {
                let words = format!("changed {number}\n").repeat(1 + rng.index(2000));
                open().write_all_at(words.as_bytes(), len).unwrap();
            }
            3 => {
                let noise = rng.index(20_000);
                let noise = rng.bytes(noise);
                open().write_all_at(&noise, rng.below(len + 1)).unwrap();
            }
            4 => open().set_len(rng.below(len + 1)).unwrap(),
            5 => {
                let mut copy = Program::new("cp");
                run(copy.arg("--reflink=always").args([path, &new]));
            }
            6 => fs::hard_link(path, new).unwrap(),
            7 => {
                let mode = fs::Permissions::from_mode(0o600 | rng.below(0o200) as u32);
                fs::set_permissions(path, mode).unwrap();
            }
            8 => lchown(path, Some(7), Some(8)).unwrap(),
            _ => {
                let dir = path.with_file_name(format!("dir {number}"));
                fs::create_dir(&dir).unwrap();
                fs::rename(path, dir.join("moved")).unwrap();
            }
        }
    }
}

/// The streams of both subvolumes, in one form, as Linux sends them.
struct Streams<'a> {
    dir: &'a Path,
    form: &'static str,
    options: &'static [&'static str],
}

impl Streams<'_> {
    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{}.{name}", self.form))
    }

    /// Sends both, and verifies the streams.
    fn make(&self, btrfs: &Tool, at: &Path) {
        for (known, name) in [(&[][..], "a"), (&["-p", "a"], "b")] {
            let file = self.file(name);
            let to = ["send", "-q", "-f", file.to_str().unwrap()];
            btrfs_in(btrfs, at, &[&to, self.options, known, &[name]].concat());
            done(self.dir, &["stream", "verify", file.to_str().unwrap()]);
        }
    }

    /// Sends both from the image, and compares.
    fn compare(&self, image: &Path) {
        let [a, b] = ["a", "b"].map(|name| format!("{}:{name}", image.display()));
        for (known, typed, name) in [(&[][..], &a, "a"), (&["-p", &a], &b, "b")] {
            let to = ["send", "-q", "-f", "ours"];
            let args = [&to[..], self.options, known, &[typed]].concat();
            done(self.dir, &args);
            let ours = fs::read(self.dir.join("ours")).unwrap();
            let linux = fs::read(self.file(name)).unwrap();
            let same = ours == linux;
            println!("{} {name}: {} bytes, equal {same}", self.form, ours.len());
            // Only which of several clone sources Linux takes is its own.
            if !same {
                assert_eq!(name, "b", "{}", self.form);
                let [ours, linux] = [&ours, &linux].map(|stream| commands(stream, false));
                assert_same(&ours, &linux, self.form);
            }
        }
    }

    /// Receives both by btrfs-progs.
    fn receive(&self, btrfs: &Tool, to: &Path) {
        for name in ["a", "b"] {
            let mut receive = btrfs.command();
            run(receive
                .args(["receive", "-q", "-f"])
                .args([&*self.file(name), to]));
        }
    }

    /// Receives both by ourselves.
    fn receive_ours(&self, to: &str, kind: &str) {
        for name in ["a", "b"] {
            let file = self.file(name);
            let file = file.to_str().unwrap();
            done(self.dir, &["receive", "-q", "--to", kind, "-f", file, to]);
        }
    }

    /// What is flipped or cut is found.
    fn damage(&self, rng: &mut Rng) {
        let path = self.dir.join("damaged");
        fs::copy(self.file("a"), &path).unwrap();
        let len = fs::metadata(&path).unwrap().len();
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.unwrap();
        let refused = |what: &str| {
            let args = ["stream", "verify", "--no-data", "damaged"];
            let (code, out, _) = run_in(self.dir, args);
            assert_eq!(code, 1, "{what}: {out}");
        };
        for _ in 0..3 {
            let (at, bit, mut byte) = (17 + rng.below(len - 17), 1 << rng.below(8), [0]);
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ bit], at).unwrap();
            refused(&format!("byte {at} flipped"));
            file.write_all_at(&byte, at).unwrap();
        }
        let cut = rng.below(len);
        file.set_len(cut).unwrap();
        refused(&format!("cut at byte {cut}"));
        fs::remove_file(path).unwrap();
    }
}

/// Everything that can be compared of /usr with one algorithm; `to` is what the streams are
/// converted to.
fn compare(algorithm: &str, to: &[&str], forms: &[(&'static str, &'static [&'static str])]) {
    let (Some(btrfs), Some(_)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let count = cases(60_u64);
    let rng = &mut Rng::new(algorithm.len() as u64);
    let source = sized(IMAGE_BYTES, &format!("noatime,compress-force={algorithm}"));
    let at = source.path();
    btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
    lay_out(&at.join("s"), count);
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "a"]);
    change(&at.join("s"), rng);
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "b"]);
    let expected = ["a", "b"].map(|name| manifest(&at.join(name), "."));
    let dir = TempDir::new();
    let in_form = |&(form, options)| Streams {
        dir: dir.path(),
        form,
        options,
    };
    let streams: Vec<Streams<'_>> = forms.iter().map(in_form).collect();
    for streams in &streams {
        streams.make(&btrfs, at);
    }
    let image = source.unmount();
    for streams in &streams {
        streams.compare(image.path());
    }
    drop(image);
    let encoded = streams.last().unwrap();
    encoded.damage(rng);
    let assert_right = |at: &Path, what: &str| {
        for (name, expected) in ["a", "b"].iter().zip(&expected) {
            assert_same(&manifest(&at.join(name), "."), expected, what);
        }
    };
    // Received by Linux and by us, and sent again by Linux.
    let target = || sized(IMAGE_BYTES, "noatime");
    let targets = [target(), target()];
    encoded.receive(&btrfs, targets[0].path());
    encoded.receive_ours(targets[1].path().to_str().unwrap(), "btrfs");
    for (known, name) in [(&[][..], "a"), (&["-p", "a"], "b")] {
        let options = [&["-q", "--compressed-data"], known].concat();
        let sent = |target: &Mount| {
            let mut lines = normal(&send(&btrfs, target.path(), &options, name));
            // Of the root, which Linux does not send again if temporary names changed it since.
            lines.retain(|line| !line.starts_with("utimes  "));
            lines
        };
        let [theirs, ours] = [0, 1].map(|index| sent(&targets[index]));
        assert_same(&ours, &theirs, &format!("{name} sent again"));
        println!("{name} sent again: {} commands equal", ours.len());
    }
    assert_right(targets[1].path(), "received");
    drop(targets);
    // Into an image, and into directories.
    encoded.receive_ours("image", "image");
    run(btrfs.command().arg("check").arg(dir.join("image")));
    let device = LoopDevice::attach(BackingFile::existing(dir.join("image")), Access::ReadOnly);
    let image = Mount::new(device, FsType::Btrfs, "subvolid=5");
    assert_right(image.path(), "received into an image");
    drop(image);
    fs::remove_file(dir.join("image")).unwrap();
    fs::create_dir(dir.join("directory")).unwrap();
    encoded.receive_ours("directory", "directory");
    assert_right(&dir.join("directory"), "received into directories");
    fs::remove_dir_all(dir.join("directory")).unwrap();
    // Converted, and received by Linux.
    let converted = Streams {
        dir: dir.path(),
        form: "converted",
        options: &[],
    };
    for name in ["a", "b"] {
        let [from, into] = [encoded.file(name), converted.file(name)];
        let paths = [from.to_str().unwrap(), into.to_str().unwrap()];
        done(
            dir.path(),
            &[&["stream", "convert", "-q"], to, &paths].concat(),
        );
        done(dir.path(), &["stream", "verify", paths[1]]);
    }
    let linux = target();
    converted.receive(&btrfs, linux.path());
    // Read from the disk.
    let device = LoopDevice::attach(linux.unmount(), Access::ReadOnly);
    let linux = Mount::new(device, FsType::Btrfs, "");
    assert_right(linux.path(), "converted");
    let counted = File::open(encoded.file("a")).unwrap().metadata().unwrap();
    println!(
        "campaign: {} names; the full stream has {} bytes",
        expected[0].len(),
        counted.len()
    );
}

const COMPRESSED: (&str, &[&str]) = ("compressed", &["--compressed-data"]);

#[test]
#[ignore = "needs root"]
fn zstd() {
    let forms = [("v1", &["--proto", "1"][..]), COMPRESSED];
    compare("zstd", &["--compress", "lzo"], &forms);
}

#[test]
#[ignore = "needs root"]
fn lzo() {
    let forms = [("v2", &["--proto", "2"][..]), COMPRESSED];
    compare("lzo", &["--compress", "zstd:3"], &forms);
}

#[test]
#[ignore = "needs root"]
fn zlib() {
    compare("zlib", &["--decompress"], &[COMPRESSED]);
}
