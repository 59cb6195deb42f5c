//! Work goes by what files store, not by what their sizes claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use testkit::{HookedFs, MemoryFs, Rng, TempDir};
use tree::diff::{Change, diff};
use tree::extract::{ExtractOptions, extract};
use tree::manifest::Manifest;
use tree::tar::{self, Tar};
use tree::{
    Aspects, Duplicates, Extent, ExtentKind, FileSystem, HostDir, Ino, Inventory, Limits,
    NoProgress, Parallel, sha256,
};

/// The largest file of Linux.
const LARGEST: u64 = i64::MAX as u64;

/// Reads that a tree with a few such files may cost.
const READS_MAX: u64 = 1000;

/// Two sparse files of the largest size with some data, another equal one, one without data, and an
/// ordinary one.
fn huge() -> MemoryFs {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let data = Rng::new(1).bytes(300_000);
    let end = LARGEST - 10;
    let pieces = |n: u64| {
        [
            (n << 40, &data[..]),
            (1 << 62, b"middle"),
            (end, b"the end..."),
        ]
    };
    fs.add_sparse(root, "first", LARGEST, &pieces(1));
    fs.add_sparse(root, "second", LARGEST, &pieces(2));
    fs.add_sparse(root, "third", LARGEST, &pieces(2));
    fs.add_sparse(root, "empty", LARGEST, &[]);
    fs.add_file(root, "ordinary", &data);
    fs
}

/// A tree that counts its reads.
fn counted(fs: MemoryFs) -> (HookedFs<MemoryFs>, Arc<AtomicU64>) {
    let reads = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&reads);
    let fs = HookedFs::new(fs, move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    (fs, reads)
}

fn inventory(fs: &dyn FileSystem) -> Inventory<'_> {
    Inventory::of(fs, &Limits::default()).unwrap()
}

#[test]
fn an_8_eb_file_costs_fewer_than_1000_reads() {
    let (fs, reads) = counted(huge());
    let took = |what: &str| {
        let reads = reads.swap(0, Ordering::Relaxed);
        assert!((1..READS_MAX).contains(&reads), "{what}: {reads} reads");
    };
    let inventory = inventory(&fs);
    let duplicates = Duplicates::find(&inventory, Parallel::new(2)).unwrap();
    assert_eq!(duplicates.len(), 1);
    took("looking for equal files");

    let manifest = Manifest::of(&fs, &Aspects::ALL).unwrap();
    assert_eq!(manifest.as_str().matches("sha256data=").count(), 4);
    assert_eq!(manifest.as_str().matches("sha256digest=").count(), 1);
    took("a manifest");

    let mut archive = Vec::new();
    tar::write(
        &inventory,
        false,
        Parallel::new(2),
        &NoProgress,
        &mut archive,
    )
    .unwrap();
    took("a copy to tar");
    assert!(archive.len() < 2_000_000);
    let tar = Tar::open(Box::new(archive), Limits::default()).unwrap();
    assert_eq!(Manifest::of(&tar, &Aspects::ALL).unwrap(), manifest);

    let mut differences = Vec::new();
    let mut report = |difference| {
        differences.push(difference);
        Ok(())
    };
    diff(
        &fs,
        &tar,
        &Aspects::ALL,
        Parallel::new(2),
        &NoProgress,
        &mut report,
    )
    .unwrap();
    assert_eq!(differences, []);
    took("a diff");

    // ext4 has no files of this size.
    let Some(memory) = TempDir::for_huge_files() else {
        return;
    };
    let dir = memory.join("copy");
    let options = ExtractOptions {
        existing: tree::extract::Existing::Refuse,
        skip_unreadable: false,
        owners: false,
        sync: false,
        parallel: Parallel::new(2),
        ..ExtractOptions::default()
    };
    extract(&inventory, &dir, &options, &NoProgress).unwrap();
    took("a copy to a directory");
    // Linux allocates whole pages.
    let aspects = Aspects {
        owner: false,
        holes: false,
        ..Aspects::ALL
    };
    let copied = Manifest::of(&HostDir::open(&dir).unwrap(), &aspects);
    assert_eq!(copied.unwrap(), Manifest::of(&fs, &aspects).unwrap());
}

/// The value of a word in the first line of a manifest that has it.
fn word(fs: &dyn FileSystem, key: &str) -> Option<String> {
    let manifest = Manifest::of(fs, &Aspects::ALL).unwrap();
    let mut words = manifest.as_str().split([' ', '\n']);
    words.find_map(|word| Some(word.strip_prefix(key)?.strip_prefix('=')?.to_owned()))
}

#[test]
fn the_hash_of_a_mostly_empty_file_is_of_offsets_and_nonzero_blocks() {
    let file = |size, pieces: &[(u64, &[u8])]| {
        let mut fs = MemoryFs::new();
        fs.add_sparse(fs.root(), "file", size, pieces);
        fs
    };
    let hex = |bytes: &[u8]| {
        let digest = sha256(bytes);
        digest
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    // As the documentation says, computed in another way.
    let size = (5 << 30) + 10;
    let mut expected = Vec::new();
    let mut block = vec![0; 4096];
    block[4090..].copy_from_slice(b"across");
    expected.extend(4096u64.to_le_bytes());
    expected.extend(&block);
    block.fill(0);
    block[..8].copy_from_slice(b" a block");
    expected.extend(8192u64.to_le_bytes());
    expected.extend(&block);
    expected.extend((5u64 << 30).to_le_bytes());
    expected.extend(b"0123456789");
    let zeros = vec![0; 1 << 20];
    let sparse = [
        (8186, &b"across a block"[..]),
        (5 << 30, &b"0123456789"[..]),
    ];
    // The same content with other holes.
    let dense = [
        (0, &zeros[..8186]),
        (8186, &b"across a block"[..]),
        (8200, &zeros[..5]),
        (1 << 30, &zeros),
        ((5 << 30) - 4096, &zeros[..4096]),
        (5 << 30, &b"0123456789"[..]),
    ];
    let (sparse, dense) = (file(size, &sparse), file(size, &dense));
    assert_eq!(word(&sparse, "sha256data").unwrap(), hex(&expected));
    assert_eq!(word(&dense, "sha256data").unwrap(), hex(&expected));
    assert_eq!(word(&sparse, "sha256digest"), None);

    // Up to 1 GiB, all content is hashed.
    let mut content = vec![0; (1 << 30) + 1];
    content[5] = 1;
    let at_limit = file(1 << 30, &[(5, &[1])]);
    assert_eq!(
        word(&at_limit, "sha256digest").unwrap(),
        hex(&content[..1 << 30])
    );
    let above = file((1 << 30) + 1, &[(5, &[1])]);
    assert_eq!(word(&above, "sha256digest"), None);
    // 2^18 + 1 blocks: 256 that are not zero are fewer than one in 1,024, 257 are not.
    for n in 0..257 {
        content[n * 8192] = 7;
    }
    let ones: Vec<(u64, &[u8])> = (0..257).map(|n| (n * 8192, &[7][..])).collect();
    content[5] = 0;
    let few = file((1 << 30) + 1, &ones[..256]);
    assert!(word(&few, "sha256data").is_some());
    let many = file((1 << 30) + 1, &ones);
    assert_eq!(word(&many, "sha256digest").unwrap(), hex(&content));
}

#[test]
fn a_hole_equals_zeros_and_differs_from_anything_else() {
    let tree = |size: u64, pieces: &[(u64, &[u8])]| {
        let mut fs = MemoryFs::new();
        fs.add_sparse(fs.root(), "file", size, pieces);
        fs
    };
    let size = 1 << 50;
    let hole = tree(size, &[]);
    let zeros = tree(size, &[(1 << 40, &[0; 300_000])]);
    let mut data = vec![0; 300_000];
    data[270_000] = 1;
    let other = tree(size, &[(1 << 40, &data)]);
    let changes = |a: &MemoryFs, b: &MemoryFs| {
        let mut changes = Vec::new();
        let mut report = |difference: tree::diff::Difference| {
            changes.push(difference.change);
            Ok(())
        };
        let aspects = Aspects {
            holes: false,
            ..Aspects::ALL
        };
        diff(a, b, &aspects, Parallel::new(1), &NoProgress, &mut report).unwrap();
        changes
    };
    assert_eq!(changes(&hole, &zeros), []);
    assert_eq!(changes(&zeros, &hole), []);
    let at = (1 << 40) + 270_000;
    for (a, b) in [(&hole, &other), (&other, &hole), (&zeros, &other)] {
        assert_eq!(changes(a, b), [Change::Content { at }]);
    }
}

/// A file whose data is a block at each multiple of `step`.
struct Dotted {
    inner: MemoryFs,
    file: Ino,
    step: u64,
    count: u64,
}

fn dotted(step: u64, count: u64) -> Dotted {
    let mut inner = MemoryFs::new();
    let file = inner.add_sparse(inner.root(), "dotted", step * count, &[]);
    Dotted {
        inner,
        file,
        step,
        count,
    }
}

impl FileSystem for Dotted {
    fn root(&self) -> Ino {
        self.inner.root()
    }
    fn storage(&self) -> tree::Storage {
        self.inner.storage()
    }
    fn metadata(&self, ino: Ino) -> tree::Result<tree::Metadata> {
        self.inner.metadata(ino)
    }
    fn read_dir(&self, dir: Ino) -> tree::Result<Vec<tree::DirEntry>> {
        self.inner.read_dir(dir)
    }
    fn list_readable(&self, dir: Ino) -> (Vec<tree::DirEntry>, Vec<tree::Error>) {
        tree::all_or_nothing(self.read_dir(dir))
    }

    fn read_dir_with_metadata(
        &self,
        dir: Ino,
    ) -> tree::Result<Vec<(tree::DirEntry, tree::Metadata)>> {
        self.inner.read_dir_with_metadata(dir)
    }
    fn lookup(&self, dir: Ino, name: &[u8]) -> tree::Result<tree::DirEntry> {
        self.inner.lookup(dir, name)
    }
    fn read_link(&self, link: Ino) -> tree::Result<Vec<u8>> {
        self.inner.read_link(link)
    }
    fn xattrs(&self, ino: Ino) -> tree::Result<Vec<tree::Xattr>> {
        self.inner.xattrs(ino)
    }
    fn extents(&self, file: Ino, from: u64) -> tree::Result<Vec<Extent>> {
        assert_eq!(file, self.file);
        let first = from / self.step;
        let part = |n: u64| {
            let extent = |offset, len, kind| Extent {
                offset,
                len,
                kind,
                id: None,
            };
            let at = n * self.step;
            let data = extent(at, 512, ExtentKind::Plain { stored_offset: 0 });
            [data, extent(at + 512, self.step - 512, ExtentKind::Hole)]
        };
        let extents = (first..self.count.min(first + 4096)).flat_map(part);
        Ok(extents.filter(|extent| extent.end() > from).collect())
    }
    fn read_at(&self, _: Ino, offset: u64, buf: &mut [u8]) -> tree::Result<usize> {
        for (at, byte) in (offset..).zip(&mut *buf) {
            *byte = u8::from(at % self.step < 512);
        }
        Ok(buf.len())
    }
    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> tree::Result<Option<tree::Checksum>> {
        self.inner.read_encoded(file, extent, stored)
    }
}

#[test]
fn a_tar_archive_fills_small_holes_of_a_file_with_millions_and_refuses_large_ones() {
    // Holes of 512 bytes are stored, those of a gigabyte are not.
    let fs = dotted(1024, (1 << 20) + 10);
    let mut archive = Vec::new();
    let summary = tar::write(
        &inventory(&fs),
        false,
        Parallel::new(2),
        &NoProgress,
        &mut archive,
    );
    assert_eq!(
        summary.unwrap().content_bytes,
        ((1 << 20) + 10) * 1024 - 512
    );
    let tar = Tar::open(Box::new(archive), Limits::default()).unwrap();
    let file = tar.lookup(tar.root(), b"dotted").unwrap().ino;
    let mut content = vec![0; 4096];
    assert_eq!(tar.read_at(file, 1 << 20, &mut content).unwrap(), 4096);
    let expected = (0..4096).map(|at| u8::from(at % 1024 < 512));
    assert!(content.into_iter().eq(expected));

    let fs = dotted(1 << 30, (1 << 20) + 10);
    let error = tar::write(
        &inventory(&fs),
        false,
        Parallel::new(2),
        &NoProgress,
        &mut Vec::new(),
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with("read dotted: limit reached: a sparse file"),
        "{error}"
    );
}
