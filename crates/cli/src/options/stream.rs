//! How btrfs send streams are written.

use std::ffi::OsString;

use anyhow::{Result, bail};
use clap::Args;
use restow::Version;

/// How btrfs send streams are written.
#[derive(Debug, Args)]
#[command(next_help_heading = "btrfs send streams")]
pub(crate) struct StreamArgs {
    /// Set the name of the subvolume [default: the name of DST without its extension]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<OsString>,

    /// Write version N, 1 or 2; version 1 has no compressed data [default: 2]
    #[arg(long, value_name = "N", value_parser = version)]
    pub(crate) proto: Option<Version>,
}

fn version(words: &str) -> Result<Version> {
    match words {
        "1" => Ok(Version::V1),
        "2" => Ok(Version::V2),
        _ => bail!("must be 1 or 2"),
    }
}
