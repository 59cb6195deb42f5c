//! The output of `unsquashfs -pf`: a list of definitions, from which mksquashfs makes the image
//! again, and the content of the files behind it.

use std::io::{BufWriter, Write};

use anyhow::Result;
use tree::{Error, ExtentKind, FileKind, Inventory, Xattr};

use super::listing::stated_device;

/// Bytes of content that are copied at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Writes the list and the contents.
///
/// # Errors
/// A file cannot be read, or the output not be written; no definition can have the target of a
/// symbolic link, since there is a line break in it.
pub(super) fn write(inventory: &Inventory<'_>, out: &mut dyn Write) -> Result<()> {
    let mut out = BufWriter::new(out);
    let mut contents = Vec::new();
    let mut content_at = 0;
    for entry in inventory.names() {
        let path = inventory.path(entry);
        let file = inventory.file(entry);
        let in_file = |error: Error| error.in_file("read", &path);
        let name = if path.is_empty() {
            b"/".to_vec()
        } else {
            escaped(&path)
        };
        out.write_all(&name)?;
        if !inventory.is_first_name(entry) {
            let first = inventory.path(inventory.first_name(file));
            out.write_all(&[b" L ", &*first, b"\n"].concat())?;
            continue;
        }
        let metadata = inventory.metadata(file);
        let common = format!(
            "{} {:o} {} {}",
            metadata.mtime.seconds, metadata.permissions, metadata.uid, metadata.gid
        );
        match metadata.kind {
            FileKind::Regular => {
                let mut has_hole = false;
                let mut extents = inventory.extents(file);
                while let Some(extent) = extents.next().map_err(in_file)? {
                    has_hole |= matches!(extent.kind, ExtentKind::Hole);
                }
                let (size, is_sparse) = (metadata.size, u8::from(has_hole));
                writeln!(out, " R {common} {size} {content_at} {is_sparse}")?;
                content_at += size;
                contents.push(file);
            }
            FileKind::Directory => writeln!(out, " D {common}")?,
            FileKind::Symlink => {
                let target = inventory.tree().read_link(inventory.ino(file));
                let target = target.map_err(in_file)?;
                if target.contains(&b'\n') {
                    let error = Error::Unsupported("a line break in the target of a link");
                    return Err(in_file(error).into());
                }
                write!(out, " S {common} ")?;
                out.write_all(&target)?;
                out.write_all(b"\n")?;
            }
            FileKind::BlockDevice | FileKind::CharDevice => {
                let is_block = metadata.kind == FileKind::BlockDevice;
                let letter = if is_block { 'B' } else { 'C' };
                let (major, minor) = stated_device(metadata.rdev);
                writeln!(out, " {letter} {common} {major} {minor}")?;
            }
            FileKind::Fifo => writeln!(out, " I {common} f")?,
            FileKind::Socket => writeln!(out, " I {common} s")?,
        }
        for xattr in inventory
            .tree()
            .xattrs(inventory.ino(file))
            .map_err(in_file)?
        {
            out.write_all(&[&*name, b" x ", &*definition(&xattr), b"\n"].concat())?;
        }
    }
    out.write_all(b"#\n# START OF DATA - DO NOT MODIFY\n#\n")?;
    let mut buffer = vec![0; CHUNK_BYTES];
    for file in contents {
        let in_file = |error: Error| {
            let path = inventory.path(inventory.first_name(file));
            error.in_file("read", &path)
        };
        let (ino, size) = (inventory.ino(file), inventory.size(file));
        let mut at = 0;
        while at < size {
            let read = inventory.tree().read_at(ino, at, &mut buffer);
            let count = read.map_err(in_file)?;
            if count == 0 {
                return Err(in_file(Error::Changed).into());
            }
            out.write_all(&buffer[..count])?;
            at += count as u64;
        }
    }
    Ok(out.flush()?)
}

/// A path with a backslash before each character that would end it.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(path.len());
    for &byte in path {
        if matches!(byte, b' ' | b'\\' | b'\n' | b'\t' | b'"' | b'\r' | 11 | 12) {
            escaped.push(b'\\');
        }
        escaped.push(byte);
    }
    escaped
}

/// An attribute: as it is, or with escapes if it is not printable or would be taken for escaped.
fn definition(xattr: &Xattr) -> Vec<u8> {
    let is_printable = |byte: &u8| (b' '..=b'~').contains(byte);
    let is_plain = xattr.value.iter().all(is_printable) && !xattr.value.starts_with(b"0");
    let mut line = [&*xattr.name, b"="].concat();
    if is_plain {
        line.extend_from_slice(&xattr.value);
        return line;
    }
    line.extend_from_slice(b"0t");
    for byte in &xattr.value {
        match byte {
            b'\\' => line.extend_from_slice(b"\\134"),
            byte if is_printable(byte) => line.push(*byte),
            byte => line.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
        }
    }
    line
}
