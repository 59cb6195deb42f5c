//! The decoder.

mod block;
pub(crate) mod execute;
mod once;
pub(crate) mod output;
mod stream;

use crate::{Dictionary, Error, FrameHeader, workspace};
pub use once::Decoded;
pub use stream::{Decoder, Progress, Status};

/// Literals that are kept in the workspace of a one-shot call, when a frame does not say how long its content is.
const LITERALS_SIZE: usize = 64 * 1024;

/// Bytes of workspace for one-shot decoding, of any frame.
pub const DECOMPRESS_WORKSPACE_SIZE: usize = workspace::TABLES_SIZE + LITERALS_SIZE;
const _: () = assert!(DECOMPRESS_WORKSPACE_SIZE <= 96 * 1024);

/// How frames are to be decoded.
///
/// The default: no dictionary, frames with their magic numbers, any window that the destination (one-shot) or the
/// workspace (streaming) can hold.
#[derive(Clone, Copy, Debug)]
pub struct DecodeOptions<'d> {
    dictionary: Dictionary<'d>,
    window_max: u64,
    magicless: bool,
}

impl Default for DecodeOptions<'_> {
    fn default() -> Self {
        DecodeOptions::new()
    }
}

impl<'d> DecodeOptions<'d> {
    /// The default.
    pub const fn new() -> DecodeOptions<'d> {
        DecodeOptions {
            dictionary: Dictionary::raw(&[]),
            window_max: u64::MAX,
            magicless: false,
        }
    }

    /// Decodes with a dictionary.
    #[must_use]
    pub const fn dictionary(mut self, dictionary: Dictionary<'d>) -> Self {
        self.dictionary = dictionary;
        self
    }

    /// Refuses frames whose window is larger than this many bytes, with [`Error::WindowTooLarge`]. The limit is never
    /// below 1 KiB, the smallest window of the format.
    #[must_use]
    pub const fn window_max(mut self, bytes: u64) -> Self {
        self.window_max = if bytes < 1024 { 1024 } else { bytes };
        self
    }

    /// Whether frames come without their magic number; there are no skippable frames then.
    #[must_use]
    pub const fn magicless(mut self, magicless: bool) -> Self {
        self.magicless = magicless;
        self
    }

    /// Whether a frame may be decoded with these options.
    fn check(&self, header: &FrameHeader) -> Result<(), Error> {
        if header.window_size > self.window_max {
            return Err(Error::WindowTooLarge);
        }
        if header.dictionary_id != 0 && header.dictionary_id != self.dictionary.id() {
            return Err(Error::DictionaryWrong);
        }
        Ok(())
    }
}

/// Decodes all of `src`, any number of frames one after the other, to the start of `dst`; gives the bytes written.
///
/// Needs [`DECOMPRESS_WORKSPACE_SIZE`] bytes of workspace. The same as [`DecodeOptions::decompress`] with the default
/// options.
///
/// ```
/// # fn main() -> Result<(), zstd::Error> {
/// let frame = [0x28, 0xB5, 0x2F, 0xFD, 0x20, 5, 0x2B, 0, 0, b'z'];
/// let mut workspace = zstd::Workspace::<{ zstd::DECOMPRESS_WORKSPACE_SIZE }>::new();
/// let mut dst = [0; 5];
/// let len = zstd::decompress(&mut dst, &frame, &mut workspace)?;
/// assert_eq!(&dst[..len], b"zzzzz");
/// # Ok(()) }
/// ```
pub fn decompress(dst: &mut [u8], src: &[u8], workspace: &mut [u8]) -> Result<usize, Error> {
    DecodeOptions::new().decompress(dst, src, workspace)
}

#[cfg(all(test, feature = "compress", not(feature = "portable")))]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::arch::{TWIN, Twin};
    use crate::{Params, compress, compress_bound};

    /// Words of a small vocabulary, runs, and noise in between; the same for the same seed.
    fn content(mut seed: u64, len: usize) -> Vec<u8> {
        let mut next = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut content = vec![];
        while content.len() < len {
            match next(10) {
                0 => content.extend((0..next(40)).map(|_| next(256) as u8)),
                1 => {
                    let byte = next(256) as u8;
                    content.extend((0..next(300)).map(|_| byte));
                }
                2 => {
                    let period = 1 + next(24) as usize;
                    let from = content.len().saturating_sub(period);
                    for index in 0..next(200) as usize {
                        content.push(content.get(from + index).copied().unwrap_or(7));
                    }
                }
                _ => {
                    let word = next(500) * next(500);
                    let len = 2 + word % 9;
                    content.extend((0..len).map(|at| b'a' + ((word >> at) % 19) as u8));
                }
            }
        }
        content.truncate(len);
        content
    }

    fn through(twin: Twin, frame: &[u8], room: usize) -> (Result<usize, Error>, Vec<u8>) {
        let mut workspace = vec![0; DECOMPRESS_WORKSPACE_SIZE];
        let mut dst = vec![0xee; room];
        TWIN.set(twin);
        let result = decompress(&mut dst, frame, &mut workspace);
        TWIN.set(Twin::Fastest);
        (result, dst)
    }

    #[test]
    fn twins_agree() {
        for (seed, len) in [
            (1, 100),
            (2, 5_000),
            (3, 70_000),
            (4, 131_072),
            (5, 300_000),
        ] {
            if cfg!(miri) && len > 5_000 {
                continue; // too large for it
            }
            let content = content(seed, len);
            for level in [-5, 1, 3, 6, 9] {
                let params = Params::for_level(level, Some(len as u64));
                let mut workspace = vec![0; crate::workspace_size(&params)];
                let mut frame = vec![0; compress_bound(len)];
                let size = compress(&mut frame, &content, &params, &mut workspace).unwrap();
                frame.truncate(size);
                for twin in [Twin::Safe, Twin::Plain, Twin::Fastest] {
                    let (result, dst) = through(twin, &frame, len);
                    assert_eq!(result, Ok(len), "{twin:?}, level {level}, {len} bytes");
                    assert!(dst == content, "{twin:?}, level {level}, {len} bytes");
                }
                // Broken frames give the same error, or the same content.
                for step in 0..if cfg!(miri) { 4 } else { 40 } {
                    let at = size * step / if cfg!(miri) { 4 } else { 40 };
                    let mut broken = frame.clone();
                    broken[at] ^= 1 << (step % 8);
                    let (safe, safe_dst) = through(Twin::Safe, &broken, len + 40);
                    for twin in [Twin::Plain, Twin::Fastest] {
                        let (result, dst) = through(twin, &broken, len + 40);
                        assert_eq!(result, safe, "{twin:?}, level {level}, {len} bytes, {at}");
                        assert!(result.is_err() || dst == safe_dst);
                    }
                }
            }
        }
    }
}
