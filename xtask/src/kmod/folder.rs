//! Folders of a build: `make` in them, and their files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// `make` in a folder, with as many jobs as there are processors.
pub(super) fn make(folder: &Path) -> Command {
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new("make");
    command.arg(format!("--jobs={jobs}")).arg("-C").arg(folder);
    // Those of the cargo that runs us mean something else there.
    for variable in ["MAKEFLAGS", "MFLAGS", "RUSTFLAGS"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// The names and paths of the files of a folder, sorted.
pub(super) fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let failed = |error| format!("read {}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_file() {
            let name = path.file_name().unwrap_or_default();
            files.push((name.to_string_lossy().into_owned(), path));
        }
    }
    files.sort();
    Ok(files)
}
