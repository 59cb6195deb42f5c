//! The result of a copy.

use std::ops::Range;

use tree::extract::Unrestored;
use tree::{Error, ImageSummary, KeptCount};

use crate::HashTree;

/// The result of a copy.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CopySummary {
    /// The number of files.
    pub files: u64,
    /// Bytes of file contents.
    pub read_bytes: u64,
    /// Bytes of the output.
    pub written_bytes: u64,
    /// As many of these hold something, if the rest is free space.
    pub used_bytes: Option<u64>,
    /// Blocks or extents that were copied in compressed form.
    pub kept: KeptCount,
    /// Files and parts of files that are not in the output.
    pub losses: Vec<CopyLoss>,
    /// Properties of the other files that could not be preserved.
    pub unpreserved: Vec<Unpreserved>,
    /// Remarks; no reason to count the copy as incomplete.
    pub notes: Vec<CopyNote>,
    /// A btrfs image that Linux cannot write to: whether Linux can delete files in it.
    pub read_only: Option<bool>,
    /// Further figures of a SquashFS image, without its lists of files.
    pub squashfs: Option<::squashfs::CreateSummary>,
    /// The same of an EROFS image.
    pub erofs: Option<::erofs::ErofsSummary>,
    /// The same of a btrfs image.
    pub btrfs: Option<::btrfs::CreateSummary>,
    /// The hash tree of an image.
    pub verity: Option<HashTree>,
    /// The digests of a container image.
    pub image: Option<::oci::WrittenImage>,
}

/// A file that is not in the output, or not as it was.
#[derive(Debug)]
pub struct CopyLoss {
    /// The path in the source.
    pub path: Vec<u8>,
    /// The missing part, and the reason.
    pub reason: LossReason,
}

/// The missing part of a file, and the reason.
#[derive(Debug)]
#[non_exhaustive]
pub enum LossReason {
    /// The whole file cannot be read.
    File(Error),
    /// The directory cannot be listed; with `is_empty`, no file of it is there.
    Names {
        /// Whether no file of it is there.
        is_empty: bool,
        /// The reason.
        error: Error,
    },
    /// Its extended attributes cannot be read.
    Xattrs(Error),
    /// Zeros stand in place of these bytes.
    Content(Vec<Range<u64>>, Error),
    /// Zeros stand in place of a part that could be read once only.
    Reread(Error),
    /// It changed while it was read.
    Changed,
    /// It does not fit to a file in the destination, for this reason.
    NotMerged(Box<str>),
}

/// A property of a file that the destination does not have.
#[derive(Debug)]
#[non_exhaustive]
pub enum Unpreserved {
    /// An extended attribute.
    Xattr {
        /// The path in the source.
        path: Vec<u8>,
        /// The name of the attribute.
        name: Vec<u8>,
        /// The reason.
        why: &'static str,
    },
    /// The modification time of this path: the nearest that the format can hold is stored.
    Time(Vec<u8>),
    /// Hard links across subvolumes, which became files with shared extents.
    Links(Vec<u8>),
    /// A socket, which is not copied.
    Socket(Vec<u8>),
    /// A name or a device that hides files in container images, and so is not copied.
    Whiteout(Vec<u8>),
    /// Properties that this machine refused.
    Host(Unrestored),
}

/// A remark about a copy.
#[derive(Debug)]
#[non_exhaustive]
pub enum CopyNote {
    /// Nothing was reused: the old image was made with other settings.
    OldDiffers,
    /// Blocks or extents that were reused, and those that were encoded.
    Reused(u64, u64),
    /// Those that were reused were made with other settings.
    ReusedDiffer,
    /// Files in the destination that were kept.
    FilesKept(u64),
    /// Other names of the file that was replaced, which keep its content.
    OtherNames(u64),
    /// Entries of the old directory that were deleted.
    Deleted(u64),
    /// Files that share their data with the source.
    Cloned(u64),
    /// Extents that several files share.
    ExtentsShared(u64),
    /// Compressed extents that were encoded again, and the reason.
    Recoded(u64, &'static str),
    /// Compressed data was encoded again, which an EROFS image for Linux 6.15 keeps as it is.
    NewerKeeps,
    /// The image is a btrfs and an EROFS image at once.
    Dual,
    /// Compressed extents that were written decompressed, and the reason.
    Decompressed(u64, String),
}

impl CopySummary {
    /// Whether the destination has everything.
    pub fn is_whole(&self) -> bool {
        self.losses.is_empty() && self.unpreserved.is_empty()
    }

    /// Takes over the common part of the summary of an image.
    pub(super) fn of_image(image: &ImageSummary, reuses: bool) -> CopySummary {
        let mut notes = match (image.old_differs, image.reused) {
            (true, 0) => vec![CopyNote::OldDiffers],
            (true, reused) => vec![
                CopyNote::Reused(reused, image.encoded),
                CopyNote::ReusedDiffer,
            ],
            (false, reused) => vec![CopyNote::Reused(reused, image.encoded)],
        };
        if !reuses {
            notes.clear();
        }
        CopySummary {
            read_bytes: image.content_bytes,
            written_bytes: image.image_bytes,
            kept: image.kept,
            notes,
            ..CopySummary::default()
        }
    }
}

/// Extended attributes that a format cannot hold.
pub(super) fn lost_xattrs(
    lost: Vec<(Vec<u8>, Vec<u8>)>,
    why: &'static str,
) -> impl Iterator<Item = Unpreserved> {
    (lost.into_iter()).map(move |(path, name)| Unpreserved::Xattr { path, name, why })
}
