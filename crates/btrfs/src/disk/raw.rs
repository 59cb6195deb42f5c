//! The on-disk records of btrfs, as in the kernel's `linux/btrfs_tree.h`.
//!
//! All numbers are little-endian and unaligned. Nothing is validated here; the file for each
//! structure does that.

use tree::records;
use zerocopy::little_endian::{U16, U32, U64};

/// `_BHRfS_M`, at [`Superblock::magic`].
pub(crate) const MAGIC: [u8; 8] = *b"_BHRfS_M";

/// Bytes reserved for a checksum in a superblock and in a tree block, for any algorithm.
pub(crate) const CHECKSUM_BYTES: usize = 32;
/// Size of a superblock in bytes.
pub(crate) const SUPERBLOCK_BYTES: usize = 4096;
/// Bytes reserved for chunks in a superblock.
pub(crate) const SYS_CHUNK_ARRAY_BYTES: usize = 2048;
/// Bytes reserved for the label, including its NUL.
pub(crate) const LABEL_BYTES: usize = 256;
/// Maximum number of levels of a tree; levels count from 0 (`BTRFS_MAX_LEVEL`).
pub(crate) const LEVELS_MAX: u8 = 8;
/// Maximum length of a name in a directory, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

records! {
    /// `struct btrfs_disk_key`: the address of every item.
    pub(crate) struct DiskKey[17] {
        /// The object of the item.
        pub(crate) objectid: U64,
        /// The item's type.
        pub(crate) item_type: u8,
        /// Distinguishes items of one type.
        pub(crate) offset: U64,
    }

    /// `struct btrfs_dev_item`: a device of the file system.
    pub(crate) struct DevItem[98] {
        /// 1 or more.
        pub(crate) devid: U64,
        /// Bytes of the device that the file system may use.
        pub(crate) total_bytes: U64,
        /// Bytes that chunks occupy.
        pub(crate) bytes_used: U64,
        /// The device's optimal alignment of transfers.
        pub(crate) io_align: U32,
        /// The device's optimal size of transfers.
        pub(crate) io_width: U32,
        /// The file system's sector size.
        pub(crate) sector_size: U32,
        /// 0.
        pub(crate) dev_type: U64,
        /// 0.
        pub(crate) generation: U64,
        /// 0.
        pub(crate) start_offset: U64,
        /// 0.
        pub(crate) dev_group: U32,
        /// 0.
        pub(crate) seek_speed: u8,
        /// 0.
        pub(crate) bandwidth: u8,
        /// The device's own UUID.
        pub(crate) uuid: [u8; 16],
        /// The file system's UUID.
        pub(crate) fsid: [u8; 16],
    }

    /// `struct btrfs_root_backup`: the tree roots of one of the last four commits.
    pub(crate) struct RootBackup[168] {
        pub(crate) tree_root: U64,
        pub(crate) tree_root_gen: U64,
        pub(crate) chunk_root: U64,
        pub(crate) chunk_root_gen: U64,
        pub(crate) extent_root: U64,
        pub(crate) extent_root_gen: U64,
        pub(crate) fs_root: U64,
        pub(crate) fs_root_gen: U64,
        pub(crate) dev_root: U64,
        pub(crate) dev_root_gen: U64,
        pub(crate) csum_root: U64,
        pub(crate) csum_root_gen: U64,
        pub(crate) total_bytes: U64,
        pub(crate) bytes_used: U64,
        pub(crate) num_devices: U64,
        pub(crate) unused_64: [U64; 4],
        pub(crate) tree_root_level: u8,
        pub(crate) chunk_root_level: u8,
        pub(crate) extent_root_level: u8,
        pub(crate) fs_root_level: u8,
        pub(crate) dev_root_level: u8,
        pub(crate) csum_root_level: u8,
        pub(crate) unused_8: [u8; 10],
    }

    /// `struct btrfs_super_block`.
    pub(crate) struct Superblock[SUPERBLOCK_BYTES] {
        /// Checksum of everything that follows.
        pub(crate) csum: [u8; CHECKSUM_BYTES],
        /// The file system's UUID.
        pub(crate) fsid: [u8; 16],
        /// Position of this copy on its device.
        pub(crate) bytenr: U64,
        /// 1 (`BTRFS_HEADER_FLAG_WRITTEN`), and [`SUPERBLOCK_SEEDING`].
        pub(crate) flags: U64,
        /// [`MAGIC`].
        pub(crate) magic: [u8; 8],
        /// Generation of the last commit.
        pub(crate) generation: U64,
        /// The root tree's root.
        pub(crate) root: U64,
        /// The chunk tree's root.
        pub(crate) chunk_root: U64,
        /// The log tree's root; 0 when there is nothing to replay.
        pub(crate) log_root: U64,
        /// 0.
        pub(crate) unused_log_root_transid: U64,
        /// Total size of all devices in bytes.
        pub(crate) total_bytes: U64,
        /// Bytes of extents.
        pub(crate) bytes_used: U64,
        /// 6 (`BTRFS_ROOT_TREE_DIR_OBJECTID`).
        pub(crate) root_dir_objectid: U64,
        /// 1 or more.
        pub(crate) num_devices: U64,
        /// Size of a sector in bytes, the unit of data.
        pub(crate) sectorsize: U32,
        /// Size of a tree block in bytes.
        pub(crate) nodesize: U32,
        /// `nodesize`.
        pub(crate) unused_leafsize: U32,
        /// `sectorsize`.
        pub(crate) stripesize: U32,
        /// Bytes used of `sys_chunk_array`.
        pub(crate) sys_chunk_array_size: U32,
        /// Generation of the chunk tree's root.
        pub(crate) chunk_root_generation: U64,
        /// 0.
        pub(crate) compat_flags: U64,
        /// See [`crate::compat_ro`].
        pub(crate) compat_ro_flags: U64,
        /// See [`crate::incompat`].
        pub(crate) incompat_flags: U64,
        /// 0 crc32c, 1 xxhash64, 2 sha256, 3 blake2b.
        pub(crate) csum_type: U16,
        /// Level of the root tree's root.
        pub(crate) root_level: u8,
        /// Level of the chunk tree's root.
        pub(crate) chunk_root_level: u8,
        /// Level of the log tree's root.
        pub(crate) log_root_level: u8,
        /// The device that holds this superblock.
        pub(crate) dev_item: DevItem,
        /// NUL-terminated.
        pub(crate) label: [u8; LABEL_BYTES],
        /// Generation of the free space cache, version 1; 0 or all ones with version 2.
        pub(crate) cache_generation: U64,
        /// Equal to `generation` when the UUID tree is complete.
        pub(crate) uuid_tree_generation: U64,
        /// The UUID in tree blocks, with [`crate::incompat::METADATA_UUID`].
        pub(crate) metadata_uuid: [u8; 16],
        /// 0.
        pub(crate) nr_global_roots: U64,
        /// 0.
        pub(crate) remap_root: U64,
        /// 0.
        pub(crate) remap_root_generation: U64,
        /// 0.
        pub(crate) remap_root_level: u8,
        /// 0.
        pub(crate) reserved: [u8; 199],
        /// Keys and chunks of the system chunks.
        pub(crate) sys_chunk_array: [u8; SYS_CHUNK_ARRAY_BYTES],
        /// The last four commits.
        pub(crate) super_roots: [RootBackup; 4],
        /// 0.
        pub(crate) padding: [u8; 565],
    }
}

/// In [`Superblock::flags`]: the device is a seed.
pub(crate) const SUPERBLOCK_SEEDING: u64 = 1 << 32;

records! {
    /// `struct btrfs_chunk`; its stripes follow.
    pub(crate) struct Chunk[48] {
        /// Length in logical bytes.
        pub(crate) length: U64,
        /// 2 (`BTRFS_EXTENT_TREE_OBJECTID`).
        pub(crate) owner: U64,
        /// 64 KiB.
        pub(crate) stripe_len: U64,
        /// See [`crate::block_group`].
        pub(crate) chunk_type: U64,
        /// `stripe_len`.
        pub(crate) io_align: U32,
        /// `stripe_len`.
        pub(crate) io_width: U32,
        /// The file system's sector size.
        pub(crate) sector_size: U32,
        /// Number of [`Stripe`]s that follow.
        pub(crate) num_stripes: U16,
        /// Copies of a stripe in RAID10: 2; otherwise 1, in old file systems 0.
        pub(crate) sub_stripes: U16,
    }

    /// `struct btrfs_stripe`: the place of a part of a chunk.
    pub(crate) struct Stripe[32] {
        /// The device's ID.
        pub(crate) devid: U64,
        /// The offset on the device.
        pub(crate) offset: U64,
        /// The device's own UUID.
        pub(crate) dev_uuid: [u8; 16],
    }

    /// `struct btrfs_header`: starts every tree block.
    pub(crate) struct BlockHeader[101] {
        /// Checksum of everything that follows in the block.
        pub(crate) csum: [u8; CHECKSUM_BYTES],
        /// The file system's metadata UUID.
        pub(crate) fsid: [u8; 16],
        /// The block's logical address.
        pub(crate) bytenr: U64,
        /// [`HEADER_WRITTEN`], 2 in a tree that is being relocated, and in the highest byte the
        /// back reference revision: 1.
        pub(crate) flags: U64,
        /// The chunk tree's UUID.
        pub(crate) chunk_tree_uuid: [u8; 16],
        /// Generation of the commit that wrote the block.
        pub(crate) generation: U64,
        /// The tree that it was created for.
        pub(crate) owner: U64,
        /// Number of items in a leaf, or pointers in a node.
        pub(crate) nritems: U32,
        /// 0 in a leaf.
        pub(crate) level: u8,
    }
}

/// In [`Header::flags`]: the block was written.
pub(crate) const HEADER_WRITTEN: u64 = 1;
/// In [`Header::flags`]: the block was written for a tree being relocated.
pub(crate) const HEADER_RELOCATED: u64 = 2;
/// In [`Header::flags`]: back references of the second revision.
pub(crate) const HEADER_BACKREF_REVISION_1: u64 = 1 << 56;

records! {
    /// `struct btrfs_item`: an item of a leaf.
    pub(crate) struct LeafItem[25] {
        /// Its key.
        pub(crate) key: DiskKey,
        /// Offset of its data, counted from the end of the header.
        pub(crate) offset: U32,
        /// Length of its data in bytes.
        pub(crate) size: U32,
    }

    /// `struct btrfs_key_ptr`: a pointer of a node.
    pub(crate) struct KeyPtr[33] {
        /// The first key of the block.
        pub(crate) key: DiskKey,
        /// The block's logical address.
        pub(crate) blockptr: U64,
        /// The block's generation.
        pub(crate) generation: U64,
    }

    /// `struct btrfs_timespec`.
    #[derive(Default)]
    pub(crate) struct Timespec[12] {
        /// Seconds since 1970, signed.
        pub(crate) sec: U64,
        /// Nanoseconds.
        pub(crate) nsec: U32,
    }

    /// `struct btrfs_inode_item`.
    pub(crate) struct InodeItem[160] {
        /// Generation in which it was created.
        pub(crate) generation: U64,
        /// Generation of its last change.
        pub(crate) transid: U64,
        /// Length of the content; for a directory, twice the total length of its names.
        pub(crate) size: U64,
        /// Bytes of extents, without holes.
        pub(crate) nbytes: U64,
        /// 0.
        pub(crate) block_group: U64,
        /// Number of names; 1 for a directory.
        pub(crate) nlink: U32,
        pub(crate) uid: U32,
        pub(crate) gid: U32,
        /// As `st_mode`.
        pub(crate) mode: U32,
        /// Major number from bit 20 up, minor number below.
        pub(crate) rdev: U64,
        /// See [`crate::inode_flags`].
        pub(crate) flags: U64,
        /// Change counter, for NFS.
        pub(crate) sequence: U64,
        /// 0.
        pub(crate) reserved: [U64; 4],
        pub(crate) atime: Timespec,
        pub(crate) ctime: Timespec,
        pub(crate) mtime: Timespec,
        /// Birth time.
        pub(crate) otime: Timespec,
    }

    /// `struct btrfs_inode_ref`: a name of an inode in the directory that the key names; the name
    /// follows.
    pub(crate) struct InodeRef[10] {
        /// Its directory index.
        pub(crate) index: U64,
        /// Length of the name in bytes.
        pub(crate) name_len: U16,
    }

    /// `struct btrfs_inode_extref`: a name of an inode; the name follows.
    pub(crate) struct InodeExtref[18] {
        /// The directory.
        pub(crate) parent_objectid: U64,
        /// Its directory index.
        pub(crate) index: U64,
        /// Length of the name in bytes.
        pub(crate) name_len: U16,
    }

    /// `struct btrfs_dir_item`: an entry of a directory, or an extended attribute; name and value
    /// follow.
    pub(crate) struct DirItem[30] {
        /// The inode's key, or the root's; all zero for an attribute.
        pub(crate) location: DiskKey,
        /// Generation in which it was created.
        pub(crate) transid: U64,
        /// Length of the value in bytes.
        pub(crate) data_len: U16,
        /// Length of the name in bytes.
        pub(crate) name_len: U16,
        /// 1 file, 2 directory, 3 character device, 4 block device, 5 fifo, 6 socket, 7 link, 8
        /// attribute.
        pub(crate) dir_type: u8,
    }

    /// The first part of `struct btrfs_file_extent_item`; followed by the content if it is inline,
    /// otherwise by an [`ExtentPlace`].
    pub(crate) struct FileExtentItem[21] {
        /// Generation in which it was created.
        pub(crate) generation: U64,
        /// Decoded length of the stored bytes.
        pub(crate) ram_bytes: U64,
        /// 0 none, 1 zlib, 2 LZO, 3 zstd.
        pub(crate) compression: u8,
        /// 0.
        pub(crate) encryption: u8,
        /// 0.
        pub(crate) other_encoding: U16,
        /// 0 inline, 1 regular, 2 preallocated.
        pub(crate) extent_type: u8,
    }

    /// The second part of `struct btrfs_file_extent_item` if the content is not inline.
    pub(crate) struct ExtentPlace[32] {
        /// Logical address of the stored bytes; 0 for a hole.
        pub(crate) disk_bytenr: U64,
        /// Number of stored bytes.
        pub(crate) disk_num_bytes: U64,
        /// Offset of this file's part in the decoded data.
        pub(crate) offset: U64,
        /// Length of this file's part in bytes.
        pub(crate) num_bytes: U64,
    }

    /// `struct btrfs_root_item`.
    pub(crate) struct RootItem[439] {
        /// Metadata of the tree as a whole.
        pub(crate) inode: InodeItem,
        /// Generation of the root block.
        pub(crate) generation: U64,
        /// 256 for subvolumes.
        pub(crate) root_dirid: U64,
        /// The root block.
        pub(crate) bytenr: U64,
        /// 0.
        pub(crate) byte_limit: U64,
        /// Bytes of tree blocks.
        pub(crate) bytes_used: U64,
        /// Generation of the last snapshot.
        pub(crate) last_snapshot: U64,
        /// [`ROOT_READ_ONLY`].
        pub(crate) flags: U64,
        /// 1; 0 while it is being deleted.
        pub(crate) refs: U32,
        /// While it is being deleted: the progress of the deletion.
        pub(crate) drop_progress: DiskKey,
        /// While it is being deleted: the level of that progress.
        pub(crate) drop_level: u8,
        /// Level of the root block.
        pub(crate) level: u8,
        /// Equal to `generation` if the following fields are valid.
        pub(crate) generation_v2: U64,
        /// The subvolume's own UUID.
        pub(crate) uuid: [u8; 16],
        /// The UUID of the subvolume that it is a snapshot of.
        pub(crate) parent_uuid: [u8; 16],
        /// The UUID of the subvolume that was sent and received as this one.
        pub(crate) received_uuid: [u8; 16],
        /// Generation of the last change to the tree of inodes.
        pub(crate) ctransid: U64,
        /// Generation in which it was created.
        pub(crate) otransid: U64,
        /// Generation in which it was sent.
        pub(crate) stransid: U64,
        /// Generation in which it was received.
        pub(crate) rtransid: U64,
        pub(crate) ctime: Timespec,
        pub(crate) otime: Timespec,
        pub(crate) stime: Timespec,
        pub(crate) rtime: Timespec,
        /// 0.
        pub(crate) reserved: [U64; 8],
    }
}

/// Size in bytes of the original [`RootItem`], which ends before `generation_v2`.
pub(crate) const ROOT_ITEM_V1_BYTES: usize = 239;
/// In [`RootItem::flags`]: the subvolume is read-only.
pub(crate) const ROOT_READ_ONLY: u64 = 1;
/// In [`RootItem::flags`]: the subvolume is being deleted.
pub(crate) const ROOT_DEAD: u64 = 1 << 48;

records! {
    /// `struct btrfs_root_ref`: the place of a subvolume; the name follows.
    pub(crate) struct RootRef[18] {
        /// Inode of the directory.
        pub(crate) dirid: U64,
        /// Its directory index.
        pub(crate) sequence: U64,
        /// Length of the name in bytes.
        pub(crate) name_len: U16,
    }

    /// `struct btrfs_extent_item`: starts an item of the extent tree.
    pub(crate) struct ExtentItem[24] {
        /// Total number of references of all kinds.
        pub(crate) refs: U64,
        /// Generation in which it was allocated.
        pub(crate) generation: U64,
        /// [`EXTENT_DATA`], [`EXTENT_TREE_BLOCK`], [`EXTENT_FULL_BACKREF`].
        pub(crate) flags: U64,
    }
}

/// In [`ExtentItem::flags`]: content of files.
pub(crate) const EXTENT_DATA: u64 = 1;
/// In [`ExtentItem::flags`]: a tree block.
pub(crate) const EXTENT_TREE_BLOCK: u64 = 2;
/// In [`ExtentItem::flags`]: the block's own references are recorded by its address (full back
/// references).
pub(crate) const EXTENT_FULL_BACKREF: u64 = 1 << 8;

records! {
    /// `struct btrfs_tree_block_info`: describes a tree block without
    /// [`crate::incompat::SKINNY_METADATA`].
    pub(crate) struct TreeBlockInfo[18] {
        /// The block's first key.
        pub(crate) key: DiskKey,
        /// The block's level.
        pub(crate) level: u8,
    }

    /// `struct btrfs_extent_data_ref`: references from one inode to an extent at one offset.
    pub(crate) struct ExtentDataRef[28] {
        /// The subvolume.
        pub(crate) root: U64,
        /// The inode.
        pub(crate) objectid: U64,
        /// The offset in the file where the extent's first byte would be.
        pub(crate) offset: U64,
        /// Number of file extent items.
        pub(crate) count: U32,
    }

    /// `struct btrfs_block_group_item`.
    pub(crate) struct BlockGroupItem[24] {
        /// Bytes of extents.
        pub(crate) used: U64,
        /// 256.
        pub(crate) chunk_objectid: U64,
        /// See [`crate::block_group`].
        pub(crate) flags: U64,
    }

    /// `struct btrfs_dev_extent`: a part of a device that a chunk occupies.
    pub(crate) struct DevExtent[48] {
        /// 3.
        pub(crate) chunk_tree: U64,
        /// 256.
        pub(crate) chunk_objectid: U64,
        /// The chunk's logical address.
        pub(crate) chunk_offset: U64,
        /// Length in bytes.
        pub(crate) length: U64,
        /// The chunk tree's UUID.
        pub(crate) chunk_tree_uuid: [u8; 16],
    }

    /// `struct btrfs_free_space_info`.
    pub(crate) struct FreeSpaceInfo[8] {
        /// Number of free extents in the block group.
        pub(crate) extent_count: U32,
        /// [`FREE_SPACE_BITMAPS`].
        pub(crate) flags: U32,
    }
}

/// In [`FreeSpaceInfo::flags`]: free space is stored as bitmaps.
pub(crate) const FREE_SPACE_BITMAPS: u32 = 1;

/// In [`Superblock::flags`]: the image is a metadata dump of btrfs-image, without the content of
/// files.
pub(crate) const SUPERBLOCK_METADATA_DUMP: u64 = 1 << 33 | 1 << 34;

records! {
    /// `struct btrfs_qgroup_status_item`, with the last field of simple quotas, which are newer.
    pub(crate) struct QgroupStatus[32] {
        /// 1.
        pub(crate) version: U64,
        /// The commit that the counts belong to.
        pub(crate) generation: U64,
        /// 1 if quotas are on, [`QGROUP_RESCAN`], [`QGROUP_INCONSISTENT`], [`QGROUP_SIMPLE`].
        pub(crate) flags: U64,
        /// How far a rescan has come.
        pub(crate) rescan: U64,
    }
}

/// In [`Superblock::flags`]: those that Linux mounts: written, being relocated, an error was found,
/// a seed, a metadata dump.
pub(crate) const SUPERBLOCK_FLAGS_KNOWN: u64 = 7 | SUPERBLOCK_SEEDING | SUPERBLOCK_METADATA_DUMP;

/// In [`QgroupStatus::flags`]: counting has not finished.
pub(crate) const QGROUP_RESCAN: u64 = 2;
/// In [`QgroupStatus::flags`]: the counts are known to be wrong.
pub(crate) const QGROUP_INCONSISTENT: u64 = 4;
/// In [`QgroupStatus::flags`]: each extent counts for the subvolume that created it.
pub(crate) const QGROUP_SIMPLE: u64 = 8;

records! {
    /// `struct btrfs_qgroup_info_item`.
    pub(crate) struct QgroupInfo[40] {
        /// The commit that changed it.
        pub(crate) generation: U64,
        /// Bytes of extents that its subvolumes refer to.
        pub(crate) rfer: U64,
        /// The same as `rfer`.
        pub(crate) rfer_cmpr: U64,
        /// Bytes of extents that nothing else refers to.
        pub(crate) excl: U64,
        /// The same as `excl`.
        pub(crate) excl_cmpr: U64,
    }

    /// `struct btrfs_free_space_header`: describes the free space cache of a block group.
    pub(crate) struct FreeSpaceHeader[41] {
        /// The inode in the root tree that holds the cache.
        pub(crate) location: DiskKey,
        /// The commit that wrote it.
        pub(crate) generation: U64,
        /// Number of [`FreeSpaceEntry`]s, bitmaps included.
        pub(crate) num_entries: U64,
        /// Number of bitmaps.
        pub(crate) num_bitmaps: U64,
    }

    /// `struct btrfs_free_space_entry`.
    pub(crate) struct FreeSpaceEntry[17] {
        /// Logical address.
        pub(crate) offset: U64,
        /// Length in bytes; of a bitmap, its free bytes.
        pub(crate) bytes: U64,
        /// 1 an extent, 2 a bitmap.
        pub(crate) kind: u8,
    }
}

/// The length of a name or a value, which is less than 64 KiB, as records have it.
pub(crate) fn stored_len(bytes: &[u8]) -> u16 {
    u16::try_from(bytes.len()).unwrap_or(u16::MAX)
}
