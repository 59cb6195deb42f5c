//! `sqfs2tar` of squashfs-tools-ng 1.3: a SquashFS image as a tar archive on standard output.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use restow::{Address, CopyOptions, Format, OpenOptions, SourceTree, Unpreserved};
use tree::edit::{Edits, Patterns, Selection};

use super::options::{OptionRow, Style, parse};
use super::write::write;

/// The contents of the command line.
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

type Row = OptionRow<Request>;

/// Its options.
pub(super) const ROWS: &[Row] = &[
    Row::with(&["-c", "--compressor"], "NAME", |request, name| {
        request.format = Some(match name.to_str() {
            Some("gzip") => Format::TarGz,
            Some("xz") => Format::TarXz,
            Some("zstd") => Format::TarZst,
            _ => bail!("must be gzip, xz or zstd"),
        });
        Ok(())
    })
    .noted("without bzip2"),
    Row::with(&["-d", "--subdir"], "DIR", |request, dir| {
        request.dirs.push(dir.to_owned());
        Ok(())
    }),
    Row::flag(&["-k", "--keep-as-dir"], |request| request.keeps_dir = true),
    Row::with(&["-r", "--root-becomes"], "DIR", |request, dir| {
        request.root = dir.to_owned();
        Ok(())
    })
    .noted("without it, the root is `./`"),
    Row::flag(&["-X", "--no-xattr"], |request| request.no_xattrs = true),
    Row::flag(&["-L", "--no-hard-links"], |request| {
        request.no_hard_links = true;
    }),
    Row::flag(&["-s", "--no-skip"], |request| request.is_strict = true),
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
