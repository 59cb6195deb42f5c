//! A good btrfs image with some bytes overwritten, and the checksums made right again, so that what
//! is behind them is reached: one with files of all kinds, one with a log, and four devices of
//! RAID5 and RAID6.
//!
//! Asserts: no panic; no stored bytes or lists beyond their limits; extents lie within the file, in
//! order; a part of a file is what the whole has at that place; what the check calls clean can be
//! listed, with all attributes, and its entries are the same by name as in their list.
//!
//! `cargo +nightly fuzz run btrfs`
#![cfg_attr(not(test), no_main)]

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use btrfs::{Btrfs, OpenOptions, Subvolume};
use libfuzzer_sys::fuzz_target;
use restow_fuzz::limits;
use testkit::{BtrfsImage, SECTOR};
use tree::usage::{All, Totals, measure};
use tree::{
    CheckOptions, DirEntry, Error, ExtentKind, FileKind, FileSystem, Ino, NoProgress, Parallel,
    Result,
};

const CSUM_TREE: u64 = 7;
const FIRST_SUPERBLOCK: u64 = 64 << 10;
/// Bytes of a file that are read as a whole.
const READ_BYTES_MAX: usize = 400_000;
const STORED_BYTES_MAX: usize = 128 << 10;
const FILES_MAX: usize = 1000;

struct Good {
    devices: Vec<BtrfsImage>,
    /// Tree blocks and superblocks; sectors of data. Each with the number of its device.
    blocks: Vec<(usize, u64)>,
    data: Vec<(usize, u64)>,
    /// The leaf of checksums, and where in it those of the first sector of data begin, if all
    /// sectors of data follow each other.
    sums: Option<(u64, u64)>,
}

static GOOD: LazyLock<[Good; 3]> = LazyLock::new(|| {
    let image = |name: &[u8]| unpacked(name);
    [
        Good::new(vec![image(include_bytes!(
            "../../crates/btrfs/testdata/small.zst"
        ))])
        .summed(),
        Good::new(vec![image(include_bytes!("../images/log.zst"))]),
        Good::new(vec![
            image(include_bytes!("../images/raid0.zst")),
            image(include_bytes!("../images/raid1.zst")),
            image(include_bytes!("../images/raid2.zst")),
            image(include_bytes!("../images/raid3.zst")),
        ]),
    ]
});

fn unpacked(frame: &[u8]) -> BtrfsImage {
    let mut bytes = vec![0; 1 << 20];
    let mut workspace = vec![0; zstd::DECOMPRESS_WORKSPACE_SIZE];
    let len = zstd::decompress(&mut bytes, frame, &mut workspace).expect("it is whole");
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let sector = |at: usize| {
        (
            word(at),
            bytes[at + 8..at + 8 + SECTOR].try_into().expect("a sector"),
        )
    };
    let sectors = (8..len).step_by(8 + SECTOR).map(sector).collect();
    BtrfsImage::new(word(0), sectors)
}

impl Good {
    fn new(devices: Vec<BtrfsImage>) -> Good {
        let fsid = devices[0].bytes(FIRST_SUPERBLOCK + 32, 16);
        let sectors = devices.iter().enumerate();
        let sectors =
            sectors.flat_map(|(number, device)| device.sectors().map(move |at| (number, at)));
        let (blocks, data) =
            sectors.partition(|&(number, at)| devices[number].bytes(at + 32, 16) == fsid);
        Good {
            devices,
            blocks,
            data,
            sums: None,
        }
    }

    /// The same with the sectors of data that the only item of checksums has.
    fn summed(mut self) -> Good {
        let image = &self.devices[0];
        let item = image.items(CSUM_TREE).swap_remove(0);
        let first = image.places(item.key.2)[0];
        let end = first + item.data.len() as u64 / 4 * SECTOR as u64;
        self.data.retain(|(_, at)| (first..end).contains(at));
        // The item lies at the end of its leaf.
        self.sums = Some((
            image.places(item.leaf)[0],
            (SECTOR - item.data.len()) as u64,
        ));
        self
    }

    /// The devices with changes. Each edit is: which sector, where in it, how many bytes, and
    /// these.
    fn edited(&self, mut edits: &[u8]) -> Vec<BtrfsImage> {
        let mut devices = self.devices.clone();
        let mut touched = BTreeSet::new();
        while let [sector, low, high, len, rest @ ..] = edits {
            let len = usize::from(len % 32).min(rest.len());
            let sector = usize::from(*sector) % (self.blocks.len() + self.data.len());
            let at = usize::from(u16::from_le_bytes([*low, *high])) % (SECTOR - len);
            if let Some(&(device, block)) = self.blocks.get(sector) {
                devices[device].patch(block + at as u64, &rest[..len]);
                touched.insert((device, block));
            } else {
                let (device, place) = self.data[sector - self.blocks.len()];
                devices[device].patch(place + at as u64, &rest[..len]);
                if let Some((leaf, start)) = self.sums {
                    let sum = BtrfsImage::checksum(&devices[device].bytes(place, SECTOR));
                    let index = (place - self.data[0].1) / SECTOR as u64;
                    devices[device].patch(leaf + start + 4 * index, &sum.to_le_bytes());
                    touched.insert((device, leaf));
                }
            }
            edits = &rest[len..];
        }
        for (device, place) in touched {
            devices[device].seal(place);
        }
        devices
    }
}

/// What all files take.
fn usage(btrfs: &Arc<Btrfs>) -> Result<Totals> {
    let top = btrfs.subvolume(5)?;
    let root = DirEntry {
        name: Box::default(),
        ino: top.root(),
        kind: FileKind::Directory,
    };
    measure(&top, &top, (&root, b""), &NoProgress, &mut All(Vec::new()))
}

/// Lists everything, and reads some of each file.
fn explore(tree: &Subvolume, is_clean: bool) -> Result<()> {
    let mut waiting: Vec<Ino> = vec![tree.root()];
    for _ in 0..FILES_MAX {
        let Some(ino) = waiting.pop() else {
            return Ok(());
        };
        tree.xattrs(ino)?;
        let metadata = tree.metadata(ino)?;
        match metadata.kind {
            FileKind::Directory => {
                for entry in tree.read_dir(ino)? {
                    let found = tree.lookup(ino, &entry.name)?;
                    // Each name is there twice, and damage may make them differ.
                    assert!(
                        !is_clean || (found.ino, found.kind) == (entry.ino, entry.kind),
                        "by name and by place"
                    );
                    waiting.push(entry.ino);
                }
            }
            FileKind::Symlink => drop(tree.read_link(ino)),
            FileKind::Regular => read(tree, ino, metadata.size)?,
            _ => {}
        }
    }
    Ok(())
}

fn read(tree: &Subvolume, ino: Ino, size: u64) -> Result<()> {
    let mut end = 0;
    let mut stored = Vec::new();
    for extent in tree.extents(ino, 0)? {
        assert!(
            extent.offset == end && extent.len > 0,
            "extents follow each other"
        );
        end += extent.len;
        assert!(end <= size, "extents end with the file");
        if matches!(extent.kind, ExtentKind::Encoded(_)) {
            let _ = tree.read_encoded(ino, &extent, &mut stored);
            assert!(stored.len() <= STORED_BYTES_MAX, "stored bytes");
        }
    }
    let mut whole = vec![0xEE; size.min(READ_BYTES_MAX as u64) as usize];
    if let Ok(len) = tree.read_at(ino, 0, &mut whole) {
        assert_eq!(len, whole.len());
        for from in [1, 100_001, len.saturating_sub(10)] {
            let mut part = vec![0xDD; len.saturating_sub(from).min(5000)];
            let read = tree.read_at(ino, from as u64, &mut part);
            assert_eq!(read.expect("the whole can be read"), part.len());
            assert!(
                part.is_empty() || part == whole[from..from + part.len()],
                "a part is as in the whole"
            );
        }
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let Some((&[older], edits)) = data.split_first_chunk() else {
        return;
    };
    let devices = GOOD[usize::from(older >> 6) % GOOD.len()].edited(edits);
    let devices = devices.into_iter().map(|device| Box::new(device) as _);
    // An older root, and another copy of the superblock, are read, and what they show is as good.
    let options = OpenOptions::default()
        .older_root(usize::from(older >> 4) % 4)
        .superblock((older & 8 != 0).then_some(usize::from(older & 3)))
        .limits(limits());
    let Ok(btrfs) = Btrfs::open_with(devices.collect(), &options).map(Arc::new) else {
        return;
    };
    let mut findings = 0;
    let options = CheckOptions::EVERYTHING;
    let summary = btrfs.check(options, Parallel::new(1), &NoProgress, &mut |_| {
        findings += 1;
    });
    assert_eq!(
        summary.expect("memory can be read").findings > 0,
        findings > 0
    );
    // The check does not compare a log with the trees.
    let is_clean = findings == 0 && !btrfs.has_log();
    let _ = (usage(&btrfs), btrfs.space());
    for subvolume in btrfs.subvolumes().unwrap_or_default() {
        let explored = btrfs
            .subvolume(subvolume.id)
            .and_then(|tree| explore(&tree, is_clean));
        match explored {
            Err(Error::Limit(_) | Error::Unsupported(_) | Error::NotFound) | Ok(()) => {}
            Err(error) => assert!(!is_clean, "called clean, but: {error}"),
        }
    }
});
