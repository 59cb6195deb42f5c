//! The on-disk records of SquashFS 4.0, as in the kernel's `fs/squashfs/squashfs_fs.h`.
//!
//! All numbers are little-endian and unaligned. Nothing is validated here; the file for each
//! structure does that.

use tree::records;
use zerocopy::little_endian::{I16, U16, U32, U64};

/// `hsqs`, the first four bytes of an image.
pub(crate) const MAGIC: u32 = 0x7371_7368;

/// Length of the content of a metadata block, except for the last one of a table.
pub(crate) const METADATA_BYTES: usize = 8192;
/// Maximum stored size of a metadata block, including its header.
pub(crate) const STORED_METADATA_MAX: usize = 2 + METADATA_BYTES;
/// In the header of a metadata block: the content is stored uncompressed.
pub(crate) const METADATA_PLAIN: u16 = 1 << 15;
/// In the size of a data or fragment block: the content is stored uncompressed.
pub(crate) const BLOCK_PLAIN: u32 = 1 << 24;
/// The position of a table that does not exist.
pub(crate) const NO_TABLE: u64 = u64::MAX;
/// The fragment index of a file without a fragment.
pub(crate) const NO_FRAGMENT: u32 = u32::MAX;
/// The attribute set of an inode without extended attributes.
pub(crate) const NO_XATTRS: u32 = u32::MAX;
/// A directory's stored size exceeds the length of its listing by this much; it accounts for `.`
/// and `..`.
pub(crate) const LISTING_EXTRA: u32 = 3;
/// Maximum number of entries after one directory header.
pub(crate) const RUN_ENTRIES_MAX: u32 = 256;
/// Maximum length of a name in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 256;

/// Bits of `Superblock::flags`.
pub mod flags {
    /// The inode table is stored uncompressed.
    pub const INODES_PLAIN: u16 = 1;
    /// Data blocks are stored uncompressed.
    pub const DATA_PLAIN: u16 = 2;
    /// Fragment blocks are stored uncompressed.
    pub const FRAGMENTS_PLAIN: u16 = 8;
    /// There are no fragments.
    pub const NO_FRAGMENTS: u16 = 0x10;
    /// Tails of files longer than a block are in fragments too.
    pub const ALWAYS_FRAGMENTS: u16 = 0x20;
    /// Duplicate files share their data.
    pub const DUPLICATES: u16 = 0x40;
    /// There is an export table.
    pub const EXPORTABLE: u16 = 0x80;
    /// Extended attributes are stored uncompressed.
    pub const XATTRS_PLAIN: u16 = 0x100;
    /// There are no extended attributes.
    pub const NO_XATTRS: u16 = 0x200;
    /// The compressor options follow the superblock.
    pub const OPTIONS: u16 = 0x400;
    /// The id table is stored uncompressed.
    pub const IDS_PLAIN: u16 = 0x800;
}

records! {
    /// `struct squashfs_super_block`: the first record of an image.
    pub(crate) struct Superblock[96] {
        /// [`MAGIC`].
        pub(crate) s_magic: U32,
        /// Number of inodes; inode numbers start at 1.
        pub(crate) inodes: U32,
        /// Creation time of the image, in seconds since 1970.
        pub(crate) mkfs_time: U32,
        /// Size of a data block in bytes: a power of two from 4 KiB to 1 MiB.
        pub(crate) block_size: U32,
        /// Number of fragment blocks.
        pub(crate) fragments: U32,
        /// The codec: 1 gzip, 2 lzma, 3 lzo, 4 xz, 5 lz4, 6 zstd.
        pub(crate) compression: U16,
        /// Log2 of `block_size`.
        pub(crate) block_log: U16,
        /// See [`flags`].
        pub(crate) flags: U16,
        /// Number of entries of the id table.
        pub(crate) no_ids: U16,
        /// 4.
        pub(crate) s_major: U16,
        /// 0.
        pub(crate) s_minor: U16,
        /// Reference of the root directory's inode.
        pub(crate) root_inode: U64,
        /// Length of the image in bytes, without padding.
        pub(crate) bytes_used: U64,
        /// Position of the id table's list.
        pub(crate) id_table_start: U64,
        /// Position of the xattr table's header.
        pub(crate) xattr_id_table_start: U64,
        /// Position of the inode table.
        pub(crate) inode_table_start: U64,
        /// Position of the directory table.
        pub(crate) directory_table_start: U64,
        /// Position of the fragment table's list.
        pub(crate) fragment_table_start: U64,
        /// Position of the export table's list.
        pub(crate) lookup_table_start: U64,
    }

    /// `struct squashfs_fragment_entry`.
    pub(crate) struct FragmentEntry[16] {
        /// Position of the block in the image.
        pub(crate) start_block: U64,
        /// Stored size, and [`BLOCK_PLAIN`].
        pub(crate) size: U32,
        /// 0.
        pub(crate) unused: U32,
    }

    /// `struct squashfs_xattr_id_table`: the header of the xattr table, which the superblock points
    /// to.
    pub(crate) struct XattrTableHeader[16] {
        /// Position of the names and values in the image.
        pub(crate) xattr_table_start: U64,
        /// Number of sets.
        pub(crate) xattr_ids: U32,
        /// 0.
        pub(crate) unused: U32,
    }

    /// `struct squashfs_xattr_id`: one set of attributes.
    pub(crate) struct XattrId[16] {
        /// Reference of the first name.
        pub(crate) xattr: U64,
        /// Number of attributes.
        pub(crate) count: U32,
        /// Total length of the full names (each with a NUL) and the values.
        pub(crate) size: U32,
    }

    /// `struct squashfs_xattr_entry`: precedes each name.
    pub(crate) struct XattrEntry[4] {
        /// Namespace, and [`XATTR_VALUE_ELSEWHERE`].
        pub(crate) kind: U16,
        /// Length of the name without its namespace, in bytes.
        pub(crate) size: U16,
    }
}

/// In [`XattrEntry::kind`]: a reference to the value is stored instead of the value.
pub(crate) const XATTR_VALUE_ELSEWHERE: u16 = 0x100;

records! {
    /// `struct squashfs_base_inode`: starts every inode.
    pub(crate) struct InodeHeader[16] {
        /// 1 to 7 basic, 8 to 14 extended: directory, file, symlink, block device, character
        /// device, fifo, socket.
        pub(crate) inode_type: U16,
        /// The low twelve bits of the mode.
        pub(crate) mode: U16,
        /// Index into the id table.
        pub(crate) uid: U16,
        /// Index into the id table.
        pub(crate) guid: U16,
        /// Seconds since 1970.
        pub(crate) mtime: U32,
        /// 1 or more.
        pub(crate) inode_number: U32,
    }

    /// The rest of `struct squashfs_dir_inode`.
    pub(crate) struct DirInode[16] {
        /// The listing's first metadata block, relative to the start of the directory table.
        pub(crate) start_block: U32,
        /// Number of subdirectories plus two.
        pub(crate) nlink: U32,
        /// The listing's length plus [`LISTING_EXTRA`].
        pub(crate) file_size: U16,
        /// Offset of the listing in its first block.
        pub(crate) offset: U16,
        /// Inode number of the parent directory; for the root, the number of inodes plus one.
        pub(crate) parent_inode: U32,
    }

    /// The rest of `struct squashfs_ldir_inode`; [`DirectoryIndex`] records follow.
    pub(crate) struct LongDirInode[24] {
        /// As in [`DirInode`].
        pub(crate) nlink: U32,
        /// As in [`DirInode`].
        pub(crate) file_size: U32,
        /// As in [`DirInode`].
        pub(crate) start_block: U32,
        /// As in [`DirInode`].
        pub(crate) parent_inode: U32,
        /// Number of index records.
        pub(crate) i_count: U16,
        /// As in [`DirInode`].
        pub(crate) offset: U16,
        /// Index of the attribute set.
        pub(crate) xattr: U32,
    }

    /// `struct squashfs_dir_index`; the name follows.
    pub(crate) struct DirectoryIndex[12] {
        /// Offset in the listing of the header that precedes the entry with this name.
        pub(crate) index: U32,
        /// The metadata block of that header, relative to the start of the directory table.
        pub(crate) start_block: U32,
        /// Length of the name in bytes, minus one.
        pub(crate) size: U32,
    }

    /// The rest of `struct squashfs_reg_inode`; the block sizes follow.
    pub(crate) struct RegInode[16] {
        /// Position of the first block in the image.
        pub(crate) start_block: U32,
        /// Index of the fragment that holds the tail, or [`NO_FRAGMENT`].
        pub(crate) fragment: U32,
        /// Offset of the tail in the fragment's content.
        pub(crate) offset: U32,
        /// Length of the content in bytes.
        pub(crate) file_size: U32,
    }

    /// The rest of `struct squashfs_lreg_inode`; the block sizes follow.
    pub(crate) struct LongRegInode[40] {
        /// As in [`RegInode`].
        pub(crate) start_block: U64,
        /// As in [`RegInode`].
        pub(crate) file_size: U64,
        /// Bytes in holes.
        pub(crate) sparse: U64,
        /// Number of names.
        pub(crate) nlink: U32,
        /// As in [`RegInode`].
        pub(crate) fragment: U32,
        /// As in [`RegInode`].
        pub(crate) offset: U32,
        /// Index of the attribute set.
        pub(crate) xattr: U32,
    }

    /// The rest of `struct squashfs_symlink_inode`; the target follows and, in the extended form, a
    /// U32 with the index of the attribute set.
    pub(crate) struct SymlinkInode[8] {
        /// Number of names.
        pub(crate) nlink: U32,
        /// Length of the target in bytes.
        pub(crate) symlink_size: U32,
    }

    /// The rest of `struct squashfs_dev_inode`; in the extended form, a U32 with the index of the
    /// attribute set follows.
    pub(crate) struct DevInode[8] {
        /// Number of names.
        pub(crate) nlink: U32,
        /// Packed like the kernel's `new_encode_dev`.
        pub(crate) rdev: U32,
    }

    /// The rest of `struct squashfs_ipc_inode` (fifo, socket); in the extended form, a U32 follows
    /// as above.
    pub(crate) struct IpcInode[4] {
        /// Number of names.
        pub(crate) nlink: U32,
    }

    /// `struct squashfs_dir_header`: precedes each run of entries.
    pub(crate) struct DirectoryHeader[12] {
        /// Number of entries in the run, minus one.
        pub(crate) count: U32,
        /// The metadata block in which all their inodes start, relative to the start of the inode
        /// table.
        pub(crate) start_block: U32,
        /// The base of their inode numbers.
        pub(crate) inode_number: U32,
    }

    /// `struct squashfs_dir_entry`; the name follows.
    pub(crate) struct DirectoryEntry[8] {
        /// Offset of the inode in its metadata block.
        pub(crate) offset: U16,
        /// The inode's number, relative to the header's.
        pub(crate) inode_number: I16,
        /// The basic inode type.
        pub(crate) kind: U16,
        /// Length of the name in bytes, minus one.
        pub(crate) size: U16,
    }

    /// gzip's options.
    pub(crate) struct GzipOptions[8] {
        /// 1 to 9.
        pub(crate) compression_level: U32,
        /// Log2 of the window size, 8 to 15.
        pub(crate) window_size: U16,
        /// One bit for each strategy that was tried.
        pub(crate) strategy: U16,
    }

    /// lzo's options.
    pub(crate) struct LzoOptions[8] {
        /// 0 lzo1x_1, 1 lzo1x_1_11, 2 lzo1x_1_12, 3 lzo1x_1_15, 4 lzo1x_999.
        pub(crate) algorithm: U32,
        /// 1 to 9 for lzo1x_999, otherwise 0.
        pub(crate) compression_level: U32,
    }

    /// xz's options.
    pub(crate) struct XzOptions[8] {
        /// Dictionary size in bytes: a power of two, or one and a half times that.
        pub(crate) dictionary_size: U32,
        /// One bit for each filter that was tried.
        pub(crate) flags: U32,
    }

    /// lz4's options; newer tools append a U32 with the level or acceleration.
    pub(crate) struct Lz4Options[8] {
        /// 1: raw blocks.
        pub(crate) version: U32,
        /// Bit 0: the high-compression encoder was used.
        pub(crate) flags: U32,
    }

    /// zstd's options.
    pub(crate) struct ZstdOptions[4] {
        /// 1 to 22.
        pub(crate) compression_level: U32,
    }
}
