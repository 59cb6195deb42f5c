//! Arbitrary bytes as a disk image with an MBR or a GPT, whose checksums are made right, and as
//! any other source: everything that the command recognises.
//!
//! Asserts: no panic; what can be opened can be used, or gives an error.
//!
//! `cargo +nightly fuzz run disk fuzz/corpus/disk fuzz/seeds/squashfs_read`
#![cfg_attr(not(test), no_main)]

use libfuzzer_sys::fuzz_target;
use restow::{ImageAt, Input, OpenOptions, SourceTree};
use restow_fuzz::limits;

const SECTOR: usize = 512;
/// More entries than this are summed by no tool, and cost time here.
const ENTRIES_BYTES_MAX: usize = 64 << 10;

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            sum >> 1 ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    })
}

/// Makes the first sectors a table of partitions: the mark of an MBR, the checksums of a GPT.
fn mend(disk: &mut [u8]) {
    let word = |disk: &[u8], at: usize| {
        u32::from_le_bytes(disk[at..at + 4].try_into().expect("4 bytes")) as usize
    };
    if disk.len() < 4 * SECTOR {
        return;
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[SECTOR..SECTOR + 8].copy_from_slice(b"EFI PART");
    let (first, count, size) = (
        word(disk, SECTOR + 72).saturating_mul(SECTOR),
        word(disk, SECTOR + 80),
        word(disk, SECTOR + 84),
    );
    let len = count.saturating_mul(size);
    let entries = first.checked_add(len).and_then(|end| disk.get(first..end));
    if let Some(entries) = entries.filter(|entries| entries.len() <= ENTRIES_BYTES_MAX) {
        let sum = crc32(entries);
        disk[SECTOR + 88..SECTOR + 92].copy_from_slice(&sum.to_le_bytes());
    }
    let header_bytes = word(disk, SECTOR + 12).clamp(92, SECTOR);
    disk[SECTOR + 16..SECTOR + 20].fill(0);
    let sum = crc32(&disk[SECTOR..SECTOR + header_bytes]);
    disk[SECTOR + 16..SECTOR + 20].copy_from_slice(&sum.to_le_bytes());
}

fuzz_target!(|data: &[u8]| {
    let mut mended = data.to_vec();
    mend(&mut mended);
    for bytes in [data, &mended[..]] {
        for at in [
            None,
            Some(ImageAt::Search),
            Some(ImageAt::Partition(1)),
            Some(ImageAt::Partition(5)),
        ] {
            let mut options = OpenOptions::default();
            options.image_at = at;
            if let Ok(source) = SourceTree::of_input(Input::of(bytes.to_vec()), &options) {
                let _ = testkit::use_all(&**source.tree(), &limits());
            }
        }
    }
});
