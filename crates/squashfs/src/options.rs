//! Options for creating an image, and the summary of the result.

use std::collections::HashMap;

use codec::{Encoder, Settings};
use tree::edit::PackingChoice;
use tree::{Error, FileId, ImageSummary, OldImage, Result, Time, Verify, setters};

use crate::raw::flags;
use crate::read::Squashfs;
use crate::superblock::{BLOCK_LOG2_MAX, BLOCK_LOG2_MIN};

/// The flags of all parts that can be stored uncompressed.
pub(crate) const ALL_PLAIN: u16 = flags::INODES_PLAIN
    | flags::DATA_PLAIN
    | flags::FRAGMENTS_PLAIN
    | flags::XATTRS_PLAIN
    | flags::IDS_PLAIN;

/// The smallest alignment: a sector.
const ALIGN_MIN: u32 = 512;
/// The largest alignment: the largest block.
const ALIGN_MAX: u32 = 1 << 20;

/// Which parts of files share blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragments {
    /// Nothing: every file has its own blocks.
    None,
    /// Files smaller than a block.
    SmallFiles,
    /// Files smaller than a block, and the tails of larger files after their last full block.
    Always,
}

/// Options for creating an image: those of [`Options::default`], and a method for each that
/// replaces it. Codecs and levels are those of the crate `restow-codec`.
///
/// ```
/// use codec::Settings;
/// use squashfs::{Fragments, Options};
///
/// let options = Options::default()
///     .block_bytes(1 << 20)
///     .compression(Settings::Zstd { level: 19 })
///     .fragments(Fragments::Always);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How data and metadata are compressed; `None` stores everything uncompressed.
    pub compression: Option<Settings>,
    /// The parts that are nevertheless stored uncompressed: the `PLAIN` bits of
    /// [`flags`](crate::flags). As in mksquashfs, that of the inodes counts for all tables of
    /// metadata but extended attributes. Blocks that are kept from the source stay compressed.
    pub plain: u16,
    /// Size of a block in bytes: a power of two from 4 KiB to 1 MiB.
    pub block_bytes: u32,
    /// Which parts of files share blocks.
    pub fragments: Fragments,
    /// Whether to deduplicate files with equal content.
    pub duplicates: bool,
    /// Whether to store the export table, through which NFS finds inodes.
    pub exportable: bool,
    /// Whether to store extended attributes.
    pub xattrs: bool,
    /// The image's creation time, in seconds since 1970.
    pub mkfs_time: u32,
    /// Files with later modification times get this one, in seconds since 1970.
    pub epoch: Option<i64>,
    /// Maximum size of the holes of all files together, in bytes; `u64::MAX` to not look for them.
    /// The format stores four bytes for each block, in holes, too, so that a file of 8 EB without
    /// any data would take terabytes.
    pub sparse_max: u64,
    /// For each file of the inventory, its sort priority: data with higher numbers is stored first,
    /// equal numbers in the order of names. Empty to store everything in the order of names.
    pub priorities: Vec<i16>,
    /// The files that are stored in another way than the others.
    pub packing: HashMap<FileId, PackingChoice>,
    /// Whether to pad the image with zeros.
    pub padding: bool,
    /// The padded image has a multiple of this many bytes.
    pub pad_bytes: u32,
    /// The data of each file, and each fragment block, begins at a multiple of this many bytes of
    /// the output: a power of two from 512 to 1 MiB, or 1 to leave no gaps. The blocks of one file
    /// follow each other: the format has no place to say where each of them is.
    pub align_bytes: u32,
    /// Where the first data begins at the earliest, in bytes of the image: another format can have
    /// its superblock before it.
    pub data_begin: u64,
    /// Offset of the image in the output; bytes before it are left untouched.
    pub offset: u64,
    /// Whether to copy blocks from a source with the same codec and block size, and any other
    /// compressed data of the source that forms a block of this image, at any level.
    pub keep_blocks: bool,
    /// An older image with the same codec and block size, whose blocks are kept where their content
    /// is unchanged. Fragment blocks are kept as a whole while at least three quarters of them are
    /// still shown, as far as the image becomes little larger by that.
    pub old: Option<OldImage>,
    /// Whether to keep only blocks that the image would have without the old one, too: no fragment
    /// block with tails of files that changed, and nothing at all if a sample of the old blocks was
    /// not made with these settings.
    pub reuse_exact: bool,
    /// With xz, whether to filter machine code for its architecture, which the file's header
    /// identifies: one attempt for each block instead of one for each filter. The filters in the
    /// settings are then not tried.
    pub filter_code: bool,
    /// Whether to skip and list files that cannot be read. Otherwise the first one is an error.
    pub skip_unreadable: bool,
    /// The data to decode again before the image counts as finished. Unless it is
    /// [`Verify::Nothing`], the image is also read back.
    pub verify: Verify,
}

impl Default for Options {
    /// zstd at level 15, blocks of 128 KiB, as most tools use; verified.
    fn default() -> Self {
        Options {
            compression: Some(Settings::Zstd { level: 15 }),
            plain: 0,
            block_bytes: 128 << 10,
            fragments: Fragments::SmallFiles,
            duplicates: true,
            exportable: true,
            xattrs: true,
            mkfs_time: 0,
            epoch: None,
            sparse_max: 1 << 40,
            priorities: Vec::new(),
            packing: HashMap::new(),
            padding: true,
            pad_bytes: 4096,
            align_bytes: 1,
            data_begin: 0,
            offset: 0,
            keep_blocks: true,
            old: None,
            reuse_exact: false,
            filter_code: false,
            skip_unreadable: false,
            verify: Verify::Encoded,
        }
    }
}

setters!(Options {
    compression: impl Into<Option<Settings>>,
    plain: u16,
    block_bytes: u32,
    fragments: Fragments,
    duplicates: bool,
    exportable: bool,
    xattrs: bool,
    mkfs_time: u32,
    epoch: impl Into<Option<i64>>,
    sparse_max: u64,
    priorities: Vec<i16>,
    packing: HashMap<FileId, PackingChoice>,
    padding: bool,
    pad_bytes: u32,
    align_bytes: u32,
    data_begin: u64,
    offset: u64,
    keep_blocks: bool,
    old: impl Into<Option<OldImage>>,
    reuse_exact: bool,
    filter_code: bool,
    skip_unreadable: bool,
    verify: Verify,
});

impl Options {
    /// The options with which an image like this one is made, as far as it records them: the
    /// compression, the block size, the fragments, duplicates, and the export table.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for lzma, which is only read.
    pub fn like(image: &Squashfs) -> Result<Options> {
        const LZMA: Error = Error::Unsupported("writing lzma, which Linux does not read");
        let superblock = image.superblock();
        let has = |flag: u16| superblock.flags & flag != 0;
        let fragments = if has(flags::NO_FRAGMENTS) {
            Fragments::None
        } else if has(flags::ALWAYS_FRAGMENTS) {
            Fragments::Always
        } else {
            Fragments::SmallFiles
        };
        Ok(Options::default()
            .compression(image.compressor().settings().ok_or(LZMA)?)
            .plain(superblock.flags & ALL_PLAIN)
            .block_bytes(superblock.block_bytes)
            .fragments(fragments)
            .duplicates(has(flags::DUPLICATES))
            .exportable(has(flags::EXPORTABLE)))
    }

    /// Whether blocks of a file with this flag are stored uncompressed.
    pub(crate) fn is_plain(&self, file: Option<FileId>, flag: u16) -> bool {
        let packing = file.and_then(|file| self.packing.get(&file));
        let choice = packing.and_then(|packing| packing.plain);
        choice.unwrap_or(self.plain & flag != 0)
    }

    /// A modification time as far as the epoch allows it.
    pub(crate) fn clamped(&self, time: Time) -> Time {
        match self.epoch {
            Some(epoch) if time.seconds >= epoch => Time {
                seconds: epoch,
                nanoseconds: 0,
            },
            _ => time,
        }
    }
}

/// Summary of the image that was created.
#[derive(Debug, Default)]
pub struct CreateSummary {
    /// The part common to all formats.
    pub image: ImageSummary,
    /// Number of blocks stored uncompressed because compression does not make them smaller.
    pub plain_blocks: u64,
    /// Paths of files whose time is before 1970 or after 2106; they get the nearest time that the
    /// format can store.
    pub changed_times: Vec<Vec<u8>>,
    /// Bytes of the image, without padding.
    pub used_bytes: u64,
    /// Number of fragment blocks.
    pub fragments: u64,
    /// The table of inodes.
    pub inode_table: TableBytes,
    /// The table of directories.
    pub directory_table: TableBytes,
    /// The table of extended attributes, if there are any.
    pub xattr_table: Option<TableBytes>,
}

/// The size of a table in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableBytes {
    /// In the image.
    pub stored: u64,
    /// Before compression.
    pub content: u64,
}

/// Rejects options that no image can have.
pub(crate) fn check(options: &Options) -> Result<()> {
    let block = options.block_bytes;
    let log2 = block.trailing_zeros() as u16;
    if !block.is_power_of_two() || !(BLOCK_LOG2_MIN..=BLOCK_LOG2_MAX).contains(&log2) {
        return Err(Error::InvalidInput(
            "the block size is not a power of two from 4 KiB to 1 MiB",
        ));
    }
    let align = options.align_bytes;
    if align != 1 && !(align.is_power_of_two() && (ALIGN_MIN..=ALIGN_MAX).contains(&align)) {
        return Err(Error::InvalidInput(
            "the alignment is not a power of two from 512 bytes to 1 MiB",
        ));
    }
    if options.plain & !ALL_PLAIN != 0 {
        return Err(Error::InvalidInput(
            "the parts to store uncompressed have bits of other flags",
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
                    "the xz dictionary is not a power of two, or one and a half times that, of at least 8 KiB",
                ));
            }
        }
        if matches!(settings, Settings::Zstd { level } if !(1..=22).contains(level)) {
            return Err(Error::InvalidInput(
                "zstd in SquashFS has levels 1 to 22: squashfs-tools 4.5 cannot read the options of an image with a negative one",
            ));
        }
        Encoder::new(settings).map_err(|error| Error::InvalidInput(error.as_str()))?;
    }
    Ok(())
}
