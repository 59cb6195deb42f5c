//! `restow manifest`: describes a tree as text.

use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use restow::Address;
use tree::manifest::write;
use tree::{Inventory, Limits, Progress};

use crate::bar::Bar;
use crate::options::{
    AspectArgs, QuietArgs, SOURCE_HELP, SOURCE_LONG_HELP, SourceArgs, ThreadArgs,
};

/// Describe a tree as text, one line per file
///
/// The text is an mtree(5) specification in canonical form: equal trees give equal text, also in
/// different formats. Each line has the path, kind, mode, owner, size, modification time, extended
/// attributes, the first name of a hard link, and the SHA-256 hash of the contents.
///
/// A file of more than 1 GiB of which fewer than one 4 KiB block in 1,024 is not zero has the word
/// `sha256data` instead: the hash of the offset (eight bytes, least significant first) and the
/// content of each block that is not zero.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow manifest src.tar > src.mtree
  restow manifest --ignore mtime,owner src | sha256sum
  diff <(restow manifest old) <(restow manifest new)")]
pub(crate) struct Manifest {
    #[arg(help = SOURCE_HELP, long_help = SOURCE_LONG_HELP)]
    src: PathBuf,

    #[command(flatten)]
    aspects: AspectArgs,

    #[command(flatten)]
    threads: ThreadArgs,

    #[command(flatten)]
    quiet: QuietArgs,

    #[command(flatten)]
    source: SourceArgs,
}

/// Prints the manifest.
///
/// # Errors
/// The tree cannot be read, or the manifest cannot be written.
pub(crate) fn run(args: &Manifest) -> Result<()> {
    let address = Address::of(&args.src)?;
    let source = args.source.open(&address, false)?;
    let tree = &**source.tree();
    let inventory = Inventory::of(tree, &Limits::default());
    let inventory = inventory.map_err(|error| source.name_error(error))?;
    let bar = Bar::new("hashed", args.quiet.quiet);
    bar.expect(
        Some(inventory.file_count().into()),
        Some(inventory.content_bytes()),
    );
    let mut out = io::stdout().lock();
    let written = write(
        &inventory,
        &args.aspects.aspects(),
        args.threads.parallel(),
        &bar,
        &mut out,
    );
    bar.finish();
    match written {
        Err(error @ tree::Error::File { .. }) => Err(source.name_error(error).into()),
        written => written.context("write standard output"),
    }
}
