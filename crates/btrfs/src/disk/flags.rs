//! Flag bits of records, as in the kernel's `linux/btrfs_tree.h`.

/// Bits of `incompat_flags` in the superblock: a reader that lacks one of these features cannot
/// read the file system.
pub mod incompat {
    /// Back references of the second revision; set in every file system since 2009.
    pub const MIXED_BACKREF: u64 = 1;
    /// The default subvolume is not the top level.
    pub const DEFAULT_SUBVOL: u64 = 2;
    /// Chunks may hold both data and metadata.
    pub const MIXED_GROUPS: u64 = 4;
    /// There are extents compressed with LZO.
    pub const COMPRESS_LZO: u64 = 8;
    /// There are extents compressed with zstd.
    pub const COMPRESS_ZSTD: u64 = 0x10;
    /// Tree blocks may be larger than a page.
    pub const BIG_METADATA: u64 = 0x20;
    /// A file may have more names in a directory than fit in one item.
    pub const EXTENDED_IREF: u64 = 0x40;
    /// There are RAID5 or RAID6 chunks.
    pub const RAID56: u64 = 0x80;
    /// Extent items of tree blocks have the level in their key.
    pub const SKINNY_METADATA: u64 = 0x100;
    /// Holes in files have no items.
    pub const NO_HOLES: u64 = 0x200;
    /// Tree blocks carry a different UUID than the one shown to users.
    pub const METADATA_UUID: u64 = 0x400;
    /// There are RAID1C3 or RAID1C4 chunks.
    pub const RAID1C34: u64 = 0x800;
    /// For zoned devices.
    pub const ZONED: u64 = 0x1000;
    /// The unfinished second version of the extent tree.
    pub const EXTENT_TREE_V2: u64 = 0x2000;
    /// The places of data stripes are recorded in a tree of their own.
    pub const RAID_STRIPE_TREE: u64 = 0x4000;
    /// Moved block groups keep their addresses, which a tree maps to the new ones.
    pub const REMAP_TREE: u64 = 0x2_0000;
    /// Extents record the subvolume that created them.
    pub const SIMPLE_QUOTA: u64 = 0x1_0000;
}

/// Bits of `compat_ro_flags` in the superblock: a reader that lacks one of these features must not
/// write.
pub mod compat_ro {
    /// There is a free space tree.
    pub const FREE_SPACE_TREE: u64 = 1;
    /// The free space tree is valid.
    pub const FREE_SPACE_TREE_VALID: u64 = 2;
    /// Files may have fs-verity items.
    pub const VERITY: u64 = 4;
    /// Block group items have a tree of their own.
    pub const BLOCK_GROUP_TREE: u64 = 8;
}

/// Bits of the type of a chunk and of a block group.
pub mod block_group {
    /// Holds the content of files.
    pub const DATA: u64 = 1;
    /// Holds the chunk tree.
    pub const SYSTEM: u64 = 2;
    /// Holds all other trees.
    pub const METADATA: u64 = 4;
    /// Striped over all devices.
    pub const RAID0: u64 = 8;
    /// Copies on two devices.
    pub const RAID1: u64 = 0x10;
    /// Two copies on one device.
    pub const DUP: u64 = 0x20;
    /// Striped over pairs of devices.
    pub const RAID10: u64 = 0x40;
    /// Striped with one parity.
    pub const RAID5: u64 = 0x80;
    /// Striped with two parities.
    pub const RAID6: u64 = 0x100;
    /// Copies on three devices.
    pub const RAID1C3: u64 = 0x200;
    /// Copies on four devices.
    pub const RAID1C4: u64 = 0x400;
    /// The bits for the kind of data in a chunk.
    pub const TYPE_MASK: u64 = DATA | SYSTEM | METADATA;
    /// The bits for how it is spread over devices; all clear means "single".
    pub const PROFILE_MASK: u64 = RAID0 | RAID1 | DUP | RAID10 | RAID5 | RAID6 | RAID1C3 | RAID1C4;
}

/// Bits of the flags of an inode.
pub mod inode_flags {
    /// Content has no checksums.
    pub const NODATASUM: u64 = 1;
    /// Content is overwritten in place.
    pub const NODATACOW: u64 = 2;
    /// Never written to.
    pub const READONLY: u64 = 4;
    /// Content is not compressed.
    pub const NOCOMPRESS: u64 = 8;
    /// Content was preallocated.
    pub const PREALLOC: u64 = 0x10;
    /// Every write reaches the disk before it returns.
    pub const SYNC: u64 = 0x20;
    /// The file cannot be changed.
    pub const IMMUTABLE: u64 = 0x40;
    /// The file can only be appended to.
    pub const APPEND: u64 = 0x80;
    /// Skipped by backups.
    pub const NODUMP: u64 = 0x100;
    /// Reading does not change the access time.
    pub const NOATIME: u64 = 0x200;
    /// Changes of the directory reach the disk before they return.
    pub const DIRSYNC: u64 = 0x400;
    /// Content is compressed.
    pub const COMPRESS: u64 = 0x800;
    /// For the inode in a root item: its flags are valid.
    pub const ROOT_ITEM_INIT: u64 = 1 << 31;
    /// All defined bits.
    pub const ALL: u64 = 0xfff | ROOT_ITEM_INIT;
    /// In the upper half: the file has fs-verity items.
    pub const RO_VERITY: u64 = 1 << 32;
}

/// `FS_*_FL` of linux/fs.h: the file attributes that control how content is stored.
pub(crate) mod attribute {
    /// Content is not compressed.
    pub(crate) const NOCOMP: u32 = tree::FileAttributes::NOT_COMPRESSED;
    /// Content is overwritten in place: it has neither compression nor checksums.
    pub(crate) const NOCOW: u32 = tree::FileAttributes::NO_COW;
    /// Content has neither checksums nor compression.
    pub(crate) const NOSUM: u32 = tree::FileAttributes::NO_CHECKSUMS;
}
