//! Work goes by what an image stores, not by what its files claim.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use btrfs::{Btrfs, Options};
use testkit::{CountedBytes, HookedFs, MemoryFs, Rng, TempDir};
use tree::{CheckOptions, FileSystem, NoProgress, Parallel};

use crate::images::{assert_same, check, make, manifest_of};

#[test]
fn an_8_eb_file_costs_fewer_than_1000_reads() {
    let mut source = MemoryFs::new();
    let root = source.root();
    let size = i64::MAX as u64;
    let data = Rng::new(1).bytes(74 * 4096); // whole sectors, so that holes are the same
    for (name, at) in [("a", 1 << 40), ("b", 1 << 41), ("c", 1 << 41)] {
        let pieces = [(at, &data[..]), (size - 4095, &data[..4095])];
        source.add_sparse(root, name, size, &pieces);
    }
    source.add_sparse(root, "empty", size, &[]);
    let reads = Arc::new(AtomicU64::new(0));
    let took = |what: &str| {
        let reads = reads.swap(0, Ordering::Relaxed);
        assert!((1..1000).contains(&reads), "{what}: {reads} reads");
    };
    let count = Arc::clone(&reads);
    let counted = HookedFs::new(source.clone(), move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let dir = TempDir::new();
    let image = dir.join("image");
    let summary = make(&counted, &image, &Options::default(), 2);
    assert_eq!(summary.image.duplicates, 1);
    took("a copy to btrfs");

    let bytes = fs::read(&image).unwrap();
    let btrfs = Btrfs::open(vec![Box::new(CountedBytes(bytes, Arc::clone(&reads)))]).unwrap();
    let btrfs = Arc::new(btrfs);
    let mut report = |finding| panic!("{finding:?}");
    let options = CheckOptions::EVERYTHING;
    btrfs
        .check(options, Parallel::new(2), &NoProgress, &mut report)
        .unwrap();
    took("a check");
    let tree = btrfs.subvolume(5).unwrap();
    assert_eq!(manifest_of(&tree), manifest_of(&source));
    took("a manifest");
    assert_same(&tree, &source, "the image");
    took("a diff");
    make(&tree, &dir.join("again"), &Options::default(), 2);
    took("a copy of the image");
    check(&image);
}
