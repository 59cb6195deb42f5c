//! Decodes a stored extent without an allocator: one zstd frame, padded to whole sectors.
//!
//! `cargo run -p restow-zstd --features decompress --example extent < STORED > CONTENT`
use std::error::Error;
use std::io::{Read, Write, stdin, stdout};

use zstd::{DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Workspace};

/// No larger than a compressed extent of btrfs, in which a frame's window has up to 128 KiB.
const EXTENT_MAX: usize = 128 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    // All memory that decoding needs. A kernel or firmware keeps one for each processor.
    let mut workspace = Workspace::<DECOMPRESS_WORKSPACE_SIZE>::new();
    let (mut stored, mut content) = ([0; EXTENT_MAX], [0; EXTENT_MAX]);
    let mut len = 0;
    loop {
        match stdin().read(&mut stored[len..])? {
            0 => break,
            more => len += more,
        }
    }
    let options = DecodeOptions::new();
    let decoded = options.decompress_extent(&mut content, &stored[..len], &mut workspace)?;
    stdout().write_all(&content[..decoded.written])?;
    Ok(())
}
