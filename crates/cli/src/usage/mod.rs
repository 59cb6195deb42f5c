//! `restow usage`: shows where the stored bytes of a tree are.

mod args;
mod json;
mod measured;
mod ncdu;
mod picture;
mod table;

use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use restow::{Address, overhead};
use tree::usage::{All, LargestFiles, Types, UsageTree, Visitor};
use tree::{HostTimes, Output};

use crate::bar::Bar;
use crate::text;

use args::DEPTH_MAX;
use measured::Measured;

pub(crate) use args::Usage;
pub(crate) use json::of_totals;
pub(crate) use table::forms;

/// Files of a directory that have a rectangle of their own.
const FILES_MAX: usize = 24;

/// Prints and draws the space that a tree takes.
///
/// # Errors
/// The tree cannot be read, or a result cannot be written.
pub(crate) fn run(args: &Usage) -> Result<()> {
    let address = Address::of(&args.src)?;
    let source = args.source.open(&address, true)?;
    let source = source.with_stored_extents(HostTimes::default())?;
    let path = args.path.as_ref().map_or(&b""[..], |path| path.as_bytes());
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let start = source.find(path, false)?;
    let draws = args.svg.is_some() || args.html.is_some();
    let mut nodes = if draws {
        UsageTree::new(FILES_MAX, DEPTH_MAX)
    } else {
        UsageTree::new(0, args.depth)
    };
    let (mut files, mut types) = (LargestFiles::new(args.top), Types::default());
    let mut visitors: Vec<&mut dyn Visitor> = vec![&mut nodes, &mut files, &mut types];
    let mut list = args.ncdu.then(|| {
        let name = source.path_name(path);
        ncdu::List::new(BufWriter::new(io::stdout().lock()), name)
    });
    if let Some(list) = &mut list {
        visitors.push(list);
    }
    let bar = Bar::new("measured", args.quiet.quiet);
    let totals = source.measure((&start, path), &bar, &mut All(visitors));
    bar.finish();
    let totals = totals?;
    if let Some(list) = list {
        list.finish()?;
    }
    let overhead = overhead(&source, &address, &args.source.options(true), &totals);
    let overhead = overhead.with_context(|| format!("read {}", source.name()))?;
    let lists_subvolumes = args.subvolumes || !args.if_deleted.is_empty();
    let subvolumes = lists_subvolumes.then(|| source.subvolume_usage(&address, &args.if_deleted));
    let image = source
        .container_image()
        .filter(|_| source.has_layers() && path.is_empty());
    let layers = image.map(|image| Ok((Arc::clone(image), image.usage()?)));
    let layers: tree::Result<Option<_>> = layers.transpose();
    let measured = Measured {
        name: source.path_name(path),
        totals,
        nodes,
        files: files.sorted(),
        types,
        overhead: overhead.filter(|_| path.is_empty()),
        subvolumes: subvolumes.transpose()?,
        layers: layers.with_context(|| format!("read {}", source.name()))?,
    };
    if let Some(file) = &args.svg {
        write(file, &picture::drawing(&measured).document())?;
    }
    if let Some(file) = &args.html {
        write(file, &picture::page(&measured, args))?;
    }
    let words = match (args.ncdu, args.json) {
        (true, _) => return Ok(()),
        (false, true) => json::of_measured(&measured, args).line() + "\n",
        (false, false) => table::all(&measured, args),
    };
    let mut out = io::stdout().lock();
    out.write_all(words.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes a file as a whole, or leaves the old one.
fn write(path: &Path, text: &str) -> Result<()> {
    let write = || -> tree::Result<()> {
        let output = Output::create(path, true)?;
        output.write_all_at(text.as_bytes(), 0)?;
        output.commit()
    };
    write().with_context(|| format!("write {}", text::of_name(path.as_os_str().as_bytes())))
}
