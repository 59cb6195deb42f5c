//! Hostile and damaged archives: each gives an error with a position, or a safe tree.

use std::io::Cursor;

use testkit::{Rng, TempDir, cases};
use tree::tar::{Notes, Tar, TarOptions};
use tree::{
    Corrupt, Error, ExtentKind, FileKind, FileSystem, Inventory, Limits, NoProgress, Parallel,
    ReadAt,
};

/// The header of an entry and its padded data.
struct Entry {
    header: [u8; 512],
    data: Vec<u8>,
}

/// An entry of this type, in ustar, mode 0644, owner 0:0, time 0.
fn entry(kind: u8, path: &str, link_target: &str, data: &[u8]) -> Entry {
    let mut header = [0; 512];
    header[..path.len()].copy_from_slice(path.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[108..115].copy_from_slice(b"0000000");
    header[116..123].copy_from_slice(b"0000000");
    header[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
    header[136..147].copy_from_slice(b"00000000000");
    header[156] = kind;
    header[157..157 + link_target.len()].copy_from_slice(link_target.as_bytes());
    header[257..265].copy_from_slice(b"ustar\x0000");
    let entry = Entry {
        header,
        data: data.to_vec(),
    };
    entry.with(0, b"")
}

fn file(path: &str, data: &[u8]) -> Entry {
    entry(b'0', path, "", data)
}

impl Entry {
    /// Overwrites header bytes and fixes the checksum.
    fn with(mut self, at: usize, bytes: &[u8]) -> Entry {
        self.header[at..at + bytes.len()].copy_from_slice(bytes);
        seal(&mut self.header);
        self
    }
}

/// Fixes the checksum of a header.
fn seal(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
}

fn archive(entries: impl IntoIterator<Item = Entry>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        bytes.extend(entry.header);
        bytes.extend(entry.data);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.extend([0; 1024]);
    bytes
}

/// A PAX header with these records, each preceded by its length.
fn pax(records: &[(&str, &[u8])]) -> Entry {
    let mut text = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let len = (rest + 1..)
            .find(|len| rest + len.to_string().len() == *len)
            .unwrap();
        text.extend(format!("{len} {key}=").as_bytes());
        text.extend_from_slice(value);
        text.push(b'\n');
    }
    entry(b'x', "PaxHeaders/x", "", &text)
}

fn open(bytes: Vec<u8>) -> Result<Tar, Error> {
    Tar::open(Box::new(bytes), Limits::default())
}

fn opened(entries: impl IntoIterator<Item = Entry>) -> Tar {
    open(archive(entries)).unwrap_or_else(|error| panic!("{error}"))
}

fn corrupt(bytes: Vec<u8>) -> Corrupt {
    match open(bytes) {
        Err(Error::Corrupt(corrupt)) => corrupt,
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("no error"),
    }
}

/// Reads everything there is: names, metadata, attributes, extents, and content of files up to 1
/// MiB.
fn read_all(tar: &Tar) -> Result<Vec<(String, FileKind, Vec<u8>)>, Error> {
    let inventory = Inventory::of(tar, &Limits::default())?;
    let mut all = Vec::new();
    for name in inventory.names() {
        let file = inventory.file(name);
        let (ino, size) = (inventory.ino(file), inventory.size(file));
        let mut content = Vec::new();
        tar.xattrs(ino)?;
        match inventory.kind(file) {
            FileKind::Symlink => content = tar.read_link(ino)?,
            FileKind::Regular => {
                let mut position = 0;
                while position < size {
                    let extents = tar.extents(ino, position)?;
                    assert!(!extents.is_empty());
                    for extent in extents {
                        assert!(extent.offset <= position && extent.len > 0);
                        position = extent.offset + extent.len;
                        assert!(position <= size);
                    }
                }
                content = vec![0xaa; size.min(1 << 20) as usize];
                assert_eq!(tar.read_at(ino, 0, &mut content)?, content.len());
            }
            _ => {}
        }
        let path = String::from_utf8_lossy(&inventory.path(name)).into_owned();
        all.push((path, inventory.kind(file), content));
    }
    Ok(all)
}

fn content(tar: &Tar, path: &str) -> Vec<u8> {
    let all = read_all(tar).unwrap();
    let found = all.into_iter().find(|(found, ..)| found == path);
    found.unwrap_or_else(|| panic!("{path} is missing")).2
}

#[test]
fn every_cut_is_noticed_and_its_place_told() {
    // Between members, an archive is read, and said to have no end.
    const BETWEEN: [usize; 3] = [1024, 3584, 4096];
    let whole = archive([
        file("a", b"content"),
        pax(&[("path", b"a long path"), ("SCHILY.xattr.user.a", b"b")]),
        file("b", &[1; 700]),
        entry(b'2', "l", "a", b""),
    ]);
    assert!(open(whole.clone()).is_ok());
    let end = whole.len() - 1024;
    for len in 0..end + 512 {
        if BETWEEN.contains(&len) {
            let tar = open(whole[..len].to_vec()).unwrap();
            assert_eq!(tar.notes().no_end_at, Some(len as u64));
            continue;
        }
        let cut = corrupt(whole[..len].to_vec());
        assert!(cut.at <= len as u64, "{len}: {cut}");
    }
    // Half an end marker is enough: nothing is missing.
    let half = open(whole[..end + 512].to_vec()).unwrap();
    assert_eq!(half.notes().no_end_at, None);
}

#[test]
fn any_damaged_header_byte_is_noticed() {
    let whole = archive([file("a", b"content"), file("b", b"")]);
    for at in (0..512)
        .chain(1024..1536)
        .filter(|at| at % 512 < 148 || at % 512 >= 156)
    {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        let found = corrupt(bytes);
        assert_eq!(found.what, "tar header has a wrong checksum");
        assert_eq!(found.at, at as u64 / 1024 * 1024);
    }
}

#[test]
fn paths_cannot_leave_the_tree() {
    for path in ["../a", "a/../../b", "..", "/..", "a/.."] {
        let found = corrupt(archive([file("x", b""), file(path, b"")]));
        assert_eq!(
            (found.what, found.at),
            ("path in tar has a '..' in it", 512),
            "{path}"
        );
        let found = corrupt(archive([file("x", b""), entry(b'1', "y", path, b"")]));
        assert_eq!(
            (found.what, found.at),
            ("path in tar has a '..' in it", 512),
            "{path}"
        );
        let long = [pax(&[("path", path.as_bytes())]), file("x", b"")];
        assert_eq!(
            corrupt(archive(long)).what,
            "path in tar has a '..' in it",
            "{path}"
        );
    }
    // An absolute path starts at the root of the tree; dots and double slashes are ignored.
    let tar = opened([file("/etc/passwd", b"harmless"), file("//x/.//y", b"z")]);
    assert_eq!(content(&tar, "etc/passwd"), b"harmless");
    assert_eq!(content(&tar, "x/y"), b"z");
    assert_eq!(tar.notes().absolute_paths, 2);
    // Where a link leads is up to whoever follows it.
    let tar = opened([entry(b'2', "l", "../../etc/passwd", b"")]);
    assert_eq!(content(&tar, "l"), b"../../etc/passwd");
}

#[test]
fn nothing_is_put_below_a_link_or_a_file() {
    let found = corrupt(archive([
        entry(b'2', "l", "/tmp", b""),
        file("l/evil", b"x"),
    ]));
    assert_eq!(
        found.what,
        "tar entry lies below a file that is not a directory"
    );
    assert_eq!(found.at, 512);
    corrupt(archive([file("f", b""), file("f/evil", b"x")]));
    corrupt(archive([
        entry(b'2', "l", "d", b""),
        file("d/x", b""),
        entry(b'5', "l/d", "", b""),
    ]));
}

#[test]
fn hard_links_are_to_files_that_came_before() {
    for (target, before) in [
        ("later", false),
        ("/etc/passwd", false),
        ("missing/too", false),
        ("itself", false),
        ("", false),
        ("d", false),
        ("l/x", false), // through a symbolic link
        ("x", true),
        ("d/x", true),
        ("./d//x", true),
        ("l", true), // the link itself
    ] {
        let bytes = archive([
            file("x", b"1"),
            entry(b'5', "d", "", b""),
            file("d/x", b"2"),
            entry(b'2', "l", "d", b""),
            entry(b'1', "itself", target, b""),
            file("later", b""),
        ]);
        assert_eq!(open(bytes).is_ok(), before, "{target}");
    }
    let tar = opened([
        file("x", b"1"),
        entry(b'1', "y", "x", b""),
        entry(b'1', "z", "y", b""),
    ]);
    let ino = tar.lookup(tar.root(), b"z").unwrap().ino;
    assert_eq!(tar.metadata(ino).unwrap().nlink, 3);
    // The size of a hard link is ignored: it has no data.
    let tar = opened([
        file("x", b"1"),
        entry(b'1', "y", "x", b"").with(124, b"00000001000"),
        file("z", b"2"),
    ]);
    assert_eq!(content(&tar, "z"), b"2");
}

#[test]
fn the_last_of_equal_paths_counts() {
    let tar = opened([
        file("a", b"one"),
        entry(b'1', "b", "a", b""),
        file("a", b"two"),
        entry(b'5', "d", "", b""),
        file("d/x", b"kept"),
        entry(b'5', "d", "", b"").with(100, b"0000700"),
        entry(b'1', "a", "a", b""),
    ]);
    assert_eq!(content(&tar, "a"), b"two");
    assert_eq!(content(&tar, "b"), b"one");
    assert_eq!(content(&tar, "d/x"), b"kept");
    let entry_of = |name| tar.lookup(tar.root(), name).unwrap();
    let metadata = |name| tar.metadata(entry_of(name).ino).unwrap();
    assert_eq!(metadata(b"d").permissions, 0o700);
    assert_eq!((metadata(b"a").nlink, metadata(b"b").nlink), (1, 1));
    assert_eq!(tar.notes().replaced, 3);

    let found = corrupt(archive([file("d/x", b""), file("d", b"")]));
    assert_eq!(found.what, "tar entry replaces a directory that has files");
    let tar = opened([entry(b'5', "d", "", b""), file("d", b"now a file")]);
    assert_eq!(content(&tar, "d"), b"now a file");
    let tar = opened([
        entry(b'2', "d", "/etc", b""),
        entry(b'5', "d", "", b""),
        file("d/x", b"y"),
    ]);
    assert_eq!(content(&tar, "d/x"), b"y");
}

#[test]
fn what_is_missing_is_implied() {
    let tar = opened([
        file("a/b/c", b"x"),
        entry(b'5', "a", "", b"").with(100, b"0000700"),
    ]);
    assert_eq!(
        tar.notes(),
        Notes {
            implied_directories: 1,
            ..Notes::default()
        }
    );
    let a = tar.lookup(tar.root(), b"a").unwrap();
    let b = tar.lookup(a.ino, b"b").unwrap();
    assert_eq!(tar.metadata(a.ino).unwrap().permissions, 0o700);
    assert_eq!(tar.metadata(b.ino).unwrap().permissions, 0o755);
    // A root in the archive becomes the root.
    let tar = opened([entry(b'5', "./", "", b"").with(100, b"0001777")]);
    assert_eq!(tar.metadata(tar.root()).unwrap().permissions, 0o1777);
    corrupt(archive([file("./", b"").with(156, b"2").with(157, b"x")]));
    corrupt(archive([file("x", b""), entry(b'1', ".", "x", b"")]));
}

#[test]
fn sizes_near_the_end_of_numbers_are_refused() {
    let base_256 = |value: u64| {
        let mut field = [0; 12];
        field[0] = 0x80;
        field[4..].copy_from_slice(&value.to_be_bytes());
        field
    };
    for size in [
        1 << 33,
        i64::MAX as u64 - 1024,
        i64::MAX as u64,
        u64::MAX - 5,
        u64::MAX,
    ] {
        for kind in [b'0', b'x', b'g', b'L', b'K', b'V', b'D', b'7'] {
            let bad = entry(kind, "x", "", b"data").with(124, &base_256(size));
            let bytes = archive([file("first", b""), bad]);
            assert_eq!(corrupt(bytes).at, 512, "{kind} {size}");
        }
        let sizes = size.to_string();
        let bytes = archive([pax(&[("size", sizes.as_bytes())]), file("x", b"data")]);
        corrupt(bytes);
    }
    corrupt(archive([file("x", b"").with(124, &[0xff; 12])]));
    corrupt(archive([file("x", b"").with(124, b"0000000008\0")]));
}

#[test]
fn extension_headers_belong_to_an_entry() {
    let x = || pax(&[("path", b"y")]);
    assert_eq!(
        corrupt(archive([x()])).what,
        "tar extension header has no entry after it"
    );
    assert_eq!(corrupt(archive([x(), x(), file("x", b"")])).at, 1024);
    let found = corrupt(archive([
        entry(b'x', "p", "", b"12 path=a/b\n99 uid=1\n"),
        file("x", b""),
    ]));
    assert_eq!(
        (found.what, found.at),
        ("pax record has a wrong length", 524)
    );
    corrupt(archive([
        entry(b'L', "././@LongLink", "", b""),
        file("x", b""),
    ]));
    // A GNU long name applies to one entry only; a global record applies until the end.
    let tar = opened([
        entry(b'L', "././@LongLink", "", b"long name\0"),
        file("short", b"1"),
        file("own", b"2"),
    ]);
    assert_eq!(content(&tar, "long name"), b"1");
    assert_eq!(content(&tar, "own"), b"2");
    let mut global = pax(&[("mtime", b"-1.5"), ("uid", b"4294967294")]);
    global = global.with(156, b"g");
    let tar = opened([
        global,
        file("a", b""),
        pax(&[("uid", b"7")]),
        file("b", b""),
    ]);
    let metadata = |name| {
        tar.metadata(tar.lookup(tar.root(), name).unwrap().ino)
            .unwrap()
    };
    assert_eq!((metadata(b"a").uid, metadata(b"b").uid), (u32::MAX - 1, 7));
    assert_eq!(
        (
            metadata(b"a").mtime.seconds,
            metadata(b"b").mtime.nanoseconds
        ),
        (-2, 500_000_000)
    );
}

/// Values of a header that apply to all entries, or to a path, are not copied or split without
/// limit.
#[test]
fn headers_cost_no_more_than_they_are_long() {
    for record in [
        ("path", &[b'a'; 4097][..]),
        ("linkpath", &[b'a'; 4097]),
        ("GNU.sparse.name", b"all"),
        ("GNU.sparse.map", b"0,1,2,3"),
        ("GNU.sparse.offset", b"0"),
        ("SCHILY.xattr.user.a", b"all"),
    ] {
        let bytes = archive([pax(&[record]).with(156, b"g"), file("a", b"")]);
        match Tar::open(Box::new(bytes), Limits::default()) {
            Err(Error::Unsupported(what)) => assert!(what.contains("global headers"), "{what}"),
            Err(error) => panic!("{record:?}: {error}"),
            Ok(_) => panic!("{record:?} was taken"),
        }
    }
    let path = [&b"a/".repeat(1 << 19), &b"b"[..]].concat();
    let found = corrupt(archive([pax(&[("path", &path)]), file("a", b"")]));
    assert_eq!(found.what, "path in tar is longer than a mebibyte");
}

/// A PAX 1.0 sparse file with this map in its data.
fn sparse(map: &str, real_size: &str, stored: &[u8]) -> Vec<u8> {
    let mut data = map.as_bytes().to_vec();
    data.resize(data.len().next_multiple_of(512), 0);
    data.extend_from_slice(stored);
    archive([
        pax(&[
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"sparse"),
            ("GNU.sparse.realsize", real_size.as_bytes()),
        ]),
        file("GNUSparseFile.0/sparse", &data),
    ])
}

#[test]
fn sparse_maps_that_lie_are_refused() {
    let tar = open(sparse("2\n2\n3\n8\n1\n", "10", b"abcd")).unwrap();
    assert_eq!(content(&tar, "sparse"), b"\0\0abc\0\0\0d\0");
    // Millions of missing fragments cost nothing.
    for (map, real_size, stored) in [
        ("16000000\n", "10", &b""[..]),
        ("99999999999999999999\n", "10", b""),
        ("18446744073709551615\n", "10", b""),
        ("1\n5\n6\n", "10", b"abcdef"),
        ("2\n5\n3\n6\n1\n", "10", b"abcd"),
        ("1\n0\n4\n", "10", b"abc"),
        ("1\n0\n3\n", "10", b"abcd"),
        ("1\n9223372036854775807\n1\n", "9223372036854775807", b"a"),
        ("1\n-1\n1\n", "10", b"a"),
        ("1\n0 1\n", "10", b"a"),
        ("x", "10", b""),
        ("", "10", b""),
        ("1\n0\n1\n", "", b"a"),
    ] {
        let found = corrupt(sparse(map, real_size, stored));
        assert!(found.at <= 2048, "{map:?}: {found}");
    }
    // A file of holes near the maximum size takes no memory.
    let huge = i64::MAX.to_string();
    let tar = open(sparse("1\n0\n1\n", &huge, b"a")).unwrap();
    assert_eq!(content(&tar, "sparse").len(), 1 << 20);
    let ino = tar.lookup(tar.root(), b"sparse").unwrap().ino;
    let extents = tar.extents(ino, i64::MAX as u64 - 1).unwrap();
    assert_eq!((extents.len(), extents[0].kind), (1, ExtentKind::Hole));
    assert_eq!(
        tar.read_at(ino, i64::MAX as u64 - 1, &mut [7; 4]).unwrap(),
        1
    );

    for records in [
        &[
            ("GNU.sparse.major", &b"2"[..]),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.realsize", b"9"),
        ][..],
        &[("GNU.sparse.size", b"9")],
        &[("GNU.sparse.size", b"9"), ("GNU.sparse.map", b"0")],
        &[("GNU.sparse.size", b"9"), ("GNU.sparse.map", b"0,1,2")],
        &[("GNU.sparse.size", b"9"), ("GNU.sparse.map", b"0,x")],
        &[("GNU.sparse.size", b"9"), ("GNU.sparse.numbytes", b"0")],
        &[
            ("GNU.sparse.size", b"9"),
            ("GNU.sparse.offset", b"0"),
            ("GNU.sparse.offset", b"0"),
        ],
    ] {
        corrupt(archive([pax(records), file("x", b"d")]));
    }
}

/// A million fragments in old GNU's chained blocks can be read, and quickly.
#[test]
fn many_fragments_are_fine() {
    const BLOCKS: usize = 5000;
    let octal = |value: usize| format!("{value:011o}\0").into_bytes();
    let fragments = BLOCKS * 21;
    let mut header = file("x", b"").with(156, b"S").with(257, b"ustar  \0");
    header = header
        .with(124, &octal(fragments))
        .with(482, &[1])
        .with(483, &octal(fragments * 2));
    let mut bytes = header.header.to_vec();
    for block in 0..BLOCKS {
        for index in 0..21 {
            bytes.extend(octal((block * 21 + index) * 2));
            bytes.extend(octal(1));
        }
        bytes.push(u8::from(block + 1 < BLOCKS));
        bytes.extend([0; 7]);
    }
    bytes.extend(vec![b'x'; fragments.next_multiple_of(512)]);
    bytes.extend([0; 1024]);
    let tar = open(bytes.clone()).unwrap();
    let ino = tar.lookup(tar.root(), b"x").unwrap().ino;
    let mut end = [0; 5];
    assert_eq!(
        tar.read_at(ino, fragments as u64 * 2 - 4, &mut end)
            .unwrap(),
        4
    );
    assert_eq!(&end[..4], b"x\0x\0");
    // A chain that does not end runs into the end of the archive.
    let last = 512 + BLOCKS * 512 - 8;
    bytes[last] = 1;
    corrupt(bytes);
}

#[test]
fn limits_hold() {
    let deep = "d/".repeat(5000);
    let bytes = archive([pax(&[("path", deep.as_bytes())]), entry(b'5', "x", "", b"")]);
    assert!(matches!(open(bytes), Err(Error::Limit(_))));
    let limits = Limits {
        inodes_max: 3,
        ..Limits::default()
    };
    let files = |count: usize| archive((0..count).map(|n| file(&n.to_string(), b"")));
    assert!(Tar::open(Box::new(files(2)), limits).is_ok());
    assert!(matches!(
        Tar::open(Box::new(files(3)), limits),
        Err(Error::Limit(_))
    ));
    // Short archives of long paths do not become large trees.
    let paths = (0..100).map(|n| format!("{n}/{}", "d/".repeat(4000)));
    let entries =
        paths.flat_map(|path| [pax(&[("path", path.as_bytes())]), entry(b'5', "x", "", b"")]);
    assert!(matches!(open(archive(entries)), Err(Error::Limit(_))));
    let name = "n".repeat(256);
    corrupt(archive([pax(&[("path", name.as_bytes())]), file("x", b"")]));
    let value = vec![0; 70_000];
    let tar = opened([pax(&[("SCHILY.xattr.user.a", &value)]), file("x", b"")]);
    assert!(matches!(read_all(&tar), Err(Error::Limit(_))));
}

#[test]
fn old_archives_and_odd_entries() {
    // v7: no magic, type NUL; a slash at the end is a directory.
    let v7 = |path: &str| file(path, b"").with(257, &[0; 8]).with(156, &[0]);
    let tar = opened([v7("d/"), v7("d/f")]);
    assert_eq!(
        tar.lookup(tar.root(), b"d").unwrap().kind,
        FileKind::Directory
    );
    // A prefix; signed checksums; a volume label; contiguous files.
    let mut signed = file("caf\u{e9}", b"").with(345, b"some/prefix");
    let sum: i32 = signed
        .header
        .iter()
        .enumerate()
        .map(|(at, &byte)| {
            if (148..156).contains(&at) {
                32
            } else {
                i32::from(byte.cast_signed())
            }
        })
        .sum();
    signed.header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let tar = opened([
        entry(b'V', "label", "", b""),
        signed,
        entry(b'7', "c", "", b"x"),
    ]);
    assert_eq!(content(&tar, "some/prefix/caf\u{e9}"), b"");
    assert_eq!(content(&tar, "c"), b"x");
    for kind in [b'N', b'A', b'8', 0xff] {
        assert!(
            open(archive([entry(kind, "x", "", b"")])).is_err(),
            "{kind}"
        );
    }
    assert!(open(archive([])).is_ok_and(|tar| tar.read_dir(tar.root()).unwrap().is_empty()));
    assert!(Tar::recognises(&archive([])) && Tar::recognises(&archive([file("x", b"")])));
    assert!(
        !Tar::recognises(b"") && !Tar::recognises(&[0; 512]) && !Tar::recognises(&[b'x'; 4096])
    );
    // Any file number gives an error or a file.
    let tar = opened([file("x", b"")]);
    for ino in [2, 3, u64::from(u32::MAX), u64::MAX] {
        assert!(matches!(tar.metadata(tree::Ino(ino)), Err(Error::NotFound)));
    }
    assert!(matches!(
        tar.read_dir(tree::Ino(1)),
        Err(Error::NotADirectory)
    ));
    assert!(matches!(
        tar.extents(tree::Ino(0), 0),
        Err(Error::IsADirectory)
    ));
}

/// Archives with random damage whose checksums are made right again: no panic, no hang, and what
/// opens can be read and written again.
#[test]
fn damage_with_right_checksums() {
    let good = archive([
        entry(b'5', "./", "", b""),
        pax(&[
            ("path", b"a/b/c"),
            ("mtime", b"-1.25"),
            ("SCHILY.xattr.user.a", b"1"),
            ("LIBARCHIVE.xattr.user.b", b"Zg=="),
        ]),
        file("x", b"content"),
        entry(b'1', "hard", "a/b/c", b""),
        entry(b'L', "././@LongLink", "", b"some/long name\0"),
        entry(b'2', "soft", "a", b""),
        entry(b'3', "dev", "", b"").with(329, b"0000001\x000000003"),
        pax(&[("GNU.sparse.size", b"100"), ("GNU.sparse.map", b"5,3,50,2")]),
        file("sparse", b"abcde"),
        file("old", b"abcde")
            .with(156, b"S")
            .with(257, b"ustar  \0")
            .with(386, b"00000000002\x0000000000005\0")
            .with(483, b"00000000144"),
    ]);
    assert!(open(good.clone()).is_ok());
    let blocks = good.len() / 512 - 2;
    let mut rng = Rng::new(1);
    let mut readable = 0;
    for _ in 0..cases(20_000) {
        let mut bytes = good.clone();
        for _ in 0..rng.below(3) + 1 {
            let at = rng.below(blocks as u64 * 512) as usize;
            bytes[at] = match rng.below(4) {
                0 => b'0' + (rng.below(10) as u8),
                1 => [0, 0xff, 0x80, b'/', b'.', b'\n', b'=', b' '][rng.below(8) as usize],
                2 => bytes[at] ^ (1 << rng.below(8)),
                _ => rng.below(256) as u8,
            };
        }
        for block in 0..blocks {
            if good[block * 512 + 257..][..5] == *b"ustar" {
                seal(&mut bytes[block * 512..][..512]);
            }
        }
        let Ok(tar) = open(bytes) else { continue };
        if read_all(&tar).is_err() {
            continue;
        }
        readable += 1;
        // What could be read can be written, and read again as the same; unless it is too large to
        // be written here.
        let inventory = Inventory::of(&tar, &Limits::default()).unwrap();
        if inventory.content_bytes() > 1 << 20 {
            continue;
        }
        let mut out = Vec::new();
        tree::tar::write(&inventory, false, Parallel::new(1), &NoProgress, &mut out).unwrap();
        let again = open(out).unwrap();
        assert_eq!(read_all(&again).unwrap(), read_all(&tar).unwrap());
    }
    assert!(
        readable > 100,
        "the damage is too great to test what lies behind it: {readable}"
    );
}

/// An archive that is truncated after it was opened.
#[test]
fn an_archive_that_is_cut_while_it_is_open_gives_an_error() {
    let dir = TempDir::new();
    let path = dir.join("x.tar");
    std::fs::write(&path, archive([file("a", &[1; 5000])])).unwrap();
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let tar = Tar::open(Box::new(file.try_clone().unwrap()), Limits::default()).unwrap();
    file.set_len(1000).unwrap();
    let ino = tar.lookup(tar.root(), b"a").unwrap().ino;
    assert!(matches!(
        tar.read_at(ino, 0, &mut [0; 5000]),
        Err(Error::Io(_))
    ));
}

#[test]
fn a_stream_that_fails_gives_its_error() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::ConnectionReset.into())
        }
    }
    let dir = TempDir::new();
    let opened = Tar::spooled(
        |mut out| std::io::copy(&mut Broken, &mut out),
        dir.path(),
        Limits::default(),
    );
    assert!(matches!(opened, Err(Error::Io(_))));
    let mut bytes = Cursor::new(archive([file("a", b"x")]));
    let tar = Tar::spooled(
        |mut out| std::io::copy(&mut bytes, &mut out),
        dir.path(),
        Limits::default(),
    )
    .unwrap();
    assert_eq!(content(&tar, "a"), b"x");
    // Nothing of it has a name.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let missing = dir.join("missing");
    let Err(Error::File { path, error, .. }) = Tar::spooled(
        |mut out| std::io::copy(&mut bytes, &mut out),
        &missing,
        Limits::default(),
    ) else {
        panic!("the folder is not named");
    };
    assert_eq!(&*path, missing.as_os_str().as_encoded_bytes());
    assert!(matches!(*error, Error::Io(_)));
    assert_eq!(ReadAt::size(&vec![0u8; 3]).unwrap(), 3);
}

/// Opens an archive without the members that cannot be read.
fn kept(bytes: Vec<u8>) -> (Vec<String>, Vec<String>) {
    let options = TarOptions {
        skip_damaged: true,
        ..TarOptions::default()
    };
    let tar = Tar::open_with(Box::new(bytes), Limits::default(), options).unwrap();
    let all = read_all(&tar).unwrap();
    let names = all.into_iter().map(|(path, ..)| path).collect();
    (
        names,
        tar.faults().iter().map(ToString::to_string).collect(),
    )
}

#[test]
fn whole_members_are_kept_around_odd_ones() {
    let odd = [
        vec![file("x/../y", b"?")],
        vec![file("link/below", b"?")],
        vec![entry(b'2', "no-target", "", b"")],
        vec![entry(b'1', "hard", "missing", b"")],
        vec![entry(b'q', "unknown", "", b"some content")],
        vec![pax(&[("mtime", b"1x")]), file("time", b"?")],
        vec![pax(&[("path", b"a/../b")]), file("renamed", b"?")],
        vec![file("d", b"replaces a directory that has files")],
    ];
    for (number, odd) in odd.into_iter().enumerate() {
        let before = archive([
            file("a", b"first"),
            entry(b'2', "link", "a", b""),
            file("d/in", b"second"),
        ]);
        let before = &before[..before.len() - 1024];
        let at = before.len() as u64;
        let bytes = [
            before,
            &archive(odd.into_iter().chain([file("z", b"last")])),
        ]
        .concat();
        corrupt(bytes.clone());
        let (names, faults) = kept(bytes);
        let names: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|it| !it.is_empty())
            .collect();
        assert_eq!(names, ["a", "d", "d/in", "link", "z"], "{number}");
        let [fault] = &faults[..] else {
            panic!("{number}: {faults:?}")
        };
        let near = (at..=at + 2048).any(|at| fault.contains(&format!("at byte {at:#x}")));
        assert!(near, "{number}: {fault}");
    }
}

#[test]
fn a_name_in_a_global_header_is_that_of_files_without_their_own() {
    let tar = opened([
        pax(&[("path", b"all"), ("comment", b"x")]).with(156, b"g"),
        pax(&[("path", b"own")]),
        file("a", b"first"),
        file("b", b"second"),
        pax(&[("path", b"")]).with(156, b"g"),
        file("c", b"third"),
    ]);
    assert_eq!(content(&tar, "own"), b"first");
    assert_eq!(content(&tar, "all"), b"second");
    assert_eq!(content(&tar, "c"), b"third");
}

#[test]
fn an_archive_may_hold_a_volume_label_alone() {
    let tar = opened([entry(b'V', "label", "", b"")]);
    assert_eq!(read_all(&tar).unwrap().len(), 1);
}

#[test]
fn a_piece_of_a_file_from_another_volume_is_left_out_and_named() {
    let tar = opened([entry(b'M', "big", "", b"its rest"), file("z", b"last")]);
    assert_eq!(content(&tar, "z"), b"last");
    let [fault] = tar.faults() else {
        panic!("{:?}", tar.faults())
    };
    let expected = "read big: not supported: a piece of a file that begins in another volume";
    assert_eq!(fault.to_string(), expected);
}

#[test]
fn members_after_a_damaged_header_are_found_again() {
    let mut bytes = archive([file("a", b"1"), file("b", &[b'x'; 3000]), file("c", b"3")]);
    bytes[1024 + 10] ^= 1;
    let (names, faults) = kept(bytes);
    assert_eq!(names[names.len() - 2..], ["a", "c"]);
    assert_eq!(faults.len(), 1);
    assert!(
        faults[0].contains("wrong checksum") && faults[0].contains("byte 0x400"),
        "{faults:?}"
    );
}

#[test]
fn a_member_that_is_cut_off_can_be_read_as_far_as_it_goes() {
    let whole = archive([file("a", b"1"), file("b", &[b'x'; 3000])]);
    let cut = whole[..1024 + 512 + 1000].to_vec();
    let options = TarOptions {
        skip_damaged: true,
        ..TarOptions::default()
    };
    let tar = Tar::open_with(Box::new(cut), Limits::default(), options).unwrap();
    assert_eq!((tar.faults().len(), tar.notes().no_end_at), (0, None));
    let cut = tar.cut().unwrap().to_string();
    assert!(cut.contains("runs past the end of the archive"), "{cut}");
    let ino = tar.lookup(tar.root(), b"b").unwrap().ino;
    assert_eq!(tar.metadata(ino).unwrap().size, 3000);
    assert_eq!(tar.extents(ino, 0).unwrap()[0].len, 1000);
    assert!(tar.extents(ino, 1000).is_err());
    let mut content = [0; 1000];
    assert_eq!(tar.read_at(ino, 0, &mut content).unwrap(), 1000);
    assert_eq!(content, [b'x'; 1000]);
    assert!(tar.read_at(ino, 1, &mut content).is_err());
}
