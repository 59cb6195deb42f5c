//! Copies of trees into every format.

mod btrfs;
mod cpio;
mod directory;
mod dual;
mod erofs;
mod format;
mod image;
mod job;
mod layer;
mod memory;
mod note;
mod options;
mod packed;
mod parts;
mod reuse;
mod squashfs;
mod stream;
mod summary;
mod tar;

use std::path::Path;

use tree::{HostTimes, Output, Progress};

use crate::error::refuse;
use crate::{Error, Result, SourceTree};

pub use format::Format;
pub use job::CopyJob;
pub use options::{CopyOptions, ImageOptions, StreamOptions};
pub use stream::subvolume_name;
pub use summary::{CopyLoss, CopyNote, CopySummary, LossReason, Unpreserved};

/// Copies a tree to `dst`: a path, whose name says the format unless the options do.
///
/// # Errors
/// The source cannot be read, the destination cannot be written, or an option is impossible. Then
/// nothing is written.
pub fn copy(
    source: SourceTree,
    dst: impl AsRef<Path>,
    options: &CopyOptions,
    progress: &dyn Progress,
) -> Result<CopySummary> {
    let dst = dst.as_ref();
    let format = Format::of(dst, options.format)?;
    let source = source.for_format(format, dst, options)?;
    CopyJob::with(&source, (dst, format), None, options, |job| {
        job.write(progress, &mut |_| {})
    })
}

/// Copies a tree to an output, which `create` opens when the copy is known to be possible: memory
/// ([`MemoryResult`](crate::MemoryResult)), or any other [target](crate::OutputTarget).
///
/// # Errors
/// As for [`copy`]; a directory or a single file is no output.
pub fn copy_to(
    source: SourceTree,
    format: Format,
    create: &(dyn Fn() -> tree::Result<Output> + Sync),
    options: &CopyOptions,
    progress: &dyn Progress,
) -> Result<CopySummary> {
    if matches!(format, Format::Dir | Format::File | Format::Oci) {
        refuse!("{} is no output", format.noun());
    }
    // The name of the output in errors, and of the subvolume of a stream without another name.
    let dst = Path::new("output");
    let source = source.for_format(format, dst, options)?;
    CopyJob::with_output(&source, (dst, format), None, options, (create, 0), |job| {
        job.write(progress, &mut |_| {})
    })
}

impl CopyJob<'_> {
    /// Writes the destination. `warn` gets the reason if no data of an older image can be reused.
    ///
    /// # Errors
    /// The source cannot be read, or the destination cannot be written.
    pub fn write(
        &self,
        progress: &dyn Progress,
        warn: &mut dyn FnMut(Error),
    ) -> Result<CopySummary> {
        let (files, bytes) = (self.inventory.file_count(), self.inventory.content_bytes());
        progress.expect(Some(files.into()), Some(bytes));
        let mut summary = match self.format {
            Format::Dir | Format::File => directory::write(self, progress),
            Format::Tar | Format::TarGz | Format::TarXz | Format::TarZst => {
                tar::write(self, progress)
            }
            Format::Cpio | Format::CpioZst => cpio::write(self, progress),
            Format::Squashfs => squashfs::write(self, progress, warn),
            Format::Btrfs => btrfs::write(self, progress, warn),
            Format::Erofs => erofs::write(self, progress, warn),
            Format::Stream => stream::write(self, progress),
            Format::Oci | Format::OciArchive => image::write(self, progress, warn),
        }?;
        if self.other_names > 0 {
            summary.notes.push(CopyNote::OtherNames(self.other_names));
        }
        Ok(summary)
    }
}

impl SourceTree {
    /// The same source with as much of its files as a format keeps: their times, and the extents
    /// that are stored on btrfs.
    ///
    /// # Errors
    /// It is no directory and has to accept changes, or it cannot be opened again.
    pub fn for_format(
        mut self,
        format: Format,
        dst: &Path,
        options: &CopyOptions,
    ) -> Result<SourceTree> {
        let times = match format {
            Format::Btrfs => options.host_times,
            // They store no others, and each takes memory.
            Format::Squashfs
            | Format::Erofs
            | Format::Tar
            | Format::TarGz
            | Format::TarXz
            | Format::TarZst
            | Format::Cpio
            | Format::CpioZst
            | Format::Oci
            | Format::OciArchive => HostTimes::Modification,
            _ => HostTimes::default(),
        };
        if times != HostTimes::default() || options.accept_changed {
            self = self.reading(times, options.accept_changed)?;
        }
        let keeps_extents = match options.content_format(format) {
            Format::Btrfs | Format::Squashfs | Format::Stream => true,
            Format::Erofs => options.erofs.keeps_extents() && !options.recompress,
            Format::Dir => directory::is_on_btrfs(dst),
            _ => false,
        };
        // What changes while it is read is taken as it is then, and its extents with it.
        if keeps_extents && !options.accept_changed {
            self = self.with_stored_extents(times)?;
        }
        Ok(self)
    }
}
