//! The options of `unsquashfs` and `sqfscat`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use anyhow::{Context, Result};
use tree::edit::{PatternSyntax, Patterns};

use crate::compat::mksquashfs::time;
use crate::compat::options::{Effect, OptionRow};
use crate::options;

/// The contents of the command line.
#[derive(Default)]
pub(in crate::compat) struct UnsquashOptions {
    pub(super) task: Task,
    pub(super) dest: Option<PathBuf>,
    pub(super) pseudo_file: PathBuf,
    pub(super) image_at: Option<u64>,
    pub(super) selection: Selected,
    pub(super) is_forced: bool,
    pub(super) no_xattrs: bool,
    /// Regular expressions.
    pub(super) xattrs_only: Option<Vec<u8>>,
    pub(super) xattrs_exclude: Option<Vec<u8>>,
    pub(super) time: Option<i64>,
    /// Print the files while they are extracted.
    pub(super) shows: bool,
    pub(super) shows_percentage: bool,
    pub(super) is_long: bool,
    pub(super) is_numeric: bool,
    pub(super) is_concise: bool,
    pub(super) is_full: bool,
    pub(super) is_utc: bool,
    pub(super) is_quiet: bool,
    pub(super) is_strict: bool,
    pub(super) no_exit_code: bool,
    pub(super) prints_version: bool,
}

/// The task.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Task {
    #[default]
    Extract,
    List,
    Pseudo,
    Cat,
    Stat,
    MkfsTime,
}

/// The files that are named.
#[derive(Default)]
pub(super) struct Selected {
    pub(super) extract: Vec<OsString>,
    pub(super) exclude: Vec<OsString>,
    /// The operands are files to exclude.
    pub(super) excludes: bool,
    pub(super) max_depth: Option<usize>,
    pub(super) follows: bool,
    pub(super) must_resolve: bool,
    pub(super) no_wildcards: bool,
    pub(super) is_regex: bool,
}

impl Selected {
    /// The names as patterns.
    pub(super) fn parse(&self, names: &[Vec<u8>]) -> tree::Result<Patterns> {
        let syntax = if self.is_regex {
            PatternSyntax::Regex
        } else {
            PatternSyntax::Shell
        };
        Patterns::parse(syntax, names)
    }
}

impl UnsquashOptions {
    fn list(&mut self, is_long: bool, is_concise: bool) {
        if self.task == Task::Extract {
            self.task = Task::List;
        }
        self.is_long |= is_long;
        self.is_concise |= is_concise;
    }
}

pub(super) type Row = OptionRow<UnsquashOptions>;

/// The options of both programs are the first.
const SHARED: usize = 16;

/// The options of `sqfscat`.
pub(in crate::compat) const SQFSCAT: &[Row] = ROWS.split_at(SHARED).0;

/// The options of `unsquashfs`.
pub(in crate::compat) const ROWS: &[Row] = &[
    Row::flag(&["-v", "-version"], |it| it.prints_version = true)
        .noted("and the version of restow"),
    Row::accepted(&["-p", "-processors"], "NUMBER", ""),
    Row::accepted(&["-mem"], "SIZE", "memory is bounded"),
    Row::accepted(&["-mem-percent"], "PERCENT", "memory is bounded"),
    Row::with(&["-o", "-offset"], "BYTES", |it, words| {
        it.image_at = Some(options::bytes(words.to_str().context("must be a number")?)?);
        Ok(())
    }),
    Row::accepted(
        &["-ig", "-ignore-errors"],
        "",
        "an error of the destination ends a copy",
    ),
    Row::flag(&["-st", "-strict-errors"], |it| it.is_strict = true),
    Row::flag(&["-no-exit", "-no-exit-code"], |it| it.no_exit_code = true),
    Row::flag(&["-no-wild", "-no-wildcards"], |it| {
        it.selection.no_wildcards = true;
    }),
    Row::flag(&["-r", "-regex"], |it| it.selection.is_regex = true),
    Row::refused(
        &["-h", "-help", "-ha", "-help-all"],
        "",
        "prints the options as the first word",
    ),
    Row::refused(
        &["-ho", "-help-option"],
        "REGEX",
        "-help prints all options",
    ),
    Row::refused(
        &["-hs", "-help-section"],
        "SECTION",
        "-help prints all options",
    ),
    Row::accepted(&["-no-pager"], "", "no pager is used"),
    Row::accepted(&["-cols"], "WIDTH", ""),
    Row::accepted(
        &["-da", "-data-queue", "-fr", "-frag-queue"],
        "SIZE",
        "of squashfs-tools 4.5",
    ),
    Row::with(&["-d", "-dest"], "PATHNAME", |it, path| {
        it.dest = Some(path.into());
        Ok(())
    }),
    Row::with(&["-max", "-max-depth"], "LEVELS", |it, words| {
        let levels = words.to_str().and_then(|it| it.parse().ok());
        it.selection.max_depth = Some(levels.context("must be a number")?);
        Ok(())
    }),
    Row::flag(&["-excludes"], |it| it.selection.excludes = true),
    Row::row(
        &["-ex", "-exclude-list"],
        "FILES ;",
        Effect::Words(|it, files| {
            it.selection.exclude.extend_from_slice(files);
        }),
    ),
    Row::with(&["-e", "-ef", "-extract-file"], "FILE", |it, file| {
        read_list(file, &mut it.selection.extract)
    }),
    Row::with(&["-exc", "-excf", "-exclude-file"], "FILE", |it, file| {
        read_list(file, &mut it.selection.exclude)
    }),
    Row::flag(&["-L", "-follow", "-follow-symlinks"], |it| {
        it.selection.follows = true;
    }),
    Row::flag(&["-match", "-missing", "-missing-symlinks"], |it| {
        it.selection.follows = true;
        it.selection.must_resolve = true;
    }),
    Row::with(&["-all", "-all-time"], "TIME", |it, words| {
        it.time = Some(time(words)?.into());
        Ok(())
    }),
    Row::flag(&["-cat"], |it| it.task = Task::Cat),
    Row::flag(&["-f", "-force"], |it| it.is_forced = true).noted(
        "a link in the destination leads out of it nowhere, and no directory becomes a file",
    ),
    Row::with(&["-pf", "-pseudo-file"], "FILE", |it, file| {
        (it.task, it.pseudo_file) = (Task::Pseudo, file.into());
        Ok(())
    })
    .noted("numbers of users above 2147483647 are not negative"),
    Row::flag(&["-s", "-stat"], |it| it.task = Task::Stat).noted("the lines of 4.7.5"),
    Row::flag(&["-mkfs-time", "-fstime"], |it| it.task = Task::MkfsTime),
    Row::flag(&["-i", "-info"], |it| it.shows = true),
    Row::flag(&["-li", "-linfo"], |it| {
        it.shows = true;
        it.is_long = true;
    })
    .noted("as -lls"),
    Row::flag(&["-l", "-ls"], |it| it.list(false, false)).noted("escaped on a terminal"),
    Row::flag(&["-ll", "-lls"], |it| it.list(true, false))
        .noted("users and groups of this machine, also by getent; escaped on a terminal"),
    Row::flag(&["-lln", "-llnumeric"], |it| {
        it.list(true, false);
        it.is_numeric = true;
    }),
    Row::flag(&["-lc"], |it| it.list(false, true)),
    Row::flag(&["-llc"], |it| it.list(true, true)),
    Row::flag(&["-full", "-full-precision"], |it| it.is_full = true),
    Row::flag(&["-UTC"], |it| it.is_utc = true),
    Row::flag(&["-no", "-no-xattrs"], |it| it.no_xattrs = true),
    Row::flag(&["-x", "-xattrs"], |it| it.no_xattrs = false),
    Row::flag(&["-u", "-user-xattrs"], |it| {
        it.xattrs_only = Some(b"^user[.]".to_vec());
    })
    .noted("of squashfs-tools 4.5"),
    Row::with(&["-xattrs-exclude"], "REGEX", |it, regex| {
        it.xattrs_exclude = Some(regex.as_bytes().into());
        Ok(())
    }),
    Row::with(&["-xattrs-include"], "REGEX", |it, regex| {
        it.xattrs_only = Some(regex.as_bytes().into());
        Ok(())
    }),
    Row::flag(&["-q", "-quiet"], |it| it.is_quiet = true),
    Row::accepted(&["-n", "-no-progress"], "", "no progress is shown"),
    Row::flag(&["-percentage"], |it| it.shows_percentage = true),
];

/// Adds the lines of a file.
fn read_list(file: &OsStr, names: &mut Vec<OsString>) -> Result<()> {
    let text = fs::read(file)?;
    let lines = text
        .split(|&byte| byte == b'\n')
        .map(<[u8]>::trim_ascii_start);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    names.extend(lines.map(|line| OsString::from_vec(line.to_vec())));
    Ok(())
}
