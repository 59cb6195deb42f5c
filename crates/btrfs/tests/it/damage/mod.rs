//! One defect at a time: a good image is damaged in each of the listed ways, and its checksums are
//! recomputed.
//!
//! Each time, the check must report the finding listed with the damage, and `btrfs check` must
//! agree on whether anything is wrong. Reading gives an error or some tree, in bounded time and
//! memory.

mod blocks;
mod chunks;
mod extents;
mod fields;
mod free_space;
mod inodes;
mod names;
mod subvolumes;
mod superblock;

use std::fs::File;
use std::path::Path;
use std::process::Command;

use testkit::{Access, BackingFile, BtrfsImage, BtrfsKey, LoopDevice, TempDir, Tool, tool};
use tree::manifest::Manifest;
use tree::{Aspects, HostDir};

use crate::check::findings;
use crate::hostile::{explore_all, open};
use crate::small::small;

const ROOT_TREE: u64 = 1;
const EXTENT_TREE: u64 = 2;
const CHUNK_TREE: u64 = 3;
const DEV_TREE: u64 = 4;
const FS_TREE: u64 = 5;
const CSUM_TREE: u64 = 7;
const FREE_SPACE_TREE: u64 = 10;
/// A subvolume with another one nested in it.
const SUBVOLUME: u64 = 256;

const INODE_ITEM: u8 = 1;
const INODE_REF: u8 = 12;
const XATTR_ITEM: u8 = 24;
const ORPHAN_ITEM: u8 = 48;
const DIR_ITEM: u8 = 84;
const DIR_INDEX: u8 = 96;
const EXTENT_DATA: u8 = 108;
const EXTENT_CSUM: u8 = 128;
const ROOT_ITEM: u8 = 132;
const ROOT_BACKREF: u8 = 144;
const ROOT_REF: u8 = 156;
const EXTENT_ITEM: u8 = 168;
const METADATA_ITEM: u8 = 169;
const BLOCK_GROUP_ITEM: u8 = 192;
const FREE_SPACE_INFO: u8 = 198;
const FREE_SPACE_EXTENT: u8 = 199;
const FREE_SPACE_BITMAP: u8 = 200;
const DEV_EXTENT: u8 = 204;
const DEV_ITEM: u8 = 216;
const CHUNK_ITEM: u8 = 228;

/// Inodes of the image.
const TOP: u64 = 256;
const ZSTD: u64 = 257;
const INLINE_ZSTD: u64 = 258;
const INLINE: u64 = 259;
const DIR: u64 = 260;
const LINK: u64 = 411;
const FIFO: u64 = 413;
const SPARSE: u64 = 414;
const PREALLOC: u64 = 415;

/// Chunks of metadata and of data.
const METADATA: u64 = 5_242_880;
const DATA: u64 = 13_631_488;
const DATA_LEN: u64 = 8_388_608;
const MORE_DATA: u64 = 22_020_096;
const DATA_CHUNK: BtrfsKey = (256, CHUNK_ITEM, DATA);
/// The extent that two files share.
const SHARED: BtrfsKey = (DATA, EXTENT_ITEM, 4096);
const ROOT_OF_FS: BtrfsKey = (FS_TREE, ROOT_ITEM, 0);

/// Why `btrfs check` finds nothing where we do: Linux refuses to mount the image, or to read the
/// damaged part.
const LINUX: &str = "Linux refuses it";
/// It looks at one copy of the superblock only.
const COPIES: &str = "the first superblock is good";
/// Linux accepts it too, but nothing writes it.
const NEITHER: &str = "nobody writes it";

/// Only newer versions than 6.14 look for it.
const NEWER: &str = "newer versions find it";

/// A way to damage the image.
struct Damage {
    name: &'static str,
    apply: fn(&mut BtrfsImage),
    /// Part of the finding, or of the error on opening the image; empty if nothing is wrong.
    says: &'static str,
    /// Why `btrfs check`, or an older version of it, finds nothing, if that is the case.
    differs: &'static str,
}

const fn damage(name: &'static str, apply: fn(&mut BtrfsImage), says: &'static str) -> Damage {
    Damage {
        name,
        apply,
        says,
        differs: "",
    }
}

impl Damage {
    const fn but(mut self, differs: &'static str) -> Damage {
        self.differs = differs;
        self
    }
}

fn le(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// Changes a number in place.
fn add(bytes: &mut [u8], at: usize, difference: i64) {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    let sum = u64::from_le_bytes(word).wrapping_add_signed(difference);
    bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
}

/// A leaf of the top level with many items.
fn leaf(image: &BtrfsImage) -> u64 {
    image.item(FS_TREE, (ZSTD, INODE_ITEM, 0)).leaf
}

/// The directory entry for this inode in the top directory.
fn entry(image: &BtrfsImage, inode: u64, kind: u8) -> BtrfsKey {
    let items = image.items(FS_TREE).into_iter();
    let mut entries = items.filter(|item| (item.key.0, item.key.1) == (TOP, kind));
    let found = entries.find(|item| item.data[..9] == [&le(inode)[..], &[INODE_ITEM]].concat());
    found.expect("it has a name").key
}

/// Removes the only name of the fifo, everywhere it is recorded.
fn remove_name(image: &mut BtrfsImage) {
    for kind in [DIR_ITEM, DIR_INDEX] {
        image.remove(FS_TREE, entry(image, FIFO, kind));
    }
    image.remove(FS_TREE, (FIFO, INODE_REF, TOP));
    image.edit_item(FS_TREE, (TOP, INODE_ITEM, 0), |data| add(data, 16, -8));
}

fn set_block(image: &mut BtrfsImage, at: u64, offset: usize, bytes: &[u8]) {
    image.edit_block(at, |block| {
        block[offset..offset + bytes.len()].copy_from_slice(bytes);
    });
}

fn set_superblock(image: &mut BtrfsImage, at: usize, bytes: &[u8]) {
    image.edit_superblock(|block| block[at..at + bytes.len()].copy_from_slice(bytes));
}

/// The extent item of a tree block.
fn block_item(image: &BtrfsImage, at: u64) -> BtrfsKey {
    image.item_of(EXTENT_TREE, at, METADATA_ITEM).key
}

fn all() -> impl Iterator<Item = &'static Damage> {
    let lists = [
        blocks::BLOCKS,
        superblock::SUPERBLOCK,
        chunks::CHUNKS,
        extents::EXTENTS,
        inodes::INODES,
        names::NAMES,
        subvolumes::SUBVOLUMES,
        free_space::FREE_SPACE,
        fields::FIELDS,
    ];
    lists.into_iter().flatten()
}

/// The image with this damage.
pub(crate) fn damaged(name: &str) -> BtrfsImage {
    let damage = all().find(|damage| damage.name == name);
    let mut image = small();
    (damage.expect("it is in the list").apply)(&mut image);
    image
}

/// The findings of the check, one per line; or the error on opening the image.
pub(crate) fn verdict(image: &BtrfsImage) -> Vec<String> {
    let btrfs = match open(image) {
        Ok(btrfs) => btrfs,
        Err(error) => return vec![format!("cannot be opened: {error}")],
    };
    let (summary, lines) = findings(&btrfs);
    assert_eq!(summary.findings > 0, !lines.is_empty());
    lines
}

/// Whether `btrfs check` finds nothing wrong, including data. Some damage that it should report
/// makes it crash, and some makes it hang.
pub(crate) fn is_clean_to_btrfs(btrfs: &Tool, image: &Path) -> bool {
    let mut command = Command::new("timeout");
    command.arg("20").arg(btrfs.path());
    let output = command
        .args(["check", "--check-data-csum"])
        .arg(image)
        .output();
    output.expect("start btrfs").status.success()
}

#[test]
fn each_damage_is_found_and_does_no_harm() {
    let good = small();
    assert!(verdict(&good).is_empty());
    let mut count = 0;
    for damage in all() {
        let mut image = good.clone();
        (damage.apply)(&mut image);
        explore_all(&image);
        let lines = verdict(&image);
        let is_found = match damage.says {
            "" => lines.is_empty(),
            words => lines.iter().any(|line| line.contains(words)),
        };
        assert!(is_found, "{}: {lines:#?}", damage.name);
        count += 1;
    }
    assert_eq!(count, 321);
}

#[test]
fn the_verdict_is_that_of_btrfs_check() {
    let Some(btrfs) = tool("btrfs") else { return };
    let dir = TempDir::new();
    let path = dir.join("image");
    let good = small();
    good.write_file(&path);
    let file = File::options().write(true).open(&path).unwrap();
    let mut wrong = Vec::new();
    for damage in all() {
        let mut image = good.clone();
        (damage.apply)(&mut image);
        image.write_changes(&file, false);
        let is_clean = is_clean_to_btrfs(&btrfs, &path);
        image.write_changes(&file, true);
        if is_clean != damage.says.is_empty() && (!is_clean || damage.differs.is_empty()) {
            wrong.push((damage.name, is_clean));
        }
    }
    assert!(wrong.is_empty(), "what they call clean: {wrong:#?}");
}

#[test]
#[ignore = "needs root"]
fn linux_refuses_what_btrfs_check_alone_calls_clean() {
    let dir = TempDir::new();
    let point = dir.join("mounted");
    std::fs::create_dir(&point).unwrap();
    let mut accepted = Vec::new();
    for damage in all().filter(|damage| damage.differs == LINUX) {
        let mut image = small();
        (damage.apply)(&mut image);
        let path = dir.join("image");
        image.write_file(&path);
        let device = LoopDevice::attach(BackingFile::existing(&path), Access::ReadOnly);
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "btrfs", "-o", "ro"])
            .args([device.path(), &point]);
        if mount.output().unwrap().status.success() {
            let host = HostDir::open(&point).unwrap();
            if Manifest::of(&host, &Aspects::default()).is_ok() {
                accepted.push(damage.name);
            }
            drop(host);
            testkit::run(Command::new("umount").arg(&point));
        }
        device.detach();
    }
    assert!(accepted.is_empty(), "{accepted:#?}");
}
