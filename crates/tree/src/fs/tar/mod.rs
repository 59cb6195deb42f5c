//! Tar archives: reading one as a tree ([`Tar`]), and writing a tree as an archive
//! ([`write`](fn@write)).
//!
//! The reader accepts v7, ustar (POSIX.1-1988), PAX (POSIX.1-2001) and GNU archives, with long
//! names, extended attributes (the records `SCHILY.xattr.*`, `LIBARCHIVE.xattr.*`, `SCHILY.acl.*`
//! and `RHT.security.selinux`), sparse files (old GNU, PAX 0.0, 0.1 and 1.0), devices, hard links,
//! and times with nanoseconds and before 1970. The writer creates PAX archives, with records only
//! where the plain header does not suffice, and with sparse files in GNU's PAX 1.0 format.
//!
//! Where tar leaves a choice, these rules apply:
//! - Directories that are in the path of a file but not in the archive are *implied*, with mode
//!   0755, owner 0:0 and time 0. The same holds for the root.
//! - If several entries have the same path, the last one counts. A repeated directory keeps its
//!   files. A file cannot replace a directory that has files.
//! - A leading `/` is removed. A `..` in a path is an error, and so is a file below something that
//!   is not a directory: links in an archive cannot redirect other entries.
//! - A hard link must name an earlier file.
//! - An archive without its end marker is read to its end and noted: it may have been cut off
//!   between two members.
//!
//! Archives of cpio (newc, crc and odc) become the same tree, [`Tar::open_cpio`], and
//! [`write_newc`] writes them.
//!
//! The layers of a container image are archives, too, which [`Tar::open_layers`] merges by the
//! rules of the OCI image specification, and [`write_layer`] writes.

mod acl;
mod buffer;
mod cpio;
mod header;
mod layers;
mod member;
mod newc;
mod options;
mod pax;
mod read;
mod ustar;
mod write;
mod write_layer;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::{
    Checksum, DevicePlace, DirEntry, Extent, ExtentId, ExtentKind, FileKind, FileSystem, Ino,
    Metadata, NOTHING_ENCODED, Overlay, Storage, StoreId, Xattr,
};
use crate::{Error, HostIds, Limits, ReadAt, Result};
use layers::LAYERS_MAX;
pub use layers::LayerUsage;
use member::{InArchive, MemberContent, Sparse};
pub use options::{Notes, TarOptions};

pub use write::{Summary, member_header, write, write_newc};
pub use write_layer::{file_header, is_whiteout, write_layer};

/// Extents that one call of [`FileSystem::extents`] gives.
const EXTENTS_AT_ONCE: usize = 4096;

/// A tar archive as a tree. Opening it reads all headers once; file data stays in the archive.
///
/// Memory use is proportional to the number of entries and of fragments of sparse files, not to
/// file sizes.
pub struct Tar {
    /// One, or the layers of a container image, the lowest first; each with its length.
    archives: Vec<(Box<dyn ReadAt>, u64)>,
    tree: Overlay<InArchive>,
    limits: Limits,
    notes: Notes,
    faults: Vec<Error>,
    cut: Option<Error>,
    ids: HostIds,
    storage: Storage,
    /// The number of each archive in its store, if others have it, too.
    shared: Vec<u16>,
}

impl Tar {
    /// Reads the headers of an archive.
    ///
    /// # Errors
    /// The archive cannot be read, is truncated, breaks the format or the rules above, or exceeds
    /// `limits`.
    pub fn open(archive: Box<dyn ReadAt>, limits: Limits) -> Result<Tar> {
        Self::open_with(archive, limits, TarOptions::default())
    }

    /// Like [`Tar::open`], with options.
    ///
    /// # Errors
    /// As for [`Tar::open`].
    pub fn open_with(archive: Box<dyn ReadAt>, limits: Limits, options: TarOptions) -> Result<Tar> {
        let len = archive.size()?;
        Tar::index(vec![(archive, len)], limits, options, false)
    }

    /// Reads the headers of the layers of a container image, the lowest first, and merges them as
    /// the OCI image specification says: whiteouts of a layer hide files of lower layers before its
    /// entries are added; an entry replaces a file with its name, and a directory with all below it
    /// unless both are directories. Besides, paths may lead over symbolic links, which are followed
    /// within the tree, and an end marker may be missing.
    ///
    /// # Errors
    /// As for [`Tar::open`], with the number of the layer from 1 as [`Error::Part`].
    pub fn open_layers(
        layers: Vec<Box<dyn ReadAt>>,
        limits: Limits,
        options: TarOptions,
    ) -> Result<Tar> {
        if layers.len() > LAYERS_MAX {
            return Err(Error::Limit("layers of a container image"));
        }
        let with_len = |layer: Box<dyn ReadAt>| layer.size().map(|len| (layer, len));
        let layers = layers
            .into_iter()
            .map(with_len)
            .collect::<io::Result<_>>()?;
        Tar::index(layers, limits, options, true)
    }

    fn index(
        archives: Vec<(Box<dyn ReadAt>, u64)>,
        limits: Limits,
        options: TarOptions,
        are_layers: bool,
    ) -> Result<Tar> {
        let index = read::index(&archives, &limits, options, are_layers)?;
        Tar::of_index(index, archives, limits)
    }

    /// Reads the headers of an archive of cpio, or of an initramfs: of several archives that follow
    /// each other, the last of which may be compressed, and is then decompressed into an unnamed
    /// file in `spool_dir`. Names are as Linux unpacks them: the last member with a path counts,
    /// and a path may lead over symbolic links, within the tree.
    ///
    /// # Errors
    /// As for [`Tar::open`] and [`Tar::spooled`].
    pub fn open_cpio(
        archive: Arc<dyn ReadAt>,
        limits: Limits,
        options: TarOptions,
        spool_dir: &Path,
    ) -> Result<Tar> {
        let (index, archives) = cpio::index(archive, &limits, options, spool_dir)?;
        Tar::of_index(index, archives, limits)
    }

    /// Whether a file that begins with `start` is an archive of cpio.
    pub fn recognises_cpio(start: &[u8]) -> bool {
        cpio::recognises(start)
    }

    fn of_index(
        index: read::Index,
        archives: Vec<(Box<dyn ReadAt>, u64)>,
        limits: Limits,
    ) -> Result<Tar> {
        let read::Index {
            tree,
            notes,
            faults,
            cut,
            ids,
        } = index;
        let mut whole_seconds = true;
        for number in 0..tree.node_count() as u64 {
            whole_seconds &= tree.metadata(Ino(number))?.mtime.nanoseconds == 0;
        }
        let storage = Storage {
            whole_seconds,
            ..Storage::plain(StoreId::new())
        };
        Ok(Tar {
            archives,
            tree,
            limits,
            notes,
            faults,
            cut,
            ids,
            storage,
            shared: Vec::new(),
        })
    }

    /// The content of each layer, the lowest first; of an archive, which counts as one.
    ///
    /// # Errors
    /// None so far.
    pub fn layer_usage(&self) -> Result<Vec<LayerUsage>> {
        self.layer_usage_with(&|_| true)
    }

    /// The same below further layers, which hide the files that `is_shown` does not name.
    ///
    /// # Errors
    /// None so far.
    pub fn layer_usage_with(&self, is_shown: &dyn Fn(Ino) -> bool) -> Result<Vec<LayerUsage>> {
        layers::usage(&self.tree, self.archives.len(), is_shown)
    }

    /// The number of the layer that a file comes from, from 0; `None` for a directory in none.
    pub fn layer_of(&self, ino: Ino) -> Option<usize> {
        let in_archive = self.tree.content(ino).filter(|it| !it.implied)?;
        Some(usize::from(in_archive.layer))
    }

    /// The same as a part of a store in which each layer has a number: content of layers with the
    /// same number is known to be the same.
    #[must_use]
    pub fn in_store(self, store: StoreId, numbers: Vec<u16>) -> Tar {
        Tar {
            storage: Storage {
                store,
                stored_extents: true,
                ..self.storage
            },
            shared: numbers,
            ..self
        }
    }

    /// The identity of content at this place, if others may have it.
    fn extent_id(&self, in_archive: &InArchive, at: u64) -> Option<ExtentId> {
        let number = self.shared.get(usize::from(in_archive.layer))?;
        (at < 1 << 48).then_some(ExtentId(u64::from(*number) << 48 | at))
    }

    /// Reads an archive that `fill` writes into an unnamed file in the directory `spool`: for input
    /// that can only be read once, such as a pipe, and for a decompressor.
    ///
    /// # Errors
    /// As for [`Tar::open`]; [`Error::File`] with the directory if the file cannot be created or
    /// written; and those of `fill`.
    pub fn spooled(
        fill: impl FnOnce(&mut dyn Write) -> io::Result<u64>,
        spool: &Path,
        limits: Limits,
    ) -> Result<Tar> {
        Tar::open(Box::new(crate::spool(fill, spool)?), limits)
    }

    /// Whether a file that begins with `start` is a tar archive: its first header has the right
    /// checksum or the magic number, or the whole file is the end marker of an empty archive, with
    /// the usual padding.
    pub fn recognises(start: &[u8]) -> bool {
        const EMPTY_BYTES: std::ops::RangeInclusive<usize> = 1024..=20 * 512;
        let Some(block) = start.first_chunk::<512>() else {
            return false;
        };
        let is_empty = EMPTY_BYTES.contains(&start.len()) && start.iter().all(|&byte| byte == 0);
        is_empty || header::checksum_is_right(block) || block[257..].starts_with(b"ustar")
    }

    /// Why members were left out, in the order of the archive, with the path of the member where it
    /// is known. Pieces of files that begin in another volume always are.
    pub fn faults(&self) -> &[Error] {
        &self.faults
    }

    /// Where the archive is cut off within its last file, if members may be left out. The file is
    /// in the tree, and can be read as far as it goes.
    pub fn cut(&self) -> Option<&Error> {
        self.cut.as_ref()
    }

    /// The length of the archive, or of all layers.
    pub fn archive_bytes(&self) -> u64 {
        self.archives.iter().map(|(_, len)| len).sum()
    }

    /// The decisions made while reading.
    pub fn notes(&self) -> Notes {
        self.notes
    }

    /// A regular file, its size, and the archive that holds it.
    fn regular(&self, ino: Ino) -> Result<(&InArchive, u64, Archive<'_>)> {
        let in_archive = self.tree.content(ino).ok_or(Error::NotFound)?;
        let metadata = self.tree.metadata(ino)?;
        let archive = self.archive_of(in_archive);
        match metadata.kind {
            FileKind::Regular => Ok((in_archive, metadata.size, archive)),
            FileKind::Directory => Err(Error::IsADirectory),
            _ => Err(Error::InvalidInput("the file is not a regular file")),
        }
    }

    fn archive_of(&self, in_archive: &InArchive) -> Archive<'_> {
        let (bytes, len) = &self.archives[usize::from(in_archive.layer)];
        Archive {
            bytes: &**bytes,
            len: *len,
        }
    }
}

/// An archive with its length.
#[derive(Clone, Copy)]
struct Archive<'a> {
    bytes: &'a dyn ReadAt,
    len: u64,
}

impl Archive<'_> {
    /// The bytes of a member that the archive holds, if it is cut off within them.
    fn cut_at(self, data_at: u64, size: u64) -> Option<u64> {
        let held = self.len.saturating_sub(data_at);
        (held < size).then_some(held)
    }

    fn cut_off(self, data_at: u64) -> Error {
        let what = "archive is cut off within this file";
        Error::corrupt(what, self.len, data_at)
    }
}

impl FileSystem for Tar {
    fn root(&self) -> Ino {
        self.tree.root()
    }

    fn storage(&self) -> Storage {
        self.storage
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        self.tree.metadata(ino)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        self.tree.read_dir(dir)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        self.tree.read_dir_with_metadata(dir)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        self.tree.list_readable(dir)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        self.tree.lookup(dir, name)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        self.tree.read_link(link)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        let in_archive = self.tree.content(ino).ok_or(Error::NotFound)?;
        if in_archive.xattrs_len == 0 {
            return Ok(Vec::new());
        }
        let mut records = vec![0; in_archive.xattrs_len as usize];
        let at = in_archive.xattrs_at;
        self.archive_of(in_archive)
            .bytes
            .read_exact_at(&mut records, at)?;
        let value_bytes_max = self.limits.xattr_value_bytes_max;
        header::xattrs(&records, at, value_bytes_max, &self.ids)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let (in_archive, size, archive) = self.regular(file)?;
        if from >= size {
            return Ok(Vec::new());
        }
        let id = match &in_archive.content {
            MemberContent::Data { at } => self.extent_id(in_archive, *at),
            MemberContent::Sparse(sparse) => self.extent_id(in_archive, sparse.at),
            MemberContent::Nothing => None,
        };
        let extent = |offset, len, kind: ExtentKind| Extent {
            offset,
            len,
            kind,
            id: id.filter(|_| kind.has_data()),
        };
        let sparse = match &in_archive.content {
            MemberContent::Sparse(sparse) => sparse,
            MemberContent::Data { at } => {
                let held = archive.cut_at(*at, size).unwrap_or(size);
                if from >= held {
                    return Err(archive.cut_off(*at));
                }
                let kind = ExtentKind::Plain { stored_offset: 0 };
                return Ok(vec![extent(0, held, kind)]);
            }
            // Only an empty file has no content.
            MemberContent::Nothing => return Ok(Vec::new()),
        };
        let fragments = &sparse.fragments;
        // Starts with the fragment that ends after `from`; each comes with the hole before it.
        let first = fragments.partition_point(|fragment| fragment.offset + fragment.len <= from);
        let last_end = |at: usize| match at.checked_sub(1) {
            Some(before) => fragments[before].offset + fragments[before].len,
            None => 0,
        };
        let mut extents = Vec::new();
        let mut end = last_end(first);
        for fragment in &fragments[first..] {
            if extents.len() >= EXTENTS_AT_ONCE {
                return Ok(extents);
            }
            if fragment.offset > end && fragment.offset > from {
                extents.push(extent(end, fragment.offset - end, ExtentKind::Hole));
            }
            let kind = ExtentKind::Plain {
                stored_offset: fragment.stored,
            };
            extents.push(extent(fragment.offset, fragment.len, kind));
            end = fragment.offset + fragment.len;
        }
        if end < size {
            extents.push(extent(end, size - end, ExtentKind::Hole));
        }
        Ok(extents)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (in_archive, size, archive) = self.regular(file)?;
        let left = size.saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let buf = &mut buf[..wanted];
        match &in_archive.content {
            MemberContent::Data { at } => {
                let end = offset + buf.len() as u64;
                if archive.cut_at(*at, size).is_some_and(|held| end > held) {
                    return Err(archive.cut_off(*at));
                }
                archive.bytes.read_exact_at(buf, at + offset)?;
            }
            MemberContent::Sparse(sparse) => {
                let Sparse { at, fragments } = &**sparse;
                let first =
                    fragments.partition_point(|fragment| fragment.offset + fragment.len <= offset);
                let mut filled = 0;
                for fragment in &fragments[first..] {
                    let position = offset + filled as u64;
                    let hole = fragment.offset.saturating_sub(position);
                    let hole = usize::try_from(hole)
                        .unwrap_or(usize::MAX)
                        .min(wanted - filled);
                    buf[filled..filled + hole].fill(0);
                    filled += hole;
                    if filled == wanted {
                        break;
                    }
                    let inside = offset + filled as u64 - fragment.offset;
                    let len = usize::try_from(fragment.len - inside).unwrap_or(usize::MAX);
                    let len = len.min(wanted - filled);
                    let stored_at = at + fragment.stored + inside;
                    if archive.cut_at(stored_at, len as u64).is_some() {
                        return Err(archive.cut_off(*at));
                    }
                    archive
                        .bytes
                        .read_exact_at(&mut buf[filled..filled + len], stored_at)?;
                    filled += len;
                }
                buf[filled..].fill(0);
            }
            MemberContent::Nothing => {}
        }
        Ok(wanted)
    }

    fn read_encoded(&self, _: Ino, _: &Extent, _: &mut Vec<u8>) -> Result<Option<Checksum>> {
        Err(NOTHING_ENCODED)
    }

    fn stored_at(&self, file: Ino, extent: &Extent) -> Option<DevicePlace> {
        let ExtentKind::Plain { stored_offset } = extent.kind else {
            return None;
        };
        let in_archive = self.tree.content(file)?;
        let at = match &in_archive.content {
            MemberContent::Data { at } => at.checked_add(extent.offset)?,
            MemberContent::Sparse(sparse) => sparse.at.checked_add(stored_offset)?,
            MemberContent::Nothing => return None,
        };
        Some(DevicePlace {
            store: self.storage.store,
            device: in_archive.layer.into(),
            at,
            len: extent.len,
        })
    }
}
