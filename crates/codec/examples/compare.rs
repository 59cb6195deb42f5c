//! Compares the codecs on a file, in blocks of 128 KiB: `cargo run --release -p restow-codec
//! --example compare -- FILE`.
use std::error::Error;
use std::io::{Write, stdout};

use codec::{Decoder, Encoder, Filters, Settings};

/// The usual block of SquashFS, and the longest extent that btrfs compresses.
const BLOCK: usize = 128 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: compare FILE")?;
    print_sizes(&std::fs::read(path)?, &mut stdout().lock())
}

/// A line for each codec: its name, and the bytes that all blocks take.
pub(crate) fn print_sizes(content: &[u8], out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let codecs = [
        ("lz4", Settings::Lz4),
        ("lzo", Settings::Lzo),
        ("zstd:3", Settings::Zstd { level: 3 }),
        ("gzip:9", Settings::Zlib { level: 9 }),
        ("zstd:15", Settings::Zstd { level: 15 }),
        (
            "xz:6",
            Settings::Xz {
                level: 6,
                extreme: false,
                dictionary_bytes: 128 << 10,
                filters: Filters(0),
            },
        ),
    ];
    let (mut packed, mut back) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut decoder = Decoder::new();
    for (name, settings) in codecs {
        // One for each thread: it serves any number of blocks.
        let mut encoder = Encoder::new(&settings)?;
        let mut bytes = 0;
        for block in content.chunks(BLOCK) {
            // With less room than the block, what does not become smaller gives `None`: it is
            // stored as it is.
            let Some(len) = encoder.compress(&mut packed[..block.len() - 1], block) else {
                bytes += block.len();
                continue;
            };
            let decoded = decoder.decompress(settings.algorithm(), &mut back, &packed[..len])?;
            assert_eq!(&back[..decoded], block);
            bytes += len;
        }
        writeln!(out, "{bytes:>12} {name}")?;
    }
    Ok(())
}
