//! Damaged and hostile images: an error or a result, never a panic, in bounded time and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use codec::Settings;
use erofs::Erofs;
use testkit::{CountedBytes, Rng, cases, is_bounded};
use tree::usage::{StorageForm, StoredPart, StoredParts};
use tree::{
    ByPath, CheckOptions, ExtentKind, FileKind, FileSystem, Ino, Inventory, Limits, NoProgress,
    Parallel,
};

use crate::create::{small_images, text};
use crate::hand::{
    BLOCK, CHUNKS, COMPACT, DIR, FIFO, FILE, FULL, Hand, PLAIN, encode, rare, with_file,
    with_index, with_records,
};
use crate::vectors::{IMAGES, findings, open, read};

#[test]
fn an_image_made_by_hand_is_sound() {
    let mut hand = Hand::new(0, &with_file());
    hand.inode(8, FILE, PLAIN, 5000, 5);
    hand.put(5 * BLOCK, &[7; 5000]);
    let image = open(hand.0).unwrap();
    assert_eq!(findings(&image), "");
    assert_eq!(image.read("file").unwrap(), [7; 5000]);
    let records = with_records(5000, &[[5000, 5 * BLOCK as u32, 0]]);
    assert_eq!(records.findings(), "");
}

#[test]
fn an_image_is_cut_off_before_its_root() {
    let mut hand = Hand::new(0, &with_file());
    hand.put(1024 + 36, &[16]);
    hand.0.truncate(BLOCK);
    let must = "erofs image is shorter than it says (found 0x10000 at byte 0x424)";
    assert_eq!(hand.findings(), must);
    let words = open(read("plain")[..2000].to_vec()).err().unwrap();
    let must = "erofs image ends before the tables of its superblock (found 0x7d0 at byte 0x400)";
    assert_eq!(words.to_string(), must);
}

#[test]
fn a_directory_leads_to_itself_or_to_another_ones_blocks() {
    let entries = [(".", 0, 2), ("..", 0, 2), ("a", 0, 2)];
    Hand::new(0, &entries).assert_finds("the directory is in another place");
    // Two directories with one block: each of more would list all names again.
    let mut hand = Hand::new(0, &[(".", 0, 2), ("..", 0, 2), ("a", 8, 2), ("b", 12, 2)]);
    for nid in [8, 12] {
        hand.inode(nid, DIR, PLAIN, BLOCK as u64, 5);
    }
    hand.directory(5, &[(".", 8, 2), ("..", 0, 2), ("c", 16, 5)]);
    hand.inode(16, FIFO, PLAIN, 0, 0);
    hand.assert_finds("directory's blocks are also those of another directory");
    // One block again and again.
    let mut hand = Hand::new(4, &[(".", 0, 2), ("..", 0, 2), ("a", 8, 2)]);
    hand.inode(8, DIR, CHUNKS, 200 * BLOCK as u64, 0);
    hand.directory(5, &[(".", 8, 2), ("..", 0, 2)]);
    hand.put(hand.at(10), &[5, 0, 0, 0].repeat(200));
    hand.assert_finds("directory's blocks are not in the order of names");
}

#[test]
fn sizes_are_impossible_or_only_claimed() {
    for (size, words) in [
        (1 << 63, "inode's size is negative"),
        (1 << 62, "data lies beyond the end of the erofs image"),
    ] {
        let mut hand = Hand::new(0, &with_file());
        hand.inode(8, FILE, PLAIN, size, 5);
        hand.assert_finds(words);
        let mut hand = Hand::new(0, &[(".", 0, 2), ("..", 0, 2), ("file", 8, 7)]);
        hand.inode(8, 0o120_777, PLAIN, size, 5);
        hand.findings();
        let mut hand = Hand::new(0, &with_file());
        hand.inode(8, DIR, PLAIN, size, 5);
        assert!(!hand.findings().is_empty());
    }
    // A hole of any size is one extent.
    let mut hand = Hand::new(0, &with_file());
    hand.inode(8, FILE, PLAIN, 1 << 62, u32::MAX);
    hand.put(hand.at(8) + 6, &[0xff, 0xff]);
    let image = open(hand.0).unwrap();
    assert_eq!(findings(&image), "");
    assert_eq!(image.extents(Ino(8), 0).unwrap().len(), 1);
    assert_eq!(image.read_at(Ino(8), 1 << 61, &mut [1; 9]).unwrap(), 9);
}

#[test]
fn indexes_lead_nowhere() {
    let plain = [0, 0, 0, 0, 0, 0, 0, 0];
    let (head, next) = (
        |block| [1, 0, 0, 0, block, 0, 0, 0],
        |back| [2, 0, 0, 0, back, 0, 0, 0],
    );
    for (index, words) in [
        (
            [next(0), next(1)],
            "distance to the beginning of an extent is impossible",
        ),
        (
            [next(9), next(1)],
            "distance to the beginning of an extent is impossible",
        ),
        (
            [[1, 0, 9, 0, 5, 0, 0, 0], head(6)],
            "distance to the beginning of an extent is impossible",
        ),
        (
            [[1, 0, 0, 0x10, 5, 0, 0, 0], head(6)],
            "extent's offset is larger than its logical cluster",
        ),
        ([head(5), head(6)], "cluster has no compressed data"),
        ([plain, next(1)], "plain cluster is shorter than its extent"),
    ] {
        with_index(1, 8192, plain, &index).assert_finds(words);
    }
    // 20,000 continued clusters are more than 12 MiB.
    let mut hand = with_index(1, 1 << 30, plain, &[head(5)]);
    for at in (hand.at(10) + 24..16 * BLOCK).step_by(8) {
        hand.put(at, &next(1));
    }
    hand.0.resize(3 << 20, 2);
    assert!(!hand.findings().is_empty());
    let mut hand = Hand::new(1, &with_file());
    hand.inode(8, FILE, COMPACT, 1 << 40, 0);
    assert!(!hand.findings().is_empty());
}

#[test]
fn large_indexes_belong_to_one_file_each() {
    let entries = [(".", 0, 2), ("..", 0, 2), ("a", 8, 1), ("b", 10, 1)];
    let mut hand = Hand::new(4, &entries);
    for nid in [8, 10] {
        // The addresses of 2,000 chunks each, of which nearly all are the same.
        hand.inode(nid, FILE, CHUNKS, 2000 * BLOCK as u64, 0);
    }
    hand.put(hand.at(12), &[5, 0, 0, 0].repeat(2100));
    hand.assert_finds("file's index or attributes are also those of another file");
    let mut hand = Hand::new(4, &with_file());
    hand.inode(8, FILE, CHUNKS, 1 << 50, 0);
    hand.assert_finds("file's index or attributes lie beyond the end of its metadata");
}

#[test]
fn records_are_out_of_order_or_too_long() {
    let zstd = 4 << 28;
    for (records, words) in [
        (
            &[[100, 0x5000, 4096], [100, 0x6000, 0]][..],
            "records of a file's extents are not in order",
        ),
        (
            &[[100, 0x5000, 0], [100, 0x6000, 8192]],
            "records of a file's extents are not in order",
        ),
        (
            &[[1 << 20, 0x5000, 0]],
            "plain cluster is shorter than its extent",
        ),
        (
            &[[zstd | ((1 << 21) - 1), 0x5000, 0]],
            "more than 1 MiB stored",
        ),
        (&[[zstd | 100, 0xffff_0000, 0]], "data lies beyond the end"),
        (&[[9 << 28 | 100, 0x5000, 0]], "unknown codec"),
    ] {
        let size = if records[0][0] == 1 << 20 {
            2 << 20
        } else {
            8192
        };
        let found = with_records(size, records).findings();
        assert!(found.contains(words), "{words}: {found}");
    }
    let many = with_records(1 << 62, &[[zstd | 100, 0x5000, 0]]);
    many.assert_finds("12 MiB of content");
}

#[test]
fn fragments_and_the_metabox_are_in_themselves() {
    let whole = |offset: u8| [offset, 0, 0, 0, 0, 0, 0, 0x80];
    let mut hand = with_index(0x21, 100, whole(0), &[]);
    hand.put(1024 + 96, &[20]);
    hand.inode(20, FILE, FULL, 5000, 0);
    hand.put(hand.at(22), &whole(9));
    hand.assert_finds("packed inode or metabox has a fragment");
    with_index(1, 100, whole(0), &[])
        .assert_finds("file has a fragment, and the image no packed inode");
    let mut hand = Hand::new(0x100, &with_file());
    hand.put(1024 + 13, &[1]);
    hand.put(1024 + 128 + 7, &[0x80]);
    hand.assert_finds("metabox is in itself");
    // A file in a metabox that is a directory of the image, or a hole.
    for block in [4, u32::MAX] {
        let mut hand = Hand::new(
            0x100,
            &[(".", 0, 2), ("..", 0, 2), ("file", 1 << 63 | 1, 1)],
        );
        hand.put(1024 + 13, &[1]);
        hand.put(1024 + 128, &[20]);
        hand.inode(20, FILE, PLAIN, 1 << 40, block);
        assert!(!hand.findings().is_empty());
    }
}

#[test]
fn pieces_overlap() {
    let (zstd, what) = (4 << 28, "compressed cluster overlaps other data");
    for records in [
        [[zstd | 100, 0x5000, 0], [zstd | 100, 0x5020, 4096]],
        [[zstd | 4096, 0x5000, 0], [zstd | 100, 0x5020, 4096]],
        [[4096, 0x5000, 0], [zstd | 100, 0x5800, 4096]],
    ] {
        with_records(8192, &records).assert_finds(what);
    }
}

/// Of all extents that show one cluster whole, each length is decoded: a shorter one than the
/// block's cannot be read alone.
#[test]
fn a_cluster_is_shown_whole_with_two_lengths() {
    let text = b"which length is right? ".repeat(400);
    let stored = encode(&Settings::Lz4, &text[..8192]);
    let length = 1 << 28 | stored.len() as u32;
    let image = |size, records: &[[u32; 3]]| {
        let mut hand = with_records(size, records);
        hand.put(0x5000, &stored);
        hand
    };
    let sound = image(16_384, &[[length, 0x5000, 0], [length, 0x5000, 8192]]);
    assert_eq!(sound.findings(), "");
    for records in [
        [[length, 0x5000, 0], [length, 0x5000, 4096]],
        [[length, 0x5000, 0], [length, 0x5000, 8192]],
    ] {
        image(12_288, &records).assert_finds("lz4 block is corrupt or too long");
    }
}

/// An image with a file of `size` bytes that a deflate stream of 30,000 bytes shows. The last
/// `behind` bytes of the stream are in a page of their own, with `after` zeros behind them.
pub(crate) fn with_deflate((behind, after): (usize, u32), is_partial: bool, size: u64) -> Vec<u8> {
    let zlib = encode(&Settings::Zlib { level: 6 }, &text(35, 30_000));
    let stream = &zlib[2..zlib.len() - 4];
    let at = 11 * BLOCK + behind - stream.len();
    let length = (3 << 28 | u32::from(is_partial) << 27) + stream.len() as u32 + after;
    let mut hand = with_records(size, &[[length, at as u32, 0]]);
    hand.put(at, stream);
    hand.0
}

/// Linux decodes in memory that is as large as the settings say.
#[test]
fn a_zstd_frame_has_a_larger_window_than_the_settings_say() {
    let stored = encode(&Settings::Zstd { level: 3 }, &text(35, 30_000));
    let length = 4 << 28 | stored.len() as u32;
    for (log2, finds) in [(10, false), (5, false), (4, true), (0, true)] {
        let mut hand = with_records(30_000, &[[length, 0x5000, 0]]);
        hand.put(0x5000, &stored);
        hand.put(1024 + 171, &[log2]);
        let found = hand.findings();
        let words = "zstd frame has a larger window than the settings say";
        assert_eq!(found.contains(words), finds, "{log2}: {found}");
        assert_eq!(found.is_empty(), !finds, "{log2}: {found}");
    }
}

#[test]
fn the_last_block_is_cut() {
    let whole = with_records(5000, &[[5000, 5 * BLOCK as u32, 0]]);
    let cut = Hand(whole.0[..whole.0.len() - 1].to_vec());
    assert_eq!(whole.findings(), "");
    cut.assert_finds("erofs image is shorter than it says");
}

#[test]
fn a_deflate_stream_ends_in_a_page_of_its_own() {
    for (place, is_partial, size, words) in [
        ((1, 0), false, 30_000, "ends in a page of its own"),
        ((1, 5000), false, 30_000, "ends in a page of its own"),
        ((1, 0), true, 30_000, ""),
        ((100, 0), false, 30_000, ""),
        ((BLOCK, 4), false, 30_000, ""),
        ((100, 0), false, 29_999, "content is longer than its extent"),
        ((100, 0), true, 29_999, ""),
    ] {
        let found = findings(&open(with_deflate(place, is_partial, size)).unwrap());
        assert_eq!(found.is_empty(), words.is_empty(), "{place:?}: {found}");
        assert!(found.contains(words), "{place:?}: {found}");
    }
}

/// As Linux reads them when it mounts an image.
#[test]
fn settings_of_codecs_are_impossible() {
    let (short, window) = (
        "settings of a codec are too short",
        "dictionary or window of a codec is not one that Linux allows",
    );
    for (at, bytes, words) in [
        (128, &[13, 0][..], short),
        (132, &[1, 1], "clusters of lz4 are larger than 1 MiB"),
        (144, &[6], short),
        (146, &[0; 4], window),
        (149, &[1], window),
        (150, &[1], "settings of a codec have an unknown format"),
        (160, &[5], short),
        // A length of 0 stands for 65,536 bytes.
        (160, &[0], "ends before the tables of its superblock"),
        (162, &[16], window),
        (170, &[1], "settings of a codec have an unknown format"),
        (171, &[11], window),
        (13, &[185], "extensions lie beyond the image's end"),
        (91, &[1], "long prefix of extended attributes is impossible"),
    ] {
        let mut hand = with_records(5000, &[[5000, 5 * BLOCK as u32, 0]]);
        hand.put(1024 + at, bytes);
        hand.assert_finds(words);
    }
}

/// Linux 7.0 refuses compressed files then, even if all of their clusters are plain.
#[test]
fn the_settings_name_no_codec() {
    for (codecs, finds) in [(8, false), (0, true)] {
        let mut hand = with_records(5000, &[[5000, 5 * BLOCK as u32, 0]]);
        hand.put(1024 + 84, &[codecs]);
        hand.put(1024 + 128, &[6, 0, 0, 7]);
        let found = hand.findings();
        let words = "file is compressed, and the superblock has no codec";
        assert_eq!(found.contains(words), finds, "{codecs}: {found}");
        assert_eq!(found.is_empty(), !finds, "{codecs}: {found}");
    }
}

#[test]
fn a_plain_cluster_is_shorter_than_its_logical_cluster() {
    let index = [[0, 0, 0, 0, 5, 0, 0, 0]];
    for (log2, words) in [(0, ""), (1, "shorter than its last logical cluster")] {
        let hand = with_index(1, 100, [0, 0, 0, 0, 0, 0, 0, log2], &index);
        let found = hand.findings();
        assert_eq!(found.is_empty(), words.is_empty(), "{found}");
        assert!(found.contains(words), "{found}");
    }
}

/// Linux 7.0 looks for it when it mounts an image.
#[test]
fn the_prefix_of_digests_is_not_there() {
    for (bit, count, number, finds) in [
        (0, 0, 0, false),
        (0x20, 0, 0, true),
        (0x20, 1, 0, false),
        (0x20, 1, 1, true),
    ] {
        let mut hand = Hand::new(0x40, &with_file());
        hand.inode(8, FILE, PLAIN, 0, 5);
        hand.put(1024 + 8, &[bit]);
        hand.put(1024 + 91, &[count]);
        hand.put(1024 + 92, &(6 * BLOCK as u32 / 4).to_le_bytes());
        hand.put(1024 + 105, &[number]);
        hand.put(6 * BLOCK, &[2, 0, 1, b'x']);
        let found = hand.findings();
        let words = "prefix of digests is not one of the long prefixes";
        assert_eq!(found.contains(words), finds, "{found}");
        assert_eq!(found.is_empty(), !finds, "{found}");
    }
}

/// Linux reads all of a cluster, also the bytes that no file shows.
#[test]
fn a_plain_cluster_ends_beyond_the_image() {
    for (length, finds) in [(11 * BLOCK, false), (11 * BLOCK + 1, true)] {
        let hand = with_records(5000, &[[length as u32, 5 * BLOCK as u32, 0]]);
        assert_eq!(hand.0.len(), 16 * BLOCK);
        let found = hand.findings();
        let words = "data lies beyond the end of the erofs image";
        assert_eq!(found.contains(words), finds, "{found}");
        assert_eq!(found.is_empty(), !finds, "{found}");
    }
}

#[test]
fn shared_attributes_are_in_no_metabox() {
    for (bit, finds) in [(0, false), (8, true)] {
        let mut hand = Hand::new(0, &with_file());
        hand.put(1024 + 8, &[bit]);
        hand.inode(8, FILE, PLAIN, 0, 5);
        hand.put(hand.at(8) + 2, &[2]);
        hand.put(hand.at(10) + 4, &[1]);
        // An attribute of one letter, without a value.
        hand.put(hand.at(10) + 12, &(6_u32 * 1024).to_le_bytes());
        hand.put(6 * BLOCK, &[1, 1, 0, 0, b'x']);
        let found = hand.findings();
        let words = "shared attributes are in a metabox, and the image has none";
        assert_eq!(found.contains(words), finds, "{found}");
        assert_eq!(found.is_empty(), !finds, "{found}");
    }
}

/// Linux 7.2 crashes when it mounts such an image.
#[test]
fn the_packed_inode_or_the_metabox_is_a_pipe() {
    let mut packed = Hand::new(0x20, &with_file());
    packed.put(1024 + 96, &[20]);
    let mut metabox = Hand::new(0x100, &with_file());
    metabox.put(1024 + 13, &[1]);
    metabox.put(1024 + 128, &[20]);
    for mut hand in [packed, metabox] {
        hand.inode(8, FILE, PLAIN, 0, 5);
        hand.inode(20, FIFO, PLAIN, 0, 0);
        hand.assert_finds("packed inode or metabox is not a regular file");
    }
}

#[test]
fn attributes_are_a_header_alone() {
    let mut hand = Hand::new(0, &with_file());
    hand.inode(8, FILE, PLAIN, 5000, 5);
    hand.put(hand.at(8) + 2, &[1]);
    hand.assert_finds("header of attributes alone");
}

/// Linux looks ahead for the end of an extent.
#[test]
fn a_distance_leads_beyond_the_next_extent() {
    let heads = [[1, 0, 0, 0, 5, 0, 0, 0], [1, 0, 0, 0, 6, 0, 0, 0]];
    for (ahead, finds) in [(0, false), (1, false), (2, true)] {
        let index = [heads[0], [2, 0, 0, 0, 1, 0, ahead, 0], heads[1]];
        let found = with_index(1, 12_288, [0; 8], &index).findings();
        let words = "distance leads beyond the beginning of the next extent";
        assert_eq!(found.contains(words), finds, "{ahead}: {found}");
    }
}

/// The content of a match with itself is whatever was in memory.
#[test]
fn an_lz4_block_copies_from_a_distance_of_0() {
    let block = b"\x8fliterals\0\0\x32\x50 ends";
    let mut hand = with_records(82, &[[1 << 28 | block.len() as u32, 0x5000, 0]]);
    hand.put(0x5000, block);
    hand.assert_finds("impossible distance");
}

/// Linux compares the end of MicroLZMA with the end of its cluster.
#[test]
fn micro_lzma_does_not_end_with_its_cluster() {
    let sound = read("lzma");
    let image = open(sound.clone()).unwrap();
    let inventory = Inventory::of(&image, &Limits::default()).unwrap();
    let mut count = 0;
    for file in inventory.files() {
        if inventory.kind(file) != FileKind::Regular {
            continue;
        }
        let mut changed = |part| {
            if let StoredPart::Extent {
                form, id, stored, ..
            } = part
                && form != StorageForm::Plain
            {
                let mut damaged = sound.clone();
                damaged[(id.unwrap().0 + stored.unwrap()) as usize - 1] ^= 1;
                assert!(findings(&open(damaged).unwrap()).contains("MicroLZMA"));
                count += 1;
            }
            Ok(())
        };
        image
            .stored_parts(inventory.ino(file), &mut changed)
            .unwrap();
    }
    assert!(count > 1);
}

/// Each part of a hole begins at its own entry of the index: not all before it are read again.
#[test]
fn a_hole_has_many_entries() {
    let mut index = vec![[1, 0x40, 0, 0, 7, 0, 0, 0]];
    index.resize(1 << 18, [2, 0, 0, 0, 1, 0, 0, 0]);
    for (number, entry) in index.iter_mut().enumerate().skip(1) {
        entry[4..6].copy_from_slice(&(number.min(2047) as u16).to_le_bytes());
    }
    // Behind the directory.
    let mut hand = Hand::new(3, &[(".", 0, 2), ("..", 0, 2), ("file", 512, 1)]);
    hand.0.resize(BLOCK * 1024, 0);
    hand.inode(512, FILE, FULL, (BLOCK as u64) << 18, 0);
    hand.put(hand.at(514) + 16, &index.concat());
    let reads = Arc::new(AtomicU64::new(0));
    let image = Box::new(CountedBytes(hand.0, Arc::clone(&reads)));
    let image = Erofs::open(vec![image]).unwrap();
    assert_eq!(findings(&image), "");
    let extents = image.extents(Ino(512), 0).unwrap();
    let mut at = 0;
    for extent in extents {
        assert_eq!((extent.offset, extent.kind), (at, ExtentKind::Hole));
        at += extent.len;
    }
    assert_eq!(at, (BLOCK as u64) << 18);
    let reads = reads.load(Ordering::Relaxed);
    assert!(reads < 4000, "{reads}");
}

#[test]
fn directories_are_in_each_other_or_share_one_block() {
    // A circle that the root does not belong to.
    let mut hand = Hand::new(0, &[(".", 0, 2), ("..", 0, 2), ("a", 8, 2)]);
    for (nid, block, below) in [(8, 5, 10), (10, 6, 12), (12, 7, 8)] {
        hand.inode(nid, DIR, PLAIN, BLOCK as u64, block as u32);
        hand.directory(
            block,
            &[(".", nid as u64, 2), ("..", 0, 2), ("b", below, 2)],
        );
    }
    hand.assert_finds("the directory is in another place");
    // 100 directories with one block, which leads to all of them again.
    let names: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
    let mut entries = vec![(".", 0, 2), ("..", 0, 2)];
    entries.extend(
        (0..)
            .zip(&names)
            .map(|(number, name)| (&**name, 8 + 2 * number, 2)),
    );
    let mut hand = Hand::new(0, &entries);
    for number in 0..100 {
        hand.inode(8 + 2 * number, DIR, PLAIN, BLOCK as u64, 15);
    }
    hand.directory(15, &entries);
    let found = hand.findings();
    assert!(
        found.contains("the directory is in another place") || found.contains("another directory"),
        "{found}"
    );
}

#[test]
fn attributes_lead_anywhere() {
    let mut rng = Rng::new(2);
    for _ in 0..cases(300) {
        let mut hand = Hand::new(0x40, &with_file());
        hand.inode(8, FILE, PLAIN, 0, 5);
        // Any number of attributes, long prefixes behind the inodes, and noise from there on.
        hand.put(hand.at(8) + 2, &[rng.below(256) as u8, rng.below(40) as u8]);
        hand.put(1024 + 91, &[rng.below(256) as u8]);
        hand.put(1024 + 92, &(rng.below(9000) as u32).to_le_bytes());
        let mut noise = rng.bytes(12 * BLOCK);
        for byte in &mut noise {
            *byte &= 0x8f;
        }
        noise[..8].fill(0);
        hand.put(hand.at(10), &noise);
        hand.findings();
    }
}

/// Many attributes with the last of many long prefixes: the table is read once, and not once each.
#[test]
fn long_prefixes_are_not_read_for_each_attribute() {
    let mut hand = Hand::new(0x40, &with_file());
    hand.0.resize(80 * BLOCK, 0);
    hand.inode(8, FILE, PLAIN, 0, 5);
    // 65,535 words for 30,000 attributes without values, of which each ends behind its name.
    hand.put(hand.at(8) + 2, &[0xff, 0xff]);
    for number in 0..30_000_u32 {
        let at = hand.at(10) + 12 + 8 * number as usize;
        let [low, middle, ..] = number.to_le_bytes();
        hand.put(
            at,
            &[
                3,
                0xff,
                0,
                0,
                b'a' + (middle >> 5),
                1 + (middle & 31),
                low.max(1),
            ],
        );
    }
    // 128 prefixes of 240 bytes.
    hand.put(1024 + 91, &[128]);
    hand.put(1024 + 92, &(70 * BLOCK as u32 / 4).to_le_bytes());
    for number in 0..128 {
        let at = 70 * BLOCK + 244 * number;
        hand.put(at, &[240, 0, 1]);
        hand.put(at + 3, &[b'p'; 239]);
    }
    let reads = Arc::new(AtomicU64::new(0));
    let image = Box::new(CountedBytes(hand.0, Arc::clone(&reads)));
    let image = Erofs::open(vec![image]).unwrap();
    let error = image.xattrs(Ino(8)).unwrap_err().to_string();
    assert!(
        error.contains("file has an extended attribute twice"),
        "{error}"
    );
    let reads = reads.load(Ordering::Relaxed);
    assert!(reads < 100_000, "{reads}");
}

/// Reads and checks all of an image. An accepted image must be readable.
fn use_all(image: Vec<u8>) -> tree::Result<u64> {
    let limits = Limits::default();
    let image = open(image)?;
    let bytes = testkit::use_all(&image, &limits).and_then(|bytes| {
        read_all(&image, &limits)?;
        Ok(bytes)
    });
    let (options, parallel) = (CheckOptions::EVERYTHING, Parallel::new(1));
    let check = image.check(options, parallel, &NoProgress, &mut |_| ())?;
    if let (Err(error), 0) = (&bytes, check.findings) {
        panic!("the check finds nothing, and {error}");
    }
    bytes
}

/// Reads the content of all files but for holes, whose claimed sizes reach 2^63.
fn read_all(image: &dyn FileSystem, limits: &Limits) -> tree::Result<()> {
    let inventory = Inventory::of(image, limits)?;
    let mut buf = vec![0; 1 << 16];
    for file in inventory.files() {
        let (ino, mut at) = (inventory.ino(file), 0);
        while inventory.kind(file) == FileKind::Regular && at < inventory.size(file) {
            for extent in image.extents(ino, at)? {
                let mut from = extent.offset;
                at = extent.offset + extent.len;
                while extent.kind != ExtentKind::Hole && from < at {
                    from += image.read_at(ino, from, &mut buf)? as u64;
                }
            }
        }
    }
    Ok(())
}

/// Where the inodes of an image are, but for those in the metabox.
fn inodes(image: &[u8]) -> Vec<usize> {
    let field = |at: usize| u32::from_le_bytes(image[1024 + at..][..4].try_into().unwrap());
    let meta = (field(40) as usize) << image[1024 + 12];
    let sound = open(image.to_vec()).unwrap();
    let inventory = Inventory::of(&sound, &Limits::default()).unwrap();
    let mut nids: Vec<u64> = inventory
        .files()
        .map(|file| inventory.ino(file).0)
        .collect();
    // The packed inode and the metabox.
    nids.extend([field(96), field(128)].map(u64::from));
    let places = nids
        .into_iter()
        .map(|nid| meta.saturating_add((nid as usize).saturating_mul(32)));
    places.filter(|at| *at < image.len() - 64).collect()
}

/// Changes one to three places of an image: mostly in the fields of an inode and in the attributes
/// and the index behind it.
fn damage(rng: &mut Rng, image: &mut Vec<u8>, inodes: &[usize]) {
    const EDGES: [u64; 12] = [
        0,
        1,
        0x7ff,
        0x800,
        0x4001,
        0x8001,
        0xffff,
        0x1_0000,
        0x7fff_ffff,
        0xffff_ffff,
        1 << 40,
        1 << 63,
    ];
    for _ in 0..1 + rng.below(3) {
        let at = match rng.below(10) {
            0 | 1 => 1024 + rng.index(144),
            2..6 => inodes[rng.index(inodes.len())] + rng.index(64),
            6 | 7 => inodes[rng.index(inodes.len())] + rng.index(400),
            _ => rng.index(image.len()),
        };
        let room = image.len().saturating_sub(at).min(8);
        let Some(place) = image
            .get_mut(at..at + room)
            .filter(|place| !place.is_empty())
        else {
            continue;
        };
        match rng.below(6) {
            0 => place[0] = rng.below(256) as u8,
            1 => place[0] ^= 1 << rng.below(8),
            2 => place[0] = place[0].wrapping_add(1),
            3 => place[..room.min(4)].fill(0xff),
            4 => place[..room.min(4)].fill(0),
            _ => {
                let len = [2, 4, 8][rng.index(3)].min(room);
                place[..len].copy_from_slice(&EDGES[rng.index(12)].to_le_bytes()[..len]);
            }
        }
    }
    if rng.chance(20) {
        image.truncate(rng.index(image.len()));
    }
}

/// With 5 ms of processor time for each image, and one minute for all.
#[test]
fn damaged_images_do_no_harm() {
    let each = cases(100);
    let mut images: Vec<Vec<u8>> = IMAGES.into_iter().map(read).collect();
    images.extend(rare(BLOCK).into_iter().map(|rare| rare.image));
    images.extend(small_images());
    let seconds = 60 + each * images.len() as u64 / 200;
    if !is_bounded("hostile::damaged_images_do_no_harm", seconds) {
        return;
    }
    let mut rng = Rng::new(35);
    let (mut read, mut refused) = (0, 0);
    for image in &mut images {
        // The checksum would find all damage of the superblock.
        image[1024 + 8] &= !1;
        assert!(use_all(image.clone()).unwrap() > 5000);
        let inodes = inodes(image);
        for _ in 0..each {
            let mut damaged = image.clone();
            damage(&mut rng, &mut damaged, &inodes);
            let is_read = use_all(damaged).is_ok();
            *(if is_read { &mut read } else { &mut refused }) += 1;
        }
    }
    assert!(
        read > refused / 20 && refused > read / 20,
        "{read} read, {refused} refused"
    );
}
