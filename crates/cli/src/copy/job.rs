//! What every destination needs: the tree to copy, its inventory, and the result.

use anyhow::{Result, bail};
use tree::edit::Edited;
use tree::{FileSystem, Inventory, Kept, Limits, Parallel, Progress};

use super::args::Copy;
use super::readable::Readable;
use crate::bar::Bar;
use crate::message::tell;
use crate::source::Source;
use crate::text;

/// What is copied, and how.
pub(crate) struct Job<'a> {
    pub(crate) args: &'a Copy,
    pub(crate) source: &'a Source,
    /// What is copied: the source's tree, edited or not.
    pub(crate) tree: &'a dyn FileSystem,
    pub(crate) edited: Option<&'a Edited>,
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
    /// What could not be preserved, a line each.
    pub(crate) lost: Vec<String>,
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
        self.inventory_of(self.tree, bar)
    }

    /// The files of a tree that is made from this one.
    ///
    /// # Errors
    /// As for [`Job::inventory`].
    pub(crate) fn inventory_of(&self, tree: &dyn FileSystem, bar: &Bar) -> Result<Inventory> {
        let mut limits = Limits::default();
        if let Some(bytes) = self.args.max_content {
            limits.content_bytes_max = bytes;
        }
        let inventory = Inventory::of(tree, &limits);
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

    /// The tree that an image is made of: with `--skip-unreadable`, the one without unreadable directories.
    pub(crate) fn readable_tree<'a>(&'a self, readable: &'a Readable<'a>) -> &'a dyn FileSystem {
        if self.args.image.skip_unreadable {
            readable
        } else {
            self.tree
        }
    }
}
