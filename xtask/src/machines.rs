//! One image made by many machines, simulated with measured rates: the tables of docs/fleets.md.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write;

use crate::outcome::{Outcome, Report};

const PAGE: &str = include_str!("../../docs/fleets.md");

/// Bytes of content of the tree.
const CONTENT: f64 = 1e12;
/// Encoded bytes for a byte of content.
const RATIO: f64 = 0.4;
/// Content that a core encodes in a second, at zstd:19 in blocks of 128 KiB.
const ENCODE: f64 = 4.8e6;
/// Cores of a machine.
const CORES: f64 = 2.0;
/// Seconds to list a file and plan its place.
const PLAN_FILE: f64 = 11.6e-6;
/// Bytes a second that the join takes in and writes, without a store.
const JOIN: f64 = 0.77e9;
/// Bytes a second of the store, for each machine and direction.
const STORE: f64 = 250e6;
/// Seconds of a request, of which three are under way, for parts of 8 MiB.
const REQUEST: f64 = 0.05;
const REQUEST_BYTES: f64 = 3.0 * (8 << 20) as f64;
/// Tries that end at any of their points.
const FAILURES: f64 = 0.05;

/// The task.
pub(crate) fn machines(report: &mut Report, _: &[String]) {
    report.step("machines", || {
        let table = table();
        print!("{table}");
        if PAGE.contains(&table) {
            Outcome::passed()
        } else {
            Outcome::failed("docs/fleets.md has another table")
        }
    });
}

/// The result for a number of machines and files.
struct Simulated {
    parts_seconds: f64,
    join_seconds: f64,
    moved_bytes: f64,
    repeats: u32,
}

/// Numbers from 0 to 1 (SplitMix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Seconds to move these bytes from or to the store.
fn moving(bytes: f64) -> f64 {
    bytes / STORE + bytes / REQUEST_BYTES * REQUEST + REQUEST
}

/// Each machine takes the next part when it is free; a part whose try failed goes to the end.
fn simulate(machines: u32, parts: u32, files: f64) -> Simulated {
    let (content, stored) = (
        CONTENT / f64::from(parts),
        CONTENT * RATIO / f64::from(parts),
    );
    let planning = files * PLAN_FILE;
    // Reading, encoding and sending go side by side.
    let encoding = content / (ENCODE * CORES);
    let task = planning + encoding.max(moving(content)).max(moving(stored));
    let mut draws = Draws(1);
    let mut free: BinaryHeap<Reverse<u64>> = (0..machines).map(|_| Reverse(0)).collect();
    let (mut to_do, mut repeats, mut moved, mut end) = (parts, 0, 0.0, 0);
    while to_do > 0 {
        // Microseconds, since the order of fractions is partial.
        let Reverse(now) = free.pop().unwrap_or_default();
        let done = if draws.next() < FAILURES {
            draws.next()
        } else {
            1.0
        };
        if done < 1.0 {
            repeats += 1;
        } else {
            to_do -= 1;
        }
        let read = ((task * done - planning) / (task - planning)).max(0.0);
        moved += read * (content + stored);
        let then = now + (task * done * 1e6) as u64;
        end = end.max(then);
        free.push(Reverse(then));
    }
    let joined = CONTENT * RATIO;
    Simulated {
        parts_seconds: end as f64 / 1e6,
        join_seconds: planning + moving(joined).max(joined / JOIN),
        moved_bytes: moved + 2.0 * joined,
        repeats,
    }
}

/// A time as people say it.
fn time(seconds: f64) -> String {
    match seconds {
        ..600.0 => format!("{seconds:.0} s"),
        ..36000.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// The table in Markdown.
fn table() -> String {
    let mut table = String::from(
        "| machines | parts | files | all parts | join | together | moved | repeats |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for files in [1e6, 1e7] {
        for (machines, parts) in [(1, 1), (10, 40), (100, 400), (1000, 1000), (1000, 4000)] {
            let it = simulate(machines, parts, files);
            let (made, join) = (time(it.parts_seconds), time(it.join_seconds));
            let together = time(it.parts_seconds + it.join_seconds);
            let _ = writeln!(
                table,
                "| {machines} | {parts} | {:.0} million | {made} | {join} | {together} | {:.2} TB | {} |",
                files / 1e6,
                it.moved_bytes / 1e12,
                it.repeats
            );
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_table_that_is_printed() {
        assert!(PAGE.contains(&table()), "cargo xtask machines prints it");
    }

    #[test]
    fn without_failures_more_machines_are_faster_until_the_join() {
        let one = simulate(10, 40, 1e6);
        let many = simulate(1000, 1000, 1e6);
        assert!(many.parts_seconds < one.parts_seconds / 50.0);
        assert!(many.join_seconds == one.join_seconds);
    }
}
