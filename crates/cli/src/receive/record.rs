//! The record of what a directory has received: a text file, one line for each subvolume.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tree::{FileKind, HostDir, Inventory, Limits, Output, Sha256};

use crate::stream::input::of_uuid;
use crate::text;

/// The record's name.
const NAME: &str = ".restow-received";
/// Its first line. Each line after it has UUID, transaction, digest and name.
const FIRST: &str = "restow received 1";

/// A subvolume that is now a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) uuid: [u8; 16],
    pub(super) ctransid: u64,
    /// [`digest`] of the directory.
    pub(super) digest: String,
    pub(super) name: Vec<u8>,
}

/// The record of a directory.
pub(super) struct Record {
    path: PathBuf,
    pub(super) entries: Vec<Entry>,
}

impl Record {
    /// Reads the record of a directory; it is empty if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is no record.
    pub(super) fn read(dir: &Path) -> Result<Record> {
        let path = dir.join(NAME);
        let shown = || format!("read {}", text::of_host_path(&path, "-"));
        let words = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let entries = Vec::new();
                return Ok(Record { path, entries });
            }
            words => words.with_context(shown)?,
        };
        let mut lines = words.lines();
        if lines.next() != Some(FIRST) {
            bail!("{}: not a record of received subvolumes", shown());
        }
        let mut entries = Vec::new();
        for line in lines {
            let entry = parse(line);
            entries.push(entry.with_context(|| format!("{}: wrong line: {line}", shown()))?);
        }
        Ok(Record { path, entries })
    }

    /// Adds a directory and writes the record.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(&mut self, entry: Entry) -> Result<()> {
        // What was there under this name is gone.
        self.entries.retain(|it| it.name != entry.name);
        self.entries.push(entry);
        let mut words = format!("{FIRST}\n");
        for entry in &self.entries {
            words += &emit(entry);
        }
        let write = || -> tree::Result<()> {
            let output = Output::create(&self.path, true)?;
            output.write_all_at(words.as_bytes(), 0)?;
            output.commit()
        };
        write().with_context(|| format!("write {}", text::of_host_path(&self.path, "-")))
    }
}

/// A digest of the names, kinds, sizes and modification times of a directory: it shows whether the directory was changed since.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn digest(dir: &HostDir) -> tree::Result<String> {
    let inventory = Inventory::of(dir, &Limits::default())?;
    let mut digest = Sha256::new();
    for entry in inventory.names() {
        let file = inventory.file(entry);
        let path = inventory.path(entry);
        let mtime = inventory.metadata(file).mtime;
        let kind: u8 = match inventory.kind(file) {
            FileKind::Regular => b'f',
            FileKind::Directory => b'd',
            FileKind::Symlink => b'l',
            _ => b'o',
        };
        digest.update(&(path.len() as u64).to_le_bytes());
        digest.update(&path);
        digest.update(&[kind]);
        digest.update(&inventory.size(file).to_le_bytes());
        digest.update(&mtime.seconds.to_le_bytes());
        digest.update(&mtime.nanoseconds.to_le_bytes());
    }
    let digest = digest.finish();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn emit(entry: &Entry) -> String {
    let mut line = format!(
        "{} {} {} ",
        of_uuid(&entry.uuid),
        entry.ctransid,
        entry.digest
    );
    for &byte in &entry.name {
        if byte.is_ascii_graphic() && byte != b'%' {
            line.push(char::from(byte));
        } else {
            line += &format!("%{byte:02x}");
        }
    }
    line + "\n"
}

fn parse(line: &str) -> Option<Entry> {
    let mut fields = line.split(' ');
    let mut next = || fields.next();
    let (uuid, ctransid, digest, words) = (next()?, next()?, next()?, next()?);
    let uuid = u128::from_str_radix(&uuid.replace('-', ""), 16).ok()?;
    let mut name = Vec::new();
    let mut rest = words.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            name.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            name.push(byte);
        }
    }
    // It is joined to the path of the directory.
    tree::is_valid_name(&name).then_some(Entry {
        uuid: uuid.to_be_bytes(),
        ctransid: ctransid.parse().ok()?,
        digest: digest.to_owned(),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_hold_any_name() {
        let name: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
        let entry = Entry {
            uuid: *b"0123456789abcdef",
            ctransid: u64::MAX,
            digest: "ab".repeat(32),
            name,
        };
        let line = emit(&entry);
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(parse(line.trim_end()), Some(entry));
        for wrong in [
            "",
            "x",
            "00 1 d ..",
            "00 1 d a/b",
            "00 1 d %2",
            "00 1 d %2f",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
