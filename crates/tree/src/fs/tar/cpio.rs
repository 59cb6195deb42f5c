//! Archives of cpio (newc, crc and odc) as Linux reads an initramfs: several archives that follow
//! each other, with zeros between them, and a compressed rest.
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
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use codec::Wrapper;

use super::member::{InArchive, MemberContent};
use super::options::TarOptions;
use super::read::{Archives, Index, Scan};
use crate::{
    Device, Error, FileKind, Ino, Limits, Metadata, ReadAt, Result, SequentialReader, Time, spool,
    to_u64, to_usize,
};

/// The magic numbers: newc, crc (newc with sums of the content), and odc, the portable form of
/// POSIX.1-1988.
const NEWC: &[u8; 6] = b"070701";
const CRC: &[u8; 6] = b"070702";
const ODC: &[u8; 6] = b"070707";

const NEWC_BYTES: usize = 110;
const ODC_BYTES: usize = 76;

/// The name of the last member.
const TRAILER: &[u8] = b"TRAILER!!!";

/// Maximum length of a name, and of the target of a symbolic link: more than Linux takes.
const NAME_BYTES_MAX: u64 = 64 << 10;

/// The beginning of a file that `lz4 -l` compressed, the only form of LZ4 that Linux reads in an
/// initramfs; maximum lengths of the content of a block, and of the block.
const LEGACY_LZ4: &[u8; 4] = b"\x02\x21\x4c\x18";
const LZ4_CONTENT_MAX: usize = 8 << 20;
const LZ4_BLOCK_MAX: u32 = (8 << 20) + (64 << 10);

/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;

/// The types of files in `mode`.
const S_IFMT: u32 = 0o170_000;

/// A header.
#[derive(Default)]
struct Header {
    /// Number and device of the inode: names with the same are hard links.
    inode: (u64, u64),
    mode: u32,
    uid: u32,
    gid: u32,
    links: u32,
    mtime: i64,
    size: u64,
    rdev: Device,
    name_bytes: u64,
    /// The sum of the bytes of the content.
    sum: Option<u32>,
    /// Where the name begins.
    name_at: u64,
    /// Name and content end at multiples of this.
    padding: u64,
}

/// Whether a file that begins with `start` is an archive of cpio.
pub(super) fn recognises(start: &[u8]) -> bool {
    let magic = start.first_chunk::<6>();
    magic.is_some_and(|magic| [NEWC, CRC, ODC].contains(&magic))
}

/// Reads the headers of all archives in a file, the last of which may be compressed.
pub(super) fn index(
    file: Arc<dyn ReadAt>,
    limits: &Limits,
    options: TarOptions,
    spool_dir: &Path,
) -> Result<(Index, Archives)> {
    let len = file.size()?;
    let mut scan = Scan::new(limits, options);
    scan.follows = true;
    let mut archives: Archives = vec![(Box::new(Arc::clone(&file)), len)];
    if let Some(at) = scan.cpio(&*file, len)? {
        let (unpacked, has_garbage) = unpack(&file, at, spool_dir)?;
        let len = unpacked.size()?;
        scan.layer = 1;
        let rest = scan.cpio(&unpacked, len)?;
        archives.push((Box::new(unpacked), len));
        if has_garbage || rest.is_some() {
            let what = "bytes that follow a compressed cpio archive are not read";
            scan.faults
                .push(Error::corrupt(what, at, rest.unwrap_or(0)));
        }
    }
    Ok((scan.into_index(), archives))
}

/// Decompresses the rest of a file, and returns whether other bytes follow the compressed ones.
fn unpack(file: &Arc<dyn ReadAt>, at: u64, spool_dir: &Path) -> Result<(std::fs::File, bool)> {
    let mut start = [0; 16];
    let left = to_usize(file.size()?.saturating_sub(at)).min(start.len());
    let (start, _) = start.split_at_mut(left);
    file.read_exact_at(start, at)?;
    if start.starts_with(LEGACY_LZ4) {
        let mut has_garbage = false;
        let fill = |out: &mut dyn Write| {
            has_garbage = unpack_lz4(&**file, at, out)?;
            Ok(0)
        };
        return spool(fill, spool_dir).map(|file| (file, has_garbage));
    }
    let Some(wrapper) = Wrapper::of(start) else {
        let what = "neither a cpio header nor compressed data";
        let got = start
            .first_chunk()
            .map_or(0, |word| u32::from_be_bytes(*word));
        return Err(Error::corrupt(what, at, got.into()));
    };
    let mut input = SequentialReader::starting_at(Arc::clone(file), at);
    let mut has_garbage = false;
    let fill = |mut out: &mut dyn Write| {
        let unpacked = wrapper.decompress(&mut input, &mut out)?;
        has_garbage = unpacked.has_garbage;
        Ok(unpacked.bytes)
    };
    spool(fill, spool_dir).map(|file| (file, has_garbage))
}

/// Decompresses blocks of LZ4, each after its length, to the end or up to something else. Returns
/// whether there is something else.
fn unpack_lz4(file: &dyn ReadAt, mut at: u64, out: &mut dyn Write) -> std::io::Result<bool> {
    let damage = |what| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    let end = file.size()?;
    let mut decoder = codec::Decoder::new();
    let mut content = vec![0; LZ4_CONTENT_MAX];
    while end.saturating_sub(at) >= 4 {
        let mut word = [0; 4];
        file.read_exact_at(&mut word, at)?;
        at = at.saturating_add(4);
        let len = u32::from_le_bytes(word);
        // Files that were compressed apart and joined.
        if word == *LEGACY_LZ4 {
            continue;
        }
        if len == 0 || len > LZ4_BLOCK_MAX || u64::from(len) > end.saturating_sub(at) {
            return Ok(true);
        }
        let mut block = vec![0; to_usize(len)];
        file.read_exact_at(&mut block, at)?;
        let decoded = decoder.decompress(codec::Algorithm::Lz4, &mut content, &block);
        let decoded = decoded.map_err(|_| damage("a block of LZ4 in a cpio archive is damaged"))?;
        out.write_all(content.get(..decoded).unwrap_or_default())?;
        at = at.saturating_add(len.into());
    }
    Ok(at < end)
}

impl Scan<'_> {
    /// Reads the members of the archives at the beginning of a file. Returns where something else
    /// begins.
    fn cpio(&mut self, file: &dyn ReadAt, len: u64) -> Result<Option<u64>> {
        let mut links = HashMap::new();
        let (mut at, mut is_ended) = (0, false);
        loop {
            at = skip_zeros(file, at, len)?;
            if at >= len {
                if !is_ended {
                    self.notes.no_end_at = Some(len);
                }
                return Ok(None);
            }
            let mut magic = [0; 6];
            if len.saturating_sub(at) >= 6 {
                file.read_exact_at(&mut magic, at)?;
            }
            if !recognises(&magic) {
                if is_ended {
                    return Ok(Some(at));
                }
                let what = "cpio header has a wrong magic number";
                return self.fault(Error::corrupt(what, at, to_u64(links.len())), None);
            }
            let header = match parse(file, magic, at, len) {
                Err(error @ Error::Corrupt(_)) => return self.fault(error, None),
                header => header?,
            };
            let name_end = header.name_at.saturating_add(header.name_bytes);
            let mut name = vec![0; to_usize(header.name_bytes)];
            if name_end > len {
                let what = "cpio archive is cut off within a name";
                return self.fault(Error::corrupt(what, at, len), None);
            }
            file.read_exact_at(&mut name, header.name_at)?;
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            let data_at = name_end.next_multiple_of(header.padding);
            let data_end = data_at.saturating_add(header.size);
            at = data_end.next_multiple_of(header.padding);
            is_ended = name == TRAILER;
            if is_ended {
                links.clear();
                continue;
            }
            self.entries = self.entries.saturating_add(1);
            let header_at = header.name_at;
            if data_end > len {
                let what = "cpio member runs past the end of the archive";
                let error = Error::corrupt(what, header_at, header.size);
                if !self.skips {
                    return Err(error);
                }
                self.cut = Some(error.in_file("read", name));
                at = len;
                is_ended = true;
            }
            match self.cpio_member(file, &header, name, data_at, &mut links) {
                Err(error @ (Error::Corrupt(_) | Error::Unsupported(_))) => {
                    self.fault::<()>(error, Some(name))?;
                }
                added => added?,
            }
        }
    }

    /// Notes an error where members are left out, or returns it.
    fn fault<T>(&mut self, error: Error, name: Option<&[u8]>) -> Result<Option<T>> {
        if !self.skips {
            return Err(error);
        }
        self.faults.push(match name {
            Some(name) => error.in_file("read", name),
            None => error,
        });
        Ok(None)
    }

    fn cpio_member(
        &mut self,
        file: &dyn ReadAt,
        header: &Header,
        path: &[u8],
        data_at: u64,
        links: &mut HashMap<(u64, u64), Ino>,
    ) -> Result<()> {
        let at = header.name_at;
        let kind = match header.mode & S_IFMT {
            0o010_000 => FileKind::Fifo,
            0o020_000 => FileKind::CharDevice,
            0o040_000 => FileKind::Directory,
            0o060_000 => FileKind::BlockDevice,
            0o100_000 => FileKind::Regular,
            0o120_000 => FileKind::Symlink,
            0o140_000 => FileKind::Socket,
            got => {
                let what = "cpio member has an unknown type";
                return Err(Error::corrupt(what, at, got.into()));
            }
        };
        let mut in_archive = InArchive {
            layer: self.layer,
            ..InArchive::default()
        };
        let is_regular = kind == FileKind::Regular;
        if is_regular && header.size > 0 {
            check_sum(file, header, data_at)?;
            in_archive.content = MemberContent::Data { at: data_at };
        }
        let permissions = u16::try_from(header.mode & 0o7777).unwrap_or(0);
        let metadata = Metadata {
            uid: header.uid,
            gid: header.gid,
            rdev: if kind.is_device() {
                header.rdev
            } else {
                Device::default()
            },
            size: if is_regular { header.size } else { 0 },
            mtime: Time {
                seconds: header.mtime,
                nanoseconds: 0,
            },
            ..Metadata::new(kind, permissions)
        };
        let target = match kind {
            FileKind::Symlink if header.size == 0 || header.size > NAME_BYTES_MAX => {
                let what = "target of a symbolic link in cpio is empty or too long";
                return Err(Error::corrupt(what, at, header.size));
            }
            FileKind::Symlink => {
                let mut target = vec![0; to_usize(header.size)];
                file.read_exact_at(&mut target, data_at)?;
                target
            }
            _ => Vec::new(),
        };
        if matches!(kind, FileKind::Directory | FileKind::Symlink) || header.links < 2 {
            return self.insert(path, &metadata, &target, in_archive, at);
        }
        let known = links.get(&header.inode).copied();
        let known = match known {
            Some(ino) if self.tree.metadata(ino)?.kind == kind => Some(ino),
            _ => None,
        };
        let Some((parent, name)) = self.parent(path, at)? else {
            let what = "root of a cpio archive is not a directory";
            return Err(Error::corrupt(what, at, header.mode.into()));
        };
        let ino = match known {
            Some(ino) => ino,
            None => {
                self.check_node_count()?;
                self.tree.add(&metadata, InArchive::default())?
            }
        };
        // The content is at the first name or at the last one.
        if known.is_none() || header.size > 0 {
            *self.tree.content_mut(ino)? = in_archive;
            self.tree.change(ino, |known| known.size = metadata.size)?;
        }
        links.insert(header.inode, ino);
        self.set(parent, name, ino, at)
    }
}

/// Where the next byte other than zero is, or the end.
fn skip_zeros(file: &dyn ReadAt, mut at: u64, len: u64) -> Result<u64> {
    let mut piece_bytes = 16;
    let mut piece = vec![0; PIECE_BYTES];
    while at < len {
        let left = to_usize(len.saturating_sub(at)).min(piece_bytes);
        let (piece, _) = piece.split_at_mut(left);
        file.read_exact_at(piece, at)?;
        if let Some(found) = piece.iter().position(|&byte| byte != 0) {
            return Ok(at.saturating_add(to_u64(found)));
        }
        at = at.saturating_add(to_u64(left));
        piece_bytes = PIECE_BYTES;
    }
    Ok(len)
}

fn parse(file: &dyn ReadAt, magic: [u8; 6], at: u64, len: u64) -> Result<Header> {
    let is_odc = magic == *ODC;
    let header_bytes = if is_odc { ODC_BYTES } else { NEWC_BYTES };
    let mut bytes = vec![0; header_bytes];
    if len.saturating_sub(at) < to_u64(header_bytes) {
        let what = "cpio archive is cut off within a header";
        return Err(Error::corrupt(what, at, len));
    }
    file.read_exact_at(&mut bytes, at)?;
    let mut fields = bytes.get(6..).unwrap_or_default();
    let mut next = |digits: usize| -> Result<u64> {
        let (field, rest) = fields.split_at_checked(digits).unwrap_or_default();
        fields = rest;
        let radix = if is_odc { 8 } else { 16 };
        // `from_str_radix` would take a sign.
        let is_plain = field.iter().all(u8::is_ascii_hexdigit);
        let text = str::from_utf8(field).ok().filter(|_| is_plain);
        let number = text.and_then(|text| u64::from_str_radix(text, radix).ok());
        number.ok_or_else(|| {
            let what = "cpio header has a field that is not a number";
            let got = field.first().copied().unwrap_or(0);
            Error::corrupt(what, at, got.into())
        })
    };
    let name_at = at.saturating_add(to_u64(header_bytes));
    let low = |number: u64| crate::low_u32(number);
    let header = if is_odc {
        let device = next(6)?;
        let inode = (next(6)?, device);
        let (mode, uid, gid, links) = (low(next(6)?), low(next(6)?), low(next(6)?), low(next(6)?));
        let rdev = low(next(6)?);
        let mtime = i64::try_from(next(11)?).unwrap_or(0);
        let (name_bytes, size) = (next(6)?, next(11)?);
        Header {
            inode,
            mode,
            uid,
            gid,
            links,
            mtime,
            size,
            rdev: Device {
                major: rdev >> 8,
                minor: rdev & 0xff,
            },
            name_bytes,
            sum: None,
            name_at,
            padding: 1,
        }
    } else {
        let inode = next(8)?;
        let (mode, uid, gid, links) = (low(next(8)?), low(next(8)?), low(next(8)?), low(next(8)?));
        let mtime = i64::try_from(next(8)?).unwrap_or(0);
        let size = next(8)?;
        let device = next(8)? << 32 | next(8)?;
        let rdev = Device {
            major: low(next(8)?),
            minor: low(next(8)?),
        };
        let name_bytes = next(8)?;
        let sum = low(next(8)?);
        Header {
            inode: (inode, device),
            mode,
            uid,
            gid,
            links,
            mtime,
            size,
            rdev,
            name_bytes,
            sum: (magic == *CRC).then_some(sum),
            name_at,
            padding: 4,
        }
    };
    if header.name_bytes == 0 || header.name_bytes > NAME_BYTES_MAX {
        let what = "name in cpio is empty or too long";
        return Err(Error::corrupt(what, at, header.name_bytes));
    }
    Ok(header)
}

/// Compares the sum of the content with that in the header.
fn check_sum(file: &dyn ReadAt, header: &Header, data_at: u64) -> Result<()> {
    let Some(expected) = header.sum else {
        return Ok(());
    };
    let (mut at, mut left, mut sum) = (data_at, header.size, 0u32);
    let mut piece = vec![0; PIECE_BYTES];
    while left > 0 {
        let len = to_usize(left).min(PIECE_BYTES);
        let (piece, _) = piece.split_at_mut(len);
        file.read_exact_at(piece, at)?;
        sum = piece
            .iter()
            .fold(sum, |sum, &byte| sum.wrapping_add(byte.into()));
        at = at.saturating_add(to_u64(len));
        left = left.saturating_sub(to_u64(len));
    }
    if sum != expected {
        let what = "content of a cpio member does not match its sum";
        return Err(Error::corrupt(what, header.name_at, expected.into()));
    }
    Ok(())
}
