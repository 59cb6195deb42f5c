//! Cuts a file into zstd frames, zeros and other bytes.

use tree::{ReadAt, Result, Sha256, to_u64, to_usize};
use zstd::Frame;

/// Bytes of a file in memory, of which the last ones may be the beginning of a frame.
const WINDOW_BYTES: usize = 12 << 20;
/// The longest content of a frame that is decoded: twice the largest block of a file system and the
/// frames of our archives.
const CONTENT_BYTES_MAX: u64 = 2 << 20;
/// The longest frame: one that did not get smaller.
const FRAME_BYTES_MAX: usize = 3 << 20;
/// Other bytes are cut into segments of this length.
const PLAIN_BYTES_MAX: u64 = 64 << 10;
/// Zeros are cut into segments of this length.
const ZEROS_BYTES_MAX: u64 = 16 << 20;
/// Zeros are looked for in units of this length, at multiples of it.
const PAGE_BYTES: usize = 4096;

const MAGIC: [u8; 4] = 0xFD2F_B528u32.to_le_bytes();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    Plain,
    Zeros,
    Frame { content_bytes: u32 },
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
            SegmentKind::Frame { content_bytes } => Some(content_bytes),
            _ => None,
        }
    }
}

/// The segments of a file and its SHA-256.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn scan(file: &dyn ReadAt, size: u64) -> Result<(Vec<Segment>, [u8; 32])> {
    let mut scan = Scan::default();
    let mut digest = Sha256::new();
    let mut window: Vec<u8> = Vec::new();
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
        file.read_exact_at(&mut window[from..], end)?;
        digest.update(&window[from..]);
        let is_last = start + to_u64(window.len()) == size;
        while at < window.len() && (is_last || window.len() - at > FRAME_BYTES_MAX) {
            at += scan.step(&window[at..], start + to_u64(at));
        }
        if is_last && at == window.len() {
            scan.flush(size);
            return Ok((scan.segments, digest.finish()));
        }
    }
}

#[derive(Default)]
struct Scan {
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
        while let Some(found) = page[from..].iter().position(|byte| *byte == MAGIC[0]) {
            let place = from + found;
            if let Some((len, content_bytes)) = frame(&bytes[place..]) {
                let frame_at = at + to_u64(place);
                self.flush(frame_at);
                self.segments.push(Segment {
                    at: frame_at,
                    bytes: len as u32,
                    kind: SegmentKind::Frame { content_bytes },
                });
                self.plain_at = frame_at + to_u64(len);
                return place + len;
            }
            from = place + 1;
        }
        page.len()
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

/// The length of the frame at the beginning of `bytes`, and of its content.
fn frame(bytes: &[u8]) -> Option<(usize, u32)> {
    if !bytes.starts_with(&MAGIC) {
        return None;
    }
    let Frame::Zstd(header) = Frame::parse(bytes).ok()? else {
        return None;
    };
    let content = header
        .content_size
        .filter(|it| (1..=CONTENT_BYTES_MAX).contains(it))?;
    let len = zstd::frame_size(&bytes[..bytes.len().min(FRAME_BYTES_MAX)]).ok()?;
    Some((len, u32::try_from(content).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Rng;

    #[test]
    fn frames_and_zeros_are_found_at_any_place() {
        let mut rng = Rng::new(1);
        let mut file = rng.bytes(100_000);
        let text = b"to be or not to be ".repeat(100);
        let frame = zstd::compress_to_vec(&text, 3);
        file.extend(&frame);
        file.extend(&frame);
        file.resize(file.len() + 20_000, 0);
        file.extend(MAGIC);
        let (segments, digest) = scan(&file, to_u64(file.len())).unwrap();
        assert_eq!(digest, tree::sha256(&file));
        let frames: Vec<_> = segments.iter().filter_map(Segment::content_bytes).collect();
        assert_eq!(frames, [1900, 1900]);
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
