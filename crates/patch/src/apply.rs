//! Applies a patch while it comes in.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::io::{self, Read};

use tree::{Error, Parallel, Progress, ReadAt, Sha256, ordered, to_u64, to_usize};
use zstd::{DecodeOptions, Dictionary};

use crate::block::{BlockCodec, SourceDecoder, decoder_bytes};
use crate::destination::{Destination, new_io};
use crate::encoder::Encoder;
use crate::error::{PatchError, damaged};
use crate::format::{
    APPLY_MEMORY_BYTES, HEAD_BYTES, HEADER_BYTES, Header, PART_HEADER_BYTES, PartHeader, Source,
    parse_sources, part_memory, prefix_bytes,
};
use crate::jobs::{Buffers, Files, JobMaker, JobMemory, Jobs, Made, buffer_bytes, is_in_one_file};

/// Bytes of the memory for copying that a patch counts: of OLD, as many are verified at a time.
const COPY_BYTES: usize = 256 << 10;
/// Bytes of the new file that are sent to the medium together, while the next ones are made.
const SYNC_BYTES: u64 = 4 << 20;
/// The most threads, which share one result that waits for the next.
const THREADS_MAX: usize = 4;
/// Jobs in flight, and so buffers, for each thread.
const JOBS_PER_THREAD: usize = 2;
/// The stack of a thread that encodes zstd, which takes a few kilobytes of it.
const STACK_BYTES: usize = 256 << 10;
/// The stack of a thread with other encoders: libraries, some of which need more.
const STACK_BYTES_OF_OTHERS: usize = 2 << 20;

/// Bytes of memory for the buffers that all parts share.
pub fn shared_memory(encoders: &[Encoder]) -> u64 {
    let (encoded, workspace) = encoder_memory(encoders);
    let allocated = encoders.iter().map(Encoder::allocated_bytes).max();
    let decoders = decoder_bytes(encoders.iter().map(|it| it.codec));
    let outside = allocated.unwrap_or(0).saturating_add(decoders);
    [
        zstd::DECOMPRESS_WORKSPACE_SIZE,
        COPY_BYTES,
        encoded,
        workspace,
    ]
    .into_iter()
    .fold(outside, |sum, bytes| to_u64(bytes).saturating_add(sum))
}

/// The lengths of the buffer for encoded bytes and of the workspace.
fn encoder_memory(encoders: &[Encoder]) -> (usize, usize) {
    let contents = encoders.iter().map(|encoder| encoder.content_bytes_max);
    let content = contents.max().unwrap_or(0);
    let encoded = match content {
        0 => 0,
        content => Encoder::bound(content),
    };
    let workspaces = (encoders.iter()).map(|it| it.workspace_bytes(it.content_bytes_max));
    (encoded, workspaces.max().unwrap_or(0))
}

/// How a patch is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApplyOptions {
    /// Bytes of memory that the buffers of a patch may take.
    pub memory_bytes: u64,
    /// Threads, as far as their buffers have room in that memory, too.
    pub parallel: Parallel,
}

impl Default for ApplyOptions {
    fn default() -> Self {
        ApplyOptions {
            memory_bytes: APPLY_MEMORY_BYTES,
            parallel: Parallel::available(),
        }
    }
}

tree::setters!(ApplyOptions {
    memory_bytes: u64,
    parallel: Parallel
});

/// Bytes of memory that as many threads take besides [`shared_memory`].
pub fn thread_memory(encoders: &[Encoder], threads: usize) -> u64 {
    let (encoded, workspace) = encoder_memory(encoders);
    let allocated = encoders.iter().map(Encoder::allocated_bytes).max();
    let own = to_u64(workspace).saturating_add(allocated.unwrap_or(0));
    let buffers = buffer_bytes(encoded).saturating_mul(JOBS_PER_THREAD);
    let each = to_u64(buffers.saturating_add(stack_bytes(encoders))).saturating_add(own);
    let shared = to_u64(COPY_BYTES.saturating_add(encoded)).saturating_add(own);
    match threads {
        0 | 1 => 0,
        _ => each.saturating_mul(to_u64(threads)).saturating_sub(shared),
    }
}

fn stack_bytes(encoders: &[Encoder]) -> usize {
    if encoders.iter().all(|it| it.codec == BlockCodec::Zstd) {
        STACK_BYTES
    } else {
        STACK_BYTES_OF_OTHERS
    }
}

/// The threads that have room in these bytes of memory, one at least.
fn threads(parallel: Parallel, encoders: &[Encoder], room: u64) -> Parallel {
    let mut threads = parallel.threads().min(THREADS_MAX);
    while thread_memory(encoders, threads) > room {
        threads = threads.saturating_sub(1);
    }
    Parallel::new(threads)
        .in_flight(threads.saturating_mul(JOBS_PER_THREAD))
        .stack_bytes(stack_bytes(encoders))
}

/// The result in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Bytes of the patch.
    pub patch_bytes: u64,
    /// Bytes of the new file.
    pub new_bytes: u64,
    /// Bytes of the new file that an earlier run had written.
    pub resumed_bytes: u64,
}

/// A patch that is read once, from its beginning to its end.
#[derive(Debug)]
pub struct Patch<R> {
    input: R,
    /// Bytes read.
    at: u64,
    header: Header,
}

impl<R: Read> Patch<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`PatchError::Patch`].
    pub fn open(mut input: R) -> Result<Patch<R>, PatchError> {
        let mut bytes = [0; HEADER_BYTES];
        read_exact(&mut input, &mut bytes, 0)?;
        Ok(Patch {
            input,
            at: to_u64(HEADER_BYTES),
            header: Header::parse(&bytes).map_err(PatchError::Patch)?,
        })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Makes the new file of the old one. Of an old file that is a block device, only as many bytes
    /// are read as the patch was made from.
    ///
    /// Nothing is written unless the memory is allowed, the encoders are those of the patch and the
    /// length of the old file is right; nothing is written to a device unless the SHA-256 of the
    /// old file is. The new file gets its name, or the device its first bytes, when the SHA-256 of
    /// the whole is right.
    ///
    /// # Errors
    /// As [`PatchError`] lists them.
    pub fn apply(
        self,
        old: &dyn ReadAt,
        mut new: Destination,
        options: &ApplyOptions,
        progress: &dyn Progress,
    ) -> Result<Applied, PatchError> {
        let header = self.header;
        let allowed = options.memory_bytes;
        let shared = shared_memory(&header.encoders);
        let needed = header.memory_bytes.max(shared);
        if needed > allowed {
            return Err(PatchError::Memory { needed, allowed });
        }
        for encoder in &header.encoders {
            if encoder.probed().map_err(PatchError::Patch)? != encoder.probe_sha256 {
                let (codec, level) = (encoder.codec.algorithm().name(), encoder.level.into());
                return Err(PatchError::Encoder { codec, level });
            }
        }
        let found = old.size().map_err(PatchError::Old)?;
        if found < header.old_bytes {
            let needed = header.old_bytes;
            return Err(PatchError::OldLength { found, needed });
        }
        if new.is_device() {
            verify_old(old, &header)?;
        }
        new.begin(header.new_bytes)?;
        progress.expect(None, Some(header.new_bytes));
        let (encoded, workspace) = encoder_memory(&header.encoders);
        let mut applier = Applier {
            input: self.input,
            patch_at: self.at,
            header: &header,
            old,
            is_resuming: new.resumes(),
            new,
            made: 0,
            synced: 0,
            resumed: 0,
            digest: Sha256::new(),
            decoder: SourceDecoder::default(),
            parallel: threads(
                options.parallel,
                &header.encoders,
                allowed.saturating_sub(needed),
            ),
            buffers: Buffers::new(encoded),
            workspace_bytes: workspace,
            progress,
        };
        let mut arena = vec![0; to_usize(needed.saturating_sub(shared))];
        for _ in 0..header.parts {
            applier.part(&mut arena)?;
        }
        applier.finish()
    }
}

/// Compares the old file with the patch.
fn verify_old(old: &dyn ReadAt, header: &Header) -> Result<(), PatchError> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; COPY_BYTES];
    let mut left = header.old_bytes;
    while left > 0 {
        let at = header.old_bytes.saturating_sub(left);
        let (chunk, _) = buffer.split_at_mut(COPY_BYTES.min(to_usize(left)));
        old.read_exact_at(chunk, at).map_err(PatchError::Old)?;
        digest.update(chunk);
        left = left.saturating_sub(to_u64(chunk.len()));
    }
    let (found, needed) = (digest.finish(), header.old_sha256);
    if found == needed {
        Ok(())
    } else {
        Err(PatchError::OldDiffers { found, needed })
    }
}

fn read_exact(input: &mut impl Read, buffer: &mut [u8], at: u64) -> Result<(), PatchError> {
    input.read_exact(buffer).map_err(|error| {
        PatchError::Patch(match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::corrupt("patch ends too early", at, to_u64(buffer.len()))
            }
            _ => error.into(),
        })
    })
}

struct Applier<'a, R> {
    input: R,
    /// Bytes read of the patch.
    patch_at: u64,
    header: &'a Header,
    old: &'a dyn ReadAt,
    new: Destination,
    /// Whether the next part may be there already.
    is_resuming: bool,
    /// Bytes made of the new file.
    made: u64,
    /// How far the new file is on its way to the medium.
    synced: u64,
    resumed: u64,
    /// Of the new file as far as it is made.
    digest: Sha256,
    decoder: SourceDecoder,
    parallel: Parallel,
    buffers: Buffers,
    workspace_bytes: usize,
    progress: &'a dyn Progress,
}

impl<R: Read> Applier<'_, R> {
    /// Reads a part, verifies it, and makes its bytes unless they are there.
    fn part(&mut self, arena: &mut [u8]) -> Result<(), PatchError> {
        let place = self.patch_at;
        let mut bytes = [0; PART_HEADER_BYTES];
        read_exact(&mut self.input, &mut bytes, place)?;
        let part = PartHeader::parse(&bytes, place).map_err(PatchError::Patch)?;
        let what = "part of the patch needs more memory than its header says";
        let packed_bytes = part.packed_bytes();
        if packed_bytes > to_u64(arena.len()) {
            return Err(damaged(what, place, packed_bytes));
        }
        let (packed, rest) = arena.split_at_mut(to_usize(packed_bytes));
        let packed_at = place.saturating_add(to_u64(PART_HEADER_BYTES));
        read_exact(&mut self.input, packed, packed_at)?;
        self.patch_at = packed_at.saturating_add(packed_bytes);
        self.verify_part(&part, &bytes, packed, place)?;
        if self.is_resuming && self.has_part(&part)? {
            return Ok(());
        }
        let (list, frame) = packed.split_at(to_usize(part.sources_bytes));
        let made = self.header.old_bytes.saturating_add(self.made);
        let sources = parse_sources(list, packed_at, made).map_err(PatchError::Patch)?;
        let needed = part_memory(&part, &sources).saturating_sub(packed_bytes);
        if needed > to_u64(rest.len()) {
            return Err(damaged(what, place, needed));
        }
        self.make_part(&part, &sources, frame, rest, place)
            .map_err(|error| match error {
                // The part is as it was made, so its sources may not be.
                PatchError::Patch(_) => match verify_old(self.old, self.header) {
                    Ok(()) => error,
                    Err(other) => other,
                },
                error => error,
            })
    }

    /// Makes the bytes of a part, whose digest is right.
    fn make_part(
        &mut self,
        part: &PartHeader,
        sources: &[Source],
        frame: &[u8],
        memory: &mut [u8],
        place: u64,
    ) -> Result<(), PatchError> {
        let (prefix, rest) = memory.split_at_mut(to_usize(prefix_bytes(sources)));
        let (content, stored) = rest.split_at_mut(to_usize(part.content_bytes));
        self.read_sources(sources, prefix, stored, place)?;
        let options = DecodeOptions::new().dictionary(Dictionary::raw(prefix));
        let decoded = options.decompress(content, frame, &mut self.decoder.workspace);
        if decoded != Ok(content.len()) {
            let what = "content of a part is not a zstd frame of its length";
            return Err(damaged(what, place, to_u64(frame.len())));
        }
        let (operations, content) = content.split_at(to_usize(part.operations_bytes));
        self.operate(operations, content, part, place)?;
        if self.digest.clone().finish() != part.new_sha256 {
            return Err(damaged(
                "part of the patch does not make its bytes",
                place,
                part.new_bytes,
            ));
        }
        Ok(())
    }

    fn verify_part(
        &self,
        part: &PartHeader,
        bytes: &[u8; PART_HEADER_BYTES],
        packed: &[u8],
        place: u64,
    ) -> Result<(), PatchError> {
        let (_, covered) = bytes.split_at(part.sha256.len());
        let mut digest = Sha256::new();
        digest.update(covered);
        digest.update(packed);
        if digest.finish() != part.sha256 {
            let got = covered.first().copied().unwrap_or(0).into();
            return Err(damaged(
                "part of the patch does not have its SHA-256",
                place,
                got,
            ));
        }
        if part.new_bytes > self.header.new_bytes.saturating_sub(self.made) {
            let what = "part of the patch makes more than the new file";
            return Err(damaged(what, place, part.new_bytes));
        }
        Ok(())
    }

    /// Whether an earlier run has written the part. If not, its bytes and those behind it go.
    fn has_part(&mut self, part: &PartHeader) -> Result<bool, PatchError> {
        // The first bytes of a device are written last.
        let is_head = self.new.is_device() && self.made < to_u64(HEAD_BYTES);
        if !is_head {
            let mut digest = self.digest.clone();
            let mut buffer = self.buffers.take();
            let mut left = part.new_bytes;
            while left > 0 {
                let done = part.new_bytes.saturating_sub(left);
                let len = buffer.len().min(to_usize(left));
                let (chunk, _) = buffer.split_at_mut(len);
                match self.new.read(chunk, self.made.saturating_add(done)) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                    Err(error) => return Err(new_io(error)),
                }
                digest.update(chunk);
                left = left.saturating_sub(to_u64(len));
            }
            self.buffers.give(buffer);
            if left == 0 && digest.clone().finish() == part.new_sha256 {
                self.digest = digest;
                self.made = self.made.saturating_add(part.new_bytes);
                self.resumed = self.resumed.saturating_add(part.new_bytes);
                self.progress.advance(0, part.new_bytes);
                return Ok(true);
            }
            self.is_resuming = false;
            self.new.cut(self.made).map_err(new_io)?;
        }
        Ok(false)
    }

    /// The bytes from which parts are made.
    fn files(&self) -> Files<'_> {
        Files::new(self.old, self.header, &self.new)
    }

    fn read_sources(
        &mut self,
        sources: &[Source],
        mut prefix: &mut [u8],
        stored: &mut [u8],
        place: u64,
    ) -> Result<(), PatchError> {
        for source in sources {
            if !is_in_one_file(self.header, source.at, source.stored_bytes.into()) {
                let what = "source of the patch lies in two files";
                return Err(damaged(what, place, source.at));
            }
            let has_codec = |it: &Encoder| it.codec == source.codec;
            if source.codec != BlockCodec::Zstd && !self.header.encoders.iter().any(has_codec) {
                let what = "source of the patch has a codec that no encoder of it has";
                return Err(damaged(what, place, source.at));
            }
            let (part, rest) = prefix.split_at_mut(to_usize(source.prefix_bytes()));
            prefix = rest;
            if source.content_bytes == 0 {
                self.files().read(part, source.at)?;
                continue;
            }
            let (stored, _) = stored.split_at_mut(to_usize(source.stored_bytes));
            self.files().read(stored, source.at)?;
            if !self.decoder.decode(source.codec, part, stored) {
                let what = "source of the patch is not a block of its length";
                return Err(damaged(what, place, source.at));
            }
        }
        Ok(())
    }

    /// Runs the operations of a part: threads make the bytes, and this one writes them.
    fn operate(
        &mut self,
        operations: &[u8],
        content: &[u8],
        part: &PartHeader,
        place: u64,
    ) -> Result<(), PatchError> {
        let end = self.made.saturating_add(part.new_bytes);
        let mut jobs = Jobs::new(self.header, operations, content, self.made, place);
        let workspace_bytes = self.workspace_bytes;
        let (new, buffers, digest) = (&self.new, &self.buffers, &mut self.digest);
        let (made, synced) = (&mut self.made, &mut self.synced);
        let maker = JobMaker {
            #[cfg(feature = "encode")]
            header: self.header,
            #[cfg(feature = "encode")]
            readable: self.header.old_bytes.saturating_add(*made),
            files: Files::new(self.old, self.header, new),
            buffers,
            place,
        };
        let mut has_hole = false;
        ordered(
            self.parallel,
            jobs.by_ref(),
            || JobMemory::new(workspace_bytes),
            |memory, job| maker.make(&job?, memory),
            |done: Made| {
                let (bytes, _) = done.buffer.split_at(done.len);
                if to_u64(bytes.len()) > end.saturating_sub(*made) {
                    let what = "operations of the patch make more than their part";
                    return Err(damaged(what, place, to_u64(bytes.len())));
                }
                digest.update(bytes);
                if done.is_zeros && new.skips_zeros() {
                    has_hole = true;
                } else {
                    new.write(bytes, *made).map_err(new_io)?;
                }
                *made = made.saturating_add(to_u64(bytes.len()));
                buffers.give(done.buffer);
                let waiting = made.saturating_sub(*synced);
                if waiting >= SYNC_BYTES {
                    new.begin_sync(*synced, waiting);
                    *synced = *made;
                }
                Ok(())
            },
        )?;
        if self.made != end || !jobs.is_used_up() {
            let what = "operations of the patch make another length than their part";
            return Err(damaged(what, place, self.made));
        }
        if has_hole {
            self.new.cut(self.made).map_err(new_io)?;
        }
        self.progress.advance(0, part.new_bytes);
        Ok(())
    }

    /// Compares the whole, and makes it appear.
    fn finish(mut self) -> Result<Applied, PatchError> {
        if self.made != self.header.new_bytes {
            let what = "parts of the patch make less than the new file";
            return Err(damaged(what, self.patch_at, self.made));
        }
        let mut byte = [0];
        let more = self.input.read(&mut byte);
        if more.map_err(|error| PatchError::Patch(error.into()))? != 0 {
            let what = "bytes follow the last part of the patch";
            return Err(damaged(what, self.patch_at, byte[0].into()));
        }
        if self.digest.finish() != self.header.new_sha256 {
            verify_old(self.old, self.header)?;
            let what = "patch does not make the new file";
            return Err(damaged(what, self.patch_at, self.made));
        }
        self.new.commit(self.header)?;
        Ok(Applied {
            patch_bytes: self.patch_at,
            new_bytes: self.made,
            resumed_bytes: self.resumed,
        })
    }
}
