//! The memory that a copy takes.

use codec::{Packer, Settings, Wrapper};
use tree::FileKind;

use super::format::Format;
use super::job::CopyJob;
use super::options::CopyOptions;
use crate::memory::{MemoryModel, PROGRAM_BYTES, READ_AHEAD_BYTES, THREAD_BYTES};
use crate::object::is_remote;
use crate::{Address, Result};

/// Tables of the writer for a name, besides the list of files. Those of large trees go to a file.
const NAME_BYTES: u64 = 100;
/// Tables of a source that is no directory, for a name.
const SOURCE_NAME_BYTES: u64 = 100;
/// The largest file that btrfs may store inline, and the most bytes of one.
const INLINE_SIZE_MAX: u64 = 4096;
const INLINE_BYTES_MAX: u64 = 2048;
/// Bytes of content for each byte of their checksums: CRC-32C of 4 KiB.
const CHECKSUM_SHARE: u64 = 1024;
/// What stays in memory of both, where the rest goes to a file.
const SPOOLED_BYTES: u64 = 8 << 20;

impl CopyJob<'_> {
    /// Chooses threads, jobs and the buffers of an upload within the bound on memory.
    ///
    /// # Errors
    /// The options need more.
    pub(super) fn bound_memory(&mut self) -> Result<()> {
        let Some(bytes_max) = self.options.memory_max else {
            return Ok(());
        };
        let mut model = self.memory_model();
        let is_btrfs = self.format == Format::Btrfs;
        let is_object = Address::is_written_object(self.dst);
        model.fixed_bytes += self.tables_bytes(is_btrfs, is_object);
        if is_object {
            self.upload_bytes_max = model.add_upload(bytes_max, is_btrfs);
        }
        let advice = "; smaller blocks, a lower level or another codec need less";
        self.parallel = model.fit(self.parallel, bytes_max, ("copy", advice))?;
        Ok(())
    }

    /// The tables of an image that is sent, which are read back, and those of btrfs, which have the
    /// content of inline files and all checksums: an object has no file for most of them beside it.
    fn tables_bytes(&self, is_btrfs: bool, is_object: bool) -> u64 {
        let inventory = &self.inventory;
        let names = u64::from(inventory.entry_count()) * u64::from(is_object);
        let tables = names.saturating_mul(NAME_BYTES);
        if !is_btrfs {
            return tables;
        }
        let sizes = inventory.files().map(|file| match inventory.kind(file) {
            FileKind::Regular => inventory.size(file),
            _ => 0,
        });
        let inline = sizes.filter(|&size| size <= INLINE_SIZE_MAX);
        let inline = inline.map(|size| size.min(INLINE_BYTES_MAX)).sum::<u64>();
        let bytes = inline + inventory.content_bytes() / CHECKSUM_SHARE;
        let bytes_max = if is_object { u64::MAX } else { SPOOLED_BYTES };
        tables + bytes.min(bytes_max)
    }

    fn memory_model(&self) -> MemoryModel {
        let (inventory, options) = (&self.inventory, self.options);
        let names = inventory.entry_count() as u64;
        let source = match self.source.directory() {
            Some(_) => 0,
            None => SOURCE_NAME_BYTES,
        };
        let mut fixed_bytes = PROGRAM_BYTES
            + inventory.memory_bytes() as u64
            + names.saturating_mul(NAME_BYTES + source);
        if is_remote(self.source.name().as_bytes()) {
            fixed_bytes += options.remote.cache_bytes as u64 + READ_AHEAD_BYTES;
        }
        let format = options.content_format(self.format);
        let (block_bytes, encoder_bytes) = options.block(format);
        MemoryModel {
            fixed_bytes,
            thread_bytes: THREAD_BYTES + encoder_bytes,
            block_bytes,
            jobs_factor: if format == Format::Btrfs { 4 } else { 1 },
        }
    }
}

impl CopyOptions {
    /// The bytes of a block of this format, and of its encoder.
    fn block(&self, format: Format) -> (u64, u64) {
        let of_blocks = |bytes: usize, settings: Option<Settings>| {
            let encoder = settings.map_or(0, |settings| settings.memory_bytes(bytes));
            (bytes as u64, encoder as u64)
        };
        let wrapper = format.wrapper().or(match format {
            Format::Oci | Format::OciArchive => self.image.wrapper,
            _ => None,
        });
        if let Some(wrapper) = wrapper {
            let bytes = Packer::part_bytes(wrapper);
            return (bytes as u64, packer_bytes(wrapper, self.level) as u64);
        }
        match format {
            Format::Squashfs => {
                let options = &self.squashfs;
                of_blocks(options.block_bytes as usize, options.compression)
            }
            Format::Erofs => of_blocks(
                self.erofs.unit_bytes.max(256 << 10) as usize,
                self.erofs.compression,
            ),
            Format::Btrfs => {
                let rules = self.btrfs.rules.iter().map(|rule| rule.compression);
                let all = rules.chain([self.btrfs.compression]).flatten();
                let sizes = all.map(|settings| of_blocks(128 << 10, Some(settings)));
                sizes.max().unwrap_or(of_blocks(128 << 10, None))
            }
            Format::Stream => of_blocks(128 << 10, self.stream.encode),
            _ => of_blocks(256 << 10, None),
        }
    }
}

/// The memory of a packer, whose dictionaries are not bounded by the length of a part.
fn packer_bytes(wrapper: Wrapper, level: Option<u8>) -> usize {
    let settings = match wrapper {
        Wrapper::Zstd => Settings::Zstd {
            level: level.unwrap_or(3).into(),
        },
        Wrapper::Gzip => Settings::Zlib {
            level: level.unwrap_or(6),
        },
        _ => {
            const DICTIONARY_MIB: [usize; 10] = [1, 1, 2, 4, 4, 8, 8, 16, 32, 64];
            let level = level.unwrap_or(6);
            let bytes = DICTIONARY_MIB[usize::from(level.min(9))] << 20;
            let xz = Settings::Xz {
                level,
                extreme: false,
                dictionary_bytes: bytes as u32,
                filters: codec::Filters(0),
            };
            return xz.memory_bytes(bytes);
        }
    };
    settings.memory_bytes(Packer::part_bytes(wrapper))
}
