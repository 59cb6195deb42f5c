//! Remarks about a source.

use std::fmt;

use codec::Wrapper;

use crate::input::OpenedTar;
use crate::text;

/// Members of an archive that are left out and named one by one.
const LEFT_OUT_MAX: usize = 1000;

/// A remark about a source. [`fmt::Display`] gives it in words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceNote {
    /// Compressed data of a directory on btrfs is read decompressed: only root can read it as it is
    /// stored.
    Decompressed,
    /// A btrfs image was not unmounted cleanly; its log is read, too.
    LogRead,
    /// Paths of an archive that had a leading `/`.
    AbsolutePaths(u64),
    /// Entries of an archive with later ones of the same path.
    ReplacedEntries(u64),
    /// The names of the subvolumes of a stream, of which the last is read.
    Subvolumes(Vec<Vec<u8>>),
    /// Access control lists of an archive that cannot be read.
    AclsNotRead(u64),
    /// The byte at which an archive ends without an end marker.
    NoEndMarker(u64),
    /// A member of an archive that is left out, and why.
    MemberLeftOut(Option<Box<[u8]>>, String),
    /// Members of an archive that are left out, beside those that are named.
    MembersLeftOut(u64),
    /// The byte at which an archive is cut off within its last file.
    CutWithin(u64),
    /// Why a compressed archive was not decompressed to its end.
    CutOff(String),
    /// A seek table that does not fit its archive, which is decompressed from the beginning.
    SeekTableNotUsed,
    /// Bytes behind the end of a compressed archive, and the format.
    BytesBehindEnd(&'static str),
    /// Files of a stream whose fs-verity is not read.
    VerityNotRead(u64),
}

impl SourceNote {
    /// The remarks about an archive, and about content that no copy of it has.
    pub(crate) fn of_tar(opened: &OpenedTar) -> (Vec<SourceNote>, Vec<SourceNote>) {
        let tar = &opened.tar;
        let notes = tar.notes();
        let some = |count: u64, note: fn(u64) -> SourceNote| (count > 0).then(|| note(count));
        let mut lost: Vec<SourceNote> = (tar.faults().iter())
            .take(LEFT_OUT_MAX)
            .map(|error| match error {
                tree::Error::File { path, error, .. } => {
                    SourceNote::MemberLeftOut(Some(path.clone()), error.to_string())
                }
                error => SourceNote::MemberLeftOut(None, error.to_string()),
            })
            .collect();
        let more = tar.faults().len().saturating_sub(LEFT_OUT_MAX) as u64;
        lost.extend(some(more, SourceNote::MembersLeftOut));
        // The file that is cut off is named where its content cannot be read.
        lost.extend(if let Some(error) = &opened.damage {
            Some(SourceNote::CutOff(error.to_string()))
        } else if tar.cut().is_some() {
            Some(SourceNote::CutWithin(tar.archive_bytes()))
        } else {
            notes.no_end_at.map(SourceNote::NoEndMarker)
        });
        let garbage = (opened.garbage).map(|it| SourceNote::BytesBehindEnd(it.name()));
        // For gzip and lz4 they are an error, for bzip2 they are not.
        let (lost_bytes, ignored) = match opened.garbage {
            Some(Wrapper::Bzip2) => (None, garbage),
            _ => (garbage, None),
        };
        lost.extend(lost_bytes);
        lost.extend(some(notes.acls_not_read, SourceNote::AclsNotRead));
        let notes = [
            some(notes.absolute_paths, SourceNote::AbsolutePaths),
            some(notes.replaced, SourceNote::ReplacedEntries),
            opened.misfit.map(|_| SourceNote::SeekTableNotUsed),
            ignored,
        ];
        (notes.into_iter().flatten().collect(), lost)
    }
}

impl fmt::Display for SourceNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceNote::Decompressed => f.write_str(
                "compressed data on btrfs is read decompressed; only root can read it as it is stored",
            ),
            SourceNote::LogRead => f.write_str(
                "the image was not unmounted cleanly; the changes in its log are read, too",
            ),
            SourceNote::AbsolutePaths(count) => {
                let paths = text::count(*count, "path");
                write!(f, "{paths} had a leading `/`, which was removed")
            }
            SourceNote::ReplacedEntries(count) => {
                let entries = if *count == 1 { "entry" } else { "entries" };
                write!(f, "{count} {entries} replaced by a later one with the same path")
            }
            SourceNote::Subvolumes(names) => {
                let names: Vec<String> = names.iter().map(|name| text::of_name(name)).collect();
                let last = names.last().map_or("", String::as_str);
                write!(
                    f,
                    "the stream has {} subvolumes, of which {last} is read: {}",
                    names.len(),
                    names.join(", ")
                )
            }
            SourceNote::AclsNotRead(count) => {
                let lists = text::count(*count, "text access control list");
                write!(f, "{lists} cannot be read: unknown names, or no list that Linux accepts")
            }
            SourceNote::NoEndMarker(at) => write!(
                f,
                "the archive has no end marker: it may have been cut off between two members (at byte {at})"
            ),
            SourceNote::MemberLeftOut(Some(path), why) => {
                write!(f, "{} is left out: {why}", text::of_path(path))
            }
            SourceNote::MemberLeftOut(None, why) => write!(f, "a member is left out: {why}"),
            SourceNote::MembersLeftOut(count) => {
                write!(f, "{} more left out", text::count(*count, "member"))
            }
            SourceNote::CutWithin(at) => write!(
                f,
                "the archive is cut off within its last file, at byte {at}: members may be missing"
            ),
            SourceNote::SeekTableNotUsed => f.write_str(
                "the seek table does not fit the archive, which is decompressed from its beginning",
            ),
            SourceNote::BytesBehindEnd(format) => {
                write!(f, "bytes behind the end of the {format} data are ignored")
            }
            SourceNote::CutOff(why) => write!(
                f,
                "decompression ended early ({why}): members are missing, and the last ones may be damaged"
            ),
            SourceNote::VerityNotRead(count) => {
                let files = text::count(*count, "file");
                write!(f, "fs-verity of {files} in the stream is not read")
            }
        }
    }
}
