//! What every destination needs: the tree to copy, its inventory, and the result.

use anyhow::{Result, bail};
use restow::SourceTree;
use tree::edit::{Edited, Patterns};
use tree::rescue::Rescue;
use tree::{FileSystem, Inventory, KeptCount, Limits, Parallel, Progress};

use super::args::Copy;
use super::names::Names;
use crate::bar::Bar;
use crate::message::tell;
use crate::text;

/// What is copied, and how.
pub(crate) struct Job<'a> {
    pub(crate) args: &'a Copy,
    pub(crate) source: &'a SourceTree,
    /// What is copied: the source's tree, edited or not, as a whole or without what cannot be read.
    pub(crate) tree: &'a dyn FileSystem,
    pub(crate) edited: Option<&'a Edited>,
    /// What leaves out of the tree what cannot be read, if that is wanted.
    pub(crate) rescue: Option<&'a Rescue<'a>>,
    pub(crate) parallel: Parallel,
}

/// A file that is not in the output, or not as it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lost {
    pub(crate) path: Vec<u8>,
    /// What is missing, and why.
    pub(crate) words: String,
}

/// The result of a copy.
pub(crate) struct Done {
    pub(crate) files: u64,
    /// Bytes of file contents.
    pub(crate) read: u64,
    /// Bytes of the output.
    pub(crate) written: u64,
    /// As many of these hold something, if the rest is free space.
    pub(crate) used: Option<u64>,
    /// Blocks or extents that were copied in compressed form.
    pub(crate) kept: KeptCount,
    /// Files and parts of files that are not in the output. All are printed.
    pub(crate) listed: Vec<Lost>,
    /// What could not be preserved of the others, a line each. If there are many, some are only counted.
    pub(crate) lost: Vec<String>,
    /// What else was done, a line each; no reason for another exit code.
    pub(crate) notes: Vec<String>,
}

impl Job<'_> {
    /// A verb and the destination, as context of an error.
    pub(crate) fn on_dst(&self, verb: &str) -> String {
        let dst = text::of_host_path(&self.args.dst, "standard output");
        format!("{verb} {dst}")
    }

    /// Names the patterns of `--exclude` that match nothing, and those that match only in the root although they are
    /// wildcards and would match elsewhere, too.
    fn warn_of_excluded(&self, edited: &Edited, inventory: &Inventory) {
        let unmatched: Vec<&[u8]> = edited.unmatched_exclude().collect();
        let in_root: Vec<&[u8]> = self.args.edits.excluded_in_root().collect();
        let anywhere = in_root.iter().map(|pattern| [b"**/", *pattern].concat());
        let anywhere: Vec<_> = anywhere.map(|pattern| Patterns::new([pattern])).collect();
        if !anywhere.is_empty() {
            for entry in inventory.names() {
                let path = inventory.path(entry);
                anywhere.iter().for_each(|it| _ = it.matches(&path));
            }
        }
        let elsewhere = |pattern: &[u8]| {
            let at = in_root.iter().position(|known| *known == pattern)?;
            let is_found = anywhere[at].unmatched().next().is_none();
            let pattern = text::of_name(pattern);
            is_found.then(|| format!("; `**/{pattern}` matches in all directories"))
        };
        for pattern in &unmatched {
            let hint = elsewhere(pattern).unwrap_or_default();
            let pattern = text::of_name(pattern);
            tell(&format!("nothing matches --exclude {pattern}{hint}"));
        }
        if self.args.quiet {
            return;
        }
        for pattern in &in_root {
            let is_wildcard = pattern.iter().any(|byte| b"*?[{".contains(byte));
            let hint = elsewhere(pattern).filter(|_| is_wildcard && !unmatched.contains(pattern));
            if let Some(hint) = hint {
                let pattern = text::of_name(pattern);
                tell(&format!(
                    "--exclude {pattern} applies to the root only{hint}"
                ));
            }
        }
    }

    /// Progress for a bar, with the list of files if that is wanted.
    pub(crate) fn names<'b>(&self, bar: &'b Bar, inventory: &'b Inventory<'b>) -> Names<'b> {
        Names::new(bar, inventory, self.args.verbose, &self.args.dst)
    }

    /// A progress bar. A list of files takes its place.
    pub(crate) fn bar(&self) -> Bar {
        Bar::new("copied", self.args.quiet || self.args.verbose)
    }

    /// The files of the tree.
    ///
    /// # Errors
    /// The tree cannot be read or exceeds a limit, or a selected path does not exist.
    pub(crate) fn inventory(&self, bar: &Bar) -> Result<Inventory<'_>> {
        let mut limits = Limits::default();
        if let Some(bytes) = self.args.max_content {
            limits.content_bytes_max = bytes;
        }
        let inventory = Inventory::of(self.tree, &limits);
        let inventory = inventory.map_err(|error| self.source.name_error(error))?;
        if let Some(edited) = self.edited {
            if let Some(path) = edited.unmatched_only().next() {
                bail!("{} does not exist", self.source.path_name(path));
            }
            self.warn_of_excluded(edited, &inventory);
        }
        bar.expect(
            Some(inventory.file_count().into()),
            Some(inventory.content_bytes()),
        );
        Ok(inventory)
    }
}
