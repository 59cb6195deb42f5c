//! The superblock (`struct erofs_super_block`) and the device table.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Error, ReadAt, Result, Time, to_u64, to_usize};

use crate::fields::{u8_at, u16_at, u32_at, u64_at};
use crate::piece::STORED_BYTES_MAX;

/// Where the superblock is.
pub(crate) const SUPERBLOCK_AT: u64 = 1024;
/// `EROFS_SUPER_MAGIC_V1`.
pub(crate) const MAGIC: u32 = 0xe0f5_e1e2;
/// Bytes of the superblock without extension slots.
pub(crate) const SUPERBLOCK_BYTES: usize = 128;
/// Where the number of blocks is in an image.
pub(crate) const BLOCKS_AT: u64 = SUPERBLOCK_AT + 36;
/// Bytes of an extension slot.
pub(crate) const SLOT_BYTES: usize = 16;
/// Where the number of the metabox is, in the first extension slot.
pub(crate) const METABOX_AT: usize = 128;
/// Logarithms of the smallest and the largest block: a sector, and the largest page of Linux.
const BLOCK_LOG2: std::ops::RangeInclusive<u8> = 9..=16;
/// The most extension slots: those in the first page.
const SLOTS_MAX: usize = (4096 - 1024 - SUPERBLOCK_BYTES) / SLOT_BYTES;
/// Bytes of `struct erofs_deviceslot`.
pub(crate) const DEVICE_SLOT_BYTES: usize = 128;
/// Bytes of the tag at its beginning.
pub const TAG_BYTES: usize = 64;
/// Where the tag of an image in the same file is: at the end of the first block, whose checksum
/// covers it.
pub(crate) const TAG_AT: usize = 4096 - TAG_BYTES;

/// Bits of [`Superblock::compat`]: features that older readers can ignore.
pub mod compat {
    /// The superblock has a checksum.
    pub const SB_CHKSUM: u32 = 0x1;
    /// Times are those of modification.
    pub const MTIME: u32 = 0x2;
    /// Inodes with attributes have a filter of their names.
    pub const XATTR_FILTER: u32 = 0x4;
    /// Shared attributes are in the metabox.
    pub const SHARED_EA_IN_METABOX: u32 = 0x8;
    /// Long prefixes of attributes are in the image itself.
    pub const PLAIN_XATTR_PFX: u32 = 0x10;
    /// Files have digests, by which Linux shares pages.
    pub const ISHARE_XATTRS: u32 = 0x20;
}

/// Bits of [`Superblock::incompat`]: features that a reader must know.
pub mod incompat {
    /// Compressed data is at the end of its cluster.
    pub const ZERO_PADDING: u32 = 0x1;
    /// There are settings of codecs, and clusters of several blocks.
    pub const COMPR_CFGS: u32 = 0x2;
    /// Files can consist of chunks.
    pub const CHUNKED_FILE: u32 = 0x4;
    /// There is a device table; or files can have two codecs.
    pub const DEVICE_TABLE: u32 = 0x8;
    /// Ends of compressed files can be inline.
    pub const ZTAILPACKING: u32 = 0x10;
    /// Ends of files can be in the packed inode; or clusters can be shared.
    pub const FRAGMENTS: u32 = 0x20;
    /// Names of attributes can have long prefixes.
    pub const XATTR_PREFIXES: u32 = 0x40;
    /// Addresses of blocks have 48 bits.
    pub const LAYOUT_48BIT: u32 = 0x80;
    /// Inodes can be in a compressed file.
    pub const METABOX: u32 = 0x100;
    /// The names of all of these, lowest bit first.
    pub const NAMES: [&str; 9] = [
        "zero-padding",
        "compr-cfgs",
        "chunked-file",
        "device-table",
        "ztailpacking",
        "fragments",
        "xattr-prefixes",
        "48bit",
        "metabox",
    ];
}

/// The bits of the codecs in the superblock, and the numbers of them in records.
pub(crate) const ALGORITHMS: [&str; 4] = ["lz4", "lzma", "deflate", "zstd"];

/// The bit of a nid (`EROFS_DIRENT_NID_METABOX_BIT`) that says that the inode is in the metabox.
pub(crate) const IN_METABOX: u64 = 1 << 63;

/// The validated superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Superblock {
    /// Logarithm of the number of bytes of a block.
    pub block_log2: u8,
    /// The bits of [`compat`].
    pub compat: u32,
    /// The bits of [`incompat`].
    pub incompat: u32,
    /// The number of inodes.
    pub inodes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// When the image was made.
    pub made: Time,
    /// The UUID.
    pub uuid: [u8; 16],
    /// The label, without NUL.
    pub label: Box<[u8]>,
    /// The number of further devices.
    pub devices: u16,
    pub(crate) epoch: Time,
    pub(crate) root: u64,
    pub(crate) packed: Option<u64>,
    pub(crate) metabox: Option<u64>,
    pub(crate) meta_at: u64,
    pub(crate) xattr_at: u64,
    pub(crate) prefix_count: u8,
    pub(crate) prefixes_at: u64,
    /// Of the prefixes, the one of digests, if the image has them.
    pub(crate) digest_prefix: Option<u8>,
    pub(crate) has_filters: bool,
    /// Bit by bit, the codecs in [`ALGORITHMS`].
    pub(crate) algorithms: u16,
    /// The dictionary of MicroLZMA.
    pub(crate) dictionary_bytes: u32,
    /// The largest window of zstd frames.
    pub(crate) zstd_window_bytes: u64,
    /// Where it ends, with its extensions and the settings of the codecs.
    pub(crate) end: u64,
    device_slots_at: u64,
}

/// A further device (`struct erofs_deviceslot`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceSlot {
    pub(crate) tag: [u8; TAG_BYTES],
    /// Bytes of the device.
    pub(crate) len: u64,
    /// Where it begins in the common address space; 0 if it is not in it.
    pub(crate) at: u64,
}

/// Reads a part of the superblock's block, or of the tables that belong to it.
fn read_head(image: &dyn ReadAt, bytes: &mut [u8], at: u64) -> Result<()> {
    let size = image.size()?;
    let end = at.checked_add(to_u64(bytes.len()));
    if end.is_none_or(|end| end > size) {
        let what = "erofs image ends before the tables of its superblock";
        return Err(Error::corrupt(what, at, size));
    }
    Ok(image.read_exact_at(bytes, at)?)
}

impl Superblock {
    /// Reads the superblock of an image.
    ///
    /// # Errors
    /// It cannot be read, breaks the format, or needs a feature that is not read.
    pub(crate) fn read(image: &dyn ReadAt) -> Result<Superblock> {
        let size = image.size()?;
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        if size < SUPERBLOCK_AT.saturating_add(to_u64(bytes.len())) {
            let what = "too short for an erofs superblock";
            return Err(Error::corrupt(what, SUPERBLOCK_AT, size));
        }
        image.read_exact_at(&mut bytes, SUPERBLOCK_AT)?;
        let magic = u32_at(&bytes, 0);
        if magic != MAGIC {
            let what = "not an erofs superblock";
            return Err(Error::corrupt(what, SUPERBLOCK_AT, magic.into()));
        }
        let slots = SLOT_BYTES.saturating_mul(u8_at(&bytes, 13).into());
        bytes.resize(SUPERBLOCK_BYTES.saturating_add(slots), 0);
        let is_outside = slots > SLOTS_MAX.saturating_mul(SLOT_BYTES);
        if is_outside || size < SUPERBLOCK_AT.saturating_add(to_u64(bytes.len())) {
            let what = "erofs superblock's extensions lie beyond the image's end";
            return Err(Error::corrupt(what, SUPERBLOCK_AT, to_u64(slots)));
        }
        image.read_exact_at(&mut bytes, SUPERBLOCK_AT)?;
        let mut superblock = Superblock::parse(&bytes)?;
        if superblock.compat & compat::SB_CHKSUM != 0 {
            superblock.verify(image, u32_at(&bytes, 4))?;
        }
        if superblock.incompat & incompat::COMPR_CFGS != 0 {
            superblock.read_settings(image)?;
        }
        Ok(superblock)
    }

    fn parse(bytes: &[u8]) -> Result<Superblock> {
        let corrupt = |what, field: u64, got| {
            Err(Error::corrupt(
                what,
                SUPERBLOCK_AT.saturating_add(field),
                got,
            ))
        };
        let incompat = u32_at(bytes, 80);
        if let unknown @ 1.. = incompat >> incompat::NAMES.len() {
            let _ = unknown;
            return Err(Error::Unsupported(
                "an EROFS image with features newer than those of Linux 7.0 (unknown incompatible bits)",
            ));
        }
        let block_log2 = u8_at(bytes, 12);
        if !BLOCK_LOG2.contains(&block_log2) {
            return corrupt(
                "block size is not 512 bytes to 64 KiB",
                12,
                block_log2.into(),
            );
        }
        if u8_at(bytes, 90) != 0 {
            return Err(Error::Unsupported(
                "an EROFS image whose directory blocks are larger than its blocks",
            ));
        }
        let is_48bit = incompat & incompat::LAYOUT_48BIT != 0;
        let mut blocks = u64::from(u32_at(bytes, 36));
        let mut root = u64::from(u16_at(bytes, 14));
        // As in Linux: without a long number, the short one counts.
        if is_48bit && u64_at(bytes, 112) != 0 {
            blocks |= root << 32;
            root = u64_at(bytes, 112);
        }
        let metabox = if incompat & incompat::METABOX == 0 {
            None
        } else if bytes.len() <= METABOX_AT {
            return corrupt(
                "superblock has no room for the metabox",
                13,
                to_u64(bytes.len()),
            );
        } else {
            Some(u64_at(bytes, METABOX_AT))
        };
        if let Some(nid) = metabox.filter(|nid| nid & IN_METABOX != 0) {
            return corrupt("metabox is in itself", to_u64(METABOX_AT), nid);
        }
        let epoch = Time {
            // Seconds before 1970 are those above i64::MAX.
            seconds: i64::from_le_bytes(u64_at(bytes, 24).to_le_bytes()),
            nanoseconds: u32_at(bytes, 32),
        };
        if epoch.nanoseconds > 999_999_999 {
            return corrupt(
                "epoch has too many nanoseconds",
                32,
                epoch.nanoseconds.into(),
            );
        }
        let label = bytes.get(64..80).unwrap_or_default();
        let label = label.split(|&byte| byte == 0).next().unwrap_or_default();
        let at = |block: u32| u64::from(block) << block_log2;
        let (has_settings, packed) = (incompat & incompat::COMPR_CFGS != 0, u64_at(bytes, 96));
        Ok(Superblock {
            block_log2,
            compat: u32_at(bytes, 8),
            incompat,
            inodes: u64_at(bytes, 16),
            blocks,
            made: Time {
                seconds: epoch.seconds.saturating_add(u32_at(bytes, 108).into()),
                ..epoch
            },
            uuid: bytes
                .get(48..)
                .and_then(|uuid| uuid.first_chunk())
                .copied()
                .unwrap_or_default(),
            label: label.into(),
            devices: if incompat & incompat::DEVICE_TABLE == 0 {
                0
            } else {
                u16_at(bytes, 86)
            },
            epoch,
            root,
            packed: (incompat & incompat::FRAGMENTS != 0 && packed != 0).then_some(packed),
            metabox,
            meta_at: at(u32_at(bytes, 40)),
            xattr_at: at(u32_at(bytes, 44)),
            // As in Linux, without asking for the feature.
            prefix_count: u8_at(bytes, 91),
            prefixes_at: u64::from(u32_at(bytes, 92)) << 2,
            digest_prefix: (u32_at(bytes, 8) & compat::ISHARE_XATTRS != 0)
                .then_some(u8_at(bytes, 105)),
            has_filters: u32_at(bytes, 8) & compat::XATTR_FILTER != 0 && u8_at(bytes, 104) == 0,
            // Without settings, the field is another one, and lz4 is the only codec.
            algorithms: if has_settings { u16_at(bytes, 84) } else { 1 },
            dictionary_bytes: 0,
            zstd_window_bytes: 0,
            end: SUPERBLOCK_AT.saturating_add(to_u64(bytes.len())),
            device_slots_at: u64::from(u16_at(bytes, 88)) << 7,
        })
    }

    /// The checksum is that of the rest of the block, without its own field.
    fn verify(&self, image: &dyn ReadAt, stored: u32) -> Result<()> {
        let block = self.block_bytes();
        let len = if block > SUPERBLOCK_AT {
            block.saturating_sub(SUPERBLOCK_AT)
        } else {
            block
        };
        let mut bytes = vec![0; to_usize(len)];
        read_head(image, &mut bytes, SUPERBLOCK_AT)?;
        if let Some(field) = bytes.get_mut(4..8) {
            field.fill(0);
        }
        let computed = !crc32c::crc32c(&bytes);
        if computed != stored {
            let what = "erofs superblock's checksum does not match";
            return Err(Error::corrupt(what, SUPERBLOCK_AT, stored.into()));
        }
        Ok(())
    }

    /// Reads the settings of the codecs, each with its length before it.
    fn read_settings(&mut self, image: &dyn ReadAt) -> Result<()> {
        if self.algorithms >> ALGORITHMS.len() != 0 {
            return Err(Error::Unsupported(
                "an EROFS image with a codec other than lz4, lzma, deflate and zstd",
            ));
        }
        for bit in 0..ALGORITHMS.len() {
            if self.algorithms & (1 << bit) == 0 {
                continue;
            }
            let mut settings = [0; 8];
            read_head(image, &mut settings, self.end)?;
            self.check_settings(bit, &settings)?;
            if bit == 1 {
                self.dictionary_bytes = u32_at(&settings, 2);
            }
            if bit == 3 {
                self.zstd_window_bytes = 1024_u64.wrapping_shl(u8_at(&settings, 3).into());
            }
            // As Linux reads it, 0 stands for 65,536.
            let len = match u16_at(&settings, 0) {
                0 => 1 << 16,
                len => u64::from(len),
            };
            let end = self.end.saturating_add(2).saturating_add(len);
            read_head(image, &mut [0], end.saturating_sub(1))?;
            self.end = end.next_multiple_of(4);
        }
        Ok(())
    }

    /// Checks the settings of a codec as Linux does when it mounts an image.
    fn check_settings(&self, bit: usize, settings: &[u8]) -> Result<()> {
        let corrupt = |what, got| Err(Error::corrupt(what, self.end, got));
        let len = u16_at(settings, 0);
        let (low, high) = (u8_at(settings, 2), u8_at(settings, 3));
        let format = match bit {
            1 => u16_at(settings, 6),
            3 => low.into(),
            _ => 0,
        };
        if len > 0 && len < if bit < 2 { 14 } else { 6 } {
            return corrupt("settings of a codec are too short", len.into());
        }
        if format != 0 {
            return corrupt("settings of a codec have an unknown format", format.into());
        }
        let blocks = u64::from(u16_at(settings, 4)) << self.block_log2;
        if bit == 0 && blocks > STORED_BYTES_MAX {
            return corrupt("clusters of lz4 are larger than 1 MiB", blocks);
        }
        // The dictionary of lzma in bytes, and the logarithms of the other windows.
        let (window, allowed) = match bit {
            1 => (u32_at(settings, 2), 4 << 10..=8 << 20),
            2 => (low.into(), 0..=15),
            3 => (high.into(), 0..=10),
            _ => (0, 0..=0),
        };
        if !allowed.contains(&window) {
            let what = "dictionary or window of a codec is not one that Linux allows";
            return corrupt(what, window.into());
        }
        Ok(())
    }

    /// Reads the device table.
    pub(crate) fn read_devices(&self, image: &dyn ReadAt) -> Result<Vec<DeviceSlot>> {
        let mut slots = vec![0; DEVICE_SLOT_BYTES.saturating_mul(self.devices.into())];
        read_head(image, &mut slots, self.device_slots_at)?;
        let wide = |low, high| (u64::from(low) | u64::from(high) << 32_u16) << self.block_log2;
        let (slots, _) = slots.as_chunks::<DEVICE_SLOT_BYTES>();
        let slot = |slot: &[u8; DEVICE_SLOT_BYTES]| DeviceSlot {
            tag: slot.first_chunk().copied().unwrap_or([0; TAG_BYTES]),
            len: wide(u32_at(slot, 64), u16_at(slot, 72)),
            at: wide(u32_at(slot, 68), u16_at(slot, 74)),
        };
        Ok(slots.iter().map(slot).collect())
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        1 << self.block_log2
    }

    /// The names of its incompatible features.
    pub fn features(&self) -> impl Iterator<Item = &'static str> {
        let bits = self.incompat;
        let names = incompat::NAMES.into_iter().enumerate();
        names.filter_map(move |(bit, name)| (bits >> bit & 1 != 0).then_some(name))
    }

    /// The names of its codecs, whether or not a file uses them; none if no feature of compression
    /// is set.
    pub fn codecs(&self) -> impl Iterator<Item = &'static str> {
        let is_compressed = self.incompat & (incompat::COMPR_CFGS | incompat::ZERO_PADDING) != 0;
        let bits = if is_compressed { self.algorithms } else { 0 };
        let names = ALGORITHMS.into_iter().enumerate();
        names.filter_map(move |(bit, name)| (bits >> bit & 1 != 0).then_some(name))
    }
}
