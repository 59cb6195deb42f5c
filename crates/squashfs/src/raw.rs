//! What lies on disk: every record of SquashFS 4.0, as in the kernel's `fs/squashfs/squashfs_fs.h`.
//!
//! All numbers are little-endian and unaligned. Nothing here is checked; the noun's own file does that.

use zerocopy::little_endian::{I16, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `hsqs`, the first four bytes of an image.
pub(crate) const MAGIC: u32 = 0x7371_7368;

/// Content of a metadata block, except for the last of a table.
pub(crate) const METADATA_BYTES: usize = 8192;
/// The longest that a metadata block is when stored, with its header.
pub(crate) const STORED_METADATA_MAX: usize = 2 + METADATA_BYTES;
/// In the header of a metadata block: the content is stored as it is.
pub(crate) const METADATA_PLAIN: u16 = 1 << 15;
/// In the size of a data or fragment block: the content is stored as it is.
pub(crate) const BLOCK_PLAIN: u32 = 1 << 24;
/// A table that is not there.
pub(crate) const NO_TABLE: u64 = u64::MAX;
/// A file without a fragment.
pub(crate) const NO_FRAGMENT: u32 = u32::MAX;
/// An inode without extended attributes.
pub(crate) const NO_XATTRS: u32 = u32::MAX;
/// What a directory's stored size exceeds the length of its listing by; it stands for `.` and `..`.
pub(crate) const LISTING_EXTRA: u32 = 3;
/// Entries after one directory header.
pub(crate) const RUN_ENTRIES_MAX: u32 = 256;
/// Bytes of a name.
pub(crate) const NAME_BYTES_MAX: usize = 256;

/// Bits of `Superblock::flags`.
pub mod flags {
    /// The inode table is stored as it is.
    pub const INODES_PLAIN: u16 = 1;
    /// Data blocks are stored as they are.
    pub const DATA_PLAIN: u16 = 2;
    /// Fragment blocks are stored as they are.
    pub const FRAGMENTS_PLAIN: u16 = 8;
    /// There are no fragments.
    pub const NO_FRAGMENTS: u16 = 0x10;
    /// Tails of files that are longer than a block are in fragments too.
    pub const ALWAYS_FRAGMENTS: u16 = 0x20;
    /// Equal files share their data.
    pub const DUPLICATES: u16 = 0x40;
    /// There is an export table.
    pub const EXPORTABLE: u16 = 0x80;
    /// Extended attributes are stored as they are.
    pub const XATTRS_PLAIN: u16 = 0x100;
    /// There are no extended attributes.
    pub const NO_XATTRS: u16 = 0x200;
    /// The codec's options follow the superblock.
    pub const OPTIONS: u16 = 0x400;
    /// The id table is stored as it is.
    pub const IDS_PLAIN: u16 = 0x800;
}

/// `struct squashfs_super_block`: the first record of an image.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Superblock {
    /// [`MAGIC`].
    pub(crate) s_magic: U32,
    /// Inodes, numbered from 1 on.
    pub(crate) inodes: U32,
    /// When the image was made, in seconds since 1970.
    pub(crate) mkfs_time: U32,
    /// Bytes of a data block: a power of two from 4 KiB to 1 MiB.
    pub(crate) block_size: U32,
    /// Fragment blocks.
    pub(crate) fragments: U32,
    /// The codec: 1 gzip, 2 lzma, 3 lzo, 4 xz, 5 lz4, 6 zstd.
    pub(crate) compression: U16,
    /// Log2 of `block_size`.
    pub(crate) block_log: U16,
    /// See [`flags`].
    pub(crate) flags: U16,
    /// Entries of the id table.
    pub(crate) no_ids: U16,
    /// 4.
    pub(crate) s_major: U16,
    /// 0.
    pub(crate) s_minor: U16,
    /// Reference of the root directory's inode.
    pub(crate) root_inode: U64,
    /// Bytes of the image without padding.
    pub(crate) bytes_used: U64,
    /// Where the id table's list is.
    pub(crate) id_table_start: U64,
    /// Where the xattr table's header is.
    pub(crate) xattr_id_table_start: U64,
    /// Where the inode table is.
    pub(crate) inode_table_start: U64,
    /// Where the directory table is.
    pub(crate) directory_table_start: U64,
    /// Where the fragment table's list is.
    pub(crate) fragment_table_start: U64,
    /// Where the export table's list is.
    pub(crate) lookup_table_start: U64,
}
const _: () = assert!(size_of::<Superblock>() == 96);

/// `struct squashfs_fragment_entry`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FragmentEntry {
    /// Where the block is in the image.
    pub(crate) start_block: U64,
    /// Stored bytes, and [`BLOCK_PLAIN`].
    pub(crate) size: U32,
    /// 0.
    pub(crate) unused: U32,
}
const _: () = assert!(size_of::<FragmentEntry>() == 16);

/// `struct squashfs_xattr_id_table`: what the superblock's xattr table position points at.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct XattrTableHeader {
    /// Where the names and values are in the image.
    pub(crate) xattr_table_start: U64,
    /// How many sets there are.
    pub(crate) xattr_ids: U32,
    /// 0.
    pub(crate) unused: U32,
}
const _: () = assert!(size_of::<XattrTableHeader>() == 16);

/// `struct squashfs_xattr_id`: one set of attributes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct XattrId {
    /// Reference of the first name.
    pub(crate) xattr: U64,
    /// How many attributes.
    pub(crate) count: U32,
    /// Bytes that the full names (each with a NUL) and the values need.
    pub(crate) size: U32,
}
const _: () = assert!(size_of::<XattrId>() == 16);

/// `struct squashfs_xattr_entry`: before each name.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct XattrEntry {
    /// Namespace, and [`XATTR_VALUE_ELSEWHERE`].
    pub(crate) kind: U16,
    /// Bytes of the name without its namespace.
    pub(crate) size: U16,
}
const _: () = assert!(size_of::<XattrEntry>() == 4);

/// In [`XattrEntry::kind`]: instead of the value there is a reference to it.
pub(crate) const XATTR_VALUE_ELSEWHERE: u16 = 0x100;

/// `struct squashfs_base_inode`: begins every inode.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct InodeHeader {
    /// 1 to 7 basic, 8 to 14 extended: directory, file, symlink, block device, character device, fifo, socket.
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
const _: () = assert!(size_of::<InodeHeader>() == 16);

/// The rest of `struct squashfs_dir_inode`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Directory {
    /// Where the listing's first metadata block is, from the directory table's start.
    pub(crate) start_block: U32,
    /// Subdirectories and two.
    pub(crate) nlink: U32,
    /// The listing's length and [`LISTING_EXTRA`].
    pub(crate) file_size: U16,
    /// Where the listing begins in its first block.
    pub(crate) offset: U16,
    /// Inode number of the directory that this is in; one more than all inodes for the root.
    pub(crate) parent_inode: U32,
}
const _: () = assert!(size_of::<Directory>() == 16);

/// The rest of `struct squashfs_ldir_inode`; [`DirectoryIndex`] records follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ExtendedDirectory {
    /// As in [`Directory`].
    pub(crate) nlink: U32,
    /// As in [`Directory`].
    pub(crate) file_size: U32,
    /// As in [`Directory`].
    pub(crate) start_block: U32,
    /// As in [`Directory`].
    pub(crate) parent_inode: U32,
    /// Records of the index.
    pub(crate) i_count: U16,
    /// As in [`Directory`].
    pub(crate) offset: U16,
    /// Index of the attribute set.
    pub(crate) xattr: U32,
}
const _: () = assert!(size_of::<ExtendedDirectory>() == 24);

/// `struct squashfs_dir_index`; the name follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DirectoryIndex {
    /// Offset in the listing of the header before the entry of that name.
    pub(crate) index: U32,
    /// The metadata block of that header, from the directory table's start.
    pub(crate) start_block: U32,
    /// Bytes of the name, less one.
    pub(crate) size: U32,
}
const _: () = assert!(size_of::<DirectoryIndex>() == 12);

/// The rest of `struct squashfs_reg_inode`; the block sizes follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct File {
    /// Where the first block is in the image.
    pub(crate) start_block: U32,
    /// Index of the fragment that holds the tail, or [`NO_FRAGMENT`].
    pub(crate) fragment: U32,
    /// Where the tail begins in the fragment's content.
    pub(crate) offset: U32,
    /// Bytes of the content.
    pub(crate) file_size: U32,
}
const _: () = assert!(size_of::<File>() == 16);

/// The rest of `struct squashfs_lreg_inode`; the block sizes follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ExtendedFile {
    /// As in [`File`].
    pub(crate) start_block: U64,
    /// As in [`File`].
    pub(crate) file_size: U64,
    /// Bytes in holes.
    pub(crate) sparse: U64,
    /// Names.
    pub(crate) nlink: U32,
    /// As in [`File`].
    pub(crate) fragment: U32,
    /// As in [`File`].
    pub(crate) offset: U32,
    /// Index of the attribute set.
    pub(crate) xattr: U32,
}
const _: () = assert!(size_of::<ExtendedFile>() == 40);

/// The rest of `struct squashfs_symlink_inode`; the target follows, and for the extended one a U32, the index of the
/// attribute set.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Symlink {
    /// Names.
    pub(crate) nlink: U32,
    /// Bytes of the target.
    pub(crate) symlink_size: U32,
}
const _: () = assert!(size_of::<Symlink>() == 8);

/// The rest of `struct squashfs_dev_inode`; for the extended one a U32 follows, the index of the attribute set.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Device {
    /// Names.
    pub(crate) nlink: U32,
    /// As the kernel's `new_encode_dev` packs it.
    pub(crate) rdev: U32,
}
const _: () = assert!(size_of::<Device>() == 8);

/// The rest of `struct squashfs_ipc_inode` (fifo, socket); for the extended one a U32 follows, as above.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Ipc {
    /// Names.
    pub(crate) nlink: U32,
}
const _: () = assert!(size_of::<Ipc>() == 4);

/// `struct squashfs_dir_header`: before each run of entries.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DirectoryHeader {
    /// Entries of the run, less one.
    pub(crate) count: U32,
    /// The metadata block that all their inodes begin in, from the inode table's start.
    pub(crate) start_block: U32,
    /// What their inode numbers are relative to.
    pub(crate) inode_number: U32,
}
const _: () = assert!(size_of::<DirectoryHeader>() == 12);

/// `struct squashfs_dir_entry`; the name follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DirectoryEntry {
    /// Where the inode begins in its metadata block.
    pub(crate) offset: U16,
    /// The inode's number, less the header's.
    pub(crate) inode_number: I16,
    /// The basic inode type.
    pub(crate) kind: U16,
    /// Bytes of the name, less one.
    pub(crate) size: U16,
}
const _: () = assert!(size_of::<DirectoryEntry>() == 8);

/// gzip's options.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct GzipOptions {
    /// 1 to 9.
    pub(crate) compression_level: U32,
    /// Log2 of the window, 8 to 15.
    pub(crate) window_size: U16,
    /// One bit per strategy that was tried.
    pub(crate) strategy: U16,
}
const _: () = assert!(size_of::<GzipOptions>() == 8);

/// lzo's options.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LzoOptions {
    /// 0 lzo1x_1, 1 lzo1x_1_11, 2 lzo1x_1_12, 3 lzo1x_1_15, 4 lzo1x_999.
    pub(crate) algorithm: U32,
    /// 1 to 9 for lzo1x_999, otherwise 0.
    pub(crate) compression_level: U32,
}
const _: () = assert!(size_of::<LzoOptions>() == 8);

/// xz's options.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct XzOptions {
    /// Bytes of the dictionary: a power of two, or one and a half.
    pub(crate) dictionary_size: U32,
    /// One bit per filter that was tried.
    pub(crate) flags: U32,
}
const _: () = assert!(size_of::<XzOptions>() == 8);

/// lz4's options; newer tools append a U32 with the level or acceleration.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Lz4Options {
    /// 1: raw blocks.
    pub(crate) version: U32,
    /// Bit 0: made by the slow encoder.
    pub(crate) flags: U32,
}
const _: () = assert!(size_of::<Lz4Options>() == 8);

/// zstd's options.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ZstdOptions {
    /// 1 to 22.
    pub(crate) compression_level: U32,
}
const _: () = assert!(size_of::<ZstdOptions>() == 4);
