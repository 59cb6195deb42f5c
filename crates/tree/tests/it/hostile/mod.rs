//! Trees that no honest container holds are rejected, or written where they can do no harm.

mod cpio;
mod tar;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use testkit::{MemoryFs, TempDir};
use tree::extract::{Existing, ExtractOptions, extract};
use tree::{
    Error, Extent, ExtentKind, FileKind, FileSystem, Ino, Inventory, Limits, NoProgress, Parallel,
};

fn write(fs: &dyn FileSystem, to: &Path) -> Result<(), Error> {
    let options = ExtractOptions {
        existing: Existing::Refuse,
        skip_unreadable: false,
        owners: true,
        sync: false,
        parallel: Parallel::new(2),
        ..ExtractOptions::default()
    };
    let inventory = Inventory::of(fs, &Limits::default())?;
    extract(&inventory, to, &options, &NoProgress).map(drop)
}

/// Extracts into `jail/out` and checks that this error is returned and that nothing is left
/// afterwards.
fn assert_refused(fs: &dyn FileSystem, words: &str) {
    let dir = TempDir::new();
    fs::create_dir(dir.join("jail")).unwrap();
    let error = write(fs, &dir.join("jail/out")).unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(fs::read_dir(dir.join("jail")).unwrap().count(), 0);
}

#[test]
fn impossible_names() {
    let long = [b'x'; 256];
    for name in [
        &b""[..],
        b".",
        b"..",
        b"/",
        b"a/b",
        b"../out",
        b"/etc/passwd",
        b"nul\0",
        b"\0",
        &long,
    ] {
        for kind in [FileKind::Regular, FileKind::Directory, FileKind::Symlink] {
            let mut tree = MemoryFs::new();
            let root = tree.root();
            let inner = tree.add_dir(root, "inner");
            let spare = tree.add_dir(root, "spare");
            let file = match kind {
                FileKind::Regular => tree.add_file(spare, "x", b"content"),
                FileKind::Directory => tree.add_dir(spare, "x"),
                _ => tree.add_symlink(spare, "x", b"target"),
            };
            tree.push_entry(inner, name, file, kind);
            assert_refused(&tree, "a file has an impossible name");
        }
    }
}

#[test]
fn repeated_and_unsorted_names() {
    // First a link to the outside, then a directory of the same name with something to put there.
    let mut tree = MemoryFs::new();
    let root = tree.root();
    tree.add_symlink(root, "same", b"/tmp");
    let dir = tree.add_unnamed_dir();
    tree.add_file(dir, "loot", b"content");
    tree.push_entry(root, "same", dir, FileKind::Directory);
    assert_refused(&tree, "a directory is not sorted");

    let mut tree = MemoryFs::new();
    let root = tree.root();
    let file = tree.add_file(root, "b", b"");
    tree.push_entry(root, "a", file, FileKind::Regular);
    assert_refused(&tree, "a directory is not sorted");
}

#[test]
fn circles_of_directories() {
    let mut tree = MemoryFs::new();
    let root = tree.root();
    let a = tree.add_dir(root, "a");
    let b = tree.add_dir(a, "b");
    tree.push_entry(b, "up", a, FileKind::Directory);
    assert_refused(&tree, "read a/b/up: a directory is in two places");

    let mut tree = MemoryFs::new();
    let root = tree.root();
    tree.push_entry(root, "root", root, FileKind::Directory);
    assert_refused(&tree, "a directory is in two places");

    // Two paths to one directory: with n levels, 2^n paths.
    let mut tree = MemoryFs::new();
    let root = tree.root();
    let mut at = root;
    for _ in 0..64 {
        let next = tree.add_dir(at, "one");
        tree.push_entry(at, "two", next, FileKind::Directory);
        at = next;
    }
    assert_refused(&tree, "a directory is in two places");
}

#[test]
fn kinds_that_contradict() {
    let mut tree = MemoryFs::new();
    let root = tree.root();
    let spare = tree.add_dir(root, "a");
    let file = tree.add_file(spare, "x", b"");
    tree.push_entry(root, "b", file, FileKind::Directory);
    assert_refused(&tree, "a file's type differs from its directory entry");

    let mut tree = MemoryFs::new();
    let root = tree.root();
    tree.push_entry(root, "lost", Ino(99), FileKind::Regular);
    assert_refused(&tree, "no such file or directory");

    let mut tree = MemoryFs::new();
    let root = tree.root();
    tree.metadata_mut(root).kind = FileKind::Regular;
    assert_refused(&tree, "not a directory");
}

#[test]
fn trees_beyond_the_limits() {
    let mut tree = MemoryFs::new();
    let root = tree.root();
    let mut at = root;
    for _ in 0..20 {
        at = tree.add_dir(at, "deeper");
    }
    let limits = |inodes_max, depth_max| Limits {
        inodes_max,
        depth_max,
        ..Limits::default()
    };
    assert!(Inventory::of(&tree, &limits(21, 20)).is_ok());
    let words = |limits: &Limits| Inventory::of(&tree, limits).unwrap_err().to_string();
    assert!(words(&limits(20, 20)).ends_with("limit reached: too many files"));
    assert!(words(&limits(21, 19)).ends_with("limit reached: directories are nested too deeply"));
}

#[test]
fn content_beyond_the_limit() {
    let mut tree = MemoryFs::new();
    let root = tree.root();
    let first = tree.add_file(root, "a", b"content");
    // Another name adds no content, and holes count as content.
    tree.link(root, "b", first);
    tree.add_sparse(root, "c", 1 << 40, &[]);
    let of = |content_bytes_max| {
        let limits = Limits {
            content_bytes_max,
            ..Limits::default()
        };
        Inventory::of(&tree, &limits)
    };
    assert!(of((1 << 40) + 7).is_ok());
    let words = of((1 << 40) + 6).unwrap_err().to_string();
    assert_eq!(
        words,
        "read c: limit reached: the files have more content than is allowed"
    );
}

#[test]
fn links_inside_the_tree_are_not_followed() {
    // Every link leads outside; its neighbours must not be written through it.
    let dir = TempDir::new();
    fs::create_dir(dir.join("outside")).unwrap();
    let outside = dir.join("outside");
    let target = outside.as_os_str().as_encoded_bytes();
    let mut tree = MemoryFs::new();
    let root = tree.root();
    let link = tree.add_symlink(root, "link", target);
    tree.link(root, "link too", link);
    tree.add_symlink(root, "up", b"../outside");
    tree.add_xattr(link, b"user.x", b"links cannot have it");
    tree.metadata_mut(link).permissions = 0o4777;
    let before = fs::metadata(&outside).unwrap();
    write(&tree, &dir.join("out")).unwrap();
    let after = fs::metadata(&outside).unwrap();
    assert_eq!(before.permissions(), after.permissions());
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert!(dir.join("out/link too").is_symlink());
}

#[test]
fn links_planted_in_the_target_are_not_followed() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("outside/sub")).unwrap();
    fs::write(dir.join("outside/file"), "theirs").unwrap();
    fs::create_dir(dir.join("out")).unwrap();
    symlink(dir.join("outside/sub"), dir.join("out/sub")).unwrap();
    symlink(dir.join("outside/file"), dir.join("out/file")).unwrap();
    let mut tree = MemoryFs::new();
    let root = tree.root();
    let sub = tree.add_dir(root, "sub");
    tree.add_file(sub, "file", b"ours");
    tree.add_file(root, "file", b"ours");
    write(&tree, &dir.join("out")).unwrap_err();
    let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
    let options = ExtractOptions {
        existing: Existing::ReplaceDirectory,
        skip_unreadable: false,
        owners: true,
        sync: false,
        parallel: Parallel::new(1),
        ..ExtractOptions::default()
    };
    extract(&inventory, &dir.join("out"), &options, &NoProgress).unwrap();
    assert_eq!(fs::read(dir.join("outside/file")).unwrap(), b"theirs");
    assert_eq!(fs::read_dir(dir.join("outside/sub")).unwrap().count(), 0);
    assert_eq!(fs::read(dir.join("out/sub/file")).unwrap(), b"ours");
}

/// Gives another tree after it was listed, as a directory that changes, or an image that is written
/// meanwhile, does.
#[test]
fn extents_that_lie() {
    let plain = ExtentKind::Plain { stored_offset: 0 };
    let extent = |offset, len, kind| Extent {
        offset,
        len,
        kind,
        id: None,
    };
    for size in [9000, 10_000_000] {
        for lie in [
            vec![],
            vec![extent(0, 0, plain)],
            vec![extent(0, 0, ExtentKind::Hole)],
            vec![extent(1, 100, plain)],
            vec![extent(0, size + 1, plain)],
            vec![extent(0, u64::MAX, ExtentKind::Hole)],
            vec![extent(u64::MAX, u64::MAX, plain)],
            vec![extent(0, 100, plain), extent(50, 100, plain)],
            vec![extent(0, 100, plain), extent(200, 100, plain)],
            vec![extent(0, 100, plain), extent(0, 100, plain)],
            // Never reaches the end.
            vec![extent(0, size - 1, plain)],
        ] {
            let mut tree = MemoryFs::new();
            let root = tree.root();
            let file = tree.add_file(root, "file", &vec![1; size as usize]);
            tree.lie_about_extents(file, lie);
            assert_refused(&tree, "read file: the file changed while it was read");
        }
    }
}

#[test]
fn sizes_that_lie() {
    // More than there is, in data and in holes.
    let mut tree = MemoryFs::new();
    let root = tree.root();
    let file = tree.add_file(root, "file", b"content");
    tree.metadata_mut(file).size = u64::MAX;
    let dir = TempDir::new();
    let error = write(&tree, &dir.join("out")).unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    // A huge hole is fine if the file system supports it, and takes no time.
    let mut tree = MemoryFs::new();
    let root = tree.root();
    tree.add_sparse(root, "file", 1 << 43, &[((1 << 43) - 5, b"end")]);
    write(&tree, &dir.join("out")).unwrap();
    assert_eq!(fs::metadata(dir.join("out/file")).unwrap().len(), 1 << 43);
}
