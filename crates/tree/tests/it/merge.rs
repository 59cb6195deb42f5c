//! Trees that are put into directories that hold files, compared with a model.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use testkit::{HookedFs, MemoryFs, Rng, TempDir};
use tree::extract::{Conflict, Existing, ExtractOptions, Extracted, extract};
use tree::{Device, Error, FileKind, FileSystem, Inventory, Limits, NoProgress, Parallel};

fn options(conflict: Conflict) -> ExtractOptions {
    ExtractOptions {
        existing: Existing::Merge(conflict),
        owners: true,
        sync: false,
        skip_unreadable: false,
        parallel: Parallel::new(2),
        ..ExtractOptions::default()
    }
}

fn merge(fs: &dyn FileSystem, to: &Path, conflict: Conflict) -> Extracted {
    let inventory = Inventory::of(fs, &Limits::default()).unwrap();
    extract(&inventory, to, &options(conflict), &NoProgress).unwrap()
}

#[test]
fn existing_directories_are_updated_on_demand() {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let dir = fs.add_dir(root, "d");
    fs.add_file(dir, "f", b"new");
    for ino in [root, dir] {
        fs.metadata_mut(ino).permissions = 0o750;
        fs.metadata_mut(ino).mtime.seconds = 1_000_000;
    }
    let inventory = Inventory::of(&fs, &Limits::default()).unwrap();
    for updates in [false, true] {
        let to = TempDir::new();
        fs::create_dir(to.join("d")).unwrap();
        fs::write(to.join("d/own"), "").unwrap();
        let both = [to.path().to_owned(), to.join("d")];
        for dir in &both {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let options = ExtractOptions {
            update_dirs: updates,
            ..options(Conflict::Replace)
        };
        extract(&inventory, to.path(), &options, &NoProgress).unwrap();
        assert!(to.join("d/own").exists() && to.join("d/f").exists());
        for dir in &both {
            let found = fs::metadata(dir).unwrap();
            let state = (found.mode() & 0o777 == 0o750, found.mtime() == 1_000_000);
            assert_eq!(state, (updates, updates), "{}", dir.display());
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Dir,
    /// Content, and the time in seconds.
    File(Vec<u8>, i64),
    Link(Vec<u8>, i64),
}

type Model = BTreeMap<String, Node>;

/// A random tree of few names, so that two of them often disagree about what a name is.
fn random_tree(rng: &mut Rng) -> (MemoryFs, Model) {
    let mut fs = MemoryFs::new();
    let mut model = Model::new();
    let mut dirs = vec![(fs.root(), String::new())];
    for _ in 0..rng.below(30) {
        let (dir, path) = dirs[rng.index(dirs.len())].clone();
        let name = ["a", "b", "c", "d"][rng.index(4)];
        let path = format!("{path}/{name}");
        if model.contains_key(&path) {
            continue;
        }
        let time = 1_600_000_000 + rng.below(3).cast_signed();
        let node = match rng.below(5) {
            0 | 1 => {
                dirs.push((fs.add_dir(dir, name), path.clone()));
                Node::Dir
            }
            2 => {
                let target = rng
                    .bytes(4)
                    .iter()
                    .map(|b| b'a' + b % 4)
                    .collect::<Vec<_>>();
                let link = fs.add_symlink(dir, name, &target);
                fs.metadata_mut(link).mtime.seconds = time;
                Node::Link(target, time)
            }
            _ => {
                // Some are written in parts.
                let len = if rng.chance(8) { 1_200_000 } else { 5 };
                let content = rng.bytes(len);
                let file = fs.add_file(dir, name, &content);
                fs.metadata_mut(file).mtime.seconds = time;
                Node::File(content, time)
            }
        };
        model.insert(path, node);
    }
    (fs, model)
}

/// What a merge must do: returns the names that were refused, and how many files were kept.
fn merge_model(into: &mut Model, from: &Model, conflict: Conflict) -> (Vec<String>, u64) {
    let (mut refused, mut kept) = (Vec::<String>::new(), 0);
    for (path, node) in from {
        let is_below = |above: &String| path.starts_with(&format!("{above}/"));
        if refused.iter().any(is_below) {
            continue;
        }
        let time = |node: &Node| match node {
            Node::Dir => 0,
            Node::File(_, time) | Node::Link(_, time) => *time,
        };
        match into.get(path) {
            Some(Node::Dir) if *node == Node::Dir => {}
            Some(there) if (*there == Node::Dir) != (*node == Node::Dir) => {
                refused.push(path.clone());
            }
            Some(there)
                if conflict == Conflict::KeepExisting
                    || conflict == Conflict::KeepNewer && time(there) > time(node) =>
            {
                kept += 1;
            }
            _ => drop(into.insert(path.clone(), node.clone())),
        }
    }
    (refused, kept)
}

fn on_disk(at: &Path) -> Model {
    let mut model = Model::new();
    let mut open = vec![String::new()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(at.join(dir.trim_start_matches('/'))).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{dir}/{}", entry.file_name().to_str().unwrap());
            let metadata = entry.metadata().unwrap();
            let node = if metadata.is_dir() {
                open.push(path.clone());
                Node::Dir
            } else if metadata.is_symlink() {
                let target = fs::read_link(entry.path()).unwrap();
                Node::Link(
                    target.into_os_string().into_encoded_bytes(),
                    metadata.mtime(),
                )
            } else {
                Node::File(fs::read(entry.path()).unwrap(), metadata.mtime())
            };
            model.insert(path, node);
        }
    }
    model
}

#[test]
fn random_trees_merged_twice_are_as_the_model_says() {
    let mut refused_in_all = 0;
    for seed in 0..testkit::cases(60) {
        let mut rng = Rng::new(seed);
        let dir = TempDir::new();
        let to = dir.join("to");
        fs::create_dir(&to).unwrap();
        let mut expected = Model::new();
        for round in 0..3 {
            let (tree, model) = random_tree(&mut rng);
            let conflicts = [
                Conflict::Replace,
                Conflict::KeepExisting,
                Conflict::KeepNewer,
            ];
            let conflict = conflicts[rng.index(3)];
            for again in [false, true] {
                let context = format!("seed {seed}, round {round}, {conflict:?}, again: {again}");
                let (refused, kept) = merge_model(&mut expected, &model, conflict);
                let done = merge(&tree, &to, conflict);
                let got = on_disk(&to);
                assert!(got == expected, "{context}: {:?}", got.keys());
                let mut got: Vec<_> = done
                    .refused
                    .iter()
                    .map(|refused| format!("/{}", refused.path.escape_ascii()))
                    .collect();
                got.sort();
                assert_eq!(got, refused, "{context}");
                assert_eq!(done.kept, kept, "{context}");
                assert!(done.unrestored.is_empty(), "{context}");
                refused_in_all += refused.len();
            }
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
    assert!(refused_in_all > 50, "the test tests: {refused_in_all}");
}

#[test]
fn a_merge_keeps_what_the_tree_does_not_have_and_metadata_of_directories() {
    let mut tree = MemoryFs::new();
    let root = tree.root();
    tree.metadata_mut(root).permissions = 0o777;
    let sub = tree.add_dir(root, "sub");
    tree.metadata_mut(sub).permissions = 0o777;
    tree.add_file(sub, "new", b"new");
    tree.add_file(sub, "both", b"ours");
    let fresh = tree.add_dir(sub, "fresh");
    tree.metadata_mut(fresh).permissions = 0o500;
    tree.metadata_mut(fresh).mtime.seconds = 77;
    tree.add_xattr(fresh, b"user.x", b"y");
    let first = tree.add_file(fresh, "first", b"linked");
    tree.link(sub, "second", first);
    tree.add_special(sub, "fifo", FileKind::Fifo, Device::default());
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("sub/other")).unwrap();
    fs::write(dir.join("sub/other/file"), "theirs").unwrap();
    fs::write(dir.join("sub/both"), "theirs").unwrap();
    fs::hard_link(dir.join("sub/both"), dir.join("sub/linked")).unwrap();
    for path in ["sub", "."] {
        fs::set_permissions(dir.join(path), fs::Permissions::from_mode(0o750)).unwrap();
    }
    let done = merge(&tree, dir.path(), Conflict::Replace);
    assert!(done.refused.is_empty() && done.kept == 0);
    assert_eq!(fs::read(dir.join("sub/other/file")).unwrap(), b"theirs");
    assert_eq!(fs::read(dir.join("sub/new")).unwrap(), b"new");
    assert_eq!(fs::read(dir.join("sub/both")).unwrap(), b"ours");
    // It is replaced, not written into: its other names keep the old content.
    assert_eq!(fs::read(dir.join("sub/linked")).unwrap(), b"theirs");
    let mode = |path: &str| fs::metadata(dir.join(path)).unwrap().mode() & 0o7777;
    assert_eq!(
        (mode("."), mode("sub"), mode("sub/fresh")),
        (0o750, 0o750, 0o500)
    );
    assert_eq!(fs::metadata(dir.join("sub/fresh")).unwrap().mtime(), 77);
    let ino = |path: &str| fs::metadata(dir.join(path)).unwrap().ino();
    assert_eq!(ino("sub/fresh/first"), ino("sub/second"));
    assert!(fs::symlink_metadata(dir.join("sub/fifo")).unwrap().mode() & 0o170_000 == 0o010_000);
    // The name that was there stays; the other one has the tree's content all the same.
    fs::remove_file(dir.join("sub/second")).unwrap();
    fs::write(dir.join("sub/fresh/first"), "theirs").unwrap();
    let done = merge(&tree, dir.path(), Conflict::KeepExisting);
    assert_eq!(done.kept, 4, "new, both, fifo, fresh/first");
    assert_eq!(fs::read(dir.join("sub/fresh/first")).unwrap(), b"theirs");
    assert_eq!(fs::read(dir.join("sub/second")).unwrap(), b"linked");
}

#[test]
fn links_in_the_directory_are_replaced_and_never_followed() {
    let mut tree = MemoryFs::new();
    let root = tree.root();
    let sub = tree.add_dir(root, "sub");
    tree.add_file(sub, "file", b"ours");
    let deep = tree.add_dir(sub, "deep");
    tree.add_file(deep, "file", b"ours");
    tree.add_file(root, "file", b"ours");
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("outside/deep")).unwrap();
    fs::write(dir.join("outside/file"), "theirs").unwrap();
    for conflict in [
        Conflict::Replace,
        Conflict::KeepExisting,
        Conflict::KeepNewer,
    ] {
        let to = dir.join(format!("{conflict:?}"));
        fs::create_dir(&to).unwrap();
        symlink(dir.join("outside"), to.join("sub")).unwrap();
        symlink(dir.join("outside/file"), to.join("file")).unwrap();
        let done = merge(&tree, &to, conflict);
        assert_eq!(done.refused.len(), 1, "{done:?}");
        assert_eq!(&*done.refused[0].path, b"sub");
        assert!(done.refused[0].reason.contains("symbolic link"));
        assert_eq!(fs::read(dir.join("outside/file")).unwrap(), b"theirs");
        assert_eq!(fs::read_dir(dir.join("outside/deep")).unwrap().count(), 0);
        assert!(to.join("sub").is_symlink());
        // The link is newer than the tree's file.
        let is_link = to.join("file").is_symlink();
        assert_eq!(is_link, conflict != Conflict::Replace);
    }
}

/// Somebody exchanges a directory for a link while the tree is written.
#[test]
fn links_that_appear_meanwhile_are_not_followed() {
    let mut tree = MemoryFs::new();
    let sub = tree.add_dir(tree.root(), "sub");
    let file = tree.add_file(sub, "file", b"ours");
    let other = tree.add_file(tree.root(), "z", b"ours");
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("to/sub")).unwrap();
    fs::create_dir(dir.join("outside")).unwrap();
    let (to, outside) = (dir.join("to"), dir.join("outside"));
    let hooked = HookedFs::new(tree, move |ino, _| {
        if ino == file {
            fs::remove_dir(to.join("sub")).unwrap();
            symlink(&outside, to.join("sub")).unwrap();
        }
        if ino == other {
            fs::create_dir(to.join("z")).unwrap();
        }
        Ok(())
    });
    let done = merge(&hooked, &dir.join("to"), Conflict::Replace);
    let refused: Vec<_> = done.refused.iter().map(|refused| &*refused.path).collect();
    assert_eq!(refused, [&b"sub"[..], b"z"], "{done:?}");
    assert_eq!(fs::read_dir(dir.join("outside")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(dir.join("to")).unwrap().count(), 2);
}

#[test]
fn an_error_while_files_are_read_changes_nothing() {
    let mut tree = MemoryFs::new();
    let root = tree.root();
    tree.add_file(root, "a", b"ours");
    let bad = tree.add_file(root, "b", b"ours");
    let tree = HookedFs::new(tree, move |ino, _| {
        if ino == bad {
            Err(Error::Unsupported("the test"))
        } else {
            Ok(())
        }
    });
    let dir = TempDir::new();
    fs::write(dir.join("a"), "theirs").unwrap();
    let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
    let options = options(Conflict::Replace);
    extract(&inventory, dir.path(), &options, &NoProgress).unwrap_err();
    assert_eq!(fs::read(dir.join("a")).unwrap(), b"theirs");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn deep_trees_are_merged() {
    let mut tree = MemoryFs::new();
    let mut at = tree.root();
    for level in 0..500 {
        tree.add_file(at, "a file", b"content");
        at = tree.add_dir(at, format!("level {level:0100}"));
    }
    let dir = TempDir::new();
    for expected in [0, 500] {
        let done = merge(&tree, dir.path(), Conflict::KeepExisting);
        assert_eq!((done.kept, done.refused.len()), (expected, 0));
    }
}

#[test]
fn an_inventory_without_some_names_is_that_of_a_smaller_tree() {
    for seed in 0..testkit::cases(200) {
        let mut rng = Rng::new(seed);
        let (mut tree, _) = random_tree(&mut rng);
        let whole = Inventory::of(&tree, &Limits::default()).unwrap();
        // Some hard links, too.
        let files: Vec<_> = whole
            .files()
            .filter(|&f| whole.kind(f) != FileKind::Directory)
            .collect();
        let linked = ["l", "m"].map(|name| {
            let file = (!files.is_empty()).then(|| files[rng.index(files.len())]);
            (name, file.map(|file| whole.ino(file)))
        });
        for (name, file) in linked {
            if let Some(file) = file {
                tree.link(tree.root(), name, file);
            }
        }
        let whole = Inventory::of(&tree, &Limits::default()).unwrap();
        let left_out: Vec<bool> = (0..whole.entry_count())
            .map(|n| n > 0 && rng.chance(4))
            .collect();
        let part = whole.without(|entry| left_out[entry.0 as usize]);
        let is_left_out = |mut entry: tree::EntryId| {
            while entry != whole.root() {
                if left_out[entry.0 as usize] {
                    return true;
                }
                entry = whole.first_name(whole.parent(entry));
            }
            false
        };
        let expected: Vec<_> = whole.names().filter(|&e| !is_left_out(e)).collect();
        let got: Vec<_> = part.names().collect();
        assert_eq!(got.len(), expected.len(), "seed {seed}");
        let mut bytes = 0;
        for (got, expected) in got.into_iter().zip(expected) {
            assert_eq!(part.path(got), whole.path(expected), "seed {seed}");
            let (file, old) = (part.file(got), whole.file(expected));
            assert_eq!(part.metadata(file), whole.metadata(old));
            assert_eq!(part.ino(file), whole.ino(old));
            assert!(part.first_name(file) <= got || part.name_count(file) > 1);
            if part.is_first_name(got) && part.kind(file) == FileKind::Regular {
                bytes += part.size(file);
            }
            assert_eq!(part.find(&part.path(got)), Some(got));
        }
        assert_eq!(part.content_bytes(), bytes, "seed {seed}");
    }
}
