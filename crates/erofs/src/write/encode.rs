//! The workers' job: read, compress, and prove that the result decodes to the original.

use codec::{Algorithm, Decoder, Encoder, ZstdFrame};
use tree::{
    ContentReader, Encoding, Error, Extent, ExtentId, ExtentKind, FileId, Inventory, KeptCount,
    Probe, Result,
};

use super::block::BLOCK_BYTES;
use super::devices::device_of;
use super::frame::StoredFrame;
use super::options::Options;
use super::plan::{DataForm, DataJob, DataPart, Keep};
use super::reuse::OldUnits;
use super::unit::{Codec, UnitKind};

/// The most bytes of an LZ4 block: Linux has buffers for 1 MiB, and its blocks need not begin with
/// this one.
const LZ4_BYTES_MAX: usize = (1 << 20) - BLOCK_BYTES;
/// Bytes of a zlib stream before and after the deflate stream.
const ZLIB_HEADER: usize = 2;
const ZLIB_TRAILER: usize = 4;

/// State shared by all workers.
pub(crate) struct UnitEncoder<'a> {
    /// Buffers of the size of a unit.
    pub(crate) content: ContentReader<'a>,
    pub(crate) options: &'a Options,
    /// The extents of the source that are kept.
    keep: Option<&'a Keep>,
    /// The older image of which units are kept.
    old: Option<&'a OldUnits<'a>>,
    /// The length of all buffers.
    buffer_bytes: usize,
}

/// State that a worker keeps between jobs.
pub(crate) struct ThreadCodec {
    encoder: Option<Encoder>,
    decoder: Decoder,
    content: Vec<u8>,
    decoded: Vec<u8>,
    /// For encoders that are slower than the probe.
    probe: Option<Probe>,
}

impl ThreadCodec {
    /// Whether the content that was encoded last is zeros.
    pub(crate) fn is_zero(&self, len: usize) -> bool {
        self.content[..len].iter().all(|&byte| byte == 0)
    }
}

/// A unit that has no place yet.
pub(crate) struct EncodedUnit {
    /// A buffer of the size of a unit; the stored bytes are at its start.
    pub(crate) buffer: Vec<u8>,
    pub(crate) len: usize,
    /// The codec; `None` if it is plain.
    pub(crate) codec: Option<Codec>,
    /// The length of the content.
    pub(crate) content_len: usize,
    pub(crate) kept: KeptCount,
    /// It is one of the old image.
    pub(crate) is_reused: bool,
    /// It is a zstd frame with a window that is larger than a unit.
    pub(crate) is_wide: bool,
    /// Where its bytes are on a further device; they are not in the buffer then.
    pub(crate) device_at: Option<u64>,
}

/// The reasons why stored data is encoded again.
const ZERO_BYTE: &str =
    "deflate streams that begin with a zero byte, which Linux takes for padding";
const FRAMES: &str = "zstd data of several frames, of unknown length, or with a window above 1 MiB";
const DAMAGED: &str = "data that does not decode to its extent";
const UNPLACED: &str =
    "data that is on no device in one piece: in metadata, striped, or in the last part of a block";
const UNALIGNED: &str = "data that does not begin at 4 KiB, which needs --min-kernel 6.15";
const OTHER_CODEC: &str = "data of another codec than --compress, which needs --min-kernel 6.15";

/// The largest window that Linux allows.
const WINDOW_MAX: u64 = 1 << 20;

/// The result of a job.
pub(crate) enum DataResult {
    /// A part of a file; nothing is stored of one that is all zeros, if holes are not stored.
    Part(DataPart, Option<EncodedUnit>),
    Hole {
        part: DataPart,
        bytes: u64,
    },
    /// A unit of the packed inode, the content of tiny files, and the files that cannot be read,
    /// which are filled with zeros.
    Packed {
        files: Vec<(FileId, u32)>,
        stored: Option<EncodedUnit>,
        tiny: Vec<(FileId, Vec<u8>)>,
        lost: Vec<(FileId, Error)>,
    },
    /// A file in stored data; with the data if it becomes a unit of the packed inode.
    Fragment {
        file: FileId,
        id: ExtentId,
        offset: u64,
        stored: Option<Result<EncodedUnit>>,
    },
    /// A file to leave out, and why.
    Unreadable {
        file: FileId,
        error: Error,
    },
}

impl EncodedUnit {
    pub(crate) fn new(
        buffer: Vec<u8>,
        len: usize,
        codec: Option<Codec>,
        content_len: usize,
    ) -> Self {
        EncodedUnit {
            buffer,
            len,
            codec,
            content_len,
            kept: KeptCount::default(),
            is_reused: false,
            is_wide: false,
            device_at: None,
        }
    }

    pub(crate) fn kind(&self) -> UnitKind {
        self.codec.map_or(UnitKind::Plain, UnitKind::Encoded)
    }
}

/// Decodes a unit; of zlib, it is raw deflate.
fn decode(
    decoder: &mut Decoder,
    algorithm: Algorithm,
    content: &mut [u8],
    stored: &[u8],
) -> std::result::Result<usize, codec::Error> {
    match algorithm {
        Algorithm::Zlib => decoder.decompress_deflate(content, stored),
        _ => decoder.decompress(algorithm, content, stored),
    }
}

impl<'a> UnitEncoder<'a> {
    pub(crate) fn new(
        inventory: &'a Inventory<'a>,
        options: &'a Options,
        keep: Option<&'a Keep>,
        old: Option<&'a OldUnits<'a>>,
    ) -> Self {
        let kept = keep.map_or(0, |keep| keep.content_bytes_max);
        let buffer_bytes = options.unit().max(kept as usize);
        UnitEncoder {
            content: ContentReader::new(inventory, buffer_bytes, options.skip_unreadable),
            options,
            keep,
            old,
            buffer_bytes,
        }
    }

    pub(crate) fn worker(&self) -> ThreadCodec {
        let settings = self.options.compression;
        let unit = self.buffer_bytes;
        let decodes = settings.is_some() && self.options.verify.decodes_encoded()
            || self.keep.is_some()
            || self.old.is_some();
        ThreadCodec {
            encoder: settings.and_then(|settings| Encoder::new(&settings).ok()),
            decoder: Decoder::new(),
            content: vec![0; unit],
            decoded: if decodes { vec![0; unit] } else { Vec::new() },
            probe: settings.as_ref().and_then(Probe::before),
        }
    }

    pub(crate) fn work(&self, worker: &mut ThreadCodec, job: DataJob) -> Result<DataResult> {
        Ok(match job {
            DataJob::Hole { part, bytes } => DataResult::Hole { part, bytes },
            DataJob::Unreadable { file, error } => self.unreadable(file, error)?,
            DataJob::Keep { part, extent } => match self.keep(worker, part.file, &extent) {
                Ok(Some(stored)) if stored.content_len >= part.len => {
                    DataResult::Part(part, Some(stored))
                }
                Ok(stored) => {
                    if let Some(stored) = stored {
                        self.recoded(DAMAGED);
                        self.content.recycle(stored.buffer);
                    }
                    self.work(worker, DataJob::Part(part))?
                }
                Err(error) => self.unreadable(part.file, error)?,
            },
            DataJob::Fragment {
                file,
                id,
                offset,
                extent,
            } => DataResult::Fragment {
                file,
                id,
                offset,
                stored: match extent {
                    None => None,
                    Some(extent) => {
                        let stored = self.fragment(worker, file, &extent);
                        Some(self.content.forgive(file, stored)?)
                    }
                },
            },
            DataJob::Part(part) => {
                let content = &mut worker.content[..part.len];
                if part.is_hole {
                    content.fill(0);
                } else if let Err(error) = self.content.read(part.file, part.from, content) {
                    return self.unreadable(part.file, error);
                }
                let is_hole = part.form == DataForm::Units
                    && self.options.has_records()
                    && content.iter().all(|&byte| byte == 0);
                let stored = if is_hole {
                    None
                } else {
                    let old = Some((part.file, Some(part.from)));
                    Some(self.encode(worker, part.len, part.form == DataForm::Units, old)?)
                };
                DataResult::Part(part, stored)
            }
            DataJob::Packed { files, len, tiny } => {
                let mut lost = Vec::new();
                let mut end = 0;
                for &(file, offset) in &files {
                    let begin = offset as usize;
                    end = begin + self.content.inventory().size(file) as usize;
                    self.read_small(file, &mut worker.content[begin..end], &mut lost)?;
                }
                worker.content[end..len].fill(0);
                let stored = match len {
                    0 => None,
                    _ => {
                        let old = files.first().map(|&(file, _)| (file, None));
                        Some(self.encode(worker, len, true, old)?)
                    }
                };
                let tiny = tiny.into_iter().map(|file| {
                    let mut content = vec![0; self.content.inventory().size(file) as usize];
                    self.read_small(file, &mut content, &mut lost)?;
                    Ok((file, content))
                });
                let tiny = tiny.collect::<Result<_>>()?;
                DataResult::Packed {
                    files,
                    stored,
                    tiny,
                    lost,
                }
            }
        })
    }

    /// Encodes a unit of metadata.
    pub(crate) fn encode_metadata(
        &self,
        worker: &mut ThreadCodec,
        metadata: &[u8],
    ) -> Result<EncodedUnit> {
        worker.content[..metadata.len()].copy_from_slice(metadata);
        self.encode(worker, metadata.len(), true, None)
    }

    /// Reads a whole small file; one that cannot be read is zeros, and is lost.
    fn read_small(
        &self,
        file: FileId,
        content: &mut [u8],
        lost: &mut Vec<(FileId, Error)>,
    ) -> Result<()> {
        let read = self.content.read(file, 0, content);
        if let Err(error) = self.content.forgive(file, read)? {
            content.fill(0);
            lost.push((file, error));
        }
        Ok(())
    }

    /// Handles a file that cannot be read: leaves it out, or fails.
    fn unreadable(&self, file: FileId, error: Error) -> Result<DataResult> {
        let forgiven = self.content.forgive(file, Err(error))?;
        forgiven.map_or_else(|error| Ok(DataResult::Unreadable { file, error }), Ok)
    }

    /// The most bytes that are worth storing in place of `len`.
    fn room(&self, len: usize, algorithm: Algorithm) -> usize {
        let room = if self.options.has_records() {
            len - 1
        } else {
            // Each unit takes whole blocks.
            (len.div_ceil(BLOCK_BYTES) - 1) * BLOCK_BYTES
        };
        match algorithm {
            Algorithm::Lz4 => room.min(LZ4_BYTES_MAX),
            _ => room,
        }
    }

    /// Finds the first `len` bytes of the worker's content in the old image, in a unit at this
    /// offset of a file, or of small files of which this one is the first.
    fn reuse(
        &self,
        worker: &mut ThreadCodec,
        len: usize,
        place: (FileId, Option<u64>),
    ) -> Option<EncodedUnit> {
        let (old, settings) = (self.old?, self.options.compression?);
        let (algorithm, mut buffer) = (settings.algorithm(), self.content.buffer());
        let room = self.room(len, algorithm);
        let stored_len = old.read(place, len, &mut buffer).filter(|&it| it <= room);
        let is_equal = stored_len.is_some_and(|stored_len| {
            let (stored, decoded) = (&buffer[..stored_len], &mut worker.decoded[..len]);
            let is = decode(&mut worker.decoder, algorithm, decoded, stored);
            is == Ok(len) && *decoded == worker.content[..len]
        });
        let Some(stored_len) = stored_len.filter(|_| is_equal) else {
            self.content.recycle(buffer);
            return None;
        };
        let codec = Some(Codec::of(algorithm));
        let mut unit = EncodedUnit::new(buffer, stored_len, codec, len);
        unit.is_reused = true;
        Some(unit)
    }

    /// Encodes the first `len` bytes of the worker's content, if they are to be compressed. `old`
    /// is their place in the old image.
    fn encode(
        &self,
        worker: &mut ThreadCodec,
        len: usize,
        is_compressed: bool,
        old: Option<(FileId, Option<u64>)>,
    ) -> Result<EncodedUnit> {
        let old = old.filter(|_| is_compressed);
        if let Some(unit) = old.and_then(|place| self.reuse(worker, len, place)) {
            return Ok(unit);
        }
        let mut buffer = self.content.buffer();
        let content = &worker.content[..len];
        let is_noise = |probe: &mut Probe| probe.is_noise(content);
        let settings = self.options.compression.filter(|_| is_compressed);
        let algorithm = settings.map_or(Algorithm::Zstd, |settings| settings.algorithm());
        let stored_len = match &mut worker.encoder {
            Some(encoder) if is_compressed && !worker.probe.as_mut().is_some_and(is_noise) => {
                let room = self.room(len, algorithm);
                encoder.compress(&mut buffer[..room], content)
            }
            _ => None,
        };
        let stored_len = stored_len.and_then(|stored_len| match algorithm {
            // The stream is deflate between a header and a checksum.
            Algorithm::Zlib => {
                let end = stored_len.checked_sub(ZLIB_TRAILER)?;
                buffer.copy_within(ZLIB_HEADER..end, 0);
                // Linux takes zeros before a stream for padding.
                (buffer[0] != 0).then_some(end - ZLIB_HEADER)
            }
            _ => Some(stored_len),
        });
        let Some(stored_len) = stored_len else {
            std::mem::swap(&mut buffer, &mut worker.content);
            return Ok(EncodedUnit::new(buffer, len, None, len));
        };
        if self.options.verify.decodes_encoded() {
            let stored = &buffer[..stored_len];
            let decoded = &mut worker.decoded[..len];
            let result = decode(&mut worker.decoder, algorithm, decoded, stored);
            if result != Ok(len) || decoded != content {
                return Err(Error::Unverified("a unit does not decode to its content"));
            }
        }
        let codec = Some(Codec::of(algorithm));
        Ok(EncodedUnit::new(buffer, stored_len, codec, len))
    }

    fn recoded(&self, why: &'static str) {
        if let Some(keep) = self.keep {
            keep.recoded(why);
        }
    }

    /// Copies a compressed extent of the source as it is stored, without bytes before and after its
    /// data; `None` if that is no valid cluster.
    fn keep(
        &self,
        worker: &mut ThreadCodec,
        file: FileId,
        extent: &Extent,
    ) -> Result<Option<EncodedUnit>> {
        if !self.options.devices.is_empty() {
            return self.refer(worker, file, extent);
        }
        let ExtentKind::Encoded(encoding) = extent.kind else {
            return Ok(None);
        };
        let mut buffer = self.content.buffer();
        if encoding.stored_len as usize > buffer.len() {
            self.content.recycle(buffer);
            self.recoded(DAMAGED);
            return Ok(None);
        }
        let (read, checksum) = self.content.read_encoded(file, extent, &mut buffer)?;
        match self.frame(worker, &encoding, &mut buffer, read, checksum) {
            Ok((len, content_len, is_decoded)) => {
                let codec = Some(Codec::of(encoding.algorithm));
                let mut unit = EncodedUnit::new(buffer, len, codec, content_len);
                unit.kept = KeptCount::one(checksum, is_decoded);
                unit.is_wide = codec == Some(Codec::Zstd)
                    && ZstdFrame::parse(&unit.buffer[..len], self.options.unit() as u64).is_none();
                Ok(Some(unit))
            }
            Err(why) => {
                self.content.recycle(buffer);
                self.recoded(why);
                Ok(None)
            }
        }
    }

    /// The stored data of an extent where it is, on a further device; `None` if the image cannot
    /// name it there.
    fn refer(
        &self,
        worker: &mut ThreadCodec,
        file: FileId,
        extent: &Extent,
    ) -> Result<Option<EncodedUnit>> {
        let inventory = self.content.inventory();
        let place = (inventory.tree()).stored_at(inventory.ino(file), extent);
        let found =
            place.and_then(|place| Some((place, device_of(&self.options.devices, &place)?)));
        let Some((place, (device, mut at))) = found else {
            self.recoded(UNPLACED);
            return Ok(None);
        };
        let mut len = place.len as usize;
        let (mut content_len, mut is_wide) = (extent.len as usize, false);
        let codec = match extent.kind {
            ExtentKind::Encoded(encoding) => Some((encoding, Codec::of(encoding.algorithm))),
            _ => None,
        };
        let why_not = match codec {
            None => None,
            Some((_, Codec::Zstd)) => {
                let frame = StoredFrame::measure(&*device.bytes, place.at, place.len)?;
                match frame.filter(|frame| frame.window_bytes <= WINDOW_MAX) {
                    Some(frame) => {
                        len = frame.bytes as usize;
                        content_len = frame.content_bytes as usize;
                        is_wide = frame.window_bytes > self.options.unit() as u64;
                        None
                    }
                    None => Some(FRAMES),
                }
            }
            // A whole block: only one that is shown in part has an unknown length.
            Some((encoding, Codec::Lz4)) if encoding.unencoded_len == extent.len => {
                (len > LZ4_BYTES_MAX).then_some(DAMAGED)
            }
            Some((encoding, codec)) => {
                let mut buffer = self.content.buffer();
                let read = self.content.read_encoded(file, extent, &mut buffer);
                let framed = read.map(|(read, checksum)| {
                    self.frame(worker, &encoding, &mut buffer, read, checksum)
                });
                self.content.recycle(buffer);
                match framed? {
                    Ok(framed) => {
                        (len, content_len, _) = framed;
                        at += if codec == Codec::Deflate {
                            ZLIB_HEADER as u64
                        } else {
                            0
                        };
                        None
                    }
                    Err(why) => Some(why),
                }
            }
        };
        let own = self.options.compression.map(|it| Codec::of(it.algorithm()));
        let why_not = why_not.or_else(|| {
            if self.options.has_records() {
                return None;
            }
            // Clusters are whole blocks, with the data at their beginning.
            len = place.len as usize;
            let is_other = codec.is_some_and(|(_, codec)| Some(codec) != own);
            let is_aligned = |at: u64| at.is_multiple_of(BLOCK_BYTES as u64);
            if is_aligned(at) && is_aligned(extent.offset) {
                is_other.then_some(OTHER_CODEC)
            } else {
                Some(UNALIGNED)
            }
        });
        if let Some(why) = why_not {
            self.recoded(why);
            return Ok(None);
        }
        let codec = codec.map(|(_, codec)| codec);
        let mut unit = EncodedUnit::new(self.content.buffer(), len, codec, content_len);
        unit.is_wide = is_wide;
        unit.device_at = Some(at);
        Ok(Some(unit))
    }

    /// Moves the data of a stored extent to the beginning of the buffer. Returns its length, that
    /// of its content, and whether it was decoded to learn or to verify that.
    fn frame(
        &self,
        worker: &mut ThreadCodec,
        encoding: &Encoding,
        buffer: &mut [u8],
        read: usize,
        checksum: Option<tree::Checksum>,
    ) -> Result<(usize, usize, bool), &'static str> {
        let stored = &buffer[..read];
        let (len, mut content_len) = match encoding.algorithm {
            Algorithm::Zlib => {
                let decoded = (worker.decoder).decompress_zlib_extent(&mut worker.decoded, stored);
                let (content_len, end) = decoded.map_err(|_| DAMAGED)?;
                let end = end.checked_sub(ZLIB_TRAILER).ok_or(DAMAGED)?;
                let len = end.checked_sub(ZLIB_HEADER).ok_or(DAMAGED)?;
                if stored[ZLIB_HEADER] == 0 {
                    return Err(ZERO_BYTE);
                }
                buffer.copy_within(ZLIB_HEADER..end, 0);
                return Ok((len, content_len, true));
            }
            Algorithm::Zstd => {
                let frame = ZstdFrame::parse(stored, WINDOW_MAX).ok_or(FRAMES)?;
                let content_bytes = frame.content_bytes.ok_or(FRAMES)?;
                if stored[frame.bytes..].iter().any(|&byte| byte != 0) {
                    return Err(FRAMES);
                }
                (frame.bytes, content_bytes as usize)
            }
            _ if read > LZ4_BYTES_MAX => return Err(DAMAGED),
            _ => (read, encoding.unencoded_len as usize),
        };
        let is_lz4 = encoding.algorithm == Algorithm::Lz4;
        let decodes = is_lz4 || self.options.verify.decodes_kept(checksum);
        if decodes {
            let stored = &buffer[..len];
            let decoded = &mut worker.decoded;
            let is = worker
                .decoder
                .decompress(encoding.algorithm, decoded, stored);
            let is = is.map_err(|_| DAMAGED)?;
            if !is_lz4 && is != content_len {
                return Err(DAMAGED);
            }
            content_len = is;
        }
        Ok((len, content_len, decodes))
    }

    /// Copies stored data of which files are parts, or encodes its content again.
    fn fragment(
        &self,
        worker: &mut ThreadCodec,
        file: FileId,
        extent: &Extent,
    ) -> Result<EncodedUnit> {
        if let Some(stored) = self.keep(worker, file, extent)? {
            return Ok(stored);
        }
        let ExtentKind::Encoded(encoding) = extent.kind else {
            return Err(Error::Changed);
        };
        let mut stored = self.content.buffer();
        let (read, _) = self.content.read_encoded(file, extent, &mut stored)?;
        let decoded =
            (worker.decoder).decompress(encoding.algorithm, &mut worker.content, &stored[..read]);
        let of_codec = |error| Error::of_block(error, &stored[..read], 0);
        let len = decoded.map_err(of_codec)?;
        self.content.recycle(stored);
        self.encode(worker, len, true, None)
    }
}
