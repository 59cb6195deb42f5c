//! Reads all headers of an archive in one pass and builds the index for [`super::Tar`].
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::ops::Range;

use super::header::{self, BLOCK, Block, FRAGMENTS_MAX, Overrides};
use super::member::{Fragment, InArchive, LayerPass, MemberContent, Sparse};
use super::options::{Notes, TarOptions};
use super::ustar::{self, Dialect};
use crate::{
    Corrupt, Device, Error, FileKind, HostIds, Ino, Limits, Metadata, Overlay, ReadAt, Result,
    Time, to_u64, to_usize,
};

/// Maximum size of the PAX records or the long name before an entry. Real ones hold a path and some
/// attributes; maps of sparse files (PAX 0.1) have about 20 bytes per fragment.
const EXTENSION_BYTES_MAX: u64 = 64 << 20;

/// Maximum length of one name in a path (`NAME_MAX` in Linux).
pub(super) const NAME_BYTES_MAX: usize = 255;

/// Maximum length of a path: enough for [`Limits::depth_max`] names of usual length, and little
/// memory.
const PATH_BYTES_MAX: usize = 1 << 20;

/// Maximum number of directories that an entry may imply on average, so that an archive of long
/// paths never needs more memory than a few hundred times its size.
const IMPLIED_PER_ENTRY_MAX: u64 = 64;

/// How much is read at once when looking for headers.
const WINDOW_BYTES: usize = 64 << 10;

/// Archives, each with its length.
pub(super) type Archives = Vec<(Box<dyn ReadAt>, u64)>;

/// The contents that the headers of an archive describe.
pub(super) struct Index {
    pub(super) tree: Overlay<InArchive>,
    pub(super) notes: Notes,
    /// Why members were left out.
    pub(super) faults: Vec<Error>,
    /// Why the last file is in the tree although the archive ends within it.
    pub(super) cut: Option<Error>,
    /// The users and groups that were looked up.
    pub(super) ids: HostIds,
}

/// Reads all headers of an archive, or of the layers of a container image.
pub(super) fn index(
    archives: &[(Box<dyn ReadAt>, u64)],
    limits: &Limits,
    options: TarOptions,
    are_layers: bool,
) -> Result<Index> {
    let mut scan = Scan::new(limits, options);
    for (number, (archive, len)) in (0u16..).zip(archives) {
        scan.follows = are_layers;
        if are_layers {
            scan.layer(number, &**archive, *len, options)
                .map_err(|error| error.in_part("layer", u64::from(number).saturating_add(1)))?;
        } else {
            scan.archive(&**archive, *len, options)?;
        }
    }
    Ok(scan.into_index())
}

pub(super) struct Scan<'a> {
    /// A directory that is not in the archive, or not yet.
    implied: Metadata,
    window: Window<'a>,
    /// The pass over a layer of a container image; `None` for other archives.
    pub(super) pass: Option<LayerPass>,
    /// The number of the archive, from 0.
    pub(super) layer: u16,
    pub(super) limits: &'a Limits,
    /// Whether paths lead over symbolic links, within the tree.
    pub(super) follows: bool,
    /// Whether members that cannot be read are left out.
    pub(super) skips: bool,
    /// Why members were left out.
    pub(super) faults: Vec<Error>,
    /// Why the last file can be read in part only.
    pub(super) cut: Option<Error>,
    ids: HostIds,
    pub(super) tree: Overlay<InArchive>,
    pub(super) notes: Notes,
    pub(super) entries: u64,
    pub(super) fragments: usize,
    /// The values of PAX global headers so far.
    global: Overrides,
    /// The header that was read last.
    header_at: u64,
    /// Where the header after the current member is, as far as that is known.
    next: Option<u64>,
    /// The path of the current member, if members can be left out.
    path: Option<Vec<u8>>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(limits: &'a Limits, options: TarOptions) -> Scan<'a> {
        static NOTHING: Vec<u8> = Vec::new();
        let mut implied = Metadata::new(FileKind::Directory, 0o755);
        options.implied.apply(&mut implied);
        Scan {
            window: Window::of(&NOTHING, 0),
            pass: None,
            layer: 0,
            limits,
            follows: false,
            skips: options.skip_damaged,
            faults: Vec::new(),
            cut: None,
            ids: HostIds::default(),
            tree: Overlay::new(&implied, InArchive::implied(0)),
            implied,
            notes: Notes::default(),
            entries: 0,
            fragments: 0,
            global: Overrides::default(),
            header_at: 0,
            next: None,
            path: None,
        }
    }

    pub(super) fn into_index(self) -> Index {
        Index {
            tree: self.tree,
            notes: self.notes,
            faults: self.faults,
            cut: self.cut,
            ids: self.ids,
        }
    }

    /// Reads all headers of an archive.
    pub(super) fn archive(
        &mut self,
        archive: &'a dyn ReadAt,
        len: u64,
        options: TarOptions,
    ) -> Result<()> {
        self.window = Window::of(archive, len);
        self.global = Overrides::default();
        let mut at = 0;
        loop {
            let next = match self.entry(at) {
                Err(error) => match self.pass_over(error)? {
                    Some(next) => Some(next),
                    None => return Ok(()),
                },
                Ok(next) => next,
            };
            at = match next {
                Some(next) => next,
                None if !options.ignore_zeros => return Ok(()),
                // Less than a block cannot be an entry.
                None if after(after(at)) > self.window.size => return Ok(()),
                None => after(at),
            };
        }
    }

    /// Leaves out the member with this error. Returns the offset of the next header; `None` if
    /// there is none.
    ///
    /// If the end of the member is unknown, the next header is the next block with the checksum of
    /// one, as for GNU tar.
    fn pass_over(&mut self, error: Error) -> Result<Option<u64>> {
        if !self.skips || matches!(error, Error::Limit(_)) {
            return Err(error);
        }
        self.faults.push(match self.path.take() {
            Some(path) => error.in_file("read", &path),
            None => error,
        });
        let size = self.window.size;
        if let Some(next) = self.next {
            return Ok((next < size).then_some(next));
        }
        let mut at = after(self.header_at);
        while after(at) <= size {
            let block = self.window.block(at);
            if block.is_ok_and(|block| header::checksum_is_right(&block)) {
                return Ok(Some(at));
            }
            at = after(at);
        }
        Ok(None)
    }

    /// Passes an error on, or returns it where members are left out.
    fn or_later<T>(&self, result: Result<T>) -> Result<Option<Error>> {
        match result {
            Err(error) if self.skips => Ok(Some(error)),
            result => result.map(|_| None),
        }
    }

    /// Reads one entry and the extension headers before it. Returns the offset of the next one;
    /// `None` at the end.
    fn entry(&mut self, mut at: u64) -> Result<Option<u64>> {
        let first_at = at;
        let mut overrides = self.global.clone();
        let mut records = None;
        // What is wrong with an extension header: the member after it is left out.
        let mut fault = None;
        (self.next, self.path) = (None, None);
        loop {
            let is_layer = self.pass.is_some();
            if at == first_at && at >= self.window.size && (self.entries > 0 || is_layer) {
                // After a member that is cut off, there can be no marker. The digest of a layer
                // shows that it is whole.
                let is_known = self.cut.is_some() || is_layer;
                self.notes.no_end_at = (!is_known).then_some(at);
                return Ok(None);
            }
            self.header_at = at;
            let block = self.window.block(at)?;
            if block.iter().all(|&byte| byte == 0) {
                if at != first_at {
                    let what = "tar extension header has no entry after it";
                    return Err(Corrupt {
                        what,
                        at: first_at,
                        got: at,
                    }
                    .into());
                }
                return Ok(None);
            }
            if !header::checksum_is_right(&block) {
                let got = header::number(&block[148..156], at)
                    .unwrap_or(-1)
                    .cast_unsigned();
                return Err(Corrupt {
                    what: "tar header has a wrong checksum",
                    at,
                    got,
                }
                .into());
            }
            let kind = block[156];
            match kind {
                b'x' | b'X' | b'g' => {
                    let (text, text_at, next) = self.extension(&block, at)?;
                    let taken = if kind == b'g' {
                        self.global(&mut overrides, &text, text_at)
                    } else if records
                        .replace((text_at, u32::try_from(text.len()).unwrap_or(u32::MAX)))
                        .is_some()
                    {
                        let what = "two pax headers stand before one tar entry";
                        let got = first_at;
                        Err(Corrupt { what, at, got }.into())
                    } else {
                        overrides.take_in(&text, text_at, &self.ids)
                    };
                    fault = fault.or(self.or_later(taken)?);
                    at = next;
                }
                b'L' | b'K' => {
                    let (text, text_at, next) = self.extension(&block, at)?;
                    let name = header::text(&text);
                    if name.is_empty() {
                        let what = "long name in tar is empty";
                        let (at, got) = (text_at, 0);
                        let empty = Err::<(), _>(Corrupt { what, at, got }.into());
                        fault = fault.or(self.or_later(empty)?);
                    }
                    let place = if kind == b'L' {
                        &mut overrides.path
                    } else {
                        &mut overrides.link_target
                    };
                    *place = Some(name.into());
                    at = next;
                }
                // A volume label is an entry of its own, which may be the only one.
                b'V' => {
                    let next = self.data_end(&block, after(at), &Overrides::default());
                    return next.map(Some);
                }
                _ => {
                    if let Some(error) = fault {
                        let has_no_data = matches!(kind, b'1'..=b'6');
                        self.next = Some(if has_no_data {
                            after(at)
                        } else {
                            self.data_end(&block, after(at), &overrides)?
                        });
                        self.path = overrides.path.map(Vec::from);
                        return Err(error);
                    }
                    return self.file(&block, at, overrides, records).map(Some);
                }
            }
        }
    }

    /// Takes in the records of a global header.
    fn global(&mut self, overrides: &mut Overrides, text: &[u8], at: u64) -> Result<()> {
        let mut global = self.global.clone();
        global.take_in(text, at, &self.ids)?;
        overrides.take_in(text, at, &self.ids)?;
        // Large values must not be kept and applied to all following entries.
        if global.is_for_one_file() {
            return Err(Error::Unsupported(
                "tar global headers that set attributes, holes or a long name",
            ));
        }
        self.global = global;
        Ok(())
    }

    /// The data of an extension header, its offset, and the offset of the header that follows.
    fn extension(&mut self, block: &Block, at: u64) -> Result<(Vec<u8>, u64, u64)> {
        let text_at = after(at);
        let next = self.data_end(block, text_at, &Overrides::default())?;
        let len = header::unsigned(&block[124..136], at)?;
        if len > EXTENSION_BYTES_MAX {
            return Err(Error::Limit("size of a tar extension header"));
        }
        let mut text = vec![0; to_usize(len)];
        self.window.archive.read_exact_at(&mut text, text_at)?;
        Ok((text, text_at, next))
    }

    /// The offset after the data of an entry whose data begins at `data_at`.
    ///
    /// # Errors
    /// It is behind the end of the archive, which is then where the next header would be.
    fn data_end(&mut self, block: &Block, data_at: u64, overrides: &Overrides) -> Result<u64> {
        let header_at = data_at.saturating_sub(BLOCK);
        let len = size(block, header_at, overrides)?;
        let end = len
            .checked_next_multiple_of(BLOCK)
            .and_then(|len| data_at.checked_add(len));
        end.filter(|&end| end <= self.window.size).ok_or_else(|| {
            self.next = Some(self.window.size);
            let what = "tar entry runs past the end of the archive";
            Corrupt {
                what,
                at: header_at,
                got: len,
            }
            .into()
        })
    }

    /// Adds the entry whose own header is at `at`. Returns the offset of the next header.
    fn file(
        &mut self,
        block: &Block,
        at: u64,
        mut overrides: Overrides,
        records: Option<(u64, u32)>,
    ) -> Result<u64> {
        self.entries = self.entries.saturating_add(1);
        let path = match overrides.sparse.name.take().or(overrides.path.take()) {
            Some(path) => path,
            None => header_path(block).into(),
        };
        self.path = self.skips.then(|| path.to_vec());
        let link_target = overrides.link_target.take();
        let link_target = link_target
            .as_deref()
            .unwrap_or(header::text(&block[157..257]));
        let data_at = after(at);
        if matches!(block[156], b'1'..=b'6') {
            self.next = Some(data_at);
        }
        let kind = match block[156] {
            b'0' | 0 if path.last() == Some(&b'/') => FileKind::Directory,
            b'0' | 0 | b'7' | b'S' => FileKind::Regular,
            b'1' => {
                self.hard_link(&path, link_target, at)?;
                return Ok(data_at);
            }
            b'2' => FileKind::Symlink,
            b'3' => FileKind::CharDevice,
            b'4' => FileKind::BlockDevice,
            b'5' | b'D' => FileKind::Directory,
            b'6' => FileKind::Fifo,
            b'M' => {
                let what = Error::Unsupported("a piece of a file that begins in another volume");
                self.faults.push(what.in_file("read", &path));
                return self.data_end(block, data_at, &overrides);
            }
            got => {
                self.next = Some(self.data_end(block, data_at, &overrides)?);
                let what = "tar entry has an unknown type";
                return Err(Corrupt {
                    what,
                    at,
                    got: got.into(),
                }
                .into());
            }
        };
        let (mut next, mut size) = (data_at, 0);
        let mut content = MemberContent::Nothing;
        match kind {
            FileKind::Regular => {
                (content, size, next) = self.content(block, at, &mut overrides)?;
            }
            // Only in GNU's incremental archives does a directory have data, a list of names.
            FileKind::Directory if block[156] == b'D' => {
                next = self.data_end(block, data_at, &overrides)?;
            }
            FileKind::Symlink if link_target.is_empty() => {
                let what = "symbolic link in tar has no target";
                return Err(Corrupt { what, at, got: 0 }.into());
            }
            _ => {}
        }
        if overrides.has_unread_acl() {
            self.notes.acls_not_read = self.notes.acls_not_read.saturating_add(1);
        }
        self.next = Some(next);
        let mut permissions = low_bits(header::number(&block[100..108], at)?) & 0o7777;
        // libarchive stores the owning group's permissions in the mode, where Linux has the mask.
        if let Some(listed) = overrides.permissions.filter(|_| kind != FileKind::Symlink) {
            permissions = permissions & 0o7000 | listed;
        }
        let metadata = Metadata {
            uid: field_or(overrides.uid, &block[108..116], at)?,
            gid: field_or(overrides.gid, &block[116..124], at)?,
            rdev: if kind.is_device() {
                device(block, &overrides, at)?
            } else {
                Device::default()
            },
            size,
            mtime: match overrides.mtime {
                Some(mtime) => mtime,
                None => Time {
                    seconds: header::number(&block[136..148], at)?,
                    nanoseconds: 0,
                },
            },
            atime: overrides.atime,
            ctime: overrides.ctime,
            btime: overrides.btime,
            ..Metadata::new(kind, permissions)
        };
        let (xattrs_at, xattrs_len) = records.filter(|_| overrides.has_xattrs).unwrap_or_default();
        let in_archive = InArchive {
            content,
            xattrs_at,
            xattrs_len,
            layer: self.layer,
            implied: false,
        };
        self.insert(&path, &metadata, link_target, in_archive, at)?;
        Ok(next)
    }

    /// The content and size of a regular file, and the offset of the next header.
    fn content(
        &mut self,
        block: &Block,
        at: u64,
        overrides: &mut Overrides,
    ) -> Result<(MemberContent, u64, u64)> {
        let mut data_at = after(at);
        let stored_len = size(block, at, overrides)?;
        let sparse = std::mem::take(&mut overrides.sparse);
        if block[156] == b'S' {
            if Dialect::of(block) != Dialect::Gnu {
                return Err(Error::Unsupported(
                    "a sparse file in a tar that is not GNU's",
                ));
            }
            let real_size = header::unsigned(&block[ustar::GNU_REAL_SIZE], at)?;
            let mut map = Vec::new();
            add_gnu_fragments(&block[ustar::GNU_SPARSE], at, &mut map)?;
            let mut more = block[ustar::GNU_IS_EXTENDED] != 0;
            while more {
                let block = self.window.block(data_at)?;
                add_gnu_fragments(&block[ustar::GNU_MORE_SPARSE], data_at, &mut map)?;
                self.check_fragments(map.len())?;
                more = block[ustar::GNU_MORE_IS_EXTENDED] != 0;
                data_at = after(data_at);
            }
            let next = self.content_end(block, data_at, overrides)?;
            let content = self.sparse(map.into_iter(), real_size, stored_len, at, data_at)?;
            return Ok((content, real_size, next));
        }
        let next = self.content_end(block, data_at, overrides)?;
        match (sparse.major, sparse.minor, sparse.real_size) {
            (None, None, None) if !sparse.has_map => {
                let content = if stored_len == 0 {
                    MemberContent::Nothing
                } else {
                    MemberContent::Data { at: data_at }
                };
                Ok((content, stored_len, next))
            }
            (None | Some(0), _, Some(real_size)) if sparse.has_map => {
                let pairs = sparse.map.chunks(2).map(|pair| match pair {
                    [offset, len] => (*offset, *len),
                    _ => (u64::MAX, u64::MAX), // An offset without a length: refused as past the end.
                });
                let content = self.sparse(pairs, real_size, stored_len, at, data_at)?;
                Ok((content, real_size, next))
            }
            (Some(1), Some(0), Some(real_size)) => {
                let (map, map_len) = self.map_in_data(data_at, stored_len)?;
                let data_at = data_at.saturating_add(map_len);
                let stored_len = stored_len.saturating_sub(map_len);
                let content = self.sparse(map.into_iter(), real_size, stored_len, at, data_at)?;
                Ok((content, real_size, next))
            }
            (major, ..) => {
                let what = "sparse file in tar has no map of a known version";
                Err(Corrupt {
                    what,
                    at,
                    got: major.unwrap_or(0),
                }
                .into())
            }
        }
    }

    /// As [`Scan::data_end`]; where members are left out, the last file of an archive that is cut
    /// off stays, and reading it fails where it ends.
    fn content_end(&mut self, block: &Block, data_at: u64, overrides: &Overrides) -> Result<u64> {
        let end = match self.data_end(block, data_at, overrides) {
            Err(error) if self.skips && self.next.is_some() => {
                let path = self.path.as_deref().unwrap_or_default();
                self.cut = Some(error.in_file("read", path));
                self.window.size
            }
            end => end?,
        };
        self.next = Some(end);
        Ok(end)
    }

    /// The map of PAX sparse format 1.0, which is stored before the data: the number of fragments,
    /// then offset and length of each, one decimal number per line, padded to whole blocks. Returns
    /// it with its padded length.
    fn map_in_data(&mut self, data_at: u64, stored_len: u64) -> Result<(Vec<(u64, u64)>, u64)> {
        let mut read = 0;
        let mut block = [0; 512];
        let mut line = || -> Result<u64> {
            let mut digits = Vec::new();
            loop {
                let at = data_at.saturating_add(read);
                if read == stored_len {
                    let what = "sparse map in tar is longer than its entry";
                    return Err(Corrupt {
                        what,
                        at,
                        got: stored_len,
                    }
                    .into());
                }
                if read.is_multiple_of(BLOCK) {
                    block = self.window.block(at)?;
                }
                let byte = block.get(to_usize(read % BLOCK)).copied().unwrap_or(0);
                read = read.saturating_add(1);
                if byte == b'\n' {
                    return Ok(header::decimal(&digits, at)?);
                }
                if digits.len() == 20 {
                    return Err(Corrupt {
                        what: "number in a sparse map in tar is too long",
                        at,
                        got: byte.into(),
                    }
                    .into());
                }
                digits.push(byte);
            }
        };
        let count = line()?;
        // The shortest fragment takes four bytes, so nothing is allocated from `count` alone.
        let mut map = Vec::new();
        for _ in 0..count {
            if map.len() > FRAGMENTS_MAX {
                break;
            }
            map.push((line()?, line()?));
        }
        self.check_fragments(map.len())?;
        Ok((map, read.next_multiple_of(BLOCK).min(stored_len)))
    }

    fn check_fragments(&self, more: usize) -> Result<()> {
        if self.fragments.saturating_add(more) > FRAGMENTS_MAX {
            return Err(Error::Limit("fragments of sparse files in a tar archive"));
        }
        Ok(())
    }

    fn sparse(
        &mut self,
        map: impl Iterator<Item = (u64, u64)>,
        real_size: u64,
        stored_len: u64,
        header_at: u64,
        at: u64,
    ) -> Result<MemberContent> {
        let fragments: Box<[Fragment]> =
            header::fragments(map, real_size, stored_len, header_at)?.into();
        self.check_fragments(fragments.len())?;
        self.fragments = self.fragments.saturating_add(fragments.len());
        Ok(MemberContent::Sparse(Box::new(Sparse { at, fragments })))
    }

    /// Adds a name to a file that came earlier.
    fn hard_link(&mut self, path: &[u8], target: &[u8], at: u64) -> Result<()> {
        if !self.adds(path, false, at)? {
            return Ok(());
        }
        let found = match names(target, at, NAME_BYTES_MAX)?.split_last() {
            Some((name, above)) => match self.find_directory(above) {
                Ok(Some(dir)) => self.tree.find(dir, name)?,
                Ok(None) | Err(Error::NotADirectory) => None,
                Err(error) => return Err(error),
            },
            None => Some((self.tree.root(), FileKind::Directory)),
        };
        let (found, kind) = found.ok_or({
            let what = "hard link in tar has no earlier target";
            Corrupt {
                what,
                at,
                got: to_u64(target.len()),
            }
        })?;
        if kind == FileKind::Directory {
            let what = "hard link in tar is to a directory";
            return Err(Corrupt {
                what,
                at,
                got: to_u64(target.len()),
            }
            .into());
        }
        let Some((parent, name)) = self.parent(path, at)? else {
            return Err(root_is_no_directory(at));
        };
        self.set(parent, name, found, at)
    }

    pub(super) fn insert(
        &mut self,
        path: &[u8],
        metadata: &Metadata,
        link_target: &[u8],
        in_archive: InArchive,
        at: u64,
    ) -> Result<()> {
        let is_directory = metadata.kind == FileKind::Directory;
        if !self.adds(path, is_directory, at)? {
            return Ok(());
        }
        let Some((parent, name)) = self.parent(path, at)? else {
            if !is_directory {
                return Err(root_is_no_directory(at));
            }
            return self.update_directory(self.tree.root(), metadata, in_archive);
        };
        if is_directory && let Some((found, FileKind::Directory)) = self.tree.find(parent, name)? {
            return self.update_directory(found, metadata, in_archive);
        }
        self.check_node_count()?;
        let ino = match metadata.kind {
            FileKind::Symlink => self.tree.add_symlink(metadata, link_target, in_archive)?,
            _ => self.tree.add(metadata, in_archive)?,
        };
        self.set(parent, name, ino, at)
    }

    /// Gives an existing directory the metadata of a later entry. It keeps its files.
    fn update_directory(
        &mut self,
        dir: Ino,
        metadata: &Metadata,
        in_archive: InArchive,
    ) -> Result<()> {
        let old = std::mem::replace(self.tree.content_mut(dir)?, in_archive);
        if !old.implied {
            self.notes.replaced = self.notes.replaced.saturating_add(1);
        } else if dir != self.tree.root() {
            self.notes.implied_directories = self.notes.implied_directories.saturating_sub(1);
        }
        self.tree.change(dir, |known| known.clone_from(metadata))
    }

    /// Makes `name` in `parent` a name of a file. A file that had this name loses it.
    pub(super) fn set(&mut self, parent: Ino, name: &[u8], ino: Ino, at: u64) -> Result<()> {
        let old = self.tree.find(parent, name)?;
        let old = old.filter(|&(old, _)| matches!(self.tree.is_empty(old), Ok(false)));
        if self.pass.is_some() && old.is_some() {
            self.remove(parent, name)?;
        } else if old.is_some() {
            let what = "tar entry replaces a directory that has files";
            return Err(Corrupt {
                what,
                at,
                got: to_u64(name.len()),
            }
            .into());
        }
        if self.tree.link(parent, name, ino)?.is_some() {
            self.notes.replaced = self.notes.replaced.saturating_add(1);
        }
        Ok(())
    }

    /// The parent directory of a path, created if necessary, and its last name; `None` for the
    /// root.
    pub(super) fn parent<'p>(
        &mut self,
        path: &'p [u8],
        at: u64,
    ) -> Result<Option<(Ino, &'p [u8])>> {
        if path.first() == Some(&b'/') {
            self.notes.absolute_paths = self.notes.absolute_paths.saturating_add(1);
        }
        let names = names(path, at, NAME_BYTES_MAX)?;
        let Some((name, above)) = names.split_last() else {
            return Ok(None);
        };
        if above.len() >= to_usize(self.limits.depth_max) {
            return Err(Error::Limit("directory depth of a tar archive"));
        }
        let mut dir = self.tree.root();
        for &next in above {
            dir = match self.tree.find(dir, next)? {
                Some((next, FileKind::Directory)) => next,
                Some((_, FileKind::Symlink)) if self.follows => {
                    dir = self.follow(above, true, at)?.unwrap_or(dir);
                    break;
                }
                Some(_) => return Err(not_below_file(path, at)),
                None => self.imply(dir, next)?,
            };
        }
        let implied_max = self
            .entries
            .saturating_mul(IMPLIED_PER_ENTRY_MAX)
            .max(1 << 16);
        if self.notes.implied_directories > implied_max {
            return Err(Error::Limit("implied directories in a tar archive"));
        }
        Ok(Some((dir, name)))
    }

    /// Adds a directory that is in a path.
    pub(super) fn imply(&mut self, dir: Ino, name: &[u8]) -> Result<Ino> {
        self.check_node_count()?;
        let implied = InArchive::implied(self.layer);
        let implied = self.tree.add(&self.implied, implied)?;
        self.tree.link(dir, name, implied)?;
        self.notes.implied_directories = self.notes.implied_directories.saturating_add(1);
        Ok(implied)
    }

    /// Checks that there is room for one more.
    pub(super) fn check_node_count(&self) -> Result<()> {
        if to_u64(self.tree.node_count()) >= self.limits.inodes_max.min(u32::MAX.into()) {
            return Err(Error::Limit("files in a tar archive"));
        }
        Ok(())
    }
}

impl InArchive {
    fn implied(layer: u16) -> InArchive {
        InArchive {
            layer,
            implied: true,
            ..InArchive::default()
        }
    }
}

/// The blocks of the archive, read in larger chunks.
struct Window<'a> {
    archive: &'a dyn ReadAt,
    size: u64,
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn of(archive: &'a dyn ReadAt, size: u64) -> Window<'a> {
        Window {
            archive,
            size,
            at: 0,
            bytes: Vec::new(),
        }
    }

    fn block(&mut self, at: u64) -> Result<Block> {
        if at >= self.size {
            let what = "tar archive ends without its end marker";
            return Err(Corrupt {
                what,
                at,
                got: self.size,
            }
            .into());
        }
        let inside = at
            .checked_sub(self.at)
            .and_then(|inside| usize::try_from(inside).ok());
        let found = inside.and_then(|inside| self.bytes.get(inside..)?.first_chunk());
        if let Some(block) = found {
            return Ok(*block);
        }
        let len = to_usize(self.size.saturating_sub(at)).min(WINDOW_BYTES);
        let len = len.min(self.archive.window_bytes());
        self.bytes.resize(len, 0);
        self.at = at;
        self.archive.read_exact_at(&mut self.bytes, at)?;
        let what = "tar archive is cut off within a header";
        Ok(*self.bytes.first_chunk().ok_or(Corrupt {
            what,
            at,
            got: self.size,
        })?)
    }
}

/// The names in a path, each of at most `name_bytes_max`. Empty names and `.` are skipped.
pub(super) fn names(path: &[u8], at: u64, name_bytes_max: usize) -> Result<Vec<&[u8]>, Corrupt> {
    let mut names = Vec::new();
    if path.len() > PATH_BYTES_MAX {
        let what = "path in tar is longer than a mebibyte";
        let got = to_u64(path.len());
        return Err(Corrupt { what, at, got });
    }
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                let what = "path in tar has a '..' in it";
                return Err(Corrupt {
                    what,
                    at,
                    got: to_u64(path.len()),
                });
            }
            _ if name.len() > name_bytes_max => {
                let what = "name in tar is longer than 255 bytes";
                return Err(Corrupt {
                    what,
                    at,
                    got: to_u64(name.len()),
                });
            }
            _ => names.push(name),
        }
    }
    Ok(names)
}

/// The prefix in a header of star, which stores times in the last part.
const STAR_PREFIX: Range<usize> = ustar::PREFIX.start..ustar::PREFIX.start + 131;

/// The path in the header itself: in ustar, a prefix can precede the name.
fn header_path(block: &Block) -> Vec<u8> {
    let name = header::text(&block[ustar::NAME]);
    let prefix = match Dialect::of(block) {
        // The magic of star is at the end of the block.
        Dialect::Ustar if block.ends_with(b"tar\0") => header::text(&block[STAR_PREFIX]),
        Dialect::Ustar => header::text(&block[ustar::PREFIX]),
        Dialect::Gnu | Dialect::V7 => &[],
    };
    if prefix.is_empty() {
        return name.to_vec();
    }
    [prefix, b"/", name].concat()
}

/// The offset after the header block at `at`, which was read.
const fn after(at: u64) -> u64 {
    at.saturating_add(BLOCK)
}

/// The low 16 bits of a number.
const fn low_bits(number: i64) -> u16 {
    let [first, second, ..] = number.to_le_bytes();
    u16::from_le_bytes([first, second])
}

/// The size of an entry's data in the archive.
fn size(block: &Block, at: u64, overrides: &Overrides) -> Result<u64, Corrupt> {
    match overrides.size {
        Some(size) => Ok(size),
        None => header::unsigned(&block[124..136], at),
    }
}

fn field_or(value: Option<u32>, field: &[u8], at: u64) -> Result<u32, Corrupt> {
    match value {
        Some(value) => Ok(value),
        None => header::unsigned32(field, at),
    }
}

/// The device number; v7 headers have none.
fn device(block: &Block, overrides: &Overrides, at: u64) -> Result<Device, Corrupt> {
    let [major, minor] = ustar::device(block);
    Ok(Device {
        major: field_or(overrides.dev_major, major, at)?,
        minor: field_or(overrides.dev_minor, minor, at)?,
    })
}

/// The fragments of GNU's old sparse format. Those after the last one are empty.
fn add_gnu_fragments(entries: &[u8], at: u64, map: &mut Vec<(u64, u64)>) -> Result<(), Corrupt> {
    for entry in entries.chunks_exact(ustar::GNU_FRAGMENT) {
        let (offset, len) = entry.split_at(ustar::GNU_FRAGMENT / 2);
        if offset.first() == Some(&0) || len.first() == Some(&0) {
            break;
        }
        let offset = header::unsigned(offset, at)?;
        map.push((offset, header::unsigned(len, at)?));
    }
    Ok(())
}

pub(super) fn not_below_file(path: &[u8], at: u64) -> Error {
    let what = "tar entry lies below a file that is not a directory";
    Error::corrupt(what, at, to_u64(path.len()))
}

fn root_is_no_directory(at: u64) -> Error {
    let what = "root of a tar archive is not a directory";
    Corrupt { what, at, got: 0 }.into()
}
