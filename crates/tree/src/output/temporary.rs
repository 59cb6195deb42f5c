//! Names that exist only until a result is whole, and what removes them when it will not be.
//!
//! A result under construction that needs a name gets one that says so, `.NAME.restow-PID-N.tmp`, beside its
//! destination, and a place in one list per process. It leaves both by a rename to the final name, or by being
//! dropped, or by [`remove_all`], which a program calls when it is told to stop. Only `kill -9` and a power cut leave
//! such a name behind, and never the final one.

use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a file name on Linux file systems (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;

/// How often [`remove_all`] tries again while other threads still write into a directory that it removes.
const REMOVE_ATTEMPTS_MAX: u32 = 1000;

static REGISTRY: Registry = Registry::new();

/// Removes every unfinished result of this process, and lets none be finished or begun from now on: those attempts
/// fail with `Interrupted`. For a program that is about to end, from an ordinary thread (not a signal handler).
pub fn remove_all() {
    REGISTRY.remove_all();
}

/// Whether [`remove_all`] was called: long work ends early then.
pub fn is_stopping() -> bool {
    REGISTRY.stopping.load(Ordering::Relaxed)
}

/// Does `finish`, which makes a result visible under its final name, unless [`remove_all`] was called. Both exclude
/// each other.
pub(crate) fn finish<T>(finish: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let _live = REGISTRY.lock()?;
    finish()
}

/// A file or directory under a temporary name. Dropping it removes the file, or the directory with all that is in it.
#[derive(Debug)]
pub(crate) struct Temporary {
    registry: &'static Registry,
    place: Arc<Place>,
}

/// Where a temporary name is.
#[derive(Debug)]
struct Place {
    dir: Arc<OwnedFd>,
    name: Box<[u8]>,
}

impl Temporary {
    /// Lets `make` make something under a fresh name in `dir` that is derived from the name `final_name`. `make` must
    /// fail with `AlreadyExists` when the name is taken.
    pub(crate) fn create<T>(
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
                    live.push(Arc::clone(&place));
                    return Ok((Temporary { registry, place }, made));
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Lets `rename` give the result its final name; on success the temporary name is forgotten, on failure removed.
    pub(crate) fn finish<T>(self, rename: impl FnOnce(&[u8]) -> io::Result<T>) -> io::Result<T> {
        let mut live = self.registry.lock()?;
        let renamed = rename(&self.place.name)?;
        live.retain(|place| !Arc::ptr_eq(place, &self.place));
        Ok(renamed)
    }
}

impl Temporary {
    /// Lets `exchange` give the result its final name and what had that the temporary one, which is then removed.
    pub(crate) fn exchange(self, exchange: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let live = self.registry.lock()?;
        exchange(&self.place.name)?;
        drop(live);
        linux::remove_tree_at(&*self.place.dir, &self.place.name)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // When the list is closed, whoever closed it has removed this. When it was finished, it is not in the list.
        let Ok(mut live) = self.registry.lock() else {
            return;
        };
        let before = live.len();
        live.retain(|place| !Arc::ptr_eq(place, &self.place));
        if live.len() < before {
            drop(live);
            // There is nobody to tell: the error that led here is already on its way.
            let _ = linux::remove_tree_at(&*self.place.dir, &self.place.name);
        }
    }
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

/// The temporary names of a process.
#[derive(Debug)]
struct Registry {
    live: Mutex<Vec<Arc<Place>>>,
    stopping: AtomicBool,
}

impl Registry {
    const fn new() -> Registry {
        Registry {
            live: Mutex::new(Vec::new()),
            stopping: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> io::Result<MutexGuard<'_, Vec<Arc<Place>>>> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stopping.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(live)
    }

    fn remove_all(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        for place in live.drain(..) {
            for _ in 0..REMOVE_ATTEMPTS_MAX {
                match linux::remove_tree_at(&*place.dir, &place.name) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        std::thread::yield_now(); // someone is still writing into it
                    }
                    // Not found at the top means gone; deeper it means that someone else removed a part.
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
    }
}
