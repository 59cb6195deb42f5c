//! The decoder.

mod block;
pub(crate) mod execute;
mod once;
pub(crate) mod output;
mod pieces;
mod stream;

use crate::dictionary::Loaded;
use crate::workspace::{self, DecoderTables};
use crate::{DecoderDictionary, Dictionary, Error, FrameHeader};
pub use once::DecodedFrame;
#[cfg(feature = "steps")]
pub(crate) use once::split_block;
pub use pieces::{PieceDecoder, PieceKind};
#[cfg(feature = "std")]
pub(crate) use stream::SuspendedDecoder;
pub use stream::{DecodeProgress, Decoder, Status};

/// Literals that are kept in the workspace of a one-shot call, when a frame does not say how long
/// its content is.
const LITERALS_SIZE: usize = 64 * 1024;

/// Bytes of workspace for one-shot decoding, of any frame.
pub const DECOMPRESS_WORKSPACE_SIZE: usize = workspace::TABLES_SIZE + LITERALS_SIZE;
const _: () = assert!(DECOMPRESS_WORKSPACE_SIZE <= 96 * 1024);

/// How frames are to be decoded.
///
/// The default: no dictionary, frames with their magic numbers, any window that the destination
/// (one-shot) or the workspace (streaming) can hold.
#[derive(Clone, Copy, Debug)]
pub struct DecodeOptions<'d> {
    dictionary: Dictionary<'d>,
    /// The same, if its tables are there already.
    prepared: Option<&'d DecoderDictionary<'d>>,
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
            prepared: None,
            window_max: u64::MAX,
            magicless: false,
        }
    }

    /// Decodes with a dictionary.
    #[must_use]
    pub const fn dictionary(mut self, dictionary: Dictionary<'d>) -> Self {
        self.dictionary = dictionary;
        self.prepared = None;
        self
    }

    /// Decodes with a dictionary whose tables are there already.
    #[must_use]
    pub const fn prepared(mut self, dictionary: &'d DecoderDictionary<'d>) -> Self {
        self.dictionary = dictionary.dictionary();
        self.prepared = Some(dictionary);
        self
    }

    /// Refuses frames whose window is larger than this many bytes, with [`Error::WindowTooLarge`].
    /// The limit is never below 1 KiB, the smallest window of the format.
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

    /// Loads the dictionary's tables.
    fn load(&self, tables: &mut DecoderTables<'_>) -> Result<Loaded<'d>, Error> {
        match self.prepared {
            Some(prepared) => Ok(prepared.load(tables)),
            None => self.dictionary.load(tables),
        }
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

/// Decodes all of `src`, any number of frames one after the other, to the start of `dst`; gives the
/// bytes written.
///
/// Needs [`DECOMPRESS_WORKSPACE_SIZE`] bytes of workspace. The same as
/// [`DecodeOptions::decompress`] with the default options.
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

#[cfg(all(test, feature = "compress", feature = "arch"))]
mod tests;
