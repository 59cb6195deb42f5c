//! Use in the export format of ncdu, version 1.2 (<https://dev.yorhel.nl/ncdu/jsonfmt>).

use std::collections::HashMap;
use std::io::Write;

use tree::json::is_invisible;
use tree::usage::{Amount, Visitor};
use tree::{DirEntry, Error, FileKind, Ino, Metadata, Result};

/// Writes a tree while it is measured: a directory is a list of its own object and its entries.
pub(super) struct List<W> {
    out: W,
    /// The name of the first directory.
    name: String,
    depth: u64,
    /// The disk usage of files with several names: ncdu counts these once, and wants the same
    /// number with each.
    linked: HashMap<Ino, u64>,
}

impl<W: Write> List<W> {
    pub(super) fn new(out: W, name: String) -> List<W> {
        List {
            out,
            name,
            depth: 0,
            linked: HashMap::new(),
        }
    }

    /// Ends the list.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn finish(mut self) -> Result<()> {
        self.out.write_all(b"]\n")?;
        Ok(self.out.flush()?)
    }

    /// Writes the beginning of an object with a name. ncdu takes names that are not UTF-8 as they
    /// are.
    fn named(&mut self, name: &[u8]) -> Result<()> {
        self.out.write_all(b"{\"name\":\"")?;
        for chunk in name.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '"' | '\\' => write!(self.out, "\\{letter}")?,
                    _ if letter.is_control() || is_invisible(letter) => {
                        write!(self.out, "\\u{:04x}", u32::from(letter))?;
                    }
                    _ => write!(self.out, "{letter}")?,
                }
            }
            self.out.write_all(chunk.invalid())?;
        }
        Ok(self.out.write_all(b"\"")?)
    }
}

impl<W: Write> Visitor for List<W> {
    fn enter(&mut self, entry: &DirEntry, _: &Metadata) -> Result<()> {
        if self.depth == 0 {
            let version = env!("CARGO_PKG_VERSION");
            write!(
                self.out,
                "[1,2,{{\"progname\":\"restow\",\"progver\":\"{version}\"}}"
            )?;
        }
        self.out.write_all(b",\n[")?;
        let name = std::mem::take(&mut self.name);
        let first = self.depth == 0;
        self.named(if first { name.as_bytes() } else { &entry.name })?;
        self.depth += 1;
        Ok(self.out.write_all(b"}")?)
    }

    fn file(&mut self, entry: &DirEntry, metadata: &Metadata, amount: &Amount) -> Result<()> {
        if self.depth == 0 {
            return Err(Error::InvalidInput("ncdu shows directories only"));
        }
        self.out.write_all(b",\n")?;
        self.named(&entry.name)?;
        let mut stored = amount.stored;
        if metadata.nlink > 1 && entry.kind == FileKind::Regular {
            stored = *self.linked.entry(entry.ino).or_insert(stored);
        }
        let size = match entry.kind {
            FileKind::Regular => metadata.size,
            _ => 0,
        };
        if size > 0 {
            write!(self.out, ",\"asize\":{size}")?;
        }
        if stored > 0 {
            write!(self.out, ",\"dsize\":{stored}")?;
        }
        if entry.kind != FileKind::Regular {
            self.out.write_all(b",\"notreg\":true")?;
        } else if metadata.nlink > 1 {
            let (ino, nlink) = (entry.ino.0, metadata.nlink);
            write!(self.out, ",\"ino\":{ino},\"hlnkc\":true,\"nlink\":{nlink}")?;
        }
        Ok(self.out.write_all(b"}")?)
    }

    fn leave(&mut self) -> Result<()> {
        self.depth -= 1;
        Ok(self.out.write_all(b"]")?)
    }
}
