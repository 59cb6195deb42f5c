//! Damaged images: an error or a correct result, never a panic, in bounded time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::vectors::{CODECS, encoder};

use squashfs::Squashfs;
use testkit::{Part, RawSquashfs, Rng, TempDir, cases, sample_tree};
use tree::Limits;

/// Small, and with one of everything.
fn small_tree() -> Option<TempDir> {
    let setfattr = testkit::tool("setfattr")?;
    let dir = TempDir::new();
    fs::create_dir(dir.join("sub")).unwrap();
    fs::write(dir.join("sub/blocks"), crate::sources::text(1, 20_000)).unwrap();
    fs::write(dir.join("sub/tail"), "tail").unwrap();
    fs::write(dir.join("hole"), [vec![0; 9000], b"end".to_vec()].concat()).unwrap();
    std::os::unix::fs::symlink("sub/tail", dir.join("link")).unwrap();
    fs::hard_link(dir.join("sub/tail"), dir.join("hard")).unwrap();
    for n in 0..300 {
        fs::write(dir.join(format!("sub/{n}-{}", "x".repeat(40))), "").unwrap();
    }
    for (file, value) in [
        ("hole", "value"),
        ("sub", "another value"),
        ("hard", "another value"),
    ] {
        let file = dir.join(file);
        let args = ["-n", "user.name", "-v", value].map(OsStr::new);
        setfattr.run(args.into_iter().chain([file.as_os_str()]));
    }
    Some(dir)
}

/// Does everything that can be done with an image; returns the number of content bytes.
pub(crate) fn use_all(image: &[u8]) -> tree::Result<u64> {
    let limits = Limits {
        inodes_max: 20_000,
        depth_max: 50,
        ..Limits::default()
    };
    let fs = Squashfs::open_at(image.to_vec(), 0, &limits)?;
    fs.by_number(1)?;
    testkit::use_all(&fs, &limits)
}

#[test]
fn damaged_images_do_no_harm() {
    let Some(mksquashfs) = testkit::tool("mksquashfs") else {
        return;
    };
    let Some(dir) = small_tree() else { return };
    let out = TempDir::new();
    let path = out.join("image");
    let images = [
        "-noI -noId -noX -noD -noF -comp gzip",
        "-noI -noId -noX -comp zstd",
        "-noI -noId -noX -comp lz4",
        "-noI -noId -noX -comp lzo",
        "-noI -noId -noX -comp xz",
        "-comp lzo",
    ]
    .map(|options| {
        let mut args: Vec<&OsStr> = vec![dir.path().as_ref(), path.as_ref()];
        args.extend(["-noappend", "-quiet", "-no-progress", "-b", "4096"].map(OsStr::new));
        args.extend(options.split(' ').map(OsStr::new));
        mksquashfs.run(&args);
        fs::read(&path).unwrap()
    });
    let whole = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for (seed, image) in (1..).zip(&images) {
            let whole = &whole;
            scope.spawn(move || {
                let total = use_all(image).unwrap();
                assert!(total > 29_000, "{total}");
                let mut rng = Rng::new(seed);
                for _ in 0..cases(300) {
                    let is_read = use_all(&damaged(&mut rng, image)).is_ok();
                    whole.fetch_add(is_read.into(), Ordering::Relaxed);
                }
            });
        }
    });
    let whole = whole.into_inner();
    assert!(whole > 100, "damage must not always be found out: {whole}");
}

/// An image with one to three damaged places, of which one in twenty is cut.
fn damaged(rng: &mut Rng, image: &[u8]) -> Vec<u8> {
    let used = u64::from_le_bytes(image[40..48].try_into().unwrap()) as usize;
    let tables = u64::from_le_bytes(image[64..72].try_into().unwrap()) as usize;
    let mut damaged = image.to_vec();
    for _ in 0..1 + rng.below(3) {
        // Mostly in the tables, sometimes in the superblock or the data.
        let at = match rng.below(10) {
            0 => rng.index(96),
            1 => rng.index(used),
            _ => tables + rng.index(used - tables),
        };
        match rng.below(4) {
            0 => damaged[at] = rng.below(256) as u8,
            1 => damaged[at] ^= 1 << rng.below(8),
            2 => damaged[at..used.min(at + 4)].fill(0xff),
            _ => damaged[at..used.min(at + 4)].fill(0),
        }
    }
    if rng.chance(20) {
        damaged.truncate(rng.index(used));
    }
    damaged
}

/// Changes a part, as damage or an attacker would.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let at = rng.index(bytes.len());
    let room = bytes.len() - at;
    match rng.below(8) {
        0 => bytes[at] = rng.below(256) as u8,
        1 => bytes[at] ^= 1 << rng.below(8),
        2 => bytes[at..][..room.min(4)].fill(0xff),
        3 => bytes[at..][..room.min(4)].fill(0),
        // The boundary values of fields, at a position where fields start.
        4 | 5 => {
            let at = at & !1;
            let edges = [
                0,
                1,
                0x7fff,
                0x8000,
                0xffff,
                0x1_0000,
                0x7fff_ffff,
                0x8000_0000,
                1 << 40,
            ];
            let value = u64::to_le_bytes(edges[rng.index(edges.len())]);
            let len = [2, 4, 8][rng.index(3)].min(bytes.len() - at);
            bytes[at..at + len].copy_from_slice(&value[..len]);
        }
        6 => {
            let from = rng.index(bytes.len());
            let len = room.min(bytes.len() - from).min(1 + rng.index(40));
            bytes.copy_within(from..from + len, at);
        }
        _ if rng.chance(2) => bytes.truncate(at),
        _ => {
            let piece = bytes[at..][..room.min(12)].to_vec();
            bytes.splice(at..at, piece);
        }
    }
}

/// An image with one to three changes in any of its parts. Metadata is encoded after the change, so
/// that it reaches the code that reads the records and not only the decoder.
pub(crate) fn mutant(rng: &mut Rng, sample: &RawSquashfs) -> Vec<u8> {
    // Every kind of part is equally likely, however many parts of that kind there are.
    let sort = |part: &Part| match part {
        Part::Superblock => 0,
        Part::Options => 1,
        Part::Block(..) | Part::Fragment(_) => 2,
        Part::Inode(path) if path.starts_with("big/") => 3,
        Part::Inode(_) => 4,
        Part::Listing(_) => 5,
        Part::Table(name) => 6 + name.len() % 5,
        Part::Metadata(..) => 11,
        Part::List(_) => 12,
    };
    let mut wanted: Vec<(usize, u64)> = (0..1 + rng.below(3))
        .map(|_| (rng.index(13), rng.below(6)))
        .collect();
    let mut image = sample.build(&mut |part, bytes| {
        let sort = sort(&part);
        for (other, left) in wanted.iter_mut().filter(|(other, _)| *other == sort) {
            if *left == 0 {
                mutate(rng, bytes);
                *other = usize::MAX;
            }
            *left = left.saturating_sub(1);
        }
        // Later records must fit where they did before.
        if part == Part::Superblock {
            bytes.resize(96, 0);
        }
    });
    if rng.chance(20) {
        let len = rng.index(image.bytes.len());
        image.bytes.truncate(len);
    }
    image.bytes
}

/// Encodes the parts of the sound image once, however many mutants have them.
fn remembering(encode: impl Fn(&[u8]) -> Option<Vec<u8>>) -> impl Fn(&[u8]) -> Option<Vec<u8>> {
    const PARTS_MAX: usize = 100;
    let known = RefCell::new(HashMap::new());
    move |content| {
        if let Some(encoded) = known.borrow().get(content) {
            return Option::clone(encoded);
        }
        let encoded = encode(content);
        if known.borrow().len() < PARTS_MAX {
            known.borrow_mut().insert(content.to_vec(), encoded.clone());
        }
        encoded
    }
}

/// With 5 ms of processor time for each image, and one minute for all.
#[test]
fn mutated_images_do_no_harm() {
    let images = cases(900) * CODECS.len() as u64;
    let test = "hostile::mutated_images_do_no_harm";
    if !testkit::is_bounded(test, 60 + images / 200) {
        return;
    }
    let (read, refused) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for (codec, settings) in CODECS {
            let (read, refused) = (&read, &refused);
            scope.spawn(move || {
                let encode = remembering(encoder(settings));
                let sample = sample_tree(codec, &encode);
                let mut rng = Rng::new(codec.into());
                for _ in 0..cases(900) {
                    let image = mutant(&mut rng, &sample);
                    let outcome = if use_all(&image).is_ok() {
                        read
                    } else {
                        refused
                    };
                    outcome.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (read, refused) = (read.into_inner(), refused.into_inner());
    assert!(
        read > refused / 20 && refused > read / 20,
        "{read} read, {refused} refused"
    );
}

#[test]
fn errors_of_codecs_show_the_bytes_that_were_found() {
    let found = [0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4];
    for &(codec, settings) in &CODECS[1..] {
        let encode = encoder(settings);
        let mut image = sample_tree(codec, &encode);
        image.block_log = 12;
        let mut block = Vec::new();
        let mut bytes = image
            .build(&mut |part, bytes| {
                if matches!(part, Part::Block(..)) && block.is_empty() && bytes.len() < 4096 {
                    block = bytes.clone();
                }
            })
            .bytes;
        let at = bytes.windows(block.len()).position(|part| part == block);
        let at = at.unwrap();
        bytes[at..at + 8].copy_from_slice(&found);
        let fs = Squashfs::open(bytes).unwrap();
        let mut findings = Vec::new();
        let mut report = |finding: tree::Finding| findings.push(finding.error.to_string());
        let options = tree::CheckOptions::EVERYTHING;
        fs.check(
            options,
            tree::Parallel::new(1),
            &tree::NoProgress,
            &mut report,
        )
        .unwrap();
        let words = format!("(found 0xdeadbeef01020304 at byte {at:#x})");
        let is_shown = findings.iter().any(|finding| finding.contains(&words));
        assert!(is_shown, "codec {codec}: {findings:?}");
    }
}
