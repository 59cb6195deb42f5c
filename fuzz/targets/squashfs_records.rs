//! A sound SquashFS image whose records were changed before they were stored, asked everything that
//! can be asked.
//!
//! The input is a codec and a list of changes: which part of the image, where in it, and what to
//! put there. So changes reach the records through codec, sizes and references, which arbitrary
//! bytes hardly pass. Asserts what `squashfs_read` does.
#![cfg_attr(not(test), no_main)]

use std::cell::RefCell;
use std::collections::HashMap;

use codec::{Encoder, Filters, Settings};
use libfuzzer_sys::fuzz_target;
use squashfs::Squashfs;
use testkit::{Part, small_tree};
use tree::Limits;

/// Bytes of one change.
const CHANGE_BYTES: usize = 10;
/// Changes of one image.
const CHANGES_MAX: usize = 12;

fuzz_target!(|data: &[u8]| {
    let Some((codec, changes)) = data.split_first() else {
        return;
    };
    let (codec, settings) = match codec % 6 {
        0 => (1, None),
        1 => (1, Some(Settings::Zlib { level: 1 })),
        2 => (3, Some(Settings::Lzo)),
        3 => (
            4,
            Some(Settings::Xz {
                level: 0,
                extreme: false,
                dictionary_bytes: 8192,
                filters: Filters(0),
            }),
        ),
        4 => (5, Some(Settings::Lz4)),
        _ => (6, Some(Settings::Zstd { level: 1 })),
    };
    let encoder = settings.map(|settings| RefCell::new(Encoder::new(&settings).unwrap()));
    let encode = |content: &[u8]| {
        let mut encoded = vec![0; content.len().checked_sub(1)?];
        let len = (encoder.as_ref()?.borrow_mut()).compress(&mut encoded, content)?;
        encoded.truncate(len);
        Some(encoded)
    };
    // Parts are named by their sort and by how many of the sort come before.
    let mut seen: HashMap<u8, u8> = HashMap::new();
    let image = small_tree(codec, &encode).build(&mut |part, bytes| {
        let sort = sort(&part);
        let number = seen.entry(sort).or_default();
        let this = *number;
        *number = number.wrapping_add(1);
        for change in changes.chunks_exact(CHANGE_BYTES).take(CHANGES_MAX) {
            if change[0] % 16 == sort && change[1] == this {
                apply(&change[2..], bytes);
            }
        }
        if part == Part::Superblock {
            bytes.resize(96, 0);
        }
    });
    let limits = Limits {
        inodes_max: 2000,
        depth_max: 50,
        ..Limits::default()
    };
    if let Ok(fs) = Squashfs::open_at(image.bytes, 0, &limits) {
        let _ = testkit::use_all(&fs, &limits);
    }
});

fn sort(part: &Part) -> u8 {
    match part {
        Part::Superblock => 0,
        Part::Options => 1,
        Part::Block(..) => 2,
        Part::Fragment(_) => 3,
        Part::Inode(_) => 4,
        Part::Listing(_) => 5,
        Part::Table("fragments") => 6,
        Part::Table("exports") => 7,
        Part::Table("ids") => 8,
        Part::Table("xattrs") => 9,
        Part::Table(_) => 10,
        Part::Metadata("inodes", _) => 11,
        Part::Metadata("listings", _) => 12,
        Part::Metadata(..) => 13,
        Part::List(_) => 14,
    }
}

/// The change's sort, a place, and a value.
fn apply(change: &[u8], bytes: &mut Vec<u8>) {
    let at = usize::from(u16::from_le_bytes([change[1], change[2]])) % (bytes.len() + 1);
    let value = &change[3..];
    let room = bytes.len() - at;
    match change[0] % 8 {
        width @ 0..=3 => {
            let len = (1 << width).min(room).min(value.len());
            bytes[at..at + len].copy_from_slice(&value[..len]);
        }
        4 => bytes[at..]
            .iter_mut()
            .take(8)
            .for_each(|byte| *byte = value[0]),
        5 => bytes.truncate(at),
        6 => drop(bytes.splice(at..at, value.iter().copied())),
        _ => {
            let from = usize::from(value[0]) % (bytes.len() + 1);
            let len = usize::from(value[1]).min(room).min(bytes.len() - from);
            bytes.copy_within(from..from + len, at);
        }
    }
}
