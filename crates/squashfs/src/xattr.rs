//! Extended attributes: sets of names and values, shared by all files with the same attributes.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::collections::HashMap;

use tree::{Error, Limits, Result, Xattr, to_u64, to_usize};
use zerocopy::IntoBytes;

use crate::image::Image;
use crate::lookup_table::{LookupTable, emit_table};
use crate::metadata::{MetadataReader, MetadataWriter};
use crate::raw::{self, XATTR_VALUE_ELSEWHERE};
use crate::reference::MetadataRef;

/// The namespaces of the format, indexed by ID.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// Maximum total length of one file's names and values that is read; Linux returns lists of at most
/// 64 KiB.
const SET_BYTES_MAX: usize = 16 << 20;

/// Repeated values of at least this length are stored once.
const SHARED_VALUE_BYTES_MIN: usize = 8;

/// The sets of an image.
pub(crate) struct XattrTable {
    sets: LookupTable<raw::XattrId>,
    /// The start of the names and values.
    start: u64,
    value_bytes_max: u32,
}

impl XattrTable {
    /// Reads the header and list at `at`. `None` if there are no sets.
    pub(crate) fn read(image: &Image, at: u64, limits: &Limits) -> Result<Option<Self>> {
        let mut header = <raw::XattrTableHeader as zerocopy::FromZeros>::new_zeroed();
        image.read(header.as_mut_bytes(), at)?;
        let start = header.xattr_table_start.get();
        if start > at || start < image.superblock.directory_table {
            return Err(Error::corrupt(
                "extended attributes lie outside their table",
                at,
                start,
            ));
        }
        if header.xattr_ids == 0 {
            return Ok(None);
        }
        let list_at = at.saturating_add(to_u64(size_of::<raw::XattrTableHeader>()));
        let list_end = image.superblock.bytes_used;
        let count = header.xattr_ids.get();
        // The last block of sets ends where the header starts, not where the list does.
        let sets = LookupTable::read(image, list_at, Some(list_end), (start, at), count)?;
        if start == sets.start() {
            let what = "extended attributes have neither names nor values";
            return Err(Error::corrupt(what, at, start));
        }
        Ok(Some(XattrTable {
            sets,
            start,
            value_bytes_max: limits.xattr_value_bytes_max,
        }))
    }

    /// Where the names and values start and end; the start is also the end of whatever precedes the
    /// table.
    pub(crate) fn stored(&self) -> (u64, u64) {
        (self.start, self.sets.start())
    }

    /// Number of sets.
    pub(crate) fn len(&self) -> u32 {
        self.sets.len()
    }

    /// The set at this index, in ascending order of name.
    pub(crate) fn set(&self, image: &Image, index: u32) -> Result<Vec<Xattr>> {
        let at = self.start;
        let corrupt = |what, got: u64| Error::corrupt(what, at, got);
        let Some(set) = self.sets.find(image, index)? else {
            return Err(corrupt(
                "index of extended attributes is too large",
                index.into(),
            ));
        };
        let end = self.sets.start();
        let open = |at: u64| MetadataReader::new(image, self.start, end, MetadataRef(at));
        let mut reader = open(set.xattr.get())?;
        let mut xattrs = Vec::new();
        let mut total = 0usize;
        for _ in 0..set.count.get() {
            let entry: raw::XattrEntry = reader.record()?;
            let kind = entry.kind.get();
            let Some(namespace) = NAMESPACES.get(usize::from(kind & !XATTR_VALUE_ELSEWHERE)) else {
                return Err(corrupt(
                    "extended attribute's namespace is unknown",
                    kind.into(),
                ));
            };
            let mut name = namespace.to_vec();
            name.extend(reader.bytes(entry.size.get().into())?);
            if entry.size == 0 || name.contains(&0) {
                return Err(corrupt(
                    "extended attribute's name is not valid",
                    entry.size.get().into(),
                ));
            }
            let len: zerocopy::little_endian::U32 = reader.record()?;
            let value = if kind & XATTR_VALUE_ELSEWHERE != 0 {
                if len != 8 {
                    return Err(corrupt(
                        "reference to an attribute's value is not 8 bytes long",
                        len.get().into(),
                    ));
                }
                let place: zerocopy::little_endian::U64 = reader.record()?;
                let mut elsewhere = open(place.get())?;
                let len: zerocopy::little_endian::U32 = elsewhere.record()?;
                self.value(&mut elsewhere, len.get())?
            } else {
                self.value(&mut reader, len.get())?
            };
            total = total.saturating_add(name.len()).saturating_add(value.len());
            if total > SET_BYTES_MAX {
                return Err(Error::Limit(
                    "extended attributes of a file of more than 16 MiB",
                ));
            }
            xattrs.push(Xattr {
                name: name.into(),
                value,
            });
        }
        xattrs.sort();
        let pairs = xattrs.iter().zip(xattrs.iter().skip(1));
        if let Some((one, _)) = pairs.into_iter().find(|(one, next)| one.name == next.name) {
            let len = to_u64(one.name.len());
            return Err(corrupt("extended attribute occurs twice", len));
        }
        Ok(xattrs)
    }

    fn value(&self, reader: &mut MetadataReader, len: u32) -> Result<Box<[u8]>> {
        if len > self.value_bytes_max {
            return Err(Error::Limit("an extended attribute's value is too long"));
        }
        Ok(reader.bytes(to_usize(len))?.into())
    }
}

/// Whether the format can store an attribute with this name.
pub(crate) fn is_storable(name: &[u8]) -> bool {
    namespace_of(name).is_some()
}

fn namespace_of(name: &[u8]) -> Option<(u16, &[u8])> {
    (0u16..).zip(NAMESPACES).find_map(|(number, namespace)| {
        let rest = name.strip_prefix(namespace)?;
        (!rest.is_empty() && rest.len() <= u16::MAX.into()).then_some((number, rest))
    })
}

/// Collects sets, storing each once.
pub(crate) struct XattrWriter {
    content: MetadataWriter,
    ids: Vec<raw::XattrId>,
    sets: HashMap<Vec<Xattr>, u32>,
    values: HashMap<Box<[u8]>, MetadataRef>,
}

#[expect(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a writer: these numbers are its own"
)]
impl XattrWriter {
    /// A writer without any sets.
    pub(crate) fn new(content: MetadataWriter) -> Self {
        XattrWriter {
            content,
            ids: Vec::new(),
            sets: HashMap::new(),
            values: HashMap::new(),
        }
    }

    /// The index of a set; `None` for the empty set. All attributes in it must be storable.
    pub(crate) fn add(&mut self, set: Vec<Xattr>) -> Option<u32> {
        if set.is_empty() {
            return None;
        }
        if let Some(&index) = self.sets.get(&set) {
            return Some(index);
        }
        let at = self.content.reference();
        let mut size = 0;
        for xattr in &set {
            let Some((number, rest)) = namespace_of(&xattr.name) else {
                continue;
            };
            size += xattr.name.len() + 1 + xattr.value.len();
            let known = self.values.get(&xattr.value).copied();
            let elsewhere = if known.is_some() {
                XATTR_VALUE_ELSEWHERE
            } else {
                0
            };
            let entry = raw::XattrEntry {
                kind: (number | elsewhere).into(),
                size: (rest.len() as u16).into(),
            };
            self.content.write(entry.as_bytes());
            self.content.write(rest);
            if let Some(reference) = known {
                self.content.write(&8u32.to_le_bytes());
                self.content.write(&reference.0.to_le_bytes());
            } else {
                let reference = self.content.reference();
                if xattr.value.len() >= SHARED_VALUE_BYTES_MIN {
                    self.values.insert(xattr.value.clone(), reference);
                }
                self.content
                    .write(&(xattr.value.len() as u32).to_le_bytes());
                self.content.write(&xattr.value);
            }
        }
        let index = self.ids.len() as u32;
        self.ids.push(raw::XattrId {
            xattr: at.0.into(),
            count: (set.len() as u32).into(),
            size: (size as u32).into(),
        });
        self.sets.insert(set, index);
        Some(index)
    }

    /// The size of the table's records before compression.
    pub(crate) fn content_bytes(&self) -> u64 {
        self.content.content_bytes() + size_of_val(&self.ids[..]) as u64
    }

    /// Appends the table, whose first byte is at `at` in the image; `ids` writes the sets. Returns
    /// the position of the header, or `None` if there are no sets.
    pub(crate) fn finish(self, ids: MetadataWriter, at: u64, out: &mut Vec<u8>) -> Option<u64> {
        if self.ids.is_empty() {
            return None;
        }
        let mut ids = ids;
        let count = self.ids.len() as u32;
        for id in &self.ids {
            ids.write(id.as_bytes());
        }
        let begin = out.len();
        out.extend(self.content.finish().0);
        let ids_at = at + (out.len() - begin) as u64;
        let mut table = Vec::new();
        let header_at = emit_table(ids, ids_at, &mut table);
        let list = table.split_off((header_at - ids_at) as usize);
        out.extend(table);
        let header = raw::XattrTableHeader {
            xattr_table_start: at.into(),
            xattr_ids: count.into(),
            unused: 0.into(),
        };
        out.extend(header.as_bytes());
        out.extend(list);
        Some(header_at)
    }
}
