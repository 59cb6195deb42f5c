//! The times of directories, which change whenever a name in them does.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use linux::Timestamp;
use tree::Result;

/// The most directories whose times are to be set again.
const TOUCHED_MAX: usize = 16;

/// Directories whose names were changed, with the times that the stream gave them.
#[derive(Default)]
pub(super) struct Touched(Vec<TouchedDirectory>);

struct TouchedDirectory {
    ino: u64,
    dir: Rc<OwnedFd>,
    times: Times,
}

/// Access and modification time.
pub(super) type Times = (Timestamp, Timestamp);

impl Touched {
    /// Remembers the times of a directory before a name in it changes.
    pub(super) fn touch(&mut self, dir: &Rc<OwnedFd>) -> Result<()> {
        if self.0.iter().any(|known| Rc::ptr_eq(&known.dir, dir)) {
            return Ok(());
        }
        let stat = linux::stat(&**dir)?;
        if self.0.iter().any(|known| known.ino == stat.ino) {
            return Ok(());
        }
        if self.0.len() >= TOUCHED_MAX {
            self.0.remove(0).settle()?;
        }
        self.0.push(TouchedDirectory {
            ino: stat.ino,
            dir: Rc::clone(dir),
            times: (stat.atime, stat.mtime),
        });
        Ok(())
    }

    /// Notes that the stream gives a directory other times.
    pub(super) fn set(&mut self, ino: u64, times: Times) {
        if let Some(known) = self.0.iter_mut().find(|known| known.ino == ino) {
            known.times = times;
        }
    }

    /// Sets the times of all directories.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.0.drain(..).try_for_each(TouchedDirectory::settle)
    }
}

impl TouchedDirectory {
    fn settle(self) -> Result<()> {
        let (atime, mtime) = self.times;
        match linux::set_times_at(&*self.dir, b".", Some(atime), mtime) {
            // It was removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            set => Ok(set?),
        }
    }
}
