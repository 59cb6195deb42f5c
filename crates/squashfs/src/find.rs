//! Finds where an image starts in a file.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{ReadAt, Result, to_u64, to_usize};

use crate::raw::{MAGIC, METADATA_BYTES, METADATA_PLAIN};
use crate::superblock::{SUPERBLOCK_BYTES, Superblock};

/// Bytes that a search reads at once.
const SEARCH_BYTES: usize = 1 << 20;
/// Padding after an image: images are padded to a multiple of 4 KiB.
const PADDING_MAX: u64 = 4096;
/// Bytes at the end of a file that are searched for a superblock: its own size, plus padding before
/// and after it.
const END_BYTES: u64 = to_u64(SUPERBLOCK_BYTES) + 2 * PADDING_MAX;
/// Magic numbers of superblocks at the end.
const STREAM_MARKS: [&[u8; 4]; 2] = [b"SQSH", b"HSQS"];

/// Finds where the image in `source` starts: at its first byte, or after an ELF program as in an
/// AppImage. `None` if neither place has a superblock's magic number, and there is no superblock at
/// the end either, where tools put it that write images to a pipe.
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
    loop {
        let len = to_usize(size.saturating_sub(at)).min(SEARCH_BYTES);
        let (piece, _) = buf.split_at_mut(len);
        // A superblock that starts in the last bytes is complete in the next piece.
        let Some(step) = len
            .checked_sub(SUPERBLOCK_BYTES - 1)
            .filter(|&step| step > 0)
        else {
            return Ok(None);
        };
        source.read_exact_at(piece, at)?;
        for begin in beginnings(piece) {
            let begin = at.saturating_add(to_u64(begin));
            if tables_at(source, begin, size)? {
                return Ok(Some(begin));
            }
        }
        at = at.saturating_add(to_u64(step));
    }
}

/// Positions in `piece` where a superblock fits and its magic number matches.
fn beginnings(piece: &[u8]) -> impl Iterator<Item = usize> {
    let places = piece.windows(SUPERBLOCK_BYTES).enumerate();
    let found = places.filter(|(_, bytes)| bytes.starts_with(&MAGIC.to_le_bytes()));
    found.map(|(at, _)| at)
}

/// Whether the superblock at `at` is valid and followed by the data that it describes.
fn tables_at(source: &dyn ReadAt, at: u64, size: u64) -> Result<bool> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    source.read_exact_at(&mut bytes, at)?;
    Ok(match Superblock::parse(&bytes, size.saturating_sub(at)) {
        // The inode table starts with a metadata block: its length must be possible.
        Ok(superblock) => {
            let mut header = [0; 2];
            source.read_exact_at(&mut header, at.saturating_add(superblock.inode_table))?;
            let len = u16::from_le_bytes(header) & !METADATA_PLAIN;
            (1..=METADATA_BYTES).contains(&len.into())
        }
        Err(_) => false,
    })
}

/// The superblock after an image that starts at `base` and reaches to the end of `source`.
///
/// `mksquashfs -stream` cannot seek back to the start: it leaves a marker there and puts the
/// superblock last. There may be padding before and after the superblock.
pub(crate) fn superblock_at_end(source: &dyn ReadAt, base: u64) -> Result<Option<Superblock>> {
    let len = source.size()?.saturating_sub(base);
    let from = len.saturating_sub(END_BYTES);
    let mut end = vec![0; to_usize(len.saturating_sub(from))];
    source.read_exact_at(&mut end, base.saturating_add(from))?;
    for (n, bytes) in end.array_windows::<SUPERBLOCK_BYTES>().enumerate().rev() {
        let mut bytes = *bytes;
        let Some(mark) = bytes.first_chunk_mut() else {
            continue;
        };
        if *mark != MAGIC.to_le_bytes() && !STREAM_MARKS.contains(&&*mark) {
            continue;
        }
        *mark = MAGIC.to_le_bytes();
        let at = from.saturating_add(to_u64(n));
        match Superblock::parse(&bytes, at) {
            Ok(superblock) if at.saturating_sub(superblock.bytes_used) <= PADDING_MAX => {
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

/// The end of the section headers, which is the end of a linked program: `e_shoff + e_shentsize *
/// e_shnum` in the ELF specification.
fn elf_end(source: &dyn ReadAt) -> Result<Option<u64>> {
    let mut header = [0; 64];
    if source.size()? < to_u64(header.len()) {
        return Ok(None);
    }
    source.read_exact_at(&mut header, 0)?;
    // Little-endian.
    let [0x7f, b'E', b'L', b'F', class, 1, ..] = header else {
        return Ok(None);
    };
    let number = |at: usize, bytes: usize| {
        let bytes = header.iter().skip(at).take(bytes).rev();
        bytes.fold(0, |number, &byte| number << 8 | u64::from(byte))
    };
    let (at, size, count) = match class {
        1 => (number(32, 4), number(46, 2), number(48, 2)),
        2 => (number(40, 8), number(58, 2), number(60, 2)),
        _ => return Ok(None),
    };
    Ok(at.checked_add(size.saturating_mul(count)))
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
