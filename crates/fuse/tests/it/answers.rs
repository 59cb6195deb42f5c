use std::sync::Arc;
use std::time::Duration;

use fuse::{Options, Owner};
use linux::errno;
use testkit::MemoryFs;
use tree::{FileKind, FileSystem, Time};

use crate::script::{
    ALL, FORGET, GETATTR, GETXATTR, LISTXATTR, LOOKUP, LSEEK, MKDIR, OPEN, OPENDIR, READ, READDIR,
    READDIRPLUS, READLINK, STATFS, STATX, Served, of_user, options, read_body, request, u32_at,
    u64_at,
};

/// Names as a directory lists them, with those that every directory has.
fn with_dots(names: &[&str]) -> Vec<Vec<u8>> {
    let all = [".", ".."].iter().chain(names);
    all.map(|name| name.as_bytes().to_vec()).collect()
}

fn sample() -> MemoryFs {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let dir = fs.add_dir(root, "dir");
    let file = fs.add_file(dir, "file", b"content");
    fs.link(root, "link", file);
    fs.add_symlink(root, "symlink", b"dir/file");
    fs.add_xattr(file, b"user.a", b"1234");
    fs.add_xattr(file, b"trusted.b", b"");
    fs.metadata_mut(file).btime = Some(Time {
        seconds: -5,
        nanoseconds: 6,
    });
    fs
}

#[test]
fn names_lead_to_files_and_hard_links_to_one() {
    let served = Served::new(sample());
    let (dir, attributes) = served.lookup(1, b"dir").unwrap();
    assert_eq!(u32_at(&attributes, 60) >> 12, 0o04);
    let (file, attributes) = served.lookup(dir, b"file").unwrap();
    assert_eq!((u64_at(&attributes, 8), u32_at(&attributes, 64)), (7, 2));
    assert_eq!(served.lookup(1, b"link").unwrap(), (file, attributes));
    // Decades, for what is there and for what is not.
    let reply = served.ask(LOOKUP, 1, b"none\0").unwrap();
    assert_eq!((u64_at(&reply, 0), reply.len()), (0, 128));
    assert!(u64_at(&reply, 16) > 1 << 29);
    let reply = served.ask(LOOKUP, 1, b"dir\0").unwrap();
    assert!(u64_at(&reply, 16) > 1 << 29 && u64_at(&reply, 24) > 1 << 29);
    assert_eq!(served.lookup(file, b"x"), Err(errno::ENOTDIR));
    assert_eq!(served.lookup(1, &[b'n'; 256]), Err(errno::ENAMETOOLONG));
    // As servers of NFS ask.
    assert_eq!(served.lookup(file, b".").unwrap().0, file);
    assert_eq!(served.lookup(dir, b"..").unwrap().0, 1);
    assert_eq!(served.lookup(1, b"..").unwrap().0, 1);
    assert_eq!(served.lookup(99, b"."), Err(errno::ESTALE));
    assert_eq!(served.problems(), [""; 0]);
}

#[test]
fn directories_are_listed_in_replies_of_any_size() {
    let mut fs = sample();
    let root = fs.root();
    let many = fs.add_dir(root, "many");
    let names: Vec<String> = (0..500)
        .map(|n| format!("{n:03}{}", "x".repeat(n % 50)))
        .collect();
    for name in &names {
        fs.add_file(many, name, b"");
    }
    let served = Served::new(fs);
    let node = served.lookup(1, b"many").unwrap().0;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for plus in [false, true] {
        for size in [300, 4096, 1 << 20, 2 << 20] {
            let list = served.list(node, size, plus);
            let listed: Vec<Vec<u8>> = list.iter().map(|entry| entry.0.clone()).collect();
            assert_eq!(listed, with_dots(&names));
            for (name, found, number) in &list[2..] {
                let (expected, attributes) = served.lookup(node, name).unwrap();
                assert_eq!(*number, u64_at(&attributes, 0));
                if plus {
                    assert_eq!(*found, expected);
                }
            }
            // `.` and `..` have numbers, too, and no attributes.
            assert_eq!((list[0].1, list[1].1), (0, 0));
            assert_eq!((list[0].2, list[1].2), (many.0 + 1000, root.0 + 1000));
        }
    }
    let beyond = served.ask(READDIR, node, &read_body(u64::MAX, 4096));
    assert_eq!(beyond, Ok(Vec::new()));
    let file = served.lookup(1, b"link").unwrap().0;
    let refused = served.ask(READDIR, file, &read_body(0, 4096));
    assert_eq!(refused, Err(errno::ENOTDIR));
}

#[test]
fn content_targets_and_attributes_are_read() {
    let served = Served::new(sample());
    let file = served.lookup(1, b"link").unwrap().0;
    let link = served.lookup(1, b"symlink").unwrap().0;
    for (offset, size, expected) in [
        (0, 100, &b"content"[..]),
        (3, 2, b"te"),
        (7, 9, b""),
        (u64::MAX, 9, b""),
        (0, u32::MAX, b"content"),
    ] {
        let read = served.ask(READ, file, &read_body(offset, size));
        assert_eq!(read.as_deref(), Ok(expected));
    }
    assert_eq!(
        served.ask(READLINK, link, b"").as_deref(),
        Ok(&b"dir/file"[..])
    );
    assert_eq!(served.ask(READLINK, file, b""), Err(errno::EINVAL));
    let xattr = |name: &[u8], size: u32| {
        let body = [&size.to_ne_bytes()[..], &[0; 4], name, b"\0"].concat();
        served.ask(GETXATTR, file, &body)
    };
    assert_eq!(xattr(b"user.a", 4).as_deref(), Ok(&b"1234"[..]));
    assert_eq!(xattr(b"user.a", 3), Err(errno::ERANGE));
    assert_eq!(u32_at(&xattr(b"user.a", 0).unwrap(), 0), 4);
    assert_eq!(xattr(b"trusted.b", 9), Ok(Vec::new()));
    assert_eq!(xattr(b"user.b", 9), Err(errno::ENODATA));
    let list = |uid| {
        let mut body = 100u32.to_ne_bytes().to_vec();
        body.extend([0; 4]);
        served
            .replies(vec![of_user(uid, LISTXATTR, file, &body)])
            .remove(0)
    };
    assert_eq!(list(0).as_deref(), Ok(&b"trusted.b\0user.a\0"[..]));
    assert_eq!(list(1000).as_deref(), Ok(&b"user.a\0"[..]));
    // The time of birth: valid bits, then the times of access and birth.
    let statx = served.ask(STATX, file, &[0; 24]).unwrap();
    assert_eq!((statx.len(), u32_at(&statx, 32)), (288, 0xfff));
    assert_eq!(u64_at(&statx, 32 + 80).cast_signed(), -5);
    let plain = served.ask(STATX, link, &[0; 24]).unwrap();
    assert_eq!(u32_at(&plain, 32), 0x7ff);
    let reply = served.ask(GETATTR, 1, &[0; 16]).unwrap();
    assert_eq!((reply.len(), u64_at(&reply, 16)), (104, 1000));
    let space = served.ask(STATFS, 1, b"").unwrap();
    assert_eq!(
        (space.len(), u64_at(&space, 0), u64_at(&space, 24)),
        (80, 2, 3)
    );
}

#[test]
fn holes_are_found_and_not_counted() {
    const MIB: u64 = 1 << 20;
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let data = vec![1; 4096];
    fs.add_sparse(root, "sparse", 4 * MIB, &[(MIB, &data), (3 * MIB, &data)]);
    fs.add_sparse(root, "hole", MIB, &[]);
    fs.add_file(root, "full", &data);
    let served = Served::new(fs);
    let seek = |name: &[u8], offset, whence| {
        let node = served.lookup(1, name).unwrap().0;
        let found = served.ask(LSEEK, node, &read_body(offset, whence));
        found.map(|reply| u64_at(&reply, 0))
    };
    let (data, hole) = (3, 4);
    assert_eq!(seek(b"sparse", 0, data), Ok(MIB));
    assert_eq!(seek(b"sparse", 0, hole), Ok(0));
    assert_eq!(seek(b"sparse", MIB + 1, data), Ok(MIB + 1));
    assert_eq!(seek(b"sparse", MIB + 1, hole), Ok(MIB + 4096));
    assert_eq!(seek(b"sparse", MIB + 4096, data), Ok(3 * MIB));
    assert_eq!(seek(b"sparse", 3 * MIB + 4096, data), Err(errno::ENXIO));
    assert_eq!(seek(b"sparse", 4 * MIB, hole), Err(errno::ENXIO));
    assert_eq!(seek(b"hole", 5, data), Err(errno::ENXIO));
    assert_eq!(seek(b"full", 5, hole), Ok(4096));
    assert_eq!(seek(b"full", 4096, data), Err(errno::ENXIO));
    assert_eq!(seek(b"full", 0, 1), Err(errno::EINVAL));
    let blocks = |name| u64_at(&served.lookup(1, name).unwrap().1, 16);
    assert_eq!([&b"sparse"[..], b"hole", b"full"].map(blocks), [16, 0, 8]);
}

#[test]
fn kernel_and_server_agree_on_abilities() {
    const OPEN_FLAGS: [(u32, u32); 2] = [(OPEN, 1 << 17), (OPENDIR, 1 << 24)];
    let served = Served::new(sample());
    for (opcode, _) in OPEN_FLAGS {
        assert_eq!(served.ask(opcode, 1, &[0; 8]), Err(errno::ENOSYS));
    }
    // A tree that can change: files are opened, and nothing is kept for long.
    let live = options().is_live(true);
    let live = Served::with(Arc::new(sample()), live);
    for (opcode, _) in OPEN_FLAGS {
        let reply = live.ask(opcode, 1, &[0; 8]).unwrap();
        assert_eq!(reply, [0; 16]);
    }
    let reply = live.ask(LOOKUP, 1, b"dir\0").unwrap();
    assert_eq!((u64_at(&reply, 16), u64_at(&reply, 24)), (1, 1));
    let fs: Arc<dyn FileSystem> = Arc::new(sample());
    let fresh = |has_xattrs| {
        let options = options().has_xattrs(has_xattrs);
        fuse::Server::new(Arc::clone(&fs), options, |_| {}).unwrap()
    };
    for (has_xattrs, acl) in [(true, 1 << 20), (false, 0)] {
        let served = Served {
            server: fresh(has_xattrs),
            problems: Arc::default(),
        };
        // An old kernel, one that is too old, and a newer protocol, which asks again.
        assert_eq!(served.greeted(7, 27, ALL), Err(errno::EOPNOTSUPP));
        assert_eq!(served.greeted(6, 99, ALL), Err(errno::EOPNOTSUPP));
        let reply = served.greeted(8, 0, ALL).unwrap();
        assert_eq!((u32_at(&reply, 0), reply.len()), (7, 64));
        let reply = served.greeted(7, 31, ALL & !OPEN_FLAGS[0].1).unwrap();
        assert_eq!(
            (u32_at(&reply, 4), u32_at(&reply, 12) & (1 << 20)),
            (31, acl)
        );
        // Opening keeps what is cached, since the kernel cannot do without.
        let reply = served.ask(OPEN, 1, &[0; 8]).unwrap();
        assert_eq!(u32_at(&reply, 8), 2);
        assert_eq!(served.ask(OPENDIR, 1, &[0; 8]), Err(errno::ENOSYS));
    }
    let without = options().has_xattrs(false);
    let without = Served::with(Arc::new(sample()), without);
    let body = [&[9, 0, 0, 0, 0, 0, 0, 0], &b"user.a\0"[..]].concat();
    assert_eq!(without.ask(GETXATTR, 1, &body), Err(errno::ENOSYS));
}

#[test]
fn owners_permissions_and_users_are_as_asked_for() {
    let options = options()
        .owner(Owner {
            uid: Some(7),
            gid: Some(8),
            umask: 0o077,
        })
        .lifetime(Some(Duration::from_millis(1500)));
    let served = Served::with(Arc::new(sample()), options);
    let reply = served.ask(LOOKUP, 1, b"dir\0").unwrap();
    assert_eq!((u32_at(&reply, 40 + 68), u32_at(&reply, 40 + 72)), (7, 8));
    assert_eq!(u32_at(&reply, 40 + 60), 0o40700);
    assert_eq!((u64_at(&reply, 16), u32_at(&reply, 32)), (1, 500_000_000));
    let only = script_options().only_user(Some(1000));
    let served = Served::with(Arc::new(sample()), only);
    for (uid, allowed) in [(0, true), (1000, true), (1001, false)] {
        let reply = served
            .replies(vec![of_user(uid, LOOKUP, 1, b"dir\0")])
            .remove(0);
        match reply {
            Ok(reply) => assert_eq!((u64_at(&reply, 16), allowed), (0, true)),
            Err(error) => assert_eq!((error, allowed), (errno::EACCES, false)),
        }
    }
}

fn script_options() -> Options {
    options()
}

#[test]
fn any_directory_can_be_the_root() {
    let fs = sample();
    let dir = fs.lookup(fs.root(), b"dir").unwrap().ino;
    let options = options().root(Some(dir));
    let served = Served::with(Arc::new(fs), options);
    let names: Vec<Vec<u8>> = served
        .list(1, 4096, true)
        .into_iter()
        .map(|e| e.0)
        .collect();
    assert_eq!(names, with_dots(&["file"]));
    let fs = sample();
    let file = fs.lookup(fs.root(), b"link").unwrap().ino;
    let options = script_options().root(Some(file));
    assert!(fuse::Server::new(Arc::new(fs), options, |_| {}).is_err());
    assert_eq!(FileKind::Directory.mode_bits(), 0o40000);
}

#[test]
fn requests_are_counted() {
    let served = Served::new(sample());
    let file = served.lookup(1, b"link").unwrap().0;
    served.ask(READ, file, &read_body(0, 4096)).unwrap();
    assert!(
        served
            .replies(vec![request(FORGET, file, &[0; 8])])
            .is_empty()
    );
    assert_eq!(served.ask(MKDIR, 1, b"x\0"), Err(errno::EROFS));
    let counters = served.server.counters();
    let expected = [
        ("lookup", 1),
        ("forget", 1),
        ("read", 1),
        ("init", 1),
        ("other", 1),
    ];
    assert_eq!(counters.requests(), expected);
    assert_eq!(
        (counters.all(), counters.bytes(), counters.errors()),
        (5, 7, 0)
    );
}

/// Puts files into a directory, and lists it. Returns their numbers in the protocol, in the order
/// of the list.
fn listed_files(served: &Served) -> Vec<u64> {
    let list = served.list(1, 1 << 20, true);
    list[2..].iter().map(|entry| entry.1).collect()
}

#[test]
fn small_files_are_sent_before_they_are_asked_for() {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    for n in 0..100 {
        fs.add_file(root, format!("{n:03}"), format!("content {n}").as_bytes());
    }
    let options = options().threads(2);
    let served = Served::with(Arc::new(fs), options);
    let nodes = listed_files(&served);
    let read = |at: usize| {
        let messages = served.messages(vec![request(READ, nodes[at], &read_body(0, 4096))]);
        let (reply, stored) = messages.split_last().unwrap();
        assert_eq!(reply[16..], *format!("content {at}").as_bytes());
        let stored = stored.iter().map(|message| {
            // Length, FUSE_NOTIFY_STORE, no request; file, offset, length of the content.
            assert_eq!(u32_at(message, 0) as usize, message.len());
            assert_eq!((u32_at(message, 4), u64_at(message, 8)), (4, 0));
            assert_eq!(u64_at(message, 24), 0);
            assert_eq!(u32_at(message, 32) as usize, message.len() - 40);
            let at = nodes.iter().position(|&node| node == u64_at(message, 16));
            assert_eq!(
                message[40..],
                *format!("content {}", at.unwrap()).as_bytes()
            );
            at.unwrap()
        });
        stored.collect::<Vec<_>>()
    };
    assert_eq!(read(0), [0; 0]);
    assert_eq!(read(1), [2, 3, 4, 5]);
    assert_eq!(read(6), (7..15).collect::<Vec<_>>());
    assert_eq!(read(50), [0; 0]);
    assert_eq!(served.server.counters().unasked(), 12);
}

/// Lists the first directories of the tree one after another, and reads the file in each that was
/// not sent. Returns the files that were sent at the end of each list.
fn walked(served: &Served, dirs: u64, reads: bool) -> Vec<usize> {
    let mut sent = Vec::new();
    for dir in 0..dirs {
        let dir = served.lookup(1, format!("{dir:03}").as_bytes()).unwrap().0;
        let listed = served.ask(READDIRPLUS, dir, &read_body(0, 4096)).unwrap();
        let (file, count) = (u64_at(&listed, 2 * 160), 3);
        let end = request(READDIRPLUS, dir, &read_body(count, 4096));
        let messages = served.messages(vec![end]);
        let (reply, stored) = messages.split_last().unwrap();
        // There are no more names.
        assert_eq!((reply.len(), u64_at(reply, 8)), (16, 77));
        for message in stored {
            assert_eq!((u32_at(message, 4), u64_at(message, 16)), (4, file));
            assert_eq!(message[40..], *b"content");
        }
        if reads && stored.is_empty() {
            let read = request(READ, file, &read_body(0, 4096));
            assert_eq!(served.messages(vec![read]).len(), 1);
        }
        sent.push(stored.len());
    }
    sent
}

fn directories_of_one_file() -> MemoryFs {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    for n in 0..20 {
        let dir = fs.add_dir(root, format!("{n:03}"));
        fs.add_file(dir, "file", b"content");
    }
    fs
}

#[test]
fn files_of_the_next_directories_are_sent_when_these_were_listed() {
    for (threads, reads, expected) in [
        (
            2,
            true,
            vec![0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1],
        ),
        (2, false, vec![0; 16]),
        (1, true, vec![0; 16]),
    ] {
        let options = options().threads(threads);
        let served = Served::with(Arc::new(directories_of_one_file()), options);
        assert_eq!(walked(&served, 16, reads), expected);
    }
}

#[test]
fn trees_that_change_and_single_threads_send_nothing_unasked() {
    for (is_live, threads) in [(true, 2), (false, 1)] {
        let mut fs = MemoryFs::new();
        let root = fs.root();
        for name in ["a", "b", "c", "d"] {
            fs.add_file(root, name, b"content");
        }
        let options = options().is_live(is_live).threads(threads);
        let served = Served::with(Arc::new(fs), options);
        for node in listed_files(&served) {
            let read = request(READ, node, &read_body(0, 4096));
            assert_eq!(served.messages(vec![read]).len(), 1);
        }
    }
}

#[test]
fn time_of_birth_is_asked_for_once_where_there_is_none() {
    let options = options().has_birth_times(false);
    let served = Served::with(Arc::new(sample()), options);
    assert_eq!(served.ask(STATX, 1, &[0; 24]), Err(errno::ENOSYS));
    assert!(served.ask(GETATTR, 1, &[0; 16]).is_ok());
}
