//! Streams of trees with more directories than Linux keeps in mind, compared with those of `btrfs
//! send`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Rng, TempDir, cases, run, tool};

use super::receive::{mounted, send};
use super::run_in;
use super::send_incremental::commands;

const KINDS: [&[&str]; 3] = [&["--proto", "1"], &["--proto", "2"], &["--compressed-data"]];

/// Adds files of all kinds to random directories. Their numbers rise, so that directories change
/// again long after others.
fn add_files(dirs: &[PathBuf], rng: &mut Rng, word: &str) {
    for turn in 0..600 {
        let dir = &dirs[rng.index(dirs.len())];
        let path = dir.join(format!("{word}{turn}"));
        match rng.below(8) {
            0 => fs::write(&path, "").unwrap(),
            1 => symlink("target", &path).unwrap(),
            2 => fs::create_dir(&path).unwrap(),
            3 => fs::hard_link(dirs[0].join("linked"), &path).unwrap(),
            4 => {
                let hole = fs::File::create(&path).unwrap();
                hole.set_len(1 << 20).unwrap();
            }
            5 => fs::write(&path, "text\n".repeat(3000)).unwrap(),
            _ => fs::write(&path, rng.bytes(5000)).unwrap(),
        }
    }
}

/// Changes files in random directories.
fn change(dirs: &[PathBuf], rng: &mut Rng) {
    let mut files = Vec::new();
    for dir in dirs {
        let entries = fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
        files.extend(entries.filter(|path| path.is_symlink() || path.is_file()));
    }
    files.retain(|path| !path.ends_with("linked"));
    files.sort();
    for (turn, path) in files.iter().enumerate() {
        let new = dirs[rng.index(dirs.len())].join(format!("m{turn}"));
        match rng.below(9) {
            0 => fs::rename(path, &new).unwrap(),
            1 => fs::remove_file(path).unwrap(),
            2 => fs::hard_link(path, &new).unwrap(),
            3 if !path.is_symlink() => fs::write(path, rng.bytes(9000)).unwrap(),
            4 if !path.is_symlink() => {
                let file = fs::File::options().write(true).open(path).unwrap();
                file.set_len(100).unwrap();
            }
            5 => {
                let mut touch = Command::new("touch");
                run(touch.args(["-h", "-d", "@77"]).arg(path));
            }
            _ => {}
        }
    }
    add_files(dirs, rng, "n");
}

/// Sends with these options as well.
fn sent(image: &Path, dir: &Path, more: &[&str], name: &str) -> Vec<u8> {
    let tree = format!("{}:{name}", image.display());
    let args = [&["send", "-q", "-f", "ours"], more, &[&*tree]].concat();
    let (code, _, words) = run_in(dir, args);
    assert_eq!(code, 0, "{words}");
    let sent = fs::read(dir.join("ours")).unwrap();
    fs::remove_file(dir.join("ours")).unwrap();
    sent
}

#[test]
#[ignore = "needs root"]
fn times_of_many_directories_are_sent_where_linux_sends_them() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    for seed in 0..cases(1_u64) {
        let mut rng = Rng::new(seed);
        let mount = mounted(&mkfs, "noatime,compress=zstd");
        let at = mount.path();
        let tree = at.join("s");
        run(btrfs.command().args(["subvolume", "create"]).arg(&tree));
        let mut dirs = vec![tree.clone()];
        for turn in 0..250 {
            let dir = dirs[rng.index(dirs.len())].join(format!("d{turn}"));
            fs::create_dir(&dir).unwrap();
            dirs.push(dir);
        }
        fs::write(tree.join("linked"), "linked").unwrap();
        add_files(&dirs, &mut rng, "f");
        let snapshot = |name: &str| {
            let mut snapshot = btrfs.command();
            let names = [&tree, &at.join(name)];
            run(snapshot.args(["subvolume", "snapshot", "-r"]).args(names));
        };
        snapshot("a");
        change(&dirs, &mut rng);
        snapshot("b");
        let parent = at.join("a");
        let mut linux = Vec::new();
        for kind in KINDS {
            let full = send(&btrfs, at, &[&["-q"], kind].concat(), "a");
            let options = [&["-q", "-p", parent.to_str().unwrap()], kind].concat();
            linux.push((kind, full, send(&btrfs, at, &options, "b")));
        }
        let image = mount.unmount();
        let dir = TempDir::new();
        let parent = format!("{}:a", image.path().display());
        for (kind, full, changes) in &linux {
            let what = format!("seed {seed}, {kind:?}");
            let ours = sent(image.path(), dir.path(), kind, "a");
            assert!(ours == *full, "{what}");
            let more = [&["-p", &parent], *kind].concat();
            let ours = commands(&sent(image.path(), dir.path(), &more, "b"), true);
            let linux = commands(changes, true);
            let differs = ours.iter().zip(&linux).find(|(ours, linux)| ours != linux);
            assert_eq!((ours.len(), differs), (linux.len(), None), "{what}");
        }
    }
}
