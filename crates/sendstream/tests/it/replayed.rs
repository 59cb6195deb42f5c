//! Streams as trees: the same as the slow model makes of them, whatever the version and the
//! encoding.

use std::collections::BTreeMap;
use std::sync::Arc;

use sendstream::{Command, Replay, SentTree, StreamWriter, Version};
use testkit::MemoryFs;
use tree::manifest::Manifest;
use tree::{
    Aspects, Error, Extent, ExtentId, ExtentKind, FileIdentity, FileKind, FileSystem, Inventory,
    Limits, Metadata, Time,
};

use crate::model::replay;
use crate::sample::{full, incremental, kernel_made, stream};

const MKFILE: Command<'_> = Command::Mkfile {
    path: b"f",
    ino: 257,
};

/// The trees of these streams, each on top of those before.
fn trees(streams: &[&[u8]]) -> Vec<Arc<SentTree>> {
    let mut replay = Replay::new();
    for stream in streams {
        assert!(replay.add(Arc::new(stream.to_vec())).unwrap() > 0);
    }
    replay.subvolumes().to_vec()
}

fn manifest(tree: &SentTree) -> Manifest {
    Manifest::of(tree, &Aspects::default()).unwrap()
}

/// The names of all files but the root, with their content if they are regular.
fn files(tree: &SentTree) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let inventory = Inventory::of(tree, &Limits::default()).unwrap();
    let mut files = BTreeMap::new();
    for entry in inventory.names().skip(1) {
        let file = inventory.file(entry);
        let mut content = vec![0; inventory.size(file) as usize];
        if inventory.kind(file) == FileKind::Regular {
            // In pieces that do not match those of the stream.
            for (at, piece) in (0..).step_by(10_007).zip(content.chunks_mut(10_007)) {
                let read = tree.read_at(inventory.ino(file), at, piece).unwrap();
                assert_eq!(read, piece.len());
            }
        } else {
            content.clear();
        }
        files.insert(inventory.path(entry), content);
    }
    files
}

#[test]
fn streams_of_linux_make_what_the_model_makes() {
    for (base, next) in [
        ("full.v1", "inc.v1"),
        ("full.v2", "inc.v2"),
        ("zstd.full.v2c", "zstd.inc.v2c"),
        ("lzo.full.v2c", "lzo.inc.v2c"),
        ("zlib.full.v2c", "zlib.inc.v2c"),
    ] {
        let (base, next) = (kernel_made(base), kernel_made(next));
        let found = trees(&[&base, &next]);
        let (_, first) = replay(&base, None).pop().unwrap();
        let (_, second) = replay(&next, Some(&first)).pop().unwrap();
        for (tree, model) in found.iter().zip([first, second]) {
            let (found, expected) = (files(tree), model.contents());
            assert!(found.keys().eq(expected.keys()), "{found:?}");
            for (name, content) in expected {
                assert!(found[&name] == content, "{}", name.escape_ascii());
            }
        }
    }
}

#[test]
fn versions_and_encodings_make_the_same_tree() {
    let one = trees(&[&kernel_made("full.v1"), &kernel_made("inc.v1")]);
    let both = trees(&[&kernel_made("both.v1")]);
    assert_eq!(both.len(), 2);
    for (one, other) in one.iter().zip(&both) {
        assert_eq!(manifest(one), manifest(other));
    }
    for (base, next) in [("full.v2", "inc.v2"), ("zstd.full.v2c", "zstd.inc.v2c")] {
        let other = trees(&[&kernel_made(base), &kernel_made(next)]);
        for (one, other) in one.iter().zip(&other) {
            assert_eq!(manifest(one), manifest(other));
        }
    }
}

#[test]
fn encoded_extents_are_taken_as_they_are_stored() {
    let stream = kernel_made("zstd.full.v2c");
    let tree = &trees(&[&stream])[0];
    let inventory = Inventory::of(&**tree, &Limits::default()).unwrap();
    let mut encoded = 0;
    let mut stored = Vec::new();
    for file in inventory.files() {
        if inventory.kind(file) != FileKind::Regular {
            continue;
        }
        let (ino, mut at) = (inventory.ino(file), 0);
        while at < inventory.size(file) {
            for extent in tree.extents(ino, at).unwrap() {
                assert!(extent.offset <= at && extent.end() > at);
                at = extent.end();
                if let ExtentKind::Encoded(encoding) = extent.kind {
                    encoded += 1;
                    tree.read_encoded(ino, &extent, &mut stored).unwrap();
                    assert_eq!(stored.len() as u64, encoding.stored_len);
                    let is_in = stream.windows(stored.len()).any(|part| part == stored);
                    assert!(is_in);
                }
            }
        }
        assert_eq!(at, inventory.size(file));
    }
    assert!(encoded > 3, "{encoded}");
}

fn error_of(streams: &[&[u8]]) -> String {
    let mut replay = Replay::new();
    let (last, before) = streams.split_last().unwrap();
    for stream in before {
        replay.add(Arc::new(stream.to_vec())).unwrap();
    }
    let known = replay.subvolumes().len();
    let error = replay.add(Arc::new(last.to_vec())).unwrap_err();
    assert_eq!(replay.subvolumes().len(), known, "nothing is added");
    error.to_string()
}

#[test]
fn a_parent_must_be_known_and_unchanged() {
    let next = incremental(Version::V1, &[]);
    assert!(error_of(&[&next]).contains("parent of an incremental send stream is not known"));
    let later = Command::Subvol {
        path: b"s",
        uuid: [7; 16],
        ctransid: 11,
    };
    let later = stream(Version::V1, &[later, Command::End]);
    assert!(error_of(&[&later, &next]).contains("parent was changed"));
    let right = full(Version::V1, &[MKFILE]);
    assert_eq!(trees(&[&later, &right, &next]).len(), 3);
    // Whoever names the parent answers for it.
    let mut replay = Replay::new();
    replay.know([7; 16], None, Arc::<SentTree>::clone(&trees(&[&right])[0]));
    assert_eq!(replay.add(Arc::new(next)).unwrap(), 1);
    assert!(files(&replay.subvolumes()[0]).contains_key(&b"f"[..]));
}

#[test]
fn a_tree_holds_at_most_200_bytes_an_inode_in_its_tables() {
    // Below and above a size of the table of names.
    for count in [3500, 3700, 20_000_u64] {
        let time = Time {
            seconds: 1 << 31,
            nanoseconds: 1,
        };
        let mut out = StreamWriter::new(Vec::new(), Version::V2);
        out.header().unwrap();
        let uuid = [7; 16];
        let subvol = Command::Subvol {
            path: b"s",
            uuid,
            ctransid: 9,
        };
        out.command(&subvol).unwrap();
        for ino in 257..257 + count {
            let orphan = format!("o{ino}-9-0").into_bytes();
            let path = format!("a name of twenty-{ino}").into_bytes();
            let (path, path_to) = (&orphan[..], &path[..]);
            for command in [
                Command::Mkfile { path, ino },
                Command::Rename { path, path_to },
                Command::Write {
                    path: path_to,
                    file_offset: 0,
                    data: b"content",
                },
                Command::Chown {
                    path: path_to,
                    uid: 1,
                    gid: 1,
                },
                Command::Utimes {
                    path: path_to,
                    atime: time,
                    mtime: time,
                    ctime: time,
                    otime: Some(time),
                },
            ] {
                out.command(&command).unwrap();
            }
        }
        out.command(&Command::End).unwrap();
        let tree = &trees(&[&out.into_inner()])[0];
        let used = tree.memory_bytes() as u64;
        assert!(used <= 200 * count, "{count} inodes: {}", used / count);
        assert_eq!(files(tree).len() as u64, count);
    }
}

#[test]
fn what_cannot_be_done_is_refused() {
    let mkdir = |path| Command::Mkdir { path, ino: 258 };
    let clone = |clone_path, clone_len, uuid| Command::Clone {
        file_offset: 0,
        clone_len,
        path: b"f",
        clone_uuid: [uuid; 16],
        clone_ctransid: 9,
        clone_path,
        clone_offset: 4096,
    };
    let write = Command::Write {
        path: b"f",
        file_offset: 0,
        data: &[1; 8192],
    };
    for (commands, words) in [
        (&[MKFILE, MKFILE][..], "new name is that of another file"),
        (&[Command::Unlink { path: b"g" }], "does not exist"),
        (
            &[mkdir(b"d"), Command::Unlink { path: b"d" }],
            "unlink command is for a directory",
        ),
        (
            &[MKFILE, Command::Rmdir { path: b"f" }],
            "another file than a directory",
        ),
        (
            &[mkdir(b"d"), mkdir(b"d/e"), Command::Rmdir { path: b"d" }],
            "directory with files",
        ),
        (
            &[
                mkdir(b"d"),
                Command::Rename {
                    path: b"d",
                    path_to: b"d/e",
                },
            ],
            "moved into itself",
        ),
        (
            &[
                mkdir(b"d"),
                Command::Link {
                    path: b"e",
                    path_link: b"d",
                },
            ],
            "second name",
        ),
        (&[MKFILE, mkdir(b"f/g")], "leads through a file"),
        (
            &[MKFILE, write, clone(b"f", 4097, 7)],
            "behind the end of its source",
        ),
        (
            &[MKFILE, write, clone(b"f", 4096, 3)],
            "clone is from is not known",
        ),
        (
            &[MKFILE, mkdir(b"d"), clone(b"d", 4096, 7)],
            "no regular file",
        ),
        (
            &[
                MKFILE,
                Command::RemoveXattr {
                    path: b"f",
                    xattr_name: b"user.a",
                },
            ],
            "is not there",
        ),
    ] {
        let error = error_of(&[&full(Version::V1, commands)]);
        assert!(error.contains(words), "{commands:?}: {error}");
    }
    let no_data = kernel_made("no-data.v2");
    assert!(error_of(&[&kernel_made("full.v2"), &no_data]).contains("--no-data"));
}

#[test]
fn snapshots_of_snapshots_end_before_the_stack_does() {
    let uuid = |number: u32| {
        let mut uuid = [0; 16];
        uuid[..4].copy_from_slice(&number.to_le_bytes());
        uuid
    };
    let chain = |count: u32| {
        let mut commands = vec![
            Command::Subvol {
                path: b"s",
                uuid: uuid(0),
                ctransid: 1,
            },
            MKFILE,
            Command::Write {
                path: b"f",
                file_offset: 0,
                data: b"deep",
            },
        ];
        for number in 1..=count {
            commands.push(Command::Snapshot {
                path: b"t",
                uuid: uuid(number),
                ctransid: 1,
                clone_uuid: uuid(number - 1),
                clone_ctransid: 1,
            });
            // Each level refers to the one below.
            commands.push(Command::Truncate {
                path: b"f",
                size: 4,
            });
        }
        commands.push(Command::End);
        stream(Version::V1, &commands)
    };
    let mut replay = Replay::new();
    let error = replay.add(Arc::new(chain(1001))).unwrap_err();
    assert!(matches!(&error, Error::Part { error, .. } if matches!(**error, Error::Limit(_))));
    // Threads of tests have stacks of 2 MiB, as have those that read for a copy.
    let deepest = trees(&[&chain(1000)]).pop().unwrap();
    assert_eq!(files(&deepest)[&b"f"[..]], b"deep");
    let file = deepest.lookup(deepest.root(), b"f").unwrap().ino;
    assert_eq!(deepest.extents(file, 0).unwrap().len(), 1);
}

fn write<'a>(path: &'a [u8], data: &'a [u8]) -> Command<'a> {
    Command::Write {
        path,
        file_offset: 0,
        data,
    }
}

#[test]
fn a_clone_of_a_part_of_a_write_shares_its_bytes() {
    let data = [7; 65_536];
    let clone = Command::Clone {
        file_offset: 4096,
        clone_len: 8192,
        path: b"g",
        clone_uuid: [7; 16],
        clone_ctransid: 9,
        clone_path: b"f",
        clone_offset: 16_384,
    };
    let other = Command::Mkfile {
        path: b"g",
        ino: 258,
    };
    let stream = full(Version::V2, &[MKFILE, write(b"f", &data), other, clone]);
    let tree = &trees(&[&stream])[0];
    let extents = |name| {
        let ino = tree.lookup(tree.root(), name).unwrap().ino;
        tree.extents(ino, 0).unwrap()
    };
    let (whole, part) = (extents(b"f")[0], extents(b"g")[1]);
    assert!(whole.id.is_some());
    assert_eq!(whole.id, part.id);
    let kind = |stored_offset| ExtentKind::Plain { stored_offset };
    assert_eq!((whole.kind, part.kind), (kind(0), kind(16_384)));
}

/// A parent with two files of known identity and 32 KiB of reserved space.
fn parent() -> Arc<MemoryFs> {
    let mut base = MemoryFs::new();
    for (name, number) in [("f", 300), ("g", 301)] {
        let ino = base.add_file(base.root(), name, &[1; 5000]);
        base.metadata_mut(ino).identity = Some(FileIdentity {
            number,
            generation: 7,
            transaction: 8,
        });
    }
    let reserved = base.add_file(base.root(), "reserved", &[0; 32_768]);
    let extent = Extent {
        offset: 0,
        len: 32_768,
        kind: ExtentKind::Preallocated { stored_offset: 0 },
        id: Some(ExtentId(5)),
    };
    base.lie_about_extents(reserved, vec![extent]);
    Arc::new(base)
}

#[test]
fn a_changed_file_of_the_parent_is_still_that_file() {
    let chmod = Command::Chmod {
        path: b"f",
        mode: 0o600,
    };
    let mut replay = Replay::new();
    replay.know([7; 16], None, parent());
    for _ in 0..2 {
        let stream = incremental(Version::V2, &[chmod]);
        replay.add(Arc::new(stream)).unwrap();
    }
    let identity = |turn: usize, name: &[u8]| {
        let tree = &replay.subvolumes()[turn];
        let ino = tree.lookup(tree.root(), name).unwrap().ino;
        let listed = tree.read_dir_with_metadata(tree.root()).unwrap();
        let listed = listed.into_iter().find(|(entry, _)| *entry.name == *name);
        let Metadata { identity, .. } = tree.metadata(ino).unwrap();
        assert_eq!(listed.unwrap().1.identity, identity);
        identity.unwrap()
    };
    let [one, other] = [0, 1].map(|turn| identity(turn, b"f"));
    assert_eq!((one.number, one.generation), (300, 7));
    assert_eq!((other.number, other.generation), (300, 7));
    // Each of them differs from the parent, and from each other.
    assert!(one.transaction > 8 && other.transaction > 8);
    assert_ne!(one.transaction, other.transaction);
    assert_eq!(identity(0, b"g"), identity(1, b"g"));
    assert_eq!(identity(0, b"g").transaction, 8);
}

#[test]
fn a_clone_out_of_reserved_space_is_the_same_space() {
    let new = Command::Mkfile {
        path: b"new",
        ino: 400,
    };
    let clone = Command::Clone {
        file_offset: 0,
        clone_len: 16_384,
        path: b"new",
        clone_uuid: [7; 16],
        clone_ctransid: 9,
        clone_path: b"reserved",
        clone_offset: 8192,
    };
    let mut replay = Replay::new();
    replay.know([7; 16], None, parent());
    let stream = incremental(Version::V2, &[new, clone]);
    replay.add(Arc::new(stream)).unwrap();
    let tree = &replay.subvolumes()[0];
    let ino = tree.lookup(tree.root(), b"new").unwrap().ino;
    let kind = ExtentKind::Preallocated {
        stored_offset: 8192,
    };
    let expected = Extent {
        offset: 0,
        len: 16_384,
        kind,
        id: Some(ExtentId(5)),
    };
    assert_eq!(tree.extents(ino, 0).unwrap(), [expected]);
}
