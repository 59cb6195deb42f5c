//! What is tried, by a clock that only the reads of some files move: so nothing depends on the
//! machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use plan::{Candidate, Container, Medium, PlanOptions, Prediction};
use testkit::{HookedFs, MemoryFs, Rng};
use tree::{FileSystem, Inventory, Limits, Parallel};

const FILES: usize = 32;
const FILE_BYTES: usize = 1 << 20;
const SAMPLE_BYTES: u64 = 4 << 20;

/// Predicts one candidate for files of noise, of which every `slow`th takes this long to read a
/// part of.
fn predicted(slow: usize, seconds: f64) -> Prediction {
    let mut tree = MemoryFs::new();
    let root = FileSystem::root(&tree);
    let mut rng = Rng::new(26);
    let mut slow_files = Vec::new();
    for n in 0..FILES {
        let file = tree.add_file(root, format!("{n}.jpg"), &rng.bytes(FILE_BYTES));
        if n % slow == 0 {
            slow_files.push(file);
        }
    }
    let now = Arc::new(AtomicU64::new(0));
    let time = Arc::clone(&now);
    let tree = HookedFs::new(tree, move |file, _| {
        let seconds = if slow_files.contains(&file) {
            seconds
        } else {
            1e-6
        };
        time.fetch_add((seconds * 1e9) as u64, Relaxed);
        Ok(())
    });
    let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
    let container = Container::Squashfs;
    let medium = Medium {
        write_seconds: 0.0,
        read_seconds: 0.0,
        rate: 1e18,
        sync_seconds: 0.0,
    };
    let options = PlanOptions::new(container)
        .candidates(vec![Candidate::usual(container)[0].clone()])
        .parallel(Parallel::new(1))
        .processors(1_usize)
        .sample_bytes(SAMPLE_BYTES)
        .medium(medium);
    let clock = || Duration::from_nanos(now.load(Relaxed));
    plan::predict(&inventory, &options, &clock, &|_| {}).unwrap()
}

#[test]
fn more_is_tried_where_a_few_parts_take_the_time() {
    let even = predicted(1, 0.001);
    assert!(even.rows[0].sampled.tried_bytes < 2 * SAMPLE_BYTES);
    let uneven = predicted(4, 0.01);
    assert!(uneven.rows[0].sampled.tried_bytes >= 4 * SAMPLE_BYTES);
    // Every part of a quarter of the files, and what was not read at once is not read slowly.
    let parts = (FILES / 4 * FILE_BYTES / (128 << 10)) as f64;
    let seconds = uneven.rows[0].seconds.value;
    assert!(seconds >= 0.01 * parts, "{seconds}");
    // Sizes do not depend on times.
    assert_eq!(uneven.rows[0].bytes, even.rows[0].bytes);
    // What would take too long is not tried again.
    let dear = predicted(4, 1.0);
    assert!(dear.rows[0].sampled.tried_bytes < 2 * SAMPLE_BYTES);
    assert_eq!(dear.rows[0].bytes, even.rows[0].bytes);
}
