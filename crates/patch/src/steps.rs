//! The steps of a zstd block: its matches, as differences from those that frames of the files have
//! at the same content. Encoding a block from them needs no search.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Result, to_u64, to_usize};
use zstd::FrameStep;

use crate::error::{PatchError, damaged};
use crate::fields::{Fields, emit_number};

/// Frames whose matches are those of one block.
pub const LIKE_FRAMES_MAX: usize = 8;
/// Such a frame may be as long as one of this content, or as the block.
const LIKE_CONTENT_BYTES: u32 = 128 << 10;
/// Stretches of the content of such a frame.
pub const STRETCHES_MAX: usize = 64;

/// A stretch of content that a frame and a block have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where it is in the content of the frame.
    pub from: u32,
    /// Where it is in that of the block.
    pub to: u32,
    /// Its length.
    pub bytes: u32,
}

/// A zstd frame whose content is like that of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LikeFrame {
    /// Its address, as that of a source.
    pub at: u64,
    /// Its length.
    pub stored_bytes: u32,
    /// The content that both have.
    pub stretches: Vec<Stretch>,
}

/// A match that a block may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Likely {
    /// Where it begins in the content.
    at: u32,
    length: u32,
    offset: u32,
}

/// Reads bytes at an address.
pub type ReadAddress<'a> = dyn FnMut(&mut [u8], u64) -> Result<(), PatchError> + 'a;

/// The matches that a block may have, from those of frames like it, with the memory for that.
#[derive(Default)]
pub struct LikelyMatches {
    workspace: Vec<u8>,
    stored: Vec<u8>,
    matches: Vec<Likely>,
}

/// Bytes of memory that finding them takes for a block of this length.
pub(crate) fn likely_bytes(content_bytes: u32) -> u64 {
    let matches = to_u64(matches_max(content_bytes)).saturating_mul(12);
    matches
        .saturating_add(to_u64(like_bytes_max(content_bytes)))
        .saturating_add(to_u64(zstd::READ_STEPS_WORKSPACE_SIZE))
}

/// The longest frame that is looked at for a block of this length.
pub fn like_bytes_max(content_bytes: u32) -> usize {
    let content = content_bytes.max(LIKE_CONTENT_BYTES);
    zstd::compress_bound(to_usize(content))
}

/// No block has more matches, which have three bytes at least.
fn matches_max(content_bytes: u32) -> usize {
    to_usize(u64::from(content_bytes / 3))
}

impl LikelyMatches {
    /// Finds them for a block of this length.
    ///
    /// # Errors
    /// A frame cannot be read, or is none; `place` is that of the part.
    pub fn find(
        &mut self,
        frames: &[LikeFrame],
        content_bytes: u32,
        place: u64,
        read: &mut ReadAddress<'_>,
    ) -> Result<(), PatchError> {
        let matches_max = matches_max(content_bytes);
        self.workspace.resize(zstd::READ_STEPS_WORKSPACE_SIZE, 0);
        let matches = &mut self.matches;
        matches.clear();
        matches.reserve_exact(matches_max);
        self.stored.clear();
        self.stored.reserve_exact(like_bytes_max(content_bytes));
        for frame in frames {
            let bytes = to_usize(u64::from(frame.stored_bytes));
            if bytes > like_bytes_max(content_bytes) {
                let what = "frame with steps of the patch is longer than its block may be";
                return Err(damaged(what, place, frame.stored_bytes.into()));
            }
            self.stored.resize(bytes, 0);
            read(&mut self.stored, frame.at)?;
            let mut end = 0u64;
            let each = &mut |step| match step {
                FrameStep::Match {
                    literals,
                    length,
                    offset,
                } => {
                    let at = end.saturating_add(literals.into());
                    end = at.saturating_add(length.into());
                    if let Some(likely) = moved(&frame.stretches, at, length, offset)
                        && matches.len() < matches_max
                    {
                        matches.push(likely);
                    }
                }
                FrameStep::BlockEnd { literals: bytes }
                | FrameStep::Raw { bytes }
                | FrameStep::Run { bytes } => end = end.saturating_add(bytes.into()),
            };
            zstd::read_steps(&self.stored, &mut self.workspace, each).map_err(|_| {
                let what = "frame with steps of the patch is not a zstd frame";
                damaged(what, place, frame.at)
            })?;
        }
        self.matches.sort_unstable();
        Ok(())
    }
}

/// The match at the same content of the block: both the copy and the bytes that it copies lie in
/// stretches.
fn moved(stretches: &[Stretch], at: u64, length: u32, offset: u32) -> Option<Likely> {
    let place = |at: u64| {
        let at = u32::try_from(at).ok()?;
        let end = at.checked_add(length)?;
        let holds = |it: &&Stretch| it.from <= at && end <= it.from.saturating_add(it.bytes);
        let stretch = stretches.iter().find(holds)?;
        at.checked_sub(stretch.from)?.checked_add(stretch.to)
    };
    let to = place(at)?;
    let source = place(at.checked_sub(offset.into())?)?;
    let offset = to.checked_sub(source).filter(|offset| *offset > 0)?;
    let at = to;
    Some(Likely { at, length, offset })
}

/// How far the steps of a block are, and the likely matches behind that.
struct Cursor<'a> {
    likely: &'a [Likely],
    at: u32,
}

impl Cursor<'_> {
    /// The next likely match.
    fn next(&mut self) -> Option<FrameStep> {
        while let [first, rest @ ..] = self.likely
            && first.at < self.at
        {
            self.likely = rest;
        }
        let next = self.likely.first()?;
        Some(FrameStep::Match {
            literals: next.at.saturating_sub(self.at),
            length: next.length,
            offset: next.offset,
        })
    }

    fn pass(&mut self, step: FrameStep) {
        let (first, second) = match step {
            FrameStep::Match {
                literals, length, ..
            } => (literals, length),
            FrameStep::BlockEnd { literals: bytes }
            | FrameStep::Raw { bytes }
            | FrameStep::Run { bytes } => (bytes, 0),
        };
        self.at = self.at.saturating_add(first).saturating_add(second);
    }
}

/// Emits the frames, and the steps as differences from the likely matches.
pub fn emit_steps(frames: &[LikeFrame], likely: &LikelyMatches, steps: &[FrameStep]) -> Vec<u8> {
    let mut bytes = Vec::new();
    emit_number(&mut bytes, to_u64(frames.len()));
    for frame in frames {
        emit_number(&mut bytes, frame.at);
        emit_number(&mut bytes, frame.stored_bytes.into());
        emit_number(&mut bytes, to_u64(frame.stretches.len()));
        for stretch in &frame.stretches {
            for number in [stretch.from, stretch.to, stretch.bytes] {
                emit_number(&mut bytes, number.into());
            }
        }
    }
    let mut cursor = Cursor {
        likely: &likely.matches,
        at: 0,
    };
    let mut same = 0;
    for step in steps {
        if cursor.next() == Some(*step) {
            same = u64::saturating_add(same, 1);
        } else {
            emit_number(&mut bytes, same);
            same = 0;
            let (kind, number) = match *step {
                FrameStep::Match { literals, .. } => (0, literals),
                FrameStep::BlockEnd { literals } => (1, literals),
                FrameStep::Raw { bytes } => (2, bytes),
                FrameStep::Run { bytes } => (3, bytes),
            };
            emit_number(&mut bytes, u64::from(number) << 2 | kind);
            if let FrameStep::Match { length, offset, .. } = *step {
                emit_number(&mut bytes, length.into());
                emit_number(&mut bytes, offset.into());
            }
        }
        cursor.pass(*step);
    }
    bytes
}

/// Parses the bytes of [`emit_steps`]: the frames, and the bytes of the steps.
pub(crate) fn parse_frames(bytes: &[u8], place: u64) -> Result<(Vec<LikeFrame>, &[u8])> {
    let mut fields = Fields::still(bytes, place);
    let count = fields.number_to(to_u64(LIKE_FRAMES_MAX))?;
    let mut frames = Vec::new();
    for _ in 0..count {
        let at = fields.number()?;
        let stored_bytes = fields.number_u32()?;
        let mut stretches = Vec::new();
        for _ in 0..fields.number_to(to_u64(STRETCHES_MAX))? {
            stretches.push(Stretch {
                from: fields.number_u32()?,
                to: fields.number_u32()?,
                bytes: fields.number_u32()?,
            });
        }
        frames.push(LikeFrame {
            at,
            stored_bytes,
            stretches,
        });
    }
    Ok((frames, fields.rest()))
}

/// The steps of a block; they end early where their bytes are wrong.
pub(crate) struct Steps<'a> {
    fields: Fields<'a>,
    cursor: Cursor<'a>,
    /// Likely matches that come next as they are.
    same: u64,
    /// Whether a step of its own comes after those.
    has_own: bool,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(bytes: &'a [u8], likely: &'a LikelyMatches, place: u64) -> Steps<'a> {
        Steps {
            fields: Fields::still(bytes, place),
            cursor: Cursor {
                likely: &likely.matches,
                at: 0,
            },
            same: 0,
            has_own: false,
        }
    }

    fn step(&mut self) -> Option<FrameStep> {
        if self.same == 0 && !self.has_own {
            self.same = self.fields.number().ok()?;
            self.has_own = true;
        }
        if let Some(left) = self.same.checked_sub(1) {
            self.same = left;
            return self.cursor.next();
        }
        self.has_own = false;
        let number = self.fields.number().ok()?;
        let first = u32::try_from(number >> 2).ok()?;
        Some(match number & 3 {
            0 => FrameStep::Match {
                literals: first,
                length: self.fields.number_u32().ok()?,
                offset: self.fields.number_u32().ok()?,
            },
            1 => FrameStep::BlockEnd { literals: first },
            2 => FrameStep::Raw { bytes: first },
            _ => FrameStep::Run { bytes: first },
        })
    }
}

impl Iterator for Steps<'_> {
    type Item = FrameStep;

    fn next(&mut self) -> Option<FrameStep> {
        let step = self.step()?;
        self.cursor.pass(step);
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockCodec, Encoder};
    use tree::ReadAt;

    /// Words with numbers between them.
    fn text(mut state: u64, bytes: usize) -> Vec<u8> {
        let mut text = Vec::new();
        while text.len() < bytes {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let word = (state >> 40) % 300;
            text.extend(format!("{:x}", word * word * 0x9e37).bytes());
            if state >> 62 == 0 {
                text.extend(((state >> 32) as u16).to_string().as_bytes());
            }
        }
        text.truncate(bytes);
        text
    }

    /// The block that a list of steps makes of content.
    fn made(list: &[u8], old: &[u8], content: &[u8], encoder: &Encoder) -> Option<Vec<u8>> {
        let (frames, list) = parse_frames(list, 0).ok()?;
        let mut likely = LikelyMatches::default();
        let read = &mut |buffer: &mut [u8], at: u64| {
            let read = old.read_exact_at(buffer, at);
            read.map_err(PatchError::Old)
        };
        likely.find(&frames, content.len() as u32, 0, read).ok()?;
        let mut workspace = vec![0; encoder.workspace_bytes(content.len() as u32)];
        let mut block = vec![0; Encoder::bound(content.len() as u32)];
        let steps = &mut Steps::new(list, &likely, 0);
        let len = encoder.encode_steps(&mut block, content, steps, &mut workspace)?;
        block.truncate(len);
        Some(block)
    }

    #[test]
    fn changed_lists_make_another_block_or_none() {
        let encoder = Encoder::new(BlockCodec::Zstd, 9, 1);
        let compressed = |content: &[u8]| {
            let mut workspace = vec![0; encoder.workspace_bytes(content.len() as u32)];
            let mut block = vec![0; Encoder::bound(content.len() as u32)];
            let len = encoder.encode(&mut block, content, &mut workspace);
            block.truncate(len.unwrap());
            block
        };
        let before = text(1, 30_000);
        let mut content = before.clone();
        content.splice(9_000..9_007, text(2, 500));
        let (old, new) = (compressed(&before), compressed(&content));
        let stretch = |from, to, bytes| Stretch { from, to, bytes };
        let frames = vec![LikeFrame {
            at: 0,
            stored_bytes: old.len() as u32,
            stretches: vec![stretch(0, 0, 9_000), stretch(9_007, 9_500, 20_993)],
        }];
        let mut likely = LikelyMatches::default();
        let read = &mut |buffer: &mut [u8], at: u64| {
            let read = old.read_exact_at(buffer, at);
            read.map_err(PatchError::Old)
        };
        likely.find(&frames, content.len() as u32, 0, read).unwrap();
        let (mut steps, mut tables) = (Vec::new(), vec![0; zstd::READ_STEPS_WORKSPACE_SIZE]);
        zstd::read_steps(&new, &mut tables, &mut |step| steps.push(step)).unwrap();
        let list = emit_steps(&frames, &likely, &steps);
        assert!(list.len() < new.len() / 8, "{} {}", list.len(), new.len());
        let encoder = encoder.with_steps();
        assert!(made(&list, &old, &content, &encoder) == Some(new));
        let mut state = 1u64;
        let mut none = 0;
        for _ in 0..300 {
            let mut random = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) as usize
            };
            let (mut list, mut old) = (list.clone(), old.clone());
            let at = random() % list.len();
            match random() % 4 {
                0 => list.truncate(at),
                1 => list[at] = 0xff,
                2 => list[at] ^= 1 << (random() % 8),
                _ => old[random() % 3000] ^= 1 << (random() % 8),
            }
            none += u32::from(made(&list, &old, &content, &encoder).is_none());
        }
        assert!((20..300).contains(&none), "{none}");
    }
}
