//! The steps of a frame: its matches and the ends of its blocks, read from it, and written again
//! without a search.

use crate::checked::{Checked, CheckedSlice};
use crate::decode::split_block;
use crate::encode::block::{BlockChoice, BlockContent, Entropy, EntropyState, write_raw};
use crate::encode::division::{Division, DivisionProgress};
use crate::encode::frame::FrameSource;
use crate::encode::levels::GAIN_LOG;
use crate::encode::store::SequenceStore;
use crate::frame::{
    BLOCK_HEADER_SIZE, BLOCK_SIZE_MAX, BlockKind, COMPRESSED, Frame, RLE, block_header,
};
use crate::literals::LiteralsHeader;
use crate::sequences::{
    Logs, MATCH_MIN, REPEAT_OFFSETS, Sequence, SequenceReader, SequencesHeader, offset_name,
    update_repeat_offsets, update_tables,
};
use crate::workspace::{Carver, DecoderTables};
use crate::{Error, Params};

/// A step of a frame. The blocks of a frame follow each other; each is one step, or ends with
/// [`BlockEnd`](FrameStep::BlockEnd).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameStep {
    /// Literals, then a copy of bytes before.
    Match {
        /// The number of literals.
        literals: u32,
        /// The length of the copy.
        length: u32,
        /// How far back the copied bytes begin.
        offset: u32,
    },
    /// A compressed block ends.
    BlockEnd {
        /// Literals after its last match.
        literals: u32,
    },
    /// A block that is stored as it is.
    Raw {
        /// Its length.
        bytes: u32,
    },
    /// A block of one repeated byte.
    Run {
        /// Its length.
        bytes: u32,
    },
}

/// Bytes of workspace for [`read_steps`].
pub const READ_STEPS_WORKSPACE_SIZE: usize = crate::workspace::TABLES_SIZE;

/// Bytes of workspace for [`compress_steps`].
pub const COMPRESS_STEPS_WORKSPACE_SIZE: usize =
    Carver::SLACK + Entropy::BYTES + Division::bytes(1) + STORE_BYTES;

const STORE_BYTES: usize = SequenceStore::bytes(BLOCK_SIZE_MAX, true);

/// Reads the steps of the frame at the beginning of `frame`, without decoding its content. No sum
/// of them is checked: a hostile frame may have more content than it says, and offsets that lead
/// anywhere.
///
/// # Errors
///
/// The errors of a bad frame, as far as they are met; [`Error::WorkspaceTooSmall`].
pub fn read_steps(
    frame: &[u8],
    workspace: &mut [u8],
    each: &mut dyn FnMut(FrameStep),
) -> Result<(), Error> {
    let Frame::Zstd(header) = Frame::parse(frame)? else {
        return Err(Error::PrefixUnknown);
    };
    if header.dictionary_id != 0 {
        return Err(Error::DictionaryWrong);
    }
    let (tables, _) = DecoderTables::carve(workspace).ok_or(Error::WorkspaceTooSmall)?;
    let mut logs: Logs = [None; 3];
    let mut repeat = REPEAT_OFFSETS;
    let mut rest = frame.get(header.size..).ok_or(Error::SrcSizeWrong)?;
    loop {
        let (block, stored) = split_block(&mut rest, header.block_size_max)?;
        let bytes = block.content as u32;
        match block.kind {
            BlockKind::Raw => each(FrameStep::Raw { bytes }),
            BlockKind::Rle => each(FrameStep::Run { bytes }),
            BlockKind::Compressed => {
                let literals = LiteralsHeader::parse(stored, header.block_size_max as usize)?;
                let section = stored.get(literals.bytes + literals.stored..);
                let section = section.ok_or(Error::Corruption)?;
                let counted = SequencesHeader::parse(section)?;
                let section = section.get(counted.bytes..).ok_or(Error::Corruption)?;
                let mut left = literals.content as u32;
                if counted.count > 0 {
                    let codes = update_tables(&mut logs, &counted, section, tables.sequences)?;
                    let cells = &*tables.sequences;
                    let mut reader =
                        SequenceReader::new(cells, logs, codes, repeat, counted.count)?;
                    while reader.left > 0 {
                        let sequence = reader.read();
                        let literals = sequence.literals;
                        left = left.checked_sub(literals).ok_or(Error::Corruption)?;
                        each(FrameStep::Match {
                            literals,
                            length: sequence.length,
                            offset: sequence.offset,
                        });
                    }
                    repeat = reader.repeat;
                }
                each(FrameStep::BlockEnd { literals: left });
            }
        }
        if block.last {
            return Ok(());
        }
    }
}

/// Writes the frame of `src` that has these steps, and returns its length. For steps that were read
/// it is the same frame if this crate made that one with the same parameters and a strategy from
/// [`Strategy::Lazy`](crate::Strategy::Lazy) on, but for rare content: others may name a repeat
/// offset as a new one.
///
/// # Errors
///
/// [`Error::SrcSizeWrong`] if the steps are not those of such a frame and content: they end early
/// or late, a match is too short or leads too far back, or a block is not worth compressing.
/// [`Error::DstSizeTooSmall`]; [`Error::WorkspaceTooSmall`] if the workspace has less than
/// [`COMPRESS_STEPS_WORKSPACE_SIZE`] bytes.
pub fn compress_steps(
    dst: &mut [u8],
    src: &[u8],
    params: &Params,
    steps: &mut dyn Iterator<Item = FrameStep>,
    workspace: &mut [u8],
) -> Result<usize, Error> {
    params.check()?;
    let source = FrameSource::whole(src);
    let mut at = source.write_header(dst, params)?;
    let mut state = EntropyState::default();
    let carver = &mut Carver::new(workspace, COMPRESS_STEPS_WORKSPACE_SIZE - Carver::SLACK)?;
    let mut writer = BlockWriter {
        entropy: Entropy::over(carver.bytes(Entropy::BYTES)?, &mut state)?,
        division: carver.bytes(Division::bytes(1))?,
        store: carver.bytes(STORE_BYTES)?,
        repeat: REPEAT_OFFSETS,
    };
    writer.entropy.start_frame();
    let mut start = 0;
    loop {
        let room = dst.get_mut(at..).ok_or(Error::DstSizeTooSmall)?;
        let (end, bytes) = writer.block(room, src, start, params, steps)?;
        at += bytes;
        start = end;
        if start == src.len() {
            break;
        }
    }
    if params.checksum {
        at += source.write_checksum(dst.get_mut(at..))?;
    }
    match steps.next() {
        None => Ok(at),
        Some(_) => Err(Error::SrcSizeWrong),
    }
}

/// Writes blocks from their steps.
struct BlockWriter<'a> {
    entropy: Entropy<'a>,
    division: &'a mut [u8],
    store: &'a mut [u8],
    /// As a decoder has them.
    repeat: [u32; 3],
}

impl BlockWriter<'_> {
    /// Writes the block that begins at `start`. Returns where it ends, and its length.
    fn block(
        &mut self,
        out: &mut [u8],
        src: &[u8],
        start: usize,
        params: &Params,
        steps: &mut dyn Iterator<Item = FrameStep>,
    ) -> Result<(usize, usize), Error> {
        let data = src.checked(..src.len().min(start + params.block_size()))?;
        let mut store = SequenceStore::new(self.store);
        let mut at = start;
        let end = loop {
            match steps.next().ok_or(Error::SrcSizeWrong)? {
                FrameStep::Match {
                    literals,
                    length,
                    offset,
                } => {
                    let rest = data.len() - at;
                    let whole = u64::from(literals) + u64::from(length);
                    let from = at as u64 + u64::from(literals);
                    let is_match = whole <= rest as u64
                        && length as usize >= MATCH_MIN
                        && (1..=from).contains(&offset.into());
                    if !is_match || store.is_full(rest) {
                        return Err(Error::SrcSizeWrong);
                    }
                    let value = offset_name(&self.repeat, offset, literals);
                    update_repeat_offsets(&mut self.repeat, value, literals);
                    store.push(data, at, Sequence::new(literals, value, length))?;
                    at += whole as usize;
                }
                FrameStep::BlockEnd { literals } => break at.saturating_add(literals as usize),
                FrameStep::Raw { bytes } if at == start => {
                    let end = start.saturating_add(bytes as usize);
                    let source = data.get(start..end).ok_or(Error::SrcSizeWrong)?;
                    return Ok((end, write_raw(out, source, end == src.len())?));
                }
                FrameStep::Run { bytes } if at == start => {
                    let end = start.saturating_add(bytes as usize);
                    let source = data.get(start..end).unwrap_or_default();
                    let byte = source.first().ok_or(Error::SrcSizeWrong)?;
                    let [a, b, c] = block_header(RLE, source.len(), end == src.len());
                    let place = out.get_mut(..BLOCK_HEADER_SIZE + 1);
                    let place = place.ok_or(Error::DstSizeTooSmall)?;
                    place.copy_from_slice(&[a, b, c, *byte]);
                    return Ok((end, BLOCK_HEADER_SIZE + 1));
                }
                _ => return Err(Error::SrcSizeWrong),
            }
        };
        let last_literals = data.get(at..end).ok_or(Error::SrcSizeWrong)?;
        store.push_last_literals(last_literals)?;
        let store_literals = params.strategy.stores_literals();
        let choice = BlockChoice {
            last: end == src.len(),
            rle: false,
            store_literals,
            gain_log: GAIN_LOG,
        };
        let (bytes, kind) = write_compressed(
            out,
            data.checked(start..end)?,
            &store,
            self.division,
            &mut self.entropy,
            choice,
        )??;
        if kind == COMPRESSED {
            Ok((end, bytes))
        } else {
            Err(Error::SrcSizeWrong)
        }
    }
}

/// Writes the sequences of a store as one block. Returns its length and kind.
fn write_compressed(
    out: &mut [u8],
    source: &[u8],
    store: &SequenceStore<'_>,
    division: &mut [u8],
    entropy: &mut Entropy<'_>,
    choice: BlockChoice,
) -> Checked<Result<(usize, u32), Error>> {
    let mut progress = DivisionProgress::default();
    let mut division = Division::over(division, 1, &mut progress)?;
    let counts_literals = !choice.store_literals;
    division.begin_whole(store, source.len(), entropy.counts, counts_literals)?;
    let content = BlockContent {
        literals: store.literals()?,
        reversed: store.reversed()?,
        counts: division.counts()?,
    };
    Ok(entropy.write_block(out, source, content, choice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn written(src: &[u8], params: &Params, steps: &[FrameStep]) -> Result<Vec<u8>, Error> {
        let mut frame = vec![0; crate::compress_bound(src.len())];
        let mut workspace = vec![0; COMPRESS_STEPS_WORKSPACE_SIZE];
        let steps = &mut steps.iter().copied();
        let len = compress_steps(&mut frame, src, params, steps, &mut workspace)?;
        frame.truncate(len);
        Ok(frame)
    }

    fn read(frame: &[u8]) -> Result<Vec<FrameStep>, Error> {
        let (mut steps, mut tables) = (Vec::new(), vec![0; READ_STEPS_WORKSPACE_SIZE]);
        read_steps(frame, &mut tables, &mut |step| steps.push(step))?;
        Ok(steps)
    }

    /// Words, numbers, zeros and noise.
    fn content(bytes: usize) -> Vec<u8> {
        let mut rng = testkit::Rng::new(5);
        let words: Vec<Vec<u8>> = (0..300).map(|_| rng.bytes(5)).collect();
        let mut content = Vec::new();
        while content.len() < bytes {
            match content.len() / 40_000 % 4 {
                0 => content.extend(&words[rng.below(300) as usize]),
                1 => content.extend(rng.below(1 << 20).to_be_bytes()),
                2 => content.extend(rng.bytes(40)),
                _ => content.extend([0; 500]),
            }
        }
        content.truncate(bytes);
        content
    }

    #[test]
    fn frames_are_written_again() {
        for bytes in [0, 5, 3000, 131_072, 400_000] {
            let src = content(bytes);
            for level in [5, 6, 9, 11, 12, 13, 15, 17, 19, 22] {
                let mut params = Params::for_level(level, Some(bytes as u64));
                params.checksum = level % 2 == 0;
                let mut frame = vec![0; crate::compress_bound(bytes)];
                let mut workspace = vec![0; crate::workspace_size(&params)];
                let len = crate::compress(&mut frame, &src, &params, &mut workspace).unwrap();
                frame.truncate(len);
                let steps = read(&frame).unwrap();
                let again = written(&src, &params, &steps);
                assert!(again == Ok(frame), "{bytes} {level}");
            }
        }
    }

    #[test]
    fn steps_that_do_not_fit_are_an_error() {
        let src = content(90_000);
        let params = Params::for_level(15, Some(90_000));
        let mut workspace = vec![0; crate::workspace_size(&params)];
        let mut frame = vec![0; crate::compress_bound(src.len())];
        let len = crate::compress(&mut frame, &src, &params, &mut workspace).unwrap();
        let steps = read(&frame[..len]).unwrap();
        let mut rng = testkit::Rng::new(1);
        for _ in 0..testkit::cases(200) {
            let mut other = steps.clone();
            let at = rng.below(steps.len() as u64) as usize;
            let bytes = [0, 1, 2, 3, 90_000, u32::MAX][rng.below(6) as usize];
            other[at] = match rng.below(6) {
                0 => FrameStep::BlockEnd { literals: bytes },
                1 => FrameStep::Raw { bytes },
                2 => FrameStep::Run { bytes },
                kind => FrameStep::Match {
                    literals: if kind == 3 { bytes } else { 1 },
                    length: if kind == 4 { bytes } else { 4 },
                    offset: if kind == 5 { bytes } else { 1 },
                },
            };
            // Some other content, but a frame.
            if let Ok(frame) = written(&src, &params, &other) {
                let (mut back, mut tables) = (vec![0; 90_000], vec![0; 100_000]);
                let decoded = crate::decompress(&mut back, &frame, &mut tables);
                assert_eq!(decoded, Ok(90_000));
            }
            let mut harmed = frame[..len].to_vec();
            let place = rng.below(len as u64) as usize;
            harmed[place] ^= 1 << rng.below(8);
            if let Ok(steps) = read(&harmed) {
                let _ = written(&src, &params, &steps);
            }
        }
        assert_eq!(written(&src, &params, &[]), Err(Error::SrcSizeWrong));
    }
}
