//! Finds the LZ4 blocks of SquashFS and EROFS images, which have no beginning by which they could
//! be found.

use std::fs::File;

use codec::{Algorithm, Decoder};
use erofs::Erofs;
use squashfs::{Squashfs, find_image, search_image};
use tree::{ExtentId, ExtentKind, FileKind, Inventory, Limits, ReadAt, Result, to_u64, to_usize};

use super::Lz4Block;

/// The length of a block of tables, decoded.
const TABLE_BYTES: usize = 8192;

/// The longest content of an LZ4 block of EROFS that is decoded.
const EROFS_CONTENT_BYTES_MAX: usize = 2 << 20;

/// The LZ4 blocks of the EROFS image that a file is, or of the first SquashFS image in it, in
/// order, wherever that begins; empty for other files, and for images that are damaged.
///
/// # Errors
/// The file cannot be read.
pub fn lz4_blocks(file: &File) -> Result<Vec<Lz4Block>> {
    if let Ok(image) = Erofs::open(vec![Box::new(file.try_clone()?)]) {
        return Ok(blocks_of_erofs(&image, file).unwrap_or_default());
    }
    let place = match find_image(file)? {
        Some(place) => Some(place),
        None => search_image(file)?,
    };
    let Some(place) = place else {
        return Ok(Vec::new());
    };
    match Squashfs::open_at(file.try_clone()?, place, &Limits::default()) {
        Ok(image) if image.superblock().algorithm == Algorithm::Lz4 => {
            Ok(blocks_of(&image, file, place).unwrap_or_default())
        }
        _ => Ok(Vec::new()),
    }
}

fn blocks_of_erofs(image: &Erofs, file: &File) -> Result<Vec<Lz4Block>> {
    let mut decoder = Decoder::new();
    let mut content = vec![0; EROFS_CONTENT_BYTES_MAX];
    let mut blocks = Vec::new();
    for (at, bytes) in image.lz4_blocks()? {
        blocks.extend(block(&mut decoder, file, (at, bytes), &mut content)?);
    }
    Ok(blocks)
}

/// The LZ4 block at a place of a file, if there is one of this length.
fn block(
    decoder: &mut Decoder,
    file: &File,
    (at, bytes): (u64, u64),
    content: &mut [u8],
) -> Result<Option<Lz4Block>> {
    let mut stored = vec![0; to_usize(bytes)];
    file.read_exact_at(&mut stored, at)?;
    let len = decoder.decompress(Algorithm::Lz4, content, &stored).ok();
    Ok(len.and_then(|len| {
        Some(Lz4Block {
            at,
            bytes: u32::try_from(bytes).ok()?,
            content_bytes: u32::try_from(len).ok().filter(|len| *len > 0)?,
        })
    }))
}

/// The blocks of an image that begins at this place of a file.
fn blocks_of(image: &Squashfs, file: &File, place: u64) -> Result<Vec<Lz4Block>> {
    let superblock = image.superblock();
    let mut stored = Vec::new();
    let inventory = Inventory::of(image, &Limits::default())?;
    for number in inventory.files() {
        if inventory.kind(number) != FileKind::Regular {
            continue;
        }
        let mut extents = inventory.extents(number);
        while let Some(extent) = extents.next()? {
            if let (ExtentKind::Encoded(encoding), Some(ExtentId(at))) = (extent.kind, extent.id) {
                stored.push((at, encoding.stored_len));
            }
        }
    }
    stored.sort_unstable();
    stored.dedup();
    let mut decoder = Decoder::new();
    let mut content = vec![0; to_usize(superblock.block_bytes).max(TABLE_BYTES)];
    let mut block = |at: u64, bytes: u64, content: &mut [u8]| {
        let at = at.saturating_add(place);
        block(&mut decoder, file, (at, bytes), content)
    };
    let mut blocks = Vec::new();
    for (at, bytes) in stored {
        blocks.extend(block(at, bytes, &mut content)?);
    }
    // The tables of inodes, directories and fragments follow each other.
    let mut at = superblock.inode_table;
    while at < superblock.bytes_used {
        let mut header = [0; 2];
        file.read_exact_at(&mut header, at.saturating_add(place))?;
        let header = u16::from_le_bytes(header);
        let (is_plain, bytes) = (header & 0x8000 != 0, u64::from(header & 0x7fff));
        if bytes == 0 || bytes > to_u64(TABLE_BYTES) {
            break;
        }
        at += 2;
        if !is_plain {
            let Some(found) = block(at, bytes, &mut content[..TABLE_BYTES])? else {
                break;
            };
            blocks.push(found);
        }
        at += bytes;
    }
    Ok(blocks)
}
