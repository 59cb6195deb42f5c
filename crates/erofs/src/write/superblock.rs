//! Writes the superblock, which makes the image valid.

use tree::{Result, Sha256, uuid_of};

use super::block::{BLOCK_BYTES, BLOCK_LOG2, block_number};
use super::devices::{check_end, has_further, tag_beneath};
use super::image::ImageWriter;
use super::layout::{ImageContent, InodeLayout};
use super::options::Options;
use super::unit::Codec;
use super::xattrs::digest_prefix;
use crate::superblock::{
    DEVICE_SLOT_BYTES, MAGIC, METABOX_AT, SLOT_BYTES, SUPERBLOCK_AT, SUPERBLOCK_BYTES, TAG_AT,
    compat, incompat,
};

/// The largest distance of matches in LZ4.
const LZ4_DISTANCE: u16 = 65_535;
/// The logarithm of the window of deflate.
const DEFLATE_WINDOW_LOG2: u8 = 15;
/// The logarithm of a window of zstd that is counted as 0.
const ZSTD_WINDOW_LOG2: u32 = 10;
/// The logarithm of the largest window of zstd.
const WINDOW_LOG2_MAX: u32 = 20;
/// The most blocks of a cluster.
const LZ4_BLOCKS_MAX: u16 = 256;

impl ImageWriter<'_> {
    /// Ends the image and writes the superblock.
    pub(crate) fn finish(
        &mut self,
        content: &ImageContent,
        layout: &InodeLayout,
        made: u32,
    ) -> Result<()> {
        let options = self.options;
        // Data that was taken back may have reached further.
        self.output.set_len(self.at)?;
        check_end(&self.options.devices, self.at)?;
        let mut block = [0; BLOCK_BYTES];
        let at = SUPERBLOCK_AT as usize;
        let mut put = |field: usize, bytes: &[u8]| {
            block[at + field..at + field + bytes.len()].copy_from_slice(bytes);
        };
        let is_compressed = options.compression.is_some();
        let features = [
            (is_compressed, incompat::ZERO_PADDING | incompat::COMPR_CFGS),
            (content.data.has_chunks, incompat::CHUNKED_FILE),
            (
                layout.packed.is_some()
                    || self.summary.shared_units > 0
                    || self.summary.device_units > 0,
                incompat::FRAGMENTS,
            ),
            (options.has_records(), incompat::LAYOUT_48BIT),
            (has_further(&options.devices), incompat::DEVICE_TABLE),
            (options.content_digest, incompat::XATTR_PREFIXES),
            (layout.metabox.is_some(), incompat::METABOX),
        ];
        let features = features.into_iter().filter(|(is_used, _)| *is_used);
        let features = features.fold(0, |bits, (_, bit)| bits | bit);
        let root = layout.nid(content, tree::FileId(0));
        put(0, &MAGIC.to_le_bytes());
        let mut compatible = compat::SB_CHKSUM | compat::MTIME;
        if options.content_digest {
            compatible |= compat::ISHARE_XATTRS;
            // Otherwise Linux looks for the prefix in the metabox.
            if layout.metabox.is_some() {
                compatible |= compat::PLAIN_XATTR_PFX;
            }
        }
        put(8, &compatible.to_le_bytes());
        put(12, &[BLOCK_LOG2]);
        if options.has_records() {
            put(112, &root.to_le_bytes());
        } else {
            put(14, &(root as u16).to_le_bytes());
        }
        let lost = content.lost.files().len() as u64;
        let inodes = u64::from(self.inventory.file_count()) - lost;
        put(16, &inodes.to_le_bytes());
        put(24, &content.epoch.seconds.to_le_bytes());
        put(32, &content.epoch.nanoseconds.to_le_bytes());
        let blocks = block_number(self.at >> BLOCK_LOG2)?;
        put(36, &blocks.to_le_bytes());
        put(40, &((layout.meta_at >> BLOCK_LOG2) as u32).to_le_bytes());
        put(44, &((layout.xattr_at >> BLOCK_LOG2) as u32).to_le_bytes());
        put(64, &options.label);
        put(80, &features.to_le_bytes());
        let mut field = SUPERBLOCK_BYTES;
        if let Some(metabox) = &layout.metabox {
            put(13, &[1]);
            put(METABOX_AT, &u64::from(metabox.nid).to_le_bytes());
            field += SLOT_BYTES;
        }
        if is_compressed {
            let own = options.compression.map(|it| Codec::of(it.algorithm()));
            let codecs = content.data.codecs | own.map_or(0, |codec| 1 << codec as u16);
            put(84, &codecs.to_le_bytes());
            let used = Codec::ALL
                .into_iter()
                .filter(|codec| codecs >> *codec as u16 & 1 != 0);
            for codec in used {
                let settings = settings(codec, options, content.data.is_wide);
                put(field, &settings);
                field += settings.len().next_multiple_of(4);
            }
        }
        if has_further(&options.devices) {
            put(86, &(options.devices.len() as u16).to_le_bytes());
            // The table is in the block behind this one.
            put(
                88,
                &((BLOCK_BYTES / DEVICE_SLOT_BYTES) as u16).to_le_bytes(),
            );
        }
        if options.content_digest {
            let prefix_at = content.data.prefix_at.unwrap_or_else(|| {
                put(field, &digest_prefix());
                ((at + field) / 4) as u32
            });
            // One prefix, which is the one of digests.
            put(91, &[1]);
            put(92, &prefix_at.to_le_bytes());
        }
        let packed = layout.packed.as_ref().map_or(0, |file| file.nid.into());
        put(96, &u64::to_le_bytes(packed));
        put(108, &made.to_le_bytes());
        if let Some(tag) = tag_beneath(&options.devices) {
            block[TAG_AT..TAG_AT + tag.len()].copy_from_slice(tag);
        }
        let mut digest = Sha256::new();
        digest.update(&self.written.digest());
        digest.update(&block);
        let uuid = options.uuid.unwrap_or_else(|| uuid_of(digest.finish()));
        block[at + 48..at + 64].copy_from_slice(&uuid);
        let checksum = !crc32c::crc32c(&block[at..]);
        block[at + 4..at + 8].copy_from_slice(&checksum.to_le_bytes());
        self.put_first_block(&block)?;
        self.summary.uuid = uuid;
        self.summary.image.image_bytes = self.at;
        Ok(())
    }
}

/// The settings of the codec, with their length before them.
fn settings(codec: Codec, options: &Options, is_wide: bool) -> Vec<u8> {
    let unit = options.unit() as u32;
    let mut settings = match codec {
        Codec::Zstd => {
            let log2 = if is_wide {
                WINDOW_LOG2_MAX
            } else {
                unit.ilog2()
            };
            let window = log2.saturating_sub(ZSTD_WINDOW_LOG2);
            vec![0, window as u8, 0, 0, 0, 0]
        }
        Codec::Deflate => vec![DEFLATE_WINDOW_LOG2, 0, 0, 0, 0, 0],
        Codec::Lz4 => {
            // In records, a unit can begin within a block, and one of the source be longer.
            let most = if options.has_records() {
                LZ4_BLOCKS_MAX
            } else {
                (unit >> BLOCK_LOG2) as u16
            };
            let mut settings = LZ4_DISTANCE.to_le_bytes().to_vec();
            settings.extend(most.to_le_bytes());
            settings.resize(14, 0);
            settings
        }
    };
    settings.splice(0..0, (settings.len() as u16).to_le_bytes());
    settings
}
