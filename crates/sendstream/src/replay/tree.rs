//! A subvolume that a stream built, as a file system.

use std::sync::{Arc, Mutex, PoisonError};

use ::tree::{
    Cache, Checksum, DevicePlace, DirEntry, Error, Extent, ExtentId, ExtentKind, FileIdentity,
    FileKind, FileSystem, Ino, Metadata, Overlay, ReadAt, Result, Storage, StoreId, Xattr,
};
use codec::Decoder;

use super::ahead::Ahead;
use super::parts::{FileNumber, FilePart, FileParts, PartSource};
use crate::encoded::EncodedWrite;
use crate::subvolume::SentSubvolume;

/// Number of extents returned by one call of [`FileSystem::extents`].
const EXTENTS_MAX: usize = 256;
/// Number of decoded extents in the cache, of at most 128 KiB each.
const DECODED: (usize, usize) = (8, 8);
/// In the identity of an extent: that it is in a stream, in which one, and at which byte. Other
/// stores number theirs lower.
const IN_STREAM: u64 = 1 << 63;
const STREAM_SHIFT: u32 = 51;

/// The content of a file: its parts, or that of the parent, as for all files that are not regular.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChangedContent(pub(super) Option<FileNumber>);

const _: () = assert!(size_of::<ChangedContent>() == 4);

/// An input of a [`Replay`](super::Replay).
#[derive(Clone)]
pub(super) struct ReplayInput {
    pub(super) input: Arc<dyn ReadAt>,
    /// Its number among those of the replay.
    pub(super) number: u32,
    /// The store of the replay.
    pub(super) store: StoreId,
    /// The store of the trees that the replay was given, if there are any: that of the first one.
    pub(super) outside: Option<StoreId>,
}

/// The stream that a tree is from.
pub(super) struct StreamOrigin {
    pub(super) source: ReplayInput,
    /// Where in the input the command is that starts the subvolume.
    pub(super) at: u64,
    /// How many trees are below.
    pub(super) depth: u32,
}

/// A subvolume as it is after the last command: a read-only tree.
///
/// Content is read from the stream, whose checksums were compared when it was replayed, and from
/// the parent. Encoded writes are encoded extents.
pub struct SentTree {
    built: SubvolumeTree,
    ahead: Ahead,
    decoded: Cache<Vec<u8>>,
    decoders: Mutex<Vec<Decoder>>,
}

/// The tree that the commands of a stream build.
pub(super) struct SubvolumeTree {
    pub(super) sent: SentSubvolume,
    pub(super) overlay: Overlay<ChangedContent>,
    pub(super) parts: FileParts,
    /// The trees that parts are from. The first one is the parent, if there is one.
    pub(super) trees: Vec<Arc<dyn FileSystem>>,
    pub(super) stream: StreamOrigin,
    /// How many files have fs-verity enabled.
    pub(super) verity: u64,
}

impl SentTree {
    pub(super) fn new(built: SubvolumeTree) -> SentTree {
        SentTree {
            ahead: Ahead::new(Arc::clone(&built.stream.source.input)),
            built,
            decoded: Cache::new(DECODED.0, DECODED.1),
            decoders: Mutex::default(),
        }
    }

    /// The stream's description of the subvolume.
    pub fn sent(&self) -> &SentSubvolume {
        &self.built.sent
    }

    /// The memory that the tree holds in its tables, in bytes, without those of its parent.
    pub fn memory_bytes(&self) -> usize {
        self.built.overlay.memory_bytes() + self.built.parts.memory_bytes()
    }

    /// How many files have fs-verity enabled, which this tree does not show.
    pub fn verity_files(&self) -> u64 {
        self.built.verity
    }

    pub(super) fn depth(&self) -> u32 {
        self.built.stream.depth
    }

    /// The parts of a regular file that the stream changed; otherwise `None`, and the content is
    /// that of the parent.
    fn file(&self, ino: Ino) -> Result<(Option<FileNumber>, u64)> {
        let metadata = self.built.overlay.metadata(ino)?;
        match metadata.kind {
            FileKind::Regular => {
                let content = self
                    .built
                    .overlay
                    .content(ino)
                    .and_then(|content| content.0);
                Ok((content, metadata.size))
            }
            FileKind::Directory => Err(Error::IsADirectory),
            _ => Err(Error::InvalidInput("the file is not a regular file")),
        }
    }

    /// The decoded extent at a place of the stream.
    fn decoded(&self, at: u64, encoding: &::tree::Encoding) -> Result<Arc<Vec<u8>>> {
        self.decoded.find_or_make(at, |gone| {
            let pool = || self.decoders.lock().unwrap_or_else(PoisonError::into_inner);
            let mut stored = vec![0; encoding.stored_len as usize];
            self.built
                .stream
                .source
                .input
                .read_exact_at(&mut stored, at)?;
            let write = EncodedWrite {
                path: b"",
                file_offset: 0,
                unencoded_file_len: encoding.unencoded_len,
                unencoded_len: encoding.unencoded_len,
                unencoded_offset: 0,
                compression: encoding.algorithm,
                encryption: None,
                data: &stored,
            };
            let mut content = gone.unwrap_or_default();
            let mut decoder = pool().pop().unwrap_or_default();
            let result = write.decode(&mut decoder, &mut content).map(drop);
            pool().push(decoder);
            result.map_err(|error| match error {
                codec::Error::NotBuilt(what) => Error::Unsupported(what),
                error => Error::Corrupt(::tree::Corrupt {
                    what: error.as_str(),
                    at,
                    got: encoding.stored_len,
                }),
            })?;
            Ok(content)
        })
    }

    /// Fills `buf` with the bytes of a part from `offset` of its file on.
    fn read_part(&self, part: &FilePart, offset: u64, buf: &mut [u8]) -> Result<()> {
        match part.between(offset, part.end()).place {
            PartSource::Plain { at, skip } => Ok(self.ahead.read_exact_at(buf, at + skip)?),
            PartSource::Encoded { at, encoding } => {
                let content = self.decoded(at, &encoding)?;
                let from = encoding.unencoded_offset as usize;
                let shown = content.get(from..from + buf.len());
                buf.copy_from_slice(shown.ok_or(Error::Changed)?);
                Ok(())
            }
            PartSource::File { tree, ino, offset } => {
                if self.built.trees[tree as usize].read_at(ino, offset, buf)? < buf.len() {
                    return Err(Error::Changed);
                }
                Ok(())
            }
        }
    }

    /// The identity of an extent of another tree in this one.
    fn identity(&self, tree: &dyn FileSystem, id: ExtentId) -> Option<ExtentId> {
        let source = &self.built.stream.source;
        let store = tree.storage().store;
        // Those of one other store are as unique here as there.
        let is_comparable =
            store == source.store || source.outside == Some(store) && id.0 & IN_STREAM == 0;
        is_comparable.then_some(id)
    }

    /// Appends the extents that a part shows from `from` on.
    fn extents_of(&self, part: &FilePart, from: u64, extents: &mut Vec<Extent>) -> Result<()> {
        let id = |at: u64| {
            let is_small = at < 1 << STREAM_SHIFT;
            is_small.then_some(ExtentId(self.built.stream.source.place(at)))
        };
        let (offset, len) = (part.offset, part.len);
        match part.place {
            PartSource::Plain { at, skip } => extents.push(Extent {
                offset,
                len,
                kind: ExtentKind::Plain {
                    stored_offset: skip,
                },
                id: id(at),
            }),
            PartSource::Encoded { at, encoding } => {
                // btrfs stores extents in whole sectors: this one is inline in the tree, where
                // nothing shares it.
                let is_inline = encoding.stored_len % 512 != 0;
                extents.push(Extent {
                    offset,
                    len,
                    kind: ExtentKind::Encoded(encoding),
                    id: id(at).filter(|_| !is_inline),
                });
            }
            PartSource::File { tree, ino, offset } => {
                let tree = &*self.built.trees[tree as usize];
                let (begin, end) = (from.max(part.offset) - part.offset + offset, offset + len);
                for extent in tree.extents(ino, begin)? {
                    if extent.offset >= end {
                        break;
                    }
                    let (from, to) = (extent.offset.max(offset), extent.end().min(end));
                    let skip = from - extent.offset;
                    extents.push(Extent {
                        offset: from - offset + part.offset,
                        len: to - from,
                        kind: skipped(extent.kind, skip),
                        id: extent.id.and_then(|id| self.identity(tree, id)),
                    });
                }
            }
        }
        Ok(())
    }

    /// The metadata with the identity of a file of the parent that the stream changed: it is still
    /// the same file, which last changed in a transaction that nothing else has.
    fn identified(&self, ino: Ino, metadata: Metadata) -> Result<Metadata> {
        let overlay = &self.built.overlay;
        let Ok(base) = overlay.base(ino) else {
            return Ok(metadata);
        };
        if overlay.content(ino).is_none() {
            return Ok(metadata);
        }
        let identity = base.metadata(ino)?.identity;
        let stream = &self.built.stream;
        let transaction = stream.source.place(stream.at & ((1 << STREAM_SHIFT) - 1));
        Ok(Metadata {
            identity: identity.map(|identity| FileIdentity {
                transaction,
                ..identity
            }),
            ..metadata
        })
    }

    /// The part of a file that covers an offset.
    fn part_at(&self, file: FileNumber, offset: u64) -> Option<FilePart> {
        let part = self.built.parts.of(file, offset).next();
        part.filter(|part| part.offset <= offset)
    }
}

/// The kind of an extent without its first bytes.
fn skipped(kind: ExtentKind, skip: u64) -> ExtentKind {
    match kind {
        ExtentKind::Plain { stored_offset } => ExtentKind::Plain {
            stored_offset: stored_offset + skip,
        },
        ExtentKind::Encoded(encoding) => ExtentKind::Encoded(::tree::Encoding {
            unencoded_offset: encoding.unencoded_offset + skip,
            ..encoding
        }),
        ExtentKind::Preallocated { stored_offset } => ExtentKind::Preallocated {
            stored_offset: stored_offset + skip,
        },
        ExtentKind::Hole => ExtentKind::Hole,
    }
}

impl ReplayInput {
    /// A number for a place of the input: no other place of this replay has it, and other stores
    /// number lower.
    fn place(&self, at: u64) -> u64 {
        IN_STREAM | u64::from(self.number) << STREAM_SHIFT | at
    }
}

impl FileSystem for SentTree {
    fn root(&self) -> Ino {
        self.built.overlay.root()
    }

    fn storage(&self) -> Storage {
        Storage {
            stored_extents: true,
            ..Storage::plain(self.built.stream.source.store)
        }
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        self.identified(ino, self.built.overlay.metadata(ino)?)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        self.built.overlay.read_dir(dir)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        let mut listing = self.built.overlay.read_dir_with_metadata(dir)?;
        for (entry, metadata) in &mut listing {
            *metadata = self.identified(entry.ino, metadata.clone())?;
        }
        Ok(listing)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        ::tree::all_or_nothing(self.read_dir(dir))
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        self.built.overlay.lookup(dir, name)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        self.built.overlay.read_link(link)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        self.built.overlay.xattrs(ino)
    }

    fn extents(&self, ino: Ino, from: u64) -> Result<Vec<Extent>> {
        let (file, size) = self.file(ino)?;
        let Some(file) = file else {
            let base = self.built.overlay.base(ino)?;
            let mut extents = base.extents(ino, from)?;
            for extent in &mut extents {
                extent.id = extent.id.and_then(|id| self.identity(base, id));
            }
            return Ok(extents);
        };
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = from;
        let hole = |from, to| Extent {
            offset: from,
            len: to - from,
            kind: ExtentKind::Hole,
            id: None,
        };
        for part in self.built.parts.of(file, from) {
            if extents.len() >= EXTENTS_MAX {
                return Ok(extents);
            }
            if part.offset > at {
                extents.push(hole(at, part.offset));
            }
            self.extents_of(&part, from, &mut extents)?;
            at = extents.last().map_or(at, Extent::end);
            if at < part.end() {
                return Ok(extents);
            }
        }
        if at < size {
            extents.push(hole(at, size));
        }
        Ok(extents)
    }

    fn read_at(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (file, size) = self.file(ino)?;
        let Some(file) = file else {
            return self.built.overlay.base(ino)?.read_at(ino, offset, buf);
        };
        let len = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (buf, end) = (&mut buf[..len], offset + len as u64);
        let mut done = 0;
        for part in self.built.parts.of(file, offset) {
            if part.offset >= end {
                break;
            }
            let (from, to) = (part.offset.max(offset), part.end().min(end));
            let (begin, stop) = ((from - offset) as usize, (to - offset) as usize);
            buf[done..begin].fill(0);
            self.read_part(&part, from, &mut buf[begin..stop])?;
            done = stop;
        }
        buf[done..].fill(0);
        Ok(len)
    }

    fn read_encoded(
        &self,
        ino: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        stored.clear();
        const NOT_OURS: Error = Error::InvalidInput("not an encoded extent of this file");
        let ExtentKind::Encoded(wanted) = extent.kind else {
            return Err(NOT_OURS);
        };
        let (file, _) = self.file(ino)?;
        let Some(file) = file else {
            return self
                .built
                .overlay
                .base(ino)?
                .read_encoded(ino, extent, stored);
        };
        let part = self.part_at(file, extent.offset).ok_or(NOT_OURS)?;
        match part.between(extent.offset, part.end()).place {
            PartSource::Encoded { at, encoding } if encoding.stored_len == wanted.stored_len => {
                stored.resize(encoding.stored_len as usize, 0);
                self.built.stream.source.input.read_exact_at(stored, at)?;
                Ok(None)
            }
            PartSource::File { tree, ino, offset } => {
                let extent = Extent { offset, ..*extent };
                self.built.trees[tree as usize].read_encoded(ino, &extent, stored)
            }
            _ => Err(NOT_OURS),
        }
    }

    fn stored_at(&self, ino: Ino, extent: &Extent) -> Option<DevicePlace> {
        let (file, _) = self.file(ino).ok()?;
        let Some(file) = file else {
            return self.built.overlay.base(ino).ok()?.stored_at(ino, extent);
        };
        let part = self.part_at(file, extent.offset)?;
        let source = &self.built.stream.source;
        let (at, len) = match (part.between(extent.offset, part.end()).place, extent.kind) {
            (PartSource::Plain { at, skip }, ExtentKind::Plain { .. }) => {
                (at.checked_add(skip)?, extent.len)
            }
            (PartSource::Encoded { at, encoding }, ExtentKind::Encoded(wanted))
                if encoding.stored_len == wanted.stored_len =>
            {
                (at, encoding.stored_len)
            }
            (PartSource::File { tree, ino, offset }, _) => {
                let extent = Extent { offset, ..*extent };
                return self.built.trees[tree as usize].stored_at(ino, &extent);
            }
            _ => return None,
        };
        Some(DevicePlace {
            store: source.store,
            device: source.number.into(),
            at,
            len,
        })
    }
}
