//! Extended attributes: each that several files have is stored once.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use tree::{Duplicates, Error, FileId, FileKind, Inventory, RecordTable, Result, Xattr, XattrSets};

use crate::xattr::{ENTRY_BYTES, HEADER_BYTES, LONG_PREFIX};

/// The numbers of prefixes in entries.
const PREFIXES: [(u8, &[u8]); 5] = [
    (1, b"user."),
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (4, b"trusted."),
    (6, b"security."),
];
/// The most attributes of an inode that are shared with others.
const SHARED_MAX: usize = 255;
/// The most bytes of attributes of an inode: its count of 4 bytes each has 16 bits.
const SET_BYTES_MAX: usize = HEADER_BYTES + 4 * (u16::MAX as usize - 1) - 64;

/// The name of the attribute of digests: a prefix of the image's table, and nothing behind it.
pub(crate) const DIGEST_NAME: &[u8] = b"trusted.erofs.fingerprint";
const DIGEST_BASE: u8 = 4;
const DIGEST_INFIX: &[u8] = b"erofs.fingerprint";
/// Its value begins with this.
const DIGEST_KIND: &[u8] = b"sha256:";
const DIGEST_BYTES: usize = 32;

/// The record of the prefix of [`DIGEST_NAME`], with its length before it.
pub(crate) fn digest_prefix() -> Vec<u8> {
    let mut record = (DIGEST_INFIX.len() as u16 + 1).to_le_bytes().to_vec();
    record.push(DIGEST_BASE);
    record.extend(DIGEST_INFIX);
    record
}

/// The number of a name's prefix, and the rest.
fn split(name: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|(number, prefix)| {
        let rest = name.strip_prefix(*prefix)?;
        (rest.is_empty() == matches!(number, 2 | 3)).then_some((*number, rest))
    })
}

/// Whether the format can store an attribute.
pub(crate) fn is_storable(xattr: &Xattr) -> bool {
    split(&xattr.name).is_some_and(|(_, rest)| rest.len() <= u8::MAX.into())
        && xattr.value.len() <= u16::MAX.into()
}

/// The bytes of an entry, up to a multiple of 4.
fn entry_bytes(xattr: &Xattr) -> usize {
    let name_len = split(&xattr.name).map_or(0, |(_, rest)| rest.len());
    (ENTRY_BYTES + name_len + xattr.value.len()).next_multiple_of(4)
}

/// Appends an entry.
fn emit_entry(xattr: &Xattr, out: &mut Vec<u8>) {
    let end = out.len() + entry_bytes(xattr);
    let (number, rest) = split(&xattr.name).unwrap_or_default();
    out.extend([rest.len() as u8, number]);
    out.extend((xattr.value.len() as u16).to_le_bytes());
    out.extend(rest);
    out.extend(&xattr.value);
    out.resize(end, 0);
}

struct Attribute {
    xattr: Arc<Xattr>,
    files: u32,
    /// Where it is among the shared ones, in units of 4 bytes.
    shared_at: Option<u32>,
}

/// The attributes of all files.
pub(crate) struct XattrTable<'a> {
    inventory: &'a Inventory<'a>,
    /// Whether regular files have digests, and which, once they are known.
    has_digests: bool,
    digests: OnceLock<RecordTable<8>>,
    attributes: Vec<Attribute>,
    numbers: HashMap<Arc<Xattr>, u32>,
    sets: Vec<Arc<[u32]>>,
    set_numbers: HashMap<Arc<[u32]>, u32>,
    files: XattrSets,
    /// The most bytes of the attributes of a file's duplicates.
    widest: HashMap<FileId, usize>,
}

impl<'a> XattrTable<'a> {
    /// No attributes, but for digests of regular files.
    pub(crate) fn new(inventory: &'a Inventory<'a>, has_digests: bool) -> Self {
        XattrTable {
            inventory,
            has_digests,
            digests: OnceLock::new(),
            attributes: Vec::new(),
            numbers: HashMap::new(),
            sets: Vec::new(),
            set_numbers: HashMap::new(),
            files: XattrSets::default(),
            widest: HashMap::new(),
        }
    }

    /// Gives regular files their digests, by their numbers; none to those whose digest is zeros.
    pub(crate) fn set_digests(&self, digests: RecordTable<8>) {
        // They are set once.
        let _ = self.digests.set(digests);
    }

    fn has_digest(&self, file: FileId) -> bool {
        let is_missing = |digests: &RecordTable<8>| digests.get(file.0 as usize) == [0; 8];
        self.has_digests
            && self.inventory.kind(file) == FileKind::Regular
            && !self.digests.get().is_some_and(is_missing)
    }

    /// Gives a file its attributes, sorted by name. Files come in ascending order.
    pub(crate) fn add(&mut self, file: FileId, xattrs: Vec<Xattr>) -> Result<()> {
        if xattrs.is_empty() {
            return Ok(());
        }
        let bytes: usize = xattrs.iter().map(entry_bytes).sum();
        if HEADER_BYTES + bytes > SET_BYTES_MAX {
            return Err(Error::Limit("more than 256 KiB of extended attributes"));
        }
        let mut set = Vec::with_capacity(xattrs.len());
        for xattr in xattrs {
            let number = match self.numbers.get(&xattr) {
                Some(&number) => number,
                None => {
                    let number = self.attributes.len() as u32;
                    let xattr = Arc::new(xattr);
                    self.numbers.insert(Arc::clone(&xattr), number);
                    self.attributes.push(Attribute {
                        xattr,
                        files: 0,
                        shared_at: None,
                    });
                    number
                }
            };
            self.attributes[number as usize].files += 1;
            set.push(number);
        }
        let set: Arc<[u32]> = set.into();
        let next = self.sets.len() as u32;
        let number = *self.set_numbers.entry(Arc::clone(&set)).or_insert(next);
        if number == next {
            self.sets.push(set);
        }
        self.files.set(file, Some(number));
        Ok(())
    }

    /// Whether a file has attributes.
    pub(crate) fn has(&self, file: FileId) -> bool {
        self.files.of(file).is_some()
    }

    /// Ends the table, and returns the bytes of the shared attributes.
    pub(crate) fn finish(&mut self, duplicates: &Duplicates) -> Result<Vec<u8>> {
        (self.numbers, self.set_numbers) = (HashMap::new(), HashMap::new());
        let mut shared = Vec::new();
        for attribute in &mut self.attributes {
            if attribute.files > 1 {
                let at = u32::try_from(shared.len() / 4);
                let at = at.map_err(|_| Error::Limit("more than 16 GiB of attributes"))?;
                attribute.shared_at = Some(at);
                emit_entry(&attribute.xattr, &mut shared);
            }
        }
        for file in self.inventory.files() {
            let bytes = self.bytes(file);
            if let Some(original) = duplicates.original(file).filter(|_| bytes > 0) {
                let widest = self.widest.entry(original).or_default();
                *widest = bytes.max(*widest);
            }
        }
        Ok(shared)
    }

    /// The most bytes of attributes of a file and its duplicates, which have the same inline tail.
    pub(crate) fn widest(&self, file: FileId) -> usize {
        let others = self.widest.get(&file).copied().unwrap_or(0);
        self.bytes(file).max(others)
    }

    /// The shared attributes of a file, and the others.
    fn parts(&self, set: u32) -> (Vec<u32>, impl Iterator<Item = &Xattr>) {
        let set = &self.sets[set as usize];
        let attribute = |&number: &u32| &self.attributes[number as usize];
        let shared = set
            .iter()
            .filter_map(move |number| attribute(number).shared_at);
        let shared: Vec<u32> = shared.take(SHARED_MAX).collect();
        let mut left = SHARED_MAX;
        let own = set.iter().map(attribute).filter_map(move |attribute| {
            if attribute.shared_at.is_some() && left > 0 {
                left -= 1;
                return None;
            }
            Some(&*attribute.xattr)
        });
        (shared, own)
    }

    /// The bytes of a file's attributes behind its inode.
    pub(crate) fn bytes(&self, file: FileId) -> usize {
        let digest_bytes = if self.has_digest(file) {
            (ENTRY_BYTES + DIGEST_KIND.len() + DIGEST_BYTES).next_multiple_of(4)
        } else {
            0
        };
        let Some(set) = self.files.of(file) else {
            return if digest_bytes > 0 {
                HEADER_BYTES + digest_bytes
            } else {
                0
            };
        };
        let (shared, own) = self.parts(set);
        let own_bytes: usize = own.map(entry_bytes).sum();
        HEADER_BYTES + 4 * shared.len() + own_bytes + digest_bytes
    }

    /// Appends a file's attributes as they are behind its inode.
    pub(crate) fn emit(&self, file: FileId, out: &mut Vec<u8>) {
        let set = self.files.of(file);
        if set.is_none() && !self.has_digest(file) {
            return;
        }
        let parts = set.map(|set| self.parts(set));
        let shared_count = parts.as_ref().map_or(0, |(shared, _)| shared.len());
        out.extend([0, 0, 0, 0, shared_count as u8, 0, 0, 0, 0, 0, 0, 0]);
        if let Some((shared, own)) = parts {
            for at in shared {
                out.extend(at.to_le_bytes());
            }
            own.for_each(|xattr| emit_entry(xattr, out));
        }
        if self.has_digest(file) {
            let value_len = (DIGEST_KIND.len() + DIGEST_BYTES) as u16;
            let end = out.len() + (ENTRY_BYTES + usize::from(value_len)).next_multiple_of(4);
            out.extend([0, LONG_PREFIX]);
            out.extend(value_len.to_le_bytes());
            out.extend(DIGEST_KIND);
            let digests = self.digests.get();
            for word in digests.map_or([0; 8], |digests| digests.get(file.0 as usize)) {
                out.extend(word.to_le_bytes());
            }
            out.resize(end, 0);
        }
    }
}
