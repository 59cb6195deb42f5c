//! What every destination needs: the tree to copy, its inventory, and the result.

use anyhow::{Result, bail};
use tree::edit::Edited;
use tree::rescue::Rescue;
use tree::{FileSystem, Inventory, Kept, Limits, Parallel, Progress};

use super::args::Copy;
use crate::bar::Bar;
use crate::message::tell;
use crate::source::Source;
use crate::text;

/// What is copied, and how.
pub(crate) struct Job<'a> {
    pub(crate) args: &'a Copy,
    pub(crate) source: &'a Source,
    /// What is copied: the source's tree, edited or not, as a whole or without what cannot be read.
    pub(crate) tree: &'a dyn FileSystem,
    pub(crate) edited: Option<&'a Edited>,
    /// What leaves out of the tree what cannot be read, if that is wanted.
    pub(crate) rescue: Option<&'a Rescue<'a>>,
    pub(crate) parallel: Parallel,
}

/// The result of a copy.
pub(crate) struct Done {
    pub(crate) files: u64,
    /// Bytes of file contents.
    pub(crate) read: u64,
    /// Bytes of the output.
    pub(crate) written: u64,
    /// Blocks or extents that were copied in compressed form.
    pub(crate) kept: Kept,
    /// Files and parts of files that are not in the output, a line each. All are printed.
    pub(crate) listed: Vec<String>,
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

    /// The files of the tree.
    ///
    /// # Errors
    /// The tree cannot be read or exceeds a limit, or a selected path does not exist.
    pub(crate) fn inventory(&self, bar: &Bar) -> Result<Inventory> {
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
            for pattern in edited.unmatched_exclude() {
                let pattern = text::of_name(pattern);
                tell(&format!("nothing matches --exclude {pattern}"));
            }
        }
        bar.expect(
            Some(inventory.file_count().into()),
            Some(inventory.content_bytes()),
        );
        Ok(inventory)
    }
}
