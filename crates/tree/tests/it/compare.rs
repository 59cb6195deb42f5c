//! `diff` and `manifest`: every change of a tree is detected and classified, and equal trees
//! compare equal in any container.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use testkit::{HookedFs, MemoryFs, TempDir};
use tree::diff::{Change, READ_FIRST, diff};
use tree::manifest::Manifest;
use tree::{
    Aspects, Device, Error, FileKind, FileSystem, HostDir, Ino, NoProgress, Parallel, Time,
};

/// The chunk size for reading content: differences must be found on both sides of chunk boundaries.
const CHUNK: usize = 256 << 10;

fn content() -> Vec<u8> {
    (0..3 * CHUNK + 1).map(|n| (n % 251) as u8).collect()
}

/// One file of each kind, a hard link, a hole, an attribute.
fn sample() -> MemoryFs {
    let mut fs = MemoryFs::new();
    let dir = fs.add_dir(fs.root(), "dir");
    let file = fs.add_file(dir, "file", &content());
    fs.link(dir, "name", file);
    fs.add_xattr(file, b"user.a", b"one");
    fs.add_sparse(dir, "sparse", 1 << 20, &[(65_536, b"data")]);
    fs.add_symlink(dir, "symlink", b"file");
    fs.add_special(
        dir,
        "zero",
        FileKind::CharDevice,
        Device { major: 1, minor: 5 },
    );
    fs
}

fn ino(fs: &MemoryFs, path: &str) -> Ino {
    path.split('/').fold(fs.root(), |dir, name| {
        fs.lookup(dir, name.as_bytes()).unwrap().ino
    })
}

fn changes(a: &MemoryFs, b: &MemoryFs, options: &Aspects) -> Vec<(String, Change)> {
    let with = |threads| {
        let mut found = Vec::new();
        let threads = Parallel::new(threads);
        diff(a, b, options, threads, &NoProgress, &mut |difference| {
            let path = String::from_utf8(difference.path.into()).unwrap();
            found.push((path, difference.change));
            Ok(())
        })
        .unwrap();
        found
    };
    let found = with(1);
    assert_eq!(with(2), found);
    assert_eq!(with(8), found);
    found
}

fn manifest(fs: &MemoryFs, holes: bool) -> Manifest {
    let options = Aspects {
        holes,
        ..Default::default()
    };
    Manifest::of(fs, &options).unwrap()
}

/// Changes a sample and checks that the change is reported, and that the manifests differ in one
/// line each.
fn seen(path: &str, expected: Change, change: impl FnOnce(&mut MemoryFs, Ino)) {
    let (before, mut after) = (sample(), sample());
    let at = ino(&after, path);
    change(&mut after, at);
    let found = changes(&before, &after, &Aspects::ALL);
    assert_eq!(found, [(path.to_owned(), expected)]);
    let (before, after) = (manifest(&before, true), manifest(&after, true));
    assert!(before != after, "{path}");
    assert!(before.difference(&after).contains(path), "{path}");
}

#[test]
fn each_change_of_metadata_is_seen_alone() {
    assert_eq!(changes(&sample(), &sample(), &Aspects::ALL), []);
    let of = |fs: &MemoryFs, path| fs.metadata(ino(fs, path)).unwrap();
    let plain = of(&sample(), "dir/sparse");
    let mode = Change::Permissions(plain.permissions, 0o4755);
    seen("dir/sparse", mode, |fs, at| {
        fs.metadata_mut(at).permissions = 0o4755;
    });
    let owner = Change::Owner((plain.uid, plain.gid), (plain.uid, 7));
    seen("dir/sparse", owner, |fs, at| fs.metadata_mut(at).gid = 7);
    let later = Time {
        nanoseconds: plain.mtime.nanoseconds + 1,
        ..plain.mtime
    };
    seen(
        "dir/symlink",
        Change::Mtime(plain.mtime, later),
        |fs, at| {
            fs.metadata_mut(at).mtime = later;
        },
    );
    let zero = of(&sample(), "dir/zero").rdev;
    let null = Device { major: 1, minor: 3 };
    seen("dir/zero", Change::Rdev(zero, null), |fs, at| {
        fs.metadata_mut(at).rdev = null;
    });
    let xattr = Change::Xattr {
        name: Box::from(&b"user.b"[..]),
        first: None,
        second: Some(Box::from(&b"two"[..])),
    };
    seen("dir", xattr, |fs, at| fs.add_xattr(at, b"user.b", b"two"));
}

#[test]
fn content_is_compared_to_the_last_byte() {
    for at in [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK, 3 * CHUNK - 1, 3 * CHUNK] {
        let tree = |content: &[u8]| {
            let mut fs = MemoryFs::new();
            fs.add_file(fs.root(), "file", content);
            fs
        };
        let mut other = content();
        other[at] ^= 1;
        let (a, b) = (tree(&content()), tree(&other));
        let change = Change::Content { at: at as u64 };
        assert_eq!(
            changes(&a, &b, &Aspects::ALL),
            [("file".to_owned(), change)]
        );
        let ignoring = Aspects {
            content: false,
            ..Aspects::ALL
        };
        assert_eq!(changes(&a, &b, &ignoring), []);
        let size = Change::Size(content().len() as u64, at as u64);
        let found = changes(&a, &tree(&content()[..at]), &Aspects::default());
        assert_eq!(found, [("file".to_owned(), size)]);
    }
}

#[test]
fn zeros_and_holes_are_equal_unless_holes_count() {
    let mut sparse = MemoryFs::new();
    sparse.add_sparse(sparse.root(), "file", 1 << 20, &[(65_536, b"data")]);
    let mut bytes = vec![0; 1 << 20];
    bytes[65_536..65_540].copy_from_slice(b"data");
    let mut full = MemoryFs::new();
    full.add_file(full.root(), "file", &bytes);
    let plain = Aspects::default();
    assert_eq!(changes(&sparse, &full, &plain), []);
    assert!(manifest(&sparse, false) == manifest(&full, false));
    let found = changes(&sparse, &full, &Aspects::ALL);
    assert_eq!(found, [("file".to_owned(), Change::Holes { at: 0 })]);
    assert!(manifest(&sparse, true) != manifest(&full, true));
}

#[test]
fn differences_before_a_file_that_cannot_be_read_are_reported_and_none_after_it() {
    let tree = |byte| {
        let mut fs = MemoryFs::new();
        for n in 0..500 {
            fs.add_file(fs.root(), format!("{n:03}"), &[byte; 100]);
        }
        fs
    };
    let (good, bad) = (tree(b'a'), tree(b'b'));
    let lost = ino(&bad, "333");
    let bad = HookedFs::new(bad, move |file, _| {
        if file == lost {
            Err(Error::Unreadable("lost"))
        } else {
            Ok(())
        }
    });
    for threads in [1, 2, 8] {
        let mut found = Vec::new();
        let compared = diff(
            &bad,
            &good,
            &Aspects::default(),
            Parallel::new(threads),
            &NoProgress,
            &mut |difference| {
                found.push(String::from_utf8(difference.path.into()).unwrap());
                Ok(())
            },
        );
        let error = compared.unwrap_err();
        let is_named =
            matches!(&error, Error::File { verb: READ_FIRST, path, .. } if **path == *b"333");
        assert!(is_named, "{error}");
        let before: Vec<_> = (0..333).map(|n| format!("{n:03}")).collect();
        assert_eq!(found, before, "{threads} threads");
    }
}

/// A file of a live tree can change between the listing of its directory and the comparison.
#[test]
fn a_file_that_changes_before_it_is_compared_is_compared_as_it_is_then() {
    let (first, second) = (TempDir::new(), TempDir::new());
    let compare = |changes_max| {
        fs::write(first.join("file"), "same").unwrap();
        fs::write(second.join("file"), "same").unwrap();
        let path = first.join("file");
        let changes = AtomicU32::new(0);
        let tree = HookedFs::new(HostDir::open(first.path()).unwrap(), move |_, _| {
            let n = changes.fetch_add(1, Ordering::Relaxed);
            if n < changes_max {
                fs::write(&path, format!("changed {n}")).unwrap();
            }
            Ok(())
        });
        let mut found = Vec::new();
        let content_only = Aspects {
            mtime: false,
            ..Aspects::default()
        };
        let compared = diff(
            &tree,
            &HostDir::open(second.path()).unwrap(),
            &content_only,
            Parallel::new(1),
            &NoProgress,
            &mut |difference| {
                found.push(difference.change);
                Ok(())
            },
        );
        compared.map(|()| found)
    };
    assert_eq!(compare(0).unwrap(), []);
    assert_eq!(compare(1).unwrap(), [Change::Size(9, 4)]);
}

/// The text for other programs: file types, escapes, a hard link, holes, and hashes from coreutils'
/// sha256sum.
#[test]
fn a_manifest_is_this_text() {
    let mut fs = MemoryFs::new();
    let file = fs.add_file(fs.root(), b"a b\xff", b"hello\n");
    fs.link(fs.root(), "c", file);
    fs.add_xattr(file, b"user.x", b"\x01\x02");
    fs.add_sparse(fs.root(), "d", 8192, &[]);
    let text = "#mtree\n\
        . type=dir mode=0755 uid=0 gid=0 time=1700000000.000000001\n\
        ./a\\040b\\377 type=file mode=0644 uid=0 gid=0 size=6 time=1700000000.000000001 xattr.user.x=0102 \
        sha256digest=5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03\n";
    let manifest = manifest(&fs, true);
    assert!(manifest.as_str().starts_with(text), "{manifest}");
    let lines: Vec<_> = manifest.lines().collect();
    assert!(
        lines[2].starts_with("./c type=file ") && lines[2].ends_with(" hardlink=./a\\040b\\377")
    );
    let zeros = "sha256digest=9f1dcbc35c350d6027f98be0f5c8b43b42ca52b7604459c0c42be3aa88913d47";
    assert!(
        lines[3].contains(" data= ") && lines[3].ends_with(zeros),
        "{manifest}"
    );
}
