//! The record of a directory's received subvolumes: a text file, one line for each.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use tree::{FileKind, HostFile, HostStep, Output, Sha256, walk_host_dir};

use crate::error::{During, refuse};
use crate::text::{self, of_uuid};
use crate::{Error, Result};

/// The record's name.
pub(super) const NAME: &str = ".restow-received";
/// Its first line. Each line after it has UUID, transaction, digest and name.
const FIRST: &str = "restow received 1";

/// A subvolume that is now a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordedSubvolume {
    pub(super) uuid: [u8; 16],
    pub(super) ctransid: u64,
    /// [`digest`] of the directory.
    pub(super) digest: String,
    pub(super) name: Vec<u8>,
}

/// The record of a directory.
pub(super) struct ReceivedRecord {
    path: PathBuf,
    pub(super) entries: Vec<RecordedSubvolume>,
}

impl ReceivedRecord {
    /// Reads the record of a directory; it is empty if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is no record.
    pub(super) fn read(dir: &Path) -> Result<ReceivedRecord> {
        let path = dir.join(NAME);
        let shown = || format!("read {}", text::of_host_path(&path, "-"));
        let words = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let entries = Vec::new();
                return Ok(ReceivedRecord { path, entries });
            }
            words => words.during(shown)?,
        };
        let mut lines = words.lines();
        if lines.next() != Some(FIRST) {
            refuse!("{}: not a record of received subvolumes", shown());
        }
        let mut entries = Vec::new();
        for line in lines {
            let entry = parse(line);
            let wrong = || Error::refused(format!("{}: wrong line: {line}", shown()));
            entries.push(entry.ok_or_else(wrong)?);
        }
        Ok(ReceivedRecord { path, entries })
    }

    /// Adds a directory and writes the record.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(&mut self, entry: RecordedSubvolume) -> Result<()> {
        // The older one with this name is gone.
        self.entries.retain(|it| it.name != entry.name);
        self.entries.push(entry);
        let mut words = format!("{FIRST}\n");
        for entry in &self.entries {
            words += &emit(entry);
        }
        let write = || -> tree::Result<()> {
            let output = Output::replace(&self.path)?;
            output.write_all_at(words.as_bytes(), 0)?;
            output.commit()
        };
        write().during(|| format!("write {}", text::of_host_path(&self.path, "-")))
    }
}

/// A digest of the names, kinds, sizes and modification times of a directory: it shows whether the
/// directory was changed since.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn digest(dir: &OwnedFd) -> tree::Result<String> {
    let mut digest = Sha256::new();
    walk_host_dir(dir, &mut |step, file: &HostFile<'_>| {
        let stat = file.stat;
        let (kind, size) = match (step, FileKind::from_mode(stat.mode)) {
            (HostStep::Leave, _) => return Ok(()),
            (_, Some(FileKind::Regular)) => (b'f', stat.size),
            (_, Some(FileKind::Directory)) => (b'd', 0),
            (_, Some(FileKind::Symlink)) => (b'l', stat.size),
            _ => (b'o', 0),
        };
        digest.update(&(file.path.len() as u64).to_le_bytes());
        digest.update(file.path);
        digest.update(&[kind]);
        digest.update(&size.to_le_bytes());
        digest.update(&stat.mtime.seconds.to_le_bytes());
        digest.update(&stat.mtime.nanoseconds.to_le_bytes());
        Ok(())
    })?;
    Ok(text::of_digits(&digest.finish()))
}

fn emit(entry: &RecordedSubvolume) -> String {
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

fn parse(line: &str) -> Option<RecordedSubvolume> {
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
    tree::is_valid_name(&name).then_some(RecordedSubvolume {
        uuid: uuid.to_be_bytes(),
        ctransid: ctransid.parse().ok()?,
        digest: digest.to_owned(),
        name,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use testkit::TempDir;
    use tree::{HostDir, Inventory, Limits};

    use super::*;

    #[test]
    fn a_digest_is_that_of_the_inventory() {
        let dir = TempDir::new();
        let mut deep = dir.join("d");
        for name in 0..40 {
            deep = deep.join(name.to_string());
        }
        fs::create_dir_all(&deep).unwrap();
        for name in ["f", "d/a", "d.b", "d/0/z"] {
            fs::write(dir.join(name), name).unwrap();
            fs::write(deep.join("last"), name).unwrap();
        }
        symlink("target", dir.join("l")).unwrap();
        fs::hard_link(dir.join("f"), dir.join("d/0/f")).unwrap();
        let tree = HostDir::open(dir.path()).unwrap();
        let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
        let mut must = Sha256::new();
        for entry in inventory.names() {
            let metadata = inventory.metadata(inventory.file(entry));
            let path = inventory.path(entry);
            let kind = match metadata.kind {
                FileKind::Regular => b"f",
                FileKind::Directory => b"d",
                _ => b"l",
            };
            must.update(&(path.len() as u64).to_le_bytes());
            must.update(&path);
            must.update(kind);
            must.update(&metadata.size.to_le_bytes());
            must.update(&metadata.mtime.seconds.to_le_bytes());
            must.update(&metadata.mtime.nanoseconds.to_le_bytes());
        }
        let must: Vec<String> = must.finish().iter().map(|it| format!("{it:02x}")).collect();
        let opened = linux::open_dir(dir.path()).unwrap();
        assert_eq!(digest(&opened).unwrap(), must.concat());
    }

    #[test]
    fn lines_hold_any_name() {
        let name: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
        let entry = RecordedSubvolume {
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
