//! The layout of the 512-byte header block: POSIX.1-1988 `ustar` (also POSIX.1-2017, "ustar
//! Interchange Format"), and GNU's variant, described in its manual ("Basic Tar Format").
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::ops::Range;

use super::header::Block;

pub(super) const NAME: Range<usize> = 0..100;
const MODE: Range<usize> = 100..108;
const UID: Range<usize> = 108..116;
const GID: Range<usize> = 116..124;
const SIZE: Range<usize> = 124..136;
pub(super) const MTIME: Range<usize> = 136..148;
const CHKSUM: Range<usize> = 148..156;
const TYPEFLAG: usize = 156;
const LINKNAME: Range<usize> = 157..257;
/// `magic` and `version` together.
const MAGIC: Range<usize> = 257..265;
const DEVMAJOR: Range<usize> = 329..337;
const DEVMINOR: Range<usize> = 337..345;
pub(super) const PREFIX: Range<usize> = 345..500;

/// `sp`: the fragments of a sparse file in GNU's old format that are in the header itself.
pub(super) const GNU_SPARSE: Range<usize> = 386..482;
/// Whether a block with more fragments follows the header.
pub(super) const GNU_IS_EXTENDED: usize = 482;
pub(super) const GNU_REAL_SIZE: Range<usize> = 483..495;
/// The fragments in a block that follows the header.
pub(super) const GNU_MORE_SPARSE: Range<usize> = 0..504;
/// Whether another one follows that.
pub(super) const GNU_MORE_IS_EXTENDED: usize = 504;
/// `struct sparse`: offset and length, 12 bytes each.
pub(super) const GNU_FRAGMENT: usize = 24;

/// The largest number in the 7 octal digits of a short field.
pub(super) const OCTAL_7_MAX: u32 = 0o7_777_777;
/// The largest number in the 11 octal digits of a long field.
pub(super) const OCTAL_11_MAX: u64 = 0o77_777_777_777;

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum TypeFlag {
    Regular = b'0',
    Link = b'1',
    Symlink = b'2',
    CharDevice = b'3',
    BlockDevice = b'4',
    Directory = b'5',
    Fifo = b'6',
    PaxHeader = b'x',
}

impl TypeFlag {
    #[expect(clippy::as_conversions, reason = "the number of a variant")]
    const fn number(self) -> u8 {
        self as u8
    }
}

/// Which standard defines the fields after the link target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// None: the header ends there.
    V7,
    Ustar,
    Gnu,
}

impl Dialect {
    pub(super) fn of(block: &Block) -> Dialect {
        match &block[MAGIC] {
            b"ustar\x0000" => Dialect::Ustar,
            b"ustar  \0" => Dialect::Gnu,
            _ => Dialect::V7,
        }
    }
}

/// Major and minor number of a device; v7 headers have none.
pub(super) fn device(block: &Block) -> [&[u8]; 2] {
    match Dialect::of(block) {
        Dialect::V7 => [&[], &[]],
        Dialect::Ustar | Dialect::Gnu => [&block[DEVMAJOR], &block[DEVMINOR]],
    }
}

/// A `ustar` header under construction.
pub(super) struct UstarHeader {
    block: Block,
}

impl UstarHeader {
    /// A header without a name, owned by root, with time 0.
    pub(super) fn new(type_flag: TypeFlag, mode: u16, size: u64) -> UstarHeader {
        let mut block = [0; 512];
        block[MAGIC].copy_from_slice(b"ustar\x0000");
        block[TYPEFLAG] = type_flag.number();
        put_octal(&mut block[MODE], mode.into());
        put_octal(&mut block[UID], 0);
        put_octal(&mut block[GID], 0);
        put_octal(&mut block[MTIME], 0);
        if size <= OCTAL_11_MAX {
            put_octal(&mut block[SIZE], size);
        } else {
            // Base 256, as GNU tar writes it.
            block[SIZE.start] = 0x80;
            block[SIZE.end - 8..SIZE.end].copy_from_slice(&size.to_be_bytes());
        }
        UstarHeader { block }
    }

    /// Numbers of at most 7 octal digits.
    pub(super) fn set_owner(&mut self, uid: u32, gid: u32) {
        put_octal(&mut self.block[UID], uid.into());
        put_octal(&mut self.block[GID], gid.into());
    }

    /// Seconds of at most 11 octal digits.
    pub(super) fn set_mtime(&mut self, seconds: u64) {
        put_octal(&mut self.block[MTIME], seconds);
    }

    /// At most 100 bytes.
    pub(super) fn set_name(&mut self, name: &[u8]) {
        put_text(&mut self.block[NAME], name);
    }

    /// At most 155 bytes.
    pub(super) fn set_prefix(&mut self, prefix: &[u8]) {
        put_text(&mut self.block[PREFIX], prefix);
    }

    /// At most 100 bytes.
    pub(super) fn set_link_name(&mut self, target: &[u8]) {
        put_text(&mut self.block[LINKNAME], target);
    }

    /// Numbers of at most 7 octal digits.
    pub(super) fn set_device(&mut self, major: u32, minor: u32) {
        put_octal(&mut self.block[DEVMAJOR], major.into());
        put_octal(&mut self.block[DEVMINOR], minor.into());
    }

    pub(super) fn name(&self) -> &[u8] {
        super::header::text(&self.block[NAME])
    }

    /// Copies the time of `other` unchanged.
    pub(super) fn take_mtime(&mut self, other: &UstarHeader) {
        self.block[MTIME].copy_from_slice(&other.block[MTIME]);
    }

    /// The block with its checksum, the sum of all bytes with spaces in place of the checksum.
    pub(super) fn finish(mut self) -> Block {
        self.block[CHKSUM].fill(b' ');
        let sum: u32 = self.block.iter().copied().map(u32::from).sum();
        put_octal(&mut self.block[CHKSUM], sum.into());
        self.block
    }
}

/// Copies a text to the start of a field that is as long at least.
fn put_text(field: &mut [u8], text: &[u8]) {
    let (start, _) = field.split_at_mut(text.len());
    start.copy_from_slice(text);
}

/// Fills a field with octal digits and a final NUL.
fn put_octal(field: &mut [u8], mut number: u64) {
    let Some((last, digits)) = field.split_last_mut() else {
        return;
    };
    *last = 0;
    for digit in digits.iter_mut().rev() {
        let [lowest, ..] = number.to_le_bytes();
        *digit = b'0' | lowest & 7;
        number >>= 3;
    }
    debug_assert_eq!(number, 0, "larger than its field");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As GNU tar 1.34 writes it: `tar --format=ustar --owner=0 --group=0 --mtime=@1 -c`, of a file
    /// `a` of 5 bytes.
    #[test]
    fn header_is_that_of_gnu_tar() {
        let mut header = UstarHeader::new(TypeFlag::Regular, 0o644, 5);
        header.set_name(b"a");
        header.set_mtime(1);
        let out = header.finish();
        assert_eq!(&out[MODE], b"0000644\0");
        assert_eq!(&out[SIZE], b"00000000005\0");
        assert_eq!(&out[MTIME], b"00000000001\0");
        assert_eq!(&out[MAGIC], b"ustar\x0000");
        let sum: u32 = out.iter().map(|&byte| u32::from(byte)).sum();
        let in_checksum: u32 = out[CHKSUM].iter().map(|&byte| u32::from(byte)).sum();
        let expected = format!("{:07o}\0", sum - in_checksum + 8 * 32);
        assert_eq!(&out[CHKSUM], expected.as_bytes());
    }

    #[test]
    fn sizes_that_octal_digits_cannot_hold_are_in_base_256() {
        let out = UstarHeader::new(TypeFlag::Regular, 0, 1 << 33).finish();
        assert_eq!(out[SIZE], [0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
        let out = UstarHeader::new(TypeFlag::Regular, 0, OCTAL_11_MAX).finish();
        assert_eq!(&out[SIZE], b"77777777777\0");
    }

    #[test]
    fn dialects_have_magic_words() {
        let mut block = [0; 512];
        assert_eq!(Dialect::of(&block), Dialect::V7);
        assert_eq!(device(&block), [&[] as &[u8]; 2]);
        block[MAGIC].copy_from_slice(b"ustar  \0");
        assert_eq!(Dialect::of(&block), Dialect::Gnu);
        block[MAGIC].copy_from_slice(b"ustar\x0000");
        assert_eq!(Dialect::of(&block), Dialect::Ustar);
        assert_eq!(device(&block)[1].len(), 8);
    }
}
