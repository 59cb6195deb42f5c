//! Prints how large a SquashFS image of a directory would be with each codec, and how long making
//! it would take: `cargo run --release -p restow-plan --example predict -- DIRECTORY`.
use std::error::Error;
use std::io::{Write, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

use plan::{Candidate, Container, Limits, PlanOptions};
use tree::{HostDir, Inventory};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os()
        .nth(1)
        .ok_or("usage: predict DIRECTORY")?;
    let start = Instant::now();
    let candidates = Candidate::usual(Container::Squashfs);
    print_rows(
        Path::new(&path),
        candidates,
        &|| start.elapsed(),
        &mut stdout().lock(),
    )
}

/// A line for each candidate, from the fastest to the smallest of those that are best in something;
/// `*` marks the balanced one.
pub(crate) fn print_rows(
    path: &Path,
    candidates: Vec<Candidate>,
    clock: &(dyn Fn() -> Duration + Sync),
    out: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let directory = HostDir::open(path)?;
    let inventory = Inventory::of(&directory, &tree::Limits::default())?;
    let container = Container::Squashfs;
    let options = PlanOptions::new(container).candidates(candidates);
    let prediction = plan::predict(&inventory, &options, clock, &|_| {})?;
    let rows = &prediction.rows;
    let choice = plan::choose(rows, &Limits::default());
    for row in plan::front(rows) {
        let mark = if choice.is_some_and(|choice| choice.row == row) {
            '*'
        } else {
            ' '
        };
        let row = &rows[row];
        let (words, bytes, seconds) = (
            row.candidate.words(container),
            row.bytes.value,
            row.seconds.value,
        );
        writeln!(
            out,
            "{mark} {words:<9} {bytes:>12.0} bytes {seconds:>8.2} s"
        )?;
    }
    Ok(())
}
