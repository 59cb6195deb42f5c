//! An open image: its devices, positions in metadata, and caches.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use codec::Decoder;
use tree::{
    BlockCache, BlockCounts, Cache, Error, ReadAt, Result, Sha256, StoreId, to_u64, to_usize,
};

use crate::fields::u16_at;
use crate::index::{IndexPart, IndexedFile};
use crate::inode::{COMPACT_BYTES, EXTENDED_BYTES, Inode, MetaAt};
use crate::listed::OwnedRanges;
use crate::piece::{PieceKind, StoredCluster, StoredPlace};
use crate::superblock::{BLOCKS_AT, DeviceSlot, IN_METABOX, Superblock, TAG_AT, TAG_BYTES};

/// Number of files whose headers are cached, and of parts of indexes.
const CONTENT_SLOTS: (usize, usize) = (8, 8);
const INDEX_SLOTS: (usize, usize) = (8, 8);
/// Indexes of more bytes are compared with those of other files.
const INDEX_BYTES_NOTED: u64 = 4096;
/// The most bytes of each part that a digest is of.
const DIGEST_BYTES: usize = 256 << 10;
/// Bytes of decoded clusters in the cache, unless [`Erofs::keep_decoded`] says otherwise.
const DECODED_BYTES_KEPT: usize = 16 << 20;

/// A long prefix of attributes' names: the number of a usual one, and the rest.
pub(crate) type LongPrefix = (u8, Vec<u8>);

/// The memory of one thread that decodes.
#[derive(Default)]
pub(crate) struct BlockDecoder {
    pub(crate) decoder: Decoder,
    pub(crate) stored: Vec<u8>,
}

/// The decoded content of a cluster, as far as one extent shows it.
pub(crate) struct DecodedPiece {
    pub(crate) cluster: StoredCluster,
    pub(crate) content: Vec<u8>,
    pub(crate) content_len: u64,
}

/// An EROFS image, open for reading.
///
/// An [`Ino`](tree::Ino) is the inode's nid. Any number of threads may read. Decoded clusters go
/// through small caches whose memory does not grow with the image, except for about 60 bytes for
/// each directory, and for each file with an index of more than 4 KiB, that is read.
pub struct Erofs {
    /// The image, and further devices in the order of the table.
    sources: Vec<Box<dyn ReadAt>>,
    pub(crate) superblock: Superblock,
    devices: Vec<DeviceSlot>,
    pub(crate) decoders: Mutex<Vec<BlockDecoder>>,
    pub(crate) contents: Cache<IndexedFile>,
    pub(crate) indexes: Cache<IndexPart>,
    pub(crate) pieces: BlockCache<DecodedPiece>,
    pub(crate) listed: OwnedRanges,
    indexed: OwnedRanges,
    pub(crate) prefixes: OnceLock<Vec<LongPrefix>>,
    pub(crate) store: StoreId,
}

impl Erofs {
    /// Opens an image and the further devices that its table names, in its order. Without them, all
    /// addresses are those of the image, as for Linux.
    ///
    /// # Errors
    /// It cannot be read, breaks the format, or needs a feature that is not read; there are too few
    /// or too many devices.
    pub fn open(sources: Vec<Box<dyn ReadAt>>) -> Result<Erofs> {
        let image = &**sources.first().ok_or(Error::InvalidInput("no image"))?;
        let superblock = Superblock::read(image)?;
        let further = sources.len().saturating_sub(1);
        if further != 0 && further != usize::from(superblock.devices) {
            return Err(Error::InvalidInput(
                "not as many further devices as the image's device table has; --device names each, in order",
            ));
        }
        let devices = superblock.read_devices(image)?;
        let (contents, indexes) = (CONTENT_SLOTS, INDEX_SLOTS);
        let erofs = Erofs {
            sources,
            superblock,
            devices,
            decoders: Mutex::default(),
            contents: Cache::new(contents.0, contents.1),
            indexes: Cache::new(indexes.0, indexes.1),
            pieces: BlockCache::new(DECODED_BYTES_KEPT),
            listed: OwnedRanges::default(),
            indexed: OwnedRanges::default(),
            prefixes: OnceLock::new(),
            store: StoreId::new(),
        };
        let root = (erofs.inode(erofs.superblock.root)).map_err(|error| erofs.cut_or(error))?;
        if root.kind != tree::FileKind::Directory {
            let (what, got) = ("root inode is not a directory", root.mode.into());
            return Err(Error::corrupt(what, root.at.at, got));
        }
        Ok(erofs)
    }

    /// The length, if the image is cut off; otherwise `error`.
    fn cut_or(&self, error: Error) -> Error {
        self.check_length().err().unwrap_or(error)
    }

    /// Checks that the image is as long as its superblock says: Linux reads whole blocks of it.
    pub(crate) fn check_length(&self) -> Result<()> {
        let stated = self.superblock.blocks << self.superblock.block_log2;
        if self.image_bytes()? < stated {
            let what = "erofs image is shorter than it says";
            return Err(Error::corrupt(what, BLOCKS_AT, stated));
        }
        Ok(())
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Bytes of the image, without further devices.
    ///
    /// # Errors
    /// The medium's error.
    pub fn image_bytes(&self) -> Result<u64> {
        Ok(self.source(0)?.size()?)
    }

    /// The tags of the further devices, in the order of the table, with zeros behind them.
    pub fn device_tags(&self) -> impl Iterator<Item = &[u8; TAG_BYTES]> {
        self.devices.iter().map(|device| &device.tag)
    }

    /// The bytes at the end of the first 4 KiB, where an image behind another one in the same file
    /// has the tag of that; zeros in others.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn tag_beneath(&self) -> Result<[u8; TAG_BYTES]> {
        let mut tag = [0; TAG_BYTES];
        let (at, source) = (to_u64(TAG_AT), self.source(0)?);
        if source.size()? >= at.saturating_add(to_u64(TAG_BYTES)) {
            source.read_exact_at(&mut tag, at)?;
        }
        Ok(tag)
    }

    /// The SHA-256 of the superblock and of the beginning of the inodes. The superblock of most
    /// images has a UUID or a time of its own.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn digest(&self) -> Result<[u8; 32]> {
        let source = self.source(0)?;
        let size = source.size()?;
        let mut digest = Sha256::new();
        for at in [0, self.superblock.meta_at] {
            let len = to_usize(size.saturating_sub(at)).min(DIGEST_BYTES);
            let mut part = vec![0; len];
            source.read_exact_at(&mut part, at)?;
            digest.update(&part);
        }
        Ok(digest.finish())
    }

    /// Changes how many bytes of decoded clusters are kept.
    pub fn keep_decoded(&self, bytes: usize) {
        self.pieces.keep(bytes);
    }

    /// The numbers of decoded clusters.
    pub fn decoded(&self) -> BlockCounts {
        self.pieces.counts()
    }

    /// The header and the inode of a file.
    pub(crate) fn content(&self, nid: u64) -> Result<Arc<IndexedFile>> {
        self.contents.find_or_make(nid, |_| {
            let inode = self.inode(nid)?;
            let content = self.open_content(inode)?;
            self.tell_end(&content);
            Ok(content)
        })
    }

    /// Tells the device of a file's content where that ends. Damage comes up again when it is read.
    fn tell_end(&self, content: &IndexedFile) {
        let place = |offset| {
            let piece = self.piece_at(content, offset).ok()?;
            let (place, len) = match piece.kind {
                PieceKind::Plain(place) => (place, piece.len),
                PieceKind::Cluster(cluster) => (cluster.place, cluster.stored_len),
                PieceKind::Hole | PieceKind::Fragment(_) => return None,
            };
            let StoredPlace::Data { device, at } = place else {
                return None;
            };
            let (device, at) = self.locate(device, at).ok()?;
            Some((device, at, at.saturating_add(len)))
        };
        if content.inode.kind == tree::FileKind::Regular
            && let Some((first, start, _)) = place(0)
            && let Some((last, _, end)) = place(content.inode.size.saturating_sub(1))
            && first == last
            && start < end
            && let Ok(source) = self.source(first)
        {
            source.will_read_within(start..end);
        }
    }

    /// Reads an inode.
    pub(crate) fn inode(&self, nid: u64) -> Result<Inode> {
        let in_metabox = nid & IN_METABOX != 0;
        let base = if in_metabox {
            0
        } else {
            self.superblock.meta_at
        };
        let offset = (nid & !IN_METABOX).checked_mul(to_u64(COMPACT_BYTES));
        let at = offset.and_then(|offset| offset.checked_add(base));
        let Some(at) = at.map(|at| MetaAt { in_metabox, at }) else {
            return Err(Error::NotFound);
        };
        let mut bytes = [0; EXTENDED_BYTES];
        let (compact, rest) = bytes.split_at_mut(COMPACT_BYTES);
        self.read_meta(at, compact)?;
        let is_extended = u16_at(compact, 0) & 1 != 0;
        if is_extended {
            self.read_meta(at.after(to_u64(COMPACT_BYTES)), rest)?;
        }
        let inode = Inode::parse(&bytes, nid, at, self.superblock.epoch)?;
        let special = [self.superblock.packed, self.superblock.metabox];
        // Linux 7.2 calls a function that other inodes lack, and crashes when it mounts the image.
        if special.contains(&Some(nid)) && inode.kind != tree::FileKind::Regular {
            let what = "packed inode or metabox is not a regular file";
            return Err(Error::corrupt(what, at.at, inode.mode.into()));
        }
        Ok(inode)
    }

    fn source(&self, device: u16) -> Result<&dyn ReadAt> {
        let source = self.sources.get(usize::from(device));
        source.map(|source| &**source).ok_or(Error::Unsupported(
            "data on a further device of the image; --device names it",
        ))
    }

    /// Reads stored bytes of a device as the addresses of the format name it; 0 is the common
    /// address space.
    pub(crate) fn read_stored(&self, buf: &mut [u8], device: u16, at: u64) -> Result<()> {
        let (device, at) = self.locate(device, at)?;
        let source = self.source(device)?;
        let end = at.checked_add(to_u64(buf.len()));
        let size = source.size()?;
        if end.is_none_or(|end| end > size) {
            if self.sources.len() == 1 && self.superblock.devices > 0 {
                return Err(Error::Unsupported(
                    "data on a further device of the image; --device names each, in the order of its device table",
                ));
            }
            let what = "data lies beyond the end of the erofs image";
            return Err(Error::corrupt(what, at, to_u64(buf.len())));
        }
        Ok(source.read_exact_at(buf, at)?)
    }

    /// The source and the place in it (`erofs_map_dev`).
    pub(crate) fn locate(&self, device: u16, at: u64) -> Result<(u16, u64)> {
        let is_flat = self.sources.len() == 1;
        if device == 0 {
            if is_flat {
                return Ok((0, at));
            }
            for (number, slot) in (1..).zip(&self.devices) {
                if let Some(inside) = at.checked_sub(slot.at)
                    && slot.at > 0
                    && inside < slot.len
                {
                    return Ok((number, inside));
                }
            }
            return Ok((0, at));
        }
        let slot = usize::from(device).checked_sub(1);
        let Some(slot) = slot.and_then(|slot| self.devices.get(slot)) else {
            let what = "device's number is larger than the device table";
            return Err(Error::corrupt(what, at, device.into()));
        };
        if !is_flat {
            return Ok((device, at));
        }
        if slot.at == 0 {
            return Err(Error::Unsupported(
                "data on a further device that is not in the image; --device names it",
            ));
        }
        Ok((0, slot.at.saturating_add(at)))
    }

    /// A device's number, of which Linux ignores the bits that no device can have.
    pub(crate) fn device_number(&self, number: u16) -> u16 {
        let devices = u32::from(self.superblock.devices).saturating_add(1);
        let mask = devices.next_power_of_two().saturating_sub(1);
        u16::try_from(u32::from(number) & mask).unwrap_or(number)
    }

    /// Reads metadata.
    pub(crate) fn read_meta(&self, place: MetaAt, buf: &mut [u8]) -> Result<()> {
        if !place.in_metabox {
            let size = self.source(0)?.size()?;
            let end = place.at.checked_add(to_u64(buf.len()));
            if end.is_none_or(|end| end > size) {
                let what = "metadata lies beyond the end of the erofs image";
                return Err(Error::corrupt(what, place.at, to_u64(buf.len())));
            }
            return Ok(self.source(0)?.read_exact_at(buf, place.at)?);
        }
        let Some(nid) = self.superblock.metabox else {
            let what = "inode is in a metabox that the image does not have";
            return Err(Error::corrupt(what, place.at, 0));
        };
        let metabox = self.content(nid)?;
        let wanted = to_u64(buf.len());
        let end = place.at.checked_add(wanted);
        if end.is_none_or(|end| end > metabox.inode.size) {
            let what = "metadata lies beyond the end of the metabox";
            return Err(Error::corrupt(what, place.at, wanted));
        }
        self.read_content(&metabox, place.at, buf)
    }

    pub(crate) fn with_decoder<T>(&self, run: impl FnOnce(&mut BlockDecoder) -> T) -> T {
        let pool = || self.decoders.lock().unwrap_or_else(PoisonError::into_inner);
        let mut decoder = pool().pop().unwrap_or_default();
        let result = run(&mut decoder);
        pool().push(decoder);
        result
    }

    /// Checks that a file's index is in its metadata, and, if it is long, that it is no other
    /// file's: small images must not claim any number of extents. Of attributes likewise.
    pub(crate) fn check_index(&self, inode: &Inode, at: MetaAt, len: u64) -> Result<()> {
        let size = match self.superblock.metabox.filter(|_| at.in_metabox) {
            Some(nid) => self.content(nid)?.inode.size,
            None => self.source(0)?.size()?,
        };
        if at.after(len).at > size {
            let what = "file's index or attributes lie beyond the end of its metadata";
            return Err(Error::corrupt(what, inode.at.at, len));
        }
        if len > INDEX_BYTES_NOTED && !self.indexed.note_index(at, len, inode.nid) {
            let what = "file's index or attributes are also those of another file";
            return Err(Error::corrupt(what, inode.at.at, len));
        }
        Ok(())
    }

    /// The offset in a block.
    pub(crate) fn block_offset(&self, at: u64) -> u64 {
        at & self.superblock.block_bytes().saturating_sub(1)
    }

    /// Checks that inline bytes lie in one block, as Linux needs it.
    pub(crate) fn check_inline(&self, inode: &Inode, place: MetaAt, len: u64) -> Result<()> {
        let end = self.block_offset(place.at).saturating_add(len);
        if end > self.superblock.block_bytes() {
            let what = "inline data crosses the end of its block";
            return Err(Error::corrupt(what, inode.at.at, len));
        }
        Ok(())
    }
}

/// A length that was bounded before.
pub(crate) fn min_len(left: u64, room: usize) -> usize {
    to_usize(left).min(room)
}
