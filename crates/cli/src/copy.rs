//! `restow copy`

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ArgMatches;
use tree::edit::Edited;
use tree::extract::{Aspect, ExtractOptions, extract};
use tree::{Error, FileSystem, Inventory, Limits, Output, Parallel, Progress};

use crate::args::{Copy, Kind, refuse_what_does_not_apply};
use crate::bar::Bar;
use crate::btrfs_create::{self, BtrfsArgs};
use crate::open::{self, Source};
use crate::readable::{self, Readable};
use crate::{tell, text, threads};

/// Paths that are named one by one before the rest is only counted.
const NAMED_MAX: usize = 20;

/// Returns whether everything could be kept.
pub(crate) fn run(args: &Copy, typed: &ArgMatches) -> Result<bool> {
    copy(args, typed).with_context(|| {
        let src = text::of_host_path(&args.src, "standard input");
        let dst = text::of_host_path(&args.dst, "standard output");
        format!("copy {src} to {dst}")
    })
}

fn copy(args: &Copy, typed: &ArgMatches) -> Result<bool> {
    let start = Instant::now();
    let kind = destination_kind(args)?;
    refuse_what_does_not_apply(typed, kind)?;
    match kind {
        Kind::Squashfs => args.squashfs.compression(&args.image).map(drop)?,
        Kind::Btrfs => BtrfsArgs::compression(&args.image).map(drop)?,
        _ => {}
    }
    refuse_before_reading(args, kind)?;
    let mut source = open::open(&args.src, &args.source)?;
    if kind == Kind::Btrfs && args.source.subvolume.is_none() {
        source.show_all()?;
    }
    for note in &source.notes {
        tell(&format!(
            "{}: {note}",
            text::of_host_path(&args.src, "standard input")
        ));
    }
    let edited = args.edits.apply(&source.tree, &args.paths)?;
    let job = Job {
        args,
        source: &source,
        tree: edited.as_ref().map_or(&*source.tree, |edited| edited),
        edited: edited.as_ref(),
        parallel: threads(args.threads),
    };
    let done = match kind {
        Kind::Dir => job.to_directory()?,
        Kind::Tar => job.to_tar()?,
        Kind::Squashfs => job.to_squashfs()?,
        Kind::Btrfs => job.to_btrfs()?,
        Kind::Stream => unreachable!("refused above"),
    };
    for (number, lost) in done.lost.iter().enumerate() {
        if number == NAMED_MAX {
            tell(&format!("and {} more", done.lost.len() - NAMED_MAX));
            break;
        }
        tell(lost);
    }
    if !args.quiet {
        let seconds = start.elapsed().as_secs_f64();
        let Done {
            files,
            read,
            written,
            ..
        } = done;
        // What holds files as they are has no ratio.
        let ratio = match kind {
            Kind::Squashfs | Kind::Btrfs if written > 0 => {
                format!(", ratio {:.3}", read as f64 / written as f64)
            }
            _ => String::new(),
        };
        let (read, written) = (text::of_bytes(read), text::of_bytes(written));
        let memory = peak_memory().map_or(String::new(), |bytes| {
            format!(", peak memory {}", text::of_bytes(bytes))
        });
        let files = text::count(files, "file");
        tell(&format!(
            "{files}, {read} read, {written} written{ratio}, {seconds:.2} s{memory}"
        ));
    }
    Ok(done.lost.is_empty())
}

/// What a copy came to.
struct Done {
    files: u64,
    /// Bytes of content.
    read: u64,
    /// Bytes of the result.
    written: u64,
    /// What could not be kept, a line each.
    lost: Vec<String>,
}

/// What the destination becomes: what was asked for, or what its name says.
fn destination_kind(args: &Copy) -> Result<Kind> {
    let kind = match args.to {
        Some(kind) => kind,
        None if args.dst == Path::new("-") => Kind::Tar,
        None => kind_of_name(&args.dst)?,
    };
    match kind {
        Kind::Dir if args.dst == Path::new("-") => {
            bail!("a directory cannot go to standard output")
        }
        Kind::Squashfs if args.dst == Path::new("-") => {
            bail!("a SquashFS image is not written in order and cannot go to standard output")
        }
        Kind::Btrfs if args.dst == Path::new("-") => {
            bail!("a btrfs image is not written in order and cannot go to standard output")
        }
        Kind::Dir | Kind::Tar | Kind::Squashfs | Kind::Btrfs => Ok(kind),
        Kind::Stream => bail!("this version cannot write btrfs send streams yet"),
    }
}

fn kind_of_name(path: &Path) -> Result<Kind> {
    // A slash at the end says directory, whatever the name.
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Ok(Kind::Dir);
    }
    let extension = path.extension().map(OsStr::to_ascii_lowercase);
    Ok(
        match extension.as_deref().map_or(&b""[..], OsStrExt::as_bytes) {
            b"tar" => Kind::Tar,
            b"sqfs" | b"squashfs" | b"sfs" | b"snap" => Kind::Squashfs,
            b"btrfs" => Kind::Btrfs,
            b"stream" | b"send" => Kind::Stream,
            b"gz" | b"tgz" | b"zst" | b"tzst" | b"xz" | b"txz" | b"bz2" | b"tbz2" | b"lz4" => {
                bail!(
                    "this version writes nothing that is compressed as a whole; write to `-` and pipe it through a compressor"
                )
            }
            b"zip" | b"7z" | b"rar" | b"cpio" | b"iso" | b"img" | b"ext4" | b"erofs" => bail!(
                "restow does not write what this name says; say what it shall become with --to"
            ),
            _ if fs::metadata(path).is_ok_and(|there| !there.is_dir()) => {
                bail!("the destination is no directory; say what it shall become with --to")
            }
            _ => Kind::Dir,
        },
    )
}

/// Refuses what cannot end well before minutes are spent on reading. The output checks again when it appears.
fn refuse_before_reading(args: &Copy, kind: Kind) -> Result<()> {
    if args.dst == Path::new("-") {
        if io::stdout().is_terminal() {
            bail!("standard output is a terminal; name a file or pipe it into a program");
        }
        return Ok(());
    }
    let there = match fs::symlink_metadata(&args.dst) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = args
                .dst
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
                bail!(
                    "{} is not a directory that is there",
                    text::of_host_path(parent, "-")
                );
            }
            return Ok(());
        }
        Err(error) => return Err(error).context("look at the destination"),
        Ok(there) => there.file_type(),
    };
    if kind != Kind::Dir && there.is_dir() {
        bail!("the destination is a directory; it must become a file");
    }
    let is_empty = || fs::read_dir(&args.dst).is_ok_and(|mut entries| entries.next().is_none());
    if kind == Kind::Dir && there.is_dir() && is_empty() {
        return Ok(());
    }
    let is_stream = there.is_char_device() || there.is_fifo();
    // Replacing a directory removes what is in it.
    if let (Kind::Dir, Ok(dst), Ok(src)) = (kind, args.dst.canonicalize(), args.src.canonicalize())
        && args.overwrite
        && src.starts_with(dst)
    {
        bail!("the source is in what would be replaced");
    }
    let may_write = args.overwrite || (kind == Kind::Tar && is_stream);
    if !may_write {
        bail!("the destination is there already; --overwrite replaces it");
    }
    Ok(())
}

struct Job<'a> {
    args: &'a Copy,
    source: &'a Source,
    /// What is copied: the source's tree, edited or not.
    tree: &'a dyn FileSystem,
    edited: Option<&'a Edited>,
    parallel: Parallel,
}

impl Job<'_> {
    fn inventory(&self, bar: &Bar) -> Result<Inventory> {
        self.inventory_of(self.tree, bar)
    }

    fn inventory_of(&self, tree: &dyn FileSystem, bar: &Bar) -> Result<Inventory> {
        let mut limits = Limits::default();
        if let Some(bytes) = self.args.max_content {
            limits.content_bytes_max = bytes;
        }
        let inventory = Inventory::of(tree, &limits);
        let inventory = inventory.map_err(|error| self.source.name_error(error))?;
        if let Some(edited) = self.edited {
            if let Some(path) = edited.unmatched_only().next() {
                bail!("{} is not there", self.source.name(path));
            }
            for pattern in edited.unmatched_exclude() {
                let pattern = text::of_name(pattern);
                tell(&format!("nothing matches --exclude {pattern}"));
            }
        }
        bar.expect(
            Some(inventory.file_count().into()),
            Some(inventory.content_bytes()),
        );
        Ok(inventory)
    }

    /// The tree that an image is made of.
    fn readable_tree<'a>(&'a self, readable: &'a Readable<'a>) -> &'a dyn FileSystem {
        match self.args.image.skip_unreadable {
            true => readable,
            false => self.tree,
        }
    }

    fn to_tar(&self) -> Result<Done> {
        let bar = Bar::new("copied", self.args.quiet);
        let inventory = self.inventory(&bar)?;
        let mut output = if self.args.dst == Path::new("-") {
            Output::stream(File::from(io::stdout().as_fd().try_clone_to_owned()?))
        } else {
            Output::create(&self.args.dst, self.args.overwrite).context("create it")?
        };
        let written = tree::tar::write(self.tree, &inventory, self.parallel, &bar, &mut output);
        let summary = match written {
            Err(error @ Error::File { .. }) => return Err(self.source.name_error(error)),
            // Elsewhere it is the reader's right to have enough, but a part of an archive is none.
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                bail!("its reader closed it before the archive was whole")
            }
            written => written.context("write it")?,
        };
        output.commit().context("finish it")?;
        bar.finish();
        let lost = summary.sockets.iter().map(|path| {
            format!(
                "{}: a socket, which a tar archive cannot hold, is left out",
                self.source.name(path)
            )
        });
        Ok(Done {
            files: summary.entries,
            read: summary.content_bytes,
            written: summary.archive_bytes,
            lost: lost.collect(),
        })
    }

    fn to_squashfs(&self) -> Result<Done> {
        let bar = Bar::new("copied", self.args.quiet);
        let readable = Readable::new(self.tree);
        let tree = self.readable_tree(&readable);
        let inventory = self.inventory_of(tree, &bar)?;
        let options = self.args.squashfs.options(&self.args.image, &inventory)?;
        let mut output =
            Output::create(&self.args.dst, self.args.overwrite).context("create it")?;
        let made = squashfs::create(tree, &inventory, &options, self.parallel, &bar, &mut output);
        let summary = match made {
            Err(error @ Error::File { verb: "read", .. }) => {
                return Err(self.source.name_error(error));
            }
            made => made.context("write it")?,
        };
        output.commit().context("finish it")?;
        bar.finish();
        let mut lost = readable.lost(self.source, &inventory);
        lost.extend(readable::left_out(&summary.image.unreadable, self.source));
        for (path, name) in &summary.image.lost_xattrs {
            let (path, name) = (self.source.name(path), text::of_name(name));
            lost.push(format!(
                "{path}: the attribute {name}, which SquashFS cannot hold, is left out"
            ));
        }
        for path in &summary.changed_times {
            let path = self.source.name(path);
            lost.push(format!(
                "{path}: its time is none that SquashFS has; it got the nearest"
            ));
        }
        Ok(Done {
            files: inventory.entry_count().into(),
            read: summary.image.content_bytes,
            written: summary.image.image_bytes,
            lost,
        })
    }

    fn to_btrfs(&self) -> Result<Done> {
        let bar = Bar::new("copied", self.args.quiet);
        let readable = Readable::new(self.tree);
        let tree = self.readable_tree(&readable);
        let inventory = self.inventory_of(tree, &bar)?;
        let options = self
            .args
            .btrfs
            .options(&self.args.image, self.source, &inventory)?;
        let output = Output::create(&self.args.dst, self.args.overwrite).context("create it")?;
        let made = btrfs::create(tree, &inventory, &options, self.parallel, &bar, &output);
        let summary = match made {
            Err(error @ Error::File { .. }) => return Err(self.source.name_error(error)),
            made => made.context("write it")?,
        };
        output.commit().context("finish it")?;
        bar.finish();
        if !summary.is_writable && options.slack.is_none() && !self.args.quiet {
            tell(
                "Linux can delete files in the image and make it larger, but adds nothing before; --slack leaves room",
            );
        }
        let mut lost = readable.lost(self.source, &inventory);
        lost.extend(btrfs_create::lost(&summary, self.source));
        Ok(Done {
            files: inventory.entry_count().into(),
            read: summary.image.content_bytes,
            written: summary.image.image_bytes,
            lost,
        })
    }

    fn to_directory(&self) -> Result<Done> {
        let bar = Bar::new("copied", self.args.quiet);
        let inventory = self.inventory(&bar)?;
        let options = ExtractOptions {
            overwrite: self.args.overwrite,
            owners: !self.args.directory.no_owners,
            sync: !self.args.directory.no_sync,
            parallel: self.parallel,
        };
        let extracted = extract(self.tree, &inventory, &self.args.dst, &options, &bar);
        let unrestored = match extracted {
            Err(error @ Error::File { verb: "read", .. }) => {
                return Err(self.source.name_error(error));
            }
            Err(Error::File { verb, path, error }) => {
                let path = self.args.dst.join(OsStr::from_bytes(&path));
                let path = text::of_host_path(&path, "-");
                return Err(anyhow::Error::from(*error).context(format!("{verb} {path}")));
            }
            extracted => extracted.context("write it")?,
        };
        bar.finish();
        let mut lost = Vec::new();
        for (aspect, names, count) in unrestored.counts() {
            for example in unrestored.examples(aspect) {
                let path = self.args.dst.join(OsStr::from_bytes(&example.path));
                let path = text::of_host_path(&path, "-");
                let reason = text::of_reason(&example.reason);
                lost.push(format!(
                    "{path}: {} could not be kept: {reason}",
                    name_of(aspect)
                ));
            }
            let shown = unrestored.examples(aspect).count() as u64;
            if count > shown {
                lost.push(format!("and {} more {names}", count - shown));
            }
        }
        if unrestored.count(Aspect::Owner) > 0 {
            lost.push("with --no-owners, the owners in the source do not matter".into());
        }
        Ok(Done {
            files: inventory.entry_count().into(),
            read: inventory.content_bytes(),
            written: inventory.content_bytes(),
            lost,
        })
    }
}

fn name_of(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::Device => "the device file",
        Aspect::Owner => "the owner",
        Aspect::Mode => "the mode",
        Aspect::Xattr => "an extended attribute",
        Aspect::Attributes => "file attributes",
        Aspect::Time => "a time",
    }
}

/// The most memory that this process has held so far, from the kernel.
fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
