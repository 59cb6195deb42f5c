//! The image in `testdata`, which can be read without root.

use std::path::Path;

use testkit::{BtrfsImage, SECTOR};

/// The image, which the kernel wrote: 128 MiB, tree blocks of 4 KiB.
pub(crate) fn small() -> BtrfsImage {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/small.zst");
    let frame = std::fs::read(path).unwrap();
    let mut bytes = vec![0; 1 << 20];
    let mut decoder = codec::Decoder::new();
    let len = decoder
        .decompress(codec::Algorithm::Zstd, &mut bytes, &frame)
        .unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let records = (8..len).step_by(8 + SECTOR);
    let sector = |at: usize| (word(at), bytes[at + 8..at + 8 + SECTOR].try_into().unwrap());
    BtrfsImage::new(word(0), records.map(sector).collect())
}
