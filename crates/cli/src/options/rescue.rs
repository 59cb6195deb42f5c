//! Options for sources that cannot be read as a whole.

use clap::Args;

/// Options for damaged sources.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Damaged and changing sources")]
pub(crate) struct RescueArgs {
    /// Skip files that cannot be read, and list them
    #[arg(long)]
    pub(crate) skip_unreadable: bool,

    /// Like --skip-unreadable, but keep the readable parts of damaged files, with zeros in place of
    /// the rest, and list the byte ranges
    #[arg(long)]
    pub(crate) keep_damaged: bool,

    /// Accept files of a source directory that change while they are read, as they are when they
    /// are read, and list them
    ///
    /// Such a file keeps the size that it had at first: it is cut, or padded with zeros.
    #[arg(long)]
    pub(crate) accept_changed: bool,
}

impl RescueArgs {
    /// Whether files that cannot be read are left out.
    pub(crate) fn skips(self) -> bool {
        self.skip_unreadable || self.keep_damaged
    }
}
