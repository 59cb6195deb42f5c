//! What `restow copy` changes on the way.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use tree::edit::{Addition, Edited, Edits, IdMap, ModeChange, Patterns};
use tree::{FileSystem, Time};

use crate::text;

/// What is left out, added and changed, whatever the source and the destination are.
#[derive(Debug, Args)]
#[command(next_help_heading = "What becomes of files")]
pub(crate) struct EditArgs {
    /// Leave out what matches, with all that is in it; may be given several times
    ///
    /// The pattern is one of a whole path in SRC: `*.o` means the root's files, `**/*.o` and `... *.o` those of all directories. `*`
    /// and `?` stop at slashes; `[a-z]`, `[!a-z]`, `{a,b}` and `\` are known.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,

    /// Leave out what matches a line of this file
    #[arg(long, value_name = "LIST")]
    exclude_from: Vec<PathBuf>,

    /// Add, replace or change what a list in mksquashfs' form of pseudo files says; may be given several times
    ///
    /// Each line is a path and `d MODE UID GID` (directory), `m MODE UID GID` (other permissions of what is there), `s MODE UID GID
    /// TARGET` (symbolic link), `c` or `b MODE UID GID MAJOR MINOR` (device), `i MODE UID GID [f|s]` (fifo, socket), `l HOSTFILE` (a
    /// file of this machine) or `x NAME=VALUE` (extended attribute). A capital letter takes a time before the mode.
    #[arg(long, value_name = "LIST")]
    add: Vec<PathBuf>,

    /// Let all files belong to root
    #[arg(long)]
    all_root: bool,

    /// Let all files belong to this user, by number
    #[arg(long, value_name = "UID", conflicts_with = "all_root")]
    uid: Option<u32>,

    /// Let all files belong to this group, by number
    #[arg(long, value_name = "GID", conflicts_with = "all_root")]
    gid: Option<u32>,

    /// Other numbers for COUNT users from FROM on; may be given several times
    #[arg(long, value_name = "FROM:TO:COUNT", value_parser = id_map)]
    map_uids: Vec<IdMap>,

    /// Other numbers for COUNT groups from FROM on; may be given several times
    #[arg(long, value_name = "FROM:TO:COUNT", value_parser = id_map)]
    map_gids: Vec<IdMap>,

    /// Permissions of files that are no directories, as for chmod: 644, or `go-w`
    #[arg(long, value_name = "MODE", value_parser = ModeChange::parse)]
    file_mode: Option<ModeChange>,

    /// Permissions of directories, as for chmod: 755, or `u=rwX,go=rX`
    #[arg(long, value_name = "MODE", value_parser = ModeChange::parse)]
    dir_mode: Option<ModeChange>,

    /// A time for all files, in seconds since 1970
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    all_time: Option<i64>,

    /// Leave out extended attributes
    #[arg(long)]
    no_xattrs: bool,

    /// Keep only extended attributes whose names match, as in `user.*`; may be given several times
    #[arg(long, value_name = "PATTERN", conflicts_with = "no_xattrs")]
    xattrs: Vec<OsString>,

    /// Leave out extended attributes whose names match; may be given several times
    #[arg(long, value_name = "PATTERN")]
    exclude_xattrs: Vec<OsString>,
}

fn id_map(words: &str) -> Result<IdMap> {
    let numbers: Option<Vec<u32>> = words.split(':').map(|number| number.parse().ok()).collect();
    let Some(&[from, to, count]) = numbers.as_deref() else {
        return Err(anyhow!("it is three numbers with colons between them"));
    };
    let fits = |first: u32| count > 0 && first.checked_add(count - 1).is_some();
    match fits(from) && fits(to) {
        true => Ok(IdMap { from, to, count }),
        false => Err(anyhow!("it has no owners, or more than there are numbers")),
    }
}

impl EditArgs {
    /// The source with all edits, of which only those of `paths` are not among these options; `None` when there are none.
    pub(crate) fn apply(
        &self,
        source: &Arc<dyn FileSystem>,
        paths: &[OsString],
    ) -> Result<Option<Edited>> {
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
        let mut additions = Vec::new();
        for list in &self.add {
            let read = || -> Result<Vec<Addition>> { Ok(Addition::parse_list(&fs::read(list)?)?) };
            let name = || format!("read {}", text::of_host_path(list, "-"));
            additions.extend(read().with_context(name)?);
        }
        let root = self.all_root.then_some(0);
        let is_any = !(paths.is_empty() && exclude.is_empty() && additions.is_empty())
            || self.all_root
            || self.uid.is_some()
            || self.gid.is_some()
            || !(self.map_uids.is_empty() && self.map_gids.is_empty())
            || self.file_mode.is_some()
            || self.dir_mode.is_some()
            || self.all_time.is_some()
            || self.no_xattrs
            || !(self.xattrs.is_empty() && self.exclude_xattrs.is_empty());
        if !is_any {
            return Ok(None);
        }
        let edits = Edits {
            only: patterns(paths),
            exclude: Patterns::new(exclude),
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
        };
        Ok(Some(Edited::new(Arc::clone(source), edits)?))
    }
}
