//! `restow cat`: prints files.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use restow::{Address, SourceTree};
use tree::{Error, FileKind};

use crate::options::{QuietArgs, SOURCE_HELP, SOURCE_LONG_HELP, SourceArgs};

/// Bytes read and written at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Print files to standard output
///
/// Symbolic links are followed within the tree; a target with a leading `/` starts at the root of
/// the tree.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow cat src.tar etc/os-release
  restow cat disk.btrfs:snapshot etc/fstab
  tar c src | restow cat - src/a src/b > both")]
pub(crate) struct Cat {
    #[arg(help = SOURCE_HELP, long_help = SOURCE_LONG_HELP)]
    src: PathBuf,

    /// Files to print
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    quiet: QuietArgs,

    #[command(flatten)]
    source: SourceArgs,
}

/// Prints the files.
///
/// # Errors
/// One is not a regular file, cannot be read, or cannot be written.
pub(crate) fn run(args: &Cat) -> Result<()> {
    let address = Address::of(&args.src)?;
    let source = args.source.open(&address, false)?;
    let mut out = io::stdout().lock();
    for path in &args.paths {
        print(&source, path.as_os_str().as_bytes(), &mut out)?;
    }
    Ok(out.flush()?)
}

/// Prints one file.
///
/// # Errors
/// As for [`run`].
pub(crate) fn print(source: &SourceTree, path: &[u8], out: &mut dyn Write) -> Result<()> {
    let entry = source.find(path, true)?;
    let in_file = |error: Error| source.name_error(error.in_file("read", path));
    match entry.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(in_file(Error::IsADirectory).into()),
        _ => return Err(in_file(Error::InvalidInput("it is not a regular file")).into()),
    }
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    loop {
        let count = source
            .tree()
            .read_at(entry.ino, offset, &mut buffer)
            .map_err(in_file)?;
        if count == 0 {
            return Ok(());
        }
        out.write_all(&buffer[..count])?;
        offset += count as u64;
    }
}
