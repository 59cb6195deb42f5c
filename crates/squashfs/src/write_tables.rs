//! Writes the tables of an image: inodes and directories, child before parent; fragments, export,
//! IDs, extended attributes.

use std::collections::HashMap;

use tree::{EntryId, Error, FileId, FileKind, Result, Time, WalkStep, XattrSets};
use zerocopy::IntoBytes;

use crate::describe::DescribedFiles;
use crate::dir::ListingWriter;
use crate::image_writer::ImageWriter;
use crate::inode::{DirListing, ImageInode, InodeFields, RegularFile, nearest_seconds};
use crate::inode_numbers::InodeNumbers;
use crate::lookup_table::emit_table;
use crate::metadata::MetadataWriter;
use crate::options::{ALL_PLAIN, Fragments, TableBytes};
use crate::plan::DataLayout;
use crate::raw::{self, flags};
use crate::reference::MetadataRef;
use crate::superblock::Superblock;
use crate::write_data::PlacedData;

/// Maximum number of different user and group IDs; the count's field could hold one more, but Linux
/// rejects that.
const IDS_MAX: usize = 65_535;

/// The inode and directory tables in progress.
struct InodeTables {
    ids: IdTable,
    inodes: MetadataWriter,
    listings: MetadataWriter,
    /// By file: where its inode is, plus one; 0 for files without an inode yet.
    references: Vec<MetadataRef>,
    listing: ListingWriter,
}

impl InodeTables {
    /// The reference of an inode that was written.
    fn reference(&self, file: FileId) -> MetadataRef {
        MetadataRef(self.references[file.0 as usize].0 - 1)
    }

    fn is_written(&self, file: FileId) -> bool {
        self.references[file.0 as usize] != MetadataRef(0)
    }

    fn write_inode(&mut self, file: FileId, record: &[u8]) {
        self.references[file.0 as usize] = MetadataRef(self.inodes.reference().0 + 1);
        self.inodes.write(record);
    }
}

impl ImageWriter<'_> {
    /// Writes all tables and the superblock; returns the sets of extended attributes.
    pub(crate) fn write_tables(
        &mut self,
        plan: &DataLayout,
        described: DescribedFiles,
        data: &PlacedData,
        numbers: &InodeNumbers,
    ) -> Result<XattrSets> {
        let inventory = self.inventory;
        let mut tables = InodeTables {
            ids: IdTable::default(),
            inodes: self.metadata_writer(flags::INODES_PLAIN),
            listings: self.metadata_writer(flags::INODES_PLAIN),
            references: vec![MetadataRef(0); inventory.file_count() as usize],
            listing: ListingWriter::default(),
        };
        for step in inventory.steps() {
            if let WalkStep::Leave(entry) = step {
                let dir = inventory.file(entry);
                self.write_files(dir, plan, &described, data, numbers, &mut tables)?;
                self.write_directory(entry, &described, numbers, &mut tables)?;
            }
        }
        let root = tables.reference(FileId(0));
        let inode_table = self.at;
        self.summary.inode_table = self.put_records(tables.inodes)?;
        let directory_table = self.at;
        self.summary.directory_table = self.put_records(tables.listings)?;
        self.summary.fragments = data.fragments.len() as u64;
        let mut fragment_table = None;
        if !data.fragments.is_empty() {
            let mut writer = self.metadata_writer(flags::FRAGMENTS_PLAIN);
            writer.write(data.fragments.as_bytes());
            fragment_table = Some(self.put_table(writer)?);
        }
        let mut export_table = None;
        if self.options.exportable {
            let mut writer = self.metadata_writer(flags::INODES_PLAIN);
            for (file, reference) in inventory.files().zip(&tables.references) {
                if numbers.of(file).is_some() {
                    writer.write(&(reference.0 - 1).to_le_bytes());
                }
            }
            export_table = Some(self.put_table(writer)?);
        }
        let mut writer = self.metadata_writer(flags::IDS_PLAIN | flags::INODES_PLAIN);
        for id in &tables.ids.numbers {
            writer.write(&id.to_le_bytes());
        }
        let id_table = self.put_table(writer)?;
        let mut table = Vec::new();
        let DescribedFiles { xattrs, sets, .. } = described;
        let ids = self.metadata_writer(flags::XATTRS_PLAIN);
        let content = xattrs.content_bytes();
        let xattr_table = xattrs.finish(ids, self.at, &mut table);
        let stored = table.len() as u64;
        self.summary.xattr_table = xattr_table.map(|_| TableBytes { stored, content });
        self.put(&table)?;
        let no_xattrs = xattr_table.map_or(flags::NO_XATTRS, |_| 0);
        self.finish(Superblock {
            algorithm: self.algorithm,
            block_bytes: self.options.block_bytes,
            inode_count: numbers.count(),
            mkfs_time: self.options.mkfs_time,
            fragment_count: data.fragments.len() as u32,
            id_count: tables.ids.numbers.len() as u32,
            flags: self.flags() | no_xattrs,
            root: root.0,
            bytes_used: self.at,
            inode_table,
            directory_table,
            fragment_table,
            export_table,
            export_position: export_table,
            id_table,
            xattr_table,
        })?;
        Ok(sets)
    }

    /// Appends records, and returns their size.
    fn put_records(&mut self, writer: MetadataWriter) -> Result<TableBytes> {
        let content = writer.content_bytes();
        let stored = writer.finish().0;
        self.put(&stored)?;
        Ok(TableBytes {
            stored: stored.len() as u64,
            content,
        })
    }

    /// Appends a table of records and returns the position of its list.
    fn put_table(&mut self, writer: MetadataWriter) -> Result<u64> {
        let mut table = Vec::new();
        let list_at = emit_table(writer, self.at, &mut table);
        self.put(&table)?;
        Ok(list_at)
    }

    /// Writes the inodes of the files in a directory. A directory's own inode was written when its
    /// walk ended, and a file's with its first name.
    fn write_files(
        &mut self,
        dir: FileId,
        plan: &DataLayout,
        described: &DescribedFiles,
        data: &PlacedData,
        numbers: &InodeNumbers,
        tables: &mut InodeTables,
    ) -> Result<()> {
        let inventory = self.inventory;
        let mut record = Vec::new();
        for entry in inventory.entries(dir) {
            let file = inventory.file(entry);
            let Some(number) = numbers.of(file).filter(|_| !tables.is_written(file)) else {
                continue;
            };
            record.clear();
            let mut inode = self.inode(file, plan, described, data, &mut tables.ids)?;
            inode.number = number;
            inode.emit(&mut record);
            if let InodeFields::File(stored) = &inode.body {
                let placed = data.placed(plan.shown(file));
                let count = stored.block_count(self.options.block_bytes) as usize;
                for word in data.words(placed, count) {
                    record.extend(word.to_le_bytes());
                }
            }
            tables.write_inode(file, &record);
        }
        Ok(())
    }

    /// Writes a directory's listing and its inode.
    fn write_directory(
        &mut self,
        entry: EntryId,
        described: &DescribedFiles,
        numbers: &InodeNumbers,
        tables: &mut InodeTables,
    ) -> Result<()> {
        let inventory = self.inventory;
        let dir = inventory.file(entry);
        let mut subdirectories = 0;
        tables.listing.clear();
        for entry in inventory.entries(dir) {
            let file = inventory.file(entry);
            let Some(number) = numbers.of(file) else {
                continue;
            };
            let kind = inventory.kind(file);
            subdirectories += u32::from(kind == FileKind::Directory);
            let reference = tables.reference(file);
            let name = inventory.name(entry);
            tables.listing.push(&name, reference, number, kind);
        }
        let parent = if entry == inventory.root() {
            numbers.count().wrapping_add(1)
        } else {
            directory_number(numbers, inventory.parent(entry))
        };
        let (listing, index) = write_listing(&mut tables.listing, &mut tables.listings);
        let mut inode = self.common(dir, described, &mut tables.ids)?;
        inode.number = directory_number(numbers, dir);
        inode.nlink = subdirectories + 2;
        inode.body = InodeFields::Directory {
            listing,
            parent,
            index_count: index.len() as u16,
        };
        let mut record = Vec::new();
        inode.emit(&mut record);
        for (index, name) in index {
            record.extend(index.as_bytes());
            record.extend(name);
        }
        tables.write_inode(dir, &record);
        Ok(())
    }

    fn flags(&self) -> u16 {
        let mut flags = 0;
        let mut set = |condition: bool, bit: u16| flags |= if condition { bit } else { 0 };
        set(self.options.compression.is_none(), ALL_PLAIN);
        set(true, self.options.plain);
        set(
            self.options.fragments == Fragments::None,
            flags::NO_FRAGMENTS,
        );
        set(
            self.options.fragments == Fragments::Always,
            flags::ALWAYS_FRAGMENTS,
        );
        set(self.options.duplicates, flags::DUPLICATES);
        set(self.options.exportable, flags::EXPORTABLE);
        set(self.options_record().is_some(), flags::OPTIONS);
        flags
    }

    /// The fields common to all inodes.
    fn common(
        &mut self,
        file: FileId,
        described: &DescribedFiles,
        ids: &mut IdTable,
    ) -> Result<ImageInode> {
        let metadata = self.inventory.metadata(file);
        let mtime = self.seconds(file, metadata.mtime);
        Ok(ImageInode {
            mode: metadata.permissions,
            uid: ids.index(metadata.uid)?,
            gid: ids.index(metadata.gid)?,
            mtime,
            number: 0, // set by the caller
            nlink: self.inventory.name_count(file),
            xattrs: described.sets.of(file),
            body: InodeFields::Ipc {
                kind: metadata.kind,
            },
        })
    }

    /// The time stored for a file; lists the file if its own time does not fit.
    fn seconds(&mut self, file: FileId, time: Time) -> u32 {
        let time = self.options.clamped(time);
        let seconds = nearest_seconds(time);
        if i64::from(seconds) != time.seconds {
            let path = self.path(file);
            self.summary.changed_times.push(path);
        }
        seconds
    }

    /// The inode of a file other than a directory.
    fn inode(
        &mut self,
        file: FileId,
        plan: &DataLayout,
        described: &DescribedFiles,
        data: &PlacedData,
        ids: &mut IdTable,
    ) -> Result<ImageInode> {
        let mut inode = self.common(file, described, ids)?;
        let kind = self.inventory.kind(file);
        let size = self.inventory.size(file);
        inode.body = match kind {
            FileKind::Regular => {
                let shown = plan.shown(file);
                let placed = data.placed(shown);
                InodeFields::File(RegularFile {
                    start: placed.start,
                    size,
                    sparse: placed.sparse,
                    tail: plan.tail(shown),
                })
            }
            FileKind::Symlink => {
                let target = described.targets.get(&file).cloned().unwrap_or_default();
                if target.is_empty() {
                    let error = Error::Unsupported("a symbolic link without a target");
                    return Err(error.in_file("store", &self.path(file)));
                }
                InodeFields::Symlink { target }
            }
            FileKind::BlockDevice | FileKind::CharDevice => {
                let Some(rdev) = self.inventory.metadata(file).rdev.emit() else {
                    let error = Error::Limit("a device number with more than 12 and 20 bits");
                    return Err(error.in_file("store", &self.path(file)));
                };
                InodeFields::Device { kind, rdev }
            }
            FileKind::Fifo | FileKind::Socket | FileKind::Directory => InodeFields::Ipc { kind },
        };
        Ok(inode)
    }
}

/// Every image contains all directories: an unreadable directory is stored empty.
fn directory_number(numbers: &InodeNumbers, dir: FileId) -> u32 {
    numbers.of(dir).expect("a directory is never left out")
}

/// Writes a listing and returns its position and its index: one record for each run that is the
/// first to start in its metadata block, except for the listing's first block.
fn write_listing(
    listing: &mut ListingWriter,
    listings: &mut MetadataWriter,
) -> (DirListing, Vec<(raw::DirectoryIndex, Vec<u8>)>) {
    let from = listings.reference();
    let len = listing.finish().len();
    let starts: Vec<(usize, Vec<u8>)> = listing
        .runs()
        .map(|(at, name)| (at as usize, name.to_vec()))
        .collect();
    let mut index = Vec::new();
    let mut block = from.block();
    for (n, (at, name)) in starts.iter().enumerate() {
        let here = listings.reference();
        if here.block() != block && index.len() < usize::from(u16::MAX) {
            block = here.block();
            let record = raw::DirectoryIndex {
                index: (*at as u32).into(),
                start_block: (here.block() as u32).into(),
                size: (name.len() as u32 - 1).into(),
            };
            index.push((record, name.clone()));
        }
        let end = starts.get(n + 1).map_or(len, |(at, _)| *at);
        listings.write(&listing.finish()[*at..end]);
    }
    let place = if len == 0 {
        DirListing {
            block: 0,
            offset: 0,
            len: 0,
        }
    } else {
        DirListing {
            block: from.block() as u32,
            offset: from.offset(),
            len: len as u32,
        }
    };
    (place, index)
}

/// User and group IDs, each once, in order of first use.
#[derive(Default)]
struct IdTable {
    numbers: Vec<u32>,
    indices: HashMap<u32, u16>,
}

impl IdTable {
    fn index(&mut self, id: u32) -> Result<u16> {
        if let Some(&index) = self.indices.get(&id) {
            return Ok(index);
        }
        if self.numbers.len() == IDS_MAX {
            return Err(Error::Limit("more than 65,535 different owners and groups"));
        }
        let index = self.numbers.len() as u16;
        self.numbers.push(id);
        self.indices.insert(id, index);
        Ok(index)
    }
}
