//! `mkfs.erofs` of erofs-utils 1.9.4: an EROFS image of a directory or of a tar archive.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use codec::Settings;
use restow::{Address, CopyOptions, CopySummary, Format, Kernel, OpenOptions, SourceTree};
use tree::edit::{Edits, FileContexts, PatternSyntax, Patterns};
use tree::{Parallel, Time};

use super::mkfs_btrfs::{Target, random_uuid};
use super::options::{OptionRow, Style, parse};
use super::write::{id_offset, write};
use crate::message::tell;
use crate::options::{bytes, epoch, joined, open_options, uuid};
use crate::text;

/// The contents of the command line.
#[derive(Default)]
pub(super) struct ImageRequest {
    copy: CopyOptions,
    edits: Edits,
    is_tar: bool,
    /// The largest compressed cluster, in bytes.
    cluster_bytes: Option<u32>,
    /// The largest content of a cluster, in bytes.
    extent_bytes: Option<u64>,
    /// Whether metadata is compressed.
    has_metabox: bool,
    /// The time of the image.
    made: Option<u32>,
    /// Files keep their times where the time of the image is given.
    only_made: bool,
    /// Files get the time of the image.
    ignores_mtime: bool,
    uid_offset: u32,
    gid_offset: u32,
    file_contexts: Option<FileContexts>,
    /// The path of the root for `file_contexts`.
    mount_point: Vec<u8>,
    excluded: Vec<Vec<u8>>,
    expressions: Vec<Vec<u8>>,
    is_quiet: bool,
    prints_version: bool,
}

/// `mkfs.erofs --version`: scripts look for the version of erofs-utils, and for compressors.
const VERSION: &str = concat!(
    "mkfs.erofs (erofs-utils) 1.9.4 (restow ",
    env!("CARGO_PKG_VERSION"),
    ")\navailable compressors: lz4, lz4hc, deflate, libdeflate, zstd\n"
);

const BLOCK_BYTES: u32 = 4096;

/// The largest unit of content, and the largest cluster.
const UNIT_MAX: u32 = 1 << 20;

/// The extended options of the bits of `--zfeature-bits`.
const FEATURE_BITS: [&str; 8] = [
    "legacy-compress",
    "ztailpacking",
    "fragments",
    "all-fragments",
    "dedupe",
    "fragdedupe",
    "48bit",
    "dot-omitted",
];

/// The attribute of `--content-digest`.
const DIGEST: &str = "trusted.erofs.fingerprint";

type Row = OptionRow<ImageRequest>;

/// Its options.
pub(super) const ROWS: &[Row] = &[
    Row::with(&["-b"], "SIZE", |_, size| match number(size)? {
        4096 => Ok(()),
        _ => bail!("restow writes blocks of 4096 bytes"),
    })
    .noted("4096; others are refused"),
    Row::with(&["-d"], "LEVEL", |request, level| {
        let level = number(level)?;
        if level > 9 {
            bail!("must be 0 to 9");
        }
        request.is_quiet |= level == 0;
        Ok(())
    })
    .noted("0 is --quiet; the others print the same"),
    Row::with(&["-x"], "COUNT", |request, count| {
        let count: i64 = words(count)?.parse().context("must be a number")?;
        request.edits.no_xattrs = count < 0;
        Ok(())
    })
    .noted("below 0, no attributes; otherwise those that several files have are stored once"),
    Row::with(&["-z"], "CODEC[,LEVEL]", |request, codecs| {
        let codecs = words(codecs)?.split(':').map(codec);
        let codecs: Vec<Settings> = codecs.collect::<Result<_>>()?;
        // The others are for --compress-hints.
        request.copy.erofs.compression = codecs.into_iter().next();
        Ok(())
    })
    .noted("lz4, lz4hc, deflate, libdeflate or zstd; lzma and dictsize are refused"),
    Row::with(&["-C"], "SIZE", |request, size| {
        let size = bytes(words(size)?)?;
        let size = u32::try_from(size).ok().filter(|&size| {
            size.is_multiple_of(BLOCK_BYTES) && (BLOCK_BYTES..=UNIT_MAX).contains(&size)
        });
        request.cluster_bytes = Some(size.context("must be a multiple of 4096 up to 1048576")?);
        Ok(())
    })
    .noted("the content of a cluster: at least 128 KiB with -E48bit, 256 KiB without"),
    Row::with(&["-E"], "OPTION[,...]", |request, list| {
        let mut list = words(list)?.split(',');
        list.try_for_each(|word| extended(request, word))
    })
    .noted("48bit and force-inode-compact have an effect; the others set the oldest Linux"),
    Row::with(&["-L"], "LABEL", |request, label| {
        if label.len() > 15 {
            bail!("a label has at most 15 bytes");
        }
        request.copy.erofs.label = label.as_bytes().to_vec();
        Ok(())
    }),
    Row::with(&["-m"], "SIZE[:CODEC]", |request, value| {
        let (size, codec) = match words(value)?.split_once(':') {
            Some((size, codec)) => (size, Some(codec)),
            None => (words(value)?, None),
        };
        if codec.is_some() {
            bail!("metadata has the codec of data");
        }
        bytes(size)?;
        request.has_metabox = true;
        Ok(())
    })
    .noted("compressed in units of 64 KiB; with the codec of -z alone"),
    Row::with(&["-T"], "SECONDS", |request, seconds| {
        let seconds = u32::try_from(number(seconds)?);
        request.made = Some(seconds.context("must be a time from 1970 to 2106")?);
        Ok(())
    }),
    Row::flag(&["--all-time"], |request| request.only_made = false),
    Row::flag(&["--mkfs-time"], |request| request.only_made = true),
    Row::with(&["-U"], "UUID", |request, id| {
        request.copy.erofs.uuid = Some(match words(id)? {
            "clear" => [0; 16],
            "random" => random_uuid()?,
            id => uuid(id)?,
        });
        Ok(())
    })
    .noted("without it, a hash of the content"),
    Row::with(&["--zD"], "[=0|1]", |_, value| {
        off(value, "directories are not compressed")
    })
    .noted("0; others are refused"),
    Row::with(&["--MZ"], "[=0|ID]", |_, value| {
        off(value, "metadata lies in one zone")
    })
    .noted("0; others are refused"),
    Row::flag(&["--all-root"], |request| {
        (request.edits.uid, request.edits.gid) = (Some(0), Some(0));
    }),
    Row::accepted(&["--async-queue-limit"], "COUNT", "memory is bounded"),
    Row::refused(&["--blobdev"], "FILE", "an image is one file"),
    Row::refused(
        &["--chunksize"],
        "SIZE",
        "files are not cut into chunks of a size",
    ),
    Row::with(&["--clean"], "[=MODE]", |_, mode| match mode.as_bytes() {
        b"" | b"data" => Ok(()),
        _ => bail!("an image has the data of its files"),
    })
    .noted("data; others are refused"),
    Row::refused(&["--incremental"], "[=MODE]", "an image is made whole"),
    Row::refused(&["--compress-hints"], "FILE", "all files have one codec"),
    Row::refused(
        &["--dsunit"],
        "BLOCKS",
        "data is aligned to blocks, or not at all",
    ),
    Row::with(&["--exclude-path"], "PATH", |request, path| {
        request.excluded.push(path.as_bytes().to_vec());
        Ok(())
    }),
    Row::with(&["--exclude-regex"], "REGEX", |request, expression| {
        request.expressions.push(expression.as_bytes().to_vec());
        Ok(())
    })
    .noted("a wrong expression is an error"),
    Row::with(&["--file-contexts"], "FILE", |request, file| {
        request.file_contexts = Some(FileContexts::read(Path::new(file))?);
        Ok(())
    })
    .noted("in the order of setfiles: an exact path counts more than an expression"),
    Row::with(&["--force-uid"], "UID", |request, id| {
        request.edits.uid = Some(small(id)?);
        Ok(())
    }),
    Row::with(&["--force-gid"], "GID", |request, id| {
        request.edits.gid = Some(small(id)?);
        Ok(())
    }),
    Row::refused(
        &["--fsalignblks"],
        "BLOCKS",
        "an image ends at its last block",
    ),
    Row::with(&["--uid-offset"], "OFFSET", |request, offset| {
        request.uid_offset = small(offset)?;
        Ok(())
    }),
    Row::with(&["--gid-offset"], "OFFSET", |request, offset| {
        request.gid_offset = small(offset)?;
        Ok(())
    }),
    Row::flag(&["--hard-dereference"], |request| {
        request.edits.no_hard_links = true;
    }),
    Row::flag(&["--ignore-mtime"], |request| request.ignores_mtime = true)
        .noted("also for files whose other properties need a large inode"),
    Row::with(&["--max-extent-bytes"], "SIZE", |request, size| {
        request.extent_bytes = Some(number(size)?);
        Ok(())
    })
    .noted("as a power of two from 4 KiB to 1 MiB"),
    Row::with(&["--mount-point"], "PATH", |request, path| {
        request.mount_point = path.as_bytes().to_vec();
        Ok(())
    })
    .noted("for --file-contexts"),
    Row::flag(&["--preserve-mtime"], |request| {
        request.ignores_mtime = false;
    }),
    Row::with(&["--offset"], "BYTES", |_, value| {
        off(value, "an image begins at the start of its file")
    })
    .noted("0; others are refused"),
    Row::refused(
        &["--root-xattr-isize"],
        "BYTES",
        "attributes take the space that they need",
    ),
    Row::refused(&["--aufs"], "", "special files of aufs stay as they are"),
    Row::accepted(&["--sort"], "MODE", "data is in the order of names"),
    Row::refused(
        &["--s3"],
        "ENDPOINT",
        "the source is a directory or an archive",
    ),
    Row::refused(
        &["--oci"],
        "[=MODE]",
        "the source is a directory or an archive",
    ),
    Row::with(&["--tar"], "[=MODE]", |request, mode| {
        match mode.as_bytes() {
            b"" | b"f" => {
                request.is_tar = true;
                Ok(())
            }
            _ => bail!("an image has the data of its files: --tar=f"),
        }
    })
    .noted("f, also for compressed archives; others are refused"),
    Row::with(&["--ovlfs-strip"], "[=0|1]", |_, value| {
        off(value, "whiteouts and attributes of overlayfs stay")
    })
    .noted("0; 1 is refused"),
    Row::flag(&["--quiet"], |request| request.is_quiet = true),
    Row::with(&["--ungzip", "--gzip"], "[=FILE]", no_dump).noted(DUMP),
    Row::with(&["--unxz"], "[=FILE]", no_dump).noted(DUMP),
    Row::refused(
        &["--gzinfo"],
        "[=FILE]",
        "an image has the data of its files",
    ),
    Row::refused(&["--vmdk-desc"], "FILE", "an image is one file"),
    Row::with(&["--workers"], "COUNT", |request, count| {
        request.copy.parallel = match number(count)? {
            0 => Parallel::available(),
            count => Parallel::new(count.min(1024) as usize),
        };
        Ok(())
    }),
    Row::with(&["--xattr-inode-digest"], "[=NAME]", |request, name| {
        if name != DIGEST {
            bail!("digests are in {DIGEST}");
        }
        request.copy.erofs.content_digest = true;
        needs(request, Kernel(6, 4));
        Ok(())
    })
    .noted("trusted.erofs.fingerprint; other names are refused"),
    Row::accepted(&["--xattr-prefix"], "PREFIX", "names are stored whole"),
    Row::with(&["--zfeature-bits"], "BITS", |request, bits| {
        let bits = number(bits)?;
        if bits >> FEATURE_BITS.len() != 0 {
            bail!("has an unknown bit");
        }
        let names = FEATURE_BITS.iter().enumerate();
        let mut names = names.filter(|(bit, _)| bits >> bit & 1 != 0);
        names.try_for_each(|(_, name)| extended(request, name))
    })
    .noted("as -E"),
    Row::refused(
        &["-h", "--help"],
        "",
        "prints the options as the first word",
    ),
    Row::flag(&["-V", "--version"], |request| {
        request.prints_version = true;
    }),
];

const DUMP: &str = "always; a file for the plain archive is refused";

fn words(value: &OsStr) -> Result<&str> {
    value.to_str().context("must be text")
}

/// A number as C has them: decimal, or hexadecimal with `0x`, or octal with `0` in front.
fn number(value: &OsStr) -> Result<u64> {
    let words = words(value)?;
    let (digits, radix) = match (words.strip_prefix("0x"), words.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (words, 10),
    };
    // `from_str_radix` accepts a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let number = u64::from_str_radix(digits, radix).ok();
    number.filter(|_| is_number).context("must be a number")
}

fn small(value: &OsStr) -> Result<u32> {
    u32::try_from(number(value)?).context("is too large")
}

/// Refuses a value other than 0.
fn off(value: &OsStr, why: &'static str) -> Result<()> {
    match value.as_bytes() {
        b"0" => Ok(()),
        _ => bail!(why),
    }
}

fn no_dump(_: &mut ImageRequest, file: &OsStr) -> Result<()> {
    if !file.is_empty() {
        bail!("the plain archive is not written to a file");
    }
    Ok(())
}

/// Raises the oldest Linux that the image is for.
fn needs(request: &mut ImageRequest, kernel: Kernel) {
    let oldest = &mut request.copy.erofs.min_kernel;
    *oldest = (*oldest).max(kernel);
}

/// A codec with its settings.
fn codec(given: &str) -> Result<Settings> {
    let mut parts = given.split(',');
    let name = parts.next().unwrap_or_default();
    let (usual, max) = match name {
        "lz4" => (None, 0),
        "lz4hc" => (Some(9), 12),
        "deflate" => (Some(1), 9),
        "libdeflate" => (Some(1), 12),
        "zstd" => (Some(3), 22),
        _ => bail!("{name} is not supported: it is lz4, lz4hc, deflate, libdeflate or zstd"),
    };
    let mut level = usual;
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or(("level", part));
        if key != "level" {
            bail!("{name}: {key} is not supported");
        }
        let given: u8 = value
            .parse()
            .ok()
            .filter(|level| *level <= max && usual.is_some())
            .with_context(|| format!("{name} has no level {value}"))?;
        level = Some(given);
    }
    let level = level.unwrap_or_default();
    Ok(match name {
        "lz4" => Settings::Lz4,
        // 0 is the usual level of the libraries.
        "lz4hc" => Settings::Lz4Hc {
            level: if level == 0 { 9 } else { level.max(2) },
        },
        "zstd" => Settings::Zstd {
            level: if level == 0 { 3 } else { level.into() },
        },
        _ => Settings::Zlib {
            level: level.max(1),
        },
    })
}

/// One extended option.
fn extended(request: &mut ImageRequest, word: &str) -> Result<()> {
    let (is_off, rest) = match word.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, word),
    };
    let (name, value) = match rest.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (rest, None),
    };
    match (name, value) {
        ("fragments" | "all-fragments", Some(size)) => _ = number(OsStr::new(size))?,
        ("fragdedupe", Some("inode" | "full")) => {}
        (_, None) => {}
        _ => bail!("{word} is not supported"),
    }
    let kernel = match name {
        "inline_data" if !is_off => return Ok(()),
        "inline_data" | "noinline_data" => {
            bail!("{word} is not supported: small ends of files lie beside their inodes")
        }
        "48bit" | "dot-omitted" => Kernel(6, 15),
        "fragments" | "all-fragments" | "dedupe" => Kernel(6, 1),
        "ztailpacking" => Kernel(5, 17),
        "force-inode-compact" => {
            request.ignores_mtime = !is_off;
            return Ok(());
        }
        "fragdedupe"
        | "force-inode-extended"
        | "force-inode-blockmap"
        | "force-chunk-indexes"
        | "legacy-compress"
        | "nosbcrc"
        | "plain-xattr-prefixes"
        | "xattr-name-filter" => {
            return Ok(());
        }
        _ => bail!("{name} is not an extended option"),
    };
    if !is_off {
        needs(request, kernel);
    }
    Ok(())
}

/// Opens the source: a directory, or an archive, by default the one on standard input.
fn open(request: &ImageRequest, given: &[OsString]) -> Result<SourceTree> {
    let src = match given {
        [] if request.is_tar => Path::new("-"),
        [src] => Path::new(src),
        [] => bail!("mkfs.erofs needs a source behind the image"),
        _ => bail!("several sources are not supported: name one"),
    };
    let name = text::of_host_path(src, "-");
    if request.is_tar && src.is_dir() {
        bail!("{name} is a directory, and --tar is for archives");
    }
    if !request.is_tar && !src.is_dir() {
        fs::metadata(src).with_context(|| name.clone())?;
        bail!("{name} is not a directory; --tar takes an archive");
    }
    let options = if request.is_tar {
        open_options()
    } else {
        OpenOptions::default()
    };
    Ok(SourceTree::open(&Address::plain(src), &options)?)
}

impl ImageRequest {
    /// Sets the options that depend on several words.
    fn settle(&mut self) -> Result<()> {
        let codec = match self.copy.erofs.compression {
            None => Kernel(5, 4),
            Some(Settings::Zstd { .. }) => Kernel(6, 10),
            Some(Settings::Zlib { .. }) => Kernel(6, 6),
            Some(_) => Kernel(5, 13),
        };
        needs(self, codec);
        if self.has_metabox {
            if self.copy.erofs.compression.is_none() {
                bail!("-m: metadata is compressed only with data (-z)");
            }
            needs(self, Kernel(6, 17));
        }
        self.copy.epoch = epoch()?;
        self.copy.mkfs_time = self.made;
        let erofs = &mut self.copy.erofs;
        let usual = if erofs.min_kernel >= Kernel(6, 15) {
            128 << 10
        } else {
            256 << 10
        };
        if let Some(size) = self.cluster_bytes {
            erofs.unit_bytes = size.next_power_of_two().max(usual);
        }
        if let Some(size) = self.extent_bytes {
            let size = size.clamp(BLOCK_BYTES.into(), UNIT_MAX.into());
            erofs.unit_bytes = 1 << size.ilog2();
        }
        let edits = &mut self.edits;
        let contexts = self.file_contexts.take();
        let contexts = contexts.map(|contexts| contexts.below(&self.mount_point));
        edits.file_contexts = contexts.map(Arc::new);
        let made = self.made.map(i64::from);
        let now = || {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            since.map_or(0, |since| since.as_secs() as i64)
        };
        let seconds = if self.ignores_mtime {
            Some(made.or(self.copy.epoch).unwrap_or_else(now))
        } else {
            made.filter(|_| !self.only_made)
        };
        edits.time = seconds.map(|seconds| Time {
            seconds,
            nanoseconds: 0,
        });
        edits.uid_maps = id_offset(self.uid_offset, &mut edits.uid).context("--uid-offset")?;
        edits.gid_maps = id_offset(self.gid_offset, &mut edits.gid).context("--gid-offset")?;
        let expressions = std::mem::take(&mut self.expressions);
        let mut excluded =
            Patterns::parse(PatternSyntax::TextRegex, expressions).context("--exclude-regex")?;
        // They are compared as they are written: `./a` is no path of an image.
        let paths = std::mem::take(&mut self.excluded).into_iter();
        let (paths, others): (Vec<_>, Vec<_>) = paths.partition(|path| joined(path) == *path);
        for path in others {
            let name = text::of_name(&path);
            tell(&format!(
                "nothing to exclude: {name} is not a path in an image"
            ));
        }
        if !paths.is_empty() {
            excluded = excluded.with_paths(paths);
        }
        edits.selection.exclude = excluded.into();
        Ok(())
    }
}

/// Makes the image.
///
/// # Errors
/// The command line is wrong, the source cannot be read, or the image cannot be written.
pub(super) fn run(words: &[OsString]) -> Result<ExitCode> {
    let mut request = ImageRequest::default();
    request.copy.recompress = true;
    request.copy.erofs.compression = None;
    request.copy.erofs.min_kernel = Kernel(5, 4);
    let operands = parse(ROWS, Style::Getopt, words, &mut request)?;
    if request.prints_version {
        io::stdout().write_all(VERSION.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some((dst, sources)) = operands.split_first() else {
        bail!("mkfs.erofs needs an image and its source");
    };
    let dst = Path::new(dst);
    let source = open(&request, sources)?;
    request.settle()?;
    request.copy.in_place = Target::of(dst, true)?.is_some();
    let to = (dst, Format::Erofs);
    let summary = write(source, to, Some(request.edits), &request.copy)?;
    if !request.is_quiet {
        match print_summary(&summary) {
            // The image is complete without its description.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            printed => printed.context("write standard output")?,
        }
    }
    let is_whole = summary.losses.is_empty() && summary.unpreserved.is_empty();
    Ok(ExitCode::from(u8::from(!is_whole)))
}

/// The lines that scripts read.
fn print_summary(summary: &CopySummary) -> io::Result<()> {
    let Some(made) = &summary.erofs else {
        return Ok(());
    };
    let block = u64::from(BLOCK_BYTES);
    let uuid = text::of_uuid(&made.uuid);
    let (blocks, inodes) = (made.image.image_bytes / block, made.image.files);
    let metadata = made.metadata_bytes.div_ceil(block);
    writeln!(
        io::stdout(),
        "Build completed.\n\n------\nFilesystem UUID: {uuid}\n\
         Filesystem total blocks: {blocks} (of {block}-byte blocks)\n\
         Filesystem total inodes: {inodes}\nFilesystem total metadata blocks: {metadata}"
    )
}
