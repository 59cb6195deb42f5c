//! The same tree gives the same bytes, however it was created and whatever the number of threads.

use std::fmt::Write as _;
use std::fs::{self, File, FileTimes};
use std::time::{Duration, UNIX_EPOCH};

use codec::Settings;
use squashfs::{Fragments, Options};
use testkit::{MemoryFs, Rng, TempDir};
use tree::{Device, FileKind, FileSystem, HostDir};

use crate::sources::{make, text};

fn image_of(fs: &dyn FileSystem, options: &Options, threads: usize) -> Vec<u8> {
    let out = TempDir::new();
    make(fs, &out.join("image"), options, threads).unwrap();
    fs::read(out.join("image")).unwrap()
}

/// A directory with the same content for every seed, but with files created in another order and
/// with other inode numbers, so that the host lists them in another order.
fn host_tree(seed: u64) -> TempDir {
    let dir = TempDir::new();
    let mut rng = Rng::new(seed);
    let mut numbers: Vec<u64> = (0..400).collect();
    for n in (1..numbers.len()).rev() {
        numbers.swap(n, rng.index(n + 1));
    }
    for sub in 0..4 {
        fs::create_dir(dir.join(format!("{sub}"))).unwrap();
    }
    for n in numbers {
        let path = dir.join(format!("{}/{n}", n % 4));
        // Some equal others; some have blocks, tails or hard links.
        let content = text(n % 50, (n % 50 * 700) as usize);
        fs::write(&path, content).unwrap();
        let second = UNIX_EPOCH + Duration::from_secs(1_500_000_000 + n);
        let times = FileTimes::new().set_modified(second);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_times(times).unwrap();
        if n % 40 == 0 {
            fs::hard_link(&path, dir.join(format!("{}/link-{n}", (n + 1) % 4))).unwrap();
        }
    }
    for path in ["0", "1", "2", "3", "."] {
        let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(1_600_000_000));
        File::open(dir.join(path))
            .unwrap()
            .set_times(times)
            .unwrap();
    }
    dir
}

#[test]
fn the_same_bytes_for_any_host_order_and_number_of_threads() {
    for (compression, fragments) in [
        (Some(Settings::Zstd { level: 1 }), Fragments::SmallFiles),
        (Some(Settings::Zstd { level: 12 }), Fragments::Always),
        (Some(Settings::Lzo), Fragments::Always),
        (Some(Settings::Zlib { level: 9 }), Fragments::None),
        (None, Fragments::SmallFiles),
    ] {
        let options = Options::default()
            .compression(compression)
            .fragments(fragments)
            .block_bytes(4096);
        let mut first = None;
        for seed in 0..3 {
            let dir = host_tree(seed);
            let fs = HostDir::open(dir.path()).unwrap();
            for threads in [1, 2, 8, 2] {
                let image = image_of(&fs, &options, threads);
                let first = first.get_or_insert_with(|| image.clone());
                let what = format!("order {seed}, {threads} threads, {compression:?}");
                assert!(*first == image, "{what}");
            }
        }
    }
}

/// A small tree with one of everything.
fn fixed_tree() -> MemoryFs {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let sub = fs.add_dir(root, "sub");
    let big = fs.add_dir(root, "big");
    for n in 0..700 {
        fs.add_file(big, format!("{n:03}-{}", "n".repeat(n % 30)), &[]);
    }
    for (name, size) in [("small", 1000), ("block", 4096), ("large", 300_000)] {
        fs.add_file(root, name, &text(size as u64, size));
        fs.add_file(sub, format!("{name} again"), &text(size as u64, size));
        fs.add_file(sub, format!("{name} noise"), &Rng::new(1).bytes(size));
    }
    let end = (9_000_000, &b"the end"[..]);
    let hole = fs.add_sparse(root, "hole", 9_000_007, &[(100_000, &text(7, 50_000)), end]);
    let link = fs.add_symlink(root, "soft", b"sub/small again");
    let null = Device { major: 1, minor: 3 };
    fs.add_special(root, "null", FileKind::CharDevice, null);
    let fifo = fs.add_special(root, "fifo", FileKind::Fifo, Device::default());
    fs.link(sub, "hard", hole);
    fs.metadata_mut(link).uid = 1000;
    fs.metadata_mut(fifo).permissions = 0o4711;
    fs.add_xattr(hole, b"user.name", b"a value that is stored once");
    fs.add_xattr(big, b"security.name", b"a value that is stored once");
    fs
}

/// The encoders of this project; those of libraries change with the libraries.
#[test]
fn the_digests_of_a_fixed_tree_stay() {
    let fs = fixed_tree();
    let mut digests = String::new();
    let zstd = |level| Some(Settings::Zstd { level });
    for compression in [
        zstd(1),
        zstd(3),
        zstd(9),
        zstd(15),
        Some(Settings::Lzo),
        None,
    ] {
        for (block_bytes, fragments) in [
            (4096, Fragments::SmallFiles),
            (131_072, Fragments::SmallFiles),
            (131_072, Fragments::Always),
            (1 << 20, Fragments::None),
        ] {
            let options = Options::default()
                .compression(compression)
                .fragments(fragments)
                .block_bytes(block_bytes);
            let image = image_of(&fs, &options, 2);
            let name = match compression {
                Some(Settings::Zstd { level }) => format!("zstd:{level}"),
                Some(_) => "lzo".to_owned(),
                None => "none".to_owned(),
            };
            let digest = xxhash::xxh64(&image, 0);
            let len = image.len();
            writeln!(
                digests,
                "{digest:016x} {len:7} {name} {block_bytes} {fragments:?}"
            )
            .unwrap();
        }
    }
    let expected = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/digests.txt");
    testkit::golden(expected, digests);
}
