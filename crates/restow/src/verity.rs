//! Hash trees of dm-verity (Documentation/admin-guide/device-mapper/verity.rst in Linux): with the
//! hash at their root, each block of an image is verified when it is read.
//!
//! The format is version 1 with SHA-256 and blocks of 4096 bytes, as `veritysetup format` has it:
//! a superblock in a block of its own, then the levels of the tree, the root first. A block of a
//! level has the hashes of 128 blocks of the level below, or of the data.

#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tree::{
    Cache, Corrupt, Error, Output, OutputKind, Parallel, Progress, ReadAt, Sha256, ordered,
    setters, sha256, to_u64, to_usize, uuid_of,
};

use crate::copy::Format;
use crate::error::{During, refuse};
use crate::{Result, VerityRoot, text};

const BLOCK_BYTES: u64 = 4096;
const BLOCK_LEN: usize = 4096;
const HASH_LEN: usize = 32;
/// Hashes in a block.
const HASHES: u64 = 128;
/// `struct verity_sb` of cryptsetup.
const SUPERBLOCK_LEN: usize = 512;
/// Its field for a salt.
const SALT_MAX: usize = 256;
/// Bytes of data that one job hashes.
const JOB_BYTES: u64 = 1 << 20;

/// How a hash tree is added to an image.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerityOptions {
    /// The file for the tree; by default, it is appended to the image.
    pub file: Option<PathBuf>,
    /// Bytes that are hashed in front of each block, at most 256; by default the SHA-256 of the
    /// UUID.
    pub salt: Option<Vec<u8>>,
}

setters!(VerityOptions {
    file: Option<PathBuf>,
    salt: Option<Vec<u8>>,
});

/// The hash tree that an image got.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HashTree {
    /// The hash at its root.
    pub root_hash: [u8; HASH_LEN],
    /// The salt.
    pub salt: Vec<u8>,
    /// The UUID in its superblock: that of the image; of SquashFS, which has none, from a hash of
    /// the superblock.
    pub uuid: [u8; 16],
    /// The number of blocks of 4096 bytes that it covers.
    pub data_blocks: u64,
    /// Where its superblock is, in the image or in its file.
    pub offset: u64,
    /// The bytes of superblock and tree.
    pub bytes: u64,
}

/// The superblock.
struct Superblock {
    uuid: [u8; 16],
    salt: Vec<u8>,
    data_blocks: u64,
}

/// Where the levels are.
struct Levels {
    /// The first byte of each, beginning with that above the data.
    starts: Vec<u64>,
    end: u64,
}

impl Levels {
    /// The levels behind the superblock at `at`; `None` if they end beyond 64 bits.
    fn of(data_blocks: u64, at: u64) -> Option<Levels> {
        let mut counts = Vec::new();
        let mut below = data_blocks;
        while below > 1 {
            below = below.div_ceil(HASHES);
            counts.push(below);
        }
        let superblock_end = at.checked_add(to_u64(SUPERBLOCK_LEN))?;
        let mut end = superblock_end.checked_next_multiple_of(BLOCK_BYTES)?;
        let mut starts = Vec::new();
        for count in counts.into_iter().rev() {
            starts.push(end);
            end = end.checked_add(BLOCK_BYTES.checked_mul(count)?)?;
        }
        starts.reverse();
        Some(Levels { starts, end })
    }
}

impl Superblock {
    /// The superblock, and zeros up to the end of its block.
    fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BLOCK_LEN);
        bytes.extend(b"verity\0\0");
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(self.uuid);
        bytes.extend(b"sha256");
        bytes.resize(64, 0);
        bytes.extend(4096_u32.to_le_bytes());
        bytes.extend(4096_u32.to_le_bytes());
        bytes.extend(self.data_blocks.to_le_bytes());
        bytes.extend((to_u64(self.salt.len())).to_le_bytes());
        bytes.extend(&self.salt);
        bytes.resize(BLOCK_LEN, 0);
        bytes
    }

    fn read(file: &dyn ReadAt, at: u64) -> tree::Result<Superblock> {
        let mut bytes = [0; SUPERBLOCK_LEN];
        file.read_exact_at(&mut bytes, at)?;
        let mut rest = &bytes[..];
        let mut take = |len: usize| {
            let (field, behind) = rest.split_at(len);
            rest = behind;
            field
        };
        let number = |field: &[u8]| {
            let bytes = field.iter().rev();
            bytes.fold(0, |sum: u64, &byte| sum << 8 | u64::from(byte))
        };
        let signature = take(8);
        if signature != b"verity\0\0" {
            let what = "not a superblock of dm-verity";
            return Err(Error::corrupt(what, at, number(signature)));
        }
        let (version, hash_type) = (number(take(4)), number(take(4)));
        if (version, hash_type) != (1, 1) {
            return Err(Error::Unsupported(
                "a hash tree of dm-verity not of version 1",
            ));
        }
        let uuid = take(16).try_into().expect("a field of 16 bytes");
        let algorithm = take(32).split(|&byte| byte == 0).next();
        if algorithm != Some(b"sha256") {
            return Err(Error::Unsupported(
                "a hash tree of dm-verity without SHA-256",
            ));
        }
        if (number(take(4)), number(take(4))) != (BLOCK_BYTES, BLOCK_BYTES) {
            let what = "a hash tree of dm-verity with blocks of another length than 4096 bytes";
            return Err(Error::Unsupported(what));
        }
        let data_blocks = number(take(8));
        let salt_len = number(take(2));
        take(6);
        let salt = take(SALT_MAX).get(..to_usize(salt_len));
        let salt = salt.ok_or(Corrupt {
            what: "salt of dm-verity has more than 256 bytes",
            at: at.saturating_add(80),
            got: salt_len,
        })?;
        Ok(Superblock {
            uuid,
            salt: salt.into(),
            data_blocks,
        })
    }

    fn hash(&self, block: &[u8]) -> [u8; HASH_LEN] {
        let mut hash = Sha256::new();
        hash.update(&self.salt);
        hash.update(block);
        hash.finish()
    }
}

/// Writes the levels while the hashes of data arrive in order.
struct TreeWriter<'a> {
    out: &'a Output,
    superblock: &'a Superblock,
    /// Of each level: where its next block goes, and the hashes in it.
    levels: Vec<(u64, Vec<u8>)>,
    root: [u8; HASH_LEN],
}

impl TreeWriter<'_> {
    /// Adds the next hash of a level; that above all levels is the root.
    fn push(&mut self, level: usize, hash: [u8; HASH_LEN]) -> io::Result<()> {
        let Some((_, block)) = self.levels.get_mut(level) else {
            self.root = hash;
            return Ok(());
        };
        block.extend(hash);
        match block.len() {
            BLOCK_LEN => self.flush(level),
            _ => Ok(()),
        }
    }

    /// Writes the block of a level, and adds its hash to the next level.
    fn flush(&mut self, level: usize) -> io::Result<()> {
        let Some((at, block)) = self.levels.get_mut(level) else {
            return Ok(());
        };
        block.resize(BLOCK_LEN, 0);
        self.out.write_all_at(block, *at)?;
        *at = at.saturating_add(BLOCK_BYTES); // below the end, which was checked
        let hash = self.superblock.hash(block);
        block.clear();
        self.push(level.saturating_add(1), hash)
    }

    fn finish(mut self) -> io::Result<[u8; HASH_LEN]> {
        for level in 0..self.levels.len() {
            if self.levels.get(level).is_some_and(|it| !it.1.is_empty()) {
                self.flush(level)?;
            }
        }
        Ok(self.root)
    }
}

/// Adds a hash tree to an image that is written and not yet committed; or writes it to `file`,
/// which is not committed either.
///
/// # Errors
/// The image cannot be read back, or the tree cannot be written.
pub(crate) fn add_tree(
    (image, file): (&Output, Option<&Output>),
    (format, image_bytes): (Format, u64),
    options: &VerityOptions,
    parallel: Parallel,
) -> Result<HashTree> {
    // A device is longer than its image.
    let image_bytes = match image.kind() {
        OutputKind::File => image.size()?,
        _ => image_bytes,
    };
    let data_blocks = image_bytes.div_ceil(BLOCK_BYTES);
    let data_bytes = data_blocks.saturating_mul(BLOCK_BYTES);
    let padding = data_bytes.saturating_sub(image_bytes);
    let zeros = vec![0; to_usize(padding)];
    image.write_all_at(&zeros, image_bytes)?;
    let uuid = uuid_in(image, format)?;
    let superblock = Superblock {
        uuid,
        salt: options.salt.clone().unwrap_or(sha256(&uuid).into()),
        data_blocks,
    };
    if superblock.salt.len() > SALT_MAX {
        refuse!("a salt of dm-verity has at most 256 bytes");
    }
    let out = file.unwrap_or(image);
    let offset = if file.is_some() { 0 } else { data_bytes };
    let levels = Levels::of(data_blocks, offset);
    let levels = levels.ok_or(Error::Limit("the hash tree ends beyond 64 bits"))?;
    let starts = levels.starts.iter();
    let mut writer = TreeWriter {
        out,
        superblock: &superblock,
        levels: starts.map(|&start| (start, Vec::new())).collect(),
        root: [0; HASH_LEN],
    };
    let image = image.reader()?;
    let hash = |block: &[u8], _| Ok(superblock.hash(block));
    each_block(&*image, data_bytes, parallel, hash, |hash| {
        Ok(writer.push(0, hash)?)
    })?;
    let root_hash = writer.finish()?;
    // The tree is none before it has this.
    out.write_all_at(&superblock.emit(), offset)?;
    Ok(HashTree {
        root_hash,
        uuid,
        data_blocks,
        offset,
        bytes: levels.end.saturating_sub(offset),
        salt: superblock.salt,
    })
}

/// The UUID of an image.
fn uuid_in(image: &dyn ReadAt, format: Format) -> io::Result<[u8; 16]> {
    let at = match format {
        Format::Btrfs => (64 << 10) + 32,
        Format::Erofs => 1024 + 48,
        _ => {
            let mut superblock = [0; 96];
            image.read_exact_at(&mut superblock, 0)?;
            return Ok(uuid_of(sha256(&superblock)));
        }
    };
    let mut uuid = [0; 16];
    image.read_exact_at(&mut uuid, at)?;
    Ok(uuid)
}

/// Reads all blocks on several threads. `work` gets each with its number, `sink` the results in
/// order.
fn each_block<T: Send>(
    image: &dyn ReadAt,
    bytes: u64,
    parallel: Parallel,
    work: impl Fn(&[u8], u64) -> tree::Result<T> + Sync,
    mut sink: impl FnMut(T) -> tree::Result<()>,
) -> tree::Result<()> {
    let jobs = (0..bytes.div_ceil(JOB_BYTES)).map(|job| job.saturating_mul(JOB_BYTES));
    ordered(
        parallel,
        jobs,
        Vec::new,
        |buffer: &mut Vec<u8>, at| {
            let len = bytes.saturating_sub(at).min(JOB_BYTES);
            buffer.resize(to_usize(len), 0);
            image.read_exact_at(buffer, at)?;
            let blocks = (at / BLOCK_BYTES..).zip(buffer.chunks(BLOCK_LEN));
            let worked = blocks.map(|(number, block)| work(block, number));
            worked.collect::<tree::Result<Vec<T>>>()
        },
        |worked| worked.into_iter().try_for_each(&mut sink),
    )
}

/// An image, each block of which is verified when it is read.
pub(crate) struct VerifiedImage {
    image: Arc<dyn ReadAt>,
    tree: Arc<dyn ReadAt>,
    superblock: Superblock,
    levels: Levels,
    root: [u8; HASH_LEN],
    /// Verified blocks of the tree, by their number in it: at most 2 MiB.
    blocks: Cache<Vec<u8>>,
}

impl VerifiedImage {
    /// An image with its hash tree.
    ///
    /// # Errors
    /// There is no such tree, it is of another version, or does not fit the image.
    pub(crate) fn open(image: Arc<dyn ReadAt>, root: &VerityRoot) -> Result<VerifiedImage> {
        let size = image.size()?;
        let (tree, at) = match &root.file {
            Some(path) => {
                let name = || format!("open {}", text::of_host_path(path, "-"));
                let file: Arc<dyn ReadAt> = Arc::new(File::open(path).during(name)?);
                (file, root.offset.unwrap_or(0))
            }
            None => {
                let at = root.offset.map_or_else(|| appended_at(&*image, size), Ok)?;
                (Arc::clone(&image), at)
            }
        };
        let data_end = if root.file.is_some() { size } else { at };
        let superblock = Superblock::read(&*tree, at)?;
        let data_blocks = superblock.data_blocks;
        let fits = data_blocks > 0 && data_blocks <= data_end / BLOCK_BYTES;
        let levels = Levels::of(data_blocks, at).filter(|_| fits);
        let levels = levels.ok_or(Error::corrupt(
            "hash tree of dm-verity is for a larger image",
            at.saturating_add(72),
            data_blocks,
        ))?;
        let tree_bytes = tree.size()?;
        if levels.end > tree_bytes && !levels.starts.is_empty() {
            let what = "hash tree of dm-verity ends early";
            return Err(Error::corrupt(what, levels.end, tree_bytes).into());
        }
        Ok(VerifiedImage {
            image,
            tree,
            superblock,
            levels,
            root: root.hash,
            blocks: Cache::new(16, 32),
        })
    }

    /// Verifies all blocks of the image and of the tree; the number of blocks of the image.
    ///
    /// # Errors
    /// A block differs from its hash, which the error names: the first one; or it cannot be read.
    pub(crate) fn verify(&self, parallel: Parallel, progress: &dyn Progress) -> tree::Result<u64> {
        let bytes = self.data_bytes();
        progress.expect(None, Some(bytes));
        let verify = |block: &[u8], number| self.verify_block(block, number);
        each_block(&*self.image, bytes, parallel, verify, |()| {
            progress.advance(0, BLOCK_BYTES);
            Ok(())
        })?;
        Ok(self.superblock.data_blocks)
    }

    fn data_bytes(&self) -> u64 {
        self.superblock.data_blocks.saturating_mul(BLOCK_BYTES) // within the image
    }

    fn verify_block(&self, block: &[u8], number: u64) -> tree::Result<()> {
        if self.superblock.hash(block) != self.expected(0, number)? {
            let at = number.saturating_mul(BLOCK_BYTES);
            let what = "block differs from its hash in the tree of dm-verity";
            return Err(Error::corrupt(what, at, number));
        }
        Ok(())
    }

    /// The verified hash of a block: of the data for level 0, of the level below for others.
    fn expected(&self, level: usize, number: u64) -> tree::Result<[u8; HASH_LEN]> {
        let Some(&start) = self.levels.starts.get(level) else {
            return Ok(self.root);
        };
        let above = number / HASHES;
        let at = above
            .checked_mul(BLOCK_BYTES)
            .and_then(|at| at.checked_add(start));
        let at = at.ok_or(Error::Limit("a hash tree beyond 64 bits"))?;
        let block = self.blocks.find_or_make(at / BLOCK_BYTES, |old| {
            let mut block = old.unwrap_or_default();
            block.resize(BLOCK_LEN, 0);
            self.tree.read_exact_at(&mut block, at)?;
            let found = self.superblock.hash(&block);
            if found != self.expected(level.saturating_add(1), above)? {
                let is_top = level.saturating_add(1) == self.levels.starts.len();
                let what = if is_top {
                    "hash tree of dm-verity differs from the root hash"
                } else {
                    "block of the hash tree of dm-verity differs from its hash"
                };
                let got = found
                    .iter()
                    .take(8)
                    .fold(0, |sum: u64, &byte| sum << 8 | u64::from(byte));
                return Err(Error::corrupt(what, at, got));
            }
            Ok(block)
        })?;
        let from = to_usize(number % HASHES).saturating_mul(HASH_LEN);
        let hash = block.get(from..).and_then(|rest| rest.first_chunk());
        Ok(*hash.expect("a block has 128 hashes"))
    }
}

impl ReadAt for VerifiedImage {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(to_u64(buf.len()));
        if end.is_none_or(|end| end > self.data_bytes()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (mut rest, mut at) = (buf, at);
        let mut blocks = Vec::new();
        while !rest.is_empty() {
            // Whole blocks, of which a part may be wanted; below the end, which was checked.
            let first = at / BLOCK_BYTES;
            let skipped = to_usize(at % BLOCK_BYTES);
            let wanted = rest.len().saturating_add(skipped).div_ceil(BLOCK_LEN);
            let len = wanted.saturating_mul(BLOCK_LEN).min(1 << 20);
            blocks.resize(len, 0);
            (self.image).read_exact_at(&mut blocks, first.saturating_mul(BLOCK_BYTES))?;
            for (number, block) in (first..).zip(blocks.chunks(BLOCK_LEN)) {
                self.verify_block(block, number)
                    .map_err(|error| match error {
                        Error::Io(error) => error,
                        error => io::Error::new(io::ErrorKind::InvalidData, error),
                    })?;
            }
            let found = blocks.get(skipped..).unwrap_or_default();
            let len = found.len().min(rest.len());
            let (filled, behind) = rest.split_at_mut(len);
            filled.copy_from_slice(found.get(..len).unwrap_or_default());
            rest = behind;
            at = at.saturating_add(to_u64(len));
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.data_bytes())
    }
}

/// Where the superblock of a hash tree is with which an image ends.
///
/// # Errors
/// No tree ends there.
fn appended_at(image: &dyn ReadAt, size: u64) -> Result<u64> {
    let total = size / BLOCK_BYTES;
    // The tree takes more blocks the more data there is, so one number of them fits.
    let end_of = |blocks: u64| {
        let at = blocks.checked_mul(BLOCK_BYTES)?;
        Some(Levels::of(blocks, at)?.end / BLOCK_BYTES)
    };
    let (mut low, mut high) = (1, total);
    while low < high {
        let middle = low.midpoint(high);
        if end_of(middle).is_some_and(|end| end < total) {
            low = middle.saturating_add(1);
        } else {
            high = middle;
        }
    }
    let at = low.saturating_mul(BLOCK_BYTES);
    let mut signature = [0; 8];
    let is_there = end_of(low) == Some(total)
        && image.read_exact_at(&mut signature, at).is_ok()
        && &signature == b"verity\0\0";
    if !is_there {
        refuse!(
            "the image does not end with a hash tree of dm-verity; --hash-offset gives its place, --hash-tree its file"
        );
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_found_behind_each_number_of_blocks() {
        for data_blocks in [1, 2, 127, 128, 129, 16384, 16385, 16512, 2_097_153] {
            let at = data_blocks * BLOCK_BYTES;
            let end = Levels::of(data_blocks, at).unwrap().end;
            let superblock = Superblock {
                uuid: [7; 16],
                salt: vec![1, 2, 3],
                data_blocks,
            };
            let file = SparseFile {
                superblock: superblock.emit(),
                at,
                end,
            };
            assert_eq!(appended_at(&file, end).unwrap(), at, "{data_blocks}");
            assert!(appended_at(&file, end - BLOCK_BYTES).is_err());
            let read = Superblock::read(&file, at).unwrap();
            assert_eq!(read.emit(), superblock.emit());
        }
    }

    /// A superblock in zeros.
    struct SparseFile {
        superblock: Vec<u8>,
        at: u64,
        end: u64,
    }

    impl ReadAt for SparseFile {
        fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
            buf.fill(0);
            if at == self.at {
                buf.copy_from_slice(self.superblock.get(..buf.len()).unwrap());
            }
            Ok(())
        }

        fn size(&self) -> io::Result<u64> {
            Ok(self.end)
        }
    }
}
