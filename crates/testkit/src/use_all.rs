//! Calls everything that a tree offers.

use tree::{ExtentKind, FileKind, FileSystem, Inventory, Limits, Result};

/// A name that no directory has, unless somebody looked for it here: fuzzers do.
const ABSENT: &[u8] = b"no such name";

/// Names of a directory that are looked up: in a listing that is read from its beginning each time,
/// all of many would take most of the time of a fuzzer.
const LOOKUPS_MAX: usize = 100;

/// How much is read at once.
const PIECE_BYTES: usize = 100_000;

/// Calls every method of a tree and compares redundant answers: names listed and looked up, content
/// read in pieces and at once. Returns the number of content bytes read.
///
/// Only the first and last bytes of each file are read, since hostile sizes reach 2^63.
///
/// # Errors
/// The first error of any call.
///
/// # Panics
/// If two answers differ.
pub fn use_all(fs: &dyn FileSystem, limits: &Limits) -> Result<u64> {
    let inventory = Inventory::of(fs, limits)?;
    let mut total = 0;
    let mut buf = vec![0; PIECE_BYTES];
    let mut stored = Vec::new();
    for file in inventory.files() {
        let ino = inventory.ino(file);
        fs.xattrs(ino)?;
        match inventory.kind(file) {
            FileKind::Symlink => drop(fs.read_link(ino)?),
            FileKind::Directory => {
                let entries = fs.read_dir(ino)?;
                for entry in entries
                    .iter()
                    .step_by(entries.len().div_ceil(LOOKUPS_MAX).max(1))
                {
                    assert_eq!(fs.lookup(ino, &entry.name)?, *entry);
                }
                let has_it = entries.iter().any(|entry| *entry.name == *ABSENT);
                assert_eq!(fs.lookup(ino, ABSENT).is_ok(), has_it);
            }
            FileKind::Regular => {
                let size = inventory.size(file);
                for offset in [0, size.saturating_sub(5000)] {
                    let len = fs.read_at(ino, offset, &mut buf)?;
                    total += len as u64;
                    let mut piece = [0; 3000];
                    let again = fs.read_at(ino, offset + 1, &mut piece)?;
                    let both = again.min(len.saturating_sub(1));
                    assert_eq!(piece[..both], buf[1..1 + both], "in pieces and at once");
                }
                for extent in fs.extents(ino, 0)? {
                    if let ExtentKind::Encoded(_) = extent.kind {
                        fs.read_encoded(ino, &extent, &mut stored)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(total)
}
