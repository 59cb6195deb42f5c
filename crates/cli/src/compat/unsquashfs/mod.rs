//! `unsquashfs` and `sqfscat` of squashfs-tools 4.7.5: extract, list and print the files of a
//! SquashFS image.

mod command_line;
mod listing;
mod pseudo;
mod stat;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use restow::info::Squashfs;
use restow::{Address, CopyOptions, Format, ImageAt, OpenOptions, Output, SourceTree};
use tree::edit::{Edited, Edits, PatternSyntax, Patterns, Selection};
use tree::extract::{Conflict, Existing};
use tree::{ByPath, FileKind, Inventory, Limits, Time};

pub(super) use self::command_line::{ROWS, SQFSCAT};
use self::command_line::{Row, Task, UnsquashOptions};
use self::listing::Lister;
use super::options::{Style, parse};
use super::write::{Shown, write_after};
use crate::message::{is_closed_pipe, of_error, tell};
use crate::{cat, text};

/// Exit code if something was lost.
const LOST: u8 = 2;

/// Runs `unsquashfs`.
///
/// # Errors
/// The command line is wrong, the image cannot be read, or the files cannot be written.
pub(super) fn run(words: &[OsString]) -> Result<ExitCode> {
    run_with(ROWS, words, UnsquashOptions::default())
}

/// Runs `sqfscat`.
///
/// # Errors
/// As for [`run`].
pub(super) fn run_sqfscat(words: &[OsString]) -> Result<ExitCode> {
    let request = UnsquashOptions {
        task: Task::Cat,
        ..UnsquashOptions::default()
    };
    run_with(SQFSCAT, words, request)
}

fn run_with(rows: &[Row], words: &[OsString], mut request: UnsquashOptions) -> Result<ExitCode> {
    let operands = parse(rows, Style::HyphenFirst, words, &mut request)?;
    if request.prints_version {
        let version = env!("CARGO_PKG_VERSION");
        writeln!(io::stdout(), "unsquashfs version 4.7.5 (restow {version})")?;
        if operands.is_empty() {
            return Ok(ExitCode::from(1));
        }
    }
    let Some((image, files)) = operands.split_first() else {
        bail!("unsquashfs needs an image");
    };
    let at = request.image_at.filter(|at| *at > 0).map(ImageAt::Byte);
    let open = OpenOptions::default().image_at(at);
    let source = SourceTree::open(&Address::plain(Path::new(image)), &open)?;
    let squashfs = source.squashfs().context("not a SquashFS image")?;
    let squashfs = Arc::clone(squashfs);
    let is_copy = request.task == Task::Extract;
    let is_whole = match perform(&request, source, &squashfs, (image, files)) {
        // The reader of a list may have seen enough.
        Err(error) if !is_copy && is_closed_pipe(&error) => true,
        done => done?,
    };
    Ok(if is_whole || request.no_exit_code {
        ExitCode::SUCCESS
    } else if is_copy && request.is_strict {
        ExitCode::from(1)
    } else {
        ExitCode::from(LOST)
    })
}

/// Does the task, and returns whether nothing was lost.
fn perform(
    request: &UnsquashOptions,
    source: SourceTree,
    squashfs: &Squashfs,
    (image, files): (&OsStr, &[OsString]),
) -> Result<bool> {
    match request.task {
        Task::Extract => return extract(request, source, squashfs, files),
        Task::Cat => return print_files(request, &source, files),
        Task::List => {
            let edits = edits(request, &source, files)?;
            with_selected(&source, edits, |inventory| {
                let prefix = dest(request).as_os_str().as_bytes();
                Lister::new(request, squashfs, prefix).print(inventory)
            })?;
        }
        Task::Pseudo => {
            let edits = edits(request, &source, files)?;
            let file = &request.pseudo_file;
            let output = || {
                if file.as_os_str() == "-" {
                    Ok(Output::standard()?)
                } else {
                    Output::create(file, true)
                }
            };
            let name = || format!("write {}", text::of_host_path(file, "standard output"));
            let mut output = output().with_context(name)?;
            with_selected(&source, edits, |inventory| {
                pseudo::write(inventory, &mut output)
            })?;
            output.commit().with_context(name)?;
        }
        Task::MkfsTime => writeln!(io::stdout(), "{}", squashfs.superblock().mkfs_time)?,
        Task::Stat => {
            let mut out = io::stdout().lock();
            out.write_all(b"Found a valid SQUASHFS 4:0 superblock on ")?;
            out.write_all(image.as_bytes())?;
            write!(out, ".\n{}", stat::lines(squashfs, request.is_utc))?;
        }
    }
    Ok(true)
}

/// Lists the files of a source, with the edits, and hands them to `run`.
fn with_selected<T>(
    source: &SourceTree,
    edits: Edits,
    run: impl FnOnce(&Inventory<'_>) -> Result<T>,
) -> Result<T> {
    let edited = Edited::new(Arc::clone(source.tree()), edits)?;
    let inventory = Inventory::of(&edited, &Limits::default());
    run(&inventory.map_err(|error| source.name_error(error))?)
}

fn dest(request: &UnsquashOptions) -> &Path {
    (request.dest.as_deref()).unwrap_or(Path::new("squashfs-root"))
}

/// The files that are left out, and the changes.
fn edits(request: &UnsquashOptions, source: &SourceTree, files: &[OsString]) -> Result<Edits> {
    let selected = &request.selection;
    let (operands, excluded) = if selected.excludes {
        (&[][..], files)
    } else {
        (files, &[][..])
    };
    let mut only = Vec::new();
    for file in selected.extract.iter().chain(operands) {
        let file = file.as_bytes();
        if file.iter().all(|&byte| byte == b'/') {
            bail!("Invalid extract file {}", text::of_name(file));
        }
        only.push(file.to_vec());
    }
    let exclude = selected.exclude.iter().chain(excluded);
    let exclude: Vec<Vec<u8>> = exclude.map(|file| file.as_bytes().to_vec()).collect();
    if selected.follows {
        let mut paths = Vec::new();
        for file in &only {
            let (way, found) = source.tree().trace(file);
            if let Err(error) = found {
                let words = format!("Extract filename {} can't be resolved", text::of_name(file));
                if selected.must_resolve {
                    return Err(error).context(words);
                }
                tell(&words);
            }
            paths.extend(way);
        }
        only = paths;
    }
    let is_literal = selected.no_wildcards || selected.follows;
    let only = if only.is_empty() {
        Patterns::default()
    } else if is_literal {
        Patterns::default().with_paths(only)
    } else {
        selected.parse(&only)?
    };
    let exclude = if is_literal {
        let patterns = exclude.iter().map(|file| literal(file));
        Patterns::parse(PatternSyntax::Shell, patterns)?
    } else {
        selected.parse(&exclude)?
    };
    Ok(Edits {
        selection: Selection {
            only: only.into(),
            exclude: exclude.into(),
            max_depth: selected.max_depth,
            optional: true,
        },
        no_xattrs: request.no_xattrs,
        xattrs_only: Patterns::parse(PatternSyntax::TextRegex, &request.xattrs_only)?,
        xattrs_exclude: Patterns::parse(PatternSyntax::TextRegex, &request.xattrs_exclude)?,
        time: request.time.map(|seconds| Time {
            seconds,
            nanoseconds: 0,
        }),
        ..Edits::default()
    })
}

/// A pattern that matches only this path.
fn literal(path: &[u8]) -> Vec<u8> {
    let escaped = path.iter().map(|&byte| match byte {
        b'/' => vec![byte],
        _ => vec![b'\\', byte],
    });
    escaped.flatten().collect()
}

/// Prints the contents of files, and returns whether all could be printed.
fn print_files(request: &UnsquashOptions, source: &SourceTree, files: &[OsString]) -> Result<bool> {
    let mut out = io::stdout().lock();
    let mut is_whole = true;
    for file in files {
        let file = file.as_bytes();
        let mut paths = vec![file.to_vec()];
        let selected = &request.selection;
        let is_pattern = selected.is_regex || file.iter().any(|byte| b"*?[\\(".contains(byte));
        if is_pattern && !selected.no_wildcards {
            let selection = Selection {
                only: selected.parse(&paths)?.into(),
                ..Selection::default()
            };
            let only = Arc::clone(&selection.only);
            let edits = Edits {
                selection,
                ..Edits::default()
            };
            paths = with_selected(source, edits, |inventory| {
                let paths = inventory.names().map(|entry| inventory.path(entry));
                Ok(paths.filter(|path| only.matches(path)).collect())
            })?;
            if paths.is_empty() {
                tell(&format!("cat: no matches for {}", text::of_name(file)));
                is_whole = false;
            }
        }
        for path in paths {
            let printed = cat::print(source, &path, &mut out);
            if let Err(error) = printed {
                if is_output_error(&error) {
                    return Err(error);
                }
                tell(&format!("cat: {}", of_error(&error)));
                is_whole = false;
            }
        }
    }
    out.flush()?;
    Ok(is_whole)
}

/// Whether standard output cannot be written, as against a file that cannot be read.
fn is_output_error(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some()
}

/// Extracts the files, and returns whether all of them are whole.
fn extract(
    request: &UnsquashOptions,
    source: SourceTree,
    squashfs: &Squashfs,
    files: &[OsString],
) -> Result<bool> {
    let dest = dest(request);
    let edits = edits(request, &source, files)?;
    let is_filled = fs::read_dir(dest).is_ok_and(|mut entries| entries.next().is_some());
    let existing = match (request.is_forced, is_filled) {
        (true, _) => Existing::MergeThroughLinks(Conflict::Replace),
        (false, true) => Existing::Merge(Conflict::KeepExisting),
        (false, false) => Existing::Refuse,
    };
    let options = CopyOptions::default()
        .existing(existing)
        .update_dirs(true)
        .skip_unreadable(!request.is_strict);
    let mut counts = String::new();
    let to = (dest, Format::Dir);
    let shown = if request.shows_percentage {
        Shown::Percentage
    } else {
        Shown::Nothing
    };
    let summary = write_after(source, to, Some(edits), &options, shown, |job| {
        let inventory = job.inventory();
        let root = inventory.file(inventory.root());
        for entry in inventory.entries(root).filter(|_| !request.is_forced) {
            let path = dest.join(OsStr::from_bytes(&inventory.name(entry)));
            if fs::symlink_metadata(&path).is_ok() {
                let path = text::of_host_path(&path, "-");
                bail!("{path} already exists; -f replaces it");
            }
        }
        if request.shows {
            let prefix = dest.as_os_str().as_bytes();
            Lister::new(request, squashfs, prefix).print(inventory)?;
        }
        counts = created(inventory);
        Ok(())
    })?;
    if !request.is_quiet {
        io::stdout().write_all(counts.as_bytes())?;
    }
    Ok(summary.is_whole())
}

/// The numbers of files of each kind, as unsquashfs prints them.
fn created(inventory: &Inventory<'_>) -> String {
    let mut counts = [0_u64; 7];
    for entry in inventory.names() {
        let file = inventory.file(entry);
        counts[match inventory.kind(file) {
            _ if !inventory.is_first_name(entry) => 6,
            FileKind::Regular => 0,
            FileKind::Directory => 1,
            FileKind::Symlink => 2,
            FileKind::BlockDevice | FileKind::CharDevice => 3,
            FileKind::Fifo => 4,
            FileKind::Socket => 5,
        }] += 1;
    }
    let names = [
        ("file", "files"),
        ("directory", "directories"),
        ("symlink", "symlinks"),
        ("device", "devices"),
        ("fifo", "fifos"),
        ("socket", "sockets"),
        ("hardlink", "hardlinks"),
    ];
    let lines = counts.iter().zip(names).map(|(count, (one, many))| {
        let name = if *count == 1 { one } else { many };
        format!("created {count} {name}\n")
    });
    lines.collect()
}
