//! The superblock: the parameters of an image, and where its tables are.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::mem::offset_of;

use codec::Algorithm;
use tree::{Error, Result, to_u64};
use zerocopy::{FromBytes, IntoBytes};

use crate::raw::{self, METADATA_BYTES, flags};
use crate::reference::MetadataRef;

/// Size of the superblock in bytes.
pub(crate) const SUPERBLOCK_BYTES: usize = size_of::<raw::Superblock>();

/// Log2 of the smallest block size.
pub(crate) const BLOCK_LOG2_MIN: u16 = 12;
/// Log2 of the largest block size.
pub(crate) const BLOCK_LOG2_MAX: u16 = 20;

/// A validated superblock. All positions are within the image, ascending, and below `bytes_used`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The algorithm for blocks and metadata.
    pub algorithm: Algorithm,
    /// Size of a data block in bytes.
    pub block_bytes: u32,
    /// Number of inodes.
    pub inode_count: u32,
    /// Creation time of the image, in seconds since 1970.
    pub mkfs_time: u32,
    /// Number of fragment blocks.
    pub fragment_count: u32,
    /// Number of different user and group IDs, 1 to 65,536.
    pub id_count: u32,
    /// See [`raw::flags`].
    pub flags: u16,
    /// Reference of the root directory's inode.
    pub root: u64,
    /// Length of the image in bytes, without padding.
    pub bytes_used: u64,
    /// The start of the inode table.
    pub inode_table: u64,
    /// The start of the directory table.
    pub directory_table: u64,
    /// Position of the fragment table's list, if there are fragments.
    pub fragment_table: Option<u64>,
    /// Position of the export table's list, if there is one.
    pub export_table: Option<u64>,
    /// The position that Linux takes for that of the export table, even without the flag.
    pub export_position: Option<u64>,
    /// Position of the id table's list.
    pub id_table: u64,
    /// Position of the xattr table's header, if there is one.
    pub xattr_table: Option<u64>,
}

/// The ID of each algorithm.
const COMPRESSION: [(u16, Algorithm); 6] = [
    (1, Algorithm::Zlib),
    (2, Algorithm::Lzma),
    (3, Algorithm::Lzo),
    (4, Algorithm::Xz),
    (5, Algorithm::Lz4),
    (6, Algorithm::Zstd),
];

impl Superblock {
    /// Parses and validates the superblock of an image of which `available` bytes are present.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it breaks the format, [`Error::Unsupported`] for versions before 4.0.
    pub(crate) fn parse(bytes: &[u8; SUPERBLOCK_BYTES], available: u64) -> Result<Superblock> {
        let raw = raw::Superblock::read_from_bytes(bytes).expect("the array has the record's size");
        macro_rules! bad {
            ($what:literal, $field:ident) => {
                return Err(corrupt(
                    $what,
                    offset_of!(raw::Superblock, $field),
                    raw.$field.get().into(),
                ))
            };
        }
        if raw.s_magic != raw::MAGIC {
            bad!("not a squashfs superblock", s_magic);
        }
        if raw.s_major != 4 || raw.s_minor != 0 {
            if (1..4).contains(&raw.s_major.get()) {
                return Err(Error::Unsupported(
                    "squashfs before version 4.0, which `unsquashfs` unpacks",
                ));
            }
            bad!("squashfs version is not 4.0", s_major);
        }
        let Some(&(_, algorithm)) = COMPRESSION.iter().find(|(n, _)| raw.compression == *n) else {
            bad!("squashfs codec is unknown", compression);
        };
        let block_log = raw.block_log.get();
        if !(BLOCK_LOG2_MIN..=BLOCK_LOG2_MAX).contains(&block_log) {
            bad!("squashfs block size is not 4 KiB to 1 MiB", block_log);
        }
        if raw.block_size != 1 << block_log {
            bad!("squashfs block size differs from its logarithm", block_size);
        }
        if raw.inodes == 0 {
            bad!("squashfs image has no inodes", inodes);
        }
        if raw.no_ids == 0 {
            bad!("squashfs id table is empty", no_ids);
        }
        let bytes_used = raw.bytes_used.get();
        if bytes_used > available || bytes_used < to_u64(SUPERBLOCK_BYTES) {
            bad!("squashfs image is shorter than it says", bytes_used);
        }

        let optional = |present: bool, at: u64| (present && at != raw::NO_TABLE).then_some(at);
        let fragment_table = optional(raw.fragments != 0, raw.fragment_table_start.get());
        if raw.fragments != 0 && fragment_table.is_none() {
            bad!("squashfs fragment table is missing", fragment_table_start);
        }
        // The export table is used only if the flag is set; old tools left its position
        // uninitialized.
        let exportable = raw.flags.get() & flags::EXPORTABLE != 0;
        let export_table = optional(exportable, raw.lookup_table_start.get());
        let export_position = optional(true, raw.lookup_table_start.get());
        let xattr_table = optional(true, raw.xattr_id_table_start.get());
        let id_table = raw.id_table_start.get();
        let inode_table = raw.inode_table_start.get();
        let directory_table = raw.directory_table_start.get();
        macro_rules! field {
            ($field:ident) => {
                offset_of!(raw::Superblock, $field)
            };
        }
        let tables = [
            (Some(inode_table), field!(inode_table_start)),
            (Some(directory_table), field!(directory_table_start)),
            (fragment_table, field!(fragment_table_start)),
            (export_table, field!(lookup_table_start)),
            (Some(id_table), field!(id_table_start)),
            (xattr_table, field!(xattr_id_table_start)),
        ];
        check_order(tables, bytes_used)?;
        if inode_table == directory_table {
            bad!("squashfs inode table is empty", inode_table_start);
        }
        let root = raw.root_inode.get();
        let place = MetadataRef(root);
        let is_inside = place.block() < directory_table.saturating_sub(inode_table);
        if !is_inside || usize::from(place.offset()) >= METADATA_BYTES {
            bad!(
                "squashfs root's inode lies outside the inode table",
                root_inode
            );
        }

        Ok(Superblock {
            algorithm,
            block_bytes: raw.block_size.get(),
            inode_count: raw.inodes.get(),
            mkfs_time: raw.mkfs_time.get(),
            fragment_count: raw.fragments.get(),
            id_count: raw.no_ids.get().into(),
            flags: raw.flags.get(),
            root,
            bytes_used,
            inode_table,
            directory_table,
            fragment_table,
            export_table,
            export_position,
            id_table,
            xattr_table,
        })
    }

    /// The superblock as it is stored.
    #[expect(clippy::as_conversions, reason = "a writer: these numbers are its own")]
    pub(crate) fn emit(&self) -> [u8; SUPERBLOCK_BYTES] {
        let (compression, _) = COMPRESSION
            .iter()
            .find(|(_, algorithm)| *algorithm == self.algorithm)
            .expect("every algorithm has a number");
        let raw = raw::Superblock {
            s_magic: raw::MAGIC.into(),
            inodes: self.inode_count.into(),
            mkfs_time: self.mkfs_time.into(),
            block_size: self.block_bytes.into(),
            fragments: self.fragment_count.into(),
            compression: (*compression).into(),
            block_log: (self.block_bytes.trailing_zeros() as u16).into(),
            flags: self.flags.into(),
            // 65,536 IDs are stored as 0, which Linux rejects; the writer stops at 65,535.
            no_ids: (self.id_count as u16).into(),
            s_major: 4.into(),
            s_minor: 0.into(),
            root_inode: self.root.into(),
            bytes_used: self.bytes_used.into(),
            id_table_start: self.id_table.into(),
            xattr_id_table_start: self.xattr_table.unwrap_or(raw::NO_TABLE).into(),
            inode_table_start: self.inode_table.into(),
            directory_table_start: self.directory_table.into(),
            fragment_table_start: self.fragment_table.unwrap_or(raw::NO_TABLE).into(),
            lookup_table_start: self.export_position.unwrap_or(raw::NO_TABLE).into(),
        };
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }
}

fn corrupt(what: &'static str, field: usize, got: u64) -> Error {
    let at = to_u64(field);
    Error::corrupt(what, at, got)
}

/// Checks that each table starts after the previous one, between the superblock and the end of the
/// image. Given are the position of each table and the offset of the field that holds it.
fn check_order(tables: [(Option<u64>, usize); 6], bytes_used: u64) -> Result<()> {
    let mut below = to_u64(SUPERBLOCK_BYTES);
    for (position, field) in tables {
        let Some(position) = position else { continue };
        if position < below || position >= bytes_used {
            return Err(corrupt("squashfs tables are out of order", field, position));
        }
        below = position;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_emitted_is_parsed() {
        let superblock = Superblock {
            algorithm: Algorithm::Xz,
            block_bytes: 1 << 18,
            inode_count: 7,
            mkfs_time: 1_700_000_000,
            fragment_count: 0,
            id_count: 2,
            flags: flags::EXPORTABLE | flags::DUPLICATES,
            root: 96 << 16 | 32,
            bytes_used: 4000,
            inode_table: 1000,
            directory_table: 2000,
            fragment_table: None,
            export_table: Some(2500),
            export_position: Some(2500),
            id_table: 2600,
            xattr_table: None,
        };
        let bytes = superblock.emit();
        assert_eq!(bytes[..4], *b"hsqs");
        assert_eq!(Superblock::parse(&bytes, 4000).unwrap(), superblock);
        let error = Superblock::parse(&bytes, 3999).unwrap_err();
        assert_eq!(
            error.to_string(),
            "squashfs image is shorter than it says (found 0xfa0 at byte 0x28)"
        );
    }
}
