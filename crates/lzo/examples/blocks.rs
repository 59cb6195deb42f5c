//! Compresses a file in blocks, as SquashFS does, and decodes each again: `cargo run -p restow-lzo
//! --example blocks -- FILE`.
use std::error::Error;
use std::io::{Write, stdout};

use lzo::{Workspace, compress, decompress};

/// The usual block of SquashFS.
const BLOCK: usize = 128 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: blocks FILE")?;
    print_blocks(&std::fs::read(path)?, &mut stdout().lock())
}

/// A line that says how many blocks become smaller, and how long all of them are.
pub(crate) fn print_blocks(content: &[u8], out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    // All memory that is needed. In a kernel or firmware these are static.
    let mut workspace = Workspace::new();
    let (mut packed, mut back) = (vec![0; BLOCK], vec![0; BLOCK]);
    let (mut blocks, mut smaller, mut bytes) = (0, 0, 0);
    for block in content.chunks(BLOCK) {
        blocks += 1;
        // With less room than the block, what does not become smaller gives `None`: it is stored as
        // it is.
        match compress(&mut packed[..block.len() - 1], block, &mut workspace) {
            Some(len) => {
                let decoded = decompress(&mut back, &packed[..len])?;
                assert_eq!(&back[..decoded], block);
                smaller += 1;
                bytes += len;
            }
            None => bytes += block.len(),
        }
    }
    let whole = content.len();
    writeln!(
        out,
        "{smaller} of {blocks} blocks become smaller: {whole} bytes in {bytes}"
    )?;
    Ok(())
}
