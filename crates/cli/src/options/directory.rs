//! How directories are written.

use clap::Args;
use tree::extract::{Conflict, Existing};

/// How directories are written.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Directories")]
pub(crate) struct DirectoryArgs {
    /// Put the tree into the existing directory DST
    ///
    /// Each file gets its name once all files are complete, and replaces a file of the same name.
    /// Directories that exist keep their other files, owner and mode. A file never replaces a
    /// directory, nor a directory a file or a symbolic link: such entries are listed and left out,
    /// and the exit code is 1. Symbolic links in DST are not followed.
    #[arg(long, conflicts_with_all = ["overwrite", "replace"])]
    pub(crate) merge: bool,

    /// With --merge, keep files that exist in DST
    #[arg(long, requires = "merge", conflicts_with = "keep_newer")]
    pub(crate) keep_existing: bool,

    /// With --merge, keep files in DST whose modification time is later than that in the source
    #[arg(long, requires = "merge")]
    pub(crate) keep_newer: bool,

    /// With --merge, put directories into the directories in DST that symbolic links of their names
    /// lead to, such as `lib` into `usr/lib`
    ///
    /// DST is the root of absolute links, and no link leads out of it.
    #[arg(long, requires = "merge")]
    pub(crate) keep_directory_symlink: bool,

    /// Delete the existing directory DST with everything in it, once the new one is complete
    ///
    /// Refused for the root, home directories, directories with a mount point at or below them, and
    /// directories that the working directory is in.
    #[arg(long, conflicts_with = "overwrite")]
    pub(crate) replace: bool,

    /// Do not restore owners: files belong to the current user
    #[arg(long)]
    pub(crate) no_owners: bool,

    /// Do not wait until data is on disk: faster, but a power failure soon afterwards may lose data
    #[arg(long)]
    pub(crate) no_sync: bool,
}

impl DirectoryArgs {
    /// Options for a destination that exists.
    pub(crate) fn existing(self, overwrite: bool) -> Existing {
        if self.merge {
            let conflict = if self.keep_existing {
                Conflict::KeepExisting
            } else if self.keep_newer {
                Conflict::KeepNewer
            } else {
                Conflict::Replace
            };
            return if self.keep_directory_symlink {
                Existing::MergeThroughLinks(conflict)
            } else {
                Existing::Merge(conflict)
            };
        }
        match (self.replace, overwrite) {
            (true, _) => Existing::ReplaceDirectory,
            (_, true) => Existing::ReplaceFile,
            _ => Existing::Refuse,
        }
    }
}
