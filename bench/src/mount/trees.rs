//! The trees that are mounted.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use xxhash::xxh64;

/// The tree of small files.
pub(super) const DIRECTORIES: usize = 100;
pub(super) const FILES: usize = 100;
pub(super) const FILE_BYTES: usize = 3000;
/// The size of the large file.
pub(super) const LARGE_BYTES: u64 = 2 << 30;

/// Text in which words repeat, as in files that people write.
fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes + 16);
    let mut n = 0u64;
    while text.len() < bytes {
        let number = xxh64(&n.to_le_bytes(), seed);
        text.extend_from_slice(
            format!("{} ", xxh64(&(number % 500).to_le_bytes(), 7) % 1_000_000).as_bytes(),
        );
        n += 1;
    }
    text.truncate(bytes);
    text
}

pub(super) fn small_tree(dir: &Path) -> std::io::Result<()> {
    for n in 0..DIRECTORIES {
        let dir = dir.join(format!("directory-{n}"));
        fs::create_dir_all(&dir)?;
        for file in 0..FILES {
            fs::write(
                dir.join(format!("file-{file}")),
                text((n * FILES + file) as u64, FILE_BYTES),
            )?;
        }
    }
    Ok(())
}

/// Blocks that differ, so that none is stored once for several.
pub(super) fn large_file(path: &Path) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(File::create(path)?);
    let mut piece = text(1, 1 << 20);
    for n in 0..LARGE_BYTES >> 20 {
        for block in piece.chunks_mut(4096) {
            let len = block.len().min(8);
            block[..len].copy_from_slice(&xxh64(&n.to_le_bytes(), 3).to_le_bytes()[..len]);
        }
        file.write_all(&piece)?;
    }
    file.flush()
}

/// The header of an empty file in an archive (POSIX ustar).
pub(super) fn tar_header(path: &str) -> [u8; 512] {
    let mut header = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, path.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, b"00000000000\0");
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}
