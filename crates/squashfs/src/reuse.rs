//! Keeps blocks of an older image whose content is unchanged.

use std::io;

use codec::{Algorithm, Decoder, Encoder, Filters, Settings, ZstdFrame};
use tree::{
    BlockEncoding, Error, Extent, ExtentId, ExtentKind, FileId, Inventory, OldExtents, Parallel,
    Result, Reuse, Verify, ordered,
};
use xxhash::Xxh64;

use crate::code_filter;
use crate::options::Options;
use crate::raw::{METADATA_BYTES, flags};

/// The unreferenced data in kept fragment blocks takes at most one part in this many of the image.
const WASTE_PARTS: u64 = 64;
/// How many blocks are encoded again to find out whether the old image was made with the same
/// settings.
const SAMPLES: usize = 16;
/// How many files are looked at for them.
const SAMPLE_FILES: usize = 64;

/// An older image with the same codec and block size.
pub(crate) struct OldBlocks<'a> {
    reuse: Reuse<'a>,
    algorithm: Algorithm,
    block_bytes: usize,
    verify: Verify,
    /// Whether the image becomes the one that would be made without the old one.
    is_exact: bool,
}

/// The memory that a thread needs for a block.
pub(crate) struct ReuseMemory<'a> {
    pub(crate) extents: &'a mut OldExtents,
    pub(crate) decoder: &'a mut Decoder,
    /// As long as a block.
    pub(crate) decoded: &'a mut [u8],
}

/// A fragment block of the old image that becomes one of the new image.
#[derive(Clone, Copy)]
pub(crate) struct OldFragment {
    /// A file whose counterpart has its tail in it, and where that is.
    file: FileId,
    extent: Extent,
    /// The length of its content.
    pub(crate) len: usize,
    /// A hash of the stored block.
    hash: u64,
    /// The number of files whose tails it holds.
    pub(crate) files: usize,
}

/// The fragment blocks to keep, and the tails in them.
#[derive(Default)]
pub(crate) struct OldTails {
    pub(crate) fragments: Vec<OldFragment>,
    /// By file: the index of its fragment block, and where in it its tail begins.
    tails: Vec<(FileId, u32, u32)>,
}

impl OldTails {
    /// The index of the fragment block that holds a file's tail, and the offset of the tail in it.
    pub(crate) fn of(&self, file: FileId) -> Option<(usize, u32)> {
        let found = self.tails.binary_search_by_key(&file, |tail| tail.0).ok()?;
        let (_, index, begin) = self.tails[found];
        Some((index as usize, begin))
    }
}

/// A file whose counterpart has its tail in a fragment block of the old image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TailCandidate {
    id: ExtentId,
    begin: u64,
    file: FileId,
}

/// A fragment block of the old image that was read.
struct OldFragmentUse {
    fragment: OldFragment,
    /// Its length as it is stored.
    stored: u64,
    /// How much of its content files show.
    shown: u64,
    tails: Vec<TailCandidate>,
}

impl OldFragmentUse {
    fn hidden(&self) -> u64 {
        self.fragment.len as u64 - self.shown
    }

    /// The stored bytes that nothing shows.
    fn waste(&self) -> u64 {
        self.stored * self.hidden() / self.fragment.len as u64
    }
}

impl<'a> OldBlocks<'a> {
    /// Pairs the files with those of the old image that the options name; `None` if they name no
    /// image, or one whose blocks cannot be kept.
    pub(crate) fn find(
        inventory: &'a Inventory<'a>,
        options: &'a Options,
        parallel: Parallel,
    ) -> Option<OldBlocks<'a>> {
        let (old, settings) = (options.old.as_ref()?, options.compression?);
        let encoding = BlockEncoding {
            algorithm: settings.algorithm(),
            block_bytes: options.block_bytes,
        };
        let has_plain_blocks = options.plain & (flags::DATA_PLAIN | flags::FRAGMENTS_PLAIN) != 0;
        let is_without = options.reuse_exact && has_plain_blocks;
        if old.tree.storage().block_encoding != Some(encoding) || is_without {
            return None;
        }
        Some(OldBlocks {
            reuse: Reuse::find(inventory, old, parallel),
            algorithm: encoding.algorithm,
            block_bytes: options.block_bytes as usize,
            verify: options.verify,
            is_exact: options.reuse_exact,
        })
    }

    /// Whether these settings give the blocks of a sample.
    pub(crate) fn is_made_with(&self, settings: &Settings, filter_code: bool) -> bool {
        let Ok(mut encoder) = Encoder::new(settings) else {
            return false;
        };
        let mut decoder = Decoder::new();
        let [mut decoded, mut again, mut stored] = [(); 3].map(|()| vec![0; self.block_bytes]);
        let mut extents = OldExtents::default();
        // The filter of a fragment block depends on all files in it.
        let bytes = if filter_code { self.block_bytes } else { 1 };
        let mut samples = 0;
        for file in self.reuse.sample(bytes as u64, SAMPLE_FILES) {
            let block = extents.at(&self.reuse, file, 0);
            let block = block.and_then(|extent| self.read(file, &extent, &mut stored));
            let Some(stored_len) = block else { continue };
            let stored = &stored[..stored_len];
            let Ok(len) = decoder.decompress(self.algorithm, &mut decoded, stored) else {
                continue;
            };
            let (content, room) = (&decoded[..len], &mut again[..len.saturating_sub(1)]);
            let encoded = if filter_code {
                let header = content.first_chunk();
                let filter = header.map_or(Filters(0), code_filter::filter_of);
                encoder.compress_filtered(filter, room, content)
            } else {
                encoder.compress(room, content)
            };
            if encoded.is_none_or(|len| again[..len] != *stored) {
                return false;
            }
            samples += 1;
            if samples == SAMPLES {
                break;
            }
        }
        true
    }

    /// Reads the stored bytes of a block into `buffer` and returns their number, if Linux can
    /// decode them in the new image.
    fn read(&self, file: FileId, extent: &Extent, buffer: &mut Vec<u8>) -> Option<usize> {
        match extent.kind {
            ExtentKind::Encoded(encoding) if encoding.algorithm == self.algorithm => {}
            _ => return None,
        }
        let (len, _) = self.reuse.read_encoded(file, extent, buffer)?;
        if self.algorithm == Algorithm::Zstd {
            let window_max = self.block_bytes.max(METADATA_BYTES) as u64;
            let frame = ZstdFrame::parse(&buffer[..len], window_max)?;
            if frame.bytes != len {
                return None;
            }
        }
        Some(len)
    }

    /// Reads the old block of a part of a file into `buffer`, if it has this content.
    pub(crate) fn block(
        &self,
        decoding: &mut ReuseMemory<'_>,
        (file, offset): (FileId, u64),
        content: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Option<usize> {
        let extent = decoding.extents.at(&self.reuse, file, offset)?;
        if extent.len != content.len() as u64 {
            return None;
        }
        self.equal(decoding, file, &extent, content, buffer)
    }

    /// Reads the old fragment block that begins with the tail of this file, at `offset` in it, if
    /// the block has this content and the image is to be as if there were no old one.
    pub(crate) fn equal_fragment(
        &self,
        decoding: &mut ReuseMemory<'_>,
        (file, offset): (FileId, u64),
        content: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Option<usize> {
        if !self.is_exact {
            return None;
        }
        let extent = decoding.extents.at(&self.reuse, file, offset)?;
        self.equal(decoding, file, &extent, content, buffer)
    }

    fn equal(
        &self,
        decoding: &mut ReuseMemory<'_>,
        file: FileId,
        extent: &Extent,
        content: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Option<usize> {
        let ExtentKind::Encoded(encoding) = extent.kind else {
            return None;
        };
        if encoding.unencoded_offset > 0 || encoding.stored_len >= content.len() as u64 {
            return None;
        }
        let stored_len = self.read(file, extent, buffer)?;
        let (stored, decoded) = (&buffer[..stored_len], &mut *decoding.decoded);
        let len = (decoding.decoder).decompress(self.algorithm, decoded, stored);
        let is_equal = len == Ok(content.len()) && decoded[..content.len()] == *content;
        is_equal.then_some(stored_len)
    }

    /// Reads the old block of a part of a file of `len` bytes into `buffer`, if the file is trusted
    /// to be unchanged.
    pub(crate) fn trusted_block(
        &self,
        decoding: &mut ReuseMemory<'_>,
        (file, offset): (FileId, u64),
        len: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<usize> {
        if !self.reuse.is_trusted(file) {
            return None;
        }
        let extent = decoding.extents.at(&self.reuse, file, offset)?;
        let ExtentKind::Encoded(encoding) = extent.kind else {
            return None;
        };
        if extent.len != len as u64
            || encoding.unencoded_offset > 0
            || encoding.stored_len >= extent.len
        {
            return None;
        }
        let stored_len = self.read(file, &extent, buffer)?;
        if self.verify.decodes_kept(None) {
            let (stored, decoded) = (&buffer[..stored_len], &mut *decoding.decoded);
            let decoded = (decoding.decoder).decompress(self.algorithm, decoded, stored);
            if decoded != Ok(len) {
                return None;
            }
        }
        Some(stored_len)
    }

    /// Finds the fragment blocks to keep for the files of `packed`, whose tails go into fragments.
    /// At least three quarters of each must be referenced, and the rest must be little compared
    /// with the image: to that end, the files of `others` count with their stored bytes in the old
    /// image.
    pub(crate) fn tails(
        &self,
        inventory: &Inventory,
        (packed, others): (&[FileId], &[FileId]),
        parallel: Parallel,
    ) -> OldTails {
        if self.is_exact {
            return OldTails::default();
        }
        let mut extents = OldExtents::default();
        let candidates = self.candidates(inventory, packed, &mut extents);
        let groups = candidates.chunk_by(|a, b| a.id == b.id);
        let mut all = Vec::new();
        let looked = ordered(
            parallel,
            groups,
            || FragmentReader {
                extents: OldExtents::default(),
                decoder: Decoder::new(),
                stored: vec![0; self.block_bytes],
                decoded: vec![0; self.block_bytes],
                tail: vec![0; self.block_bytes],
            },
            |looking, group| Ok::<_, Error>(self.look(inventory, looking, group)),
            |seen| {
                all.extend(seen);
                Ok(())
            },
        );
        debug_assert!(looked.is_ok());
        all.retain(|seen| seen.shown * 4 >= seen.fragment.len as u64 * 3);
        // Those with the least waste first.
        all.sort_by(|a, b| {
            let (left, right) = (
                a.hidden() * b.fragment.len as u64,
                b.hidden() * a.fragment.len as u64,
            );
            left.cmp(&right)
        });
        let waste: u64 = all.iter().map(OldFragmentUse::waste).sum();
        let mut shown: u64 = all.iter().map(|seen| seen.stored - seen.waste()).sum();
        for &file in others {
            if shown / WASTE_PARTS >= waste {
                break;
            }
            if self.reuse.has_same_size(file) && extents.at(&self.reuse, file, 0).is_some() {
                shown += extents.stored_bytes();
            }
        }
        let mut room = shown / WASTE_PARTS;
        let mut kept = OldTails::default();
        for seen in all {
            let Some(rest) = room.checked_sub(seen.waste()) else {
                break;
            };
            room = rest;
            let index = kept.fragments.len() as u32;
            kept.fragments.push(seen.fragment);
            let tails = seen.tails.iter();
            (kept.tails).extend(tails.map(|tail| (tail.file, index, tail.begin as u32)));
        }
        kept.tails.sort_unstable();
        kept
    }

    /// The files with counterparts that have their tails in compressed fragment blocks, by block.
    fn candidates(
        &self,
        inventory: &Inventory,
        packed: &[FileId],
        extents: &mut OldExtents,
    ) -> Vec<TailCandidate> {
        let mut candidates = Vec::new();
        for &file in packed {
            let Some(extent) = self.tail(inventory, extents, file) else {
                continue;
            };
            if let (ExtentKind::Encoded(encoding), Some(id)) = (extent.kind, extent.id) {
                candidates.push(TailCandidate {
                    id,
                    begin: encoding.unencoded_offset,
                    file,
                });
            }
        }
        candidates.sort_unstable();
        candidates
    }

    /// The extent of the tail of a file's counterpart, if it is in a fragment and as long as that
    /// of the file.
    fn tail(
        &self,
        inventory: &Inventory,
        extents: &mut OldExtents,
        file: FileId,
    ) -> Option<Extent> {
        if !self.reuse.has_same_size(file) {
            return None;
        }
        let size = inventory.size(file);
        let len = size % self.block_bytes as u64;
        let extent = extents.at(&self.reuse, file, size - len)?;
        let ExtentKind::Encoded(encoding) = extent.kind else {
            return None;
        };
        // The length of a fragment's content is not known before it is decoded, and is stated as
        // that of a block.
        let is_tail = encoding.unencoded_len == self.block_bytes as u64 && extent.len == len;
        is_tail.then_some(extent)
    }

    /// Decodes a fragment block and compares the tails in it with those of the files.
    fn look(
        &self,
        inventory: &Inventory,
        looking: &mut FragmentReader,
        group: &[TailCandidate],
    ) -> Option<OldFragmentUse> {
        let file = group.first()?.file;
        let extent = self.tail(inventory, &mut looking.extents, file)?;
        let stored = self.read(file, &extent, &mut looking.stored)?;
        let (block, decoded) = (&looking.stored[..stored], &mut looking.decoded);
        let len = looking.decoder.decompress(self.algorithm, decoded, block);
        let len = len.ok().filter(|&len| stored < len)?;
        let content = &decoded[..len];
        let (mut tails, mut shown, mut end) = (Vec::new(), 0, 0);
        for &candidate in group {
            let size = inventory.size(candidate.file);
            let tail_len = size % self.block_bytes as u64;
            let (begin, to) = (candidate.begin, candidate.begin.saturating_add(tail_len));
            let Some(old) = content.get(begin as usize..to as usize) else {
                continue;
            };
            let is_equal = self.reuse.is_trusted(candidate.file) || {
                let tail = &mut looking.tail[..old.len()];
                let ino = inventory.ino(candidate.file);
                let read = inventory.tree().read_at(ino, size - tail_len, tail);
                read.is_ok_and(|read| read == old.len()) && tail == old
            };
            if is_equal {
                shown += to.saturating_sub(begin.max(end));
                end = end.max(to);
                tails.push(candidate);
            }
        }
        let fragment = OldFragment {
            file,
            extent,
            len,
            hash: hash_of(block),
            files: tails.len(),
        };
        Some(OldFragmentUse {
            fragment,
            stored: stored as u64,
            shown,
            tails,
        })
    }

    /// Reads a fragment block that is kept into `buffer`.
    ///
    /// # Errors
    /// The old image changed.
    pub(crate) fn fragment(&self, old: &OldFragment, buffer: &mut Vec<u8>) -> Result<usize> {
        match self.reuse.read_encoded(old.file, &old.extent, buffer) {
            Some((len, _)) if hash_of(&buffer[..len]) == old.hash => Ok(len),
            _ => Err(Error::Io(io::Error::other(
                "the image to reuse changed while it was read",
            ))),
        }
    }
}

/// The memory of a thread that looks at fragment blocks.
struct FragmentReader {
    extents: OldExtents,
    decoder: Decoder,
    stored: Vec<u8>,
    decoded: Vec<u8>,
    tail: Vec<u8>,
}

fn hash_of(stored: &[u8]) -> u64 {
    let mut hash = Xxh64::new(0);
    hash.update(stored);
    hash.digest()
}
