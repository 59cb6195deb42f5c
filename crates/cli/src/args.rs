//! The command line as a whole: the commands, and the top of `--help`.

use clap::{Parser, Subcommand};

use crate::bar;
use crate::cat::Cat;
use crate::check::Check;
use crate::copy::Copy;
use crate::delta::Delta;
use crate::diff::Diff;
use crate::index::Index;
use crate::info::Info;
use crate::ls::Ls;
use crate::manifest::Manifest;
use crate::mount::Mount;
#[cfg(feature = "remote")]
use crate::options::RemoteArgs;
use crate::patch::Patch;
use crate::plan::Plan;
use crate::receive::Receive;
use crate::send::Send;
use crate::stream::Stream;
use crate::unmount::Unmount;
use crate::usage::Usage;

/// Copy, list, compare and check Linux file trees in directories, archives, images and send streams
///
/// restow reads and writes directories, tar archives, SquashFS images, btrfs images and btrfs send
/// streams. It detects the format of a source from its content; the format of a destination follows
/// from its name. It preserves permissions, owners, timestamps in nanoseconds, extended attributes,
/// hard links, holes, devices, and names with any bytes. Compressed data is copied as it is where
/// the destination can hold it.
#[derive(Debug, Parser)]
#[command(name = "restow", version, arg_required_else_help = true, after_help = EXIT_CODES)]
#[command(after_long_help = AFTER)]
pub(crate) struct Restow {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Do not show a progress bar
    #[arg(long, global = true)]
    pub(crate) no_progress: bool,

    /// Show progress on standard error in this form
    #[arg(
        long,
        global = true,
        value_name = "FORM",
        default_value = "bar",
        hide_default_value = true,
        conflicts_with = "no_progress"
    )]
    pub(crate) progress: bar::Form,

    #[cfg(feature = "remote")]
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 differences or damage found, or something could not be preserved; 2 failure; \
75 a network or a server failed, and trying again may help.";

const AFTER: &str = "\
Examples:
  restow copy photos photos.tar       create an archive
  restow copy photos.tar restored     extract it
  restow diff photos restored         compare two trees
  restow ls -lR photos.tar            list all files
  restow copy photos photos.btrfs     create an image that Linux can mount
  restow check photos.btrfs           verify an image
  restow usage photos.btrfs           show where its bytes are
  restow plan photos                  which codec and level to choose
  restow mount photos.tar /mnt        mount it, without unpacking
  restow delta v1.squashfs v2.squashfs update.patch
                                      the difference of two images
  restow stream verify home.stream    verify the output of `btrfs send`
  restow help copy                    show help for a command

Sizes: K, M and G (or KiB, MiB, GiB) are powers of 1024; kB, MB and GB are powers of 1000.

Exit codes:
  0  success
  1  differences (diff) or damage (check) found, or something could not be preserved (copy)
  2  failure, or an invalid command line
  75 a network or a server failed, and trying again may help
A closed pipe (as with `| head`) is not an error, except for commands that write an archive or stream.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Copy(Box<Copy>),
    Index(Index),
    Ls(Ls),
    Cat(Cat),
    Diff(Diff),
    Manifest(Manifest),
    Info(Info),
    Usage(Box<Usage>),
    Check(Check),
    Plan(Box<Plan>),
    Stream(Stream),
    Receive(Receive),
    Send(Send),
    Mount(Box<Mount>),
    Unmount(Unmount),
    Delta(Delta),
    Patch(Patch),
}

impl Command {
    /// Whether the output is a whole, such as an archive, of which a part is worth nothing.
    pub(crate) fn must_write_all(&self) -> bool {
        match self {
            Command::Copy(_) | Command::Send(_) => true,
            Command::Stream(args) => args.must_write_all(),
            Command::Ls(_)
            | Command::Cat(_)
            | Command::Index(_)
            | Command::Diff(_)
            | Command::Manifest(_)
            | Command::Info(_)
            | Command::Usage(_)
            | Command::Check(_)
            | Command::Plan(_)
            | Command::Receive(_)
            | Command::Mount(_)
            | Command::Unmount(_)
            | Command::Delta(_)
            | Command::Patch(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Restow::command().debug_assert();
    }
}
