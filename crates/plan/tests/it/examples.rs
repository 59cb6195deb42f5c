use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plan::{Candidate, Container};
use testkit::TempDir;

#[path = "../../examples/predict.rs"]
#[expect(dead_code, reason = "a test calls what its main calls")]
mod predict;

#[test]
fn predict_lists_the_best_from_the_fastest_to_the_smallest() {
    let dir = TempDir::new();
    let lines: Vec<String> = (0..20_000u32)
        .map(|n| format!("line {n} of {}\n", n * 7 % 1000))
        .collect();
    fs::write(dir.join("lines"), lines.concat()).unwrap();
    let mut candidates = Candidate::usual(Container::Squashfs);
    let kept = ["none", "lz4", "zstd:3"];
    candidates.retain(|it| {
        it.block_bytes == Some(128 << 10) && kept.contains(&&*it.words(Container::Squashfs))
    });
    assert_eq!(candidates.len(), kept.len());
    // Each look at the clock takes a millisecond, so that all candidates take as long.
    let looks = AtomicU64::new(0);
    let clock = || Duration::from_millis(looks.fetch_add(1, Ordering::Relaxed));
    let mut out = Vec::new();
    predict::print_rows(dir.path(), candidates, &clock, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let bytes = |line: &str| line[12..24].trim().parse::<u64>().unwrap();
    let sizes: Vec<u64> = text.lines().map(bytes).collect();
    assert!(sizes.is_sorted_by(|a, b| a > b), "{text}");
    let smallest = text.lines().last().unwrap();
    assert!(
        smallest.contains(" zstd:3 ") && sizes[sizes.len() - 1] < 120_000,
        "{text}"
    );
    assert_eq!(text.matches('*').count(), 1, "{text}");
}
