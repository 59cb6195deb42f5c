//! The arguments of `restow copy`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};

use super::kind::Kind;
use crate::options::{
    BtrfsArgs, DirectoryArgs, EditArgs, ImageArgs, RescueArgs, SOURCE_HELP, SOURCE_LONG_HELP,
    SourceArgs, SquashfsArgs, StreamArgs, ThreadArgs, bytes,
};

/// Copy a file tree into another container
///
/// The format of SRC is detected from its content. The format of DST follows from its name: `.tar` and `-` are tar archives,
/// `.tar.gz` (`.tgz`), `.tar.xz` (`.txz`) and `.tar.zst` (`.tzst`) compressed ones;
/// `.squashfs`, `.sqfs`, `.sfs` and `.snap` are SquashFS images; `.btrfs` is a btrfs image; `.stream` and `.send` are btrfs send
/// streams; a name without an ending is a directory, and other endings are refused. `--to` overrides this. If DST is an existing directory, it must be empty, or `--merge` or `--replace` must say what becomes
/// of its contents. DST appears under its final name only when it is complete and on disk: an error or Ctrl-C leaves nothing
/// behind. Only a block device is written in place. After `kill -9` or a power failure, a name like `.DST.restow-PID-N.tmp` can be
/// left beside DST, or in it with `--merge`; the next copy to the same DST removes it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow copy src src.tar                        directory to tar
  restow copy src.tar dst                        tar to directory
  restow copy src src.tar.zst                    compressed tar that is read in place
  restow copy src - | ssh host 'tar xf - -C dst' tar to standard output
  curl -s URL | restow copy - dst                tar, compressed or not, from standard input
  restow copy --overwrite src backup.tar         replace an existing archive
  restow copy --merge src.tar dst                extract into a directory with files
  restow copy --compress zstd:19 src src.squashfs
                                                 directory to SquashFS
  restow copy --compress zstd:9 src src.btrfs    directory to btrfs
  restow copy src.btrfs:home home.squashfs       one subvolume
  restow copy src src.stream                     directory to btrfs send stream
  restow copy src.squashfs dst etc 'usr/*/bin'   selected files
  restow copy --with b=opt/b a both.tar          two directories, the second in opt/b
  restow copy --to file src.tar fstab.bak snapshot/etc/fstab
                                                 one file, with its mode and times
  restow copy --exclude '... *.o' --all-root src src.tar
                                                 without object files, owned by root

Environment:
  SOURCE_DATE_EPOCH  Seconds since 1970: no file in a SquashFS or btrfs image gets a later time

Exit codes: 0 success; 1 success, but something could not be preserved; 2 failure.")]
pub(crate) struct Copy {
    #[arg(help = SOURCE_HELP, long_help = SOURCE_LONG_HELP)]
    pub(crate) src: PathBuf,

    /// Where to write the tree; `-` is standard output
    pub(crate) dst: PathBuf,

    /// Copy only these files and directories: paths in SRC, or patterns as for --exclude [default: everything]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,

    /// Add the tree SRC2, in the directory PATH of DST; of files in both, the later one counts (repeatable)
    #[arg(
        long,
        value_name = "SRC2[=PATH]",
        help_heading = "Selecting and changing files"
    )]
    pub(crate) with: Vec<OsString>,

    /// Put SRC into the directory PATH of DST, which is made with those above it
    #[arg(
        long,
        value_name = "PATH",
        help_heading = "Selecting and changing files"
    )]
    pub(crate) root_becomes: Option<OsString>,

    /// Write DST in this format, whatever its name
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Option<Kind>,

    /// Replace the file DST if it exists, once the new one is complete
    ///
    /// A block device has no other name: it is written in place, and an error leaves it without a valid image. For
    /// directories, see --merge and --replace.
    #[arg(long)]
    pub(crate) overwrite: bool,

    #[command(flatten)]
    pub(crate) threads: ThreadArgs,

    /// Print only errors, and what could not be preserved
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// List files as they are copied: on standard output, or on standard error if DST is `-`
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,

    /// Print a JSON object on standard output with what was done and what could not be preserved, which docs/json.md describes
    #[arg(long, conflicts_with = "verbose")]
    pub(crate) json: bool,

    /// Fail if the source holds more than BYTES of file data (guards against decompression bombs)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) max_content: Option<u64>,

    #[command(flatten)]
    pub(crate) edits: EditArgs,

    #[command(flatten)]
    pub(crate) rescue: RescueArgs,

    #[command(flatten)]
    pub(crate) directory: DirectoryArgs,

    #[command(flatten)]
    pub(crate) image: ImageArgs,

    #[command(flatten)]
    pub(crate) squashfs: SquashfsArgs,

    #[command(flatten)]
    pub(crate) btrfs: BtrfsArgs,

    #[command(flatten)]
    pub(crate) stream: StreamArgs,

    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

/// The headings of options for some formats of the destination only, and these formats. Options without a heading, and
/// those of sources, apply to all.
const HEADINGS: [(&str, &[Kind]); 5] = [
    ("Directories", &[Kind::Dir, Kind::File]),
    ("SquashFS and btrfs images", &[Kind::Squashfs, Kind::Btrfs]),
    ("SquashFS images", &[Kind::Squashfs]),
    ("btrfs images", &[Kind::Btrfs]),
    ("btrfs send streams", &[Kind::Stream]),
];

/// Options of images that apply to send streams too.
const OF_STREAMS: [&str; 2] = ["compress", "uuid"];

/// Options for directories that do not apply to a single file.
const OF_DIRECTORIES: [&str; 6] = [
    "merge",
    "keep_existing",
    "keep_newer",
    "replace",
    "with",
    "root_becomes",
];

/// Refuses options on the command line that do not apply to the format of the destination.
///
/// # Errors
/// There is such an option; the error names it.
pub(crate) fn refuse_what_does_not_apply(typed: &ArgMatches, kind: Kind) -> Result<()> {
    for option in Copy::augment_args(clap::Command::new("copy")).get_arguments() {
        let id = option.get_id().as_str();
        if typed.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let known = HEADINGS
            .iter()
            .find(|(heading, _)| Some(*heading) == option.get_help_heading());
        if kind == Kind::File && OF_DIRECTORIES.contains(&id) {
            bail!(
                "--{} does not apply to a file",
                option.get_long().unwrap_or(id)
            );
        }
        let is_shared = kind == Kind::Stream && OF_STREAMS.contains(&id)
            || kind.wrapper().is_some() && id == "compress";
        if !is_shared && known.is_some_and(|(_, kinds)| !kinds.contains(&kind)) {
            let (name, noun) = (option.get_long().unwrap_or(id), kind.noun());
            let advice = if kind == Kind::Tar && id == "compress" {
                "; name it `.tar.zst`, `.tar.gz` or `.tar.xz`"
            } else {
                ""
            };
            bail!("--{name} does not apply to {noun}{advice}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_heading_says_what_its_options_apply_to() {
        let command = Copy::augment_args(clap::Command::new("copy"));
        let mut unused = HEADINGS.map(|(heading, _)| heading).to_vec();
        for option in command.get_arguments() {
            let heading = option.get_help_heading().unwrap_or(FOR_ALL[0]);
            unused.retain(|unused| *unused != heading);
            let known = HEADINGS.iter().any(|(known, _)| *known == heading);
            let of_source = heading.ends_with(" sources");
            assert!(
                known || of_source || FOR_ALL.contains(&heading),
                "{heading}"
            );
        }
        assert_eq!(unused, [""; 0]);
    }

    /// Headings of options that apply to every destination.
    const FOR_ALL: [&str; 2] = ["Options", "Selecting and changing files"];
}
