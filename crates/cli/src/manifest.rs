//! `restow manifest`

use std::io;

use anyhow::{Context, Result};
use tree::manifest::write;
use tree::{Inventory, Limits, Progress};

use crate::args::{self, Manifest};
use crate::bar::Bar;
use crate::{open, threads};

pub(crate) fn run(args: &Manifest) -> Result<()> {
    let source = open::open(&args.src, &args.source)?;
    let tree = &*source.tree;
    let inventory = Inventory::of(tree, &Limits::default());
    let inventory = inventory.map_err(|error| source.name_error(error))?;
    let bar = Bar::new("hashed", false);
    bar.expect(
        Some(inventory.file_count().into()),
        Some(inventory.content_bytes()),
    );
    let mut out = io::stdout().lock();
    let written = write(
        tree,
        &inventory,
        &args::aspects(&args.ignore, args.holes),
        threads(args.threads),
        &bar,
        &mut out,
    );
    bar.finish();
    match written {
        Err(error @ tree::Error::File { .. }) => Err(source.name_error(error)),
        written => written.context("write standard output"),
    }
}
