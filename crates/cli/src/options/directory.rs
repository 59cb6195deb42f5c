//! How directories are written.

use clap::Args;

/// How directories are written.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Directories")]
pub(crate) struct DirectoryArgs {
    /// Do not restore owners: files belong to the current user
    #[arg(long)]
    pub(crate) no_owners: bool,

    /// Do not wait until data is on disk: faster, but a power failure soon afterwards may lose data
    #[arg(long)]
    pub(crate) no_sync: bool,
}
