//! The partitions of a disk image: MBR and GPT.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::io;

use tree::ReadAt;

use crate::text;

/// Sizes of sectors: almost all disks, and disks that have 4 KiB ones only.
const SECTORS: [u64; 2] = [512, 4096];

/// Maximum number of logical partitions, and of entries of a GPT: more than any tool makes.
const LOGICAL_MAX: u32 = 128;
const ENTRIES_MAX: u32 = 1024;

/// Sizes of an entry of a GPT.
const ENTRY_BYTES: std::ops::RangeInclusive<u32> = 128..=4096;

/// The types of the MBR that stand for a GPT and for a chain of logical partitions.
const PROTECTIVE: u8 = 0xee;
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];

/// A partition of a disk image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// As in the name of its device: 2 is `sda2`.
    pub number: u32,
    /// Where it begins, in bytes.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its name in a GPT, as it is shown.
    pub label: String,
    /// The format of an image in it that restow reads.
    pub format: Option<&'static str>,
}

/// The partitions of a disk image in the order of their numbers; none if it has no table.
///
/// # Errors
/// The image cannot be read.
pub(crate) fn read(disk: &dyn ReadAt) -> io::Result<Vec<Partition>> {
    let size = disk.size()?;
    let Some(block) = block::<512>(disk, 0)? else {
        return Ok(Vec::new());
    };
    let Some(entries) = entries_of(&block) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    if entries.iter().any(|entry| entry.kind == PROTECTIVE) {
        for sector in SECTORS {
            found = gpt(disk, sector, sector)?;
            if found.is_empty() {
                // The copy at the end.
                found = gpt(disk, sector, size.saturating_sub(sector))?;
            }
            if !found.is_empty() {
                break;
            }
        }
    } else {
        for (number, entry) in (1..).zip(&entries) {
            if EXTENDED.contains(&entry.kind) {
                logical(disk, entry.start, &mut found)?;
            } else if entry.kind != 0 {
                found.push(entry.partition(number, 0));
            }
        }
    }
    found.retain(|partition| {
        let end = partition.start.checked_add(partition.len);
        partition.start > 0 && partition.len > 0 && end.is_some_and(|end| end <= size)
    });
    found.sort_by_key(|partition| partition.number);
    Ok(found)
}

/// An entry of an MBR, in bytes.
struct MbrEntry {
    kind: u8,
    start: u64,
    len: u64,
}

impl MbrEntry {
    fn partition(&self, number: u32, base: u64) -> Partition {
        Partition {
            number,
            start: base.saturating_add(self.start),
            len: self.len,
            label: String::new(),
            format: None,
        }
    }
}

/// The four entries of an MBR; `None` if the sector is not one.
fn entries_of(block: &[u8; 512]) -> Option<Vec<MbrEntry>> {
    let (_, table) = block.split_at_checked(446)?;
    let (table, mark) = table.split_at_checked(64)?;
    let (entries, _) = table.as_chunks::<16>();
    let mut all = Vec::new();
    for entry in entries {
        let [
            status,
            _,
            _,
            _,
            kind,
            _,
            _,
            _,
            s0,
            s1,
            s2,
            s3,
            c0,
            c1,
            c2,
            c3,
        ] = *entry;
        let sectors = |number: [u8; 4]| u64::from(u32::from_le_bytes(number)).saturating_mul(512);
        all.push(MbrEntry {
            kind,
            start: sectors([s0, s1, s2, s3]),
            len: sectors([c0, c1, c2, c3]),
        });
        // The boot sector of a file system has code here.
        if !matches!(status, 0 | 0x80) {
            return None;
        }
    }
    (mark == [0x55, 0xaa]).then_some(all)
}

/// The logical partitions in an extended one.
fn logical(disk: &dyn ReadAt, extended: u64, found: &mut Vec<Partition>) -> io::Result<()> {
    let mut at = extended;
    for number in 5..LOGICAL_MAX.saturating_add(5) {
        let Some(block) = block::<512>(disk, at)? else {
            break;
        };
        let entries = entries_of(&block).unwrap_or_default();
        let [first, next, ..] = &*entries else {
            break;
        };
        if first.kind != 0 {
            found.push(first.partition(number, at));
        }
        if !EXTENDED.contains(&next.kind) || next.start == 0 {
            break;
        }
        at = extended.saturating_add(next.start);
    }
    Ok(())
}

/// The partitions of the GPT whose header is at a byte; none if there is none, or one that is
/// damaged.
fn gpt(disk: &dyn ReadAt, sector: u64, at: u64) -> io::Result<Vec<Partition>> {
    let none = Ok(Vec::new());
    let Some(header) = block::<92>(disk, at)? else {
        return none;
    };
    let word = |at: usize| {
        let bytes = header.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at.saturating_add(4))) << 32;
    let mut without_sum = header;
    without_sum[16..20].fill(0);
    let is_header = header.starts_with(b"EFI PART") && word(12) == 92;
    if !is_header || crc32(&without_sum, IEEE) != word(16) {
        return none;
    }
    let (count, len) = (word(80), word(84));
    if count > ENTRIES_MAX || !ENTRY_BYTES.contains(&len) {
        return none;
    }
    let bytes = usize::try_from(u64::from(count).saturating_mul(len.into())).unwrap_or(0);
    let mut table = vec![0; bytes];
    let table_at = long(72).saturating_mul(sector);
    let is_there = table_at
        .checked_add(tree::to_u64(bytes))
        .is_some_and(|end| disk.size().is_ok_and(|size| end <= size));
    if !is_there {
        return none;
    }
    disk.read_exact_at(&mut table, table_at)?;
    if crc32(&table, IEEE) != word(88) {
        return none;
    }
    let entries = table.chunks_exact(usize::try_from(len).unwrap_or(128));
    let partitions = (1..).zip(entries).filter_map(|(number, entry)| {
        let entry: &[u8; 128] = entry.first_chunk()?;
        let (kind, rest) = entry.split_first_chunk::<16>()?;
        let (_, rest) = rest.split_first_chunk::<16>()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (last, rest) = rest.split_first_chunk()?;
        let (_, name) = rest.split_first_chunk::<8>()?;
        let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        let sectors = last.checked_sub(first)?.checked_add(1)?;
        (kind.iter().any(|&byte| byte != 0)).then(|| Partition {
            number,
            start: first.saturating_mul(sector),
            len: sectors.saturating_mul(sector),
            label: label(name),
            format: None,
        })
    });
    Ok(partitions.collect())
}

/// A name in UTF-16, up to its end.
fn label(name: &[u8]) -> String {
    let (letters, _) = name.as_chunks::<2>();
    let letters = letters.iter().map(|letter| u16::from_le_bytes(*letter));
    let letters = char::decode_utf16(letters.take_while(|&letter| letter != 0));
    let letters = letters.map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER));
    text::of_name(letters.collect::<String>().as_bytes())
}

/// The bytes at an offset; `None` if the disk ends before.
fn block<const N: usize>(disk: &dyn ReadAt, at: u64) -> io::Result<Option<[u8; N]>> {
    let end = at.checked_add(tree::to_u64(N));
    if !end.is_some_and(|end| disk.size().is_ok_and(|size| end <= size)) {
        return Ok(None);
    }
    let mut block = [0; N];
    disk.read_exact_at(&mut block, at)?;
    Ok(Some(block))
}

/// The polynomials of the CRC-32 of a GPT, IEEE 802.3, and of that of VHDX, reflected.
const IEEE: u32 = 0xedb8_8320;
pub(crate) const CRC32C: u32 = 0x82f6_3b78;

/// A CRC-32. The tables that have one are a few KiB: bit by bit is fast enough.
pub(crate) fn crc32(bytes: &[u8], polynomial: u32) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            let low = sum & 1;
            sum = sum >> 1 ^ if low == 0 { 0 } else { polynomial };
        }
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u8, start: u32, sectors: u32) -> Vec<u8> {
        let mut entry = vec![0, 0, 0, 0, kind, 0, 0, 0];
        entry.extend(start.to_le_bytes());
        entry.extend(sectors.to_le_bytes());
        entry
    }

    fn put_mbr(disk: &mut [u8], at: usize, entries: &[Vec<u8>]) {
        let table: Vec<u8> = entries.concat();
        disk[at + 446..at + 446 + table.len()].copy_from_slice(&table);
        disk[at + 510..at + 512].copy_from_slice(&[0x55, 0xaa]);
    }

    fn places(disk: &[u8]) -> Vec<(u32, u64, u64)> {
        let found = read(&disk.to_vec()).unwrap();
        found
            .iter()
            .map(|it| (it.number, it.start, it.len))
            .collect()
    }

    #[test]
    fn primary_and_logical_partitions() {
        let mut disk = vec![0; 100 * 512];
        put_mbr(
            &mut disk,
            0,
            &[
                entry(0x83, 1, 9),
                entry(0x0f, 10, 50),
                entry(0, 0, 0),
                entry(0x83, 90, 11),
            ],
        );
        put_mbr(
            &mut disk,
            10 * 512,
            &[entry(0x83, 2, 8), entry(0x05, 20, 20)],
        );
        put_mbr(&mut disk, 30 * 512, &[entry(0x83, 1, 5)]);
        // The fourth ends after the disk.
        assert_eq!(
            places(&disk),
            [
                (1, 512, 9 * 512),
                (5, 12 * 512, 8 * 512),
                (6, 31 * 512, 5 * 512)
            ]
        );
        // A chain in a circle ends.
        put_mbr(
            &mut disk,
            30 * 512,
            &[entry(0x83, 1, 5), entry(0x05, 20, 20)],
        );
        assert_eq!(places(&disk).len(), 1 + LOGICAL_MAX as usize);
        disk[510] = 0;
        assert_eq!(places(&disk), []);
        assert_eq!(places(&[0x55; 100]), []);
    }

    #[test]
    fn a_gpt_and_its_copy() {
        let mut disk = vec![0; 200 * 512];
        put_mbr(&mut disk, 0, &[entry(PROTECTIVE, 1, 199)]);
        let mut table = vec![0; 4 * 128];
        table[128] = 1;
        table[128 + 32] = 40;
        table[128 + 40] = 59;
        table[128 + 56..128 + 62].copy_from_slice(b"o\0k\0\n\0");
        for (header, entries) in [(1, 2), (199, 195)] {
            let mut bytes = b"EFI PART\0\0\x01\0\x5c\0\0\0".to_vec();
            bytes.resize(92, 0);
            bytes[72] = entries;
            bytes[80] = 4;
            bytes[84] = 128;
            bytes[88..92].copy_from_slice(&crc32(&table, IEEE).to_le_bytes());
            let sum = crc32(&bytes, IEEE);
            bytes[16..20].copy_from_slice(&sum.to_le_bytes());
            disk[header * 512..header * 512 + 92].copy_from_slice(&bytes);
            let at = usize::from(entries) * 512;
            disk[at..at + table.len()].copy_from_slice(&table);
        }
        let expected = [(2, 40 * 512, 20 * 512)];
        assert_eq!(places(&disk), expected);
        assert_eq!(read(&disk).unwrap()[0].label, "ok\\x0a");
        // Damage to the first header, and to both.
        disk[512 + 40] ^= 1;
        assert_eq!(places(&disk), expected);
        disk[199 * 512 + 40] ^= 1;
        assert_eq!(places(&disk), []);
        assert_eq!(crc32(b"123456789", IEEE), 0xcbf4_3926);
        assert_eq!(crc32(b"123456789", CRC32C), 0xe306_9283);
    }
}
