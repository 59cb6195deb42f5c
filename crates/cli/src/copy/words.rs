//! The losses and notes of a copy, in words.

use std::ffi::OsStr;
use std::fmt::Write;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use restow::{CopyNote, CopySummary, Format, LossReason, SourceTree, Unpreserved};
use tree::Error;
use tree::extract::{Aspect, Unrestored};

use crate::message;
use crate::text;

/// Ranges of bytes that are shown for each file.
const RANGES_MAX: usize = 100;

/// The words for the result of a copy.
pub(crate) struct CopyWords {
    /// Files and parts of files that are not in the output, with their paths. All are printed.
    pub(crate) losses: Vec<(Vec<u8>, String)>,
    /// Properties of the others that are lost, a line each. If there are many, some are only
    /// counted.
    pub(crate) lost: Vec<String>,
    /// Other remarks, a line each.
    pub(crate) notes: Vec<String>,
}

impl CopyWords {
    /// `old` is the image or archive whose data was reused.
    pub(crate) fn of(
        (dst, format): (&Path, Format),
        old: Option<&Path>,
        source: &SourceTree,
        summary: &CopySummary,
    ) -> CopyWords {
        let parent = dst.parent().filter(|_| format == Format::File);
        let in_dst = |path: &[u8]| {
            let path = parent.unwrap_or(dst).join(OsStr::from_bytes(path));
            text::of_host_path(&path, "-")
        };
        let (mut losses, mut refused, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for loss in &summary.losses {
            let path = loss.path.clone();
            match &loss.reason {
                LossReason::NotMerged(reason) => {
                    let (name, reason) = (in_dst(&path), message::of_reason(reason));
                    refused.push((path, format!("{name}: not merged: {reason}")));
                }
                LossReason::Reread(_) => {
                    let words = of_loss(&source.path_name(&path), &loss.reason);
                    refused.push((path, words));
                }
                reason => {
                    let words = of_loss(&source.path_name(&path), reason);
                    losses.push((path, words));
                }
            }
        }
        for it in &summary.unpreserved {
            match it {
                Unpreserved::Socket(path) => {
                    let name = source.path_name(path);
                    let words = format!("{name}: not copied: tar archives cannot hold sockets");
                    losses.push((path.clone(), words));
                }
                Unpreserved::Whiteout(path) => {
                    let name = source.path_name(path);
                    let last = path.rsplit(|&byte| byte == b'/').next();
                    let is_named = last.is_some_and(|last| last.starts_with(b".wh."));
                    let marks = if is_named {
                        "names with .wh."
                    } else {
                        "devices 0, 0"
                    };
                    let words =
                        format!("{name}: not copied: {marks} hide files in container images");
                    losses.push((path.clone(), words));
                }
                Unpreserved::Host(unrestored) => {
                    for (file, words) in of_unrestored(unrestored, in_dst) {
                        match file {
                            Some(path) => losses.push((path, words)),
                            None => lost.push(words),
                        }
                    }
                }
                it => lost.extend(of_unpreserved(it, source)),
            }
        }
        losses.sort();
        losses.extend(refused);
        let old = old.unwrap_or(dst);
        let notes = summary.notes.iter().map(|note| of_note(note, old));
        CopyWords {
            losses,
            lost,
            notes: notes.collect(),
        }
    }
}

fn of_loss(name: &str, loss: &LossReason) -> String {
    match loss {
        LossReason::Names { is_empty, error } if *is_empty => {
            format!("{name}: left empty, cannot be read: {}", of_error(error))
        }
        LossReason::Names { error, .. } => {
            let reason = of_error(error);
            format!("{name}: some files skipped, cannot be listed: {reason}")
        }
        LossReason::File(error) => format!("{name}: skipped, cannot be read: {}", of_error(error)),
        LossReason::Xattrs(error) => {
            let reason = of_error(error);
            format!("{name}: extended attributes not copied, cannot be read: {reason}")
        }
        LossReason::Content(ranges, error) => {
            let (ranges, reason) = (of_ranges(ranges), of_error(error));
            format!(
                "{name}: kept in part, with zeros in place of bytes {ranges}, which cannot be read: {reason}"
            )
        }
        LossReason::Reread(error) => {
            let reason = of_error(error);
            format!("{name}: zeros in place of a part that could not be read again: {reason}")
        }
        _ => format!("{name}: changed while it was read"),
    }
}

fn of_unpreserved(lost: &Unpreserved, source: &SourceTree) -> Option<String> {
    let name = |path: &[u8]| source.path_name(path);
    Some(match lost {
        Unpreserved::Xattr { path, name, why } => format!(
            "{}: extended attribute {} not copied: {why}",
            source.path_name(path),
            text::of_name(name)
        ),
        Unpreserved::Time(path) => format!(
            "{}: modification time changed to the nearest that the format can hold",
            name(path)
        ),
        Unpreserved::Links(path) => format!(
            "{}: hard links across subvolumes became files with shared extents",
            name(path)
        ),
        _ => return None,
    })
}

fn of_note(note: &CopyNote, old: &Path) -> String {
    let old = || text::of_host_path(old, "standard input");
    match note {
        CopyNote::OldDiffers => format!(
            "nothing was reused: {} was not made with the same settings by this version",
            old()
        ),
        CopyNote::Reused(reused, encoded) => format!(
            "{} reused from {}, {encoded} encoded",
            text::count(*reused, "block"),
            old()
        ),
        CopyNote::ReusedDiffer => format!(
            "{} was made with other settings, such as another level, and its blocks keep them; --reuse-exact reuses none of them",
            old()
        ),
        CopyNote::FilesKept(count) => {
            format!("{} in the destination kept", text::count(*count, "file"))
        }
        CopyNote::OtherNames(count) => {
            let names = text::count(*count, "other name");
            format!("the old file stays under {names} (hard links)")
        }
        CopyNote::Deleted(count) => {
            let noun = if *count == 1 { "entry" } else { "entries" };
            format!("{count} {noun} of the old directory deleted")
        }
        CopyNote::Cloned(1) => "1 file shares its data with the source".to_owned(),
        CopyNote::Cloned(count) => format!("{count} files share their data with the source"),
        CopyNote::ExtentsShared(count) => {
            format!("{} shared with others", text::count(*count, "extent"))
        }
        CopyNote::Recoded(count, reason) => format!(
            "{} encoded again: {reason}",
            text::count(*count, "compressed extent")
        ),
        CopyNote::NewerKeeps => {
            "compressed data encoded again; --min-kernel 6.15 keeps it as it is stored".to_owned()
        }
        CopyNote::Dual => {
            "the file is also an EROFS image: keep it read-only, as a balance, defragmentation or discard breaks that; mount it with -t, as blkid finds two types".to_owned()
        }
        CopyNote::Decompressed(count, reason) => format!(
            "{} written decompressed: {}",
            text::count(*count, "compressed extent"),
            message::of_reason(reason)
        ),
        _ => String::new(),
    }
}

/// The properties that could not be restored, in words; and the path of a file that is not there.
pub(crate) fn of_unrestored(
    unrestored: &Unrestored,
    path_name: impl Fn(&[u8]) -> String,
) -> Vec<(Option<Vec<u8>>, String)> {
    let mut lost = Vec::new();
    for (aspect, names, count) in unrestored.counts() {
        for example in unrestored.examples(aspect) {
            let path = path_name(&example.path);
            let reason = message::of_reason(&example.reason);
            let file = (aspect == Aspect::Device).then(|| example.path.to_vec());
            let name = name_of(aspect);
            lost.push((file, format!("{path}: {name} not preserved: {reason}")));
        }
        let shown = unrestored.examples(aspect).count() as u64;
        if count > shown {
            lost.push((None, format!("and {} more {names}", count - shown)));
        }
    }
    if unrestored.count(Aspect::Owner) > 0 {
        let tip = "use --no-owners to ignore the owners in the source";
        lost.push((None, tip.to_owned()));
    }
    lost
}

fn name_of(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::Device => "device file",
        Aspect::Owner => "owner",
        Aspect::Mode => "mode",
        Aspect::Xattr => "extended attributes",
        Aspect::Attributes => "file attributes",
        Aspect::Time => "timestamps",
    }
}

fn of_error(error: &Error) -> String {
    message::of_reason(&message::of_tree_error(error))
}

/// Ranges with their first and last byte.
fn of_ranges(ranges: &[Range<u64>]) -> String {
    let mut words = String::new();
    for (number, range) in ranges.iter().take(RANGES_MAX).enumerate() {
        let comma = if number > 0 { ", " } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(words, "{comma}{}-{}", range.start, range.end - 1);
    }
    if ranges.len() > RANGES_MAX {
        let _ = write!(words, " and {} more ranges", ranges.len() - RANGES_MAX);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_name_their_first_and_last_byte() {
        assert_eq!(of_ranges(&[0..4096, 8192..8193]), "0-4095, 8192-8192");
        let many: Vec<_> = (0..102).map(|n| n * 2..n * 2 + 1).collect();
        assert!(of_ranges(&many).ends_with("198-198 and 2 more ranges"));
    }
}
