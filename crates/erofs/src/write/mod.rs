//! Creates an image from a tree of files.
//!
//! The data is written first, in the order of names, while worker threads compress ahead. Then
//! comes the metadata: the blocks of directories, attributes that several files have, and the
//! inodes with their indexes, in the order of the inventory, the root first. For Linux 6.17, the
//! inodes are in a compressed file. The superblock comes last.

mod block;
mod data;
mod devices;
mod digest;
mod encode;
mod frame;
mod image;
mod index;
mod layout;
mod old;
mod options;
mod plan;
mod reuse;
mod superblock;
mod tables;
mod trial;
mod unit;
mod verify;
mod xattrs;

use std::collections::HashMap;
use std::sync::Arc;

use tree::{
    Describe, Duplicates, Error, FileId, ImageSummary, Inventory, Lost, Output, Parallel, Progress,
    ReadAt, Result, Scratch, Time,
};

use self::block::BLOCK_BYTES;
pub use self::devices::DataDevice;
use self::image::ImageWriter;
use self::layout::{ImageContent, InodeLayout};
pub use self::old::OldErofs;
pub use self::options::{ErofsSummary, Options};
pub use self::trial::{EncodedTrialUnit, TrialImage, TrialUnit, TrialUnitEncoder};
use self::verify::WindowReader;
use self::xattrs::{DIGEST_NAME, XattrTable, is_storable};
use crate::image::Erofs;
use crate::read::TARGET_BYTES_MAX;

/// Bytes of decoded metadata that are kept while an image is read back, in the order of its inodes.
const DECODED_BYTES_KEPT: usize = 2 << 20;

/// The targets of symbolic links.
type LinkTargets = HashMap<FileId, Box<[u8]>>;

/// Creates an image of a tree. The same tree and options give the same bytes,
/// for any number of threads. The caller commits the output.
///
/// Only the modification time is kept. Sockets and devices are stored.
///
/// # Errors
/// [`Error::InvalidInput`] for options that are impossible; [`Error::File`] if a file cannot be
/// read, changes while it is read, or exceeds the limits of the format; [`Error::Limit`] for more
/// than the format holds; [`Error::Io`] if the output cannot be written, or does not return the
/// bytes written.
pub fn create(
    inventory: &Inventory,
    options: &Options,
    parallel: Parallel,
    progress: &dyn Progress,
    output: &mut Output,
) -> Result<ErofsSummary> {
    options.check()?;
    progress.expect(
        Some(inventory.file_count().into()),
        Some(inventory.content_bytes()),
    );
    let scratch = output.tables()?;
    Scratch::catch(|| {
        let mut writer = ImageWriter::new(inventory, options, parallel, output);
        writer.write(&scratch, progress)?;
        writer.summary.image.unreadable = writer.lost.into_paths(inventory);
        Ok(writer.summary)
    })
}

impl<'a> ImageWriter<'a> {
    fn write(&mut self, scratch: &Scratch, progress: &dyn Progress) -> Result<()> {
        // A device may have an old superblock, whose image is gone from now on.
        self.put_first_block(&[0; BLOCK_BYTES])?;
        self.put(&devices::device_table(&self.options.devices)?)?;
        self.align()?;
        let duplicates = if self.options.duplicates {
            match Duplicates::find(self.inventory, self.parallel) {
                // Every unreadable file is met again later, and listed then.
                Err(_) if self.options.skip_unreadable => Duplicates::default(),
                found => found?,
            }
        } else {
            Duplicates::default()
        };
        self.summary.image.duplicates = duplicates.len() as u64;
        let summary = &mut self.summary.image;
        let described = Described::of(self.inventory, self.options, self.parallel, summary)?;
        let (mut xattrs, targets) = (described.xattrs, described.targets);
        self.lost = described.lost;
        let shared_xattrs = xattrs.finish(&duplicates)?;
        let data = self.write_data(&duplicates, &xattrs, scratch, progress)?;
        let (epoch, made) = self.times();
        let lost = std::mem::take(&mut self.lost);
        let content = ImageContent {
            inventory: self.inventory,
            options: self.options,
            lost: &lost,
            duplicates: &duplicates,
            data: &data,
            xattrs: &xattrs,
            targets: &targets,
            epoch,
        };
        if self.options.content_digest {
            xattrs.set_digests(self.digests(&content, scratch)?);
        }
        let behind_data = self.at;
        let shared_bytes = shared_xattrs.len() as u64;
        let mut layout = InodeLayout::new(&content, behind_data, shared_bytes, scratch)?;
        // An object on its way to a store gives back the tables alone, and the store has checksums.
        let reads_data = self.output.keep_from(behind_data);
        self.write_tables(&content, &mut layout, &shared_xattrs)?;
        self.summary.metadata_bytes = self.at - behind_data;
        self.finish(&content, &layout, made)?;
        if self.options.verify.decodes_encoded() {
            let written = self.output.reader()?;
            let start = devices::begin(&self.options.devices);
            let mut sources: Vec<Box<dyn ReadAt>> = if reads_data {
                self.written.compare(&*written, start, self.parallel)?;
                vec![Box::new(WindowReader::new(written)?)]
            } else {
                vec![Box::new(written)]
            };
            let further = devices::has_further(&self.options.devices);
            for device in self.options.devices.iter().filter(|_| further) {
                sources.push(Box::new(Arc::clone(&device.bytes)));
            }
            let image = Erofs::open(sources)?;
            image.keep_decoded(DECODED_BYTES_KEPT);
            verify::tree(&image, &content, &layout, self.parallel)?;
        }
        self.lost = lost;
        Ok(())
    }

    /// The time of compact inodes, and how many seconds later the image was made.
    fn times(&self) -> (Time, u32) {
        let made = self.options.made;
        let mut seconds = made;
        if self.options.has_records() {
            // Compact inodes have the seconds after it.
            for file in self.inventory.files() {
                let mtime = self.options.clamped(self.inventory.metadata(file).mtime);
                seconds = seconds.min(mtime.seconds);
            }
            // Those of the last 136 years, if one file is older.
            seconds = seconds.max(made.saturating_sub(u32::MAX.into()));
        }
        let epoch = Time {
            seconds,
            nanoseconds: 0,
        };
        (epoch, u32::try_from(made - seconds).unwrap_or(u32::MAX))
    }
}

/// The parts of files that are neither content nor in an inventory.
struct Described<'a> {
    xattrs: XattrTable<'a>,
    targets: LinkTargets,
    /// Files of which they cannot be read.
    lost: Lost,
}

impl<'a> Described<'a> {
    /// Reads link targets and extended attributes; skips files for
    /// which that fails if the options allow it.
    fn of(
        inventory: &'a Inventory<'a>,
        options: &Options,
        parallel: Parallel,
        summary: &mut ImageSummary,
    ) -> Result<Described<'a>> {
        let has_digests = options.content_digest;
        let mut xattrs = XattrTable::new(inventory, has_digests);
        let mut targets = LinkTargets::new();
        let describe = Describe {
            inventory,
            xattrs: options.xattrs,
            skip_unreadable: options.skip_unreadable,
        };
        let lost = describe.read(
            parallel,
            summary,
            |description| match &description.target {
                Some(target) if target.len() as u64 > TARGET_BYTES_MAX => Err(Error::Limit(
                    "the target of a symbolic link is longer than Linux allows",
                )),
                Some(target) if target.is_empty() => {
                    Err(Error::Unsupported("a symbolic link without a target"))
                }
                _ => Ok(()),
            },
            |xattr| is_storable(xattr) && !(has_digests && *xattr.name == *DIGEST_NAME),
            |file, description| {
                targets.extend(description.target.map(|target| (file, target)));
                let added = xattrs.add(file, description.xattrs);
                added.map_err(|error| {
                    error.in_file("store", &inventory.path(inventory.first_name(file)))
                })
            },
        )?;
        Ok(Described {
            xattrs,
            targets,
            lost,
        })
    }
}
