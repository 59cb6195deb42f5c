//! Arbitrary bytes as a SquashFS image, asked everything that can be asked.
//!
//! Asserts: no panic; the check counts the findings that it reports; equal answers to equal
//! questions; and, by the limits below, bounded time and memory.
//!
//! `cargo +nightly fuzz run squashfs_read fuzz/corpus/squashfs_read fuzz/seeds/squashfs_read`
#![cfg_attr(not(test), no_main)]

use libfuzzer_sys::fuzz_target;
use restow_fuzz::limits;
use squashfs::Squashfs;
use tree::{CheckOptions, NoProgress, Parallel};

fuzz_target!(|data: &[u8]| {
    let limits = limits();
    let _ = squashfs::find_image(&data.to_vec());
    if let Ok(fs) = Squashfs::open_at(data.to_vec(), 0, &limits) {
        let _ = testkit::use_all(&fs, &limits);
        let mut findings = 0;
        let (all, one) = (CheckOptions::EVERYTHING, Parallel::new(1));
        let summary = fs.check(all, one, &NoProgress, &mut |_| findings += 1);
        if let Ok(summary) = summary {
            assert_eq!(summary.findings > 0, findings > 0);
        }
        for number in [0, 1, 2, 20, u32::MAX] {
            if let Ok(Some(ino)) = fs.by_number(number) {
                let _ = fs.number(ino);
            }
        }
    }
});
