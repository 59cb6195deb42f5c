//! `restow unmount`: unmounts a tree.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::mount;
use crate::text;

/// Unmount a tree
///
/// Works for everything that the user may unmount: as root like `umount`, otherwise like `fusermount3 -u`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow unmount /mnt
  restow unmount --lazy /mnt")]
pub(crate) struct Unmount {
    /// Where it is mounted
    mountpoint: PathBuf,

    /// Take it out of the tree at once, even if it is in use
    #[arg(short, long)]
    lazy: bool,
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
