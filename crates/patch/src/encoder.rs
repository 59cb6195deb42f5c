//! Encoders whose output a patch names by its content.

use tree::Result;
#[cfg(feature = "encode")]
use tree::{Error, sha256, to_u64, to_usize};
#[cfg(feature = "encode")]
use zstd::Params;

#[cfg(feature = "encode")]
/// Sizes of content up to which a level has the same tables.
const CLASSES: [u32; 3] = [16 << 10, 128 << 10, 256 << 10];

#[cfg(feature = "encode")]
/// Bytes of content that shows whether an encoder is that of the patch.
const PROBE_BYTES: usize = 64 << 10;

/// An encoder with its parameters: the same content gives the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoder {
    /// The level.
    pub level: i16,
    /// Whether a checksum of the content ends the frame.
    pub checksum: bool,
    /// The length of content for which the level's parameters are chosen; 0: its own.
    pub sized_bytes: u32,
    /// The longest content that the patch encodes with it.
    pub content_bytes_max: u32,
    /// The SHA-256 of the encoded [`probe`].
    pub probe_sha256: [u8; 32],
}

impl Encoder {
    /// An encoder that encodes nothing yet.
    pub fn new(level: i16, checksum: bool, sized_bytes: u32) -> Encoder {
        Encoder {
            level,
            checksum,
            sized_bytes,
            content_bytes_max: 0,
            probe_sha256: [0; 32],
        }
    }
}

#[cfg(feature = "encode")]
impl Encoder {
    /// Bytes that content of this length takes at most, encoded.
    pub(crate) fn bound(content_bytes: u32) -> usize {
        zstd::compress_bound(to_usize(content_bytes))
    }

    /// Whether the codec has its level.
    pub(crate) fn has_level(&self) -> bool {
        let levels = zstd::LEVEL_MIN..=zstd::LEVEL_MAX;
        self.level != 0 && levels.contains(&self.level.into())
    }

    fn params(&self, content_bytes: usize) -> Params {
        let size = match self.sized_bytes {
            0 => to_u64(content_bytes),
            sized => sized.into(),
        };
        let mut params = Params::for_level(self.level.into(), Some(size));
        params.checksum = self.checksum;
        params
    }

    /// Bytes of workspace for content of at most this length.
    pub fn workspace_bytes(&self, content_bytes_max: u32) -> usize {
        let classes = CLASSES.iter().filter(|class| **class < content_bytes_max);
        let sizes = classes.chain([&content_bytes_max]);
        let needed =
            sizes.map(|size| zstd::workspace_size(&self.params(to_usize(u64::from(*size)))));
        needed.max().unwrap_or(0)
    }

    /// Encodes `content` into the beginning of `dst`; `None` if the frame does not fit, or the
    /// workspace is too small.
    pub fn encode(&self, dst: &mut [u8], content: &[u8], workspace: &mut [u8]) -> Option<usize> {
        zstd::compress(dst, content, &self.params(content.len()), workspace).ok()
    }

    /// The SHA-256 of the probe as this program encodes it.
    ///
    /// # Errors
    /// The workspace is too small.
    pub fn probed(&self) -> Result<[u8; 32]> {
        let content = probe();
        let mut workspace = vec![0; self.workspace_bytes(PROBE_BYTES as u32)];
        let mut frame = vec![0; zstd::compress_bound(PROBE_BYTES)];
        let len = self.encode(&mut frame, &content, &mut workspace);
        let len = len.ok_or(Error::Unsupported("patch has an encoder without a use"))?;
        Ok(sha256(&frame[..len]))
    }
}

/// For a program that applies patches without such blocks.
#[cfg(not(feature = "encode"))]
impl Encoder {
    pub(crate) fn bound(_: u32) -> usize {
        0
    }

    pub(crate) fn has_level(&self) -> bool {
        true
    }

    pub(crate) fn workspace_bytes(&self, _: u32) -> usize {
        0
    }

    pub(crate) fn encode(&self, _: &mut [u8], _: &[u8], _: &mut [u8]) -> Option<usize> {
        None
    }

    pub(crate) fn probed(&self) -> Result<[u8; 32]> {
        let what = "patch encodes blocks, and this program is built without the encoder";
        Err(tree::Error::Unsupported(what))
    }
}

#[cfg(feature = "encode")]
/// Bytes like those of programs and texts: words, repeated, with numbers between them. They are
/// part of the format.
fn probe() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut words: Vec<Vec<u8>> = Vec::new();
    for _ in 0..512 {
        let bytes = random().to_le_bytes();
        let len = 2 + to_usize(random() % 7);
        let letters = bytes.iter().take(len).map(|byte| b'a' + byte % 20);
        words.push(letters.collect());
    }
    let mut content = Vec::new();
    while content.len() < PROBE_BYTES {
        let number = random();
        // The product of two numbers favours the first words.
        let at = to_usize(((number & 0x1ff) * (number >> 9 & 0x1ff)) >> 9);
        content.extend_from_slice(&words[at]);
        match number >> 18 & 15 {
            0 => content.extend_from_slice(&(number >> 40).to_le_bytes()),
            1 => content.push(b'\n'),
            2 if content.len() > 4096 => {
                let from = to_usize(number >> 24) % (content.len() - 300);
                let len = 20 + to_usize(number >> 56);
                content.extend_from_within(from..from + len);
            }
            _ => content.push(b' '),
        }
    }
    content.truncate(PROBE_BYTES);
    content
}
