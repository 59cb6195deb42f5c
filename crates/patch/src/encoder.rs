//! Encoders whose output a patch names by its content.

#[cfg(feature = "encode")]
use codec::{Filters, Settings};
use tree::Result;
#[cfg(feature = "encode")]
use tree::{Error, sha256, to_u64, to_usize};
#[cfg(feature = "encode")]
use zstd::{FrameStep, Params};

use crate::BlockCodec;
#[cfg(feature = "encode")]
use crate::steps::likely_bytes;

/// Sizes of content up to which a level has the same tables.
#[cfg(feature = "encode")]
const CLASSES: [u32; 3] = [16 << 10, 128 << 10, 256 << 10];

/// Bytes of content that shows whether an encoder is that of the patch.
#[cfg(feature = "encode")]
const PROBE_BYTES: usize = 64 << 10;

/// In the variant of zstd: a checksum of the content ends the frame.
#[cfg(feature = "encode")]
const CHECKSUM: u8 = 1;
/// In the variant of zstd: the patch has the steps of the blocks.
const STEPS: u8 = 2;
/// In the variant of zstd, beside [`STEPS`] alone and without a level: the patch has the
/// descriptions of the frames, too.
const DESCRIBED: u8 = 4;

/// Added to a level of xz for its slower variant.
pub const XZ_EXTREME: i16 = 16;

/// An encoder with its parameters: the same content gives the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoder {
    /// The codec.
    pub codec: BlockCodec,
    /// The level; of xz, [`XZ_EXTREME`] more for the slower variant; of LZ4, 0 for its fast
    /// encoder.
    pub level: i16,
    /// Of zstd, 1 if a checksum of the content ends the frame, plus 2 if the patch has the steps of
    /// its blocks; or 6 if it has their descriptions, too; of xz, the filter as
    /// [`crate::xz_settings`] has it; otherwise 0.
    pub variant: u8,
    /// Of zstd, the length of content for which the level's parameters are chosen; 0: its own.
    pub sized_bytes: u32,
    /// The longest content that the patch encodes with it.
    pub content_bytes_max: u32,
    /// The SHA-256 of the encoded probe.
    pub probe_sha256: [u8; 32],
}

impl Encoder {
    /// An encoder that encodes nothing yet.
    pub fn new(codec: BlockCodec, level: i16, variant: u8) -> Encoder {
        Encoder {
            codec,
            level,
            variant,
            sized_bytes: 0,
            content_bytes_max: 0,
            probe_sha256: [0; 32],
        }
    }

    /// The same encoder with the steps of its blocks from the patch.
    #[must_use]
    pub fn with_steps(self) -> Encoder {
        Encoder {
            variant: self.variant | STEPS,
            ..self
        }
    }

    /// The writer of frames of any other encoder, from their steps and descriptions.
    pub fn described() -> Encoder {
        Encoder::new(BlockCodec::Zstd, 0, STEPS | DESCRIBED)
    }

    /// Whether the patch has the descriptions of its blocks.
    pub fn is_described(&self) -> bool {
        self.codec == BlockCodec::Zstd && self.variant & DESCRIBED != 0
    }

    /// Whether the patch has the steps of its blocks.
    pub fn has_steps(&self) -> bool {
        self.codec == BlockCodec::Zstd && self.variant & STEPS != 0
    }
}

#[cfg(feature = "encode")]
impl Encoder {
    /// Bytes that content of this length takes at most, encoded.
    pub fn bound(content_bytes: u32) -> usize {
        // Streams of xz have headers, and blocks of LZ4 grow a little more.
        zstd::compress_bound(to_usize(content_bytes)).saturating_add(1024)
    }

    /// Whether the codec has its level and variant.
    pub(crate) fn is_known(&self) -> bool {
        if self.is_described() {
            return (self.level, self.variant, self.sized_bytes) == (0, STEPS | DESCRIBED, 0);
        }
        let level = i32::from(self.level);
        let (has_level, variant_max) = match self.codec {
            BlockCodec::Zstd => {
                let levels = zstd::LEVEL_MIN..=zstd::LEVEL_MAX;
                (level != 0 && levels.contains(&level), CHECKSUM | STEPS)
            }
            BlockCodec::Gzip => ((1..=12).contains(&level), 0),
            BlockCodec::Xz => (level & !i32::from(XZ_EXTREME) <= 9 && level >= 0, 8),
            BlockCodec::Lz4 => (level == 0 || (2..=12).contains(&level), 0),
        };
        has_level && self.variant <= variant_max
    }

    /// Bytes that the encoder allocates besides its workspace.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        let content = u64::from(self.content_bytes_max);
        match self.codec {
            BlockCodec::Zstd if self.has_steps() => likely_bytes(self.content_bytes_max),
            BlockCodec::Zstd => 0,
            _ => {
                let settings = self.settings();
                settings.map_or(0, |it| to_u64(it.memory_bytes(to_usize(content))))
            }
        }
    }

    fn settings(&self) -> Option<Settings> {
        let level = u8::try_from(self.level).ok()?;
        Some(match self.codec {
            BlockCodec::Zstd => Settings::Zstd {
                level: self.level.into(),
            },
            BlockCodec::Gzip => Settings::Zlib { level },
            BlockCodec::Xz => Settings::Xz {
                level: level & 15,
                extreme: self.level & XZ_EXTREME != 0,
                dictionary_bytes: 1 << 30,
                filters: Filters(0),
            },
            BlockCodec::Lz4 if level == 0 => Settings::Lz4,
            BlockCodec::Lz4 => Settings::Lz4Hc { level },
        })
    }

    fn params(&self, content_bytes: usize) -> Params {
        let size = match self.sized_bytes {
            0 => to_u64(content_bytes),
            sized => sized.into(),
        };
        let mut params = Params::for_level(self.level.into(), Some(size));
        params.checksum = self.variant & CHECKSUM != 0;
        params
    }

    /// Bytes of workspace for content of at most this length.
    pub fn workspace_bytes(&self, content_bytes_max: u32) -> usize {
        if self.codec != BlockCodec::Zstd {
            return 0;
        }
        if self.has_steps() {
            return zstd::COMPRESS_STEPS_WORKSPACE_SIZE;
        }
        let classes = CLASSES.iter().filter(|class| **class < content_bytes_max);
        let sizes = classes.chain([&content_bytes_max]);
        let needed =
            sizes.map(|size| zstd::workspace_size(&self.params(to_usize(u64::from(*size)))));
        needed.max().unwrap_or(0)
    }

    /// Encodes `content` into the beginning of `dst`; `None` if the frame does not fit, or the
    /// workspace is too small.
    pub fn encode(&self, dst: &mut [u8], content: &[u8], workspace: &mut [u8]) -> Option<usize> {
        if self.codec == BlockCodec::Zstd {
            return zstd::compress(dst, content, &self.params(content.len()), workspace).ok();
        }
        let filter = match self.variant.checked_sub(1) {
            None => Filters(0),
            Some(bit) => Filters(1u32.checked_shl(bit.into())?),
        };
        let mut encoder = codec::Encoder::new(&self.settings()?).ok()?;
        encoder.compress_filtered(filter, dst, content)
    }

    /// Encodes `content` from its steps, as [`Encoder::encode`], and its descriptions if there are
    /// some; `None`, too, if they are not those of a frame of it.
    pub fn encode_steps(
        &self,
        dst: &mut [u8],
        content: &[u8],
        descriptions: &[u8],
        steps: &mut dyn Iterator<Item = FrameStep>,
        workspace: &mut [u8],
    ) -> Option<usize> {
        if self.is_described() {
            return zstd::compress_described(dst, content, descriptions, steps, workspace).ok();
        }
        zstd::compress_steps(dst, content, &self.params(content.len()), steps, workspace).ok()
    }

    /// The SHA-256 of the probe as this program encodes it.
    ///
    /// # Errors
    /// The workspace is too small.
    pub fn probed(&self) -> Result<[u8; 32]> {
        let (content, steps) = probe();
        let mut workspace = vec![0; self.workspace_bytes(PROBE_BYTES as u32)];
        let mut frame = vec![0; Encoder::bound(PROBE_BYTES as u32)];
        let len = if self.has_steps() {
            let described = probe_descriptions(&steps);
            let steps = &mut steps.iter().copied();
            self.encode_steps(&mut frame, &content, &described, steps, &mut workspace)
        } else {
            self.encode(&mut frame, &content, &mut workspace)
        };
        let what = "patch has an encoder that this program does not have";
        let len = len.ok_or(Error::Unsupported(what))?;
        Ok(sha256(&frame[..len]))
    }
}

/// For a program that applies patches without such blocks.
#[cfg(not(feature = "encode"))]
impl Encoder {
    pub(crate) fn bound(_: u32) -> usize {
        0
    }

    pub(crate) fn is_known(&self) -> bool {
        true
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        0
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

/// Bytes of the probe after which a block of its steps ends.
#[cfg(feature = "encode")]
const PROBE_BLOCK_BYTES: usize = 20_000;

/// Descriptions of the frame of the probe: its header, literals as they are, predefined tables.
#[cfg(feature = "encode")]
fn probe_descriptions(steps: &[FrameStep]) -> Vec<u8> {
    let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 1, 0];
    let is_end = |it: &&FrameStep| matches!(it, FrameStep::BlockEnd { .. });
    bytes.extend(steps.iter().filter(is_end).flat_map(|_| [0, 0]));
    bytes
}

/// Bytes like those of programs and texts: words, repeated, with numbers between them; and their
/// steps, which copy each word of three letters or more from its last place. They are part of the
/// format.
#[cfg(feature = "encode")]
fn probe() -> (Vec<u8>, Vec<FrameStep>) {
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
    let mut last_places = vec![None; words.len()];
    let (mut steps, mut done, mut block) = (Vec::new(), 0, 0);
    while content.len() < PROBE_BYTES {
        let number = random();
        // The product of two numbers favours the first words.
        let at = to_usize(((number & 0x1ff) * (number >> 9 & 0x1ff)) >> 9);
        let (place, length) = (content.len(), words[at].len());
        content.extend_from_slice(&words[at]);
        if let Some(last) = last_places[at].replace(place)
            && length > 2
            && content.len() <= PROBE_BYTES
        {
            steps.push(FrameStep::Match {
                literals: (place - done) as u32,
                length: length as u32,
                offset: (place - last) as u32,
                is_new: false,
            });
            done = content.len();
            if done - block >= PROBE_BLOCK_BYTES {
                steps.push(FrameStep::BlockEnd { literals: 0 });
                block = done;
            }
        }
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
    let literals = (PROBE_BYTES - done) as u32;
    steps.push(FrameStep::BlockEnd { literals });
    (content, steps)
}
