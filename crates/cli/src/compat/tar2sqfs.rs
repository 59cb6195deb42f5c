//! `tar2sqfs` of squashfs-tools-ng 1.3: a tar archive on standard input as a SquashFS image.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use codec::Settings;
use restow::{Address, CopyOptions, Format, Fragments, OpenOptions, SourceTree, Unpreserved};
use tree::edit::{Edits, PatternSyntax, Patterns, Selection, Stats};
use tree::{EntryId, Inventory, Limits, Parallel, Time};

use super::options::{OptionRow, Style, parse};
use super::write::write;
use crate::options::{bytes, epoch, squashfs_settings};

/// The contents of the command line.
pub(super) struct ImageOptions {
    root: Option<OsString>,
    keeps_targets: bool,
    /// Regular expressions for paths in the archive.
    excluded: Vec<Vec<u8>>,
    codec: String,
    codec_options: Vec<String>,
    options: CopyOptions,
    /// The metadata of directories that are not in the archive.
    implied: Stats,
    no_times: bool,
    no_xattrs: bool,
    is_strict: bool,
}

type Row = OptionRow<ImageOptions>;

/// Its options.
pub(super) const ROWS: &[Row] = &[
    Row::with(&["-r", "--root-becomes"], "DIR", |it, dir| {
        it.root = Some(dir.to_owned());
        Ok(())
    }),
    Row::flag(&["-S", "--no-symlink-retarget"], |it| {
        it.keeps_targets = true;
    }),
    Row::with(&["-E", "--exclude"], "PATTERN", |it, pattern| {
        it.excluded.push(expression(pattern.as_bytes()));
        Ok(())
    })
    .noted("the root and directories in which files stay keep their metadata, and other hard links their file"),
    Row::with(&["-c", "--compressor"], "NAME", |it, name| {
        it.codec = text(name)?.to_owned();
        Ok(())
    })
    .noted("without lzma"),
    Row::with(&["-X", "--comp-extra"], "OPTIONS", |it, words| {
        it.codec_options = text(words)?.split(',').map(str::to_owned).collect();
        Ok(())
    })
    .noted("without window, strategies, dictsize, lc, lp and pb other than the default"),
    Row::with(&["-j", "--num-jobs"], "COUNT", |it, words| {
        let threads = text(words)?.parse().context("must be a number")?;
        it.options.parallel = Parallel::new(usize::min(threads, 1024));
        Ok(())
    }),
    Row::accepted(&["-Q", "--queue-backlog"], "COUNT", "memory is bounded"),
    Row::with(&["-b", "--block-size"], "SIZE", |it, words| {
        let size = u32::try_from(bytes(text(words)?)?).context("too large")?;
        it.options.squashfs.block_bytes = size;
        Ok(())
    }),
    Row::with(&["-B", "--dev-block-size"], "SIZE", |it, words| {
        let size = u32::try_from(bytes(text(words)?)?).context("too large")?;
        it.options.squashfs.pad_bytes = size;
        Ok(())
    }),
    Row::with(&["-d", "--defaults"], "OPTIONS", |it, words| {
        text(words)?
            .split(',')
            .try_for_each(|word| set_default(&mut it.implied, word))
    }),
    Row::flag(&["-k", "--no-keep-time"], |it| it.no_times = true),
    Row::flag(&["-x", "--no-xattr"], |it| it.no_xattrs = true),
    Row::flag(&["-s", "--no-skip"], |it| it.is_strict = true)
        .noted("a damaged archive is an error without it, too"),
    Row::flag(&["-e", "--exportable"], |it| {
        it.options.squashfs.exportable = true;
    }),
    Row::flag(&["-T", "--no-tail-packing"], |it| {
        it.options.squashfs.fragments = Fragments::SmallFiles;
    }),
    Row::flag(&["--no-pad"], |it| it.options.squashfs.padding = false),
    Row::flag(&["-f", "--force"], |it| it.options.overwrite = true),
    Row::accepted(&["-q", "--quiet"], "", "no progress is shown"),
    Row::refused(
        &["-h", "--help"],
        "",
        "prints the options as the first word",
    ),
    Row::refused(
        &["-V", "--version"],
        "",
        "`restow --version` prints that of restow",
    ),
];

fn text(word: &OsStr) -> Result<&str> {
    word.to_str().context("must be text")
}

/// Sets one value of directories that are not in the archive.
fn set_default(implied: &mut Stats, word: &str) -> Result<()> {
    let wrong = || format!("`{word}` must be uid=, gid=, mode= or mtime= with a number");
    let (name, number) = word.split_once('=').with_context(wrong)?;
    let id = || number.parse::<u32>().with_context(wrong);
    match name {
        "uid" => implied.uid = id()?,
        "gid" => implied.gid = id()?,
        "mtime" => implied.mtime = Some(seconds(id()?.into())),
        "mode" => {
            let mode = u16::from_str_radix(number, 8).ok();
            implied.permissions = mode.filter(|mode| *mode <= 0o7777).with_context(wrong)?;
        }
        _ => bail!(wrong()),
    }
    Ok(())
}

fn seconds(seconds: i64) -> Time {
    Time {
        seconds,
        nanoseconds: 0,
    }
}

/// Writes the image.
///
/// # Errors
/// The command line is wrong, the archive cannot be read, or the image cannot be written.
pub(super) fn run(words: &[OsString]) -> Result<ExitCode> {
    let mut options = CopyOptions::default();
    options.squashfs.exportable = false;
    options.squashfs.fragments = Fragments::Always;
    let mut request = ImageOptions {
        root: None,
        keeps_targets: false,
        excluded: Vec::new(),
        codec: "xz".to_owned(),
        codec_options: Vec::new(),
        options,
        implied: Stats {
            permissions: 0o755,
            uid: 0,
            gid: 0,
            mtime: Some(seconds(epoch()?.unwrap_or(0))),
        },
        no_times: false,
        no_xattrs: false,
        is_strict: false,
    };
    let operands = parse(ROWS, Style::Getopt, words, &mut request)?;
    let [image] = &operands[..] else {
        bail!("tar2sqfs takes one image");
    };
    let time = request.implied.mtime.unwrap_or_default();
    let mut options = request.options;
    options.squashfs.compression = compression(&request.codec, &request.codec_options)?;
    if let Some(Settings::Xz {
        dictionary_bytes, ..
    }) = &mut options.squashfs.compression
    {
        *dictionary_bytes = options.squashfs.block_bytes.max(8192);
    }
    options.mkfs_time = Some(u32::try_from(time.seconds).context("mtime")?);
    options.squashfs.xattrs = !request.no_xattrs;
    let open = OpenOptions::default().implied_dirs(request.implied);
    let mut address = Address::plain(Path::new("-"));
    address.subvolume.clone_from(&request.root);
    let source = SourceTree::open(&address, &open)?;
    let root = request.root.as_ref().map(|root| {
        let names = root.as_bytes().split(|&byte| byte == b'/');
        let names: Vec<&[u8]> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
        names.join(&b'/')
    });
    let above = root.as_deref().unwrap_or_default();
    let selection = Selection {
        exclude: matching(&source, above, &request.excluded)?.into(),
        ..Selection::default()
    };
    let edits = Edits {
        selection,
        time: request.no_times.then_some(time),
        no_xattrs: request.no_xattrs,
        retarget: root.filter(|_| !request.keeps_targets).map(Into::into),
        ..Edits::default()
    };
    let to = (Path::new(image), Format::Squashfs);
    let summary = write(source, to, Some(edits), &options)?;
    let is_skipped = |lost: &Unpreserved| matches!(lost, Unpreserved::Xattr { .. });
    if request.is_strict && summary.unpreserved.iter().any(is_skipped) {
        bail!("--no-skip: an extended attribute cannot be stored in a SquashFS image");
    }
    Ok(ExitCode::SUCCESS)
}

/// A pattern of `fnmatch`, in which `*` and `?` match slashes, as a regular expression.
fn expression(pattern: &[u8]) -> Vec<u8> {
    let mut to = vec![b'^'];
    let literal = |to: &mut Vec<u8>, byte: u8| {
        if byte.is_ascii_punctuation() {
            to.push(b'\\');
        }
        to.push(byte);
    };
    let mut rest = pattern;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match (byte, behind) {
            (b'*', _) => to.extend(b".*"),
            (b'?', _) => to.push(b'.'),
            (b'[', [first, set @ ..]) if let Some(end) = set.iter().position(|&it| it == b']') => {
                to.extend([b'[', if *first == b'!' { b'^' } else { *first }]);
                to.extend(&set[..=end]);
                rest = &set[end + 1..];
            }
            (b'\\', [escaped, behind @ ..]) => {
                literal(&mut to, *escaped);
                rest = behind;
            }
            _ => literal(&mut to, byte),
        }
    }
    to.push(b'$');
    to
}

/// The files whose paths in the archive match, but for directories in which a file stays.
fn matching(source: &SourceTree, root: &[u8], expressions: &[Vec<u8>]) -> Result<Patterns> {
    if expressions.is_empty() {
        return Ok(Patterns::default());
    }
    let patterns = Patterns::parse(PatternSyntax::TextRegex, expressions)?;
    let inventory = Inventory::of(&**source.tree(), &Limits::default())?;
    let matches = |entry: &EntryId| {
        let path = [root, b"/", &inventory.path(*entry)].concat();
        patterns.matches(path.strip_prefix(b"/").unwrap_or(&path))
    };
    let mut staying = BTreeSet::new();
    for entry in inventory.names().skip(1).filter(|entry| !matches(entry)) {
        let mut dir = inventory.parent(entry);
        while staying.insert(dir) {
            dir = inventory.parent(inventory.first_name(dir));
        }
    }
    let left_out = inventory.names().skip(1).filter(matches);
    let left_out = left_out.filter(|entry| !staying.contains(&inventory.file(*entry)));
    let left_out = left_out.map(|entry| inventory.path(entry));
    Ok(Patterns::default().with_paths(left_out))
}

/// The settings of a codec and its extra options.
fn compression(codec: &str, extra: &[String]) -> Result<Option<Settings>> {
    let is = |name: &str| codec == name;
    let mut words = match codec {
        "gzip" | "xz" | "zstd" | "lz4" => codec.to_owned(),
        "lzo" => "lzo:8".to_owned(),
        _ => bail!("-c {codec}: must be gzip, xz, lzo, lz4 or zstd"),
    };
    for option in extra {
        match &**option {
            "hc" if is("lz4") => words += ":hc",
            "extreme" if is("xz") => words += ":e",
            "window=15" | "default" if is("gzip") => {}
            "lc=3" | "lp=0" | "pb=2" | "dictsize=100%" if is("xz") => {}
            "algorithm=lzo1x_999" if is("lzo") => {}
            "algorithm=lzo1x_1" if is("lzo") => words = "lzo:1".to_owned(),
            "x86" | "powerpc" | "ia64" | "arm" | "armthumb" | "sparc" if is("xz") => {
                words += &format!(":{option}");
            }
            option => match option.strip_prefix("level=") {
                Some(level) if is("lzo") => words = format!("lzo:{level}"),
                Some(level) if !is("lz4") => words += &format!(":{level}"),
                _ => bail!("-X {option} is not supported with {codec}"),
            },
        }
    }
    squashfs_settings(&words).with_context(|| format!("-X {}", extra.join(",")))
}
