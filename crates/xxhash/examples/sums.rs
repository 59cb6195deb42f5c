//! Prints the XXH64 of files, as `xxhsum` does: `cargo run -p restow-xxhash --example sums --
//! FILE...`.
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write, stdout};
use std::path::Path;

use xxhash::Xxh64;

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<OsString> = std::env::args_os().skip(1).collect();
    print_sums(&files, &mut stdout().lock())
}

/// A line for each file: its hash and its name.
pub(crate) fn print_sums(files: &[OsString], out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let mut piece = vec![0; 64 << 10];
    for file in files {
        let mut content = File::open(file)?;
        // A file of any size in the memory of one piece.
        let mut state = Xxh64::new(0);
        loop {
            match content.read(&mut piece)? {
                0 => break,
                len => state.update(&piece[..len]),
            }
        }
        writeln!(
            out,
            "{:016x}  {}",
            state.digest(),
            Path::new(file).display()
        )?;
    }
    Ok(())
}
