//! A directory for data and images, and processes in it.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::settings::Settings;

/// The largest file of a tree that is put together here.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A directory that is removed, and file systems in it that are unmounted.
pub(super) struct Work {
    pub(super) dir: PathBuf,
    pub(super) restow: PathBuf,
}

impl Work {
    pub(super) fn new(settings: &Settings) -> Result<Work, String> {
        let memory = Path::new("/dev/shm");
        let base = match &settings.dir {
            Some(dir) => dir.clone(),
            None if memory.is_dir() => memory.to_owned(),
            None => std::env::temp_dir(),
        };
        let dir = base.join(format!("restow-tables-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| format!("create {}: {error}", dir.display()))?;
        let bench = std::env::current_exe().map_err(|error| error.to_string())?;
        Ok(Work {
            dir,
            restow: bench.with_file_name("restow"),
        })
    }

    /// The number of CPUs, which everybody uses.
    pub(super) fn threads(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// Makes a directory.
    pub(super) fn make(&self, name: &str) -> Result<String, String> {
        let path = self.path(name);
        fs::create_dir_all(&path).map_err(|error| format!("create {path}: {error}"))?;
        Ok(path)
    }

    /// The directory that was named, or a part of this system's /usr: the files whose paths have the least hashes; and a
    /// sentence about it.
    pub(super) fn tree(
        &self,
        settings: &Settings,
        usual: usize,
    ) -> Result<(String, String), String> {
        if let [path] = &settings.corpus[..] {
            let path = settings.corpora.join(path);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let tree = path.display().to_string();
            let bytes = self.bytes_of(&tree)?;
            return Ok((tree, format!("the directory {name}, {bytes} bytes")));
        }
        let mut files = Vec::new();
        for dir in ["/usr/bin", "/usr/lib", "/usr/sbin", "/usr/share"] {
            list(Path::new(dir), &mut files);
        }
        files.sort_unstable();
        let (mut bytes, mut count) = (0, 0);
        let wanted = settings.bytes_or(usual);
        let tree = self.make("tree")?;
        for (_, path, len) in files {
            if bytes + len > wanted {
                continue;
            }
            let to = Path::new(&tree).join(path.strip_prefix("/").unwrap_or(&path));
            let copied = to.parent().map_or(Ok(()), fs::create_dir_all);
            if copied.and_then(|()| fs::copy(&path, &to)).is_ok() {
                bytes += len;
                count += 1;
            }
        }
        Ok((
            tree,
            format!("a part of this system's /usr, {count} files, {bytes} bytes"),
        ))
    }

    /// What du -b says.
    pub(super) fn bytes_of(&self, tree: &str) -> Result<u64, String> {
        number(&run("du", &["-sb", tree])?)
    }

    /// What df says is used.
    pub(super) fn used(&self, mounted: &str) -> Result<u64, String> {
        let said = run("df", &["-B1", "--output=used", mounted])?;
        number(said.lines().nth(1).unwrap_or_default())
    }

    /// Reads a tree through tar; returns the length of the archive.
    pub(super) fn tar_bytes(&self, tree: &str) -> Result<u64, String> {
        let script = "tar -cf - -C \"$0\" . | wc -c";
        number(&run("sh", &["-c", script, tree])?)
    }

    /// Makes an empty file system of btrfs in a file.
    pub(super) fn mkfs_btrfs(&self, image: &str, bytes: u64) -> Result<(), String> {
        let _ = fs::remove_file(image);
        run("truncate", &["-s", &bytes.to_string(), image])?;
        run("mkfs.btrfs", &["-q", image]).map(drop)
    }

    /// Mounts an image with Linux.
    pub(super) fn mount(
        &self,
        kind: &str,
        options: &str,
        image: &str,
        point: &str,
    ) -> Result<(), String> {
        run(
            "mount",
            &["-t", kind, "-o", &format!("loop,{options}"), image, point],
        )
        .map(drop)
    }

    /// Makes a btrfs image with restow, every extent compressed, and waits until it is on disk.
    pub(super) fn btrfs_image(
        &self,
        compress: &str,
        source: &str,
        image: &str,
    ) -> Result<(), String> {
        let (_, threads) = (fs::remove_file(image), self.threads().to_string());
        let how = ["-q", "-j", &threads, "--compress", compress];
        let what = ["--compress-force", "--no-duplicates", source, image];
        output(Command::new(&self.restow).arg("copy").args(how).args(what))?;
        run("sync", &["-f", image]).map(drop)
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<String, String> {
        let path = self.path(name);
        fs::write(&path, bytes).map_err(|error| format!("write {path}: {error}"))?;
        Ok(path)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for line in mounts.lines().rev() {
            if let Some(point) = line.split(' ').nth(1)
                && Path::new(point).starts_with(&self.dir)
            {
                let _ = run("umount", &["-l", point]);
            }
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The regular files below a directory of at most 16 MiB: hash of the path, path, length.
fn list(dir: &Path, files: &mut Vec<(u64, PathBuf, usize)>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => list(&path, files),
            Ok(metadata) if metadata.is_file() && metadata.len() <= FILE_BYTES_MAX => {
                let hash = xxhash::xxh64(path.as_os_str().as_bytes(), 0);
                files.push((hash, path, metadata.len() as usize));
            }
            _ => {}
        }
    }
}

/// The number that a text begins with.
fn number(text: &str) -> Result<u64, String> {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.parse().map_err(|_| format!("{text} is no number"))
}

/// Runs a program and returns what it prints.
pub(super) fn run(program: impl AsRef<Path>, args: &[&str]) -> Result<String, String> {
    output(Command::new(program.as_ref()).args(args))
}

/// Runs a command and returns what it prints.
pub(super) fn output(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("run {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{command:?}: {}: {said}", output.status))
}
