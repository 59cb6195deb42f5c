//! What can be typed, and what `--help` says about it.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::btrfs_create::BtrfsArgs;
use crate::edits::EditArgs;
use crate::squash::SquashfsArgs;

/// Move Linux file trees between the containers that hold them
///
/// restow copies, lists, compares and describes file trees, whatever holds them: a directory, a tar archive, a SquashFS or
/// a btrfs image. What a source is, is recognised from its bytes; what a destination becomes follows from its name. Kept
/// are permissions, owners, times in nanoseconds, extended attributes, hard links, holes, devices, and names of any bytes.
#[derive(Debug, Parser)]
#[command(name = "restow", version, arg_required_else_help = true, after_help = EXIT_CODES)]
#[command(after_long_help = AFTER)]
pub(crate) struct Restow {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 differences or damage found or something could not be kept, 2 could not do it.";

const AFTER: &str = "\
Examples:
  restow copy photos photos.tar       pack a directory
  restow copy photos.tar restored     unpack it
  restow diff photos restored         compare the two
  restow ls -lR photos.tar            see what is in it
  restow copy photos photos.btrfs     make an image that Linux mounts
  restow check photos.btrfs           see that nothing is wrong with it
  restow help copy                    more about a command

Exit codes:
  0  done
  1  differences (diff) or damage (check) were found, or something could not be kept (copy)
  2  could not do it, or did not understand the command line
A reader of standard output that closes its pipe early, such as `head`, is no error, but for copy.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Copy(Box<Copy>),
    Ls(Ls),
    Cat(Cat),
    Diff(Diff),
    Manifest(Manifest),
    Info(Info),
    Check(Check),
}

/// Copy a tree into another container
///
/// What SRC is, is recognised from its bytes. What DST becomes follows from its name: a tar archive when it ends with
/// `.tar` or is `-`, a SquashFS image when it ends with `.squashfs`, `.sqfs`, `.sfs` or `.snap`, a btrfs image when it ends
/// with `.btrfs`, otherwise a directory; `--to` says it instead. A directory that is there must be empty. The result
/// appears under its final name when it is whole and on the medium, and not before: an error or Ctrl-C leaves nothing behind.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow copy src src.tar                        directory to tar
  restow copy src.tar dst                        tar to directory
  restow copy src - | ssh host 'tar xf - -C dst' tar to standard output
  curl -s URL | restow copy - dst                tar, also compressed, from standard input
  restow copy --overwrite src backup.tar         replace an earlier result
  restow copy --compress zstd:19 src src.squashfs
                                                 directory to SquashFS
  restow copy --compress zstd:9 src src.btrfs    directory to btrfs
  restow copy src.squashfs dst etc 'usr/*/bin'   only some of it
  restow copy --exclude '... *.o' --all-root src src.tar
                                                 without object files, all of them root's

Exit codes: 0 done; 1 done, but something could not be kept, as the messages say; 2 not done.")]
pub(crate) struct Copy {
    /// The tree to copy: a directory, a tar archive, a SquashFS or a btrfs image; `-` is standard input
    pub(crate) src: PathBuf,

    /// Where to; `-` is standard output
    pub(crate) dst: PathBuf,

    /// Only these, with all that is in them: paths in SRC, or patterns as for --exclude [default: everything]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,

    /// What DST becomes, whatever its name says
    #[arg(long, value_name = "KIND")]
    pub(crate) to: Option<Kind>,

    /// Replace what is at DST, once the new result is whole
    #[arg(long)]
    pub(crate) overwrite: bool,

    #[command(flatten)]
    pub(crate) threads: Threads,

    /// Say nothing but errors and what could not be kept
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Refuse a source whose files have more content than that, before anything is written: a small image can hold a lot
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) max_content: Option<u64>,

    #[command(flatten)]
    pub(crate) edits: EditArgs,

    #[command(flatten)]
    pub(crate) directory: DirectoryArgs,

    #[command(flatten)]
    pub(crate) image: ImageArgs,

    #[command(flatten)]
    pub(crate) squashfs: SquashfsArgs,

    #[command(flatten)]
    pub(crate) btrfs: BtrfsArgs,

    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

/// The headings of options that only some destinations know, and those destinations. An option under another one of them
/// is refused; options without a heading, and those of sources, are for all.
const HEADINGS: [(&str, &[Kind]); 4] = [
    ("Directories", &[Kind::Dir]),
    ("SquashFS and btrfs images", &[Kind::Squashfs, Kind::Btrfs]),
    ("SquashFS images", &[Kind::Squashfs]),
    ("btrfs images", &[Kind::Btrfs]),
];

/// Refuses options that were typed and do not apply to what the destination becomes.
///
/// # Errors
/// There is one; it is named.
pub(crate) fn refuse_what_does_not_apply(typed: &ArgMatches, kind: Kind) -> Result<()> {
    let command = Restow::command();
    let copy = command.find_subcommand("copy");
    for option in copy.into_iter().flat_map(clap::Command::get_arguments) {
        let id = option.get_id().as_str();
        if typed.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let known = HEADINGS
            .iter()
            .find(|(heading, _)| Some(*heading) == option.get_help_heading());
        if known.is_some_and(|(_, kinds)| !kinds.contains(&kind)) {
            let (name, noun) = (option.get_long().unwrap_or(id), kind.noun());
            bail!("--{name} does not apply to {noun}");
        }
    }
    Ok(())
}

/// How a directory is made.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Directories")]
pub(crate) struct DirectoryArgs {
    /// Let the files belong to whoever runs this, not to the owners that SRC states
    #[arg(long)]
    pub(crate) no_owners: bool,

    /// Give the directory its name before all of it is on the medium: faster, but a power cut soon after may damage it
    #[arg(long)]
    pub(crate) no_sync: bool,
}

/// How any image is made.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "SquashFS and btrfs images")]
pub(crate) struct ImageArgs {
    /// What data is encoded with: a codec, and its settings behind colons
    ///
    /// For SquashFS: `zstd:1` to 22 [default: `zstd:15`], `gzip:1` to 12, xz, lz4, `lz4:hc`, lzo or none. xz takes a level, `e` and
    /// filters, as in `xz:9:e:x86`, each of which is tried on every block; `xz:code` takes for machine code the filter of its
    /// processor, which Linux reads if it was built with it. `lz4:hc` takes a level from 2 to 12.
    ///
    /// For btrfs: `zstd:-15` to 15 [default: `zstd:3`], `zlib:1` to 9, lzo or none.
    #[arg(long, value_name = "CODEC")]
    pub(crate) compress: Option<String>,

    /// Encode all anew: blocks and extents that the destination could hold as they are stored
    #[arg(long)]
    pub(crate) recompress: bool,

    /// Store equal files once for each
    #[arg(long)]
    pub(crate) no_duplicates: bool,

    /// Leave out files that cannot be read, and list them
    #[arg(long)]
    pub(crate) skip_unreadable: bool,

    /// Do not decode again what was encoded to see that it is the same
    #[arg(long)]
    pub(crate) no_verify: bool,
}

/// What of a source is meant.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SourceArgs {
    /// Of a btrfs image, the subvolume of that number or path [default: the one that is mounted
    /// by default; for a copy to a btrfs image, all]
    #[arg(long, value_name = "PATH|ID", help_heading = "btrfs sources")]
    pub(crate) subvolume: Option<OsString>,

    /// The image of another device of the same btrfs file system; may be given several times
    #[arg(long, value_name = "IMG", help_heading = "btrfs sources")]
    pub(crate) device: Vec<PathBuf>,

    /// Where in the file a SquashFS image begins, in bytes, or `search` for the first place that holds one [default: at its
    /// beginning, or behind a program as in an AppImage]
    #[arg(long, value_name = "BYTES|search", help_heading = "SquashFS sources")]
    pub(crate) image_at: Option<ImageAt>,
}

/// Where in a file a SquashFS image begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageAt {
    /// At this byte.
    Byte(u64),
    /// At the first place that holds one.
    Search,
}

impl std::str::FromStr for ImageAt {
    type Err = std::num::ParseIntError;

    fn from_str(words: &str) -> Result<Self, Self::Err> {
        match words {
            "search" => Ok(ImageAt::Search),
            bytes => bytes.parse().map(ImageAt::Byte),
        }
    }
}

/// Check an image
///
/// Reads all of it, decodes all data, and compares what it says twice. Nothing is changed.
///
/// Of a btrfs image: references to blocks and extents with the extent tree, names with those that inodes have, space with what takes
/// it, and all data, of every copy, with its checksums. Of a SquashFS image, which has no checksums: names with inodes, inode
/// numbers with the export table, blocks with each other and with what files say of them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow check image.squashfs
  restow check image.btrfs
  restow check --no-data image.btrfs     only the trees
  restow check --device b.img a.img      a file system on two devices

Exit codes: 0 nothing is wrong, 1 something is, 2 could not check.")]
pub(crate) struct Check {
    /// The image
    pub(crate) file: PathBuf,

    /// Do not read what files hold
    #[arg(long)]
    pub(crate) no_data: bool,

    /// The image of another device of the same file system; may be given several times
    #[arg(long, value_name = "IMG")]
    pub(crate) device: Vec<PathBuf>,

    /// Where in the file a SquashFS image begins, in bytes, or `search`
    #[arg(long, value_name = "BYTES|search", help_heading = "SquashFS sources")]
    pub(crate) image_at: Option<ImageAt>,

    #[command(flatten)]
    pub(crate) threads: Threads,
}

/// Say what an image says of itself
///
/// Codec and settings, sizes, counts, and where its parts lie. Of a btrfs image also its subvolumes, and what its files take, by
/// algorithm.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow info image.squashfs
  restow info image.btrfs

Exit codes: 0 done, 2 not done.")]
pub(crate) struct Info {
    /// The image
    pub(crate) file: PathBuf,

    /// Of a btrfs image, say only what this file or directory takes, with all that is below it
    #[arg(long, value_name = "PATH", help_heading = "btrfs sources")]
    pub(crate) path: Option<OsString>,

    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

impl Kind {
    /// What one is called.
    fn noun(self) -> &'static str {
        match self {
            Kind::Dir => "a directory",
            Kind::Tar => "a tar archive",
            Kind::Squashfs => "a SquashFS image",
            Kind::Btrfs => "a btrfs image",
            Kind::Stream => "a btrfs send stream",
        }
    }
}

/// A container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A directory
    Dir,
    /// A tar archive (PAX)
    Tar,
    /// A SquashFS image
    Squashfs,
    /// A btrfs image
    Btrfs,
    /// A btrfs send stream (not yet)
    Stream,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Threads {
    /// How many threads work; the result does not depend on it [default: one per processor]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

/// List the files in a tree
///
/// Without options, the names in a directory, one per line. Control characters and bytes that are not UTF-8 are shown as
/// `\xNN` unless `-0` is given.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow ls src.tar               names in the root
  restow ls -l src.tar usr/bin    with modes, owners, sizes, times
  restow ls -R0 src.tar | xargs -0 -n1 echo
                                  all paths, for a program to read")]
pub(crate) struct Ls {
    /// The tree: a directory, a tar archive or an image; `-` is standard input
    pub(crate) src: PathBuf,

    /// A path in it [default: the root]
    pub(crate) path: Option<PathBuf>,

    /// Show mode, names, owner, size or device, time (UTC), and link target
    #[arg(short, long)]
    pub(crate) long: bool,

    /// Show the whole tree below PATH, as paths
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    /// Show a directory itself, not what is in it
    #[arg(short, long)]
    pub(crate) directory: bool,

    /// End each line with a NUL instead of a newline, and show names as they are
    #[arg(short = '0', long)]
    pub(crate) null: bool,

    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

/// Write the content of files in a tree to standard output
///
/// Symbolic links are followed within the tree; a target that begins with `/` is taken from the tree's root.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow cat src.tar etc/os-release
  tar c src | restow cat - src/a src/b > both")]
pub(crate) struct Cat {
    /// The tree: a directory, a tar archive or an image; `-` is standard input
    pub(crate) src: PathBuf,

    /// Paths of files in it
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

/// Compare two trees
///
/// Tells each difference on a line: what is in one tree only, and for what is in both kind, mode, owner, time, size,
/// first differing byte of the content, link target, device number, extended attributes, and which names are hard links
/// of one file.
///
/// Times are compared in nanoseconds, but in seconds where one of the trees holds no finer ones: a SquashFS image, or a
/// tar archive without records of them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow diff src src.tar
  restow diff --ignore mtime,owner old.tar new.tar
  restow diff -q a b && echo same

Exit codes: 0 no differences, 1 differences, 2 could not compare.")]
pub(crate) struct Diff {
    /// One tree: a directory, a tar archive or an image; `-` is standard input
    #[arg(value_name = "A")]
    pub(crate) first: PathBuf,

    /// The other
    #[arg(value_name = "B")]
    pub(crate) second: PathBuf,

    /// What not to compare
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) ignore: Vec<Aspect>,

    /// Compare where holes are, too
    #[arg(long)]
    pub(crate) holes: bool,

    /// Only the exit code; end at the first difference
    #[arg(short, long)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) threads: Threads,

    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

/// What a comparison or a manifest may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Aspect {
    /// Bytes of files
    Content,
    /// Permissions
    Mode,
    /// User and group
    Owner,
    /// Time of the last change of content
    Mtime,
    /// Extended attributes
    Xattrs,
    /// Which names are of one file
    Links,
}

/// What is left when `ignore` is left out.
pub(crate) fn aspects(ignore: &[Aspect], holes: bool) -> tree::Aspects {
    let keep = |aspect| !ignore.contains(&aspect);
    tree::Aspects {
        content: keep(Aspect::Content),
        permissions: keep(Aspect::Mode),
        owner: keep(Aspect::Owner),
        mtime: keep(Aspect::Mtime),
        xattrs: keep(Aspect::Xattrs),
        hard_links: keep(Aspect::Links),
        holes,
    }
}

/// Describe a tree in text, one line per file
///
/// The text is an mtree(5) specification in one canonical form: equal trees give equal text, whatever holds them. Each
/// line has path, kind, mode, owner, size, time, extended attributes, the first name of a hard link, and the SHA-256 of
/// the content.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow manifest src.tar > src.mtree
  restow manifest --ignore mtime,owner src | sha256sum
  diff <(restow manifest old) <(restow manifest new)")]
pub(crate) struct Manifest {
    /// The tree: a directory, a tar archive or an image; `-` is standard input
    pub(crate) src: PathBuf,

    /// What not to say
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) ignore: Vec<Aspect>,

    /// Say where files with holes have data, too
    #[arg(long)]
    pub(crate) holes: bool,

    #[command(flatten)]
    pub(crate) threads: Threads,

    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

/// A number of bytes, with K, M, G or T for powers of 1024.
pub(crate) fn bytes(words: &str) -> Result<u64> {
    let digits = words.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match words[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => bail!("it is a number of bytes, with K, M, G or T behind it"),
    };
    let number: u64 = digits.parse().context("it is a number of bytes")?;
    number
        .checked_mul(1 << shift)
        .context("so many bytes there are not")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Restow::command().debug_assert();
    }

    #[test]
    fn every_heading_says_what_its_options_apply_to() {
        let command = Restow::command();
        let copy = command.find_subcommand("copy").unwrap();
        let mut unused = HEADINGS.map(|(heading, _)| heading).to_vec();
        for option in copy.get_arguments() {
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
    const FOR_ALL: [&str; 2] = ["Options", "What becomes of files"];
}
