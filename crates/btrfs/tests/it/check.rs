//! The check itself: its findings do not depend on the number of threads, and it reports progress.

use std::sync::atomic::{AtomicU64, Ordering};

use btrfs::{Btrfs, CheckSummary};
use testkit::{MemoryFs, Rng, TempDir};
use tree::{CheckOptions, DataCheck, FileSystem, NoProgress, Parallel, Progress};

use crate::damage::damaged;
use crate::hostile;
use crate::images::{make, open, with};

/// The findings of the check, with all data and any number of threads.
pub(crate) fn findings(btrfs: &Btrfs) -> (CheckSummary, Vec<String>) {
    let found = |threads| {
        let mut lines = Vec::new();
        let options = CheckOptions::EVERYTHING;
        let parallel = Parallel::new(threads);
        let summary = btrfs.check(options, parallel, &NoProgress, &mut |finding| {
            lines.push(finding.to_string());
        });
        (summary.expect("the medium can be read"), lines)
    };
    let one = found(1);
    assert_eq!(one, found(2));
    one
}

/// Expected bytes, and bytes done.
#[derive(Default)]
struct Bytes {
    expected: AtomicU64,
    done: AtomicU64,
}

impl Progress for Bytes {
    fn expect(&self, _files: Option<u64>, bytes: Option<u64>) {
        self.expected.store(bytes.unwrap(), Ordering::Relaxed);
    }

    fn advance(&self, _files: u64, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Files of many jobs, and of a fraction of one.
fn source() -> MemoryFs {
    let (mut fs, mut rng) = (MemoryFs::new(), Rng::new(4));
    let root = fs.root();
    for number in 0..40 {
        fs.add_file(root, format!("small {number:02}"), &rng.bytes(9000));
    }
    fs.add_file(root, "large", &rng.bytes(7 << 20));
    fs
}

#[test]
fn damaged_data_is_found_in_the_order_of_its_addresses() {
    let dir = TempDir::new();
    let image = dir.join("image");
    make(&source(), &image, &with(None, false), 2);
    let mut bytes = std::fs::read(&image).unwrap();
    let tree = open(&image).subvolume(5).unwrap();
    let mut damaged = Vec::new();
    for (name, offsets) in [
        ("small 07", vec![0]),
        ("small 31", vec![0, 8192]),
        ("large", (0..7 << 20).step_by(300 << 10).collect()),
    ] {
        let file = tree.lookup(tree.root(), name.as_bytes()).unwrap().ino;
        // Created contiguously; its logical address is its position on the device.
        let at = tree.extents(file, 0).unwrap()[0].id.unwrap().0;
        for offset in offsets {
            let sector = (at + offset) / 4096 * 4096;
            bytes[(at + offset) as usize] ^= 1;
            damaged.push((sector, name));
        }
    }
    std::fs::write(&image, bytes).unwrap();
    damaged.sort_unstable();
    let (summary, lines) = findings(open(&image).as_ref());
    assert_eq!(lines.len(), damaged.len(), "{lines:#?}");
    for (line, (sector, name)) in lines.iter().zip(damaged) {
        let place = format!(" at byte {sector:#x}), in {name}");
        let is_so = line.starts_with("first copy of data has the wrong checksum");
        assert!(is_so && line.ends_with(&place), "{line}, not {place}");
    }
    assert_eq!(summary.findings, lines.len() as u64);
    assert_eq!(summary.data_bytes, (7 << 20) + 40 * 12_288);
}

#[test]
fn progress_reaches_what_was_expected() {
    let dir = TempDir::new();
    let image = dir.join("image");
    make(&source(), &image, &with(None, false), 2);
    for data in [DataCheck::Skip, DataCheck::Checksums, DataCheck::Decode] {
        let progress = Bytes::default();
        let options = CheckOptions::EVERYTHING.data(data);
        let parallel = Parallel::new(2);
        let summary = (open(&image).check(options, parallel, &progress, &mut |_| {})).unwrap();
        let done = progress.done.into_inner();
        assert_eq!(done, progress.expected.into_inner(), "{data:?}");
        assert_eq!(done > 7 << 20, data != DataCheck::Skip, "{summary:?}");
    }
}

#[test]
fn data_that_does_not_decode_is_found_if_it_is_decoded() {
    for damage in ["data: does not decode", "inline: does not decode"] {
        let image = hostile::open(&damaged(damage)).unwrap();
        let count = |data| {
            let options = CheckOptions::EVERYTHING.data(data);
            let check = image.check(options, Parallel::new(2), &NoProgress, &mut |_| {});
            check.unwrap().findings
        };
        assert_eq!(count(DataCheck::Decode), 1, "{damage}");
        assert_eq!(count(DataCheck::Checksums), 0, "{damage}");
    }
}
