//! A tree as text, one line per name, so that trees in any two containers can be compared, kept and
//! read.
//!
//! The text is an mtree(5) specification, which other programs can read, in one canonical form:
//! equal trees give equal bytes. A line is a path followed by `key=value` words, separated by
//! single spaces, in this order:
//!
//! | word | on | value |
//! |---|---|---|
//! | (path) | all | `.` or `./` and the names; directories before their entries, names ascending |
//! | `type` | all | `file`, `dir`, `link`, `block`, `char`, `fifo` or `socket` |
//! | `mode` | all but links | the low twelve bits of the mode, four octal digits |
//! | `uid` `gid` | all | numbers |
//! | `size` | files | bytes |
//! | `time` | all | last change of content: seconds since 1970, rounded down, a dot, nine digits |
//! | `device` | devices | `linux,MAJOR,MINOR` |
//! | `link` | links | the target |
//! | `hardlink` | all but the first name of a file | the path of its first name |
//! | `data` | sparse files, if asked for | `OFFSET+LENGTH` of each part between holes, with `,` |
//! | `xattr.NAME` | all | the value in hexadecimal digits; over 64 bytes `sha256:` and its hash |
//! | `sha256digest` | files, except mostly empty ones | SHA-256 of the content |
//! | `sha256data` | mostly empty files | SHA-256 of blocks that are not zero, with offsets |
//!
//! A file is *mostly empty* if it has more than 2^30 bytes, and fewer than one in 1,024 of its
//! blocks of 4,096 bytes has a byte other than zero: N * 1024 < B, where N counts such blocks and B
//! all of them, including a shorter one at the end. Hashing all of it would take as long as its
//! size, not as long as its data: 8 EB would take centuries. Its `sha256data` is the SHA-256
//! of the concatenation, for each of the N blocks, of the block's offset in the file as eight
//! bytes, least significant first, and the block's bytes. The last block is not padded. So the
//! value depends on the content only, not on the container's record of holes; together with `size`
//! it determines the content.
//!
//! In names, targets and attribute names, every byte other than visible ASCII, and each `\`, `#`,
//! `=` and `,`, is written as `\` and three octal digits. So the text is ASCII, and lines and words
//! are unambiguous.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write as _};

use sha2::{Digest, Sha256};

use super::data::{BLOCK_BYTES, DataRuns, for_each_nonzero};
use super::{Aspects, EntryId, Extents, FileId, FileKind, FileSystem, Ino, Inventory, Metadata};
use crate::{Error, Limits, NoProgress, Parallel, Progress, Result, ordered};

/// How many bytes are hashed at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Extended attributes with longer values are shown as a hash.
const XATTR_SHOWN_BYTES_MAX: usize = 64;

/// Files up to this size have a hash of all of their content.
const FULL_BYTES_MAX: u64 = 1 << 30;

/// Of a larger file, all content is hashed if one in this many blocks is not zero.
const BLOCKS_PER_NONZERO: u64 = 1024;

/// The first line.
const SIGNATURE: &str = "#mtree\n";

/// A manifest in memory, for an easy comparison of two trees. Programs write it to a file with
/// [`write()`].
#[derive(Clone, PartialEq, Eq)]
pub struct Manifest {
    text: String,
}

impl Manifest {
    /// Creates the manifest of a whole tree with all available threads.
    ///
    /// # Errors
    /// As for [`write()`].
    pub fn of(fs: &dyn FileSystem, aspects: &Aspects) -> Result<Manifest> {
        let inventory = Inventory::of(fs, &Limits::default())?;
        let mut text = Vec::new();
        write(
            &inventory,
            aspects,
            Parallel::available(),
            &NoProgress,
            &mut text,
        )?;
        let text = String::from_utf8(text).expect("a manifest is ASCII");
        Ok(Manifest { text })
    }

    /// The text, including the first line.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The lines, without the first one.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.lines().skip(1)
    }

    /// The lines that are in only one of the manifests, marked with `-` for this and `+` for the
    /// other; empty if both are equal.
    pub fn difference(&self, other: &Manifest) -> String {
        let mut theirs: HashMap<&str, &str> = HashMap::new();
        let path = |line: &'_ str| line.split(' ').next().unwrap_or_default().len();
        theirs.extend(other.lines().map(|line| line.split_at(path(line))));
        let mut text = String::new();
        for line in self.lines() {
            let (path, words) = line.split_at(path(line));
            let their_words = theirs.remove(path);
            if their_words != Some(words) {
                text += &format!("-{line}\n");
                if let Some(words) = their_words {
                    text += &format!("+{path}{words}\n");
                }
            }
        }
        let only_theirs = |line: &&str| theirs.contains_key(&line[..path(line)]);
        for line in other.lines().filter(only_theirs) {
            text += &format!("+{line}\n");
        }
        text
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{}", self.text)
    }
}

/// Writes the manifest of a tree. Files are hashed on several threads; the text
/// does not depend on their number.
///
/// # Errors
/// [`Error::File`] if a file cannot be read; [`Error::Io`] if `out` cannot be written.
pub fn write(
    inventory: &Inventory<'_>,
    aspects: &Aspects,
    parallel: Parallel,
    progress: &dyn Progress,
    out: &mut dyn io::Write,
) -> Result<()> {
    let lines = Lines { inventory, aspects };
    let mut out = io::BufWriter::with_capacity(64 << 10, out);
    out.write_all(SIGNATURE.as_bytes())?;
    // For files with several names: what their first line has after the path, to repeat it for the
    // other names.
    let mut said: HashMap<FileId, String> = HashMap::new();
    ordered(
        parallel,
        inventory.names(),
        Vec::new,
        |buffer, entry| {
            if !inventory.is_first_name(entry) {
                return Ok((entry, None));
            }
            let words = lines.words(inventory.file(entry), buffer);
            let words = words.map_err(|error| error.in_file("read", &inventory.path(entry)))?;
            Ok((entry, Some(words)))
        },
        |(entry, words): (EntryId, Option<String>)| -> Result<()> {
            let file = inventory.file(entry);
            let is_first = words.is_some();
            let words = match &words {
                Some(words) => words,
                // Its first name came earlier, since lines are in the order of the names.
                None => &said[&file],
            };
            let mut line = String::new();
            add_path(&mut line, &inventory.path(entry));
            line += words;
            if !is_first && aspects.hard_links {
                line += " hardlink=";
                add_path(&mut line, &inventory.path(inventory.first_name(file)));
            }
            line.push('\n');
            out.write_all(line.as_bytes())?;
            if is_first {
                progress.advance(1, inventory.size(file));
                if inventory.name_count(file) > 1 {
                    said.insert(file, words.clone());
                }
            }
            Ok(())
        },
    )?;
    Ok(out.flush()?)
}

struct Lines<'a> {
    inventory: &'a Inventory<'a>,
    aspects: &'a Aspects,
}

impl Lines<'_> {
    /// The part of a line after the path.
    fn words(&self, file: FileId, buffer: &mut Vec<u8>) -> Result<String> {
        let ino = self.inventory.ino(file);
        let metadata = self.inventory.metadata(file);
        let Metadata {
            kind,
            permissions,
            uid,
            gid,
            size,
            rdev,
            mtime,
            ..
        } = metadata;
        let aspects = self.aspects;
        let kind_word = match kind {
            FileKind::Regular => "file",
            FileKind::Directory => "dir",
            FileKind::Symlink => "link",
            FileKind::BlockDevice => "block",
            FileKind::CharDevice => "char",
            FileKind::Fifo => "fifo",
            FileKind::Socket => "socket",
        };
        let mut words = format!(" type={kind_word}");
        // The mode of a symbolic link has no meaning, and Linux cannot set it.
        if aspects.permissions && kind != FileKind::Symlink {
            words += &format!(" mode={permissions:04o}");
        }
        if aspects.owner {
            words += &format!(" uid={uid} gid={gid}");
        }
        if kind == FileKind::Regular {
            words += &format!(" size={size}");
        }
        if aspects.mtime {
            words += &format!(" time={}.{:09}", mtime.seconds, mtime.nanoseconds);
        }
        if kind.is_device() {
            words += &format!(" device=linux,{},{}", rdev.major, rdev.minor);
        }
        if kind == FileKind::Symlink {
            words += " link=";
            add_escaped(&mut words, &self.inventory.tree().read_link(ino)?);
        }
        if aspects.holes && kind == FileKind::Regular {
            self.add_data(&mut words, ino, size)?;
        }
        if aspects.xattrs {
            for xattr in self.inventory.tree().xattrs(ino)? {
                words += " xattr.";
                add_escaped(&mut words, &xattr.name);
                words.push('=');
                if xattr.value.len() > XATTR_SHOWN_BYTES_MAX {
                    words += "sha256:";
                    add_hex(&mut words, &Sha256::digest(&xattr.value));
                } else {
                    add_hex(&mut words, &xattr.value);
                }
            }
        }
        if aspects.content && kind == FileKind::Regular {
            let (word, digest) = match self.data_digest(ino, size, buffer)? {
                Some(digest) => ("sha256data", digest),
                None => ("sha256digest", self.digest(ino, size, buffer)?),
            };
            words += &format!(" {word}=");
            add_hex(&mut words, &digest);
        }
        Ok(words)
    }

    /// Merges adjacent data extents. A file without holes has no such word.
    fn add_data(&self, words: &mut String, ino: Ino, size: u64) -> Result<()> {
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let mut has_hole = false;
        let mut extents = Extents::new(self.inventory.tree(), ino, size);
        while let Some(extent) = extents.next()? {
            if !extent.kind.has_data() {
                has_hole = true;
            } else if let Some(last) = parts.last_mut().filter(|(_, end)| *end == extent.offset) {
                last.1 = extent.end();
            } else {
                parts.push((extent.offset, extent.end()));
            }
        }
        if has_hole {
            *words += " data=";
            for (index, (from, to)) in parts.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                *words += &format!("{comma}{from}+{}", to - from);
            }
        }
        Ok(())
    }

    /// The hash of a mostly empty file; `None` for another one.
    fn data_digest(&self, ino: Ino, size: u64, buffer: &mut Vec<u8>) -> Result<Option<[u8; 32]>> {
        if size <= FULL_BYTES_MAX {
            return Ok(None);
        }
        buffer.resize(CHUNK_BYTES, 0);
        let blocks = size.div_ceil(BLOCK_BYTES);
        let (mut hash, mut nonzero) = (Sha256::new(), 0);
        let mut is_mostly_empty = true;
        for_each_nonzero(
            self.inventory.tree(),
            ino,
            size,
            0..size,
            buffer,
            |mut offset, bytes| {
                for block in bytes.chunks(BLOCK_BYTES as usize) {
                    hash.update(offset.to_le_bytes());
                    hash.update(block);
                    offset += BLOCK_BYTES;
                    nonzero += 1;
                }
                // Stops early for an ordinary file, which is then read from its beginning.
                is_mostly_empty = nonzero * BLOCKS_PER_NONZERO < blocks;
                is_mostly_empty
            },
        )?;
        Ok(is_mostly_empty.then(|| hash.finalize().into()))
    }

    /// The hash of all content. Holes are not read.
    fn digest(&self, ino: Ino, size: u64, buffer: &mut Vec<u8>) -> Result<[u8; 32]> {
        buffer.resize(CHUNK_BYTES, 0);
        let mut hash = Sha256::new();
        let mut runs = DataRuns::new(self.inventory.tree(), ino, size);
        let mut at = 0;
        while at < size {
            let run = runs.after(at)?;
            if at < run.start {
                buffer.fill(0);
            }
            while at < run.start {
                let len = (run.start - at).min(CHUNK_BYTES as u64) as usize;
                hash.update(&buffer[..len]);
                at += len as u64;
            }
            while at < run.end {
                let len = (run.end - at).min(CHUNK_BYTES as u64) as usize;
                if self.inventory.tree().read_at(ino, at, &mut buffer[..len])? != len {
                    return Err(Error::Changed);
                }
                hash.update(&buffer[..len]);
                at += len as u64;
            }
        }
        Ok(hash.finalize().into())
    }
}

fn add_path(text: &mut String, path: &[u8]) {
    text.push('.');
    if !path.is_empty() {
        text.push('/');
        add_escaped(text, path);
    }
}

fn add_escaped(text: &mut String, bytes: &[u8]) {
    for &byte in bytes {
        match byte {
            b'\\' | b'#' | b'=' | b',' => {}
            b'!'..=b'~' => {
                text.push(byte.into());
                continue;
            }
            _ => {}
        }
        *text += &format!("\\{byte:03o}");
    }
}

fn add_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.extend(
            [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_unambiguously() {
        let mut text = String::new();
        add_path(&mut text, b"a b/\xff\\x=#\n,~");
        assert_eq!(text, "./a\\040b/\\377\\134x\\075\\043\\012\\054~");
    }

    #[test]
    fn differences_name_both_sides() {
        let manifest = |text: &str| Manifest {
            text: format!("#mtree\n{text}"),
        };
        let a = manifest("./a x=1\n./b x=1\n./c x=1\n");
        let b = manifest("./a x=1\n./b x=2\n./d x=1\n");
        assert_eq!(a.difference(&b), "-./b x=1\n+./b x=2\n-./c x=1\n+./d x=1\n");
        assert_eq!(a.difference(&a), "");
    }
}
