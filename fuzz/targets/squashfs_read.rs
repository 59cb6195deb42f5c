//! Arbitrary bytes as a SquashFS image, asked everything that can be asked.
//!
//! Asserts: no panic; what is said twice is the same; and, by the limits below, bounded time and
//! memory.
//!
//! `cargo +nightly fuzz run squashfs_read fuzz/corpus/squashfs_read fuzz/seeds/squashfs_read`
#![no_main]

use libfuzzer_sys::fuzz_target;
use squashfs::Squashfs;
use tree::Limits;

fuzz_target!(|data: &[u8]| {
    let limits = Limits {
        inodes_max: 2000,
        depth_max: 50,
        ..Limits::default()
    };
    let _ = squashfs::find_image(&data.to_vec());
    if let Ok(fs) = Squashfs::open_at(data.to_vec(), 0, &limits) {
        let _ = testkit::use_all(&fs, &limits);
        for number in [0, 1, 2, 20, u32::MAX] {
            if let Ok(Some(ino)) = fs.by_number(number) {
                let _ = fs.number(ino);
            }
        }
    }
});
