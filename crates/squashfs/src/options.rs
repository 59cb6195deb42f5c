//! How an image is made, and what was made.

use codec::{Encoder, Settings};
use tree::{Error, ImageSummary, Result};

use crate::superblock::{BLOCK_LOG2_MAX, BLOCK_LOG2_MIN};

/// Which parts of files share blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragments {
    /// None: every file has its own blocks.
    None,
    /// Files that are smaller than a block.
    SmallFiles,
    /// Those, and what is left of larger files behind their last whole block.
    Always,
}

/// How an image is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// How data and metadata are encoded; `None` stores all as it is.
    pub compression: Option<Settings>,
    /// Bytes of a block: a power of two from 4 KiB to 1 MiB.
    pub block_bytes: u32,
    /// Which parts of files share blocks.
    pub fragments: Fragments,
    /// Whether files with equal content share it.
    pub duplicates: bool,
    /// Whether to store a table by which NFS finds inodes.
    pub exportable: bool,
    /// Whether to store extended attributes.
    pub xattrs: bool,
    /// When the image says that it was made, in seconds since 1970.
    pub mkfs_time: u32,
    /// For each file of the inventory, how early its data is stored: higher numbers first, and among equals the order of
    /// names. Empty for that order alone.
    pub priorities: Vec<i16>,
    /// Whether the end is filled with zeros up to a multiple of 4 KiB.
    pub padding: bool,
    /// Where the image begins in the output; what is before it is not touched.
    pub offset: u64,
    /// Whether blocks of a source that stores in the same way (same codec, same block size), and what else it has encoded that is
    /// a block of this image, are taken as they are, whatever the level.
    pub keep_blocks: bool,
    /// With xz, whether machine code is filtered for its processor, which the file's header tells: one attempt for each block
    /// instead of one for each filter. The settings' own filters are not tried then.
    pub filter_code: bool,
    /// Whether to leave out files that cannot be read, and list them. Otherwise the first one ends it.
    pub skip_unreadable: bool,
    /// Whether every block is decoded and compared, and the image read back, before it counts as made.
    pub verify: bool,
}

impl Default for Options {
    /// zstd at level 15, blocks of 128 KiB, as most tools do it; verified.
    fn default() -> Self {
        Options {
            compression: Some(Settings::Zstd { level: 15 }),
            block_bytes: 128 << 10,
            fragments: Fragments::SmallFiles,
            duplicates: true,
            exportable: true,
            xattrs: true,
            mkfs_time: 0,
            priorities: Vec::new(),
            padding: true,
            offset: 0,
            keep_blocks: true,
            filter_code: false,
            skip_unreadable: false,
            verify: true,
        }
    }
}

/// What was made.
#[derive(Debug, Default)]
pub struct Summary {
    /// What every format says.
    pub image: ImageSummary,
    /// Blocks that are stored as they are because encoding does not make them smaller.
    pub plain_blocks: u64,
    /// Paths of files whose time is before 1970 or after 2106; they got the nearest that there is.
    pub changed_times: Vec<Vec<u8>>,
}

/// Refuses options that no image can have.
pub(crate) fn check(options: &Options) -> Result<()> {
    let block = options.block_bytes;
    let log2 = block.trailing_zeros() as u16;
    if !block.is_power_of_two() || !(BLOCK_LOG2_MIN..=BLOCK_LOG2_MAX).contains(&log2) {
        return Err(Error::InvalidInput(
            "the block size is not a power of two from 4 KiB to 1 MiB",
        ));
    }
    if let Some(settings) = &options.compression {
        if let Settings::Xz {
            dictionary_bytes, ..
        } = *settings
        {
            let bits = dictionary_bytes.count_ones();
            let halves = dictionary_bytes & (dictionary_bytes << 1) != 0;
            if dictionary_bytes < 8192 || !(bits == 1 || (bits == 2 && halves)) {
                return Err(Error::InvalidInput(
                    "the xz dictionary is not a power of two, or one and a half, from 8 KiB on",
                ));
            }
        }
        Encoder::new(settings).map_err(|error| Error::InvalidInput(error.as_str()))?;
    }
    Ok(())
}
