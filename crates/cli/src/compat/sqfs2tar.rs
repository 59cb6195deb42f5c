//! `sqfs2tar` of squashfs-tools-ng 1.3: a SquashFS image as a tar archive on standard output.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use restow::{Address, CopyOptions, Format, OpenOptions, SourceTree, Unpreserved};
use tree::edit::{Edits, Patterns, Selection};

use super::options::{Effect, OptionRow, Style, parse};
use super::write::write;

/// What the command line says.
#[derive(Default)]
pub(super) struct Request {
    format: Option<Format>,
    dirs: Vec<OsString>,
    keeps_dir: bool,
    root: OsString,
    no_xattrs: bool,
    no_hard_links: bool,
    is_strict: bool,
}

/// Its options.
pub(super) const ROWS: &[OptionRow<Request>] = &[
    OptionRow {
        names: &["-c", "--compressor"],
        value: "NAME",
        effect: Effect::Value(|request, name| {
            request.format = Some(match name.to_str() {
                Some("gzip") => Format::TarGz,
                Some("xz") => Format::TarXz,
                Some("zstd") => Format::TarZst,
                _ => bail!("must be gzip, xz or zstd"),
            });
            Ok(())
        }),
        note: "without bzip2",
    },
    OptionRow {
        names: &["-d", "--subdir"],
        value: "DIR",
        effect: Effect::Value(|request, dir| {
            request.dirs.push(dir.to_owned());
            Ok(())
        }),
        note: "",
    },
    OptionRow {
        names: &["-k", "--keep-as-dir"],
        value: "",
        effect: Effect::Flag(|request| request.keeps_dir = true),
        note: "",
    },
    OptionRow {
        names: &["-r", "--root-becomes"],
        value: "DIR",
        effect: Effect::Value(|request, dir| {
            request.root = dir.to_owned();
            Ok(())
        }),
        note: "without it, the root is `./`",
    },
    OptionRow {
        names: &["-X", "--no-xattr"],
        value: "",
        effect: Effect::Flag(|request| request.no_xattrs = true),
        note: "",
    },
    OptionRow {
        names: &["-L", "--no-hard-links"],
        value: "",
        effect: Effect::Flag(|request| request.no_hard_links = true),
        note: "",
    },
    OptionRow {
        names: &["-s", "--no-skip"],
        value: "",
        effect: Effect::Flag(|request| request.is_strict = true),
        note: "",
    },
];

/// Writes the archive.
///
/// # Errors
/// The command line is wrong, or the image cannot be read or the archive not be written.
pub(super) fn run(words: &[OsString]) -> Result<ExitCode> {
    let mut request = Request::default();
    let operands = parse(ROWS, Style::Getopt, words, &mut request)?;
    let [image] = &operands[..] else {
        bail!("sqfs2tar takes one image");
    };
    let mut address = Address::plain(Path::new(image));
    let mut source = SourceTree::open(&address, &OpenOptions::default())?;
    source.squashfs().context("not a SquashFS image")?;
    let mut selection = Selection::default();
    match &request.dirs[..] {
        [] => {}
        [dir] if !request.keeps_dir => {
            address.subvolume = Some(dir.clone());
            source = SourceTree::open(&address, &OpenOptions::default())?;
        }
        dirs => {
            let dirs = dirs.iter().map(|dir| dir.as_bytes());
            selection.only = Patterns::default().with_paths(dirs).into();
        }
    }
    if !request.root.is_empty() {
        let root = request.root.as_bytes();
        (source, _) = source.join(root, Vec::new(), std::mem::take(&mut selection), 0)?;
    }
    let edits = Edits {
        selection,
        no_xattrs: request.no_xattrs,
        no_hard_links: request.no_hard_links,
        ..Edits::default()
    };
    let to = (Path::new("-"), request.format.unwrap_or(Format::Tar));
    let summary = write(source, to, Some(edits), &CopyOptions::default())?;
    let is_skipped = |lost: &Unpreserved| matches!(lost, Unpreserved::Socket(_));
    if request.is_strict && summary.unpreserved.iter().any(is_skipped) {
        bail!("--no-skip: a file cannot be stored in a tar archive");
    }
    Ok(ExitCode::SUCCESS)
}
