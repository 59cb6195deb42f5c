//! `mksquashfs` and `sqfstar` of squashfs-tools 4.7.5: SquashFS images of files on this machine,
//! and of a tar archive on standard input.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use codec::Settings;
use restow::{Address, CopyOptions, Format, Fragments, SourceTree, squashfs_flags};
use tree::edit::{
    Action, Added, Addition, AdditionRules, Edited, Edits, ModeChange, PatternSyntax, Patterns,
    Priorities, RootEdits,
};
use tree::{FileKind, Parallel, Time};

use super::image_lines::{self, FileCounts};
use super::options::{Effect, OptionRow, Style, parse};
use super::sources::{self, Gathered, SourceRules};
use super::write::{Shown, id_offset, write_after};
use crate::message::tell;
use crate::options::{bytes, epoch, group, open_options, squashfs_settings, user};
use crate::text;

/// The contents of the command line.
#[derive(Default)]
pub(super) struct ImageRequest {
    codec: Option<String>,
    /// The settings of the codec: names and values of options.
    codec_options: Vec<(&'static str, String)>,
    plain: u16,
    block_bytes: Option<u32>,
    fragments: Option<Fragments>,
    sources: SourceRules,
    excluded: Vec<OsString>,
    /// The syntax of excluded files; they are paths without one.
    syntax: Option<PatternSyntax>,
    sort: Option<PathBuf>,
    append: bool,
    /// The image to which files are appended, and the directory in which its files go.
    old: Option<SourceTree>,
    root_becomes: Option<OsString>,
    offset: u64,
    mkfs_time: Option<u32>,
    uid_gid_offset: u32,
    shown: Option<Shown>,
    is_quiet: bool,
    root_mode: Option<String>,
    edits: Edits,
    options: CopyOptions,
}

/// The value of an option as text.
fn words(value: &OsStr) -> Result<&str> {
    value.to_str().context("is not UTF-8")
}

/// A size as squashfs-tools take it: `128K`, `1M`, `1Mbytes`, `1MB`, where M is 1024 * 1024.
fn size(value: &OsStr) -> Result<u64> {
    let words = words(value)?;
    let words = words.strip_suffix("bytes").unwrap_or(words);
    bytes(words.strip_suffix('B').unwrap_or(words))
}

/// A point in time: seconds since 1970, or a date in words, which the program `date` understands.
pub(super) fn time(value: &OsStr) -> Result<u32> {
    let given = words(value)?;
    if given.bytes().all(|byte| byte.is_ascii_digit()) {
        return given.parse().context("is too late");
    }
    let date = Command::new("date").args(["-d", given, "+%s"]).output();
    let date = date.context("run date")?;
    let seconds = String::from_utf8_lossy(&date.stdout).trim().to_owned();
    let seconds: i64 =
        (seconds.parse().ok().filter(|_| date.status.success())).with_context(|| {
            format!(
                "date does not understand {}",
                text::of_name(value.as_bytes())
            )
        })?;
    u32::try_from(seconds).context("is not from 1970 to 2106")
}

/// A time that all files get, or the root.
fn file_time(value: &OsStr) -> Result<Option<Time>> {
    if value == "inode" {
        bail!("`inode` is not supported but for -mkfs-time");
    }
    let seconds = time(value)?.into();
    Ok(Some(Time {
        seconds,
        nanoseconds: 0,
    }))
}

fn mkfs_time(request: &mut ImageRequest, value: &OsStr) -> Result<()> {
    // The newest file's time is the default.
    request.mkfs_time = (value != "inode").then(|| time(value)).transpose()?;
    Ok(())
}

fn all_time(request: &mut ImageRequest, value: &OsStr) -> Result<()> {
    request.edits.time = file_time(value)?;
    Ok(())
}

fn mode(value: &OsStr) -> Result<Option<ModeChange>> {
    Ok(Some(ModeChange::parse(words(value)?)?))
}

/// A time in a pseudo definition.
fn pseudo_time(words: &str) -> Option<i64> {
    time(OsStr::new(words)).ok().map(i64::from)
}

fn add(request: &mut ImageRequest, list: impl BufRead) -> Result<()> {
    let list = Addition::read_list(list, &pseudo_time, &open_options().spool_dir)?;
    request.edits.additions.extend(list);
    Ok(())
}

/// The directories above pseudo files that do not exist.
fn parents(request: &mut ImageRequest, value: &OsStr) -> Result<()> {
    let definition = [b"/ ", value.as_bytes()].concat();
    match Addition::parse_list(&definition, &pseudo_time)?
        .pop()
        .map(|it| it.what)
    {
        Some(Added::File {
            kind: FileKind::Directory,
            stats,
            ..
        }) => {
            request.edits.rules.parents = Some(stats);
        }
        _ => bail!("is not the definition of a directory"),
    }
    Ok(())
}

/// An extended attribute for all files.
fn add_xattr(request: &mut ImageRequest, value: &OsStr) -> Result<()> {
    let definition = [b"/ x ", value.as_bytes()].concat();
    for addition in Addition::parse_list(&definition, &pseudo_time)? {
        if let Added::Xattr(xattr) = addition.what {
            request.edits.xattrs_added.push(xattr);
        }
    }
    Ok(())
}

fn action(request: &mut ImageRequest, value: &OsStr) -> Result<()> {
    let action = Action::parse(value.as_bytes());
    request.edits.actions.push(action.context(UNKNOWN_ACTION)?);
    Ok(())
}

fn action_file(request: &mut ImageRequest, value: &OsStr) -> Result<()> {
    let actions = Action::parse_list(&fs::read(value)?);
    request
        .edits
        .actions
        .extend(actions.context(UNKNOWN_ACTION)?);
    Ok(())
}

const UNKNOWN_ACTION: &str = "the action is wrong or not supported";
const ACTIONS: &str = "without `move`; without the tests file, inode, size, tailsize, dirsize, blocks, fileblocks and dirblocks; those of data not when appending; files of pseudo definitions stay as they are";
const NO_LOG: &str = "as `-action`, without the log";

type Row = OptionRow<ImageRequest>;

const BOUNDED: &str = "memory is bounded without it";
const MODE: &str = "without `u`, `g` and `o` as permissions";
const WHOLE: &str = "an image is replaced whole, when the new one is complete";
const HELP: &str = "`-help` lists all options";

/// An option with a value of the codec.
macro_rules! codec_row {
    ($name:literal, $value:literal) => {
        Row::with(&[$name], $value, |request, value| {
            request
                .codec_options
                .push(($name, words(value)?.to_owned()));
            Ok(())
        })
    };
}

/// The options of `mksquashfs`, and of `sqfstar` but for [`NOT_IN_SQFSTAR`].
#[rustfmt::skip] // A row for each option.
pub(super) const ROWS: &[Row] = &[
    // Compression.
    Row::with(&["-b"], "SIZE", |request, value| {
        request.block_bytes = Some(u32::try_from(size(value)?).context("is too large")?);
        Ok(())
    }),
    Row::with(&["-comp"], "NAME", |request, value| {
        request.codec = Some(words(value)?.to_owned());
        Ok(())
    }).noted("without lzma, which Linux does not read"),
    Row::flag(&["-noI", "-noInodeCompression"], |request| {
        request.plain |= squashfs_flags::INODES_PLAIN | squashfs_flags::IDS_PLAIN;
    }),
    Row::flag(&["-noId", "-noIdTableCompression"], |it| it.plain |= squashfs_flags::IDS_PLAIN),
    Row::flag(&["-noD", "-noDataCompression"], |it| it.plain |= squashfs_flags::DATA_PLAIN),
    Row::flag(&["-noF", "-noFragmentCompression"], |request| {
        request.plain |= squashfs_flags::FRAGMENTS_PLAIN;
    }),
    Row::flag(&["-noX", "-noXattrCompression"], |it| it.plain |= squashfs_flags::XATTRS_PLAIN),
    Row::flag(&["-no-compression"], |request| {
        use squashfs_flags::{DATA_PLAIN, FRAGMENTS_PLAIN, IDS_PLAIN, INODES_PLAIN, XATTRS_PLAIN};
        request.plain = INODES_PLAIN | IDS_PLAIN | DATA_PLAIN | FRAGMENTS_PLAIN | XATTRS_PLAIN;
    }),
    codec_row!("-Xcompression-level", "LEVEL")
        .noted("of gzip, lzo and zstd; without negative levels of zstd"),
    Row::flag(&["-Xhc"], |request| request.codec_options.push(("-Xhc", String::new()))),
    codec_row!("-Xbcj", "FILTERS"),
    codec_row!("-Xdict-size", "SIZE"),
    codec_row!("-Xalgorithm", "NAME").noted("lzo1x_1_11 to lzo1x_1_15 are lzo1x_1"),
    Row::accepted(&["-Xwindow-size"], "SIZE", "Linux has the window of 32 KiB for every image"),
    Row::accepted(&["-Xstrategy"], "NAMES", "gzip has one strategy: only sizes differ"),
    // Building.
    Row::flag(&["-tar"], |request| request.sources.is_tar = true)
        .noted("also of a compressed archive"),
    Row::flag(&["-no-strip", "-tarstyle"], |request| request.sources.keeps_paths = true)
        .noted("all sources are below the working directory, or all have absolute paths"),
    Row::flag(&["-cpiostyle"], |request| request.sources.list_end = Some(b'\n'))
        .noted("as `-no-strip`"),
    Row::flag(&["-cpiostyle0"], |request| request.sources.list_end = Some(0))
        .noted("as `-no-strip`"),
    Row::flag(&["-no-exports"], |request| request.options.squashfs.exportable = false),
    Row::flag(&["-exports"], |request| request.sources.exports = true),
    Row::accepted(&["-no-sparse"], "", "content is the same; zeros are stored as holes"),
    Row::flag(&["-no-tailends"], |it| it.fragments = Some(Fragments::SmallFiles)),
    Row::flag(&["-tailends", "-always-use-fragments"], |request| {
        request.fragments = Some(Fragments::Always);
    }),
    Row::flag(&["-no-fragments"], |request| request.fragments = Some(Fragments::None)),
    Row::flag(&["-no-duplicates"], |request| request.options.duplicates = false),
    Row::flag(&["-no-hardlinks"], |request| request.edits.no_hard_links = true),
    Row::flag(&["-keep-as-directory"], |request| request.sources.keeps_directory = true),
    // Times.
    Row::with(&["-mkfs-time", "-fstime"], "TIME", mkfs_time)
        .noted("by default that of the newest file"),
    Row::with(&["-inode-time", "-all-time"], "TIME", all_time).noted("without `inode`"),
    Row::with(&["-root-time"], "TIME", |request, value| {
        request.edits.root.mtime = file_time(value)?;
        Ok(())
    }).noted("without `inode`; by default the root of several sources has the time of the newest"),
    Row::accepted(&["-repro", "-reproducible"], "", "always"),
    Row::with(&["-repro-time"], "TIME", |request, value| {
        mkfs_time(request, value)?;
        all_time(request, value)
    }).noted("without `inode`"),
    Row::accepted(&["-not-reproducible"], "", "every image is reproducible"),
    // Permissions.
    Row::flag(&["-all-root", "-root-owned"], |request| {
        (request.edits.uid, request.edits.gid) = (Some(0), Some(0));
    }),
    Row::with(&["-root-mode"], "MODE", |request, value| {
        mode(value)?;
        request.root_mode = Some(words(value)?.to_owned());
        Ok(())
    }).noted(MODE),
    Row::with(&["-root-uid"], "USER", |request, value| {
        request.edits.root.uid = Some(user(words(value)?)?);
        Ok(())
    }),
    Row::with(&["-root-gid"], "GROUP", |request, value| {
        request.edits.root.gid = Some(group(words(value)?)?);
        Ok(())
    }),
    Row::with(&["-force-file-mode"], "MODE", |request, value| {
        request.edits.file_mode = mode(value)?;
        Ok(())
    }).noted("not that of symbolic links; without `u`, `g` and `o` as permissions"),
    Row::with(&["-force-dir-mode"], "MODE", |request, value| {
        request.edits.dir_mode = mode(value)?;
        Ok(())
    }).noted(MODE),
    Row::with(&["-force-uid"], "USER", |request, value| {
        request.edits.uid = Some(user(words(value)?)?);
        Ok(())
    }),
    Row::with(&["-force-gid"], "GROUP", |request, value| {
        request.edits.gid = Some(group(words(value)?)?);
        Ok(())
    }),
    Row::with(&["-uid-gid-offset"], "NUMBER", |request, value| {
        request.uid_gid_offset = words(value)?.parse().context("is not a number")?;
        Ok(())
    }),
    // Pseudo files.
    Row::with(&["-p"], "DEFINITION", |request, value| add(request, value.as_bytes())),
    Row::with(&["-pf"], "LIST", |request, value| {
        if value == "-" {
            return add(request, io::stdin().lock());
        }
        add(request, BufReader::new(File::open(value)?))
    }),
    Row::with(&["-pd", "-pseudo-dir"], "DEFINITION", parents),
    Row::flag(&["-pseudo-override"], |request| request.edits.rules.are_edited = false),
    // Selecting.
    Row::with(&["-sort"], "LIST", |request, value| {
        request.sort = Some(value.into());
        Ok(())
    }),
    Row::with(&["-ef"], "LIST", |request, value| {
        request.excluded.extend(sources::lines(&fs::read(value)?));
        Ok(())
    }),
    Row::row(&["-e"], "FILES...", Effect::Rest(|request, rest| {
        request.excluded.extend_from_slice(rest);
        Ok(())
    })).noted("other hard links of an excluded file stay"),
    Row::flag(&["-wildcards"], |request| request.syntax = Some(PatternSyntax::Shell))
        .noted("`!(a|b)` as a whole name only"),
    Row::flag(&["-regex"], |request| request.syntax = Some(PatternSyntax::Regex))
        .noted("without back-references and collating elements"),
    Row::with(&["-max-depth"], "LEVELS", |request, value| {
        request.edits.selection.max_depth = Some(words(value)?.parse().context("is not a number")?);
        Ok(())
    }),
    Row::flag(&["-one-file-system"], |it| it.sources.one_file_system = true)
        .noted("a subvolume of btrfs counts as a file system"),
    Row::flag(&["-one-file-system-x"], |it| it.sources.no_mount_points = true)
        .noted("a subvolume of btrfs counts as a file system"),
    // Extended attributes.
    Row::flag(&["-no-xattrs"], |request| request.edits.no_xattrs = true),
    Row::flag(&["-xattrs"], |request| request.edits.no_xattrs = false),
    Row::with(&["-xattrs-exclude"], "REGEX", |request, value| {
        request.edits.xattrs_exclude = Patterns::parse(PatternSyntax::TextRegex, [value.as_bytes()])?;
        Ok(())
    }),
    Row::with(&["-xattrs-include"], "REGEX", |request, value| {
        request.edits.xattrs_only = Patterns::parse(PatternSyntax::TextRegex, [value.as_bytes()])?;
        Ok(())
    }),
    Row::with(&["-xattrs-add"], "NAME=VALUE", add_xattr),
    // Running.
    Row::accepted(&["-exit-on-error"], "", "always: a file that cannot be read is an error"),
    Row::flag(&["-quiet"], |request| request.is_quiet = true),
    Row::flag(&["-info"], |request| request.shown = Some(Shown::Names(image_lines::name_line)))
        .noted("without places of inodes, and `DUPLICATE`; links in the order of names"),
    Row::refused(&["-info-file"], "FILE", "`-info` prints the list"),
    Row::flag(&["-no-progress"], |it| it.shown = Some(it.shown.unwrap_or(Shown::Nothing))),
    Row::flag(&["-progress"], |request| request.shown = Some(Shown::Bar)),
    Row::flag(&["-percentage"], |request| request.shown = Some(Shown::Percentage)),
    Row::accepted(&["-throttle"], "PERCENT", "use `ionice` or `nice`"),
    Row::accepted(&["-limit"], "PERCENT", "use `ionice` or `nice`"),
    Row::with(&["-processors"], "NUMBER", |request, value| {
        let count: u16 = words(value)?.parse().context("is not a number")?;
        request.options.parallel = Parallel::new(count.max(1).into());
        Ok(())
    }),
    Row::accepted(&["-mem"], "SIZE", BOUNDED),
    Row::accepted(&["-mem-percent"], "PERCENT", BOUNDED),
    Row::refused(&["-mem-default"], "", BOUNDED),
    Row::accepted(&["-read-queue"], "SIZE", BOUNDED),
    Row::accepted(&["-write-queue"], "SIZE", BOUNDED),
    Row::accepted(&["-fragment-queue"], "SIZE", BOUNDED),
    Row::accepted(&["-single-reader"], "", "the result does not depend on it"),
    Row::accepted(&["-small-readers"], "NUMBER", "the result does not depend on it"),
    Row::accepted(&["-block-readers"], "NUMBER", "the result does not depend on it"),
    Row::accepted(&["-overcommit"], "PERCENT", "the result does not depend on it"),
    // Appending.
    Row::flag(&["-noappend"], |request| request.append = false),
    Row::with(&["-root-becomes"], "NAME", |request, value| {
        request.root_becomes = Some(value.into());
        Ok(())
    }),
    Row::accepted(&["-no-recovery"], "", WHOLE),
    Row::accepted(&["-recovery-path"], "DIR", WHOLE),
    Row::refused(&["-recover"], "FILE", WHOLE),
    // Actions.
    Row::with(&["-action"], "ACTION@TEST", action).noted(ACTIONS),
    Row::with(&["-log-action"], "ACTION@TEST", action).noted(NO_LOG),
    Row::with(&["-true-action"], "ACTION@TEST", action).noted(NO_LOG),
    Row::with(&["-false-action"], "ACTION@TEST", action).noted(NO_LOG),
    Row::with(&["-action-file"], "FILE", action_file).noted("as `-action`"),
    Row::with(&["-log-action-file"], "FILE", action_file).noted(NO_LOG),
    Row::with(&["-true-action-file"], "FILE", action_file).noted(NO_LOG),
    Row::with(&["-false-action-file"], "FILE", action_file).noted(NO_LOG),
    // Tar archives.
    Row::with(&["-default-mode"], "MODE", |request, value| {
        let mode = ModeChange::parse(words(value)?)?;
        request.sources.implied.permissions = mode.apply(0o755, true);
        Ok(())
    }).noted(MODE),
    Row::with(&["-default-uid"], "USER", |request, value| {
        request.sources.implied.uid = user(words(value)?)?;
        Ok(())
    }),
    Row::with(&["-default-gid"], "GROUP", |request, value| {
        request.sources.implied.gid = group(words(value)?)?;
        Ok(())
    }),
    Row::flag(&["-ignore-zeros"], |request| request.sources.ignore_zeros = true),
    Row::accepted(&["-numeric-owner"], "", "always: names in the archive are not looked up"),
    // For experts.
    Row::refused(&["-stream"], "", "an image is written to a file"),
    Row::refused(&["-fix"], "IMAGE", "copy the image, which repairs it"),
    Row::flag(&["-nopad"], |request| request.options.squashfs.padding = false),
    Row::with(&["-offset", "-o"], "BYTES", |request, value| {
        request.offset = size(value)?;
        Ok(())
    }),
    // Help.
    Row::refused(&["-help-option", "-ho"], "REGEX", HELP),
    Row::refused(&["-help-section", "-hs"], "SECTION", HELP),
    Row::refused(&["-help-comp"], "NAME", HELP),
    Row::refused(&["-Xhelp"], "", HELP),
    Row::accepted(&["-no-pager"], "", "help is printed without a pager"),
    Row::accepted(&["-cols"], "WIDTH", "help has lines of one width"),
];

/// Options that `sqfstar` does not have.
#[rustfmt::skip] // Many names.
const NOT_IN_SQFSTAR: &[&str] = &[
    "-tar", "-no-strip", "-cpiostyle", "-cpiostyle0", "-no-exports", "-keep-as-directory", "-sort",
    "-e", "-wildcards", "-max-depth", "-one-file-system", "-one-file-system-x", "-single-reader",
    "-small-readers", "-block-readers", "-noappend", "-root-becomes", "-no-recovery",
    "-recovery-path", "-recover", "-action", "-log-action", "-true-action", "-false-action",
    "-action-file", "-log-action-file", "-true-action-file", "-false-action-file",
];

/// Options that only `sqfstar` has.
const SQFSTAR_ROWS: &[Row] = &[Row::flag(&["-force"], |request| {
    request.options.overwrite = true;
})];

/// The options of `sqfstar`.
pub(super) fn sqfstar_rows() -> impl Iterator<Item = &'static Row> {
    let shared = ROWS
        .iter()
        .filter(|row| !NOT_IN_SQFSTAR.contains(&row.names[0]));
    shared.chain(SQFSTAR_ROWS)
}

/// Prints the version whose options are taken, if the first word asks for it.
fn is_version(name: &str, words: &[OsString]) -> io::Result<bool> {
    let is_asked = words.first().is_some_and(|word| word == "-version");
    if is_asked {
        let own = env!("CARGO_PKG_VERSION");
        writeln!(io::stdout(), "{name} version 4.7.5 (restow {own})")?;
    }
    Ok(is_asked)
}

/// A request without options.
fn request() -> ImageRequest {
    let mut request = ImageRequest::default();
    let spool_dir = open_options().spool_dir;
    request.edits.rules = AdditionRules {
        yields: true,
        are_edited: true,
        parents: None,
        commands: Some(spool_dir.clone()),
    };
    request.options.spool_dir = spool_dir;
    let implied = &mut request.sources.implied;
    (implied.uid, implied.gid) = linux::process_owner();
    request
}

/// Makes an image of files.
///
/// # Errors
/// The command line is wrong, a file cannot be read, or the image not be written.
pub(super) fn mksquashfs(words: &[OsString]) -> Result<ExitCode> {
    if is_version("mksquashfs", words)? {
        return Ok(ExitCode::SUCCESS);
    }
    let is_option = |word: &OsString| word.len() > 1 && word.as_bytes()[0] == b'-';
    let end = words.iter().position(is_option).unwrap_or(words.len());
    let (operands, options) = words.split_at(end);
    let mut request = request();
    request.append = true;
    if let [word, ..] = &parse(ROWS, Style::Hyphen, options, &mut request)?[..] {
        bail!("{} is not an option", text::of_name(word.as_bytes()));
    }
    let (given, dst) = match operands {
        [given @ .., dst] if !given.is_empty() => (given, Path::new(dst)),
        _ => bail!("mksquashfs takes sources and an image, before its options"),
    };
    request.options.overwrite = !request.append;
    if request.append && fs::symlink_metadata(dst).is_ok() {
        request.old = Some(open_existing(dst, request.offset)?);
    }
    let given = given.iter().map(PathBuf::from).collect();
    let gathered = request.sources.gather(given)?;
    make(request, gathered, dst)
}

/// Makes an image of an archive.
///
/// # Errors
/// As for [`mksquashfs`].
pub(super) fn sqfstar(words: &[OsString]) -> Result<ExitCode> {
    if is_version("sqfstar", words)? {
        return Ok(ExitCode::SUCCESS);
    }
    let mut request = request();
    request.syntax = Some(PatternSyntax::Shell);
    request.sources.is_tar = true;
    let operands = parse(sqfstar_rows(), Style::HyphenFirst, words, &mut request)?;
    let [dst, excluded @ ..] = &operands[..] else {
        bail!("sqfstar takes an image behind its options");
    };
    request.excluded.extend_from_slice(excluded);
    let gathered = request.sources.gather(vec!["-".into()])?;
    make(request, gathered, Path::new(dst))
}

/// Opens the image to which files are appended.
fn open_existing(dst: &Path, offset: u64) -> Result<SourceTree> {
    let name = text::of_host_path(dst, "-");
    if offset > 0 {
        bail!("appending behind an offset is not supported: {name} exists; -noappend replaces it");
    }
    if !fs::metadata(dst).is_ok_and(|it| it.is_file()) {
        bail!("{name} exists and is no regular file: appending is not supported");
    }
    match SourceTree::open(&Address::plain(dst), &open_options()) {
        Ok(old) if old.squashfs().is_some() && old.disk_file().is_none() => Ok(old),
        _ => bail!("{name} exists and is not a SquashFS image; -noappend replaces it"),
    }
}

impl ImageRequest {
    /// How data is compressed.
    fn compression(&self, block_bytes: u32) -> Result<Option<Settings>> {
        let codec = self.codec.as_deref().unwrap_or("gzip");
        let known: &[&str] = match codec {
            "gzip" | "zstd" => &["-Xcompression-level"],
            "lzo" => &["-Xalgorithm", "-Xcompression-level"],
            "lz4" => &["-Xhc"],
            "xz" => &["-Xbcj", "-Xdict-size"],
            _ => bail!("-comp {codec} is not supported: it is gzip, lzo, lz4, xz or zstd"),
        };
        let (mut level, mut dictionary) = (if codec == "lzo" { ":8" } else { "" }.to_owned(), None);
        for (name, value) in &self.codec_options {
            match (*name, &**value) {
                (name, _) if !known.contains(&name) => bail!("{name} is not an option of {codec}"),
                ("-Xhc", _) => level = ":hc".to_owned(),
                ("-Xdict-size", size) => dictionary = Some(size),
                ("-Xalgorithm", "lzo1x_999") => {}
                ("-Xalgorithm", "lzo1x_1" | "lzo1x_1_11" | "lzo1x_1_12" | "lzo1x_1_15") => {
                    level = ":1".to_owned();
                }
                ("-Xalgorithm", other) => bail!("-Xalgorithm {other} is unknown"),
                (_, value) => level = format!(":{}", value.replace(',', ":")),
            }
        }
        let mut settings = squashfs_settings(&format!("{codec}{level}"))?;
        if let Some(Settings::Xz {
            dictionary_bytes, ..
        }) = &mut settings
        {
            *dictionary_bytes = match dictionary.map(|words| (words, words.strip_suffix('%'))) {
                None => block_bytes.max(8192),
                Some((_, Some(percent))) => {
                    let percent: f64 = percent.parse().context("-Xdict-size")?;
                    (f64::from(block_bytes) * percent / 100.0) as u32
                }
                Some((words, None)) => {
                    let size = size(OsStr::new(words)).context("-Xdict-size")?;
                    u32::try_from(size)
                        .ok()
                        .filter(|&size| size <= block_bytes)
                        .context("-Xdict-size is larger than a block")?
                }
            };
        }
        Ok(settings)
    }

    /// The changes of the root: a new one has all permissions, and the time of the newest source.
    fn root(&self, gathered: &Gathered) -> Result<RootEdits> {
        let mut root = self.edits.root.clone();
        let given = self.root_mode.as_deref();
        root.mode = given.map(ModeChange::parse).transpose()?;
        if let Some(newest) = gathered.new_root {
            let (uid, gid) = linux::process_owner();
            root.uid.get_or_insert(uid);
            root.gid.get_or_insert(gid);
            let epoch = self.options.epoch.map(|seconds| Time {
                seconds,
                nanoseconds: 0,
            });
            root.mtime.get_or_insert(epoch.unwrap_or(newest));
            root.mode = Some(match given {
                Some(mode) if mode.starts_with(|it: char| it.is_ascii_digit()) => {
                    ModeChange::parse(mode)?
                }
                Some(mode) => ModeChange::parse(&format!("a=rwx,{mode}"))?,
                None => ModeChange::parse("777")?,
            });
        }
        Ok(root)
    }
}

/// Writes the image.
fn make(mut request: ImageRequest, gathered: Gathered, dst: &Path) -> Result<ExitCode> {
    let options = &mut request.options;
    options.epoch = epoch()?;
    let epoch = options.epoch.map(u32::try_from).transpose();
    let epoch = epoch.context("SOURCE_DATE_EPOCH is not from 1970 to 2106")?;
    let has_time = request.mkfs_time.is_some()
        || request.edits.time.is_some()
        || request.edits.root.mtime.is_some();
    if epoch.is_some() && has_time {
        bail!("SOURCE_DATE_EPOCH and options with a time exclude each other");
    }
    let has_root = request.edits.additions.iter().any(|it| it.path.is_empty());
    if gathered.is_empty && !has_root {
        bail!("the source is `-`, and there is no pseudo definition of `/`");
    }
    let block_bytes = request.block_bytes.unwrap_or(128 << 10);
    let compression = request.compression(block_bytes)?;
    let root = request.root(&gathered)?;
    let (mut edits, options) = (request.edits, &mut request.options);
    options.mkfs_time = request.mkfs_time.or(epoch);
    let squashfs = &mut options.squashfs;
    squashfs.compression = compression;
    squashfs.plain = request.plain;
    squashfs.block_bytes = block_bytes;
    squashfs.fragments = request.fragments.unwrap_or(Fragments::SmallFiles);
    squashfs.offset = request.offset;
    squashfs.exportable &= !request.sources.is_tar || request.sources.exports;
    if let Some(list) = &request.sort {
        let list = || -> Result<Priorities> {
            Ok(Priorities::parse_list(
                &gathered.sort_list(&fs::read(list)?)?,
            )?)
        };
        options.priorities = Some(list().context("-sort")?);
    }
    edits.root = root;
    let offset = request.uid_gid_offset;
    edits.uid_maps = id_offset(offset, &mut edits.uid).context("-uid-gid-offset")?;
    edits.gid_maps = id_offset(offset, &mut edits.gid).context("-uid-gid-offset")?;
    let mut patterns = Patterns::default();
    let excluded = match request.syntax {
        Some(syntax) => {
            Gathered::check_patterns(&request.excluded)?;
            let words = request.excluded.iter().map(|it| it.as_bytes());
            patterns = Patterns::parse(syntax, words)?;
            Vec::new()
        }
        None => gathered.find(&request.excluded),
    };
    let paths = excluded.into_iter().chain(gathered.in_tree(dst));
    let paths: Vec<Vec<u8>> = paths.filter(|path| !path.is_empty()).collect();
    if !paths.is_empty() {
        patterns = patterns.with_paths(paths);
    }
    edits.selection.exclude = patterns.into();
    edits.selection.only = gathered.only.into();
    let shown = request.shown.unwrap_or(Shown::Bar);
    let (appends, no_xattrs) = (request.old.is_some(), edits.no_xattrs);
    let (mut tree, mut edits) = (gathered.tree, Some(edits));
    if let Some(old) = request.old
        && let Some(image) = old.squashfs()
    {
        *options = std::mem::take(options).like(image)?;
        tell("appending: the image keeps its compression, block size and fragments");
        let added = Edited::new(Arc::clone(tree.tree()), edits.take().unwrap_or_default());
        let added = added.context("read the sources")?;
        if !added.packing().is_empty() {
            bail!(
                "actions on fragments, compression and alignment are not supported when appending"
            );
        }
        for (path, why) in added.ignored() {
            tell(&format!("{}: {why}", text::of_path(path)));
        }
        let name = request.root_becomes.as_deref().map(OsStr::as_bytes);
        let renamed;
        (tree, renamed) = old.append(added, name)?;
        for (from, to) in renamed {
            let [from, to] = [from, to].map(|it| text::of_path(&it));
            tell(&format!("{from} is taken: what is appended becomes {to}"));
        }
    }
    // A closed pipe for the lines does not stop the copy.
    let print = |lines: String| {
        let _ = io::stdout().write_all(lines.as_bytes());
    };
    if !request.is_quiet {
        let name = text::of_host_path(dst, "-");
        print(image_lines::head(&name, options, appends));
    }
    let mut counts = FileCounts::default();
    let to = (dst, Format::Squashfs);
    let summary = write_after(tree, to, edits, options, shown, |job| {
        if !request.is_quiet {
            counts = FileCounts::of(job.inventory());
        }
        Ok(())
    })?;
    if let Some(image) = summary.squashfs.filter(|_| !request.is_quiet) {
        print(image_lines::summary(&image, &counts, options, no_xattrs));
    }
    Ok(ExitCode::SUCCESS)
}
