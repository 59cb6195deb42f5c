//! The digests of files, by which Linux 7.0 shares the pages of equal files between images. They
//! are taken from the stored bytes, read back: a file that changed meanwhile has its stored digest.

use codec::{Algorithm, Decoder};
use tree::{Error, FileId, FileKind, ReadAt, RecordTable, Result, Scratch, Sha256, ordered};

use super::block::BLOCK_LOG2;
use super::data::PlacedFile;
use super::image::ImageWriter;
use super::layout::ImageContent;
use super::unit::{Codec, PlacedUnit, UnitKind};
use crate::piece::CONTENT_BYTES_MAX;

/// Number of files that one job digests.
const BATCH_FILES: u32 = 64;
/// The most bytes of holes of a file with a digest: no stored byte bounds the time that they take.
const HOLE_BYTES_MAX: u64 = 256 << 20;
/// Bytes that are read or zeroed at once.
const BUFFER_BYTES: usize = 256 << 10;

/// The memory of a worker.
struct DigestWorker {
    decoder: Decoder,
    stored: Vec<u8>,
    content: Vec<u8>,
    /// The packed unit that is in `content`, by its index.
    packed: Option<usize>,
    /// Bytes of holes of the file.
    hole_bytes: u64,
}

impl ImageWriter<'_> {
    /// The digests of all regular files, by their numbers.
    pub(crate) fn digests(
        &self,
        content: &ImageContent,
        scratch: &Scratch,
    ) -> Result<RecordTable<8>> {
        let mut digests = RecordTable::new(scratch);
        let count = self.inventory.file_count();
        let output: &dyn ReadAt = &*self.output;
        ordered(
            self.parallel,
            (0..count).step_by(BATCH_FILES as usize),
            || DigestWorker {
                decoder: Decoder::new(),
                stored: Vec::new(),
                content: Vec::new(),
                packed: None,
                hole_bytes: 0,
            },
            |worker, first| {
                let files = first..count.min(first.saturating_add(BATCH_FILES));
                let digest = |file| worker.digest(output, content, FileId(file));
                files.map(digest).collect::<Result<Vec<[u8; 32]>>>()
            },
            |batch| {
                for digest in batch {
                    let (words, _) = digest.as_chunks();
                    let words = words.iter().map(|word| u32::from_le_bytes(*word));
                    let mut record = [0; 8];
                    record
                        .iter_mut()
                        .zip(words)
                        .for_each(|(to, word)| *to = word);
                    digests.push(record);
                }
                Ok(())
            },
        )?;
        Ok(digests)
    }
}

impl DigestWorker {
    /// The digest of a file; zeros for one that is not regular, is left out, or has large holes.
    fn digest(
        &mut self,
        output: &dyn ReadAt,
        content: &ImageContent,
        file: FileId,
    ) -> Result<[u8; 32]> {
        if content.inventory.kind(file) != FileKind::Regular || !content.is_stored(file) {
            return Ok([0; 32]);
        }
        self.hole_bytes = 0;
        let mut digest = Sha256::new();
        let size = content.inventory.size(file);
        match content.placed(file) {
            PlacedFile::Nothing => {}
            PlacedFile::Flat { block, tail } => {
                let tail_len = tail.map_or(0, |_| content.tail_len(file));
                let len = size - tail_len as u64;
                self.plain(output, u64::from(block) << BLOCK_LOG2, len, &mut digest)?;
                if let Some(at) = tail {
                    self.packed = None;
                    self.content.clear();
                    content.data.tail(at, tail_len, &mut self.content);
                    digest.update(&self.content);
                }
            }
            PlacedFile::Units { first, count, .. } => {
                let mut units = content.data.units(first, count).peekable();
                while let Some(unit) = units.next() {
                    let end = units.peek().map_or(size, |next| next.from);
                    self.unit(output, &unit, end - unit.from, &mut digest)?;
                }
            }
            PlacedFile::Chunks { log2, first, count } => {
                let mut from = 0;
                for chunk in content.data.units(first, count) {
                    self.zeros(chunk.from - from, &mut digest);
                    let len = (size - chunk.from).min(1 << log2);
                    self.plain(output, chunk.at, len, &mut digest)?;
                    from = chunk.from + len;
                }
                self.zeros(size - from, &mut digest);
            }
            PlacedFile::Packed(offset) => {
                let (index, unit, len) = content.data.packed_unit(offset);
                if self.packed != Some(index) {
                    self.packed = None;
                    self.decode(output, &unit, len)?;
                    self.packed = Some(index);
                }
                let begin = (offset - unit.from) as usize;
                let shown = self.content.get(begin..begin + size as usize);
                digest.update(shown.ok_or(Error::Inconsistent("a small file has no unit"))?);
            }
        }
        if self.hole_bytes > HOLE_BYTES_MAX {
            return Ok([0; 32]);
        }
        Ok(digest.finish())
    }

    /// Adds a unit of a file, which shows `len` bytes of it.
    fn unit(
        &mut self,
        output: &dyn ReadAt,
        unit: &PlacedUnit,
        len: u64,
        digest: &mut Sha256,
    ) -> Result<()> {
        match unit.kind {
            UnitKind::Hole => self.zeros(len, digest),
            UnitKind::Plain => self.plain(output, unit.at, len, digest)?,
            UnitKind::Encoded(_) => {
                self.packed = None;
                self.decode(output, unit, len)?;
                digest.update(&self.content[..len as usize]);
            }
        }
        Ok(())
    }

    /// Decodes a unit with at least `len` bytes of content.
    fn decode(&mut self, output: &dyn ReadAt, unit: &PlacedUnit, len: u64) -> Result<()> {
        self.stored.resize(unit.stored_len as usize, 0);
        output.read_exact_at(&mut self.stored, unit.at)?;
        let UnitKind::Encoded(codec) = unit.kind else {
            self.content.clone_from(&self.stored);
            return Ok(());
        };
        let mut room = len as usize;
        loop {
            self.content.resize(room, 0);
            let (dst, src) = (&mut self.content[..], &self.stored[..]);
            let result = match codec {
                Codec::Lz4 => self.decoder.decompress(Algorithm::Lz4, dst, src),
                Codec::Deflate => self.decoder.decompress_deflate(dst, src),
                Codec::Zstd => self.decoder.decompress(Algorithm::Zstd, dst, src),
            };
            match result {
                // A unit that is shown in part has more.
                Err(_) if unit.is_partial && (room as u64) < CONTENT_BYTES_MAX => {
                    room = (2 * room).min(CONTENT_BYTES_MAX as usize);
                }
                Ok(is) if is as u64 >= len => return Ok(()),
                _ => return Err(Error::Unverified("a unit does not read back")),
            }
        }
    }

    fn plain(
        &mut self,
        output: &dyn ReadAt,
        mut at: u64,
        len: u64,
        digest: &mut Sha256,
    ) -> Result<()> {
        let end = at + len;
        while at < end {
            self.stored
                .resize((end - at).min(BUFFER_BYTES as u64) as usize, 0);
            output.read_exact_at(&mut self.stored, at)?;
            digest.update(&self.stored);
            at += self.stored.len() as u64;
        }
        Ok(())
    }

    fn zeros(&mut self, mut len: u64, digest: &mut Sha256) {
        self.hole_bytes = self.hole_bytes.saturating_add(len);
        while len > 0 && self.hole_bytes <= HOLE_BYTES_MAX {
            self.stored.clear();
            self.stored.resize(len.min(BUFFER_BYTES as u64) as usize, 0);
            digest.update(&self.stored);
            len -= self.stored.len() as u64;
        }
    }
}
