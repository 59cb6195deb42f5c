//! Builds a SquashFS image from two archives, the second one in a directory, and shows progress:
//! `cargo run -p restow --example two_archives -- FIRST SECOND DIRECTORY IMAGE`.
use std::ffi::OsString;
use std::io::{Write, stderr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use restow::{CopyOptions, CopySummary, Progress};
use tree::edit::Selection;

/// Shows how many of the expected bytes were read.
#[derive(Default)]
struct Percent {
    read: AtomicU64,
    expected: AtomicU64,
}

impl Progress for Percent {
    fn expect(&self, _files: Option<u64>, bytes: Option<u64>) {
        self.expected.store(bytes.unwrap_or(0), Ordering::Relaxed);
    }

    fn advance(&self, _files: u64, bytes: u64) {
        let read = self.read.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let expected = self.expected.load(Ordering::Relaxed).max(1);
        let _ = write!(stderr(), "\r{} %", read * 100 / expected);
    }
}

/// Writes the image.
pub(crate) fn build(
    first: &Path,
    second: &Path,
    at: &[u8],
    to: &Path,
) -> restow::Result<CopySummary> {
    let second = restow::open(second)?;
    let (both, _) = restow::open(first)?.join(b"", vec![(second, at)], Selection::default(), 0)?;
    restow::copy(both, to, &CopyOptions::default(), &Percent::default())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [first, second, at, to] = &args[..] else {
        return Err("usage: two_archives FIRST SECOND DIRECTORY IMAGE".into());
    };
    let built = build(first.as_ref(), second.as_ref(), at.as_bytes(), to.as_ref());
    let summary = built.map_err(|error| format!("{error:#}"))?;
    writeln!(stderr(), "\r{} files", summary.files)?;
    Ok(())
}
