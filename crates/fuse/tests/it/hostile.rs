use std::sync::Arc;

use linux::errno;
use testkit::{HookedFs, MemoryFs, Rng, cases};
use tree::{Corrupt, Error, FileKind, FileSystem, Ino};

use crate::script::{LOOKUP, READ, Served, options, read_body, request, u64_at};

#[test]
fn requests_of_any_bytes_are_answered() {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    fs.add_file(root, "file", b"content");
    fs.add_symlink(root, "link", b"file");
    let served = Served::new(fs);
    let mut rng = Rng::new(18);
    for _ in 0..cases(20_000) {
        let opcode = rng.below(60) as u32;
        let node = [0, 1, 2, 3, u64::MAX, rng.next_u64()][rng.below(6) as usize];
        let mut body = vec![0; rng.below(64) as usize];
        for byte in &mut body {
            *byte = if rng.below(2) == 0 {
                0
            } else {
                rng.next_u64() as u8
            };
        }
        let replies = served.replies(vec![request(opcode, node, &body)]);
        // What nobody waits for: FORGET, INTERRUPT, BATCH_FORGET.
        let silent = [2, 36, 42].contains(&opcode);
        assert_eq!(replies.len(), usize::from(!silent), "{opcode}");
    }
    // What is cut is no request.
    let whole = request(LOOKUP, 1, b"file\0");
    for len in 0..whole.len() {
        assert!(served.replies(vec![whole[..len].to_vec()]).is_empty());
    }
}

#[test]
fn damage_is_reported_once_with_its_place() {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let dir = fs.add_dir(root, "dir");
    let file = fs.add_file(dir, "file", &[1; 8192]);
    fs.add_file(dir, "other", &[2; 10]);
    let damage = || {
        Error::Corrupt(Corrupt {
            what: "made up by a test",
            at: 5,
            got: 6,
        })
    };
    let fs = HookedFs::new(fs, move |ino, offset| {
        if ino == file && offset >= 4096 {
            Err(damage())
        } else {
            Ok(())
        }
    });
    let served = Served::with(Arc::new(fs), options());
    let dir = served.lookup(1, b"dir").unwrap().0;
    let names = served.list(dir, 4096, true);
    let node = |name: &[u8]| names.iter().find(|entry| entry.0 == name).unwrap().1;
    let (file, other) = (node(b"file"), node(b"other"));
    for _ in 0..3 {
        let read = served.ask(READ, file, &read_body(4096, 4096));
        assert_eq!(read, Err(errno::EIO));
    }
    let expected = ["read dir/file Some(4096): made up by a test (found 0x6 at byte 0x5)"];
    assert_eq!(served.problems(), expected);
    assert_eq!(served.server.counters().errors(), 3);
    let read = served.ask(READ, other, &read_body(0, 4096)).unwrap();
    assert_eq!(read, [2; 10]);
}

#[test]
fn trees_that_contradict_themselves_are_harmless() {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let dir = fs.add_dir(root, "dir");
    let file = fs.add_file(root, "file", b"x");
    // A directory in itself, a file that is said to be a directory, and one that is not there.
    fs.push_entry(dir, "self", dir, FileKind::Directory);
    fs.push_entry(dir, "typed", file, FileKind::Directory);
    fs.push_entry(dir, "void", Ino(4711), FileKind::Regular);
    fs.metadata_mut(file).size = u64::MAX;
    let served = Served::new(fs);
    let dir = served.lookup(1, b"dir").unwrap().0;
    let list = served.list(dir, 4096, true);
    let shown: Vec<_> = list
        .iter()
        .map(|(name, node, _)| (&name[..], *node))
        .collect();
    let expected = [
        (&b"."[..], 0),
        (b"..", 0),
        (b"self", dir),
        (b"typed", 0),
        (b"void", 0),
    ];
    assert_eq!(shown, expected);
    assert_eq!(served.lookup(dir, b"void"), Err(errno::ESTALE));
    let (_, attributes) = served.lookup(1, b"file").unwrap();
    assert_eq!(u64_at(&attributes, 8), u64::MAX >> 1);
}
