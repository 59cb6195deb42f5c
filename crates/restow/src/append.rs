//! Files added to a SquashFS image, as mksquashfs appends them.

use std::collections::HashSet;
use std::sync::Arc;

use squashfs::{Options, Squashfs};
use tree::edit::{Edited, RenamedEntry};
use tree::{Graft, Joined, is_valid_name};

use crate::error::{During, refuse};
use crate::{CopyOptions, Format, Result, SourceTree, text};

impl SourceTree {
    /// A view of this source with another tree in its root, which becomes that of the other tree.
    /// An entry whose name is taken gets another one, such as `name_1`, even if both are
    /// directories. With `root_becomes`, all of this source goes into a directory with that name.
    ///
    /// # Errors
    /// The name is invalid, or a root cannot be read.
    pub fn append(
        self,
        mut added: Edited,
        root_becomes: Option<&[u8]>,
    ) -> Result<(SourceTree, Vec<RenamedEntry>)> {
        let taken = match root_becomes {
            Some(name) if !is_valid_name(name) => {
                refuse!("{} is not a name in the root", text::of_name(name))
            }
            Some(name) => HashSet::from([name.into()]),
            None => {
                let entries = self.tree().read_dir(self.tree().root());
                let entries = entries.map_err(|error| self.name_error(error))?;
                entries.into_iter().map(|entry| entry.name).collect()
            }
        };
        let renamed = added.rename_in_root(&taken);
        let renamed = renamed.during(|| "read the files to append".to_owned())?;
        let at = root_becomes.map(Box::from).into_iter().collect();
        let joined = Joined::new(vec![
            Graft::at(at, Arc::clone(self.tree())),
            Graft::at(Vec::new(), Arc::new(added)),
        ])?;
        Ok((self.joined(Arc::new(joined), Vec::new()), renamed))
    }
}

impl CopyOptions {
    /// The same options for a SquashFS image that takes the place of this one: with its
    /// compression, block size, fragments, duplicates and export table.
    ///
    /// # Errors
    /// The image is compressed with lzma, which is only read.
    pub fn like(mut self, image: &Squashfs) -> Result<CopyOptions> {
        self.squashfs = Options::like(image)?.padding(self.squashfs.padding);
        self.duplicates = self.squashfs.duplicates;
        Ok(self.format(Some(Format::Squashfs)).overwrite(true))
    }
}
