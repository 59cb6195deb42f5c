//! Cuts a file into compressed blocks, zeros and other bytes.

use crate::DeltaInput;
use codec::{Algorithm, Decoder};
use patch::{BlockCodec, XZ_DICTIONARY_BYTES_MAX, xz_settings};
use tree::{Result, Sha256, to_u64, to_usize};
use zstd::Frame;

/// Bytes of a file in memory, of which the last ones may be the beginning of a frame.
const WINDOW_BYTES: usize = 12 << 20;
/// The longest content of a block that is decoded: twice the largest block of a file system and the
/// frames of our archives.
const CONTENT_BYTES_MAX: u64 = 2 << 20;
/// The longest block: one that did not get smaller.
const BLOCK_BYTES_MAX: usize = 3 << 20;
/// Other bytes are cut into segments of this length.
const PLAIN_BYTES_MAX: u64 = 64 << 10;
/// Zeros are cut into segments of this length.
const ZEROS_BYTES_MAX: u64 = 16 << 20;
/// Zeros are looked for in units of this length, at multiples of it.
const PAGE_BYTES: usize = 4096;

const ZSTD_MAGIC: [u8; 4] = 0xFD2F_B528u32.to_le_bytes();
const XZ_MAGIC: [u8; 6] = *b"\xfd7zXZ\0";
/// The first byte of zlib streams with a window of 32 KiB.
const ZLIB_START: u8 = 0x78;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    Plain,
    Zeros,
    Block {
        content_bytes: u32,
        codec: BlockCodec,
    },
}

/// A stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) at: u64,
    pub(crate) bytes: u32,
    pub(crate) kind: SegmentKind,
}

impl Segment {
    pub(crate) fn content_bytes(&self) -> Option<u32> {
        match self.kind {
            SegmentKind::Block { content_bytes, .. } => Some(content_bytes),
            _ => None,
        }
    }
}

/// The segments of a file and its SHA-256.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn scan(input: &DeltaInput<'_>, size: u64) -> Result<(Vec<Segment>, [u8; 32])> {
    let mut scan = Scan::default();
    let mut digest = Sha256::new();
    let mut window: Vec<u8> = Vec::new();
    let known = (input.lz4.iter()).filter(|it| to_usize(it.bytes) <= BLOCK_BYTES_MAX);
    let mut known = known
        .filter(|it| u64::from(it.content_bytes) <= CONTENT_BYTES_MAX)
        .peekable();
    // The place of the window in the file, and how far it is looked at.
    let (mut start, mut at) = (0u64, 0usize);
    loop {
        window.drain(..at);
        start += to_u64(at);
        at = 0;
        let end = start + to_u64(window.len());
        let more = (WINDOW_BYTES - window.len()).min(to_usize(size - end));
        let from = window.len();
        window.resize(from + more, 0);
        input.file.read_exact_at(&mut window[from..], end)?;
        digest.update(&window[from..]);
        let is_last = start + to_u64(window.len()) == size;
        while at < window.len() && (is_last || window.len() - at > BLOCK_BYTES_MAX) {
            let here = start + to_u64(at);
            while known.next_if(|it| it.at < here).is_some() {}
            let next = known.peek().map_or(u64::MAX, |it| it.at - here);
            match known.next_if(|it| it.at == here) {
                Some(block) if to_usize(block.bytes) <= window.len() - at => {
                    scan.push(
                        here,
                        to_usize(block.bytes),
                        block.content_bytes,
                        BlockCodec::Lz4,
                    );
                    at += to_usize(block.bytes);
                }
                Some(_) => {}
                None => {
                    let end = window.len().min(at.saturating_add(to_usize(next)));
                    at += scan.step(&window[at..end], here);
                }
            }
        }
        if is_last && at == window.len() {
            scan.flush(size);
            return Ok((scan.segments, digest.finish()));
        }
    }
}

#[derive(Default)]
struct Scan {
    decoder: Decoder,
    /// The content of the last block.
    content: Vec<u8>,
    segments: Vec<Segment>,
    /// Where the bytes begin that are in no segment yet.
    plain_at: u64,
}

impl Scan {
    /// Looks at the rest of a page, or at the frame that begins in it. Returns how far.
    fn step(&mut self, bytes: &[u8], at: u64) -> usize {
        let into_page = to_usize(at % to_u64(PAGE_BYTES));
        let page = &bytes[..bytes.len().min(PAGE_BYTES - into_page)];
        if page.len() == PAGE_BYTES && page.iter().all(|byte| *byte == 0) {
            self.flush(at);
            self.zeros(at, to_u64(PAGE_BYTES));
            return PAGE_BYTES;
        }
        let mut from = 0;
        let is_start = |byte: &u8| [ZSTD_MAGIC[0], XZ_MAGIC[0], ZLIB_START].contains(byte);
        while let Some(found) = page[from..].iter().position(is_start) {
            let place = from + found;
            if let Some((len, content_bytes, codec)) = self.block(&bytes[place..]) {
                self.push(at + to_u64(place), len, content_bytes, codec);
                return place + len;
            }
            from = place + 1;
        }
        page.len()
    }

    fn push(&mut self, at: u64, len: usize, content_bytes: u32, codec: BlockCodec) {
        self.flush(at);
        self.segments.push(Segment {
            at,
            bytes: len as u32,
            kind: SegmentKind::Block {
                content_bytes,
                codec,
            },
        });
        self.plain_at = at + to_u64(len);
    }

    /// The length of the block at the beginning of `bytes`, and of its content.
    fn block(&mut self, bytes: &[u8]) -> Option<(usize, u32, BlockCodec)> {
        let bytes = &bytes[..bytes.len().min(BLOCK_BYTES_MAX)];
        if bytes.starts_with(&ZSTD_MAGIC) {
            let (len, content) = frame(bytes)?;
            return Some((len, content, BlockCodec::Zstd));
        }
        let (codec, algorithm) = if bytes.starts_with(&XZ_MAGIC) {
            let (_, dictionary) = xz_settings(bytes)?;
            if dictionary > XZ_DICTIONARY_BYTES_MAX {
                return None;
            }
            (BlockCodec::Xz, Algorithm::Xz)
        } else {
            let [ZLIB_START, flags, ..] = *bytes else {
                return None;
            };
            let has_dictionary = flags & 0x20 != 0;
            if has_dictionary || !u16::from_be_bytes([ZLIB_START, flags]).is_multiple_of(31) {
                return None;
            }
            (BlockCodec::Gzip, Algorithm::Zlib)
        };
        self.content.resize(to_usize(CONTENT_BYTES_MAX), 0);
        let decoded = (self.decoder).decompress_first(algorithm, &mut self.content, bytes);
        let (len, content) = decoded.filter(|(_, content)| *content > 0)?;
        Some((len, content as u32, codec))
    }

    /// Cuts the bytes before `end` into segments.
    fn flush(&mut self, end: u64) {
        while self.plain_at < end {
            let bytes = PLAIN_BYTES_MAX.min(end - self.plain_at);
            self.segments.push(Segment {
                at: self.plain_at,
                bytes: bytes as u32,
                kind: SegmentKind::Plain,
            });
            self.plain_at += bytes;
        }
    }

    fn zeros(&mut self, at: u64, bytes: u64) {
        self.plain_at = at + bytes;
        if let Some(last) = self.segments.last_mut()
            && last.kind == SegmentKind::Zeros
            && last.at + u64::from(last.bytes) == at
            && u64::from(last.bytes) < ZEROS_BYTES_MAX
        {
            last.bytes += bytes as u32;
            return;
        }
        self.segments.push(Segment {
            at,
            bytes: bytes as u32,
            kind: SegmentKind::Zeros,
        });
    }
}

/// The length of the zstd frame at the beginning of `bytes`, and of its content.
fn frame(bytes: &[u8]) -> Option<(usize, u32)> {
    let Frame::Zstd(header) = Frame::parse(bytes).ok()? else {
        return None;
    };
    let content = header
        .content_size
        .filter(|it| (1..=CONTENT_BYTES_MAX).contains(it))?;
    let len = zstd::frame_size(bytes).ok()?;
    Some((len, u32::try_from(content).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Rng;

    #[test]
    fn frames_and_zeros_are_found_at_any_place() {
        let mut rng = Rng::new(1);
        let mut file_end = vec![0; 4000];
        let mut file = rng.bytes(100_000);
        let text = b"to be or not to be ".repeat(100);
        let frame = zstd::compress_to_vec(&text, 3);
        file.extend(&frame);
        file.extend(&frame);
        file.resize(file.len() + 20_000, 0);
        for level in [1, 9] {
            let mut encoder = codec::Encoder::new(&codec::Settings::Zlib { level }).unwrap();
            let len = encoder.compress(&mut file_end, &text).unwrap();
            file.extend(&file_end[..len]);
        }
        file.extend(ZSTD_MAGIC);
        let (segments, digest) = scan(&DeltaInput::new(&file), to_u64(file.len())).unwrap();
        assert_eq!(digest, tree::sha256(&file));
        let frames: Vec<_> = segments.iter().filter_map(Segment::content_bytes).collect();
        assert_eq!(frames, [1900; 4]);
        let mut at = 0;
        for segment in &segments {
            assert_eq!(segment.at, at);
            at += u64::from(segment.bytes);
        }
        assert_eq!(at, to_u64(file.len()));
        let zeros = segments.iter().find(|it| it.kind == SegmentKind::Zeros);
        assert!(zeros.is_some_and(|it| it.bytes >= 12_288));
    }
}
