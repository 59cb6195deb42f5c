//! Stored data of the source is kept where the format can hold it.

use std::fs;

use codec::{Algorithm, Encoder, Settings};
use erofs::{Kernel, Options};
use testkit::{FsType, MemoryFs, Mount, Rng, TempDir};
use tree::{Encoding, Extent, ExtentId, ExtentKind, FileSystem, HostDir, Ino};

use crate::create::{make, manifest, read_randomly, text};
use crate::hand::encode;
use crate::vectors::{findings, open};

const UNIT: usize = 128 << 10;

/// The stored extents of a tree in the making.
struct Source {
    fs: MemoryFs,
    next: u64,
}

impl Source {
    /// Adds a file with a part of a content, as it is stored with these settings and behind it
    /// `padding` zeros.
    fn add(
        &mut self,
        (name, settings): (&str, Settings),
        content: &[u8],
        (begin, len): (usize, usize),
        padding: usize,
    ) -> Ino {
        let mut stored = vec![0; content.len() + 1000];
        let mut encoder = Encoder::new(&settings).unwrap();
        let stored_len = encoder.compress(&mut stored, content).unwrap();
        stored.truncate(stored_len);
        stored.resize(stored_len + padding, 0);
        self.add_stored((name, settings), content, (begin, len), &stored)
    }

    /// Adds a file with a part of a content, which is stored as these bytes.
    fn add_stored(
        &mut self,
        (name, settings): (&str, Settings),
        content: &[u8],
        (begin, len): (usize, usize),
        stored: &[u8],
    ) -> Ino {
        let root = self.fs.root();
        let file = self.fs.add_file(root, name, &content[begin..begin + len]);
        self.next += 1;
        let encoding = Encoding {
            algorithm: settings.algorithm(),
            stored_len: stored.len() as u64,
            unencoded_len: content.len() as u64,
            unencoded_offset: begin as u64,
        };
        let extent = Extent {
            offset: 0,
            len: len as u64,
            kind: ExtentKind::Encoded(encoding),
            id: Some(ExtentId(self.next)),
        };
        self.fs.add_encoded(file, extent, stored);
        file
    }
}

/// A zlib stream of stored blocks, of which the first one is not the last.
fn stored_blocks(content: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x9c];
    let (begin, end) = content.split_at(content.len() / 2);
    for (is_last, part) in [(0, begin), (1, end)] {
        let len = part.len() as u16;
        stream.push(is_last);
        stream.extend(len.to_le_bytes());
        stream.extend((!len).to_le_bytes());
        stream.extend(part);
    }
    let sums = content.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    stream.extend((sums.1 << 16 | sums.0).to_be_bytes());
    stream
}

/// Extents of all codecs: whole, padded, shown in part, in the middle; and those that the format
/// cannot hold.
fn source() -> MemoryFs {
    let mut source = Source {
        fs: MemoryFs::new(),
        next: 0,
    };
    for (name, settings, padding) in [
        ("zstd", Settings::Zstd { level: 3 }, 3000),
        ("lz4", Settings::Lz4Hc { level: 12 }, 0),
        ("zlib", Settings::Zlib { level: 6 }, 2000),
    ] {
        let whole = text(padding as u64, UNIT);
        let mut add = |what: &str, part, padding| {
            let name = format!("{name} {what}");
            source.add((&name, settings), &whole, part, padding);
        };
        add("whole", (0, UNIT), padding);
        add("beginning", (0, 5000), padding);
        add("middle", (70_001, 9_999), padding);
        add("long middle", (30_001, 90_000), padding);
        add("end", (UNIT - 300, 300), padding);
    }
    let lzo = Settings::Lzo;
    source.add(("lzo", lzo), &text(1, UNIT), (0, UNIT), 0);
    let (noise, zlib) = (Rng::new(3).bytes(50_000), Settings::Zlib { level: 6 });
    let stored = stored_blocks(&noise);
    source.add_stored(("zero byte", zlib), &noise, (0, 50_000), &stored);
    source.add_stored(("zero byte, middle", zlib), &noise, (30_000, 9000), &stored);
    source.fs
}

fn options() -> Options {
    Options::default()
        .min_kernel(Kernel(6, 15))
        .compression(Settings::Zstd { level: 1 })
}

#[test]
fn stored_data_is_kept_and_the_rest_counted() {
    let fs = source();
    let (image, summary) = make(&fs, &options(), 2).unwrap();
    assert_eq!(summary.image.kept.count, 15, "{summary:?}");
    let recoded: Vec<(&str, u64)> = summary
        .recoded
        .iter()
        .map(|(why, count)| (&why[..15], *count))
        .collect();
    assert_eq!(recoded, [("codecs that ERO", 1), ("deflate streams", 2)]);
    // The rest is stored as it was.
    assert!(image.len() < 450_000, "{}", image.len());
    let opened = open(image.clone()).unwrap();
    let (is, must) = (manifest(&opened), manifest(&fs));
    assert!(is == must, "{}", must.difference(&is));
    assert_eq!(findings(&opened), "");
    let codecs: Vec<&str> = opened.superblock().codecs().collect();
    assert_eq!(codecs, ["lz4", "deflate", "zstd"]);
    // Nothing is kept in the other form.
    let older = options().min_kernel(Kernel(6, 12));
    let (_, summary) = make(&fs, &older, 2).unwrap();
    assert_eq!((summary.image.kept.count, summary.recoded.len()), (0, 0));
    let (again, _) = make(&fs, &options(), 1).unwrap();
    assert!(image == again);
    // Units of the source can be longer than new ones.
    let (shorter, summary) = make(&fs, &options().unit_bytes(16 << 10), 2).unwrap();
    assert_eq!(summary.image.kept.count, 15, "{summary:?}");
    let shorter = open(shorter).unwrap();
    assert!(manifest(&shorter) == must);
    assert_eq!(findings(&shorter), "");
    // Whole files are kept again, and those in the packed inode are encoded.
    let (_, summary) = make(&opened, &options(), 2).unwrap();
    assert_eq!(summary.image.kept.count, 4, "{summary:?}");
}

/// Of a small file in several extents, those are kept that can be; others are counted, once for all
/// files that are parts of one.
#[test]
fn small_files_have_several_extents() {
    let mut source = Source {
        fs: MemoryFs::new(),
        next: 0,
    };
    let (zstd, lzo) = (Settings::Zstd { level: 3 }, Settings::Lzo);
    let first = text(1, 61_440);
    for (name, settings) in [("one of two", [zstd, lzo]), ("none of two", [lzo, lzo])] {
        let second = text(name.len() as u64, 30_000);
        let whole = [&first[..], &second].concat();
        let root = source.fs.root();
        let file = source.fs.add_file(root, name, &whole);
        for (offset, content, settings) in
            [(0, &first, settings[0]), (61_440, &second, settings[1])]
        {
            let stored = encode(&settings, content);
            source.next += 1;
            let encoding = Encoding {
                algorithm: settings.algorithm(),
                stored_len: stored.len() as u64,
                unencoded_len: content.len() as u64,
                unencoded_offset: 0,
            };
            let extent = Extent {
                offset,
                len: content.len() as u64,
                kind: ExtentKind::Encoded(encoding),
                id: Some(ExtentId(source.next)),
            };
            source.fs.add_encoded(file, extent, &stored);
        }
    }
    let stored = encode(&lzo, &first);
    for part in 0..3 {
        let name = format!("part {part}");
        source.add_stored((&name, lzo), &first, (part * 5000, 5000), &stored);
        source.next -= 1;
    }
    let (image, summary) = make(&source.fs, &options(), 2).unwrap();
    assert_eq!(summary.image.kept.count, 1, "{summary:?}");
    let recoded: Vec<u64> = summary.recoded.into_values().collect();
    assert_eq!(recoded, [4]);
    let opened = open(image).unwrap();
    assert_eq!(findings(&opened), "");
    assert!(manifest(&opened) == manifest(&source.fs));
}

#[test]
#[ignore = "needs root"]
fn linux_reads_what_is_kept() {
    let (fs, out) = (source(), TempDir::new());
    let (image, _) = make(&fs, &options(), 2).unwrap();
    fs::write(out.join("image"), image).unwrap();
    let mount = Mount::read_only(out.join("image"), FsType::Erofs);
    let dir = HostDir::open(mount.path()).unwrap();
    let (is, must) = (manifest(&dir), manifest(&fs));
    assert!(is == must, "{}", must.difference(&is));
    read_randomly(&dir, &fs, 500);
    drop(dir);
    mount.unmount();
}

#[test]
fn damage_in_the_source_is_not_kept() {
    for settings in [
        Settings::Zstd { level: 3 },
        Settings::Lz4,
        Settings::Zlib { level: 6 },
    ] {
        let mut source = Source {
            fs: MemoryFs::new(),
            next: 0,
        };
        let content = text(5, 100_000);
        let root = source.fs.root();
        let file = source.fs.add_file(root, "file", &content);
        let mut stored = vec![0; 110_000];
        let mut encoder = Encoder::new(&settings).unwrap();
        let len = encoder.compress(&mut stored, &content).unwrap();
        stored.truncate(len);
        stored[len / 2] ^= 0xff;
        let encoding = Encoding {
            algorithm: settings.algorithm(),
            stored_len: len as u64,
            unencoded_len: 100_000,
            unencoded_offset: 0,
        };
        let extent = Extent {
            offset: 0,
            len: 100_000,
            kind: ExtentKind::Encoded(encoding),
            id: None,
        };
        source.fs.add_encoded(file, extent, &stored);
        let (image, summary) = make(&source.fs, &options(), 1).unwrap();
        // The tree itself gives the right content.
        if settings.algorithm() != Algorithm::Lz4 {
            assert_eq!(summary.image.kept.count, 0, "{settings:?}");
        }
        let opened = open(image).unwrap();
        assert_eq!(findings(&opened), "");
    }
}
