//! Counts the commands of a send stream: `cargo run -p restow-sendstream --example commands --
//! STREAM`.
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::{Write, stdout};

use sendstream::StreamReader;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: commands STREAM")?;
    let mut reader = StreamReader::new(File::open(path)?);
    let (mut streams, mut commands, mut bytes) = (0, BTreeMap::new(), 0);
    // One file can hold several streams.
    while reader.next_stream()?.is_some() {
        streams += 1;
        while let Some(record) = reader.next_command()? {
            bytes += record.command.data().map_or(0, <[u8]>::len);
            *commands.entry(record.command.name()).or_insert(0) += 1;
        }
    }
    let mut out = stdout().lock();
    writeln!(out, "{streams} streams, {bytes} bytes of data")?;
    for (name, count) in commands {
        writeln!(out, "{count:>9} {name}")?;
    }
    Ok(())
}
