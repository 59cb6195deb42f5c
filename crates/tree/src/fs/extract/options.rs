//! How a tree is written into a directory.

use crate::Parallel;

/// How to extract. By default, an existing target is refused, owners are restored, everything is
/// synced, and a file that cannot be read is an error.
#[derive(Clone, Copy, Debug)]
pub struct ExtractOptions {
    /// What to do with an existing target. A missing target or an empty directory is always filled.
    pub existing: Existing,
    /// Where trees are merged, give existing directories, the target included, the owner, mode,
    /// attributes and times that they have in the tree.
    pub update_dirs: bool,
    /// Set the owners and groups of files, if this process may.
    pub owners: bool,
    /// Sync everything to the medium before the target gets its name, so that even a power cut
    /// never shows an incomplete target.
    pub sync: bool,
    /// Leave out files that cannot be read, and list them.
    pub skip_unreadable: bool,
    /// Number of threads that write.
    pub parallel: Parallel,
}

impl Default for ExtractOptions {
    fn default() -> ExtractOptions {
        ExtractOptions {
            existing: Existing::Refuse,
            update_dirs: false,
            owners: true,
            sync: true,
            skip_unreadable: false,
            parallel: Parallel::available(),
        }
    }
}

/// What to do with a target that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is an error.
    Refuse,
    /// A file is replaced; a directory is an error.
    ReplaceFile,
    /// A directory is replaced once the new one is complete, and deleted with everything in it; a
    /// file is an error. The root, a directory with a mount point at or below it, and one that the
    /// working directory is in are refused.
    ReplaceDirectory,
    /// The tree is put into the directory; a file is an error.
    ///
    /// Each file gets its name when all files are complete, and replaces a file of the same name,
    /// but never a directory. Directories that exist keep their other files; unless
    /// [`ExtractOptions::update_dirs`] is set, also owner, mode and attributes, and so does the
    /// target itself; the system gives those that change a new modification time.
    Merge(Conflict),
    /// As [`Existing::Merge`], but a symbolic link in the directory that leads to another one in it
    /// counts as that directory where the tree has a directory. The directory is the root of
    /// absolute links, and no link leads out of it.
    MergeThroughLinks(Conflict),
}

/// Which of two files of the same name a merged directory has. Links, devices, fifos and sockets
/// are files here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The tree's.
    Replace,
    /// The existing one.
    KeepExisting,
    /// The one with the later modification time; if they are equal, the tree's.
    KeepNewer,
}
