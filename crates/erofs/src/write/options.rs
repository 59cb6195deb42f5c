//! Options for creating an image, and the summary of the result.

use std::collections::BTreeMap;

use codec::{Algorithm, Encoder, Settings};
use tree::{Error, ImageSummary, Result, Time, Verify, setters};

use super::block::BLOCK_BYTES;
use super::devices::{DataDevice, begin};
use super::old::OldErofs;
use crate::kernel::Kernel;

/// The most bytes of metadata that are compressed together.
const METADATA_UNIT_BYTES: usize = 64 << 10;

/// Options for creating an image: those of [`Options::default`], and a method for each that
/// replaces it. Codecs and levels are those of the crate `restow-codec`.
///
/// ```
/// use codec::Settings;
/// use erofs::{Kernel, Options};
///
/// let options = Options::default()
///     .compression(Settings::Zstd { level: 19 })
///     .min_kernel(Kernel(6, 15));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How data is compressed: zstd, LZ4, or zlib, which is stored as raw deflate; `None` stores
    /// everything uncompressed.
    pub compression: Option<Settings>,
    /// Bytes of content that are compressed together: a power of two from 4 KiB to 1 MiB; 0 for
    /// 128 KiB in records, and 256 KiB where each unit begins at a block.
    pub unit_bytes: u32,
    /// The oldest Linux that can read the image. From 6.15 on, indexes are records, and data is not
    /// aligned; from 6.17 on, metadata is compressed, too.
    pub min_kernel: Kernel,
    /// Whether to store files and units with equal content once.
    pub duplicates: bool,
    /// Whether to copy zstd, LZ4 and zlib data of the source as it is stored, at any level, if
    /// indexes are records.
    pub keep_extents: bool,
    /// The data of each file, and each unit of the packed inode, begins at a multiple of this many
    /// bytes: a power of two from 512 bytes to 1 MiB, or 1. The other units of a file follow.
    pub align_bytes: u32,
    /// An older image, whose units are kept where their content is unchanged, if they have the
    /// codec and the length of those of the new one. Their level is not known.
    pub old: Option<OldErofs>,
    /// Whether to give regular files the SHA-256 of their content as an attribute, by which Linux
    /// 7.0 shares the pages of equal files (`inode_share`).
    pub content_digest: bool,
    /// The devices of the source that become further devices of the image: their data is named
    /// where it is, as far as EROFS can, instead of being stored.
    pub devices: Vec<DataDevice>,
    /// Whether to store extended attributes.
    pub xattrs: bool,
    /// When the image was made, in seconds since 1970.
    pub made: i64,
    /// Files with later modification times get this one, in seconds since 1970.
    pub epoch: Option<i64>,
    /// The UUID; by default a hash of the content.
    pub uuid: Option<[u8; 16]>,
    /// The label: at most 16 bytes without NUL.
    pub label: Vec<u8>,
    /// Whether to skip and list files that cannot be read. Otherwise the first one is an error.
    pub skip_unreadable: bool,
    /// The data to decode again before the image counts as finished. Unless it is
    /// [`Verify::Nothing`], the image is also read back.
    pub verify: Verify,
}

impl Default for Options {
    /// zstd at level 15, for the Linux of Debian 13 and RHEL 10; verified.
    fn default() -> Self {
        Options {
            compression: Some(Settings::Zstd { level: 15 }),
            unit_bytes: 0,
            min_kernel: Kernel(6, 12),
            duplicates: true,
            keep_extents: true,
            align_bytes: 1,
            old: None,
            content_digest: false,
            devices: Vec::new(),
            xattrs: true,
            made: 0,
            epoch: None,
            uuid: None,
            label: Vec::new(),
            skip_unreadable: false,
            verify: Verify::Encoded,
        }
    }
}

setters!(Options {
    compression: impl Into<Option<Settings>>,
    unit_bytes: u32,
    min_kernel: Kernel,
    duplicates: bool,
    keep_extents: bool,
    align_bytes: u32,
    old: Option<OldErofs>,
    content_digest: bool,
    devices: Vec<DataDevice>,
    xattrs: bool,
    made: i64,
    epoch: impl Into<Option<i64>>,
    uuid: Option<[u8; 16]>,
    label: Vec<u8>,
    skip_unreadable: bool,
    verify: Verify,
});

impl Options {
    /// Whether data of the source can be kept as it is stored.
    pub fn keeps_extents(&self) -> bool {
        self.keep_extents && (self.has_records() || !self.devices.is_empty())
    }

    /// Whether data of devices can be named at any byte of them.
    pub fn keeps_unaligned(&self) -> bool {
        self.has_records()
    }

    /// Whether indexes are records with lengths in bytes.
    pub(crate) fn has_records(&self) -> bool {
        self.compression.is_some() && self.min_kernel >= Kernel::RECORDS
    }

    /// Whether inodes are in a compressed file, the metabox, and large directories in the packed
    /// inode.
    pub(crate) fn has_metabox(&self) -> bool {
        self.has_records() && self.min_kernel >= Kernel::METABOX
    }

    /// Whether Linux looks for prefixes of attributes in the packed inode, if there is one.
    pub(crate) fn has_packed_prefix(&self) -> bool {
        self.content_digest && !self.has_metabox()
    }

    /// Bytes of metadata of a unit: a name is found by decoding a few.
    pub(crate) fn metadata_unit(&self) -> usize {
        self.unit().min(METADATA_UNIT_BYTES)
    }

    /// Whether ends of files can be in the packed inode, and several extents can show one cluster.
    pub(crate) fn has_fragments(&self) -> bool {
        self.min_kernel >= Kernel::FRAGMENTS
    }

    /// Bytes of content of a unit.
    pub(crate) fn unit(&self) -> usize {
        match self.unit_bytes {
            0 if self.has_records() => 128 << 10,
            0 => 256 << 10,
            bytes => bytes as usize,
        }
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

    /// Rejects options that no image can have.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] with the reason.
    pub fn check(&self) -> Result<()> {
        let invalid = |what| Err(Error::InvalidInput(what));
        let unit = self.unit();
        if !unit.is_power_of_two() || !(4 << 10..=1 << 20).contains(&unit) {
            return invalid("the unit size is not a power of two from 4 KiB to 1 MiB");
        }
        let align = self.align_bytes;
        if align != 1 && !(align.is_power_of_two() && (512..=1 << 20).contains(&align)) {
            return invalid("the alignment of data is not a power of two from 512 bytes to 1 MiB");
        }
        if self.label.len() > 16 || self.label.contains(&0) {
            return invalid("a label in EROFS has at most 16 bytes");
        }
        if self.min_kernel < Kernel::PLAIN {
            return invalid("EROFS images are for Linux 5.4 or newer");
        }
        if self.content_digest && self.min_kernel < Kernel::BLOCKS {
            return invalid("content digests in EROFS need Linux 6.4 or newer");
        }
        if u16::try_from(self.devices.len()).is_err() {
            return invalid("an EROFS image has at most 65,535 further devices");
        }
        if begin(&self.devices) > BLOCK_BYTES as u64 && self.devices.len() > 1 {
            return invalid("an EROFS image behind another in one file has no further devices");
        }
        let Some(settings) = &self.compression else {
            if !self.devices.is_empty() {
                return invalid("an EROFS image that names data of devices has a codec");
            }
            return Ok(());
        };
        match settings.algorithm() {
            Algorithm::Lz4 if self.min_kernel < Kernel::LZ4 => {
                return invalid("lz4 in clusters of several blocks needs Linux 5.13 or newer");
            }
            Algorithm::Zlib if self.min_kernel < Kernel::DEFLATE => {
                return invalid("gzip in EROFS needs Linux 6.6 or newer");
            }
            Algorithm::Zstd if self.min_kernel < Kernel::ZSTD => {
                return invalid("zstd in EROFS needs Linux 6.10 or newer");
            }
            Algorithm::Lz4 | Algorithm::Zlib => {}
            Algorithm::Zstd if matches!(settings, Settings::Zstd { level: 1..=22 }) => {}
            Algorithm::Zstd => return invalid("zstd in EROFS has levels 1 to 22"),
            _ => return invalid("EROFS has no codec but zstd, gzip (deflate) and lz4 here"),
        }
        Encoder::new(settings).map_err(|error| Error::InvalidInput(error.as_str()))?;
        Ok(())
    }
}

/// Summary of the image that was created.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ErofsSummary {
    /// The part common to all formats.
    pub image: ImageSummary,
    /// The number of units that are stored uncompressed, because compression does not make them
    /// smaller.
    pub plain_units: u64,
    /// The number of units that show the stored bytes of an earlier one.
    pub shared_units: u64,
    /// The number of units that are named where they are on further devices.
    pub device_units: u64,
    /// Their stored bytes, however many files show them.
    pub device_bytes: u64,
    /// Bytes of zeros before compressed units, which begin at blocks.
    pub padding_bytes: u64,
    /// Bytes of inodes, indexes, directories and attributes.
    pub metadata_bytes: u64,
    /// Extents of the source that are compressed, and were not kept, by the reason.
    pub recoded: BTreeMap<&'static str, u64>,
    /// Whether compressed data of the source was encoded again that records hold as it is stored.
    pub newer_keeps: bool,
    /// The UUID.
    pub uuid: [u8; 16],
}
