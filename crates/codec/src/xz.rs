//! .xz and .lzma streams, with liblzma.

use crate::{Error, Filters};
use liblzma::stream::{self, Action, Check, LzmaOptions, Status, Stream};

/// A decoder's memory limit: the dictionary of the largest block and liblzma's own tables, with
/// room to spare. A header can ask for 4 GiB.
const DECODER_MEMORY_MAX: u64 = 16 << 20;

/// The smallest dictionary of the format.
const DICTIONARY_MIN: u32 = 4096;

pub(crate) struct Encoder {
    preset: u32,
    dictionary_bytes: u32,
    filters: Filters,
    /// Holds a candidate while another one is tried.
    other: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new(
        level: u8,
        extreme: bool,
        dictionary_bytes: u32,
        filters: Filters,
    ) -> Result<Self, Error> {
        if level > 9 {
            return Err(Error::Settings("xz level is not 0 to 9"));
        }
        if !(DICTIONARY_MIN..=1 << 30).contains(&dictionary_bytes) {
            return Err(Error::Settings("xz dictionary is not 4 KiB to 1 GiB"));
        }
        if filters.0 & !Filters::ALL.0 != 0 {
            return Err(Error::Settings("xz filter is not known"));
        }
        const EXTREME: u32 = 1 << 31;
        Ok(Encoder {
            preset: u32::from(level) | if extreme { EXTREME } else { 0 },
            dictionary_bytes,
            filters,
            other: Vec::new(),
        })
    }

    pub(crate) fn compress(&mut self, dst: &mut [u8], src: &[u8]) -> Option<usize> {
        let mut best = self.attempt(0, dst, src);
        for bit in (0..8)
            .map(|n| 1 << n)
            .filter(|bit| self.filters.0 & bit != 0)
        {
            let mut other = std::mem::take(&mut self.other);
            other.resize(best.map_or(dst.len(), |len| len - 1), 0);
            if let Some(len) = self.attempt(bit, &mut other, src) {
                dst[..len].copy_from_slice(&other[..len]);
                best = Some(len);
            }
            self.other = other;
        }
        best
    }

    /// Encodes with exactly one filter, or none.
    pub(crate) fn compress_with(
        &self,
        filter: Filters,
        dst: &mut [u8],
        src: &[u8],
    ) -> Option<usize> {
        self.attempt(filter.0, dst, src)
    }

    /// Encodes with one filter (a bit of [`Filters`]) or none (0).
    fn attempt(&self, filter: u32, dst: &mut [u8], src: &[u8]) -> Option<usize> {
        let block = u32::try_from(src.len()).map_or(u32::MAX, |len| {
            len.checked_next_power_of_two().unwrap_or(u32::MAX)
        });
        let mut options = LzmaOptions::new_preset(self.preset).ok()?;
        options.dict_size(self.dictionary_bytes.min(block.max(DICTIONARY_MIN)));
        let mut filters = stream::Filters::new();
        match Filters(filter) {
            Filters::X86 => filters.x86(),
            Filters::POWERPC => filters.powerpc(),
            Filters::IA64 => filters.ia64(),
            Filters::ARM => filters.arm(),
            Filters::ARM_THUMB => filters.arm_thumb(),
            Filters::SPARC => filters.sparc(),
            Filters::ARM64 => filters.arm64(),
            Filters::RISCV => filters.riscv(),
            _ => &mut filters,
        };
        filters.lzma2(&options);
        let mut stream = Stream::new_stream_encoder(&filters, Check::Crc32).ok()?;
        match stream.process(src, dst, Action::Finish) {
            Ok(Status::StreamEnd) => usize::try_from(stream.total_out()).ok(),
            _ => None,
        }
    }
}

pub(crate) fn decompress(dst: &mut [u8], src: &[u8]) -> Result<usize, Error> {
    run(Stream::new_stream_decoder(DECODER_MEMORY_MAX, 0), dst, src)
}

/// Decodes the stream at the beginning of `src`: its length, and that of its content.
pub(crate) fn decompress_first(dst: &mut [u8], src: &[u8]) -> Option<(usize, usize)> {
    let mut stream = Stream::new_stream_decoder(DECODER_MEMORY_MAX, 0).ok()?;
    match stream.process(src, dst, Action::Finish) {
        Ok(Status::StreamEnd) => Some((
            stream.total_in().try_into().ok()?,
            stream.total_out().try_into().ok()?,
        )),
        _ => None,
    }
}

pub(crate) fn decompress_lzma(dst: &mut [u8], src: &[u8]) -> Result<usize, Error> {
    run(Stream::new_lzma_decoder(DECODER_MEMORY_MAX), dst, src)
}

/// Fills `dst`. The header of the .lzma format replaces the first byte.
pub(crate) fn decompress_micro_lzma(
    dst: &mut [u8],
    src: &[u8],
    dictionary_bytes: u32,
) -> Result<(), Error> {
    const CORRUPT: Error = Error::Corrupt("MicroLZMA stream is corrupt");
    let (properties, body) = src.split_first().ok_or(CORRUPT)?;
    let dictionary = dictionary_bytes.max(DICTIONARY_MIN).to_le_bytes();
    // The length is unknown, and the range coder's first byte, always 0, is not stored.
    let src = [&[!properties], &dictionary[..], &[0xff; 8], &[0], body].concat();
    let mut stream =
        Stream::new_lzma_decoder(DECODER_MEMORY_MAX).map_err(|_| Error::MemoryLimit)?;
    match stream.process(&src, dst, Action::Run) {
        Err(stream::Error::MemLimit | stream::Error::Mem) => Err(Error::MemoryLimit),
        Ok(_) if stream.total_out() == dst.len() as u64 => Ok(()),
        _ => Err(CORRUPT),
    }
}

fn run(stream: Result<Stream, stream::Error>, dst: &mut [u8], src: &[u8]) -> Result<usize, Error> {
    const CORRUPT: Error = Error::Corrupt("xz stream is corrupt");
    let mut stream = stream.map_err(|_| Error::MemoryLimit)?;
    match stream.process(src, dst, Action::Finish) {
        Ok(Status::StreamEnd) => usize::try_from(stream.total_out()).map_err(|_| CORRUPT),
        Err(stream::Error::MemLimit | stream::Error::Mem) => Err(Error::MemoryLimit),
        Err(_) => Err(CORRUPT),
        // Out of input or out of room. If input is left, it is the latter.
        Ok(_) if stream.total_in() < src.len() as u64 => Err(Error::DstSizeTooSmall),
        Ok(_) => Err(CORRUPT),
    }
}
