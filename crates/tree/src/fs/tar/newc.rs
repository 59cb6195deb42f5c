//! Headers of archives of cpio in the form newc, which Linux reads as an initramfs.

use std::borrow::Cow;

use super::buffer::Buffer;
use crate::FileKind;

/// The name and the content of a member end at multiples of this.
pub(super) const PADDING: usize = 4;

/// The whole archive ends at a multiple of this, as that of GNU cpio.
const ARCHIVE_PADDING: usize = 512;

/// The name of the last member: a file has it with `./` before it.
const TRAILER: &[u8] = b"TRAILER!!!";

/// The type of a file in `mode`.
pub(super) fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::CharDevice => 0o020_000,
        FileKind::Directory => 0o040_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::Regular => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
    }
}

/// The last member and the padding of an archive of this length.
pub(super) fn end(len: u64) -> Buffer {
    let mut out = Buffer::default();
    emit(&mut out, [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], TRAILER);
    let end = len + out.len() as u64;
    let padding = end.next_multiple_of(ARCHIVE_PADDING as u64) - end;
    out.append(padding as usize).fill(0);
    out
}

/// The name of a member with this path, from the root.
pub(super) fn name(path: &[u8]) -> Cow<'_, [u8]> {
    match path {
        b"" => Cow::Borrowed(b"."),
        TRAILER => [b"./", path].concat().into(),
        path => Cow::Borrowed(path),
    }
}

/// A header with its numbers up to the device, and the name.
pub(super) fn emit(out: &mut Buffer, fields: [u32; 11], name: &[u8]) {
    out.extend_from_slice(b"070701");
    for field in fields {
        out.extend_from_slice(format!("{field:08X}").as_bytes());
    }
    out.extend_from_slice(format!("{:08X}{:08X}", name.len() + 1, 0).as_bytes());
    out.extend_from_slice(name);
    out.extend_from_slice(b"\0");
    out.pad_to(PADDING);
}
