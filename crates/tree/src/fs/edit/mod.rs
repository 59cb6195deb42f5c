//! Edits a tree while it is copied: leaves files out, adds files, and changes owners, permissions
//! and times.
//!
//! Edits work for every source and every destination, because [`Edited`] is a [`FileSystem`] on top
//! of another one.

mod action;
mod contexts;
mod edits;
mod filter;
mod list;
mod mode;
mod pattern;
mod regex;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::discriminant;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

pub use action::{Action, PackingChoice};
pub use contexts::FileContexts;
pub use edits::{AdditionRules, Edits, IdMap, RootEdits, Selection};
pub use list::{Added, AddedContent, Addition, ListError, Priorities, Stats};
pub use mode::ModeChange;
pub use pattern::{PatternSyntax, Patterns};

use super::{
    Checksum, DevicePlace, DirEntry, Extent, ExtentKind, FileKind, FileSystem, HostContent,
    HostDir, HostTimes, Ino, Metadata, NOTHING_ENCODED, Overlay, Storage, Xattr,
};
use crate::{Error, Result, spool};
use action::{Effect, Subject};
use filter::Filtered;

/// A tree with edits.
///
/// An added file replaces an existing one, unless either is a directory. If its line has no time,
/// it gets that of the source's root. A directory must be listed or looked up before its contents.
pub struct Edited {
    /// The source, without excluded files and with the edits that apply to all files.
    filtered: Arc<Filtered>,
    /// The additions and changes.
    tree: Overlay<Option<AddedData>>,
    /// Host directories from which files are added.
    hosts: Vec<(PathBuf, HostDir)>,
    ignored: Vec<(Box<[u8]>, &'static str)>,
    /// The files for which actions choose how they are stored.
    packing: HashMap<Ino, PackingChoice>,
    /// The SELinux labels, as numbers in [`Edits::file_contexts`]; `None` where they stay.
    labels: HashMap<Ino, Option<usize>>,
}

/// An entry that got another name: both names.
pub type RenamedEntry = (Box<[u8]>, Box<[u8]>);

/// Sees a file of a tree: its directory, its entry and its path. Returns whether to go on below it.
type Visitor<'a> = dyn FnMut(&mut Edited, Ino, &DirEntry, &[u8]) -> Result<bool> + 'a;

/// Where the content of an added file is.
#[derive(Clone)]
enum AddedData {
    /// In a file of one of the host directories.
    Host { host: usize, ino: Ino },
    /// In a file, from this offset on.
    Part { file: Arc<File>, at: u64 },
}

/// Where the content of a file is.
enum Content<'a> {
    /// In a file of another tree.
    Tree(&'a dyn FileSystem, Ino),
    /// In a file, from this offset on.
    Part(&'a File, u64),
}

impl Edited {
    /// The tree `source` with these edits.
    ///
    /// # Errors
    /// [`Error::File`] for an addition whose directory does not exist, that replaces a directory or
    /// would replace a file by one, or that changes a file that does not exist; for a host file
    /// that is a directory or cannot be read; or for a command that fails or may not be run.
    pub fn new(mut source: Arc<dyn FileSystem>, mut edits: Edits) -> Result<Edited> {
        let mut packing = HashMap::new();
        if !edits.actions.is_empty() {
            let actions = std::mem::take(&mut edits.actions);
            let selected = Edits {
                selection: std::mem::take(&mut edits.selection),
                ..Edits::default()
            };
            let mut acted = Edited::new(source, selected)?;
            acted.act(&actions)?;
            packing = std::mem::take(&mut acted.packing);
            source = Arc::new(acted);
        }
        let mut additions = std::mem::take(&mut edits.additions);
        let filtered = Arc::new(Filtered::new(source, edits));
        let mut edited = Edited {
            tree: Overlay::over(Arc::<Filtered>::clone(&filtered)),
            filtered,
            hosts: Vec::new(),
            ignored: Vec::new(),
            packing,
            labels: HashMap::new(),
        };
        if edited.rules().yields {
            edited.order(&mut additions);
        }
        for Addition { path, what } in additions {
            edited
                .add(&path, what)
                .map_err(|error| error.in_file("add", &path))?;
        }
        if let Some(contexts) = edited.filtered.edits.file_contexts.clone() {
            edited.label(&contexts);
        }
        Ok(edited)
    }

    /// Finds the SELinux label of each file by its first path. A directory that cannot be listed is
    /// reported where the tree is walked.
    fn label(&mut self, contexts: &FileContexts) {
        let root = (self.root(), FileKind::Directory, Vec::new());
        let mut open = vec![root];
        while let Some((ino, kind, path)) = open.pop() {
            // In a damaged image, directories can contain themselves.
            if self.labels.contains_key(&ino) {
                continue;
            }
            self.labels.insert(ino, contexts.find(&path, kind));
            if kind == FileKind::Directory {
                let (entries, _) = self.tree.list_readable(ino);
                open.extend(entries.into_iter().rev().map(|entry| {
                    let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                    let path = [&path[..], slash, &entry.name].concat();
                    (entry.ino, entry.kind, path)
                }));
            }
        }
    }

    /// Does actions, in their stages: files are left out, changed, left out, then empty directories
    /// are left out, and at last attributes change.
    fn act(&mut self, actions: &[Action]) -> Result<()> {
        self.leave_out(actions, &Effect::Exclude)?;
        self.change_all(actions, Edited::change_by)?;
        self.leave_out(actions, &Effect::Prune)?;
        self.leave_out_empty(actions)?;
        let is_xattr =
            |it: &Action| matches!(it.effect, Effect::FilterXattrs(..) | Effect::AddXattr(_));
        if actions.iter().any(is_xattr) {
            self.change_all(actions, Edited::change_xattrs_by)?;
        }
        Ok(())
    }

    /// Changes all files.
    fn change_all(
        &mut self,
        actions: &[Action],
        change: fn(&mut Edited, &[Action], Ino, &[u8]) -> Result<()>,
    ) -> Result<()> {
        change(self, actions, self.root(), b"")?;
        self.visit(false, &mut |edited, _, entry, path| {
            change(edited, actions, entry.ino, path)?;
            Ok(true)
        })
    }

    /// Whether an action is for a file with this metadata.
    fn is_for(&self, action: &Action, ino: Ino, path: &[u8], metadata: &Metadata) -> Result<bool> {
        let mut metadata = metadata.clone();
        if self.tree.content(ino).is_some() {
            // Other names of the file may be left out already.
            metadata.nlink = self.filtered.metadata(ino)?.nlink;
        }
        action.is_for(&Subject {
            tree: self,
            ino,
            path,
            metadata: &metadata,
        })
    }

    /// Leaves out empty directories.
    fn leave_out_empty(&mut self, actions: &[Action]) -> Result<()> {
        if !(actions.iter()).any(|it| matches!(it.effect, Effect::Empty { .. })) {
            return Ok(());
        }
        self.visit(true, &mut |edited, dir, entry, path| {
            if entry.kind != FileKind::Directory || !edited.tree.is_empty(entry.ino)? {
                return Ok(true);
            }
            let was_empty = edited.filtered.is_empty_in_source(entry.ino)?;
            let metadata = edited.tree.metadata(entry.ino)?;
            for action in actions {
                if let Effect::Empty { source, excluded } = action.effect
                    && (if was_empty { source } else { excluded })
                    && edited.is_for(action, entry.ino, path, &metadata)?
                {
                    edited.tree.unlink(dir, &entry.name)?;
                    break;
                }
            }
            Ok(true)
        })
    }

    /// Leaves out the files of actions with this effect, with everything below them. As in
    /// mksquashfs, those to prune are looked for in directories before these themselves.
    fn leave_out(&mut self, actions: &[Action], effect: &Effect) -> Result<()> {
        let is_such = |it: &&Action| discriminant(&it.effect) == discriminant(effect);
        let actions: Vec<&Action> = actions.iter().filter(is_such).collect();
        if actions.is_empty() {
            return Ok(());
        }
        let last = matches!(effect, Effect::Prune);
        self.visit(last, &mut |edited, dir, entry, path| {
            let metadata = edited.tree.metadata(entry.ino)?;
            for action in &actions {
                if edited.is_for(action, entry.ino, path, &metadata)? {
                    edited.tree.unlink(dir, &entry.name)?;
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Changes a file by the actions for it, one after another.
    fn change_by(&mut self, actions: &[Action], ino: Ino, path: &[u8]) -> Result<()> {
        let before = self.tree.metadata(ino)?;
        let mut metadata = before.clone();
        for action in actions {
            if !self.is_for(action, ino, path, &metadata)? {
                continue;
            }
            match &action.effect {
                Effect::Mode(mode) if metadata.kind != FileKind::Symlink => {
                    let is_directory = metadata.kind == FileKind::Directory;
                    metadata.permissions = mode.apply(metadata.permissions, is_directory);
                }
                &Effect::Owner(uid, gid) => {
                    metadata.uid = uid.unwrap_or(metadata.uid);
                    metadata.gid = gid.unwrap_or(metadata.gid);
                }
                Effect::Pack(packing) if metadata.kind == FileKind::Regular => {
                    self.packing.entry(ino).or_default().change(packing);
                }
                _ => {}
            }
        }
        if metadata != before {
            self.tree.change(ino, |it| *it = metadata)?;
        }
        Ok(())
    }

    /// Changes the extended attributes of a file: those that are added stay.
    fn change_xattrs_by(&mut self, actions: &[Action], ino: Ino, path: &[u8]) -> Result<()> {
        let metadata = self.tree.metadata(ino)?;
        let mut added = Vec::new();
        for action in actions {
            match &action.effect {
                Effect::FilterXattrs(names, keeps)
                    if self.is_for(action, ino, path, &metadata)? =>
                {
                    for xattr in self.tree.xattrs(ino)? {
                        if names.matches(&xattr.name) != *keeps {
                            self.tree.remove_xattr(ino, &xattr.name)?;
                        }
                    }
                }
                Effect::AddXattr(xattr)
                    if xattr.fits(metadata.kind)
                        && self.is_for(action, ino, path, &metadata)? =>
                {
                    added.push(xattr.clone());
                }
                _ => {}
            }
        }
        (added.into_iter()).try_for_each(|xattr| self.tree.set_xattr(ino, xattr))
    }

    /// Shows all files but the root: directories before the files in them, or else `last`.
    fn visit(&mut self, last: bool, each: &mut Visitor<'_>) -> Result<()> {
        let root = self.root();
        let entries = self.tree.read_dir(root)?.into_iter();
        let mut open = vec![(root, None::<DirEntry>, Vec::new(), entries)];
        // In a damaged image, directories can contain themselves.
        let mut seen = HashSet::from([root]);
        while let Some((dir, _, path, entries)) = open.last_mut() {
            let Some(entry) = entries.next() else {
                let done = open.pop();
                if let (Some((_, Some(entry), path, _)), Some(&(above, ..)), true) =
                    (done, open.last(), last)
                {
                    self.show(above, &entry, &path, each)?;
                }
                continue;
            };
            let (dir, mut path) = (*dir, path.clone());
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
            let is_directory = entry.kind == FileKind::Directory;
            let goes_on = (is_directory && last) || self.show(dir, &entry, &path, each)?;
            if goes_on && is_directory {
                if !seen.insert(entry.ino) {
                    return Err(Error::Inconsistent("a directory has two names"));
                }
                let entries = self.tree.read_dir(entry.ino);
                let entries = entries.map_err(|error| error.in_file("read", &path))?;
                open.push((entry.ino, Some(entry), path, entries.into_iter()));
            }
        }
        Ok(())
    }

    fn show(
        &mut self,
        dir: Ino,
        entry: &DirEntry,
        path: &[u8],
        each: &mut Visitor<'_>,
    ) -> Result<bool> {
        each(self, dir, entry, path).map_err(|error| error.in_file("read", path))
    }

    /// The files for which actions choose how they are stored in a SquashFS image.
    pub fn packing(&self) -> &HashMap<Ino, PackingChoice> {
        &self.packing
    }

    /// The additions that were not made, and why.
    pub fn ignored(&self) -> &[(Box<[u8]>, &'static str)] {
        &self.ignored
    }

    /// Gives the entries of the root whose names are taken other names, such as `name_1`, and
    /// returns both names of each.
    ///
    /// # Errors
    /// The root cannot be read.
    pub fn rename_in_root(&mut self, taken: &HashSet<Box<[u8]>>) -> Result<Vec<RenamedEntry>> {
        let root = self.root();
        let names = self.tree.read_dir(root)?.into_iter();
        let (old, own): (Vec<Box<[u8]>>, Vec<_>) = names
            .map(|entry| entry.name)
            .partition(|name| taken.contains(name));
        let mut own: HashSet<Box<[u8]>> = own.into_iter().collect();
        let mut renamed = Vec::new();
        for name in old {
            let numbered = |number: u32| [&name, &b"_"[..], number.to_string().as_bytes()].concat();
            let is_free = |it: &Vec<u8>| !taken.contains(&**it) && !own.contains(&**it);
            let free = (1..).map(numbered).find(is_free);
            let free: Box<[u8]> = free.expect("names are fewer than numbers").into();
            self.tree.rename((root, &name), (root, &free))?;
            own.insert(free.clone());
            renamed.push((name, free));
        }
        Ok(renamed)
    }

    fn rules(&self) -> &AdditionRules {
        &self.filtered.edits.rules
    }

    /// Leaves the first addition of each path, behind those of the directories above it; then the
    /// links, whose files exist by then, and the attributes.
    fn order(&mut self, additions: &mut Vec<Addition>) {
        let mut seen = HashSet::new();
        additions.retain(|Addition { path, what }| {
            let is_first = matches!(what, Added::Xattr(_)) || seen.insert(path.clone());
            if !is_first {
                let why = "an earlier definition of the same path counts";
                self.ignored.push((path.clone(), why));
            }
            is_first
        });
        additions.sort_by_key(|Addition { path, what }| match what {
            Added::Xattr(_) => (2, 0),
            Added::Link(_) => (1, 0),
            _ => (0, path.iter().filter(|&&byte| byte == b'/').count()),
        });
    }

    fn add(&mut self, path: &[u8], what: Added) -> Result<()> {
        if path.is_empty() {
            return self.change(self.root(), what);
        }
        let (parent, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path),
        };
        let is_new = !matches!(what, Added::Change(_) | Added::Xattr(_));
        let dir = self.dir(parent, self.rules().parents.filter(|_| is_new))?;
        let there = self.tree.find(dir, name)?;
        if self.rules().yields {
            let why = match (there, &what) {
                (Some(_), _) if is_new => "a file of the source has this path, and stays",
                (None, Added::Change(_)) => "there is no such file to change",
                _ => "",
            };
            if !why.is_empty() {
                self.ignored.push((path.into(), why));
                return Ok(());
            }
        }
        let kind = match &what {
            Added::File { kind, .. } => *kind,
            Added::HostFile { .. } | Added::Regular { .. } | Added::Link(_) => FileKind::Regular,
            Added::Change(_) | Added::Xattr(_) => {
                let (there, _) = there.ok_or(Error::NotFound)?;
                return self.change(there, what);
            }
        };
        match there {
            Some((there, FileKind::Directory)) if kind == FileKind::Directory => {
                return self.change(there, what);
            }
            Some((_, FileKind::Directory)) => return Err(Error::IsADirectory),
            Some(_) if kind == FileKind::Directory => return Err(Error::NotADirectory),
            _ => {}
        }
        let ino = match what {
            Added::File {
                stats,
                rdev,
                target,
                ..
            } => {
                let mut metadata = self.metadata_of(kind, &stats)?;
                metadata.rdev = rdev;
                match kind {
                    FileKind::Symlink => self.tree.add_symlink(&metadata, &target, None)?,
                    _ => self.tree.add(&metadata, None)?,
                }
            }
            Added::HostFile { path, follows } if follows => {
                self.add_host_file(&path.canonicalize()?)?
            }
            Added::HostFile { path, .. } => self.add_host_file(&path)?,
            Added::Regular { stats, content } => {
                let mut metadata = self.metadata_of(kind, &stats)?;
                let (file, at, len) = self.open_content(content)?;
                metadata.size = len;
                self.tree
                    .add(&metadata, Some(AddedData::Part { file, at }))?
            }
            Added::Link(target) => {
                let names = target.split(|&byte| byte == b'/');
                match self.tree.resolve(names)? {
                    (_, FileKind::Directory) => return Err(Error::IsADirectory),
                    (target, _) => target,
                }
            }
            Added::Change(_) | Added::Xattr(_) => return Ok(()), // Done above.
        };
        self.tree.link(dir, name, ino)?;
        Ok(())
    }

    /// The directory with this path. With `missing`, the directories that do not exist are made.
    fn dir(&mut self, path: &[u8], missing: Option<Stats>) -> Result<Ino> {
        let mut dir = self.root();
        for name in path.split(|&byte| byte == b'/').filter(|it| !it.is_empty()) {
            dir = match (self.tree.find(dir, name)?, missing) {
                (Some((found, FileKind::Directory)), _) => found,
                (Some(_), _) => return Err(Error::NotADirectory),
                (None, None) => return Err(Error::NotFound),
                (None, Some(stats)) => {
                    let metadata = self.metadata_of(FileKind::Directory, &stats)?;
                    let made = self.tree.add(&metadata, None)?;
                    self.tree.link(dir, name, made)?;
                    made
                }
            };
        }
        Ok(dir)
    }

    /// The metadata of an added file.
    fn metadata_of(&self, kind: FileKind, stats: &Stats) -> Result<Metadata> {
        let mut metadata = Metadata::new(kind, stats.permissions);
        if stats.mtime.is_none() {
            metadata.mtime = self.filtered.metadata(self.root())?.mtime;
        }
        stats.apply(&mut metadata);
        self.edit(&mut metadata);
        Ok(metadata)
    }

    /// Applies the edits to the metadata of an added file.
    fn edit(&self, metadata: &mut Metadata) {
        if self.rules().are_edited {
            self.filtered.edit_metadata(metadata);
        } else {
            self.filtered.edit_times(metadata);
        }
    }

    fn change(&mut self, ino: Ino, what: Added) -> Result<()> {
        match what {
            Added::Change(stats) | Added::File { stats, .. } => {
                let mut metadata = self.tree.metadata(ino)?;
                stats.apply(&mut metadata);
                self.edit(&mut metadata);
                self.tree.change(ino, |changed| *changed = metadata)
            }
            Added::Xattr(xattr) => self.tree.set_xattr(ino, xattr),
            Added::HostFile { .. } | Added::Regular { .. } | Added::Link(_) => {
                Err(Error::IsADirectory)
            }
        }
    }

    /// Adds a host file, which has no name yet.
    fn add_host_file(&mut self, file: &Path) -> Result<Ino> {
        let (parent, name) = linux::split_path(file).ok_or(Error::IsADirectory)?;
        let host = match self.hosts.iter().position(|(known, _)| known == parent) {
            Some(host) => host,
            None => {
                let dir = HostDir::open_with(parent, HostTimes::Modification)?;
                self.hosts.push((parent.to_owned(), dir));
                self.hosts.len() - 1
            }
        };
        let dir = &self.hosts[host].1;
        let ino = dir.lookup(dir.root(), name)?.ino;
        let mut metadata = dir.metadata(ino)?;
        let xattrs = dir.xattrs(ino)?;
        let target = match metadata.kind {
            FileKind::Directory => {
                return Err(Error::InvalidInput("a directory on this host, not a file"));
            }
            FileKind::Symlink => Some(dir.read_link(ino)?),
            _ => None,
        };
        self.edit(&mut metadata);
        let added = match target {
            Some(target) => self.tree.add_symlink(&metadata, &target, None)?,
            None => (self.tree).add(&metadata, Some(AddedData::Host { host, ino }))?,
        };
        for xattr in xattrs {
            self.tree.set_xattr(added, xattr)?;
        }
        Ok(added)
    }

    /// The file with an added file's content, and where the content is in it. A command is run.
    fn open_content(&self, content: AddedContent) -> Result<(Arc<File>, u64, u64)> {
        match content {
            AddedContent::Command(command) => {
                let Some(dir) = &self.rules().commands else {
                    return Err(Error::InvalidInput(
                        "`f` would run a program, which is refused: create the file, and add it with `l`",
                    ));
                };
                let output = spool(|out| run(&command, out), dir)?;
                let len = output.metadata()?.len();
                Ok((Arc::new(output), 0, len))
            }
            AddedContent::Part { file, at, len } => {
                let file = file.ok_or(Error::InvalidInput("the list has no data"))?;
                let end = at.checked_add(len);
                if end.is_none_or(|end| file.metadata().is_ok_and(|file| end > file.len())) {
                    return Err(Error::InvalidInput(
                        "the data of the list ends before its own",
                    ));
                }
                Ok((file, at, len))
            }
        }
    }

    /// Where a file's content is.
    fn content(&self, file: Ino) -> Result<Content<'_>> {
        match self.tree.content(file) {
            Some(Some(AddedData::Host { host, ino })) => {
                return Ok(Content::Tree(&self.hosts[*host].1, *ino));
            }
            Some(Some(AddedData::Part { file, at })) => return Ok(Content::Part(file, *at)),
            _ => {}
        }
        if let Ok(source) = self.tree.base(file) {
            return Ok(Content::Tree(source, file));
        }
        match self.tree.metadata(file)?.kind {
            FileKind::Directory => Err(Error::IsADirectory),
            _ => Err(Error::InvalidInput("an added file has no content")),
        }
    }
}

/// Runs a shell command, and writes its output.
fn run(command: &[u8], out: &mut dyn io::Write) -> io::Result<u64> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(OsStr::from_bytes(command));
    let mut child = shell.stdout(Stdio::piped()).spawn()?;
    // Closed at the end of the statement, so that the command ends, too, when writing fails.
    let copied = (child.stdout.take()).map(|mut output| io::copy(&mut output, out));
    let status = child.wait()?;
    let bytes = copied.transpose()?.unwrap_or_default();
    if !status.success() {
        return Err(io::Error::other(format!("its command ended with {status}")));
    }
    Ok(bytes)
}

impl Stats {
    /// Sets these values.
    pub(crate) fn apply(&self, metadata: &mut Metadata) {
        metadata.permissions = self.permissions;
        metadata.uid = self.uid;
        metadata.gid = self.gid;
        metadata.mtime = self.mtime.unwrap_or(metadata.mtime);
    }
}

impl FileSystem for Edited {
    fn root(&self) -> Ino {
        self.tree.root()
    }

    fn storage(&self) -> Storage {
        // Added files are stored uncompressed and have no identities, unlike those of the source.
        self.filtered.storage()
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        self.tree.metadata(ino)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        self.tree.read_dir(dir)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        self.tree.read_dir_with_metadata(dir)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        self.tree.list_readable(dir)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        self.tree.lookup(dir, name)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        self.tree.read_link(link)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        let mut xattrs = self.tree.xattrs(ino)?;
        let added = &self.filtered.edits.xattrs_added;
        if !added.is_empty() {
            let kind = self.tree.metadata(ino)?.kind;
            for xattr in added {
                if xattr.fits(kind) {
                    xattrs.retain(|known| known.name != xattr.name);
                    xattrs.push(xattr.clone());
                }
            }
            xattrs.sort();
        }
        let contexts = self.filtered.edits.file_contexts.as_ref();
        if let (Some(contexts), Some(&Some(label))) = (contexts, self.labels.get(&ino)) {
            let label = contexts.label(label);
            xattrs.retain(|known| known.name != label.name);
            xattrs.push(label.clone());
            xattrs.sort();
        }
        Ok(xattrs)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        match self.content(file)? {
            Content::Tree(fs, ino) => fs.extents(ino, from),
            Content::Part(..) => {
                let size = self.tree.metadata(file)?.size;
                let extent = Extent {
                    offset: 0,
                    len: size,
                    kind: ExtentKind::Plain { stored_offset: 0 },
                    id: None,
                };
                Ok(Vec::from_iter((from < size).then_some(extent)))
            }
        }
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self.content(file)? {
            Content::Tree(fs, ino) => fs.read_at(ino, offset, buf),
            Content::Part(part, at) => {
                let rest = self.tree.metadata(file)?.size.saturating_sub(offset);
                let len = rest.min(buf.len() as u64) as usize;
                part.read_exact_at(&mut buf[..len], at + offset)?;
                Ok(len)
            }
        }
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        match self.content(file) {
            Ok(Content::Tree(fs, ino)) => fs.read_encoded(ino, extent, stored),
            _ => Err(NOTHING_ENCODED),
        }
    }

    fn host_content(&self, file: Ino) -> Option<HostContent<'_>> {
        match self.content(file).ok()? {
            Content::Tree(fs, ino) => fs.host_content(ino),
            Content::Part(..) => None,
        }
    }

    fn stored_at(&self, file: Ino, extent: &Extent) -> Option<DevicePlace> {
        match self.content(file).ok()? {
            Content::Tree(fs, ino) => fs.stored_at(ino, extent),
            Content::Part(..) => None,
        }
    }
}
