//! Extended attributes: inline behind the inode, or shared.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Error, Result, Xattr, to_u64};

use crate::fields::{u8_at, u16_at, u32_at};
use crate::image::{Erofs, LongPrefix};
use crate::inode::{Inode, MetaAt};
use crate::superblock::{SUPERBLOCK_AT, compat};

/// Bytes of `struct erofs_xattr_ibody_header`, of a shared attribute's number, and of an entry.
pub(crate) const HEADER_BYTES: usize = 12;
const SHARED_BYTES: u64 = 4;
pub(crate) const ENTRY_BYTES: usize = 4;
/// The bit of a name's prefix that is one of the image's table.
pub(crate) const LONG_PREFIX: u8 = 0x80;
/// `EROFS_XATTR_FILTER_SEED`.
const FILTER_SEED: u32 = 0x25bb_e08f;

/// An attribute, and whether its file's filter leads to it.
struct Attribute {
    xattr: Xattr,
    /// The bit of the filter, which is 0 if there are such names.
    filter_bit: u32,
    next: MetaAt,
}

/// The attributes of a file.
#[derive(Default)]
pub(crate) struct FileXattrs {
    /// Sorted by name.
    pub(crate) xattrs: Vec<Xattr>,
    /// Those that Linux does not find, because the filter says that they are not there.
    pub(crate) hidden: u64,
    /// Where those that can be shared are.
    pub(crate) shared: Vec<(MetaAt, MetaAt)>,
}

impl Erofs {
    pub(crate) fn attributes(&self, inode: &Inode) -> Result<FileXattrs> {
        let (mut found, mut shared) = (Vec::new(), Vec::new());
        if inode.xattr_bytes == 0 {
            return Ok(FileXattrs::default());
        }
        if inode.xattr_bytes == to_u64(HEADER_BYTES) {
            let what = "inode has a header of attributes alone, which Linux does not read";
            return Err(Error::corrupt(what, inode.at.at, inode.xattr_bytes));
        }
        self.check_index(inode, inode.xattrs_at, inode.xattr_bytes)?;
        let mut header = [0; HEADER_BYTES];
        self.read_meta(inode.xattrs_at, &mut header)?;
        let filter = u32_at(&header, 0);
        let mut hidden = 0;
        let mut add = |attribute: Attribute| {
            if self.superblock.has_filters && filter & attribute.filter_bit != 0 {
                hidden = u64::saturating_add(hidden, 1);
            }
            found.push(attribute.xattr);
            attribute.next
        };
        let shared_at = inode.xattrs_at.after(to_u64(HEADER_BYTES));
        let shared_count = u64::from(u8_at(&header, 4));
        let in_metabox = self.superblock.compat & compat::SHARED_EA_IN_METABOX != 0;
        if in_metabox && shared_count > 0 && self.superblock.metabox.is_none() {
            let what = "shared attributes are in a metabox, and the image has none";
            return Err(Error::corrupt(what, inode.at.at, shared_count));
        }
        for number in 0..shared_count {
            let mut id = [0; 4];
            self.read_meta(
                shared_at.after(number.saturating_mul(SHARED_BYTES)),
                &mut id,
            )?;
            let offset = u64::from(u32_at(&id, 0)).saturating_mul(SHARED_BYTES);
            let base = if in_metabox {
                0
            } else {
                self.superblock.xattr_at
            };
            let at = base.saturating_add(offset);
            let place = MetaAt { in_metabox, at };
            shared.push((place, add(self.attribute(place)?)));
        }
        let end = inode.xattrs_at.after(inode.xattr_bytes);
        let mut place = shared_at.after(shared_count.saturating_mul(SHARED_BYTES));
        while place.after(to_u64(ENTRY_BYTES)).at <= end.at {
            let mut entry = [0; ENTRY_BYTES];
            self.read_meta(place, &mut entry)?;
            // Room for later attributes (`--root-xattr-isize`), which Linux skips, too.
            place = if entry == [0; ENTRY_BYTES] {
                place.after(to_u64(ENTRY_BYTES))
            } else {
                add(self.attribute(place)?).aligned(4)
            };
        }
        if place.at > end.at {
            let what = "extended attributes are longer than their inode says";
            return Err(Error::corrupt(what, inode.at.at, place.at));
        }
        found.sort_unstable();
        if found
            .windows(2)
            .any(|pair| matches!(pair, [a, b] if a.name == b.name))
        {
            let what = "file has an extended attribute twice";
            return Err(Error::corrupt(what, inode.at.at, to_u64(found.len())));
        }
        Ok(FileXattrs {
            xattrs: found,
            hidden,
            shared,
        })
    }

    fn attribute(&self, place: MetaAt) -> Result<Attribute> {
        let mut entry = [0; ENTRY_BYTES];
        self.read_meta(place, &mut entry)?;
        let (name_len, value_len) = (u8_at(&entry, 0).into(), u16_at(&entry, 2).into());
        let mut body = vec![0; usize::saturating_add(name_len, value_len)];
        let body_at = place.after(to_u64(ENTRY_BYTES));
        self.read_meta(body_at, &mut body)?;
        let (name, value) = body.split_at(name_len);
        let index = u8_at(&entry, 1);
        let (base, infix): (u8, &[u8]) = if index & LONG_PREFIX == 0 {
            (index, &[])
        } else {
            let number = index & !LONG_PREFIX;
            let Some((base, infix)) = self.long_prefixes()?.get(usize::from(number)) else {
                let what = "extended attribute's prefix is beyond the table";
                return Err(Error::corrupt(what, place.at, number.into()));
            };
            (*base, infix)
        };
        let prefix: &[u8] = match base {
            1 => b"user.",
            2 => b"system.posix_acl_access",
            3 => b"system.posix_acl_default",
            4 => b"trusted.",
            6 => b"security.",
            _ => {
                let what = "extended attribute's prefix is unknown";
                return Err(Error::corrupt(what, place.at, index.into()));
            }
        };
        let rest = [infix, name].concat();
        if rest.contains(&0) || rest.is_empty() != matches!(base, 2 | 3) {
            let what = "extended attribute has an impossible name";
            return Err(Error::corrupt(what, place.at, to_u64(rest.len())));
        }
        let hash = xxhash::xxh32(&rest, FILTER_SEED.wrapping_add(base.into()));
        Ok(Attribute {
            xattr: Xattr {
                name: [prefix, &rest].concat().into(),
                value: value.into(),
            },
            filter_bit: 1 << (hash & 31),
            next: body_at.after(to_u64(body.len())),
        })
    }

    /// The table of long prefixes, which is read once.
    pub(crate) fn long_prefixes(&self) -> Result<&[LongPrefix]> {
        if let Some(known) = self.prefixes.get() {
            return Ok(known);
        }
        let superblock = &self.superblock;
        let is_none = |&prefix: &u8| prefix >= superblock.prefix_count;
        if let Some(prefix) = superblock.digest_prefix.filter(is_none) {
            let what = "prefix of digests is not one of the long prefixes";
            return Err(Error::corrupt(what, SUPERBLOCK_AT, prefix.into()));
        }
        let is_plain = superblock.compat & compat::PLAIN_XATTR_PFX != 0;
        let in_metabox = !is_plain && superblock.metabox.is_some();
        let packed = superblock.packed.filter(|_| !is_plain && !in_metabox);
        let packed = packed.map(|nid| self.content(nid)).transpose()?;
        let read = |place: MetaAt, buf: &mut [u8]| match &packed {
            None => self.read_meta(place, buf),
            Some(packed) if place.after(to_u64(buf.len())).at > packed.inode.size => {
                let what = "long prefix lies beyond the packed inode";
                Err(Error::corrupt(what, packed.inode.at.at, place.at))
            }
            Some(packed) => self.read_content(packed, place.at, buf),
        };
        let at = superblock.prefixes_at;
        let mut place = MetaAt { in_metabox, at };
        let mut prefixes = Vec::new();
        for _ in 0..superblock.prefix_count {
            place = place.aligned(4);
            let mut len = [0; 2];
            read(place, &mut len)?;
            let len = u16::from_le_bytes(len);
            if !(1..=256).contains(&len) {
                let what = "long prefix of extended attributes is impossible";
                return Err(Error::corrupt(what, place.at, len.into()));
            }
            let mut base = [0];
            read(place.after(2), &mut base)?;
            let mut infix = vec![0; usize::from(len.saturating_sub(1))];
            read(place.after(3), &mut infix)?;
            prefixes.push((u8::from_le_bytes(base), infix));
            place = place.after(u64::from(len).saturating_add(2));
        }
        Ok(self.prefixes.get_or_init(|| prefixes))
    }
}
