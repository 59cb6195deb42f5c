//! Unnamed files for input that cannot be read twice, such as a pipe.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use linux::OpenFlags;

use super::temporary::Temporary;
use crate::{Error, Result};

/// Lets `fill` write a new unnamed file in the directory `dir`. It is removed when it
/// is closed.
///
/// # Errors
/// [`Error::File`] with the directory if the file cannot be created or written; otherwise those of
/// `fill`.
pub fn spool(fill: impl FnOnce(&mut dyn Write) -> io::Result<u64>, dir: &Path) -> Result<File> {
    let name = |error: Error| error.in_file("write in", dir.as_os_str().as_encoded_bytes());
    let mut spooled = Spool {
        file: unnamed_file(dir).map_err(name)?,
        failed: false,
    };
    let filled = fill(&mut spooled);
    filled.map_err(|error| {
        if spooled.failed {
            name(error.into())
        } else {
            error.into()
        }
    })?;
    Ok(spooled.file)
}

/// A file that remembers whether it is to blame for an error: what is written comes from elsewhere,
/// and can fail, too.
struct Spool {
    file: File,
    failed: bool,
}

impl Write for Spool {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.file.write(buf);
        self.failed |= matches!(&written, Err(error) if error.kind() != io::ErrorKind::Interrupted);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A new file without a name, removed when it is closed.
pub(crate) fn unnamed_file(dir: &Path) -> Result<File> {
    let dir = Arc::new(linux::open_dir(dir)?);
    if let Ok(file) = linux::open_unnamed(&*dir, 0o600) {
        return Ok(file.into());
    }
    // The file system does not support unnamed files.
    let (temporary, file) = Temporary::create(&dir, b"spool", |dir, name| {
        let flags = OpenFlags::RDWR | OpenFlags::CREATE | OpenFlags::EXCL;
        linux::open_at(dir, name, flags, 0o600)
    })?;
    drop(temporary); // That removes the name.
    Ok(file.into())
}
