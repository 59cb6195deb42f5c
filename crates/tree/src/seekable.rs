//! Content of zstd files with a seek table, read in place.
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
use std::sync::{Mutex, PoisonError};

use codec::{Algorithm, Decoder, SeekTable};

use crate::{Cache, Corrupt, ReadAt, Result, to_u64, to_usize};

/// Maximum length of a frame's content, and of the frame. Larger ones are not worth decoding for a
/// few bytes.
const FRAME_BYTES_MAX: u32 = 16 << 20;

/// Maximum length of a table: for 8 TiB in frames of 2 MiB.
const TABLE_BYTES_MAX: u64 = 64 << 20;

/// Frames that are kept decoded, for each of a few threads.
const CACHED: (usize, usize) = (4, 2);

/// The content of a zstd file with a seek table, decoded frame by frame when it is read.
///
/// Memory use is that of the table, 16 bytes for each frame, and of eight decoded frames.
pub struct Seekable<R> {
    file: R,
    /// Where each frame begins in the file and in the content; the last pair is where both end.
    starts: Vec<(u64, u64)>,
    frames: Cache<Vec<u8>>,
    decoders: Mutex<Vec<Decoder>>,
}

impl<R: ReadAt> Seekable<R> {
    /// Reads the table at the end of a file; `None` if it has none, or one with frames that are too
    /// large to be decoded for a few bytes.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) for a table that does not fit the file, whose
    /// content can still be decoded from the beginning; otherwise the file cannot be read.
    pub fn open(file: R) -> Result<Option<Seekable<R>>> {
        let Some(starts) = starts(&file)? else {
            return Ok(None);
        };
        Ok(Some(Seekable {
            file,
            starts,
            frames: Cache::new(CACHED.0, CACHED.1),
            decoders: Mutex::default(),
        }))
    }

    /// Where the content of each frame begins that has any.
    pub fn frame_starts(&self) -> impl Iterator<Item = u64> + '_ {
        let pairs = self.starts.iter().zip(self.starts.iter().skip(1));
        pairs
            .filter(|((_, from), (_, to))| from < to)
            .map(|((_, from), _)| *from)
    }

    fn content_bytes(&self) -> u64 {
        self.starts.last().map_or(0, |&(_, end)| end)
    }

    fn decode(&self, number: usize) -> io::Result<Vec<u8>> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let bounds = self
            .starts
            .get(number)
            .zip(self.starts.get(number.saturating_add(1)));
        let (&(from, first), &(to, end)) = bounds.ok_or(io::ErrorKind::UnexpectedEof)?;
        // Both were checked: the starts only grow, and by no more than a frame may have.
        let mut stored = vec![0; to_usize(to.saturating_sub(from))];
        self.file.read_exact_at(&mut stored, from)?;
        let mut content = vec![0; to_usize(end.saturating_sub(first))];
        let decoder = self
            .decoders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let mut decoder = decoder.unwrap_or_default();
        let decoded = decoder.decompress(Algorithm::Zstd, &mut content, &stored);
        self.decoders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(decoder);
        let len = decoded.map_err(|error| wrong(format!("zstd frame at byte {from}: {error}")))?;
        if len != content.len() {
            let expected = content.len();
            return Err(wrong(format!(
                "zstd frame at byte {from} holds {len} bytes, but {expected} in the seek table"
            )));
        }
        Ok(content)
    }
}

/// The starts of all frames, if the file has a table that can be used.
fn starts(file: &impl ReadAt) -> Result<Option<Vec<(u64, u64)>>> {
    let size = file.size()?;
    let mut footer = [0; SeekTable::FOOTER_BYTES];
    let Some(at) = size.checked_sub(to_u64(footer.len())) else {
        return Ok(None);
    };
    file.read_exact_at(&mut footer, at)?;
    let Some(len) = SeekTable::len_of(&footer).filter(|&len| len <= TABLE_BYTES_MAX) else {
        return Ok(None);
    };
    let misfit = |at, got| Corrupt {
        what: "zstd seek table does not fit its file",
        at,
        got,
    };
    let at = size.checked_sub(len).ok_or(misfit(at, len))?;
    let mut table = vec![0; to_usize(len)];
    file.read_exact_at(&mut table, at)?;
    let table = SeekTable::parse(&table).ok_or(misfit(at, len))?;
    let mut starts = vec![(0u64, 0u64)];
    let (mut from, mut first) = (0u64, 0u64);
    for frame in table.frames() {
        if frame.packed_bytes > FRAME_BYTES_MAX || frame.content_bytes > FRAME_BYTES_MAX {
            return Ok(None);
        }
        from = from.saturating_add(frame.packed_bytes.into());
        first = first.saturating_add(frame.content_bytes.into());
        starts.push((from, first));
    }
    if from != at {
        return Err(misfit(at, from).into());
    }
    Ok(Some(starts))
}

impl<R: ReadAt> ReadAt for Seekable<R> {
    fn read_exact_at(&self, mut buf: &mut [u8], mut at: u64) -> io::Result<()> {
        while !buf.is_empty() {
            if at >= self.content_bytes() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // The last frame that begins at or before this byte; empty frames come before it.
            let after = self.starts.partition_point(|&(_, first)| first <= at);
            let number = after.saturating_sub(1);
            let frame = self
                .frames
                .find_or_make(to_u64(number), |_| self.decode(number))?;
            let first = self.starts.get(number).map_or(0, |&(_, first)| first);
            let rest = frame
                .get(to_usize(at.saturating_sub(first))..)
                .unwrap_or_default();
            let len = rest.len().min(buf.len());
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (part, more) = buf.split_at_mut(len);
            part.copy_from_slice(rest.split_at(len).0);
            buf = more;
            at = at.saturating_add(to_u64(len));
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.content_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::{Packer, Wrapper};

    fn packed(parts: &[&[u8]]) -> Vec<u8> {
        let mut packer = Packer::new(Wrapper::Zstd, None).unwrap();
        let (mut file, mut table, mut packed) = (Vec::new(), SeekTable::default(), Vec::new());
        for part in parts {
            packer.pack(part, &mut packed).unwrap();
            table.push(&packed, part);
            file.extend_from_slice(&packed);
        }
        file.extend(table.emit());
        file
    }

    #[test]
    fn content_is_read_at_any_place() {
        let text: Vec<u8> = (0..3000u32).flat_map(u32::to_le_bytes).collect();
        let file = packed(&[&text[..5000], &[], &text[5000..5001], &text[5001..]]);
        let seekable = Seekable::open(file).unwrap().unwrap();
        assert_eq!(seekable.size().unwrap(), 12000);
        for (at, len) in [
            (0, 12000),
            (4999, 3),
            (5000, 1),
            (11_999, 1),
            (0, 0),
            (7, 5000),
        ] {
            let mut buf = vec![0; len];
            seekable.read_exact_at(&mut buf, at as u64).unwrap();
            assert_eq!(buf, text[at..at + len]);
        }
        for at in [11_999, 12_000, u64::MAX] {
            let error = seekable.read_exact_at(&mut [0; 2], at).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn tables_that_lie_are_refused() {
        let file = packed(&[&[1; 5000], &[2; 5000]]);
        let is_none = |file: &[u8]| Seekable::open(file.to_vec()).unwrap().is_none();
        assert!(is_none(&file[..file.len() - 1]) && is_none(&[]));
        for wrong in [
            &[&[0][..], &file].concat(),
            &file[1..],
            &file[file.len() - 12..],
        ] {
            let error = Seekable::open(wrong.to_vec()).err().unwrap().to_string();
            assert!(
                error.starts_with("zstd seek table does not fit its file"),
                "{error}"
            );
        }
        // The content of the first frame is said to be longer, or shorter.
        let entry = file.len() - 9 - 16 + 4;
        for (len, words) in [
            (5001u32, "holds 5000 bytes, but 5001"),
            (4999, "holds more"),
        ] {
            let mut wrong = file.clone();
            wrong[entry..entry + 4].copy_from_slice(&len.to_le_bytes());
            let seekable = Seekable::open(wrong).unwrap().unwrap();
            let error = seekable
                .read_exact_at(&mut [0; 9], 0)
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("zstd frame at byte 0") && error.contains(words),
                "{error}"
            );
        }
    }
}
