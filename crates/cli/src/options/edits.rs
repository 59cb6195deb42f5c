//! The edits of `restow copy`: files left out, added and changed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use tree::Time;
use tree::edit::{Addition, Edits, FileContexts, IdMap, ModeChange, Patterns, Selection};

use super::moment::seconds;
use super::owner::{group, user};
use super::source::open_options;
use crate::text;

/// Edits of a tree on its way, for any source and destination.
#[derive(Debug, Args)]
#[command(next_help_heading = "Selecting and changing files")]
pub(crate) struct EditArgs {
    /// Leave out files that match PATTERN, and everything in matching directories (repeatable)
    ///
    /// A pattern matches a whole path in SRC, or in a SRC2 of --with: `*.o` matches files in the
    /// root, `**/*.o` and `... *.o` match files in all directories. `*` and `?` do not match
    /// slashes. `[a-z]`, `[!a-z]`, `[[:digit:]]`, `{a,b}` and `\` work as in a shell, where braces
    /// without a comma or an end, and brackets without an end, stand for themselves.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,

    /// Leave out files that match a line of LIST, as with --exclude (repeatable)
    #[arg(long, value_name = "LIST")]
    exclude_from: Vec<PathBuf>,

    /// Copy only the files and directories in LIST: a path in SRC on each line, as PATH, but not a
    /// pattern; `-` is standard input (repeatable)
    #[arg(long, value_name = "LIST")]
    files_from: Vec<PathBuf>,

    /// Paths in the LISTs of --files-from end with a NUL, as with `find -print0`
    #[arg(short = '0', long, requires = "files_from")]
    null: bool,

    /// Add, replace or change the files in LIST, which has the format of mksquashfs pseudo files
    /// (repeatable)
    ///
    /// Each line has a path, followed by `d MODE UID GID` (directory), `m MODE UID GID` (change
    /// mode and owner), `s MODE UID GID TARGET` (symbolic link), `c` or `b MODE UID GID MAJOR
    /// MINOR` (device), `i MODE UID GID [f|s]` (fifo or socket), `l HOSTFILE` (copy of a file on
    /// this machine; `h` follows symbolic links), `L PATH` (another name for a file) or `x
    /// NAME=VALUE` (extended attribute). An upper-case letter takes a time before the mode. The
    /// output of `unsquashfs -pf` is such a list, with data.
    #[arg(long, value_name = "LIST")]
    add: Vec<PathBuf>,

    /// Make root the owner of every file
    #[arg(long)]
    all_root: bool,

    /// Make this user the owner of every file: an ID, or a name that /etc/passwd or `getent` knows
    #[arg(long, value_name = "USER", value_parser = user, conflicts_with = "all_root")]
    uid: Option<u32>,

    /// Make this group the group of every file: an ID, or a name that /etc/group or `getent` knows
    #[arg(long, value_name = "GROUP", value_parser = group, conflicts_with = "all_root")]
    gid: Option<u32>,

    /// Map COUNT user IDs starting at FROM to IDs starting at TO (repeatable)
    #[arg(long, value_name = "FROM:TO:COUNT", value_parser = id_map)]
    map_uids: Vec<IdMap>,

    /// Map COUNT group IDs starting at FROM to IDs starting at TO (repeatable)
    #[arg(long, value_name = "FROM:TO:COUNT", value_parser = id_map)]
    map_gids: Vec<IdMap>,

    /// Change the mode of files that are not directories, as chmod does: `644`, `go-w`
    #[arg(long, value_name = "MODE", value_parser = ModeChange::parse)]
    file_mode: Option<ModeChange>,

    /// Change the mode of directories, as chmod does: `755`, `u=rwX,go=rX`
    #[arg(long, value_name = "MODE", value_parser = ModeChange::parse)]
    dir_mode: Option<ModeChange>,

    /// Set all timestamps: a date such as 2020-01-01 or 2020-01-01T12:30:00Z, in UTC, or seconds
    /// since 1970
    #[arg(long, value_name = "TIME", value_parser = seconds, allow_negative_numbers = true)]
    all_time: Option<i64>,

    /// Leave out extended attributes
    #[arg(long)]
    no_xattrs: bool,

    /// Keep only extended attributes whose names match PATTERN, as in `user.*` (repeatable)
    #[arg(long, value_name = "PATTERN", conflicts_with = "no_xattrs")]
    xattrs: Vec<OsString>,

    /// Leave out extended attributes whose names match PATTERN (repeatable)
    #[arg(long, value_name = "PATTERN")]
    exclude_xattrs: Vec<OsString>,

    /// Label files for SELinux (security.selinux) by their paths in DST, as FILE says, the
    /// file_contexts of a policy
    ///
    /// The files FILE.homedirs, FILE.local, FILE.subs and FILE.subs_dist count, too, as for
    /// setfiles. A file with several names gets the label of the first. Files without a label in
    /// FILE, and those with `<<none>>`, keep that of SRC.
    #[arg(long, value_name = "FILE")]
    file_contexts: Option<PathBuf>,
}

fn id_map(words: &str) -> Result<IdMap> {
    let numbers: Option<Vec<u32>> = words.split(':').map(|number| number.parse().ok()).collect();
    let Some(&[from, to, count]) = numbers.as_deref() else {
        return Err(anyhow!("must be three numbers separated by colons"));
    };
    let fits = |first: u32| count > 0 && first.checked_add(count - 1).is_some();
    if fits(from) && fits(to) {
        Ok(IdMap { from, to, count })
    } else {
        Err(anyhow!(
            "COUNT must be at least 1, and the last ID must fit in 32 bits"
        ))
    }
}

/// The content of a file, or of standard input for `-`.
fn read_list(list: &Path) -> io::Result<Vec<u8>> {
    if list != Path::new("-") {
        return fs::read(list);
    }
    let mut content = Vec::new();
    io::stdin().read_to_end(&mut content)?;
    Ok(content)
}

impl EditArgs {
    /// Whether standard input holds a list.
    pub(crate) fn takes_standard_input(&self) -> bool {
        self.files_from.iter().any(|list| list == Path::new("-"))
    }

    /// The patterns of `--exclude` that can match only in the root, because they have no slash.
    pub(crate) fn excluded_in_root(&self) -> impl Iterator<Item = &[u8]> {
        let patterns = self.exclude.iter().map(|pattern| pattern.as_bytes());
        patterns.filter(|pattern| !pattern.contains(&b'/') && !pattern.starts_with(b"... "))
    }

    /// All edits, including the selection by `paths`; `None` if there are none.
    ///
    /// # Errors
    /// A list cannot be read.
    pub(crate) fn edits(&self, paths: &[OsString]) -> Result<Option<Edits>> {
        let patterns = |words: &[OsString]| Patterns::new(words.iter().map(|word| word.as_bytes()));
        let mut exclude: Vec<Vec<u8>> = self
            .exclude
            .iter()
            .map(|word| word.as_bytes().to_vec())
            .collect();
        for list in &self.exclude_from {
            let name = || format!("read {}", text::of_host_path(list, "-"));
            let lines = fs::read(list).with_context(name)?;
            let lines = lines
                .split(|&byte| byte == b'\n')
                .filter(|line| !line.is_empty());
            exclude.extend(lines.map(<[u8]>::to_vec));
        }
        let mut only = patterns(paths);
        if !self.files_from.is_empty() {
            let mut given = Vec::new();
            for list in &self.files_from {
                let name = || format!("read {}", text::of_host_path(list, "standard input"));
                let end = if self.null { 0 } else { b'\n' };
                let paths = read_list(list).with_context(name)?;
                let paths = paths.split(|&byte| byte == end);
                given.extend(paths.filter(|path| !path.is_empty()).map(<[u8]>::to_vec));
            }
            only = only.with_paths(given);
        }
        let mut additions = Vec::new();
        for list in &self.add {
            let read = || -> Result<Vec<Addition>> {
                let time = |words: &str| seconds(words).ok();
                let file = BufReader::new(File::open(list)?);
                Ok(Addition::read_list(file, &time, &open_options().spool_dir)?)
            };
            let name = || format!("read {}", text::of_host_path(list, "-"));
            additions.extend(read().with_context(name)?);
        }
        let read = |file: &PathBuf| {
            let contexts = FileContexts::read(file);
            contexts.with_context(|| format!("read {}", text::of_host_path(file, "-")))
        };
        let file_contexts = self.file_contexts.as_ref().map(read).transpose()?;
        let root = self.all_root.then_some(0);
        let is_any = !(only.is_empty() && exclude.is_empty() && additions.is_empty())
            || self.all_root
            || self.uid.is_some()
            || self.gid.is_some()
            || !(self.map_uids.is_empty() && self.map_gids.is_empty())
            || self.file_mode.is_some()
            || self.dir_mode.is_some()
            || self.all_time.is_some()
            || self.no_xattrs
            || file_contexts.is_some()
            || !(self.xattrs.is_empty() && self.exclude_xattrs.is_empty());
        if !is_any {
            return Ok(None);
        }
        Ok(Some(Edits {
            selection: Selection {
                only: only.into(),
                exclude: Patterns::new(exclude).into(),
                ..Selection::default()
            },
            uid_maps: self.map_uids.clone(),
            gid_maps: self.map_gids.clone(),
            uid: self.uid.or(root),
            gid: self.gid.or(root),
            file_mode: self.file_mode.clone(),
            dir_mode: self.dir_mode.clone(),
            time: self.all_time.map(|seconds| Time {
                seconds,
                nanoseconds: 0,
            }),
            no_xattrs: self.no_xattrs,
            xattrs_only: patterns(&self.xattrs),
            xattrs_exclude: patterns(&self.exclude_xattrs),
            additions,
            file_contexts: file_contexts.map(Arc::new),
            ..Edits::default()
        }))
    }
}
