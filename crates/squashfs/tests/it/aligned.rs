//! Images in which the data of each file begins at a multiple of a number of bytes.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use codec::Settings;
use squashfs::{Fragments, Options, Squashfs};
use testkit::{MemoryFs, Rng, TempDir};
use tree::{CheckOptions, Error, ExtentId, ExtentKind, FileSystem, NoProgress, OldImage, Parallel};

use crate::sources::{make, text};

const PIECE: usize = 4096;

/// Files of a few blocks, small files, noise, and one file that is longer in the second version.
fn version(second: bool) -> MemoryFs {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let grown = if second { 30_000 } else { 9000 };
    fs.add_file(root, "0-first", &text(1, grown));
    for n in 0..60 {
        let content = text(100 + n, 20_000 + 977 * n as usize);
        fs.add_file(root, format!("file{n}"), &content);
    }
    for n in 0..200 {
        let content = text(1000 + n, 100 + 31 * n as usize);
        fs.add_file(root, format!("small{n}"), &content);
    }
    fs.add_file(root, "noise", &Rng::new(3).bytes(50_000));
    fs.add_sparse(root, "sparse", 1 << 20, &[(300_000, &text(2, 9000))]);
    fs.add_sparse(root, "empty", 1 << 20, &[]);
    fs
}

fn options(align_bytes: u32, fragments: Fragments) -> Options {
    Options::default()
        .compression(Some(Settings::Zstd { level: 3 }))
        .block_bytes(16 << 10)
        .align_bytes(align_bytes)
        .fragments(fragments)
}

fn open(image: &Path) -> Squashfs {
    Squashfs::open(File::open(image).unwrap()).unwrap()
}

/// Where the data of each file begins, and where each block with tails does.
fn starts(image: &Squashfs, block_bytes: u64) -> HashSet<u64> {
    let mut starts = HashSet::new();
    for entry in image.read_dir(image.root()).unwrap() {
        let extents = image.extents(entry.ino, 0).unwrap();
        let stored = extents.iter().filter(|extent| extent.id.is_some());
        for (index, extent) in stored.enumerate() {
            let is_tail = match extent.kind {
                ExtentKind::Encoded(encoding) => {
                    encoding.unencoded_len == block_bytes && extent.len < block_bytes
                }
                _ => false,
            };
            if (index == 0 || is_tail)
                && let Some(ExtentId(at)) = extent.id
            {
                starts.insert(at);
            }
        }
    }
    starts
}

#[test]
fn data_begins_at_multiples_and_gaps_are_zero() {
    let dir = TempDir::new();
    let path = dir.join("image");
    let source = version(false);
    for fragments in [Fragments::None, Fragments::SmallFiles, Fragments::Always] {
        for align in [512, 4096, 1 << 20] {
            for offset in [0, 1000] {
                let options = options(align, fragments).offset(offset);
                let summary = make(&source, &path, &options, 2).unwrap();
                let bytes = fs::read(&path).unwrap();
                let image = Squashfs::open(bytes[offset as usize..].to_vec()).unwrap();
                let starts = starts(&image, 16 << 10);
                assert!(starts.len() > 20, "{fragments:?}: {}", starts.len());
                for at in starts {
                    let at = at + offset;
                    assert_eq!(at % u64::from(align), 0, "{fragments:?} {align} {offset}");
                    // A gap ends here, or the data before it fills the piece.
                    if fragments == Fragments::None && align == 1 << 20 && at > align.into() {
                        assert_eq!(bytes[at as usize - 1], 0);
                    }
                }
                assert_eq!(summary.image.image_bytes, bytes.len() as u64 - offset);
                let mut report = |finding: tree::Finding| panic!("{finding}");
                let everything = CheckOptions::EVERYTHING;
                let checked = image.check(everything, Parallel::new(2), &NoProgress, &mut report);
                assert_eq!(checked.unwrap().findings, 0);
            }
        }
    }
}

#[test]
fn without_an_alignment_there_are_no_gaps() {
    let dir = TempDir::new();
    let sizes = [1, 512, 4096].map(|align| {
        let options = options(align, Fragments::None);
        let summary = make(&version(false), &dir.join("image"), &options, 2).unwrap();
        summary.image.image_bytes
    });
    assert!(sizes[0] < sizes[1] && sizes[1] < sizes[2], "{sizes:?}");
}

/// How many pieces of the second image the first one does not have.
fn new_pieces(old: &Path, new: &Path) -> (usize, usize) {
    let (old, new) = (fs::read(old).unwrap(), fs::read(new).unwrap());
    let known: HashSet<&[u8]> = old.chunks(PIECE).collect();
    let all = new.chunks(PIECE);
    let count = all.len();
    (all.filter(|piece| !known.contains(piece)).count(), count)
}

#[test]
fn an_aligned_image_shares_the_pieces_of_an_older_version() {
    let dir = TempDir::new();
    let (old, new) = (dir.join("old"), dir.join("new"));
    for (align, fragments, reuse) in [
        (1, Fragments::None, false),
        (4096, Fragments::None, false),
        (4096, Fragments::SmallFiles, true),
    ] {
        let options = options(align, fragments);
        make(&version(false), &old, &options, 2).unwrap();
        let options = options.old(reuse.then(|| OldImage {
            tree: Arc::new(open(&old)),
            trust_mtime: false,
        }));
        make(&version(true), &new, &options, 2).unwrap();
        let (missing, all) = new_pieces(&old, &new);
        let what = format!("{align} {fragments:?}: {missing} of {all} are new");
        if align == 1 {
            assert!(missing * 10 > all * 9, "{what}");
        } else {
            assert!(missing * 10 < all, "{what}");
        }
    }
}

#[test]
fn other_alignments_are_refused() {
    let dir = TempDir::new();
    for align in [0, 2, 256, 513, 768, 2 << 20] {
        let options = options(align, Fragments::None);
        let error = make(&version(false), &dir.join("image"), &options, 1).unwrap_err();
        assert!(matches!(error, Error::InvalidInput(_)), "{align}: {error}");
    }
}
