//! `restow mount`: mounts a tree.

mod attach;
mod background;
mod options;
mod session;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use fuse::{Owner, Problem, Server, Trace};
use restow::{Address, SourceTree};
use tree::json::Object;
use tree::{BlockCounts, Error, FileKind, Ino};

use self::attach::Attached;
use self::background::MountProcess;
use self::options::MountOptions;
use self::session::Serving;
use crate::copy::peak_memory;
use crate::message;
use crate::options::{QuietArgs, REMOTE_SHARE, SourceArgs, bound_remote_cache, bytes};
use crate::text;

pub(crate) use attach::unmount;

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Listings that are kept, and places of files.
const SERVER_BYTES: u64 = 20 << 20;
/// A request, its answer, decoders and blocks.
const THREAD_BYTES: u64 = 4 << 20;
/// A cache with a few of the largest blocks.
const CACHE_BYTES_MIN: u64 = 4 << 20;

/// The name that mount(8) looks for to mount a `fuse.restow`.
const MOUNT_PROGRAM: &str = "mount.fuse.restow";

/// Mount a tree read-only, without unpacking it
///
/// Mounts any tree that `restow ls` lists, as root or as any user who may use FUSE. The command
/// returns when the mount answers; its process goes on in the background until `restow unmount`,
/// `umount` or `fusermount3 -u`.
///
/// As `mount.fuse.restow`, a second name of the program, it serves `mount -t fuse.restow` and
/// /etc/fstab.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow mount src.tar /mnt
  restow mount disk.btrfs:home /mnt -o uid=1000,ro
  restow mount -f src.squashfs /mnt
  restow unmount /mnt")]
#[command(after_long_help = LONG)]
pub(crate) struct Mount {
    /// A directory, archive, btrfs send stream, container image, or an image of SquashFS, EROFS or
    /// btrfs, of which IMAGE:PATH and IMAGE:ID select a subvolume
    src: PathBuf,

    /// The directory to mount it at
    mountpoint: PathBuf,

    /// Mount options, separated by commas (repeatable); `restow mount --help` lists them
    #[arg(short, long, value_name = "OPTIONS")]
    options: Vec<OsString>,

    /// Stay in the foreground, print problems to standard error, and print counters at the end
    #[arg(short, long)]
    foreground: bool,

    /// Print every request, and stay in the foreground
    #[arg(short, long)]
    debug: bool,

    /// Serve requests one after another
    #[arg(short, long)]
    single_thread: bool,

    /// Take at most this much memory, with a smaller cache and fewer threads if necessary
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory: Option<u64>,

    #[command(flatten)]
    quiet: QuietArgs,

    /// Print a JSON object on standard output when the mount answers and, in the foreground, one
    /// with the counters at the end, which docs/json.md describes
    #[arg(long)]
    json: bool,

    /// Check the options and mount nothing, as `mount -f` asks of its programs
    #[arg(long, hide = true)]
    fake: bool,

    #[command(flatten)]
    source: SourceArgs,
}

const LONG: &str = "\
Mount options:
  allow_other         let all users use it; without root, if /etc/fuse.conf has user_allow_other
  allow_root          let root use it, too
  auto_unmount        unmount when the program ends, even if it is killed
  cache=BYTES         keep this much decoded data (k, M, G) [default: 64M]
  dev, suid           let device files and set-user-ID bits have an effect (root only)
  fsname=NAME         the name that `df` and /proc/mounts show [default: SRC]
  gid=ID, uid=ID      make this group or user the owner of every file
  ignore_checksums    read data of btrfs images without verifying it, to rescue it
  max_threads=N       serve with N threads [default: the number of processors, at most 8]
  noexec              do not let programs be executed
  notify_pipe=PATH    write `s` to this pipe when the mount answers, `f` if it fails
  offset=BYTE         the SquashFS image begins at this byte of the file
  subdir=PATH         mount this directory of the tree
  subvol=PATH         mount this subvolume of a btrfs image
  subvolid=ID         the same by its number
  timeout=SECONDS     unmount when it was not used for this long
  umask=MODE          remove these permissions from every file
Words that mount(8) and fstab add, such as ro, rw, user, noauto and x-..., are accepted.

The mount is read-only, and the image must not change meanwhile. Reading a damaged block
fails with an input/output error, and a line on standard error (-f) or in the system log says
where it is; other files can be read. Unlike in a mount of Linux' btrfs, all subvolumes have the
same device number (st_dev), and files of nested subvolumes have large inode numbers. Changes of
a mounted directory show after a second.

Examples:
  restow mount src.tar /mnt
  restow mount disk.btrfs:home /mnt -o uid=1000,ro
  restow mount -f src.squashfs /mnt
  restow unmount /mnt";

/// The arguments of the program. If its name is `mount.fuse.restow`, they are those of mount(8):
/// SOURCE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE], where `-f`, `-n` and `-v` mean
/// something else.
pub(crate) fn arguments(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args;
    let program = args.next().unwrap_or_default();
    let name = Path::new(&program).file_name();
    if name != Some(OsStr::new(MOUNT_PROGRAM)) {
        return std::iter::once(program).chain(args).collect();
    }
    let mut translated = vec![program, "mount".into()];
    while let Some(arg) = args.next() {
        match arg.to_str() {
            // The type, which is known, and the namespace, in which this runs already.
            Some("-t" | "-N") => {
                args.next();
            }
            // Without mounting anything.
            Some("-f") => translated.push("--fake".into()),
            Some("-o") => {
                translated.push(arg);
                translated.extend(args.next());
            }
            // Sloppy, no /etc/mtab, verbose: as libfuse's programs do.
            Some("-s" | "-n" | "-v") => {}
            _ => translated.push(arg),
        }
    }
    translated
}

/// Mounts the tree, and returns when it answers or, in the foreground, when it was unmounted.
///
/// # Errors
/// It cannot be opened or mounted.
pub(crate) fn run(args: &Mount) -> Result<ExitCode> {
    let options = MountOptions::parse(&args.options)?;
    if args.fake {
        return Ok(ExitCode::SUCCESS);
    }
    let is_second = background::part() == MountProcess::Second;
    if !args.foreground && !args.debug && !is_second {
        let started = background::start(arguments(std::env::args_os()).split_off(1))?;
        return match started {
            Ok(process) => answers(args, process).map(|()| ExitCode::SUCCESS),
            Err(code) => Ok(code),
        };
    }
    let result = mount(args, &options, is_second);
    if result.is_err() {
        background::notify(options.notify_pipe.as_deref(), b'f');
    }
    result.map(|()| ExitCode::SUCCESS)
}

/// Says that the mount answers, and which process serves it.
fn answers(args: &Mount, process: u32) -> Result<()> {
    if !args.json {
        return Ok(());
    }
    message::print_result(
        Object::of_schema("mount", VERSION)
            .name("source", args.src.as_os_str().as_bytes())
            .name("mountpoint", args.mountpoint.as_os_str().as_bytes())
            .number("pid", process),
    )
}

fn mount(args: &Mount, options: &MountOptions, is_second: bool) -> Result<()> {
    let address = Address::of(&args.src)?;
    if address.is_standard_input() {
        bail!("standard input cannot be mounted; save it to a file first");
    }
    let name = || text::of_host_path(&args.mountpoint, "-");
    let point = fs::canonicalize(&args.mountpoint).with_context(|| format!("open {}", name()))?;
    if !point.is_dir() {
        bail!("{} is not a directory", name());
    }
    if let Some(bytes) = args.memory {
        bound_remote_cache(bytes / REMOTE_SHARE);
    }
    let source_args = options.source_args(&args.source)?;
    let source = source_args.open(&address, false)?;
    let is_read = |path: &&PathBuf| source.container_image().is_none() && path.is_dir();
    for dir in address.paths().iter().filter(is_read) {
        let dir = fs::canonicalize(dir)?;
        if point != dir && point.starts_with(&dir) {
            bail!("{} is inside of the directory to mount", name());
        }
    }
    let notes = source.notes().iter().filter(|_| !args.quiet.quiet);
    for note in notes.chain(source.lost()) {
        message::tell(&note.to_string());
    }
    let root = match &options.subdir {
        Some(path) => Some(directory(&source, path)?),
        None => None,
    };
    let threads = if args.single_thread {
        1
    } else {
        options.max_threads.unwrap_or_else(session::usual_threads)
    };
    let (threads, cache_bytes) = match args.memory {
        Some(bytes) => bounded(bytes, threads, options.cache_bytes)?,
        None => (threads, options.cache_bytes),
    };
    if let Some(image) = source.squashfs() {
        image.keep_decoded(cache_bytes);
    }
    if let Some(image) = source.erofs() {
        image.keep_decoded(cache_bytes);
    }
    if let Some(subvolume) = source.subvolume() {
        subvolume.btrfs().keep_decoded(cache_bytes);
    }
    let server = server(
        args,
        options,
        &source,
        &address.path,
        (root, threads),
        is_second,
    )?;
    let server = Arc::new(server);
    let serving = Serving {
        threads,
        timeout: options.timeout,
        at_end: at_end(args, &server, source),
        server,
    };
    let shown = attach::shown_name(args.src.as_os_str(), options);
    if is_second {
        background::leave()?;
    }
    let attached =
        Attached::mount(&point, &shown, options).with_context(|| format!("mount at {}", name()))?;
    serving.run(&attached, || {
        background::notify(options.notify_pipe.as_deref(), b's');
        if is_second {
            background::answer()
        } else {
            answers(args, std::process::id())
        }
    })
}

/// The threads and the bytes of the cache within a bound on memory, once the source is open.
///
/// # Errors
/// One thread needs more.
fn bounded(bytes_max: u64, threads: usize, cache_bytes: usize) -> Result<(usize, usize)> {
    let fixed = peak_memory().unwrap_or(0) + SERVER_BYTES;
    let room = bytes_max.saturating_sub(fixed + CACHE_BYTES_MIN);
    let threads = threads.min(usize::try_from(room / THREAD_BYTES)?);
    if threads == 0 {
        let least = (fixed + CACHE_BYTES_MIN + THREAD_BYTES).div_ceil(1 << 20);
        bail!("--memory: this mount needs {least} MiB with one thread");
    }
    let room = bytes_max - fixed - threads as u64 * THREAD_BYTES;
    Ok((threads, cache_bytes.min(usize::try_from(room)?)))
}

/// The directory at a path in the tree.
fn directory(source: &SourceTree, path: &[u8]) -> Result<Ino> {
    let entry = source.find(path, true)?;
    if entry.kind != FileKind::Directory {
        return Err(source
            .name_error(Error::NotADirectory.in_file("mount", path))
            .into());
    }
    Ok(entry.ino)
}

fn server(
    args: &Mount,
    options: &MountOptions,
    source: &SourceTree,
    image: &Path,
    (root, threads): (Option<Ino>, usize),
    is_second: bool,
) -> Result<Server> {
    let size = fs::metadata(image).map_or(0, |file| if file.is_file() { file.len() } else { 0 });
    let (uid, _) = linux::process_owner();
    let squashfs = source.squashfs().cloned();
    let btrfs = source.subvolume().cloned();
    let options = fuse::Options::default()
        .root(root)
        .owner(Owner {
            uid: options.uid,
            gid: options.gid,
            umask: options.umask,
        })
        .is_live(source.directory().is_some())
        // An access that the kernel answers by itself does not show that the mount is used.
        .lifetime(options.timeout.map(|timeout| timeout / 2))
        .has_xattrs((squashfs.as_ref()).is_none_or(|image| image.xattr_set_count() > 0))
        .has_birth_times(squashfs.is_none())
        .only_user(options.allow_root.then_some(uid))
        .size_bytes(size)
        .files((squashfs.as_ref()).map_or(0, |image| image.superblock().inode_count.into()))
        .numbers(match squashfs {
            Some(image) => Box::new(move |ino| image.number(ino).map(Into::into)),
            None if btrfs.is_some() => Box::new(|ino| Ok(ino.0)),
            // They are counted from 0, which is no number for programs.
            None => Box::new(|ino| Ok(ino.0.wrapping_add(1))),
        })
        .directory_bytes(match btrfs {
            Some(tree) => Box::new(move |ino| tree.stored_size(ino)),
            None => Box::new(|_| Ok(0)),
        })
        .threads(threads)
        .trace(args.debug.then(|| -> Trace {
            Box::new(|request, file, error| {
                message::tell(&format!("{request} of file {file}: {}", outcome(error)));
            })
        }));
    let shown = source.name().to_owned();
    let report = move |problem: &Problem<'_>| {
        let words = of_problem(problem, &shown);
        if is_second {
            background::log(&words);
        } else {
            message::tell(&words);
        }
    };
    let server = Server::new(Arc::clone(source.tree()), options, report);
    Ok(server.map_err(|error| source.name_error(error))?)
}

fn outcome(error: i32) -> String {
    if error == 0 {
        return "done".to_owned();
    }
    let error = std::io::Error::from_raw_os_error(error);
    message::of_reason(&error.to_string())
}

/// A problem in words: the operation, the file, the place in it, the source and the reason.
fn of_problem(problem: &Problem<'_>, source: &str) -> String {
    let file = match problem.path.as_deref() {
        Some(b"") => "the root directory".to_owned(),
        Some(path) => text::of_path(path),
        None => format!("file {}", problem.ino.0),
    };
    let place = problem.offset.map(|offset| format!(" at byte {offset}"));
    let place = place.unwrap_or_default();
    let verb = problem.verb;
    let why = message::of_tree_error(problem.error);
    format!("{verb} {file}{place} in {source}: {why}")
}

/// Prints the counters at the end, in the foreground.
fn at_end(args: &Mount, server: &Arc<Server>, source: SourceTree) -> Box<dyn Fn() + Send + Sync> {
    if !args.foreground && !args.debug {
        return Box::new(|| {});
    }
    let server = Arc::clone(server);
    let is_json = args.json;
    Box::new(move || {
        let counters = server.counters();
        let requests = counters.requests().into_iter();
        let of_squashfs = source.squashfs().map(|image| image.decoded());
        let of_erofs = source.erofs().map(|image| image.decoded());
        let of_btrfs = source.subvolume();
        let of_btrfs = of_btrfs.map(|subvolume| subvolume.btrfs().decoded());
        let blocks = of_squashfs.or(of_erofs).or(of_btrfs);
        if is_json {
            let of_name = |all: Object, (name, count)| all.number(name, count);
            let mut object =
                Object::new().object("requests", requests.fold(Object::new(), of_name));
            if let Some(blocks) = blocks {
                object = object
                    .number("decoded_blocks", blocks.decoded)
                    .number("decoded_again_blocks", blocks.again)
                    .number("cached_blocks", blocks.hits);
            }
            let object = object
                .number("sent_bytes", counters.bytes())
                .number("files_sent_ahead", counters.unasked())
                .number("problems", counters.errors());
            // The reader of standard output may be gone.
            let _ = message::print_result(object);
            return;
        }
        let requests: Vec<String> = requests.map(|(name, n)| format!("{name} {n}")).collect();
        message::tell(&format!("requests: {}", requests.join(", ")));
        if let Some(blocks) = blocks {
            let BlockCounts {
                decoded,
                again,
                hits,
            } = blocks;
            message::tell(&format!(
                "blocks: decoded {decoded}, of these again {again}, found in the cache {hits}"
            ));
        }
        message::tell(&format!(
            "bytes sent: {}; files sent before they were asked for: {}",
            counters.bytes(),
            counters.unasked()
        ));
        message::tell(&format!("problems: {}", counters.errors()));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_mount_are_translated() {
        let translate = |args: &[&str]| {
            let args = arguments(args.iter().map(OsString::from));
            let args = args.iter().map(|arg| arg.to_str().unwrap().to_owned());
            args.collect::<Vec<_>>()
        };
        let same = ["/usr/bin/restow", "ls", "-n", "-t"];
        assert_eq!(translate(&same), same);
        let args = [
            "/sbin/mount.fuse.restow",
            "a.tar",
            "/mnt",
            "-s",
            "-n",
            "-o",
            "rw,-t",
            "-N",
            "/proc/1/ns/mnt",
            "-f",
            "-t",
            "fuse.restow",
        ];
        let expected = [
            "/sbin/mount.fuse.restow",
            "mount",
            "a.tar",
            "/mnt",
            "-o",
            "rw,-t",
            "--fake",
        ];
        assert_eq!(translate(&args), expected);
    }
}
