//! Compressed data of a source is copied as it is stored if it forms a block of our image.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;

use codec::{Algorithm, Encoder, Filters, Settings};
use squashfs::{CreateSummary, Fragments, Options, Squashfs};
use testkit::{FsType, MemoryFs, Mount, Rng, TempDir};
use tree::manifest::Manifest;
use tree::{
    Aspects, CheckOptions, Encoding, Extent, ExtentId, ExtentKind, FileSystem, HostDir, NoProgress,
    Parallel, Verify,
};

use crate::create::image_of;
use crate::sources::{make, nasty, text};

fn copy(source: &dyn FileSystem, image: &Path, options: &Options) -> CreateSummary {
    make(source, image, options, 2).unwrap()
}

fn open(image: &Path) -> Squashfs {
    Squashfs::open(File::open(image).unwrap()).unwrap()
}

fn assert_same(a: &dyn FileSystem, b: &dyn FileSystem, aspects: &Aspects, what: &str) {
    let (a, b) = (Manifest::of(a, aspects), Manifest::of(b, aspects));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert!(a == b, "{what}:\n{}", a.difference(&b));
}

/// From an image to an image with the same codec and block size, no block is re-encoded.
#[test]
fn stored_blocks_are_kept() {
    let out = TempDir::new();
    let (first, second) = (out.join("first"), out.join("second"));
    let Some(dir) = nasty(4096) else { return };
    for compression in [
        Settings::Zstd { level: 1 },
        Settings::Zlib { level: 6 },
        Settings::Lzo,
        Settings::Lz4,
        Settings::Xz {
            level: 1,
            extreme: false,
            dictionary_bytes: 8192,
            filters: Filters(0),
        },
    ] {
        for fragments in [Fragments::SmallFiles, Fragments::Always, Fragments::None] {
            let options = Options::default()
                .compression(Some(compression))
                .block_bytes(4096)
                .fragments(fragments);
            image_of(dir.path(), &first, &options, 2);
            let source = open(&first);
            let what = format!("{compression:?}, {fragments:?}");
            // Everything except noise is copied: rebuilt blocks were stored uncompressed and remain
            // so.
            let kept = copy(&source, &second, &options);
            assert!(kept.image.kept.count > 10, "{what}: {kept:?}");
            let larger = kept
                .image
                .image_bytes
                .saturating_sub(fs::metadata(&first).unwrap().len());
            assert!(larger <= 8192, "{what}: by {larger}");
            let all = Aspects::default();
            assert_same(&source, &open(&second), &all, &what);

            // No attributes and different fragments: still nothing is lost.
            let other = options
                .clone()
                .xattrs(false)
                .fragments(Fragments::SmallFiles);
            copy(&source, &second, &other);
            let content = Aspects {
                owner: false,
                xattrs: false,
                ..all
            };
            assert_same(&source, &open(&second), &content, &what);

            // A different block size: nothing can be copied.
            let other = options.clone().block_bytes(8192);
            let larger = copy(&source, &second, &other);
            assert_eq!(larger.image.kept.count, 0, "{what}");
        }
    }
}

const BLOCK: usize = 131_072;

/// The length that an extent shows, its stored data, the offset of the first byte shown, and its
/// decoded length.
type Stored<'a> = (usize, &'a [u8], usize, usize);

/// Adds a file whose extents are stored in sectors padded with zeros.
fn add_encoded(
    fs: &mut MemoryFs,
    name: &str,
    content: &[u8],
    algorithm: Algorithm,
    extents: &[Stored<'_>],
) {
    let file = fs.add_file(fs.root(), name, content);
    let mut offset = 0;
    for &(len, stored, unencoded_offset, unencoded_len) in extents {
        let mut stored = stored.to_vec();
        stored.resize(stored.len().next_multiple_of(4096), 0);
        let encoding = Encoding {
            algorithm,
            stored_len: stored.len() as u64,
            unencoded_len: unencoded_len as u64,
            unencoded_offset: unencoded_offset as u64,
        };
        let extent = Extent {
            offset,
            len: len as u64,
            kind: ExtentKind::Encoded(encoding),
            id: Some(ExtentId(file.0 << 32 | offset)),
        };
        fs.add_encoded(file, extent, &stored);
        offset += len as u64;
    }
}

/// Files that another format has compressed with zstd, in every possible way, in extents like those
/// of btrfs: sectors, with zeros after the frame. Returned with the tree are the blocks to be
/// copied with and without verification.
fn encoded_tree() -> Option<(MemoryFs, [Vec<Vec<u8>>; 2])> {
    let zstd = testkit::tool("zstd")?;
    let dir = TempDir::new();
    let encode = |content: &[u8], options: &str, is_known: bool| {
        let (from, to) = (dir.join("content"), dir.join("frame"));
        fs::write(&from, content).unwrap();
        let mut command = zstd.command();
        command.args(["-q", "-f", "-o"]).arg(&to);
        command.args(options.split_whitespace());
        // The length of a stream is not known in advance.
        if is_known {
            command.arg(&from)
        } else {
            command.stdin(File::open(&from).unwrap())
        };
        testkit::run(&mut command);
        fs::read(&to).unwrap()
    };
    let mut fs = MemoryFs::new();
    let mut kept = [Vec::new(), Vec::new()];
    let mut add = |name: &str, content: &[u8], frames: &[Stored<'_>]| {
        add_encoded(&mut fs, name, content, Algorithm::Zstd, frames);
    };
    let one = |seed: u64| text(seed, BLOCK);
    for (seed, name, options, is_known, [verified, not]) in [
        (1, "plain", "--no-check", true, [true, true]),
        (2, "with a checksum", "--check", true, [true, true]),
        (4, "level 19", "--no-check -19", true, [true, true]),
        (5, "fast", "--no-check --fast=9", true, [true, true]),
        // The content is a single segment, whatever the window.
        (6, "window", "--no-check --zstd=wlog=20", true, [true, true]),
        (
            7,
            "wide",
            "--no-check --zstd=wlog=18",
            false,
            [false, false],
        ),
        // Only decoding tells how long it is.
        (
            8,
            "narrow",
            "--no-check --zstd=wlog=17",
            false,
            [true, false],
        ),
    ] {
        let content = one(seed);
        let frame = encode(&content, options, is_known);
        add(name, &content, &[(BLOCK, &frame, 0, BLOCK)]);
        for (kept, is_kept) in kept.iter_mut().zip([verified, not]) {
            if is_kept {
                kept.push(frame.clone());
            }
        }
    }
    // Two blocks, and a tail whose sector is padded with zeros that are not part of the frame.
    let content = text(20, 2 * BLOCK + 70_000);
    let frames = content
        .chunks(BLOCK)
        .map(|part| encode(part, "--no-check", true));
    let frames: Vec<Vec<u8>> = frames.collect();
    let lens = [(BLOCK, BLOCK), (BLOCK, BLOCK), (70_000, 73_728)];
    let parts = lens.iter().zip(&frames);
    let parts: Vec<_> = parts
        .map(|(&(len, unencoded_len), frame)| (len, &frame[..], 0, unencoded_len))
        .collect();
    add("three", &content, &parts);
    for kept in &mut kept {
        kept.extend(frames.clone());
    }
    // The file shows something other than the extent's content, or only part of it; or it is not a
    // frame, or several.
    let content = one(30);
    let shorter = encode(&content[..BLOCK - 1], "--no-check", true);
    add(
        "shorter",
        &[&content[..BLOCK - 1], &[0]].concat(),
        &[(BLOCK, &shorter, 0, BLOCK)],
    );
    let longer = encode(&[&content[..], b"more"].concat(), "--no-check", true);
    add("longer", &content, &[(BLOCK, &longer, 0, BLOCK + 4096)]);
    let later = encode(&[&[7; 4096], &content[..]].concat(), "--no-check", true);
    add("later", &content, &[(BLOCK, &later, 4096, BLOCK + 4096)]);
    let halves = content.chunks(BLOCK / 2);
    let halves: Vec<Vec<u8>> = halves
        .map(|half| encode(half, "--no-check", true))
        .collect();
    add(
        "two frames",
        &content,
        &[(BLOCK, &halves.concat(), 0, BLOCK)],
    );
    let half = BLOCK / 2;
    add(
        "two extents",
        &content,
        &[(half, &halves[0], 0, half), (half, &halves[1], 0, half)],
    );
    add("nothing", &content, &[(BLOCK, &[0; 4096], 0, BLOCK)]);
    let cut = encode(&content, "--no-check", true);
    add("cut", &content, &[(BLOCK, &cut[..cut.len() / 2], 0, BLOCK)]);
    add(
        "small",
        &content[..9000],
        &[(
            9000,
            &encode(&content[..9000], "--no-check", true),
            0,
            12_288,
        )],
    );
    let noise = Rng::new(9).bytes(BLOCK);
    add(
        "noise",
        &noise,
        &[(BLOCK, &encode(&noise, "--no-check", true), 0, BLOCK)],
    );
    Some((fs, kept))
}

/// The stored blocks of all files, in the order of names.
fn blocks(image: &Squashfs, path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let mut blocks = Vec::new();
    for entry in image.read_dir(image.root()).unwrap() {
        for extent in image.extents(entry.ino, 0).unwrap() {
            if let (ExtentKind::Encoded(encoding), Some(ExtentId(at))) = (extent.kind, extent.id) {
                let at = at as usize;
                blocks.push(bytes[at..at + encoding.stored_len as usize].to_vec());
            }
        }
    }
    blocks
}

fn kept_extents(read: impl Fn(&Path) -> Option<Mount>) {
    let Some((source, kept)) = encoded_tree() else {
        return;
    };
    let out = TempDir::new();
    let image = out.join("image");
    let no_seconds = Aspects {
        mtime: false,
        ..Aspects::default()
    };
    for (verify, kept) in [Verify::Encoded, Verify::Nothing].into_iter().zip(&kept) {
        for level in [1, 15] {
            let options = Options::default()
                .compression(Some(Settings::Zstd { level }))
                .verify(verify);
            let summary = copy(&source, &image, &options);
            let what = format!("zstd {level}, {verify:?}");
            let ours = open(&image);
            let stored = blocks(&ours, &image);
            for (number, kept) in kept.iter().enumerate() {
                assert!(stored.contains(kept), "{what}, {number}");
            }
            assert_eq!(summary.image.kept.count, kept.len() as u64, "{what}");
            assert_same(&source, &ours, &no_seconds, &what);
            let mut tell = |finding| panic!("{what}: {finding}");
            let options = CheckOptions::EVERYTHING;
            ours.check(options, Parallel::new(2), &NoProgress, &mut tell)
                .unwrap();
            if let Some(mount) = read(&image) {
                let linux = HostDir::open(mount.path()).unwrap();
                assert_same(&source, &linux, &no_seconds, &what);
            }
        }
        let larger = Options::default().block_bytes(2 * BLOCK as u32);
        let other = Options::default().compression(Some(Settings::Lz4));
        let asked = Options::default().keep_blocks(false);
        // With larger blocks, the tail of one file is a block.
        for (options, count) in [(larger, 1), (other, 0), (asked, 0)] {
            let options = options.verify(verify);
            let summary = copy(&source, &image, &options);
            assert_eq!(summary.image.kept.count, count, "{options:?}");
            assert_same(&source, &open(&image), &no_seconds, "hardly kept");
        }
    }
}

/// Adds a file of extents as btrfs stores them, with these lengths and stored bytes.
pub(crate) fn add_zlib(fs: &mut MemoryFs, name: &str, content: &[u8], extents: &[(usize, &[u8])]) {
    let extents: Vec<Stored<'_>> = extents
        .iter()
        .map(|&(len, stored)| (len, stored, 0, len.next_multiple_of(4096)))
        .collect();
    add_encoded(fs, name, content, Algorithm::Zlib, &extents);
}

/// Files that another format has compressed with zlib, and the blocks to be copied.
fn zlib_tree() -> (MemoryFs, Vec<Vec<u8>>) {
    let encode = |content: &[u8], level: u8| {
        let mut stored = vec![0; content.len() + 100];
        let mut encoder = Encoder::new(&Settings::Zlib { level }).unwrap();
        let len = encoder.compress(&mut stored, content).unwrap();
        stored.truncate(len);
        stored
    };
    let mut fs = MemoryFs::new();
    let mut kept = Vec::new();
    for level in 1..=12 {
        let content = text(u64::from(level), BLOCK);
        let mut stored = encode(&content, level);
        if level > 6 {
            // A different window size and level: a zlib header is a multiple of 31.
            let window = (level - 5).min(7) << 4 | 8;
            let rest = (u16::from(window) << 8 | 0xc0) % 31;
            stored[..2].copy_from_slice(&[window, 0xc0 | ((31 - rest as u8) % 31)]);
        }
        let name = format!("level {level}");
        add_zlib(&mut fs, &name, &content, &[(BLOCK, &stored)]);
        kept.push(stored);
    }
    // Checksums that end with zeros: the lower half is the sum of all bytes, plus 1, modulo 65,521.
    for (name, sum) in [("one zero", 256), ("two zeros", 0)] {
        let mut content = text(50, BLOCK);
        let now = 1 + content.iter().map(|&byte| u32::from(byte)).sum::<u32>();
        let mut missing = (sum + 2 * 65_521 - now % 65_521) % 65_521;
        for byte in &mut content {
            let more = missing.min(u32::from(u8::MAX - *byte));
            *byte += more as u8;
            missing -= more;
        }
        let stored = encode(&content, 6);
        assert!(stored.ends_with(&[0]), "{name}");
        add_zlib(&mut fs, name, &content, &[(BLOCK, &stored)]);
        kept.push(stored);
    }
    let content = text(60, BLOCK + 70_000);
    let parts = content.split_at(BLOCK);
    let stored = [encode(parts.0, 6), encode(parts.1, 6)];
    let extents = [(BLOCK, &stored[0][..]), (70_000, &stored[1])];
    add_zlib(&mut fs, "two blocks", &content, &extents);
    kept.extend(stored.clone());
    let content = &content[..BLOCK];
    let whole = encode(content, 6);
    let followed = [&whole[..], b"more"].concat();
    let preset = [&[0x78, 0xbb, 0, 0, 0, 1], &whole[2..]].concat();
    let mut sum = whole.clone();
    *sum.last_mut().unwrap() ^= 1;
    let longer = encode(&[content, b"more"].concat(), 6);
    let shorter = encode(&content[..BLOCK - 1], 6);
    for (name, stored) in [
        ("followed", &followed),
        ("a dictionary", &preset),
        ("checksum", &sum),
        ("cut", &whole[..whole.len() - 5].to_vec()),
        ("longer", &longer),
        ("shorter", &shorter),
        ("nothing", &vec![0; 4096]),
    ] {
        add_zlib(&mut fs, name, content, &[(BLOCK, stored)]);
    }
    let noise = Rng::new(9).bytes(BLOCK);
    let stored = encode(&noise, 6);
    add_zlib(&mut fs, "noise", &noise, &[(BLOCK, &stored)]);
    (fs, kept)
}

fn kept_zlib_extents(read: impl Fn(&Path) -> Option<Mount>) {
    let (source, kept) = zlib_tree();
    let out = TempDir::new();
    let image = out.join("image");
    let no_seconds = Aspects {
        mtime: false,
        ..Aspects::default()
    };
    for verify in [Verify::Encoded, Verify::Nothing] {
        let options = Options::default()
            .compression(Some(Settings::Zlib { level: 9 }))
            .verify(verify);
        let summary = copy(&source, &image, &options);
        let ours = open(&image);
        let stored = blocks(&ours, &image);
        for (number, kept) in kept.iter().enumerate() {
            assert!(stored.contains(kept), "{verify:?}, {number}");
        }
        assert_eq!(summary.image.kept.count, kept.len() as u64);
        assert_same(&source, &ours, &no_seconds, "ours");
        let mut tell = |finding| panic!("{finding}");
        let check = CheckOptions::EVERYTHING;
        ours.check(check, Parallel::new(2), &NoProgress, &mut tell)
            .unwrap();
        if let Some(unsquashfs) = testkit::tool("unsquashfs") {
            let there = out.join("extracted");
            let [to, from] = [there.as_os_str(), image.as_os_str()];
            let [quiet, no_progress, d] = ["-q", "-n", "-d"].map(OsStr::new);
            unsquashfs.run([quiet, no_progress, d, to, from]);
            let content = Aspects {
                owner: false,
                ..no_seconds
            };
            let theirs = HostDir::open(&there).unwrap();
            assert_same(&source, &theirs, &content, "unsquashfs");
            fs::remove_dir_all(&there).unwrap();
        }
        if let Some(mount) = read(&image) {
            let linux = HostDir::open(mount.path()).unwrap();
            assert_same(&source, &linux, &no_seconds, "Linux");
        }
        let asked = options.keep_blocks(false);
        assert_eq!(copy(&source, &image, &asked).image.kept.count, 0);
    }
}

/// Every level and window size, and ends that only decoding tells.
#[test]
fn zlib_extents_that_are_whole_blocks_are_kept() {
    kept_zlib_extents(|_| None);
}

#[test]
#[ignore = "needs root"]
fn linux_reads_zlib_extents_that_are_kept() {
    kept_zlib_extents(|image| Some(Mount::read_only(image, FsType::Squashfs)));
}

#[test]
fn encoded_extents_that_are_whole_blocks_are_kept() {
    kept_extents(|_| None);
}

/// Frames without a content size or with a checksum, for each window up to the block size.
#[test]
#[ignore = "needs root"]
fn linux_reads_extents_that_are_kept() {
    kept_extents(|image| Some(Mount::read_only(image, FsType::Squashfs)));
}
