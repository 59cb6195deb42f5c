//! What a copy has to leave out of a source that cannot be read as a whole, in words.

use std::collections::HashSet;
use std::fmt::Write;
use std::ops::Range;

use restow::SourceTree;
use tree::rescue::Loss;
use tree::{Error, FileKind, Inventory};

use super::job::{Job, Lost};
use crate::message;

/// Ranges of bytes that are shown for each file.
const RANGES_MAX: usize = 100;

impl Job<'_> {
    /// Each file that is not in the destination, or not as it was, because it cannot be read. The writer
    /// found `unreadable`; with the path of a directory, these are its extended attributes.
    pub(crate) fn losses(
        &self,
        inventory: &Inventory,
        unreadable: &[(Vec<u8>, Error)],
    ) -> Vec<Lost> {
        let mut lines: Vec<Lost> = Vec::new();
        let skipped: HashSet<&[u8]> = unreadable.iter().map(|(path, _)| &**path).collect();
        let losses = self.rescue.map(|rescue| rescue.losses(inventory));
        for (path, loss) in losses.into_iter().flatten() {
            // A file that is left out has no bad ranges, too.
            if !skipped.contains(&*path) {
                let is_empty = inventory
                    .find(&path)
                    .is_some_and(|dir| inventory.entries(inventory.file(dir)).len() == 0);
                let words = of_loss(&path, &loss, is_empty, self.source);
                lines.push(Lost { path, words });
            }
        }
        for (path, error) in unreadable {
            let file = inventory.find(path).map(|entry| inventory.file(entry));
            let is_dir = file.is_some_and(|file| inventory.kind(file) == FileKind::Directory);
            let reason = of_error(error);
            let name = self.source.path_name(path);
            let words = if is_dir {
                format!("{name}: extended attributes not copied, cannot be read: {reason}")
            } else {
                format!("{name}: skipped, cannot be read: {reason}")
            };
            lines.push(Lost {
                path: path.clone(),
                words,
            });
        }
        for path in self.source.changed() {
            let name = self.source.path_name(&path);
            let words = format!("{name}: changed while it was read");
            lines.push(Lost { path, words });
        }
        lines.sort();
        lines
    }
}

fn of_error(error: &Error) -> String {
    message::of_reason(&message::of_tree_error(error))
}

fn of_loss(path: &[u8], loss: &Loss, is_empty: bool, source: &SourceTree) -> String {
    let name = source.path_name(path);
    match loss {
        Loss::Names(error) if is_empty => {
            format!("{name}: left empty, cannot be read: {}", of_error(error))
        }
        Loss::Names(error) => {
            let reason = of_error(error);
            format!("{name}: some files skipped, cannot be listed: {reason}")
        }
        Loss::File(error) => format!("{name}: skipped, cannot be read: {}", of_error(error)),
        Loss::Xattrs(error) => {
            let reason = of_error(error);
            format!("{name}: extended attributes not copied, cannot be read: {reason}")
        }
        Loss::Content(ranges, error) => {
            let (ranges, reason) = (of_ranges(ranges), of_error(error));
            format!("{name}: zeros in place of bytes {ranges}, which cannot be read: {reason}")
        }
    }
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
