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

use tree::{Error, Result, to_u64, to_usize};
use zstd::FrameStep;

use crate::error::{PatchError, damaged};
use crate::fields::{Fields, emit_number};
use crate::occurrences::{Occurrences, pass_offset};

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
    /// In the highest bit, whether it is given as a new one.
    offset: u32,
}

const NEW: u32 = 1 << 31;

/// Reads bytes at an address.
pub type ReadAddress<'a> = dyn FnMut(&mut [u8], u64) -> Result<(), PatchError> + 'a;

/// The matches that a block may have, from those of frames like it, with the memory for that.
#[derive(Default)]
pub struct LikelyMatches {
    workspace: Vec<u8>,
    stored: Vec<u8>,
    matches: Vec<Likely>,
    occurrences: Occurrences,
}

/// Bytes of memory that finding them takes for a block of this length.
pub(crate) fn likely_bytes(content_bytes: u32) -> u64 {
    let matches = to_u64(matches_max(content_bytes)).saturating_mul(to_u64(size_of::<Likely>()));
    matches
        .saturating_add(Occurrences::bytes(content_bytes.into()))
        .saturating_add(to_u64(like_bytes_max(content_bytes)))
        .saturating_add(to_u64(zstd::READ_STEPS_WORKSPACE_SIZE))
}

/// The longest frame that is looked at for a block of this length.
pub fn like_bytes_max(content_bytes: u32) -> usize {
    let content = content_bytes.max(LIKE_CONTENT_BYTES);
    zstd::compress_bound(to_usize(content))
}

/// Few blocks have more matches; the patch has those that are left out.
fn matches_max(content_bytes: u32) -> usize {
    to_usize(u64::from(content_bytes / 6))
}

impl LikelyMatches {
    /// Finds them for a block of this content.
    ///
    /// # Errors
    /// A frame cannot be read, or is none; `place` is that of the part.
    pub fn find(
        &mut self,
        frames: &[LikeFrame],
        content: &[u8],
        place: u64,
        read: &mut ReadAddress<'_>,
    ) -> Result<(), PatchError> {
        let content_bytes = u32::try_from(content.len()).unwrap_or(u32::MAX);
        self.occurrences.link(content);
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
            let is_ascending = is_ascending(&frame.stretches);
            let each = &mut |step| match step {
                FrameStep::Match {
                    literals,
                    length,
                    offset,
                    is_new,
                } => {
                    let at = end.saturating_add(literals.into());
                    end = at.saturating_add(length.into());
                    if let Some((at, offset)) =
                        moved(&frame.stretches, is_ascending, at, length, offset)
                        && matches.len() < matches_max
                    {
                        matches.push(Likely {
                            at,
                            length,
                            offset: if is_new { offset | NEW } else { offset },
                        });
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

/// Whether each stretch begins in its frame behind the end of the one before.
fn is_ascending(stretches: &[Stretch]) -> bool {
    stretches.is_sorted_by(|before, it| before.from.saturating_add(before.bytes) <= it.from)
}

/// Where a match is at the same content of the block, and its offset there: both the copy and the
/// bytes that it copies lie in stretches.
fn moved(
    stretches: &[Stretch],
    is_ascending: bool,
    at: u64,
    length: u32,
    offset: u32,
) -> Option<(u32, u32)> {
    let place = |at: u64| {
        let at = u32::try_from(at).ok()?;
        let end = at.checked_add(length)?;
        let holds = |it: &&Stretch| it.from <= at && end <= it.from.saturating_add(it.bytes);
        let stretch = if is_ascending {
            let begun = stretches.partition_point(|it| it.from <= at);
            stretches.get(..begun)?.last().filter(holds)?
        } else {
            stretches.iter().find(holds)?
        };
        at.checked_sub(stretch.from)?.checked_add(stretch.to)
    };
    let to = place(at)?;
    let source = place(at.checked_sub(offset.into())?)?;
    let offset = to.checked_sub(source).filter(|offset| *offset > 0)?;
    Some((to, offset))
}

/// How far the steps of a block are, and the likely matches behind that.
struct Cursor<'a> {
    content: &'a [u8],
    likely: &'a LikelyMatches,
    /// Likely matches that are passed.
    passed: usize,
    at: u32,
    /// The last offsets.
    late: [u32; 3],
}

impl<'a> Cursor<'a> {
    fn new(content: &'a [u8], likely: &'a LikelyMatches) -> Cursor<'a> {
        Cursor {
            content,
            likely,
            passed: 0,
            at: 0,
            late: [0; 3],
        }
    }

    /// The next likely match.
    fn next(&mut self) -> Option<FrameStep> {
        let left = self.likely.matches.get(self.passed..)?;
        let skipped = left.iter().take_while(|it| it.at < self.at).count();
        self.passed = self.passed.saturating_add(skipped);
        let next = self.likely.matches.get(self.passed)?;
        Some(FrameStep::Match {
            literals: next.at.saturating_sub(self.at),
            length: next.length,
            offset: next.offset & !NEW,
            is_new: next.offset & NEW != 0,
        })
    }

    /// The offsets that a match may have behind these literals.
    fn offsets(&self, literals: u32, length: u32) -> impl Iterator<Item = u32> {
        let at = self.at.saturating_add(literals);
        (self.likely.occurrences).offsets(self.content, self.late, at, length)
    }

    /// Emits a step that is no likely match.
    fn emit_own(&self, bytes: &mut Vec<u8>, step: FrameStep) {
        let mut emit = |kind: u64, first: u32| emit_number(bytes, u64::from(first) << 3 | kind);
        match step {
            FrameStep::BlockEnd { literals } => emit(BLOCK_END, literals),
            FrameStep::Raw { bytes } => emit(RAW, bytes),
            FrameStep::Run { bytes } => emit(RUN, bytes),
            FrameStep::Match {
                literals,
                length,
                offset,
                is_new,
            } => {
                let place = self.offsets(literals, length).position(|it| it == offset);
                let (kind, second) = match place {
                    _ if is_new => (NEW_OFFSET, Some(offset.into())),
                    Some(0) => (NEAREST, None),
                    Some(place) => (NUMBERED, Some(to_u64(place))),
                    None => (OFFSET, Some(offset.into())),
                };
                emit(kind, literals);
                emit_number(bytes, length.into());
                if let Some(second) = second {
                    emit_number(bytes, second);
                }
            }
        }
    }

    fn pass(&mut self, step: FrameStep) {
        let (first, second) = match step {
            FrameStep::Match {
                literals,
                length,
                offset,
                ..
            } => {
                pass_offset(&mut self.late, offset);
                (literals, length)
            }
            FrameStep::BlockEnd { literals: bytes }
            | FrameStep::Raw { bytes }
            | FrameStep::Run { bytes } => (bytes, 0),
        };
        self.at = self.at.saturating_add(first).saturating_add(second);
    }
}

/// A match whose offset is the first of those that are possible.
const NEAREST: u64 = 0;
const BLOCK_END: u64 = 1;
const RAW: u64 = 2;
const RUN: u64 = 3;
/// A match whose offset is one of those that are possible: its number follows.
const NUMBERED: u64 = 4;
/// A match whose offset follows.
const OFFSET: u64 = 5;
/// The same, and the frame gives it as a new one, though it is one of the last three.
const NEW_OFFSET: u64 = 6;
/// Likely matches, as they are.
const LIKELY: u64 = 7;

/// Emits the frames, the descriptions if the encoder wants them, and the steps as differences from
/// the likely matches.
pub fn emit_steps(
    content: &[u8],
    frames: &[LikeFrame],
    descriptions: Option<&[u8]>,
    likely: &LikelyMatches,
    steps: &[FrameStep],
) -> Vec<u8> {
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
    if let Some(descriptions) = descriptions {
        emit_number(&mut bytes, to_u64(descriptions.len()));
        bytes.extend_from_slice(descriptions);
    }
    let mut cursor = Cursor::new(content, likely);
    let mut same = 0u64;
    for step in steps {
        if cursor.next() == Some(*step) {
            same = same.saturating_add(1);
        } else {
            if same > 0 {
                emit_number(&mut bytes, same << 3 | LIKELY);
                same = 0;
            }
            cursor.emit_own(&mut bytes, *step);
        }
        cursor.pass(*step);
    }
    if same > 0 {
        emit_number(&mut bytes, same << 3 | LIKELY);
    }
    bytes
}

/// The frames, the descriptions, and the bytes of the steps.
type ParsedSteps<'a> = (Vec<LikeFrame>, &'a [u8], &'a [u8]);

/// Parses the bytes of [`emit_steps`].
pub(crate) fn parse_frames(
    bytes: &[u8],
    is_described: bool,
    place: u64,
) -> Result<ParsedSteps<'_>> {
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
    if !is_described {
        return Ok((frames, &[], fields.rest()));
    }
    let described = fields.number()?;
    let Some((descriptions, steps)) = fields.rest().split_at_checked(to_usize(described)) else {
        let what = "descriptions of the patch are longer than its steps";
        return Err(Error::corrupt(what, place, described));
    };
    Ok((frames, descriptions, steps))
}

/// The steps of a block; they end early where their bytes are wrong.
pub(crate) struct Steps<'a> {
    fields: Fields<'a>,
    cursor: Cursor<'a>,
    /// Likely matches that come next as they are.
    same: u64,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(
        bytes: &'a [u8],
        content: &'a [u8],
        likely: &'a LikelyMatches,
        place: u64,
    ) -> Steps<'a> {
        Steps {
            fields: Fields::still(bytes, place),
            cursor: Cursor::new(content, likely),
            same: 0,
        }
    }

    fn step(&mut self) -> Option<FrameStep> {
        while self.same == 0 {
            let number = self.fields.number().ok()?;
            let (kind, first) = (number & 7, number >> 3);
            if kind != LIKELY {
                return self.own(kind, u32::try_from(first).ok()?);
            }
            self.same = first;
        }
        self.same = self.same.saturating_sub(1);
        self.cursor.next()
    }

    /// A step that is no likely match.
    fn own(&mut self, kind: u64, first: u32) -> Option<FrameStep> {
        match kind {
            BLOCK_END => return Some(FrameStep::BlockEnd { literals: first }),
            RAW => return Some(FrameStep::Raw { bytes: first }),
            RUN => return Some(FrameStep::Run { bytes: first }),
            _ => {}
        }
        let length = self.fields.number_u32().ok()?;
        let number = match kind {
            NEAREST => 0,
            _ => self.fields.number_u32().ok()?,
        };
        let offset = match kind {
            OFFSET | NEW_OFFSET => number,
            _ => {
                let mut offsets = self.cursor.offsets(first, length);
                offsets.nth(to_usize(u64::from(number)))?
            }
        };
        Some(FrameStep::Match {
            literals: first,
            length,
            offset,
            is_new: kind == NEW_OFFSET,
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

    /// A random number that depends on those before.
    fn random(state: &mut u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        *state >> 32
    }

    /// Words with numbers between them.
    fn text(mut state: u64, bytes: usize) -> Vec<u8> {
        let mut text = Vec::new();
        while text.len() < bytes {
            let number = random(&mut state);
            let word = (number >> 8) % 300;
            text.extend(format!("{:x}", word * word * 0x9e37).bytes());
            if number >> 30 == 0 {
                text.extend((number as u16).to_string().as_bytes());
            }
        }
        text.truncate(bytes);
        text
    }

    /// The block that a list of steps makes of content.
    fn made(list: &[u8], old: &[u8], content: &[u8], encoder: &Encoder) -> Option<Vec<u8>> {
        let (frames, descriptions, list) = parse_frames(list, encoder.is_described(), 0).ok()?;
        let mut likely = LikelyMatches::default();
        let read = &mut |buffer: &mut [u8], at: u64| {
            let read = old.read_exact_at(buffer, at);
            read.map_err(PatchError::Old)
        };
        likely.find(&frames, content, 0, read).ok()?;
        let mut workspace = vec![0; encoder.workspace_bytes(content.len() as u32)];
        let mut block = vec![0; Encoder::bound(content.len() as u32)];
        let steps = &mut Steps::new(list, content, &likely, 0);
        let len = encoder.encode_steps(&mut block, content, descriptions, steps, &mut workspace)?;
        block.truncate(len);
        Some(block)
    }

    #[test]
    fn matches_are_in_the_first_stretch_that_holds_them() {
        let stretch = |from, to, bytes| Stretch { from, to, bytes };
        let mut state = 1u64;
        let mut random = |limit: u32| (random(&mut state) >> 8) as u32 % limit;
        let mut ascending = 0;
        for _ in 0..2000 {
            let count = random(4) + 1;
            let stretches: Vec<_> = (0..count)
                .map(|it| stretch(it * 50 + random(30), it * 60, random(30) + 10))
                .collect();
            let is_ascending = is_ascending(&stretches);
            ascending += u32::from(is_ascending);
            let (at, length, offset) = (random(200).into(), random(9) + 3, random(200) + 1);
            let searched = moved(&stretches, false, at, length, offset);
            assert_eq!(
                moved(&stretches, is_ascending, at, length, offset),
                searched
            );
        }
        assert!((100..1900).contains(&ascending), "{ascending}");
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
        likely.find(&frames, &content, 0, read).unwrap();
        let (mut steps, mut tables) = (Vec::new(), vec![0; zstd::READ_STEPS_WORKSPACE_SIZE]);
        zstd::read_steps(&new, &mut tables, &mut |step| steps.push(step)).unwrap();
        let list = emit_steps(&content, &frames, None, &likely, &steps);
        assert!(list.len() < new.len() / 8, "{} {}", list.len(), new.len());
        let encoder = encoder.with_steps();
        assert!(made(&list, &old, &content, &encoder) == Some(new));
        let mut state = 1u64;
        let mut none = 0;
        for _ in 0..300 {
            let mut random = || random(&mut state) as usize >> 1;
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
