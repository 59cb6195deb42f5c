//! Sources that cannot be read as a whole: what is lost, what is kept, and what is said of it.

use std::fs;
use std::io::Write;

use testkit::{HookedFs, MemoryFs, Rng, TempDir};
use tree::extract::{Existing, ExtractOptions, extract};
use tree::rescue::{Loss, Rescue};
use tree::tar::Tar;
use tree::{
    Corrupt, Error, FileSystem, HostDir, Ino, Inventory, Limits, NoProgress, Parallel, Result, tar,
};

fn options(skip_unreadable: bool, threads: usize) -> ExtractOptions {
    ExtractOptions {
        existing: Existing::Refuse,
        owners: true,
        sync: false,
        skip_unreadable,
        parallel: Parallel::new(threads),
        ..ExtractOptions::default()
    }
}

fn broken() -> Error {
    let what = "the test broke this sector";
    Corrupt {
        what,
        at: 1,
        got: 2,
    }
    .into()
}

/// A tree with bad content: a small file, a file of several parts, one with two names, and a link
/// to a good one.
fn damaged() -> (HookedFs<MemoryFs>, Vec<&'static str>) {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let sub = fs.add_dir(root, "sub");
    for n in 0..100 {
        fs.add_file(
            sub,
            format!("good {n:02}"),
            format!("content {n}").as_bytes(),
        );
    }
    let large = Rng::new(1).bytes(5 << 20);
    let mut bad = vec![
        fs.add_file(sub, "bad", b"content"),
        fs.add_file(sub, "large bad", &large),
    ];
    fs.add_file(sub, "large good", &large);
    let linked = fs.add_file(root, "linked bad 1", b"content");
    fs.link(sub, "linked bad 2", linked);
    bad.push(linked);
    let good = fs.add_file(root, "linked good 1", b"content");
    fs.link(sub, "linked good 2", good);
    let hooked = HookedFs::new(fs, move |ino, at| {
        // Of the large one, a part in the middle.
        let is_bad = ino != bad[1] || (3 << 20..4 << 20).contains(&at);
        if bad.contains(&ino) && is_bad {
            return Err(broken());
        }
        Ok(())
    });
    let lost = vec![
        "linked bad 1",
        "sub/bad",
        "sub/large bad",
        "sub/linked bad 2",
    ];
    (hooked, lost)
}

fn paths(lost: &[(Vec<u8>, Error)]) -> Vec<String> {
    let path = |(path, _): &(Vec<u8>, Error)| path.escape_ascii().to_string();
    lost.iter().map(path).collect()
}

/// Everything that is not lost is there, with its content.
fn has_all_but(copy: &dyn FileSystem, source: &dyn FileSystem, lost: &[&str]) {
    let (copied, whole) = (
        Inventory::of(copy, &Limits::default()).unwrap(),
        Inventory::of(source, &Limits::default()).unwrap(),
    );
    for entry in whole.names() {
        let path = whole.path(entry);
        let twin = copied.find(&path);
        if lost.iter().any(|lost| lost.as_bytes() == path) {
            assert_eq!(twin, None, "{}", path.escape_ascii());
            continue;
        }
        let file = whole.file(entry);
        let twin = copied.file(twin.unwrap());
        let read = |fs: &dyn FileSystem, ino| {
            let mut content = vec![0; whole.size(file) as usize];
            let mut at = 0;
            while at < content.len() {
                at += fs.read_at(ino, at as u64, &mut content[at..]).unwrap();
            }
            content
        };
        if whole.kind(file) == tree::FileKind::Regular {
            assert!(read(source, whole.ino(file)) == read(copy, copied.ino(twin)));
        }
    }
    assert_eq!(
        copied.entry_count() as usize,
        whole.entry_count() as usize - lost.len()
    );
}

#[test]
fn bad_blocks_cost_their_files_only_in_a_directory() {
    for threads in [1, 2, 8] {
        let (fs, lost) = damaged();
        let inventory = Inventory::of(&fs, &Limits::default()).unwrap();
        let dir = TempDir::new();
        let to = dir.join("out");
        extract(&inventory, &to, &options(false, threads), &NoProgress).unwrap_err();
        assert!(!to.exists());
        let done = extract(&inventory, &to, &options(true, threads), &NoProgress).unwrap();
        assert_eq!(paths(&done.unreadable), lost);
        assert!(done.unrestored.is_empty());
        assert!(
            done.unreadable[1]
                .1
                .to_string()
                .contains("broke this sector")
        );
        has_all_but(&HostDir::open(&to).unwrap(), &fs, &lost);
    }
}

#[test]
fn bad_blocks_cost_their_files_only_in_a_tar_archive() {
    for threads in [1, 2, 8] {
        let (fs, lost) = damaged();
        let inventory = Inventory::of(&fs, &Limits::default()).unwrap();
        let parallel = Parallel::new(threads);
        let mut archive = Vec::new();
        tar::write(&inventory, false, parallel, &NoProgress, &mut archive).unwrap_err();
        archive.clear();
        let done = tar::write(&inventory, true, parallel, &NoProgress, &mut archive).unwrap();
        let mut got = paths(&done.unreadable);
        got.sort();
        assert_eq!(got, lost);
        assert!(done.damaged.is_empty());
        assert_eq!(
            done.entries as usize,
            inventory.entry_count() as usize - lost.len()
        );
        has_all_but(
            &Tar::open(Box::new(archive), Limits::default()).unwrap(),
            &fs,
            &lost,
        );
    }
}

/// A file that can be read at first and not again: its header is written, and cannot be taken back.
#[test]
fn what_fails_later_is_zeros_in_a_tar_archive() {
    let mut fs = MemoryFs::new();
    let large = fs.add_file(fs.root(), "large", &[7; 3 << 20]);
    fs.add_file(fs.root(), "next", b"next");
    let reads = std::sync::atomic::AtomicU32::new(0);
    let fs = HookedFs::new(fs, move |ino, _| {
        // All of it was read once before. This is its second mebibyte, in pieces of 256 KiB.
        if ino == large && reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 12 + 4 {
            return Err(broken());
        }
        Ok(())
    });
    let inventory = Inventory::of(&fs, &Limits::default()).unwrap();
    let mut archive = Vec::new();
    let one = Parallel::new(1);
    let done = tar::write(&inventory, true, one, &NoProgress, &mut archive).unwrap();
    assert_eq!(paths(&done.damaged), ["large"]);
    let tar = Tar::open(Box::new(archive), Limits::default()).unwrap();
    let mut buf = vec![0; 3 << 20];
    let file = tar.lookup(tar.root(), b"large").unwrap();
    assert_eq!(tar.read_at(file.ino, 0, &mut buf).unwrap(), buf.len());
    assert!(buf[..1 << 20].iter().all(|&byte| byte == 7));
    assert!(buf[4 << 18..5 << 18].iter().all(|&byte| byte == 0));
    assert!(buf[5 << 18..].iter().all(|&byte| byte == 7));
}

/// Whether a read that starts at `at` touches a bad sector cannot be known from its start alone, so
/// this tree fails by range.
struct BadSectors {
    fs: MemoryFs,
    file: Ino,
    bad: Vec<u64>,
}

impl FileSystem for BadSectors {
    fn root(&self) -> Ino {
        self.fs.root()
    }

    fn storage(&self) -> tree::Storage {
        self.fs.storage()
    }

    fn metadata(&self, ino: Ino) -> Result<tree::Metadata> {
        self.fs.metadata(ino)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<tree::DirEntry>> {
        self.fs.read_dir(dir)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(tree::DirEntry, tree::Metadata)>> {
        self.fs.read_dir_with_metadata(dir)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<tree::DirEntry>, Vec<Error>) {
        self.fs.list_readable(dir)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<tree::DirEntry> {
        self.fs.lookup(dir, name)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        self.fs.read_link(link)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<tree::Xattr>> {
        self.fs.xattrs(ino)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<tree::Extent>> {
        self.fs.extents(file, from)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let range = offset..offset + buf.len() as u64;
        let hits = |bad: &u64| bad * 4096 < range.end && (bad + 1) * 4096 > range.start;
        if file == self.file && self.bad.iter().any(hits) {
            return Err(broken());
        }
        self.fs.read_at(file, offset, buf)
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &tree::Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<tree::Checksum>> {
        self.fs.read_encoded(file, extent, stored)
    }
}

#[test]
fn damaged_files_are_kept_with_zeros_in_place_of_bad_sectors() {
    for seed in 0..testkit::cases(20) {
        let mut rng = Rng::new(seed);
        let len = 1 + rng.index(3 << 20);
        let content: Vec<u8> = rng.bytes(len).iter().map(|byte| byte | 1).collect();
        let sectors = len.div_ceil(4096) as u64;
        let mut bad: Vec<u64> = (0..1 + rng.below(20)).map(|_| rng.below(sectors)).collect();
        bad.sort_unstable();
        bad.dedup();
        let mut expected = content.clone();
        for &sector in &bad {
            let end = len.min(sector as usize * 4096 + 4096);
            expected[sector as usize * 4096..end].fill(0);
        }
        let mut fs = MemoryFs::new();
        let file = fs.add_file(fs.root(), "file", &content);
        fs.add_file(fs.root(), "good", b"good");
        let fs = BadSectors {
            fs,
            file,
            bad: bad.clone(),
        };
        let rescue = Rescue::new(&fs, true);
        let inventory = Inventory::of(&rescue, &Limits::default()).unwrap();
        let dir = TempDir::new();
        let to = dir.join("out");
        let done = extract(&inventory, &to, &options(true, 2), &NoProgress).unwrap();
        assert!(done.unreadable.is_empty());
        assert!(
            fs::read(to.join("file")).unwrap() == expected,
            "seed {seed}"
        );
        let losses = rescue.losses(&inventory);
        let [(path, Loss::Content(ranges, error))] = &losses[..] else {
            panic!("{losses:?}");
        };
        assert_eq!(path, b"file");
        assert!(error.to_string().contains("broke this sector"));
        let in_ranges = |at: u64| ranges.iter().any(|range| range.contains(&at));
        for sector in 0..sectors {
            let is_bad = bad.contains(&sector);
            assert_eq!(
                in_ranges(sector * 4096),
                is_bad,
                "seed {seed}, sector {sector}"
            );
        }
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        assert!(ranges.iter().all(|range| range.end <= len as u64));
        // The same in an archive.
        let mut archive = Vec::new();
        let two = Parallel::new(2);
        tar::write(&inventory, true, two, &NoProgress, &mut archive).unwrap();
        let tar = Tar::open(Box::new(archive), Limits::default()).unwrap();
        let mut got = vec![0; len];
        let ino = tar.lookup(tar.root(), b"file").unwrap().ino;
        tar.read_at(ino, 0, &mut got).unwrap();
        assert!(got == expected);
    }
}

#[test]
fn a_file_that_changes_is_taken_only_if_that_is_accepted() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    let names = ["grows", "shrinks", "same size", "replaced"];
    for name in names {
        fs::write(dir.join("src").join(name), vec![b'a'; 100_000]).unwrap();
    }
    fs::write(dir.join("src/quiet"), "quiet").unwrap();
    for accept in [false, true] {
        let host = HostDir::open(&dir.join("src")).unwrap();
        let host = if accept {
            host.accepting_changes()
        } else {
            host
        };
        let inventory = Inventory::of(&host, &Limits::default()).unwrap();
        let at = |name: &str| dir.join("src").join(name);
        let mut grows = fs::OpenOptions::new()
            .append(true)
            .open(at("grows"))
            .unwrap();
        grows.write_all(&[b'b'; 5000]).unwrap();
        fs::write(
            at("shrinks"),
            vec![b'b'; if accept { 40_000 } else { 50_000 }],
        )
        .unwrap();
        fs::write(at("same size"), vec![b'b'; 100_000]).unwrap();
        fs::write(dir.join("new"), vec![b'b'; 70_000]).unwrap();
        fs::rename(dir.join("new"), at("replaced")).unwrap();
        let to = dir.join(if accept { "accepted" } else { "refused" });
        let done = extract(&inventory, &to, &options(false, 1), &NoProgress);
        if !accept {
            let error = done.unwrap_err().to_string();
            assert!(error.contains("changed while it was read"), "{error}");
            assert!(!to.exists());
            for name in names {
                fs::write(at(name), vec![b'a'; 100_000]).unwrap();
            }
            continue;
        }
        done.unwrap();
        let changed = host.changed();
        let changed: Vec<_> = changed
            .iter()
            .map(|path| str::from_utf8(path).unwrap())
            .collect();
        assert_eq!(changed, ["grows", "replaced", "same size", "shrinks"]);
        let read = |name: &str| fs::read(to.join(name)).unwrap();
        assert!(read("grows") == vec![b'a'; 100_000]);
        let padded = |len| [vec![b'b'; len], vec![0; 100_000 - len]].concat();
        assert!(read("shrinks") == padded(40_000));
        assert!(read("same size") == padded(100_000));
        assert!(read("replaced") == padded(70_000));
        assert_eq!(read("quiet"), b"quiet");
    }
}
