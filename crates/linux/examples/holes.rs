//! Lists the ranges of a sparse file that have data: `cargo run -p restow-linux --example holes --
//! FILE`.
use std::error::Error;
use std::fs::File;
use std::io::{Write, stdout};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: holes FILE")?;
    print_data(&File::open(path)?, &mut stdout().lock())
}

/// A line for each range: its offset and its length in bytes.
pub(crate) fn print_data(file: &File, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let mut at = 0;
    while let Some(start) = linux::seek_data(file, at)? {
        // The end of the file counts as a hole. There is none if the file became shorter meanwhile.
        let Some(end) = linux::seek_hole(file, start)? else {
            break;
        };
        writeln!(out, "{start:>12} {:>12}", end - start)?;
        at = end;
    }
    Ok(())
}
