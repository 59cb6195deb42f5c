//! Incremental streams: the commands that turn a parent into the sent subvolume.

use std::io::Write;

use tree::{
    Error, Extent, ExtentId, ExtentKind, Extents, FileId, FileKind, FileSystem, Ino, Inventory,
    Metadata, Progress, Result,
};

use super::attributes::{CAPABILITY, create, name_hash, set_xattr, stored_xattrs, times};
use super::data::{
    CloneRoot, DataSender, SendSettings, SentFile, begin, is_stored_alike, write_bytes_max,
};
use super::dirs::ChangedDirs;
use super::items::{has_items, have_items_changed};
use super::options::{SendData, SendOptions, SendSummary};
use super::order::{Order, StoredFiles};
use super::receiver::{FilePair, NodeId, ROOT_NODE, ReceiverNames};
use super::waiting::Moves;
use crate::command::Command;
use crate::raw::Version;
use crate::writer::StreamWriter;

/// `FALLOC_FL_PUNCH_HOLE` and `FALLOC_FL_KEEP_SIZE`.
const PUNCH_HOLE: u32 = 3;
/// Zeros of a longer hole are written only where the parent has data, so that the work does not
/// depend on sizes of files.
const ZEROS_BYTES_MAX: u64 = 64 << 20;

/// A read-only subvolume of the same file system that the receiver has, too.
#[derive(Clone, Copy)]
pub struct KnownSubvolume<'a> {
    /// Its files. They are of the same store as those that are sent.
    pub inventory: &'a Inventory<'a>,
    /// The stored form of its files in the image.
    pub stored: &'a dyn StoredFiles,
    /// The UUID by which the receiver knows it.
    pub uuid: [u8; 16],
    /// The transaction of its last change.
    pub ctransid: u64,
}

/// Writes the commands that make a subvolume from a snapshot of its parent: [`Command::Snapshot`]
/// is the first. The caller writes the header before, and [`Command::End`] after the last
/// subvolume.
///
/// Data that the parent, a subvolume in `sources`, or an earlier file has is cloned. The names that
/// files have at the receiver are followed through all commands, and compared at the end.
///
/// # Errors
/// As for [`send`](super::send()); also if the options have no stored files, or the subvolumes are
/// not of one store.
pub fn send_changes<W: Write>(
    inventory: &Inventory<'_>,
    parent: &KnownSubvolume<'_>,
    sources: &[KnownSubvolume<'_>],
    options: &SendOptions<'_>,
    progress: &dyn Progress,
    writer: &mut StreamWriter<W>,
) -> Result<SendSummary> {
    if options.data == SendData::AsStored && writer.version() == Version::V1 {
        return Err(Error::InvalidInput("version 1 has no encoded data"));
    }
    let Some(stored) = options.stored else {
        return Err(Error::InvalidInput("files of a stream need their numbers"));
    };
    let store = |inventory: &Inventory<'_>| inventory.tree().storage().store;
    let known = || [parent].into_iter().chain(sources);
    if known().any(|known| store(known.inventory) != store(inventory)) {
        return Err(Error::InvalidInput("the parent is in another image"));
    }
    writer.command(&Command::Snapshot {
        path: options.name,
        uuid: options.uuid,
        ctransid: options.ctransid,
        clone_uuid: parent.uuid,
        clone_ctransid: parent.ctransid,
    })?;
    let mut orders = vec![Order::new(inventory, options.stored, options.ctransid)?];
    for known in known() {
        let stored = Some(known.stored);
        let mut order = Order::new(known.inventory, stored, known.ctransid)?;
        // All of its files have their names.
        order.progress = u64::MAX;
        orders.push(order);
    }
    let mut roots = vec![CloneRoot {
        inventory,
        order: &orders[0],
        uuid: options.uuid,
        ctransid: options.ctransid,
    }];
    for (known, order) in known().zip(&orders[1..]) {
        roots.push(CloneRoot {
            inventory: known.inventory,
            order,
            uuid: known.uuid,
            ctransid: known.ctransid,
        });
    }
    let receiver = ReceiverNames::new(&orders[1], &orders[0]);
    let mut wanted: Vec<ExtentId> = Vec::new();
    for files in &receiver.nodes {
        if let Some(file) = files.child.filter(|_| has_changed(files, &roots))
            && inventory.kind(file) == FileKind::Regular
        {
            let size = inventory.size(file);
            let mut extents = Extents::new(inventory.tree(), inventory.ino(file), size);
            let mut next = || {
                let next = extents.next();
                next.map_err(|error| orders[0].name_error(file, error))
            };
            while let Some(extent) = next()? {
                wanted.extend(extent.id);
            }
        }
    }
    let data = DataSender::indexed(&roots, wanted, options.sector_bytes)?;
    let mut changes = ChangeSender {
        roots: &roots,
        stored,
        stored_in_parent: parent.stored,
        options,
        progress,
        data,
        receiver,
        writer,
        node: ROOT_NODE,
        moves: Moves::default(),
        changed: ChangedDirs::default(),
    };
    changes.run()?;
    Ok(SendSummary {
        files: orders[0].len() as u64,
        kept: changes.data.kept,
    })
}

/// Whether a file that is sent is not the same in the parent.
fn has_changed(files: &FilePair, roots: &[CloneRoot<'_>]) -> bool {
    let (Some(old), Some(new)) = (files.parent, files.child) else {
        return true;
    };
    let (sent, parent) = (&roots[0], &roots[1]);
    sent.order.transaction(new) != parent.order.transaction(old)
        || sent.inventory.metadata(new) != parent.inventory.metadata(old)
}

/// Whether a change of the owner takes away the bits by which a program has the rights of its
/// owner.
fn loses_bits(metadata: &Metadata) -> bool {
    let mode = metadata.permissions;
    metadata.kind != FileKind::Directory && (mode & 0o4000 != 0 || mode & 0o2010 == 0o2010)
}

/// An incremental stream that is being written.
pub(super) struct ChangeSender<'a, W> {
    /// The subvolume that is sent, its parent, and further sources of clones.
    roots: &'a [CloneRoot<'a>],
    stored: &'a dyn StoredFiles,
    stored_in_parent: &'a dyn StoredFiles,
    options: &'a SendOptions<'a>,
    progress: &'a dyn Progress,
    data: DataSender,
    pub(super) receiver: ReceiverNames<'a>,
    pub(super) writer: &'a mut StreamWriter<W>,
    /// The one whose turn it is.
    pub(super) node: NodeId,
    pub(super) moves: Moves,
    pub(super) changed: ChangedDirs,
}

impl<W: Write> ChangeSender<'_, W> {
    fn run(&mut self) -> Result<()> {
        for turn in 0..self.receiver.nodes.len() {
            self.node = NodeId(turn as u32);
            let files = self.receiver.files(self.node);
            let done = match files.child {
                None => self.delete(self.node),
                Some(_) if !has_changed(&files, self.roots) => Ok(()),
                Some(file) => self.send_file(file, files.parent),
            };
            done.map_err(|error| match (error, files) {
                // An error of the output has no file.
                (error @ Error::Io(_), _) => error,
                (
                    error,
                    FilePair {
                        child: Some(file), ..
                    },
                ) => self.roots[0].order.name_error(file, error),
                (
                    error,
                    FilePair {
                        parent: Some(file), ..
                    },
                ) => self.roots[1].order.name_error(file, error),
                (error, _) => error,
            })?;
            self.times_of_excess()?;
            if files.child.is_some() {
                self.progress.advance(1, 0);
            }
        }
        self.move_all_waiters()?;
        let mut is_root_left = self.moves.has_used_root;
        while let Some(dir) = self.changed.take_last() {
            is_root_left &= dir != FileId(0);
            self.times_of_dir(dir)?;
        }
        // Linux leaves it as temporary names changed it.
        if is_root_left {
            self.times_of_dir(FileId(0))?;
        }
        self.receiver.check()
    }

    pub(super) fn create_at(&mut self, node: NodeId, path: &[u8]) -> Result<()> {
        let CloneRoot {
            inventory, order, ..
        } = self.roots[0];
        let Some(file) = self.receiver.files(node).child else {
            return Ok(());
        };
        let metadata = inventory.metadata(file);
        let (ino, number) = (inventory.ino(file), order.number(file));
        create(self.writer, inventory.tree(), ino, &metadata, number, path)
    }

    /// Sends a file that is new or changed: names, attributes and data, and last what the steps
    /// before change.
    fn send_file(&mut self, file: FileId, old: Option<FileId>) -> Result<()> {
        let (node, sent, parent) = (self.node, self.roots[0], self.roots[1]);
        let metadata = sent.inventory.metadata(file);
        let before = old.map(|old| (old, parent.inventory.metadata(old)));
        if old.is_none() && !self.is_created(node) {
            self.create_node(node)?;
        }
        if node != ROOT_NODE {
            self.change_names(node)?;
        }
        if self.changed.has_excess() {
            let is_behind_names = match old {
                Some(old) => have_items_changed([&sent, &parent], [file, old])?,
                None => has_items(sent.inventory, file)?,
            };
            if is_behind_names {
                self.times_of_excess()?;
            }
        }
        let path = &self.receiver.current_path(node)?[..];
        let xattrs = stored_xattrs(sent.inventory.tree(), sent.inventory.ino(file))?;
        let is_recreated = self.receiver.is_recreated(node);
        if !is_recreated {
            self.change_xattrs(path, &xattrs, old)?;
        }
        if metadata.kind == FileKind::Regular {
            self.content(file, path, &metadata, before.as_ref())?;
        }
        if is_recreated {
            self.change_xattrs(path, &xattrs, None)?;
        }
        let owner = |metadata: &Metadata| (metadata.uid, metadata.gid);
        let is_new_owner = before
            .as_ref()
            .is_none_or(|(_, before)| owner(before) != owner(&metadata));
        if is_new_owner {
            self.writer.command(&Command::Chown {
                path,
                uid: metadata.uid.into(),
                gid: metadata.gid.into(),
            })?;
        }
        let loses_bits = is_new_owner && loses_bits(&metadata);
        let is_new_mode = before
            .as_ref()
            .is_none_or(|(_, before)| before.permissions != metadata.permissions);
        if metadata.kind != FileKind::Symlink && (is_new_mode || loses_bits) {
            let mode = metadata.permissions.into();
            self.writer.command(&Command::Chmod { path, mode })?;
        }
        if let Some((old, _)) = before
            && self.writer.version() >= Version::V2
        {
            let flags = self.stored.flags(sent.inventory.ino(file))?;
            let old_flags = (self.stored_in_parent).flags(parent.inventory.ino(old))?;
            if flags != old_flags {
                let fileattr = flags;
                self.writer.command(&Command::Fileattr { path, fileattr })?;
            }
        }
        if let Some(xattr) = xattrs.iter().find(|it| *it.name == *CAPABILITY) {
            set_xattr(self.writer, path, xattr)?;
        }
        if self.moves.is_waiting(node) {
            return Ok(());
        }
        self.move_waiters(node)?;
        if sent.inventory.entries(file).len() > 0 {
            self.changed.add(file);
            Ok(())
        } else {
            let path = &self.receiver.current_path(node)?;
            times(self.writer, path, &metadata)
        }
    }

    /// Sends the times of directories of which too many wait.
    fn times_of_excess(&mut self) -> Result<()> {
        while let Some(dir) = self.changed.take_excess() {
            self.times_of_dir(dir)?;
        }
        Ok(())
    }

    fn times_of_dir(&mut self, dir: FileId) -> Result<()> {
        let Some(node) = self.receiver.of_child(dir) else {
            return Ok(());
        };
        let path = self.receiver.dir_path(node)?;
        times(self.writer, &path, &self.roots[0].inventory.metadata(dir))
    }

    /// Sets and removes the attributes that differ from those in the parent.
    fn change_xattrs(
        &mut self,
        path: &[u8],
        xattrs: &[tree::Xattr],
        old: Option<FileId>,
    ) -> Result<()> {
        let parent = self.roots[1];
        let before = match old {
            Some(old) => stored_xattrs(parent.inventory.tree(), parent.inventory.ino(old))?,
            None => Vec::new(),
        };
        let is_kept = |old: &&tree::Xattr| xattrs.iter().any(|new| new.name == old.name);
        let mut gone = before.iter().filter(|old| !is_kept(old)).peekable();
        let mut next_gone = |hash: Option<u32>| {
            gone.next_if(|old| hash.is_none_or(|hash| name_hash(&old.name) < hash))
        };
        for xattr in xattrs {
            while let Some(old) = next_gone(Some(name_hash(&xattr.name))) {
                let xattr_name = &old.name;
                self.writer
                    .command(&Command::RemoveXattr { path, xattr_name })?;
            }
            let is_set = before.contains(xattr) || *xattr.name == *CAPABILITY;
            if !is_set {
                set_xattr(self.writer, path, xattr)?;
            }
        }
        while let Some(old) = next_gone(None) {
            let xattr_name = &old.name;
            self.writer
                .command(&Command::RemoveXattr { path, xattr_name })?;
        }
        Ok(())
    }

    /// Sends the data of a regular file that the parent does not have there, and its size if that
    /// does not follow.
    fn content(
        &mut self,
        file: FileId,
        path: &[u8],
        metadata: &Metadata,
        before: Option<&(FileId, Metadata)>,
    ) -> Result<()> {
        let (sent, parent) = (self.roots[0], self.roots[1]);
        let receiver = &self.receiver;
        let place = |file| match receiver.of_child(file) {
            Some(node) => receiver.file_path(node),
            None => Err(Error::NotFound),
        };
        let context = SendSettings {
            options: self.options,
            progress: self.progress,
            roots: self.roots,
            path: &place,
        };
        let size = metadata.size;
        let mut target = SentFile {
            file,
            number: receiver.number(self.node),
            path,
            size,
            end: 0,
            done: 0,
        };
        let old_size = before.map_or(0, |(_, before)| before.size);
        let mut old = before.map(|(file, before)| Before {
            extents: Extents::new(
                parent.inventory.tree(),
                parent.inventory.ino(*file),
                before.size,
            ),
            fs: parent.inventory.tree(),
            ino: parent.inventory.ino(*file),
            size: before.size,
        });
        let ino = sent.inventory.ino(file);
        let mut extents = Extents::new(sent.inventory.tree(), ino, size);
        let mut hole: Option<(u64, u64)> = None;
        let mut inline_end = 0;
        let writes_holes =
            self.writer.version() >= Version::V2 || self.options.data == SendData::Nothing;
        loop {
            let next = extents.next()?;
            // Linux writes the zeros of preallocated space, but not into new files.
            let is_hole = |kind: ExtentKind| match old {
                Some(_) => kind == ExtentKind::Hole,
                None => !kind.has_data(),
            };
            if let Some(extent) = next.filter(|extent| is_hole(extent.kind)) {
                let (from, _) = hole.unwrap_or((extent.offset.max(inline_end), 0));
                hole = Some((from, extent.end())).filter(|(from, end)| from < end);
                continue;
            }
            let mut parts = Vec::new();
            if let (Some((from, end)), Some(old)) = (hole, &mut old) {
                parts = old.data_in(from, end)?;
                if !parts.is_empty() && (writes_holes || end - from <= ZEROS_BYTES_MAX) {
                    parts = vec![(from, end)];
                }
            }
            if let Some(extent) = &next {
                inline_end = context.end_of(extent, size);
                let is_same = match &mut old {
                    Some(old) if extent.kind.has_data() => {
                        old.shows(extent, sent.inventory.tree(), ino)?
                    }
                    Some(old) => {
                        let stored =
                            (self.stored_in_parent).preallocated(old.ino, extent.offset)?;
                        stored.is_some()
                            && stored == self.stored.preallocated(ino, extent.offset)?
                    }
                    None => false,
                };
                if !is_same {
                    target.done = extent.offset;
                    (self.data).send_extent(&context, &mut target, extent, self.writer)?;
                }
            }
            // Linux sends a hole after the extent after it, and does not count the last one as the
            // end of what it wrote.
            hole = None;
            for (from, end) in parts {
                let is_written = send_hole(self.writer, path, self.options.data, from, end)?;
                if is_written && next.is_some() {
                    target.end = end;
                }
            }
            if next.is_none() {
                break;
            }
        }
        let is_right = match before {
            None => target.end == size,
            Some(_) => old_size == size || old_size < size && target.end == size,
        };
        if !is_right {
            self.writer.command(&Command::Truncate { path, size })?;
        }
        Ok(())
    }
}

/// A regular file in the parent.
struct Before<'a> {
    extents: Extents<'a>,
    fs: &'a dyn FileSystem,
    ino: Ino,
    size: u64,
}

impl Before<'_> {
    /// The parts of a range in which it has data or preallocated space.
    fn data_in(&mut self, from: u64, end: u64) -> Result<Vec<(u64, u64)>> {
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let mut at = from;
        while at < end.min(self.size) {
            let part = self.extents.covering(at)?;
            let part_end = part.end().min(end);
            if part.kind != ExtentKind::Hole {
                match parts.last_mut() {
                    Some((_, last)) if *last == at => *last = part_end,
                    _ => parts.push((at, part_end)),
                }
            }
            at = part_end;
        }
        Ok(parts)
    }

    /// Whether it shows all of an extent at the same place.
    fn shows(&mut self, extent: &Extent, fs: &dyn FileSystem, ino: Ino) -> Result<bool> {
        if extent.end() > self.size {
            return Ok(false);
        }
        let Some(wanted) = begin(extent) else {
            return Ok(false);
        };
        let mut at = extent.offset;
        while at < extent.end() {
            let part = self.extents.covering(at)?;
            if extent.id.is_none() && part.id.is_none() && part.kind.has_data() {
                return self.has_content(extent, &part, fs, ino);
            }
            let is_whole = (part.offset, part.len) == (extent.offset, extent.len);
            let is_same_kind = is_stored_alike(part.kind, extent.kind);
            let shown = begin(&part).map(|begin| begin.wrapping_sub(part.offset));
            if !is_same_kind
                || part.id != extent.id
                || shown != Some(wanted.wrapping_sub(extent.offset))
            {
                return Ok(false);
            }
            at = part.end();
            if is_whole {
                return Ok(true);
            }
        }
        // Linux does not look whether what it compares with covers the extent, if a hole and
        // another extent follow.
        let next = self.extents.peek()?;
        let is_before_gap =
            next.is_some_and(|next| next.kind == ExtentKind::Hole && next.end() < self.size);
        Ok(!is_before_gap)
    }

    /// Whether it has the same content in the inode's tree.
    fn has_content(
        &self,
        extent: &Extent,
        part: &Extent,
        fs: &dyn FileSystem,
        ino: Ino,
    ) -> Result<bool> {
        if (part.offset, part.len) != (extent.offset, extent.len) {
            return Ok(false);
        }
        let [mut old, mut new] = [(); 2].map(|()| vec![0; extent.len as usize]);
        let read = [
            self.fs.read_at(self.ino, extent.offset, &mut old)?,
            fs.read_at(ino, extent.offset, &mut new)?,
        ];
        Ok(read[0] == read[1] && old == new)
    }
}

/// Sends a range without data, where the parent has some. Returns whether zeros were written.
fn send_hole<W: Write>(
    writer: &mut StreamWriter<W>,
    path: &[u8],
    data: SendData,
    from: u64,
    end: u64,
) -> Result<bool> {
    if writer.version() >= Version::V2 {
        writer.command(&Command::Fallocate {
            path,
            fallocate_mode: PUNCH_HOLE,
            file_offset: from,
            size: end - from,
        })?;
        return Ok(false);
    }
    if data == SendData::Nothing {
        writer.command(&Command::UpdateExtent {
            path,
            file_offset: from,
            size: end - from,
        })?;
        return Ok(false);
    }
    let zeros = vec![0; (end - from).min(write_bytes_max(writer.version())) as usize];
    let mut at = from;
    while at < end {
        let len = (end - at).min(zeros.len() as u64);
        writer.command(&Command::Write {
            path,
            file_offset: at,
            data: &zeros[..len as usize],
        })?;
        at += len;
    }
    Ok(true)
}
