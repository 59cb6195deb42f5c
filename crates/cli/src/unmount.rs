//! `restow unmount`: unmounts a tree.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::mount;
use crate::options::QuietArgs;
use crate::text;

/// Unmount a tree
///
/// Works for every mount that the user may unmount: as root like `umount`, otherwise like
/// `fusermount3 -u`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow unmount /mnt
  restow unmount --lazy /mnt")]
pub(crate) struct Unmount {
    /// The mount point
    mountpoint: PathBuf,

    /// Detach now, even if busy
    #[arg(short, long)]
    lazy: bool,

    #[command(flatten)]
    _quiet: QuietArgs,
}

/// Unmounts it.
///
/// # Errors
/// Nothing is mounted there, or it is in use.
pub(crate) fn run(args: &Unmount) -> Result<()> {
    let point = &args.mountpoint;
    mount::unmount(point, args.lazy)
        .with_context(|| format!("unmount {}", text::of_host_path(point, "-")))
}
