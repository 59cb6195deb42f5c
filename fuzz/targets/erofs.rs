//! Arbitrary bytes as an EROFS image, asked everything that can be asked.
//!
//! Asserts: no panic; the check counts the findings that it reports; equal answers to equal
//! questions; and, by the limits below, bounded time and memory.
//!
//! `cargo +nightly fuzz run erofs fuzz/corpus/erofs fuzz/seeds/erofs`
#![cfg_attr(not(test), no_main)]

use erofs::Erofs;
use libfuzzer_sys::fuzz_target;
use restow_fuzz::limits;
use tree::{CheckOptions, NoProgress, Parallel};

fuzz_target!(|data: &[u8]| {
    let mut image = data.to_vec();
    // Without the checksum of the superblock, which no change would pass.
    if let Some(bits) = image.get_mut(1024 + 8) {
        *bits &= !1;
    }
    if let Ok(fs) = Erofs::open(vec![Box::new(image)]) {
        let _ = testkit::use_all(&fs, &limits());
        let mut findings = 0;
        let (all, one) = (CheckOptions::EVERYTHING, Parallel::new(1));
        let summary = fs.check(all, one, &NoProgress, &mut |_| findings += 1);
        if let Ok(summary) = summary {
            assert_eq!(summary.findings > 0, findings > 0);
        }
    }
});
