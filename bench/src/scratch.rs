//! A scratch directory for data, images and mounts, and processes in it.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::options::{Options, file_name};

/// The largest file of a tree that is put together here.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A directory that is removed at the end, with everything that is mounted in it.
pub(crate) struct ScratchDir {
    pub(crate) dir: PathBuf,
    pub(crate) restow: PathBuf,
}

impl ScratchDir {
    /// Makes a directory where `--dir` or TMPDIR says, or in memory if there is a /dev/shm. Our
    /// program was built beside this one.
    pub(crate) fn new(options: &Options) -> Result<ScratchDir, String> {
        let bench = std::env::current_exe().map_err(|error| error.to_string())?;
        let restow = bench.with_file_name("restow");
        if !restow.is_file() {
            let build = "build it first: cargo build --release -p restow-cli";
            return Err(format!("{}: {build}", restow.display()));
        }
        let memory = Path::new("/dev/shm");
        let base = match &options.dir {
            Some(dir) => dir.clone(),
            None if std::env::var_os("TMPDIR").is_none() && memory.is_dir() => memory.to_owned(),
            None => std::env::temp_dir(),
        };
        let dir = base.join(format!("restow-bench-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| format!("create {}: {error}", dir.display()))?;
        Ok(ScratchDir { dir, restow })
    }

    /// The path of a name in the directory.
    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Makes a directory.
    pub(crate) fn make(&self, name: &str) -> Result<String, String> {
        let path = self.path(name);
        fs::create_dir_all(&path).map_err(|error| format!("create {path}: {error}"))?;
        Ok(path)
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<String, String> {
        let path = self.path(name);
        fs::write(&path, bytes).map_err(|error| format!("write {path}: {error}"))?;
        Ok(path)
    }

    /// The named directory, or a part of this system's /usr: the files whose paths have the least
    /// hashes; and a description.
    pub(crate) fn tree(&self, options: &Options, usual: usize) -> Result<(String, String), String> {
        if let [path] = &options.paths().collect::<Vec<_>>()[..] {
            let tree = path.display().to_string();
            let bytes = bytes_of(&tree)?;
            return Ok((
                tree,
                format!("the directory {}, {bytes} bytes", file_name(path)),
            ));
        }
        let mut files = Vec::new();
        for dir in ["/usr/bin", "/usr/lib", "/usr/sbin", "/usr/share"] {
            list(Path::new(dir), &mut files);
        }
        files.sort_unstable();
        let (mut bytes, mut count) = (0, 0);
        let wanted = options.bytes_or(usual);
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
        let said = format!("a part of this system's /usr, {count} files, {bytes} bytes");
        Ok((tree, said))
    }

    /// Compares a tree with an image or a directory. Times are left out: SquashFS has them in
    /// seconds, and an archive may have none of its root.
    pub(crate) fn verify(&self, tree: &str, image: &str) -> Result<(), String> {
        let args = ["diff", "-q", "--ignore", "mtime", tree, image];
        run(&self.restow, &args).map(drop)
    }

    /// Makes an empty file system of btrfs in a file.
    pub(crate) fn mkfs_btrfs(&self, image: &str, bytes: u64) -> Result<(), String> {
        let _ = fs::remove_file(image);
        run("truncate", &["-s", &bytes.to_string(), image])?;
        run("mkfs.btrfs", &["-q", image]).map(drop)
    }

    /// Makes a btrfs image with restow, every extent compressed, and waits until it is on disk.
    pub(crate) fn btrfs_image(&self, codec: &str, source: &str, image: &str) -> Result<(), String> {
        let (_, threads) = (fs::remove_file(image), threads().to_string());
        let how = ["copy", "-q", "-j", &threads, "--compress", codec];
        let what = ["--compress-force", "--no-duplicates", source, image];
        run(&self.restow, &[&how[..], &what].concat())?;
        run("sync", &["-f", image]).map(drop)
    }
}

impl Drop for ScratchDir {
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

/// The number of CPUs, all of which every program uses.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The size of a tree by `du -b`.
pub(crate) fn bytes_of(tree: &str) -> Result<u64, String> {
    number(&run("du", &["-sb", tree])?)
}

/// The used bytes of a file system by `df`.
pub(crate) fn used(mounted: &str) -> Result<u64, String> {
    let said = run("df", &["-B1", "--output=used", mounted])?;
    number(said.lines().nth(1).unwrap_or_default())
}

/// Reads a tree through tar; returns the length of the archive.
pub(crate) fn tar_bytes(tree: &str) -> Result<u64, String> {
    let script = "tar -cf - -C \"$0\" . | wc -c";
    number(&run("sh", &["-c", script, tree])?)
}

/// Reads a tree through tar, whose archive must have the given length.
pub(crate) fn read_tar(tree: &str, expected: u64) -> Result<(), String> {
    match tar_bytes(tree)? {
        bytes if bytes == expected => Ok(()),
        bytes => Err(format!(
            "tar reads {bytes} bytes from {tree} instead of {expected}"
        )),
    }
}

/// Mounts an image with Linux.
pub(crate) fn mount(kind: &str, options: &str, image: &str, point: &str) -> Result<(), String> {
    let options = format!("loop,{options}");
    run("mount", &["-t", kind, "-o", &options, image, point]).map(drop)
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

/// A program in `PATH`.
pub(crate) fn find(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .ok_or(format!("{name} is not in PATH"))
}

/// The first line that a program prints of its version.
pub(crate) fn version(program: impl AsRef<Path>, option: &str) -> String {
    let said = run(program, &[option]).unwrap_or_default();
    said.lines().next().unwrap_or("unknown").to_owned()
}

/// Words of a command line.
pub(crate) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Runs a program and returns its output.
pub(crate) fn run(program: impl AsRef<Path>, args: &[&str]) -> Result<String, String> {
    output(Command::new(program.as_ref()).args(args))
}

/// Runs a command and returns its output.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("run {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}: {said}", output.status))
}
