//! `restow stream`: works on btrfs send streams.

mod ahead;
mod convert;
mod dump;
mod info;
pub(crate) mod input;
mod undump;
mod verify;

use anyhow::Result;
use clap::{Args, Subcommand};

use convert::Convert;
use dump::Dump;
use info::Info;
use undump::Undump;
use verify::Verify;

pub(crate) use convert::settings;
pub(crate) use input::create;
pub(crate) use verify::{check, json_subvolume};

/// Verify, describe, print and convert btrfs send streams
///
/// Reads streams of `btrfs send`: versions 1 to 3, with plain or compressed data, and inputs with
/// several streams or subvolumes. Needs no btrfs and no root.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow stream verify home.stream
  restow stream info home.stream
  restow stream dump home.stream
  restow stream convert --compress zstd:15 home.stream home.zstd.stream

Exit codes: 0 success; 1 the stream is damaged (verify), or something was left out (convert); 2 failure.")]
pub(crate) struct Stream {
    #[command(subcommand)]
    command: StreamCommand,
}

#[derive(Debug, Subcommand)]
enum StreamCommand {
    Verify(Box<Verify>),
    Info(Info),
    Dump(Dump),
    Undump(Undump),
    Convert(Convert),
}

impl Stream {
    /// Whether the output is a stream.
    pub(crate) fn must_write_all(&self) -> bool {
        matches!(
            self.command,
            StreamCommand::Convert(_) | StreamCommand::Undump(_)
        )
    }
}

/// Returns whether the stream is whole, and all of it could be kept.
///
/// # Errors
/// The command's result.
pub(crate) fn run(args: &Stream) -> Result<bool> {
    match &args.command {
        StreamCommand::Verify(args) => verify::run(args),
        StreamCommand::Info(args) => info::run(args).map(|()| true),
        StreamCommand::Dump(args) => dump::run(args).map(|()| true),
        StreamCommand::Undump(args) => undump::run(args).map(|()| true),
        StreamCommand::Convert(args) => convert::run(args),
    }
}
