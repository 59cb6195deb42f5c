//! Temporary directories.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, io, process};

/// A temporary directory, removed with its contents on drop.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Creates an empty directory in the system's temporary directory (`TMPDIR`).
    ///
    /// # Panics
    ///
    /// If it cannot be created.
    #[expect(clippy::new_without_default, reason = "it touches the disk")]
    pub fn new() -> TempDir {
        TempDir::new_in(&env::temp_dir())
            .unwrap_or_else(|error| panic!("create a temporary directory: {error}"))
    }

    /// Creates an empty directory in a file system that holds files of 8 EB, the largest of Linux;
    /// `None`, with a note, if there is none.
    pub fn for_huge_files() -> Option<TempDir> {
        let dir = TempDir::new_in(Path::new("/dev/shm")).ok();
        let fits = dir.filter(|dir| {
            let probe = dir.join("probe");
            let made = fs::File::create(&probe).and_then(|file| file.set_len(i64::MAX as u64));
            fs::remove_file(probe).is_ok() && made.is_ok()
        });
        if fits.is_none() {
            crate::skip("/dev/shm holds no files of 8 EB");
        }
        fits
    }

    /// Creates an empty directory in this one.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new_in(parent: &Path) -> io::Result<TempDir> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("restow-test-{}-{count}", process::id());
            let path = parent.join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(TempDir { path }),
                // Left behind by a killed process with the same process ID.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of `name` in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // Directories that deny access to their owner are opened up. Files owned by others are left
        // for the system to clean up.
        let Some((parent, name)) = linux::split_path(&self.path) else {
            return;
        };
        let _ = linux::open_dir(parent).and_then(|parent| linux::remove_tree_at(parent, name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_goes_with_its_content() {
        let (first, second) = (TempDir::new(), TempDir::new());
        assert_ne!(first.path(), second.path());
        fs::create_dir(first.join("a")).unwrap();
        fs::write(first.join("a/b"), "content").unwrap();
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
        assert!(second.path().is_dir());
    }
}
