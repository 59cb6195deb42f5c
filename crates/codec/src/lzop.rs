//! Files of the program lzop: blocks of LZO1X, each with its lengths and checksums.
//!
//! All numbers are big-endian. There is no specification; lzop 1.04 is the judge of the tests.

use std::io::{self, Read, Write};

use libdeflater::{Adler32, Crc, adler32, crc32};

/// The first bytes of a file.
pub(crate) const MAGIC: &[u8; 9] = b"\x89LZO\0\r\n\x1a\n";

/// The largest block of content that lzop makes, in bytes.
const BLOCK_BYTES_MAX: u32 = 64 << 20;

/// The version of lzop since which a header names the version that can read it, the level, and a
/// time of 64 bits.
const LONG_HEADER: u16 = 0x0940;
/// The newest version that a file may need.
const VERSION_MAX: u16 = 0x1040;

/// The methods of LZO1X: of 2 and 8 KiB of memory, and the slow one. All are decoded alike.
const METHODS: core::ops::RangeInclusive<u8> = 1..=3;

// Flags of a header.
const CONTENT_ADLER32: u32 = 1;
const STORED_ADLER32: u32 = 2;
const EXTRA_FIELD: u32 = 0x40;
const CONTENT_CRC32: u32 = 0x100;
const STORED_CRC32: u32 = 0x200;
const MULTIPART: u32 = 0x400;
const FILTER: u32 = 0x800;
const HEADER_CRC32: u32 = 0x1000;

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Decodes the file at the beginning of `input`, up to its end mark. Returns the length of its
/// content.
pub(crate) fn file(input: &mut dyn Read, out: &mut dyn Write) -> io::Result<u64> {
    decode(input, out).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "the lzop file is cut off"),
        _ => error,
    })
}

fn decode(input: &mut dyn Read, out: &mut dyn Write) -> io::Result<u64> {
    let mut magic = [0; MAGIC.len()];
    input.read_exact(&mut magic)?;
    if magic != *MAGIC {
        return Err(wrong("not an lzop file"));
    }
    let flags = header(input)?;
    let (mut stored, mut content) = (Vec::new(), Vec::new());
    let mut total = 0u64;
    loop {
        let content_bytes = number(input)?;
        if content_bytes == 0 {
            return Ok(total);
        }
        let stored_bytes = number(input)?;
        if content_bytes > BLOCK_BYTES_MAX || stored_bytes > content_bytes {
            return Err(wrong("lzop block has an impossible length"));
        }
        let is_packed = stored_bytes < content_bytes;
        let mut checksum = |flag| (flags & flag != 0).then(|| number(input)).transpose();
        let of_content = [checksum(CONTENT_ADLER32)?, checksum(CONTENT_CRC32)?];
        let of_stored = if is_packed {
            [checksum(STORED_ADLER32)?, checksum(STORED_CRC32)?]
        } else {
            [None; 2]
        };
        stored.clear();
        // Memory grows with what is there, not with what is claimed.
        let read = Read::take(&mut *input, stored_bytes.into()).read_to_end(&mut stored)?;
        if u32::try_from(read) != Ok(stored_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        compare(&stored, of_stored)?;
        let block = if is_packed {
            let bytes =
                usize::try_from(content_bytes).map_err(|_| wrong("lzop block is too long"))?;
            if content.len() < bytes {
                content = vec![0; bytes];
            }
            let room = content.get_mut(..bytes).unwrap_or_default();
            if lzo::decompress(room, &stored) != Ok(bytes) {
                return Err(wrong("lzop block is damaged"));
            }
            &*room
        } else {
            &stored
        };
        compare(block, of_content)?;
        out.write_all(block)?;
        total = total.saturating_add(content_bytes.into());
    }
}

/// Reads a header behind the magic bytes. Returns its flags.
fn header(input: &mut dyn Read) -> io::Result<u32> {
    let mut input = Summed {
        input,
        adler32: Adler32::new(),
        crc32: Crc::new(),
    };
    let version = u16::from_be_bytes(input.bytes()?);
    let _library: [u8; 2] = input.bytes()?;
    let is_long = version >= LONG_HEADER;
    if is_long && u16::from_be_bytes(input.bytes()?) > VERSION_MAX {
        return Err(wrong("lzop file needs a newer version of lzop"));
    }
    let [method] = input.bytes()?;
    if !METHODS.contains(&method) {
        return Err(wrong("lzop file has another method than LZO1X"));
    }
    if is_long {
        let _level: [u8; 1] = input.bytes()?;
    }
    let flags = u32::from_be_bytes(input.bytes()?);
    if flags & (EXTRA_FIELD | MULTIPART | FILTER) != 0 {
        return Err(wrong(
            "lzop file has an extra field, several parts, or a filter",
        ));
    }
    let _mode_and_time: [u8; 8] = input.bytes()?;
    if is_long {
        let _high_half_of_the_time: [u8; 4] = input.bytes()?;
    }
    let [name_bytes] = input.bytes()?;
    for _ in 0..name_bytes {
        let _of_the_name: [u8; 1] = input.bytes()?;
    }
    let expected = if flags & HEADER_CRC32 == 0 {
        input.adler32.sum()
    } else {
        input.crc32.sum()
    };
    if number(input.input)? != expected {
        return Err(wrong("lzop header has a wrong checksum"));
    }
    Ok(flags)
}

/// Compares content with its Adler-32 and its CRC-32, as far as there are any.
fn compare(bytes: &[u8], [adler, crc]: [Option<u32>; 2]) -> io::Result<()> {
    if adler.is_some_and(|sum| sum != adler32(bytes)) || crc.is_some_and(|sum| sum != crc32(bytes))
    {
        return Err(wrong("lzop block has a wrong checksum"));
    }
    Ok(())
}

fn number(input: &mut dyn Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

/// A header whose checksum, of either kind, is that of the bytes that were read.
struct Summed<'a> {
    input: &'a mut dyn Read,
    adler32: Adler32,
    crc32: Crc,
}

impl Summed<'_> {
    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        self.adler32.update(&bytes);
        self.crc32.update(&bytes);
        Ok(bytes)
    }
}
