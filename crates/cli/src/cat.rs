//! `restow cat`

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use anyhow::Result;
use tree::{Error, FileKind};

use crate::args::Cat;
use crate::open;

/// Bytes read and written at once.
const CHUNK_BYTES: usize = 256 << 10;

pub(crate) fn run(args: &Cat) -> Result<()> {
    let source = open::open(&args.src, &args.source)?;
    let mut out = io::stdout().lock();
    let mut buffer = vec![0; CHUNK_BYTES];
    for path in &args.paths {
        let path = path.as_os_str().as_bytes();
        let entry = source.find(path, true)?;
        let in_file = |error: Error| source.name_error(error.in_file("read", path));
        match entry.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(in_file(Error::IsADirectory)),
            _ => return Err(in_file(Error::InvalidInput("it is not a regular file"))),
        }
        let mut offset = 0;
        loop {
            let count = source
                .tree
                .read_at(entry.ino, offset, &mut buffer)
                .map_err(in_file)?;
            if count == 0 {
                break;
            }
            out.write_all(&buffer[..count])?;
            offset += count as u64;
        }
    }
    Ok(out.flush()?)
}
