//! Where in a file an image begins.

use tree::{ReadAt, Result};

use crate::raw::MAGIC;

/// Where the image in `source` begins: at its first byte, or behind an ELF program as in an AppImage. `None` when
/// neither place has a superblock's magic number.
///
/// # Errors
/// The source cannot be read.
pub fn find_image(source: &dyn ReadAt) -> Result<Option<u64>> {
    if begins_at(source, 0)? {
        return Ok(Some(0));
    }
    match elf_end(source)? {
        Some(end) if begins_at(source, end)? => Ok(Some(end)),
        _ => Ok(None),
    }
}

fn begins_at(source: &dyn ReadAt, at: u64) -> Result<bool> {
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

/// The end of the section headers, which is the end of a linked program: the ELF specification's `e_shoff +
/// e_shentsize * e_shnum`.
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
