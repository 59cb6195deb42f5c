//! Keeps extents of an older image whose content is unchanged.

use codec::{Decoder, Encoder};
use tree::{Extent, ExtentKind, FileId, Inventory, OldExtents, Parallel, Reuse, Verify};

use super::choice::Chooser;
use crate::disk::compression::{Compression, EXTENT_BYTES_MAX};
use crate::options::Options;
use crate::write::layout::SECTOR_BYTES;

const SECTOR: u64 = SECTOR_BYTES as u64;
/// How many extents are encoded again to find out whether the old image was made with the same
/// settings.
const SAMPLES: usize = 16;
/// How many files are looked at for them.
const SAMPLE_FILES: usize = 64;

/// An older image that was made with the same settings.
pub(super) struct OldData<'a> {
    reuse: Reuse<'a>,
    verify: Verify,
}

/// The memory that a thread needs for an extent.
pub(super) struct ReuseBuffers<'a> {
    pub(super) extents: &'a mut OldExtents,
    pub(super) decoder: &'a mut Decoder,
    /// Room for the content of an extent.
    pub(super) decoded: &'a mut [u8],
}

/// A part of a file: its algorithm in the new image, the length that it shows, and the length of
/// its content when it is encoded.
#[derive(Clone, Copy)]
pub(super) struct WantedExtent {
    pub(super) file: FileId,
    pub(super) offset: u64,
    pub(super) compression: Compression,
    pub(super) len: usize,
    pub(super) ram: usize,
    /// The most bytes that it may take.
    pub(super) room: usize,
    /// Whether it is stored in a tree.
    pub(super) is_inline: bool,
}

impl<'a> OldData<'a> {
    /// Pairs the files with those of the old image that the options name.
    pub(super) fn find(
        inventory: &'a Inventory<'a>,
        options: &'a Options,
        parallel: Parallel,
    ) -> Option<OldData<'a>> {
        let old = options.old.as_ref()?;
        Some(OldData {
            reuse: Reuse::find(inventory, old, parallel),
            verify: options.verify,
        })
    }

    /// Whether the extents of a sample equal the output of their files' encoders. An image does not
    /// tell its levels.
    pub(super) fn is_made_with(&self, chooser: &Chooser<'_>) -> bool {
        let mut encoders: Vec<Option<Encoder>> = (0..chooser.encoders()).map(|_| None).collect();
        let mut decoder = Decoder::new();
        let [mut decoded, mut again, mut stored] =
            [(); 3].map(|()| vec![0; EXTENT_BYTES_MAX as usize]);
        let mut extents = OldExtents::default();
        let (mut samples, mut others) = (0, 0);
        for file in self.reuse.sample(1, SAMPLE_FILES) {
            let Some(choice) = chooser.choose(file) else {
                continue;
            };
            let algorithm = Compression::of_settings(&choice.settings);
            let algorithm = algorithm.algorithm(SECTOR_BYTES as u32);
            let Some(extent) = extents.at(&self.reuse, file, 0) else {
                continue;
            };
            // What begins inside of its extent was cut by someone else.
            let len = match extent.kind {
                ExtentKind::Encoded(encoding)
                    if encoding.algorithm == algorithm
                        && encoding.unencoded_offset == 0
                        && encoding.unencoded_len <= EXTENT_BYTES_MAX =>
                {
                    encoding.unencoded_len as usize
                }
                ExtentKind::Encoded(_) => {
                    others += 1;
                    continue;
                }
                _ => continue,
            };
            let Some((stored_len, _)) = self.reuse.read_encoded(file, &extent, &mut stored) else {
                continue;
            };
            let (content, old) = (&mut decoded[..len], &stored[..stored_len]);
            if (decoder.decompress_extent(algorithm, content, old)).is_err() {
                continue;
            }
            let encoder = match &mut encoders[choice.encoder] {
                Some(encoder) => encoder,
                none => match Encoder::new(&choice.settings) {
                    Ok(encoder) => none.insert(encoder),
                    Err(_) => return false,
                },
            };
            let encoded = encoder.compress_extent(SECTOR_BYTES as u32, &mut again, content);
            if encoded.is_none_or(|len| !is_padded(&again[..len], old)) {
                return false;
            }
            samples += 1;
            if samples == SAMPLES {
                break;
            }
        }
        samples > 0 || others == 0
    }

    /// Reads the old extent of a part of a file into `buffer` and returns its stored length. It
    /// must decode to `content`, which is as long as it is when it is encoded; without `content`,
    /// the file must be trusted to be unchanged.
    pub(super) fn extent(
        &self,
        buffers: &mut ReuseBuffers<'_>,
        wanted: &WantedExtent,
        content: Option<&[u8]>,
        stored: &mut Vec<u8>,
    ) -> Option<usize> {
        if content.is_none() && !self.reuse.is_trusted(wanted.file) {
            return None;
        }
        let extent = self.place(buffers.extents, wanted)?;
        let (len, checksum) = self.reuse.read_encoded(wanted.file, &extent, stored)?;
        let algorithm = wanted.compression.algorithm(SECTOR_BYTES as u32);
        let decoded = &mut buffers.decoded[..wanted.ram];
        let mut decodes = || {
            let decoder = &mut *buffers.decoder;
            decoder
                .decompress_extent(algorithm, decoded, &stored[..len])
                .is_ok()
                && content.is_none_or(|content| content == &*decoded)
        };
        let is_same = algorithm.is_extent(&stored[..len])
            && (content.is_none() && !self.verify.decodes_kept(checksum) || decodes());
        is_same.then_some(len)
    }

    /// The old extent that shows exactly the wanted range.
    fn place(&self, extents: &mut OldExtents, wanted: &WantedExtent) -> Option<Extent> {
        let extent = extents.at(&self.reuse, wanted.file, wanted.offset)?;
        let ExtentKind::Encoded(encoding) = extent.kind else {
            return None;
        };
        let is_placed = extent.len == wanted.len as u64
            && encoding.unencoded_offset == 0
            && encoding.unencoded_len == wanted.ram as u64
            && encoding.stored_len <= wanted.room as u64
            && encoding.algorithm == wanted.compression.algorithm(SECTOR_BYTES as u32)
            && extent.id.is_none() == wanted.is_inline
            && (wanted.is_inline || encoding.stored_len.is_multiple_of(SECTOR));
        is_placed.then_some(extent)
    }
}

/// Whether `stored` is `encoded` with zeros after it, if anything.
fn is_padded(encoded: &[u8], stored: &[u8]) -> bool {
    stored
        .split_at_checked(encoded.len())
        .is_some_and(|(old, rest)| {
            old == encoded && rest.len() < SECTOR_BYTES && rest.iter().all(|&byte| byte == 0)
        })
}
