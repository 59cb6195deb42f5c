//! Temporary names for unfinished results, and their removal if a result is never finished.
//!
//! An unfinished result that needs a name gets `.NAME.restow-PID-N.tmp`, next to its destination,
//! and an entry in the process's list. Both end when it is renamed to its final name, dropped, or
//! removed by [`remove_all`], which a program calls when it is asked to stop. Only `kill -9` and a
//! power cut leave a temporary name behind, which is removed when the next result with the same
//! final name is begun; the final name never shows an unfinished result.
//!
//! A process holds a lock on each of its temporary files and directories. An unlocked one whose
//! process is gone, and which belongs to this user, is a leftover.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linux::OpenFlags;

/// Maximum length of a file name on Linux file systems (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;

/// How temporary names end, names of what is kept though it is not finished, and names of
/// directories that are moved aside to be replaced. All are as long.
const ENDING: &[u8] = b".tmp";
const ENDING_KEPT: &[u8] = b".err";
const ENDING_ASIDE: &[u8] = b".old";

/// Names that are left behind and removed at once; more are left to the next result.
const LEFTOVERS_MAX: usize = 64;

/// How often [`remove_all`] retries while other threads still write into a directory that it
/// removes.
const REMOVE_ATTEMPTS_MAX: u32 = 1000;

static REGISTRY: Registry = Registry::new();

/// Removes every unfinished result of this process, empties files that are written over, and
/// prevents further ones: starting or finishing a result now fails with `Interrupted`. Call it when
/// the program is about to exit, from an ordinary thread (not a signal handler).
pub fn remove_all() {
    REGISTRY.remove_all();
}

/// Whether [`remove_all`] was called. Long operations then end early.
pub fn is_stopping() -> bool {
    REGISTRY.stopping.load(Ordering::Relaxed)
}

/// Runs `finish`, which makes a result visible under its final name or changes a file that is
/// written over, unless [`remove_all`] was called. The two never run at the same time.
pub(crate) fn finish<T>(finish: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let _live = REGISTRY.lock()?;
    finish()
}

/// An existing file that is written over. Unless it is finished, it ends as zeros of its old
/// length.
#[derive(Debug)]
pub(super) struct Overwriting(Arc<OldFile>);

#[derive(Debug)]
struct OldFile {
    file: File,
    bytes: u64,
}

impl OldFile {
    fn empty(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.set_len(self.bytes)
    }
}

impl Overwriting {
    /// Empties a file. Only [`finish`] may write to it.
    pub(super) fn begin(file: File) -> io::Result<Overwriting> {
        let bytes = file.metadata()?.len();
        let mut live = REGISTRY.lock()?;
        file.set_len(0)?;
        let old = Arc::new(OldFile { file, bytes });
        live.files.push(Arc::clone(&old));
        Ok(Overwriting(old))
    }

    /// The file stays as it is now.
    pub(super) fn finish(self) -> io::Result<()> {
        let mut live = REGISTRY.lock()?;
        live.files.retain(|file| !Arc::ptr_eq(file, &self.0));
        Ok(())
    }
}

impl Drop for Overwriting {
    fn drop(&mut self) {
        // If the list is closed, the file is empty already.
        let Ok(mut live) = REGISTRY.lock() else {
            return;
        };
        let before = live.files.len();
        live.files.retain(|file| !Arc::ptr_eq(file, &self.0));
        if live.files.len() < before {
            let _ = self.0.empty();
        }
    }
}

/// Lets [`remove_all`] call `action`, as long as the value is not dropped: for an unfinished result
/// that is not on this machine. It must not take long.
pub fn on_stop(action: impl FnOnce() + Send + 'static) -> OnStop {
    let action: Arc<Mutex<Option<StopAction>>> = Arc::new(Mutex::new(Some(Box::new(action))));
    // If the list is closed, the result cannot be finished either.
    if let Ok(mut live) = REGISTRY.lock() {
        live.actions.push(Arc::clone(&action));
    }
    OnStop(action)
}

type StopAction = Box<dyn FnOnce() + Send>;

/// An action of [`on_stop`].
pub struct OnStop(Arc<Mutex<Option<StopAction>>>);

impl Drop for OnStop {
    fn drop(&mut self) {
        if let Ok(mut live) = REGISTRY.lock() {
            live.actions.retain(|action| !Arc::ptr_eq(action, &self.0));
        }
    }
}

/// A file or directory under a temporary name. Dropping it removes the file, or the directory with
/// its contents.
#[derive(Debug)]
pub struct Temporary {
    registry: &'static Registry,
    place: Arc<Place>,
    /// Shows other processes that this one still works on it.
    _lock: Option<File>,
}

/// Where a temporary name is.
#[derive(Debug)]
struct Place {
    dir: Arc<OwnedFd>,
    name: Box<[u8]>,
}

impl Place {
    /// Removes the file or directory with that name, with everything in it.
    fn remove(&self) -> io::Result<()> {
        // A subvolume of btrfs can hold files that cannot be removed one by one: immutable ones.
        match linux::delete_subvolume(&*self.dir, &self.name) {
            Ok(()) => Ok(()),
            Err(_) => linux::remove_tree_at(&*self.dir, &self.name).map(drop),
        }
    }
}

impl Temporary {
    /// Calls `make` with a fresh name in `dir`, derived from `final_name`. `make` must fail with
    /// `AlreadyExists` if the name is taken.
    ///
    /// # Errors
    /// The error of `make`; `Interrupted` after [`remove_all`].
    pub fn create<T>(
        dir: &Arc<OwnedFd>,
        final_name: &[u8],
        make: impl FnMut(&OwnedFd, &[u8]) -> io::Result<T>,
    ) -> io::Result<(Temporary, T)> {
        Self::create_in(&REGISTRY, dir, final_name, make)
    }

    fn create_in<T>(
        registry: &'static Registry,
        dir: &Arc<OwnedFd>,
        final_name: &[u8],
        mut make: impl FnMut(&OwnedFd, &[u8]) -> io::Result<T>,
    ) -> io::Result<(Temporary, T)> {
        remove_leftovers(dir, final_name);
        let mut live = registry.lock()?;
        for count in 0.. {
            let name = temporary_name(final_name, count);
            match make(dir, &name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(made) => {
                    let place = Arc::new(Place {
                        dir: Arc::clone(dir),
                        name: name.into(),
                    });
                    live.names.push(Arc::clone(&place));
                    let temporary = Temporary {
                        registry,
                        _lock: locked(&place.dir, &place.name),
                        place,
                    };
                    return Ok((temporary, made));
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Its name in its directory.
    pub fn name(&self) -> &[u8] {
        &self.place.name
    }

    /// Leaves the result as it is, and returns its name: the temporary one with another ending, so
    /// that no later result removes it.
    ///
    /// # Errors
    /// The kernel's error; `Interrupted` after [`remove_all`].
    pub fn keep(self) -> io::Result<Vec<u8>> {
        let kept = with_ending(self.name(), ENDING_KEPT);
        let dir = Arc::clone(&self.place.dir);
        self.finish(|name| linux::rename_new_at(&dir, name, &dir, &kept))?;
        Ok(kept)
    }

    /// Calls `rename` to give the result its final name. On failure, the temporary file is removed.
    ///
    /// # Errors
    /// The error of `rename`; `Interrupted` after [`remove_all`].
    pub fn finish<T>(self, rename: impl FnOnce(&[u8]) -> io::Result<T>) -> io::Result<T> {
        let mut live = self.registry.lock()?;
        let renamed = rename(&self.place.name)?;
        live.names.retain(|place| !Arc::ptr_eq(place, &self.place));
        Ok(renamed)
    }
}

impl Temporary {
    /// Calls `exchange` to swap the result with the file of its final name, which is then removed.
    /// Returns the number of names removed.
    pub(crate) fn exchange(
        self,
        exchange: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> io::Result<u64> {
        let live = self.registry.lock()?;
        exchange(&self.place.name)?;
        drop(live);
        linux::remove_tree_at(&*self.place.dir, &self.place.name).map_err(|error| {
            let name = self.place.name.escape_ascii();
            let words = format!("the old one, renamed to {name}, cannot be deleted: {error}");
            io::Error::new(error.kind(), words)
        })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // If the list is closed, whoever closed it has removed this. If this was finished, it is
        // not in the list.
        let Ok(mut live) = self.registry.lock() else {
            return;
        };
        let before = live.names.len();
        live.names.retain(|place| !Arc::ptr_eq(place, &self.place));
        if live.names.len() < before {
            drop(live);
            // This error cannot be reported: the error that led here is already on its way.
            let _ = self.place.remove();
        }
    }
}

/// The file or directory with this name, locked; `None` if it cannot be read, or someone else has
/// locked it.
fn locked(dir: &OwnedFd, name: &[u8]) -> Option<File> {
    let flags = OpenFlags::RDONLY | OpenFlags::NOFOLLOW | OpenFlags::NONBLOCK;
    let file = File::from(linux::open_at(dir, name, flags, 0).ok()?);
    file.try_lock().is_ok().then_some(file)
}

/// The same if it belongs to this user.
fn abandoned(dir: &OwnedFd, name: &[u8]) -> Option<File> {
    let owner = |file: &File| linux::stat(file).ok().map(|stat| stat.uid);
    locked(dir, name).filter(|file| owner(file) == Some(linux::process_owner().0))
}

/// The names with this ending that killed processes left behind for results with this name.
fn leftovers(dir: &OwnedFd, final_name: &[u8], ending: &[u8]) -> Vec<Box<[u8]>> {
    let mut found = Vec::new();
    // `dir` may be open for looking up names only.
    let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
    let Ok(listed) = linux::open_at(dir, b".", flags, 0) else {
        return found;
    };
    // Names that cannot be listed stay.
    let _ = linux::for_each_name(&listed, |name| {
        let name = name.to_bytes();
        if found.len() < LEFTOVERS_MAX && process_of(name, final_name, ending).is_some_and(is_gone)
        {
            found.push(Box::from(name));
        }
        Ok::<_, io::Error>(())
    });
    found
}

/// Removes the leftovers of killed processes from results with this name, but for those whose
/// replacement of a directory has to be taken back first.
fn remove_leftovers(dir: &Arc<OwnedFd>, final_name: &[u8]) {
    for name in leftovers(dir, final_name, ENDING) {
        if linux::stat_at(&**dir, &aside(&name)).is_ok() {
            continue;
        }
        let lock = abandoned(dir, &name);
        let dir = Arc::clone(dir);
        if lock.is_some() {
            // A file that cannot be removed stays, too: the new result gets another name.
            let _ = Place { dir, name }.remove();
        }
    }
}

/// The name to which a directory is moved that the result with a temporary name replaces.
pub(crate) fn aside(temporary: &[u8]) -> Vec<u8> {
    with_ending(temporary, ENDING_ASIDE)
}

/// A directory that a killed process moved aside, as a whole or in part, to replace it.
pub(crate) struct MovedAside {
    pub(crate) name: Box<[u8]>,
    pub(crate) dir: OwnedFd,
    /// The name of the replacement, if that has not taken the place of the directory.
    pub(crate) replacement: Option<Vec<u8>>,
    _lock: Option<File>,
}

/// The directories that were moved aside for results with this name, if no process works on them.
pub(crate) fn moved_aside(dir: &OwnedFd, final_name: &[u8]) -> Vec<MovedAside> {
    let names = leftovers(dir, final_name, ENDING_ASIDE).into_iter();
    let found = names.filter_map(|name| {
        let temporary = with_ending(&name, ENDING);
        let is_there = linux::stat_at(dir, &temporary).is_ok();
        let lock = abandoned(dir, &temporary);
        (lock.is_some() == is_there).then_some(())?;
        Some(MovedAside {
            dir: abandoned(dir, &name)?.into(),
            name,
            replacement: is_there.then_some(temporary),
            _lock: lock,
        })
    });
    found.collect()
}

/// A temporary name with another ending.
fn with_ending(name: &[u8], ending: &[u8]) -> Vec<u8> {
    let len = name.len().saturating_sub(ending.len());
    [&name[..len], ending].concat()
}

/// The process that a name of `final_name` with this ending belongs to. Those of very long names
/// are cut and not recognised.
fn process_of(name: &[u8], final_name: &[u8], ending: &[u8]) -> Option<u32> {
    let rest = name.strip_prefix(b".")?.strip_prefix(final_name)?;
    let numbers = rest.strip_prefix(b".restow-")?.strip_suffix(ending)?;
    let (process, count) = str::from_utf8(numbers).ok()?.split_once('-')?;
    count.parse::<u64>().ok()?;
    process.parse().ok()
}

fn is_gone(process: u32) -> bool {
    !Path::new(&format!("/proc/{process}")).exists()
}

fn temporary_name(final_name: &[u8], count: u64) -> Vec<u8> {
    let mut tail = String::new();
    // Writing to a string cannot fail.
    let _ = write!(tail, ".restow-{}-{count}.tmp", std::process::id());
    let room = NAME_BYTES_MAX - 1 - tail.len();
    let mut name = vec![b'.'];
    name.extend_from_slice(final_name.get(..room).unwrap_or(final_name));
    name.extend_from_slice(tail.as_bytes());
    name
}

/// The unfinished results of a process.
struct Unfinished {
    names: Vec<Arc<Place>>,
    files: Vec<Arc<OldFile>>,
    actions: Vec<Arc<Mutex<Option<StopAction>>>>,
}

struct Registry {
    live: Mutex<Unfinished>,
    stopping: AtomicBool,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registry")
    }
}

impl Registry {
    const fn new() -> Registry {
        Registry {
            live: Mutex::new(Unfinished {
                names: Vec::new(),
                files: Vec::new(),
                actions: Vec::new(),
            }),
            stopping: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> io::Result<MutexGuard<'_, Unfinished>> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stopping.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(live)
    }

    fn remove_all(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        for file in live.files.drain(..) {
            // This error cannot be reported: the program ends.
            let _ = file.empty();
        }
        for action in live.actions.drain(..) {
            let action = action.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(action) = action {
                action();
            }
        }
        for place in live.names.drain(..) {
            for _ in 0..REMOVE_ATTEMPTS_MAX {
                match place.remove() {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        std::thread::yield_now(); // someone is still writing into it
                    }
                    // Not found at the top means that it is gone; below the top, someone else
                    // removed a part.
                    _ if linux::stat_at(&*place.dir, &place.name).is_err() => break,
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_recognisable_and_never_too_long() {
        let name = temporary_name(b"out.tar", 3);
        assert!(name.starts_with(b".out.tar.restow-") && name.ends_with(b"-3.tmp"));
        assert_eq!(temporary_name(&[b'x'; 255], u64::MAX).len(), 255);
        assert_eq!(
            process_of(&name, b"out.tar", ENDING),
            Some(std::process::id())
        );
        assert_eq!(process_of(&name, b"out", ENDING), None);
        assert_eq!(process_of(b".a.restow-1-2.tmp", b"a", ENDING), Some(1));
        for other in [
            "a",
            ".a.restow-1.tmp",
            ".a.restow-x-2.tmp",
            ".a.restow-1-x.tmp",
            ".a.restow-1-2",
            ".a.restow-1-2.err",
        ] {
            assert_eq!(process_of(other.as_bytes(), b"a", ENDING), None, "{other}");
        }
    }

    /// No process has a number above 2^22.
    #[test]
    fn what_was_left_behind_is_removed_and_nothing_else() {
        let temp = testkit::TempDir::new();
        let dir = Arc::new(linux::open_dir(temp.path()).unwrap());
        let make = |name: &str| {
            std::fs::create_dir(temp.join(name)).unwrap();
            std::fs::write(temp.join(name).join("file"), "x").unwrap();
        };
        make(".out.restow-999999999-0.tmp");
        std::fs::write(temp.join(".out.restow-999999999-1.tmp"), "x").unwrap();
        let kept = [
            ".other.restow-999999999-0.tmp",
            ".out.restow-1-0.tmp",
            ".out.restow-999999998-0.tmp",
            ".out.restow-999999997-0.tmp",
        ];
        kept[..3].iter().for_each(|name| make(name));
        std::os::unix::fs::symlink(".", temp.join(kept[3])).unwrap();
        let held = File::open(temp.join(kept[2])).unwrap();
        held.lock().unwrap();
        let mkdir = |dir: &OwnedFd, name: &[u8]| linux::make_dir_at(dir, name, 0o700);
        let (temporary, ()) = Temporary::create(&dir, b"out", mkdir).unwrap();
        let own = String::from_utf8(temporary.name().to_vec()).unwrap();
        let names = || {
            let names = std::fs::read_dir(temp.path()).unwrap();
            let mut names: Vec<_> = names
                .map(|it| it.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let mut expected: Vec<String> = kept.iter().map(|&name| name.into()).collect();
        expected.push(own.clone());
        expected.sort();
        assert_eq!(names(), expected);
        // Another one beside it does not remove the first.
        let (second, ()) = Temporary::create(&dir, b"out", mkdir).unwrap();
        assert!(names().contains(&own));
        drop((temporary, second));
        assert_eq!(names().len(), kept.len());
    }
}
