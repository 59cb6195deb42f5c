//! Extracted trees equal their sources, according to the GNU tools and the kernel.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use testkit::{HookedFs, MemoryFs, NASTY_SPARSE_BYTES, Rng, TempDir, nasty_tree, tool};
use tree::extract::{Aspect, Conflict, Existing, ExtractOptions, Unrestored, extract};
use tree::{
    Error, FileAttributes, FileKind, FileSystem, HostDir, Inventory, Limits, NoProgress, Parallel,
    Progress,
};

fn options(threads: usize) -> ExtractOptions {
    ExtractOptions {
        existing: Existing::Refuse,
        skip_unreadable: false,
        owners: true,
        sync: false,
        parallel: Parallel::new(threads),
        ..ExtractOptions::default()
    }
}

fn write(fs: &dyn FileSystem, to: &Path, options: &ExtractOptions) -> Result<Unrestored, Error> {
    let inventory = Inventory::of(fs, &Limits::default())?;
    Ok(extract(&inventory, to, options, &NoProgress)?.unrestored)
}

/// Everything that `find` reports, except what a copy cannot preserve (inode, birth and change
/// time), and the attributes that `getfattr` dumps; sorted.
fn description(at: &Path) -> Option<(Vec<u8>, Vec<u8>)> {
    let (find, getfattr) = (tool("find")?, tool("getfattr")?);
    let mut command = find.command();
    command.current_dir(at);
    let files = "%P %y %m %U %G %T@ %s %l %n\\0";
    let dirs = "%P %y %m %U %G %T@\\0";
    command.args([".", "-type", "d", "-printf", dirs, "-o", "-printf", files]);
    let printed = testkit::run(&mut command).stdout;
    let mut lines: Vec<&[u8]> = printed.split(|&b| b == 0).collect();
    lines.sort_unstable();
    let mut command = getfattr.command();
    command.current_dir(at);
    command.args(["-R", "-P", "-h", "-d", "-m", "-", "-e", "hex", "."]);
    // It cannot enter the deep path, reports this, and continues.
    let dumped = command.output().unwrap().stdout;
    let mut files: Vec<&[u8]> = dumped.split(|&b| b == b'#').collect();
    files.sort_unstable();
    Some((lines.join(&b'\n'), files.concat()))
}

fn same_content(a: &dyn FileSystem, b: &dyn FileSystem) {
    let (inventory_a, inventory_b) = (
        Inventory::of(a, &Limits::default()).unwrap(),
        Inventory::of(b, &Limits::default()).unwrap(),
    );
    let (mut buf_a, mut buf_b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for entry in inventory_a.names() {
        let path = inventory_a.path(entry);
        let file_a = inventory_a.file(entry);
        let file_b = inventory_b.file(inventory_b.find(&path).unwrap());
        if inventory_a.kind(file_a) != FileKind::Regular {
            continue;
        }
        let size = inventory_a.size(file_a);
        assert_eq!(size, inventory_b.size(file_b));
        // In the 5 GiB, compare holes by sampling a few positions.
        let step = if size > 1 << 30 { 257 << 20 } else { 1 << 20 };
        let mut at = 0;
        while at < size {
            let n = a.read_at(inventory_a.ino(file_a), at, &mut buf_a).unwrap();
            let m = b.read_at(inventory_b.ino(file_b), at, &mut buf_b).unwrap();
            assert!(buf_a[..n] == buf_b[..m], "{}", path.escape_ascii());
            at += step;
        }
        if size > 1 << 30 {
            let mut last = [[1; 1], [2; 1]];
            let [last_a, last_b] = &mut last;
            a.read_at(inventory_a.ino(file_a), size - 1, last_a)
                .unwrap();
            b.read_at(inventory_b.ino(file_b), size - 1, last_b)
                .unwrap();
            assert_eq!(last_a, last_b);
        }
    }
}

#[test]
fn a_nasty_tree_comes_back_whole() {
    let (from, to) = (TempDir::new(), TempDir::new());
    nasty_tree(from.path());
    let Some(expected) = description(from.path()) else {
        return;
    };
    let is_root =
        fs::metadata("/proc/1").unwrap().uid() == fs::metadata(from.path()).unwrap().uid();
    for threads in [1, 2, 8] {
        let source = HostDir::open(from.path()).unwrap();
        let to = to.path().join(format!("copy-{threads}"));
        let unrestored = write(&source, &to, &options(threads)).unwrap();
        if is_root {
            assert_eq!(unrestored, Unrestored::default());
        }
        let got = description(&to).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&got.0),
            String::from_utf8_lossy(&expected.0)
        );
        assert_eq!(
            String::from_utf8_lossy(&got.1),
            String::from_utf8_lossy(&expected.1)
        );
        same_content(&source, &HostDir::open(&to).unwrap());
        // Former holes take no space.
        for hole in ["all", "small", "head", "tail", "huge", "comb"] {
            let [a, b] = [from.path(), &to].map(|at| fs::metadata(at.join("holes").join(hole)));
            let (a, b) = (a.unwrap(), b.unwrap());
            assert_eq!(a.len(), b.len());
            assert!(
                b.blocks() <= a.blocks() + 16,
                "{hole}: {} and {}",
                a.blocks(),
                b.blocks()
            );
        }
        let huge = fs::metadata(to.join("holes/huge")).unwrap();
        assert_eq!(huge.len(), NASTY_SPARSE_BYTES);
        let names = fs::read_dir(to.parent().unwrap()).unwrap();
        assert!(
            names
                .map(|e| e.unwrap().file_name())
                .all(|name| name.to_str().unwrap().starts_with("copy-")),
            "no temporary name is left"
        );
        let above = linux::open_dir(to.parent().unwrap()).unwrap();
        let name = to.file_name().unwrap().as_encoded_bytes();
        linux::remove_tree_at(above, name).unwrap();
    }
}

#[test]
fn access_times_are_restored() {
    let (from, to) = (TempDir::new(), TempDir::new());
    nasty_tree(from.path());
    let source = HostDir::open(from.path()).unwrap();
    let inventory = Inventory::of(&source, &Limits::default()).unwrap();
    let to = to.path().join("copy");
    extract(&inventory, &to, &options(2), &NoProgress).unwrap();
    let copy = HostDir::open(&to).unwrap();
    let copy = Inventory::of(&copy, &Limits::default()).unwrap();
    for entry in inventory.names() {
        let path = inventory.path(entry);
        let file = inventory.file(entry);
        let twin = copy.file(copy.find(&path).unwrap());
        if inventory.kind(file) != FileKind::Directory {
            let (a, b) = (inventory.metadata(file), copy.metadata(twin));
            assert_eq!(a.atime, b.atime, "{}", path.escape_ascii());
        }
    }
}

#[test]
fn what_is_there_is_refused_unless_it_is_an_empty_directory() {
    let mut tree = MemoryFs::new();
    let root = tree.root();
    tree.add_file(root, "new", b"new");
    let dir = TempDir::new();
    let at = |name: &str| dir.path().join(name);
    let names = || fs::read_dir(dir.path()).unwrap().count();

    fs::create_dir(at("empty")).unwrap();
    write(&tree, &at("empty"), &options(1)).unwrap();
    assert_eq!(fs::read(at("empty/new")).unwrap(), b"new");

    fs::create_dir(at("full")).unwrap();
    fs::write(at("full/old"), "old").unwrap();
    fs::write(at("file"), "old").unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink("full", at("to-full")).unwrap();
    for there in ["full", "file", "dangling", "to-full"] {
        let error = write(&tree, &at(there), &options(1)).unwrap_err();
        assert!(
            matches!(&error, Error::Io(e) if e.kind() == std::io::ErrorKind::AlreadyExists),
            "{there}: {error}"
        );
    }
    assert_eq!(fs::read(at("full/old")).unwrap(), b"old");
    assert_eq!(fs::read(at("file")).unwrap(), b"old");
    let before = names();

    // `--overwrite` is for files only: a directory with something in it stays.
    let with = |existing| ExtractOptions {
        existing,
        ..options(1)
    };
    let overwrite = with(Existing::ReplaceFile);
    for there in ["full", "to-full"] {
        let error = write(&tree, &at(there), &overwrite).unwrap_err();
        assert!(
            matches!(&error, Error::Io(e) if e.kind() == std::io::ErrorKind::AlreadyExists),
            "{there}: {error}"
        );
    }
    assert_eq!(fs::read(at("full/old")).unwrap(), b"old");
    for there in ["file", "dangling"] {
        for existing in [
            Existing::ReplaceDirectory,
            Existing::Merge(Conflict::Replace),
        ] {
            let error = write(&tree, &at(there), &with(existing)).unwrap_err();
            assert!(matches!(error, Error::NotADirectory), "{there}: {error}");
        }
        write(&tree, &at(there), &overwrite).unwrap();
        assert_eq!(fs::read(at(there).join("new")).unwrap(), b"new");
    }
    let replace = with(Existing::ReplaceDirectory);
    write(&tree, &at("full"), &replace).unwrap();
    assert_eq!(fs::read(at("full/new")).unwrap(), b"new");
    assert!(!at("full/old").exists());
    assert_eq!(names(), before, "no temporary name is left");
    // The link stays a link, and its target is replaced.
    fs::create_dir(at("full/dir")).unwrap();
    fs::write(at("full/dir/old"), "old").unwrap();
    let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
    let replaced = extract(&inventory, &at("to-full"), &replace, &NoProgress).unwrap();
    assert_eq!(replaced.removed, 3, "new, dir and dir/old");
    assert!(at("to-full").is_symlink() && !at("full/dir").exists());
    assert!(!at("nowhere").exists());
}

#[test]
fn what_the_place_would_pass_on_does_not_reach_the_copy() {
    let (from, to) = (TempDir::new(), TempDir::new());
    nasty_tree(from.path());
    let Some(expected) = description(from.path()) else {
        return;
    };
    // The parent directory has its own group, passes it on, and has a default access control list.
    let place = to.join("place");
    fs::create_dir(&place).unwrap();
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (1u16, 7u16, !0u32),
        (2, 7, 8),
        (4, 7, !0),
        (16, 7, !0),
        (32, 7, !0),
    ] {
        list.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    let dir = linux::open_dir(&place).unwrap();
    linux::set_xattr(&dir, b"system.posix_acl_default", &list).unwrap();
    if linux::process_owner().0 == 0 {
        std::os::unix::fs::chown(&place, None, Some(4321)).unwrap();
    }
    fs::set_permissions(&place, fs::Permissions::from_mode(0o2777)).unwrap();
    let source = HostDir::open(from.path()).unwrap();
    write(&source, &place.join("copy"), &options(2)).unwrap();
    let got = description(&place.join("copy")).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&got.0), text(&expected.0));
    assert_eq!(text(&got.1), text(&expected.1));
}

/// Fails to read one file.
fn broken(tree: MemoryFs, bad: tree::Ino) -> HookedFs<MemoryFs> {
    HookedFs::new(tree, move |file, at| {
        let what = "the test broke this file";
        let got = 7;
        if file == bad {
            return Err(tree::Corrupt { what, at, got }.into());
        }
        Ok(())
    })
}

#[test]
fn an_error_leaves_nothing_and_names_the_file() {
    let mut tree = MemoryFs::new();
    let root = tree.root();
    let deep = tree.add_dir(root, "deep");
    tree.metadata_mut(deep).permissions = 0;
    for n in 0..100 {
        tree.add_file(deep, format!("{n:03}"), b"content");
    }
    let bad = tree.add_file(deep, "077 bad", b"content");
    let later = tree.add_file(root, "later", &[3; 10_000_000]);
    for bad_one in [bad, later] {
        for threads in [1, 2, 8] {
            let dir = TempDir::new();
            let tree = broken(tree.clone(), bad_one);
            let error = write(&tree, &dir.path().join("out"), &options(threads)).unwrap_err();
            let name = if bad_one == bad {
                "deep/077 bad"
            } else {
                "later"
            };
            let expected = format!("read {name}: the test broke this file (found 0x7 at byte 0x0)");
            if threads == 1 || bad_one == bad {
                assert_eq!(error.to_string(), expected);
            }
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}

#[test]
fn a_name_that_appears_meanwhile_is_not_replaced() {
    struct Meddler<'a>(&'a Path);
    impl Progress for Meddler<'_> {
        fn expect(&self, _: Option<u64>, _: Option<u64>) {}
        fn advance(&self, _: u64, _: u64) {
            let _ = fs::create_dir(self.0);
            let _ = fs::write(self.0.join("theirs"), "theirs");
        }
    }
    let mut tree = MemoryFs::new();
    let root = tree.root();
    tree.add_file(root, "ours", b"ours");
    let dir = TempDir::new();
    let to = dir.path().join("out");
    let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
    let error = extract(&inventory, &to, &options(1), &Meddler(&to)).unwrap_err();
    assert!(matches!(error, Error::Io(_)), "{error}");
    assert_eq!(fs::read(to.join("theirs")).unwrap(), b"theirs");
    assert_eq!(fs::read_dir(&to).unwrap().count(), 1);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn progress_adds_up_to_what_was_expected() {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    #[derive(Default)]
    struct Sum([AtomicU64; 4]);
    impl Progress for Sum {
        fn expect(&self, files: Option<u64>, bytes: Option<u64>) {
            self.0[0].store(files.unwrap(), Relaxed);
            self.0[1].store(bytes.unwrap(), Relaxed);
        }
        fn advance(&self, files: u64, bytes: u64) {
            self.0[2].fetch_add(files, Relaxed);
            self.0[3].fetch_add(bytes, Relaxed);
        }
    }
    let (from, to) = (TempDir::new(), TempDir::new());
    nasty_tree(from.path());
    let source = HostDir::open(from.path()).unwrap();
    let inventory = Inventory::of(&source, &Limits::default()).unwrap();
    let sum = Sum::default();
    extract(&inventory, &to.join("out"), &options(2), &sum).unwrap();
    let [files, bytes, files_done, bytes_done] = sum.0.map(AtomicU64::into_inner);
    assert_eq!((files, bytes), (files_done, bytes_done));
    assert!(bytes > NASTY_SPARSE_BYTES);
}

#[test]
fn what_cannot_be_restored_is_counted_and_named() {
    let mut tree = MemoryFs::new();
    let root = tree.root();
    for n in 0..10 {
        let file = tree.add_file(root, format!("{n}"), b"x");
        tree.add_xattr(file, b"nonsense", b"value");
    }
    let file = tree.add_file(root, "old", b"x");
    tree.metadata_mut(file).mtime.seconds = -(1 << 40);
    let file = tree.add_file(root, "immutable", b"x");
    tree.metadata_mut(file).attributes = FileAttributes(0x10);
    // Of which Linux would set one by itself, and which is not missed.
    let file = tree.add_file(root, "noise", b"x");
    tree.metadata_mut(file).attributes = FileAttributes(FileAttributes::NOT_COMPRESSED);
    let suid = tree.add_file(root, "suid", b"x");
    tree.metadata_mut(suid).permissions = 0o4755;
    tree.metadata_mut(suid).uid = 12_345;
    let dir = TempDir::new();
    let no_owners = ExtractOptions {
        owners: false,
        ..options(2)
    };
    let unrestored = write(&tree, &dir.join("out"), &no_owners).unwrap();
    assert!(!unrestored.is_empty());
    let counts: Vec<_> = unrestored
        .counts()
        .map(|(a, _, count)| (a, count))
        .collect();
    assert_eq!(
        counts,
        [
            (Aspect::Mode, 1),
            (Aspect::Xattr, 10),
            (Aspect::Attributes, 1),
            (Aspect::Time, 1)
        ]
    );
    let examples: Vec<_> = unrestored.examples(Aspect::Xattr).collect();
    assert_eq!(examples.len(), 5);
    assert_eq!(&*examples[0].path, b"0");
    assert!(examples[0].reason.starts_with("nonsense: "));
    assert_eq!(
        &*unrestored.examples(Aspect::Time).next().unwrap().path,
        b"old"
    );
    let mode = fs::metadata(dir.join("out/suid"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o755, "no set-id for another owner");
}

#[test]
fn deep_trees_are_written_and_removed() {
    let mut tree = MemoryFs::new();
    let mut at = tree.root();
    for level in 0..3000 {
        tree.add_file(at, "a file", b"content");
        at = tree.add_dir(at, format!("level {level}"));
    }
    let dir = TempDir::new();
    write(&tree, &dir.join("out"), &options(2)).unwrap();
    let copy = HostDir::open(&dir.join("out")).unwrap();
    let inventory = Inventory::of(&copy, &Limits::default()).unwrap();
    assert_eq!(inventory.file_count(), 6001);
    let bottom = (0..3000).map(|level| format!("level {level}"));
    let bottom = bottom.collect::<Vec<_>>().join("/");
    assert!(inventory.find(bottom.as_bytes()).is_some());
    // An error at the bottom removes everything again.
    let bad = tree.add_file(at, "bad", b"content");
    let tree = broken(tree, bad);
    let error = write(&tree, &dir.join("again"), &options(2)).unwrap_err();
    assert!(matches!(error, Error::File { .. }));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    drop(inventory);
    drop(copy);
    let parent = linux::open_dir(dir.path()).unwrap();
    linux::remove_tree_at(parent, b"out").unwrap();
}

/// Batches span directories, with and without their own files, and big files.
#[test]
fn files_of_many_directories_come_back() {
    let mut tree = MemoryFs::new();
    let big = vec![7; (1 << 20) + 1];
    for n in 0..100 {
        let outer = tree.add_dir(tree.root(), format!("{n}"));
        let inner = tree.add_dir(outer, "inner");
        for file in 0..n % 4 {
            tree.add_file(inner, format!("{file}"), format!("{n} {file}").as_bytes());
        }
        match n % 50 {
            0 => drop(tree.add_file(outer, "first, and big", &big)),
            1..4 => drop(tree.add_file(outer, "zero", b"")),
            _ => {}
        }
    }
    for threads in [1, 2, 100] {
        let dir = TempDir::new();
        write(&tree, &dir.join("out"), &options(threads)).unwrap();
        same_content(&tree, &HostDir::open(&dir.join("out")).unwrap());
    }
}

/// Random small trees, with several thread counts.
#[test]
fn random_trees_come_back() {
    for case in 0..testkit::cases(20) {
        let mut rng = Rng::new(case);
        let mut tree = MemoryFs::new();
        let mut dirs = vec![tree.root()];
        let mut files = Vec::new();
        for n in 0..rng.below(150) {
            let dir = dirs[rng.index(dirs.len())];
            let name = format!("{n}");
            match rng.below(8) {
                0 => dirs.push(tree.add_dir(dir, name)),
                1 if !files.is_empty() => tree.link(dir, name, files[rng.index(files.len())]),
                2 => drop(tree.add_symlink(dir, name, b"target")),
                3 => {
                    let size = rng.below(20 << 20);
                    let at = rng.below(size.max(1) / 2 + 1);
                    let bytes = rng.bytes(((size - at) as usize).min(100_000));
                    files.push(tree.add_sparse(dir, name, size, &[(at, &bytes)]));
                }
                _ => {
                    let len = rng.index(10_000);
                    files.push(tree.add_file(dir, name, &rng.bytes(len)));
                }
            }
        }
        let dir = TempDir::new();
        let threads = 1 + rng.index(4);
        let unrestored = write(&tree, &dir.join("out"), &options(threads)).unwrap();
        assert_eq!(unrestored.count(Aspect::Time), 0);
        same_content(&tree, &HostDir::open(&dir.join("out")).unwrap());
    }
}
