//! Finds where an image starts in a file.

use tree::{ReadAt, Result};

use crate::raw::{MAGIC, METADATA_BYTES, METADATA_PLAIN};
use crate::superblock::{SUPERBLOCK_BYTES, Superblock};

/// Bytes that a search reads at once.
const SEARCH_BYTES: usize = 1 << 20;
/// Padding between an image and what follows it: images are padded to a multiple of 4 KiB.
const PADDING_MAX: u64 = 4096;
/// Bytes at the end of a file that are searched for a superblock: its own size, plus padding before and after it.
const END_BYTES: u64 = SUPERBLOCK_BYTES as u64 + 2 * PADDING_MAX;
/// Magic numbers of superblocks at the end.
const STREAM_MARKS: [&[u8; 4]; 2] = [b"SQSH", b"HSQS"];

/// Finds where the image in `source` starts: at its first byte, or after an ELF program as in an AppImage. `None` if
/// neither place has a superblock's magic number, and there is no superblock at the end either, where tools put it that
/// write images to a pipe.
///
/// # Errors
/// Fails if the source cannot be read.
pub fn find_image(source: &dyn ReadAt) -> Result<Option<u64>> {
    if begins_at(source, 0)? {
        return Ok(Some(0));
    }
    match elf_end(source)? {
        Some(end) if begins_at(source, end)? => Ok(Some(end)),
        _ => Ok(superblock_at_end(source, 0)?.map(|_| 0)),
    }
}

/// Searches all of `source` for the first position where a valid image starts, as in firmware.
///
/// Reads the source once; each false match costs a few more reads.
///
/// # Errors
/// Fails if the source cannot be read.
pub fn search_image(source: &dyn ReadAt) -> Result<Option<u64>> {
    let size = source.size()?;
    let mut buf = vec![0; SEARCH_BYTES];
    let mut at = 0;
    while size - at >= SUPERBLOCK_BYTES as u64 {
        let len = (size - at).min(SEARCH_BYTES as u64) as usize;
        let piece = &mut buf[..len];
        source.read_exact_at(piece, at)?;
        for begin in beginnings(piece) {
            let begin = at + begin as u64;
            if tables_at(source, begin, size)? {
                return Ok(Some(begin));
            }
        }
        // A superblock that starts in the last bytes is complete in the next piece.
        at += (len as u64 - SUPERBLOCK_BYTES as u64) + 1;
    }
    Ok(None)
}

/// Positions in `piece` where a superblock fits and its magic number matches.
fn beginnings(piece: &[u8]) -> impl Iterator<Item = usize> {
    let last = piece.len().saturating_sub(SUPERBLOCK_BYTES - 1);
    (0..last).filter(|&at| piece[at..at + 4] == MAGIC.to_le_bytes())
}

/// Whether the superblock at `at` is valid and followed by the data that it describes.
fn tables_at(source: &dyn ReadAt, at: u64, size: u64) -> Result<bool> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    source.read_exact_at(&mut bytes, at)?;
    Ok(match Superblock::parse(&bytes, size - at) {
        // The inode table starts with a metadata block: its length must be possible.
        Ok(superblock) => {
            let mut header = [0; 2];
            source.read_exact_at(&mut header, at + superblock.inode_table)?;
            let len = u16::from_le_bytes(header) & !METADATA_PLAIN;
            (1..=METADATA_BYTES as u16).contains(&len)
        }
        Err(_) => false,
    })
}

/// The superblock after an image that starts at `base` and reaches to the end of `source`.
///
/// `mksquashfs -stream` cannot seek back to the start: it leaves a marker there and puts the superblock last. There may
/// be padding before and after the superblock.
pub(crate) fn superblock_at_end(source: &dyn ReadAt, base: u64) -> Result<Option<Superblock>> {
    let len = source.size()?.saturating_sub(base);
    let from = len.saturating_sub(END_BYTES);
    let mut end = vec![0; (len - from) as usize];
    source.read_exact_at(&mut end, base + from)?;
    for n in (0..end.len().saturating_sub(SUPERBLOCK_BYTES - 1)).rev() {
        let mark = &end[n..n + 4];
        if !(mark == MAGIC.to_le_bytes() || STREAM_MARKS.iter().any(|known| mark == *known)) {
            continue;
        }
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes.copy_from_slice(&end[n..n + SUPERBLOCK_BYTES]);
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        let at = from + n as u64;
        match Superblock::parse(&bytes, at) {
            Ok(superblock) if at - superblock.bytes_used <= PADDING_MAX => {
                return Ok(Some(superblock));
            }
            _ => {}
        }
    }
    Ok(None)
}

pub(crate) fn begins_at(source: &dyn ReadAt, at: u64) -> Result<bool> {
    let mut magic = [0; 4];
    if at
        .checked_add(4)
        .is_none_or(|end| source.size().is_ok_and(|size| end > size))
    {
        return Ok(false);
    }
    source.read_exact_at(&mut magic, at)?;
    Ok(u32::from_le_bytes(magic) == MAGIC)
}

/// The end of the section headers, which is the end of a linked program: `e_shoff + e_shentsize * e_shnum` in the ELF
/// specification.
fn elf_end(source: &dyn ReadAt) -> Result<Option<u64>> {
    let mut header = [0; 64];
    if source.size()? < header.len() as u64 {
        return Ok(None);
    }
    source.read_exact_at(&mut header, 0)?;
    if header[..4] != *b"\x7fELF" || header[5] != 1 {
        return Ok(None); // Not ELF, or not little-endian.
    }
    let word = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let (at, size, count) = match header[4] {
        1 => {
            let at = u32::from_le_bytes([header[32], header[33], header[34], header[35]]);
            (u64::from(at), word(46), word(48))
        }
        2 => {
            let mut at = [0; 8];
            at.copy_from_slice(&header[40..48]);
            (u64::from_le_bytes(at), word(58), word(60))
        }
        _ => return Ok(None),
    };
    Ok(at.checked_add(size * count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_an_elf_program() {
        let mut file = vec![0u8; 200];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[40..48].copy_from_slice(&64u64.to_le_bytes());
        file[58..60].copy_from_slice(&40u16.to_le_bytes());
        file[60..62].copy_from_slice(&2u16.to_le_bytes());
        assert_eq!(find_image(&file).unwrap(), None);
        file[144..148].copy_from_slice(b"hsqs");
        assert_eq!(find_image(&file).unwrap(), Some(144));
        assert_eq!(find_image(&file[144..].to_vec()).unwrap(), Some(0));
        assert_eq!(find_image(&b"hsq".to_vec()).unwrap(), None);
    }
}
