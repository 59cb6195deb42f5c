//! Makes a patch.

use std::collections::HashSet;
use std::io::Write;

use tree::{Error, Output, Parallel, Progress, ReadAt, Result, Sha256, ordered, to_u64, to_usize};
use zstd::{Dictionary, Params};

use crate::DeltaInput;
use crate::analyse::{Analysis, Piece, Step, Worker};
use crate::old::{OldFile, decoded, source_of};
use crate::scan::scan;
use patch::format::{
    APPLY_MEMORY_BYTES, ENCODERS_MAX, HEAD_BYTES, HEADER_BYTES, Header, Operation, OperationWriter,
    PART_HEADER_BYTES, PART_NEW_BYTES_MAX, PartHeader, Source, emit_number, emit_sources,
    part_memory, shared_memory, thread_memory,
};
use patch::{BlockCodec, Encoder, SourceDecoder};

/// Segments that are looked at together, with the knowledge from those before.
const BATCH: usize = 64;
/// Parts that are compressed together.
const PARTS_TOGETHER: usize = 8;
/// Content of a part.
const CONTENT_BYTES_MAX: usize = 2 << 20;
/// Bytes that are taken at a time, so that they fit in the rest of a part.
const TAKE_BYTES_MAX: usize = 256 << 10;
/// The level of the frames of a patch.
const LEVEL: i32 = 19;

/// How a patch is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeltaOptions {
    /// Bytes of memory that applying the patch may take for its buffers. A block that needs more to
    /// be encoded again is stored as it is.
    pub memory_bytes: u64,
    /// Threads.
    pub parallel: Parallel,
}

impl Default for DeltaOptions {
    fn default() -> Self {
        DeltaOptions {
            memory_bytes: APPLY_MEMORY_BYTES,
            parallel: Parallel::available(),
        }
    }
}

tree::setters!(DeltaOptions {
    memory_bytes: u64,
    parallel: Parallel
});

/// A patch in numbers: how the new file is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeltaSummary {
    /// Bytes of the old file.
    pub old_bytes: u64,
    /// Bytes of the new file.
    pub new_bytes: u64,
    /// Bytes of the patch.
    pub patch_bytes: u64,
    /// Bytes of memory that applying takes for buffers.
    pub memory_bytes: u64,
    /// Bytes of the new file that the old one has, too.
    pub copied_bytes: u64,
    /// Zeros of the new file, in whole pages.
    pub zero_bytes: u64,
    /// Compressed blocks that are made again from their content.
    pub encoded_blocks: u64,
    /// Their bytes in the new file.
    pub encoded_bytes: u64,
    /// Other bytes of the new file, which are in the patch.
    pub sent_bytes: u64,
    /// Compressed blocks among them, which no encoder here makes, or not in the memory that is
    /// allowed.
    pub foreign_blocks: u64,
    /// Their bytes.
    pub foreign_bytes: u64,
}

/// Writes the patch that makes `new` of `old`. It is the same for any number of threads.
///
/// Memory, besides that of the encoders: 12 MiB to read a file, about 48 KiB for each MiB of the
/// old file and as many for each MiB that is in the patch, decoded; 24 bytes for each compressed
/// block.
///
/// # Errors
/// A file cannot be read, or changes; the patch cannot be written.
pub fn make(
    old: &DeltaInput<'_>,
    new: &DeltaInput<'_>,
    patch: &mut Output,
    options: &DeltaOptions,
    progress: &dyn Progress,
) -> Result<DeltaSummary> {
    let size = new.file.size()?;
    progress.expect(None, Some(old.file.size()?.saturating_add(size)));
    let old = OldFile::index(old, options.parallel, progress)?;
    let (segments, new_sha256) = scan(new, size)?;
    let new = new.file;
    let mut analysis = Analysis::new(&old, new, segments);
    patch.write_all(&[0; HEADER_BYTES])?;
    let mut maker = Maker {
        old: &old,
        new,
        options,
        encoders: Vec::new(),
        part: OpenPart::default(),
        digest: Sha256::new(),
        closed: Vec::new(),
        made: 0,
        bound: 0,
        memory: 0,
        parts: 0,
        summary: DeltaSummary {
            old_bytes: old.size,
            new_bytes: size,
            ..DeltaSummary::default()
        },
    };
    let mut from = 0;
    while from < analysis.segments.len() {
        let to = analysis.segments.len().min(from + BATCH);
        let mut pieces = Vec::new();
        ordered(
            options.parallel,
            from..to,
            Worker::default,
            |worker, number| analysis.piece(worker, number),
            |piece| {
                pieces.push(piece);
                Ok::<(), Error>(())
            },
        )?;
        for piece in pieces {
            analysis.known.learn(&piece);
            progress.advance(0, piece.segment.bytes.into());
            maker.push(piece)?;
            if maker.closed.len() >= PARTS_TOGETHER {
                maker.write(patch, &mut analysis)?;
            }
        }
        from = to;
    }
    maker.close();
    maker.write(patch, &mut analysis)?;
    if maker.digest.finish() != new_sha256 {
        return Err(Error::Changed);
    }
    let mut summary = maker.summary;
    summary.memory_bytes = maker.memory + shared_memory(&maker.encoders);
    summary.patch_bytes += to_u64(HEADER_BYTES);
    for encoder in &mut maker.encoders {
        encoder.probe_sha256 = encoder.probed()?;
    }
    let header = Header {
        old_bytes: old.size,
        new_bytes: size,
        old_sha256: old.sha256,
        new_sha256,
        memory_bytes: summary.memory_bytes,
        parts: maker.parts,
        encoders: maker.encoders,
    };
    patch.write_all_at(&header.emit(), 0)?;
    Ok(summary)
}

/// A part that is being filled.
#[derive(Default)]
struct OpenPart {
    writer: OperationWriter,
    /// The last operation, which may become longer.
    last: Option<Operation>,
    content: Vec<u8>,
    sources: Vec<Source>,
    seen: HashSet<Source>,
    new_bytes: u64,
    /// Segments whose content is in the part, and their keys.
    added: Vec<(Source, Vec<u32>)>,
}

impl OpenPart {
    fn push(&mut self, operation: Operation) {
        use Operation::{Copy, Take, Zeros};
        let joined = match (self.last, operation) {
            (
                Some(Copy { at, bytes }),
                Copy {
                    at: next,
                    bytes: more,
                },
            ) if at + bytes == next => Some(Copy {
                at,
                bytes: bytes + more,
            }),
            (Some(Take { bytes }), Take { bytes: more }) => Some(Take {
                bytes: bytes + more,
            }),
            (Some(Zeros { bytes }), Zeros { bytes: more }) => Some(Zeros {
                bytes: bytes + more,
            }),
            _ => None,
        };
        if joined.is_none()
            && let Some(last) = self.last
        {
            self.writer.push(last);
        }
        self.last = Some(joined.unwrap_or(operation));
    }

    /// At most the memory that applying takes with further content and sources.
    fn memory_with(&self, content: usize, sources: &[Source]) -> u64 {
        let new = sources.iter().filter(|it| !self.seen.contains(it));
        let all: Vec<Source> = self.sources.iter().chain(new).copied().collect();
        // Room for the next operations.
        let content = self.content.len() + content + self.writer.bytes.len() + 1024;
        let header = PartHeader {
            sha256: [0; 32],
            new_sha256: [0; 32],
            new_bytes: 0,
            sources_bytes: (all.len() * 20) as u32,
            frame_bytes: zstd::compress_bound(content) as u32,
            content_bytes: content as u32,
            operations_bytes: 0,
        };
        part_memory(&header, &all)
    }

    fn add_sources(&mut self, sources: &[Source]) {
        for source in sources {
            if self.seen.insert(*source) {
                self.sources.push(*source);
            }
        }
    }
}

/// A part that is full.
struct ClosedPart {
    sources: Vec<Source>,
    content: Vec<u8>,
    operations_bytes: usize,
    new_bytes: u64,
    new_sha256: [u8; 32],
    added: Vec<(Source, Vec<u32>)>,
}

struct Maker<'a> {
    old: &'a OldFile<'a>,
    new: &'a dyn ReadAt,
    options: &'a DeltaOptions,
    encoders: Vec<Encoder>,
    part: OpenPart,
    /// Of the new file as far as it is in parts.
    digest: Sha256,
    closed: Vec<ClosedPart>,
    /// Bytes of the new file in parts.
    made: u64,
    /// No part takes more memory than this.
    bound: u64,
    /// The most memory that a part takes.
    memory: u64,
    parts: u32,
    summary: DeltaSummary,
}

impl Maker<'_> {
    /// Adds a piece to the parts.
    fn push(&mut self, mut piece: Piece) -> Result<()> {
        let bytes = u64::from(piece.segment.bytes);
        let ends_head = self.part.new_bytes > 0
            && self.made < to_u64(HEAD_BYTES)
            && self.made + self.part.new_bytes >= to_u64(HEAD_BYTES);
        if ends_head || self.part.new_bytes + bytes > PART_NEW_BYTES_MAX {
            self.close();
        }
        self.make_room(&mut piece);
        let mut at = 0;
        for step in std::mem::take(&mut piece.steps) {
            match step {
                Step::Zeros => {
                    self.summary.zero_bytes += bytes;
                    self.digest.update(&vec![0; to_usize(bytes)]);
                    self.part.push(Operation::Zeros { bytes });
                    self.part.new_bytes += bytes;
                }
                Step::Copy { at: from, bytes } => {
                    let to = at + to_usize(bytes);
                    self.copy(from, &piece.bytes[at..to]);
                    at = to;
                }
                Step::Take(range) => {
                    at = range.end;
                    for taken in piece.bytes[range].chunks(TAKE_BYTES_MAX) {
                        self.take(taken)?;
                    }
                }
                Step::Encode {
                    content,
                    encoder,
                    steps,
                } => {
                    let encoder = match steps {
                        Some(_) => encoder.with_steps(),
                        None => encoder,
                    };
                    let encoder = self.encoder(&encoder).expect("make_room has found it");
                    self.summary.encoded_blocks += 1;
                    self.summary.encoded_bytes += bytes;
                    self.part.content.extend_from_slice(&content);
                    if let Some(steps) = steps {
                        emit_number(&mut self.part.content, to_u64(steps.len()));
                        self.part.content.extend_from_slice(&steps);
                    }
                    let bytes = to_u64(content.len());
                    self.part.push(Operation::Encode { bytes, encoder });
                    self.digest.update(&piece.bytes);
                    self.part.new_bytes += to_u64(piece.bytes.len());
                }
            }
        }
        if piece.is_foreign {
            self.summary.foreign_blocks += 1;
            self.summary.foreign_bytes += bytes;
        } else if !piece.keys.is_empty() {
            let mut source = source_of(&piece.segment);
            source.at += self.old.size;
            self.part.added.push((source, piece.keys));
        }
        Ok(())
    }

    /// Begins a part for a piece if it does not fit, and shortens its sources if they never do. A
    /// block that cannot be encoded in the memory is taken as it is.
    fn make_room(&mut self, piece: &mut Piece) {
        if let [
            Step::Encode {
                content,
                encoder,
                steps,
            },
        ] = &mut piece.steps[..]
        {
            let (encoder, len) = (*encoder, content.len());
            if steps.is_some() && !self.accept(&encoder.with_steps(), len) {
                *steps = None;
            }
            if steps.is_none() && (encoder.is_described() || !self.accept(&encoder, len)) {
                piece.take_all();
            }
        }
        // The decoder of another codec is there if its encoder is.
        let has_codec = |it: &Source| self.encoders.iter().any(|by| by.codec == it.codec);
        (piece.sources)
            .retain(|it| it.content_bytes == 0 || it.codec == BlockCodec::Zstd || has_codec(it));
        let content = |step: &Step| match step {
            Step::Encode { content, steps, .. } => {
                // With the number before the steps.
                content.len() + steps.as_ref().map_or(0, |steps| steps.len() + 4)
            }
            Step::Take(range) => range.len().min(TAKE_BYTES_MAX),
            Step::Copy { .. } | Step::Zeros => 0,
        };
        let content = piece.steps.iter().map(content).sum::<usize>();
        let limit = self.part_memory_max();
        let is_full = |part: &OpenPart, sources: &[Source]| {
            let is_long = part.content.len() + content > CONTENT_BYTES_MAX;
            let has_some = !part.content.is_empty();
            is_long && has_some || part.memory_with(content, sources) > limit
        };
        if content == 0 {
            return;
        }
        if self.part.new_bytes > 0 && is_full(&self.part, &piece.sources) {
            self.close();
        }
        while is_full(&self.part, &piece.sources) && piece.sources.pop().is_some() {}
        self.part.add_sources(&piece.sources);
    }

    /// The most memory for a part. A second thread has room besides it if it takes no more than
    /// half of that.
    fn part_memory_max(&self) -> u64 {
        let room = self.options.memory_bytes;
        let room = room.saturating_sub(shared_memory(&self.encoders));
        match thread_memory(&self.encoders, 2) {
            second if second <= room / 2 => room - second,
            _ => room,
        }
    }

    /// Whether content of this length may be encoded when the patch is applied; from then on its
    /// encoder is one of the patch's.
    fn accept(&mut self, encoder: &Encoder, content: usize) -> bool {
        let mut encoders = self.encoders.clone();
        let known = encoders.iter().position(|it| is_same(it, encoder));
        let place = known.unwrap_or(encoders.len());
        if known.is_none() {
            if place == ENCODERS_MAX {
                return false;
            }
            encoders.push(*encoder);
        }
        encoders[place].content_bytes_max = encoders[place].content_bytes_max.max(content as u32);
        let alone = OpenPart::default().memory_with(content, &[]);
        let open = self.part.memory_with(0, &[]);
        let part = alone.max(open).max(self.bound);
        let fits = shared_memory(&encoders).saturating_add(part) <= self.options.memory_bytes;
        if fits {
            self.encoders = encoders;
        }
        fits
    }

    fn encoder(&self, encoder: &Encoder) -> Option<usize> {
        self.encoders.iter().position(|it| is_same(it, encoder))
    }

    fn copy(&mut self, at: u64, bytes: &[u8]) {
        self.digest.update(bytes);
        let len = to_u64(bytes.len());
        self.part.push(Operation::Copy { at, bytes: len });
        self.part.new_bytes += len;
        self.summary.copied_bytes += len;
    }

    /// Takes bytes that are in the patch, but for those that the last copy has behind its end.
    fn take(&mut self, mut bytes: &[u8]) -> Result<()> {
        if let Some(Operation::Copy { at, bytes: copied }) = self.part.last
            && at < self.old.size
        {
            let from = at + copied;
            let mut next = vec![0; bytes.len().min(to_usize(self.old.size - from))];
            self.old.file.read_exact_at(&mut next, from)?;
            let same = next
                .iter()
                .zip(bytes)
                .take_while(|(old, new)| old == new)
                .count();
            if same == bytes.len() || same >= 8 {
                let (copied, rest) = bytes.split_at(same);
                self.copy(from, copied);
                bytes = rest;
            }
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let limit = self.part_memory_max();
        if self.part.new_bytes > 0 && self.part.memory_with(bytes.len(), &[]) > limit {
            self.close();
        }
        self.digest.update(bytes);
        self.part.content.extend_from_slice(bytes);
        let len = to_u64(bytes.len());
        self.part.push(Operation::Take { bytes: len });
        self.part.new_bytes += len;
        self.summary.sent_bytes += len;
        Ok(())
    }

    /// Ends a part.
    fn close(&mut self) {
        let mut part = std::mem::take(&mut self.part);
        if part.new_bytes == 0 {
            return;
        }
        self.bound = part.memory_with(0, &[]).max(self.bound);
        if let Some(last) = part.last {
            part.writer.push(last);
        }
        let operations_bytes = part.writer.bytes.len();
        let mut content = part.writer.bytes;
        content.append(&mut part.content);
        self.made += part.new_bytes;
        self.closed.push(ClosedPart {
            sources: part.sources,
            content,
            operations_bytes,
            new_bytes: part.new_bytes,
            new_sha256: self.digest.clone().finish(),
            added: part.added,
        });
    }

    /// Compresses and writes the full parts.
    fn write(&mut self, patch: &mut Output, analysis: &mut Analysis<'_>) -> Result<()> {
        let closed = std::mem::take(&mut self.closed);
        let (old, new) = (self.old, self.new);
        let parallel = self.options.parallel;
        let (memory, summary, parts) = (&mut self.memory, &mut self.summary, &mut self.parts);
        ordered(
            parallel,
            closed.iter(),
            Vec::new,
            |workspace, part| {
                let prefix = prefix(old, new, &part.sources)?;
                Ok((part, compressed(&part.content, &prefix, workspace)?))
            },
            |(part, frame)| {
                let sources = emit_sources(&part.sources);
                let header = PartHeader {
                    sha256: [0; 32],
                    new_sha256: part.new_sha256,
                    new_bytes: part.new_bytes,
                    sources_bytes: sources.len() as u32,
                    frame_bytes: frame.len() as u32,
                    content_bytes: part.content.len() as u32,
                    operations_bytes: part.operations_bytes as u32,
                };
                for bytes in [&header.emit(&sources, &frame)[..], &sources, &frame] {
                    patch.write_all(bytes)?;
                }
                *memory = part_memory(&header, &part.sources).max(*memory);
                *parts += 1;
                summary.patch_bytes += to_u64(PART_HEADER_BYTES) + header.packed_bytes();
                Ok::<(), Error>(())
            },
        )?;
        for part in closed {
            for (source, keys) in part.added {
                analysis.recent.add(source, &keys);
            }
        }
        Ok(())
    }
}

fn is_same(first: &Encoder, second: &Encoder) -> bool {
    let key = |it: &Encoder| (it.codec, it.level, it.variant, it.sized_bytes);
    key(first) == key(second)
}

/// The bytes of the sources.
fn prefix(old: &OldFile<'_>, new: &dyn ReadAt, sources: &[Source]) -> Result<Vec<u8>> {
    let mut prefix = Vec::new();
    let mut decoder = SourceDecoder::default();
    for source in sources {
        let mut stored = vec![0; to_usize(source.stored_bytes)];
        match source.at.checked_sub(old.size) {
            None => old.file.read_exact_at(&mut stored, source.at)?,
            Some(at) => new.read_exact_at(&mut stored, at)?,
        }
        if source.content_bytes == 0 {
            prefix.append(&mut stored);
        } else {
            let content = decoded(&stored, source.content_bytes, source.codec, &mut decoder);
            prefix.append(&mut content.ok_or(Error::Changed)?);
        }
    }
    Ok(prefix)
}

fn compressed(content: &[u8], prefix: &[u8], workspace: &mut Vec<u8>) -> Result<Vec<u8>> {
    let len = Some(to_u64(content.len()));
    let params = Params::for_level_with_dictionary(LEVEL, len, prefix.len());
    let needed = zstd::dictionary_workspace_size(&params, prefix.len(), content.len());
    if workspace.len() < needed {
        workspace.resize(needed, 0);
    }
    let mut frame = vec![0; zstd::compress_bound(content.len())];
    let dictionary = Dictionary::raw(prefix);
    let len = zstd::compress_with_dictionary(&mut frame, content, &params, &dictionary, workspace);
    let len = len.map_err(|_| Error::Inconsistent("a part of the patch cannot be compressed"))?;
    frame.truncate(len);
    Ok(frame)
}
