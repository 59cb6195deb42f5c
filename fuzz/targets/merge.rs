//! Two trees of few names, put into one directory one after the other, in which links to the
//! outside are planted.
//!
//! Asserts: nothing outside of the directory changes; each name has what was put there last, unless
//! it was refused or kept; what was refused is as it was; nothing temporary is left.
//!
//! `cargo +nightly fuzz run merge`
#![cfg_attr(not(test), no_main)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use testkit::{MemoryFs, TempDir};
use tree::extract::{Conflict, Existing, ExtractOptions, extract};
use tree::{Device, FileKind, FileSystem, Ino, Inventory, Limits, NoProgress, Parallel};

const NAMES: [&str; 6] = ["a", "b", "c", "planted", "planted file", "d"];
const ENTRIES_MAX: usize = 40;

/// A tree from bytes: each entry takes three, for kind, directory and name.
fn tree(bytes: &[u8], mark: u8) -> MemoryFs {
    let mut fs = MemoryFs::new();
    let mut dirs: Vec<Ino> = vec![fs.root()];
    let mut files: Vec<Ino> = Vec::new();
    let mut taken = BTreeSet::new();
    for entry in bytes.chunks_exact(3).take(ENTRIES_MAX) {
        let dir = dirs[usize::from(entry[1]) % dirs.len()];
        let name = NAMES[usize::from(entry[2]) % NAMES.len()];
        if !taken.insert((dir, name)) {
            continue;
        }
        match entry[0] % 6 {
            0 | 1 => dirs.push(fs.add_dir(dir, name)),
            2 => drop(fs.add_symlink(dir, name, b"../outside")),
            3 => drop(fs.add_special(dir, name, FileKind::Fifo, Device::default())),
            4 if !files.is_empty() => {
                let file = files[usize::from(entry[0]) % files.len()];
                fs.link(dir, name, file);
            }
            _ => files.push(fs.add_file(dir, name, &[mark, entry[0]])),
        }
    }
    fs
}

fn is_unchanged(outside: &Path) {
    let names: BTreeSet<_> = fs::read_dir(outside)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"theirs");
    assert_eq!(fs::read_dir(outside.join("a")).unwrap().count(), 0);
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[choice, cut], rest)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let conflict = [
        Conflict::Replace,
        Conflict::KeepExisting,
        Conflict::KeepNewer,
    ][usize::from(choice) % 3];
    let dir = TempDir::new();
    let (to, outside) = (dir.join("to"), dir.join("outside"));
    fs::create_dir_all(outside.join("a")).unwrap();
    fs::write(outside.join("file"), "theirs").unwrap();
    fs::create_dir(&to).unwrap();
    symlink("../outside", to.join("planted")).unwrap();
    symlink("../outside/file", to.join("planted file")).unwrap();
    let cut = usize::from(cut).min(rest.len());
    for (mark, half) in [(1, &rest[..cut]), (2, &rest[cut..])] {
        let fs = tree(half, mark);
        let inventory = Inventory::of(&fs, &Limits::default()).unwrap();
        let options = ExtractOptions {
            existing: Existing::Merge(conflict),
            owners: true,
            sync: false,
            skip_unreadable: false,
            parallel: Parallel::new(1),
            ..ExtractOptions::default()
        };
        let done = extract(&inventory, &to, &options, &NoProgress).unwrap();
        is_unchanged(&outside);
        let is_refused = |path: &[u8]| {
            done.refused.iter().any(|refused| {
                let below = path.strip_prefix(&*refused.path);
                below.is_some_and(|below| below.is_empty() || below.starts_with(b"/"))
            })
        };
        let mut differing = 0;
        for entry in inventory.names() {
            let (path, file) = (inventory.path(entry), inventory.file(entry));
            if is_refused(&path) {
                continue;
            }
            let at = to.join(str::from_utf8(&path).unwrap());
            let there = fs::symlink_metadata(&at).unwrap();
            let is_dir = inventory.kind(file) == FileKind::Directory;
            assert_eq!(there.is_dir(), is_dir, "{}", at.display());
            if inventory.kind(file) == FileKind::Regular {
                let mut content = [0; 2];
                fs.read_at(inventory.ino(file), 0, &mut content).unwrap();
                let same = there.is_file() && fs::read(&at).unwrap() == content;
                differing += u64::from(!same);
            }
        }
        assert!(differing <= done.kept, "{differing} of {}", done.kept);
        assert!(conflict != Conflict::Replace || done.kept == 0);
        let mut names = fs::read_dir(&to)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        assert!(names.all(|name| NAMES.iter().any(|known| name == *known)));
    }
});
