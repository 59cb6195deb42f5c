//! Zstandard frames, with this project's own encoder.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

#[cfg(feature = "zstd")]
use crate::Error;

#[cfg(feature = "zstd")]
pub(crate) struct Encoder {
    level: i32,
    /// The workspace fits the largest block so far, of this many bytes. Its tables are kept between
    /// blocks.
    compressor: zstd::Compressor<Vec<u8>>,
    workspace_size: usize,
}

#[cfg(feature = "zstd")]
impl Encoder {
    pub(crate) fn new(level: i32) -> Result<Self, Error> {
        if level == 0 || !(zstd::LEVEL_MIN..=zstd::LEVEL_MAX).contains(&level) {
            return Err(Error::Settings(
                "zstd level is not -131072 to -1 or 1 to 22",
            ));
        }
        Ok(Encoder {
            level,
            compressor: zstd::Compressor::owning(Vec::new()),
            workspace_size: 0,
        })
    }

    pub(crate) fn compress(&mut self, dst: &mut [u8], src: &[u8]) -> Option<usize> {
        let params = zstd::Params::for_level(self.level, u64::try_from(src.len()).ok());
        let needed = zstd::workspace_size(&params);
        if self.workspace_size < needed {
            self.compressor = zstd::Compressor::owning(vec![0; needed]);
            self.workspace_size = needed;
        }
        self.compressor.compress(dst, src, &params).ok()
    }
}

/// The header of a zstd frame and its length, found without decoding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZstdFrame {
    /// The length of the frame in bytes; the source can continue after it.
    pub bytes: usize,
    /// The length of the decoded content in bytes, if the frame states it.
    pub content_bytes: Option<u64>,
    /// The length of its window in bytes: how far back matches reach at most.
    pub window_bytes: u64,
}

impl ZstdFrame {
    /// Parses the frame at the beginning of `src`; `None` unless it is complete, needs no
    /// dictionary and has a window of at most `window_max` bytes. Without the feature `zstd` always
    /// `None`.
    #[cfg(feature = "zstd")]
    pub fn parse(src: &[u8], window_max: u64) -> Option<ZstdFrame> {
        let zstd::Frame::Zstd(header) = zstd::Frame::parse(src).ok()? else {
            return None;
        };
        if header.dictionary_id != 0 || header.window_size > window_max {
            return None;
        }
        Some(ZstdFrame {
            bytes: zstd::frame_size(src).ok()?,
            content_bytes: header.content_size,
            window_bytes: header.window_size,
        })
    }

    #[cfg(not(feature = "zstd"))]
    #[expect(missing_docs, reason = "they stand above")]
    pub fn parse(_: &[u8], _: u64) -> Option<ZstdFrame> {
        None
    }
}
