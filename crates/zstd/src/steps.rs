//! The steps of a frame: its matches and the ends of its blocks, read from it, and written again
//! without a search; with its descriptions, also the frames of other encoders.

use core::iter::Peekable;

use crate::checked::{Checked, CheckedSlice};
use crate::decode::split_block;
use crate::encode::block::{BlockChoice, BlockContent, Entropy, EntropyState, write_raw};
use crate::encode::division::{Counts, Division, DivisionProgress};
use crate::encode::frame::FrameSource;
use crate::encode::levels::GAIN_LOG;
use crate::encode::store::SequenceStore;
use crate::frame::{
    BLOCK_HEADER_SIZE, BLOCK_SIZE_MAX, BlockKind, COMPRESSED, Frame, RLE, block_header,
};
use crate::fse::WEIGHT_CELLS;
use crate::huffman::{CODE_BITS_MAX, HuffmanEncoder, SYMBOLS_MAX, WeightScratch, read_weights};
use crate::literals::{Coding, LiteralsHeader, count_bytes, write_described_literals};
use crate::sequences::{
    CODES, Logs, MATCH_MIN, REPEAT_OFFSETS, Sequence, SequenceReader, SequenceTables,
    SequencesHeader, count_codes, offset_name, offset_value, update_repeat_offsets, update_tables,
    write_described_sequences,
};
use crate::workspace::{Carver, DecoderTables, Scratch};
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
        /// The offset is given as a new one, though it is one of the last three.
        is_new: bool,
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

/// Bytes of workspace for [`compress_steps`] and [`compress_described`].
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
    read_described(frame, workspace, each, &mut |_| {})
}

/// As [`read_steps`], and gives the rest of what [`compress_described`] needs to write the frame
/// again, piece by piece: the descriptions.
///
/// They are the frame header (RFC 8878, section 3.1.1.1); then of each compressed block a byte with
/// the type of its literals in the lowest two bits and, if they are coded, their size format above
/// (section 3.1.1.3.1.1), and the description of a new Huffman table; if there are sequences, the
/// byte of their modes and the descriptions of new tables (section 3.1.1.3.2.1).
///
/// # Errors
///
/// As [`read_steps`].
pub fn read_described(
    frame: &[u8],
    workspace: &mut [u8],
    each: &mut dyn FnMut(FrameStep),
    describe: &mut dyn FnMut(&[u8]),
) -> Result<(), Error> {
    let Frame::Zstd(header) = Frame::parse(frame)? else {
        return Err(Error::PrefixUnknown);
    };
    if header.dictionary_id != 0 {
        return Err(Error::DictionaryWrong);
    }
    let (tables, _) = DecoderTables::carve(workspace).ok_or(Error::WorkspaceTooSmall)?;
    let mut weights = WeightScratch {
        weights: tables.weights,
        cells: tables.weight_cells,
    };
    let mut logs: Logs = [None; 3];
    let mut repeat = REPEAT_OFFSETS;
    let (head, mut rest) = (frame.split_at_checked(header.size)).ok_or(Error::SrcSizeWrong)?;
    describe(head);
    loop {
        let (block, stored) = split_block(&mut rest, header.block_size_max)?;
        let bytes = block.content as u32;
        match block.kind {
            BlockKind::Raw => each(FrameStep::Raw { bytes }),
            BlockKind::Rle => each(FrameStep::Run { bytes }),
            BlockKind::Compressed => {
                let literals = LiteralsHeader::parse(stored, header.block_size_max as usize)?;
                let (section, rest) = stored
                    .get(literals.bytes..)
                    .and_then(|section| section.split_at_checked(literals.stored))
                    .ok_or(Error::Corruption)?;
                let form = stored.first().copied().unwrap_or(0);
                match literals.coding {
                    Coding::Raw | Coding::Rle => describe(&[form & 3]),
                    Coding::Treeless => describe(&[form & 15]),
                    Coding::Compressed => {
                        describe(&[form & 15]);
                        let table = read_weights(section, CODE_BITS_MAX, &mut weights)?;
                        describe(section.get(..table.bytes).unwrap_or_default());
                    }
                }
                let counted = SequencesHeader::parse(rest)?;
                let mut left = literals.content as u32;
                if counted.count > 0 {
                    let section = rest.get(counted.bytes..).ok_or(Error::Corruption)?;
                    let codes = update_tables(&mut logs, &counted, section, tables.sequences)?;
                    // From the byte of the modes to the codes.
                    let described = rest.len() - codes.len();
                    describe(rest.get(counted.bytes - 1..described).unwrap_or_default());
                    let cells = &*tables.sequences;
                    let mut reader =
                        SequenceReader::new(cells, logs, codes, repeat, counted.count)?;
                    while reader.left > 0 {
                        each(match_step(&mut reader, &mut left)?);
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

/// Reads a match; `left` literals of the block are left.
fn match_step(reader: &mut SequenceReader<'_, '_>, left: &mut u32) -> Result<FrameStep, Error> {
    let (before, names_offset) = (reader.repeat, reader.names_offset());
    let sequence = reader.read();
    let literals = sequence.literals;
    *left = left.checked_sub(literals).ok_or(Error::Corruption)?;
    let is_late = offset_name(&before, sequence.offset, literals) <= 3;
    Ok(FrameStep::Match {
        literals,
        length: sequence.length,
        offset: sequence.offset,
        is_new: is_late && names_offset,
    })
}

/// Writes the frame of `src` that has these steps, and returns its length. For steps that were read
/// it is the same frame if this crate made that one with the same parameters.
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
    let at = source.write_header(dst, params)?;
    let mut state = EntropyState::default();
    let carver = &mut Carver::new(workspace, COMPRESS_STEPS_WORKSPACE_SIZE - Carver::SLACK)?;
    let mut entropy = Entropy::over(carver.bytes(Entropy::BYTES)?, &mut state)?;
    entropy.start_frame();
    let division = carver.bytes(Division::bytes(1))?;
    let mut form = |out: &mut [u8], source: &[u8], store: &SequenceStore<'_>, last| {
        let choice = BlockChoice {
            last,
            rle: false,
            store_literals: params.strategy.stores_literals(),
            gain_log: GAIN_LOG,
        };
        let (bytes, kind) = write_compressed(out, source, store, division, &mut entropy, choice)??;
        if kind == COMPRESSED {
            Ok(bytes)
        } else {
            Err(Error::SrcSizeWrong)
        }
    };
    let mut writer = BlockWriter {
        block_size: params.block_size(),
        store: carver.bytes(STORE_BYTES)?,
        repeat: REPEAT_OFFSETS,
        form: &mut form,
    };
    let at = writer.blocks(dst, at, src, steps)?;
    end_frame(dst, at, src, params.checksum)
}

/// Writes the frame of `src` that has these steps and descriptions, as [`read_described`] gives
/// them, whichever encoder made it, and returns its length. It is the same frame if that one has no
/// number in a longer form than it needs, as no known encoder writes them.
///
/// # Errors
///
/// [`Error::SrcSizeWrong`] if the steps are not those of a frame of this content.
/// [`Error::Corruption`] if the descriptions are not valid, or not those of such blocks.
/// [`Error::DstSizeTooSmall`]; [`Error::WorkspaceTooSmall`] if the workspace has less than
/// [`COMPRESS_STEPS_WORKSPACE_SIZE`] bytes.
pub fn compress_described(
    dst: &mut [u8],
    src: &[u8],
    descriptions: &[u8],
    steps: &mut dyn Iterator<Item = FrameStep>,
    workspace: &mut [u8],
) -> Result<usize, Error> {
    let Frame::Zstd(header) = Frame::parse(descriptions)? else {
        return Err(Error::PrefixUnknown);
    };
    let (head, mut descriptions) =
        (descriptions.split_at_checked(header.size)).ok_or(Error::Corruption)?;
    let place = dst.get_mut(..head.len()).ok_or(Error::DstSizeTooSmall)?;
    place.copy_from_slice(head);
    let carver = &mut Carver::new(workspace, COMPRESS_STEPS_WORKSPACE_SIZE - Carver::SLACK)?;
    let mut longest = 0;
    let mut tables = DescribedTables {
        huffman: HuffmanEncoder::carve(carver, &mut longest)?,
        sequences: SequenceTables::carve(carver)?,
        weights: carver.bytes(SYMBOLS_MAX)?,
        weight_cells: carver.array()?,
        counts: carver.array()?,
        scratch: carver.array()?,
    };
    tables.sequences.invalidate();
    let store = carver.bytes(STORE_BYTES)?;
    let mut form = |out: &mut [u8], _: &[u8], store: &SequenceStore<'_>, last| {
        let content = out.get_mut(BLOCK_HEADER_SIZE..);
        let content = content.ok_or(Error::DstSizeTooSmall)?;
        let bytes = tables.write(content, store, &mut descriptions)?;
        let bytes = bytes.ok_or(Error::Corruption)?;
        let head = out.first_chunk_mut().ok_or(Error::DstSizeTooSmall)?;
        *head = block_header(COMPRESSED, bytes, last);
        Ok(BLOCK_HEADER_SIZE + bytes)
    };
    let mut writer = BlockWriter {
        block_size: (header.block_size_max as usize).min(BLOCK_SIZE_MAX),
        store,
        repeat: REPEAT_OFFSETS,
        form: &mut form,
    };
    let at = writer.blocks(dst, head.len(), src, steps)?;
    if !descriptions.is_empty() {
        return Err(Error::Corruption);
    }
    end_frame(dst, at, src, header.checksum)
}

/// Ends a frame.
fn end_frame(dst: &mut [u8], at: usize, src: &[u8], checksum: bool) -> Result<usize, Error> {
    if !checksum {
        return Ok(at);
    }
    let bytes = FrameSource::whole(src).write_checksum(dst.get_mut(at..))?;
    Ok(at + bytes)
}

/// The tables of a frame that is written from its descriptions.
struct DescribedTables<'a> {
    huffman: HuffmanEncoder<'a>,
    sequences: SequenceTables<'a>,
    weights: &'a mut [u8],
    weight_cells: &'a mut [[u8; 8]; WEIGHT_CELLS],
    counts: &'a mut Counts,
    scratch: &'a mut Scratch,
}

impl DescribedTables<'_> {
    /// Writes the content of a block. `None` if it does not fit, or the descriptions are not those
    /// of such a block.
    fn write(
        &mut self,
        out: &mut [u8],
        store: &SequenceStore<'_>,
        described: &mut &[u8],
    ) -> Checked<Option<usize>> {
        let (literals, reversed) = (store.literals()?, store.reversed()?);
        let Some((of_literals, of_codes)) = self.counts.split_first_chunk_mut() else {
            return Ok(None);
        };
        let of_codes: Result<&mut [[u8; 4]; CODES], _> = of_codes.try_into();
        let (Ok(of_codes), Some(weights)) = (of_codes, self.weights.first_chunk_mut()) else {
            return Ok(None);
        };
        count_bytes(of_literals, literals, self.scratch);
        count_codes::<false>(of_codes, reversed, 0, self.scratch);
        let mut weights = WeightScratch {
            weights,
            cells: self.weight_cells,
        };
        let table = &mut self.huffman;
        let written =
            write_described_literals(out, literals, of_literals, described, table, &mut weights);
        let Some((bytes, rest)) = written.and_then(|bytes| Some((bytes, out.get_mut(bytes..)?)))
        else {
            return Ok(None);
        };
        let tables = &mut self.sequences;
        let sequences =
            write_described_sequences(rest, reversed, of_codes, described, tables, self.scratch);
        Ok(sequences.map(|more| bytes + more))
    }
}

/// Writes a block of these bytes, whose sequences are in the store, and which may be the last one.
/// Returns its length.
type BlockForm<'f> =
    dyn FnMut(&mut [u8], &[u8], &SequenceStore<'_>, bool) -> Result<usize, Error> + 'f;

/// The steps of a frame that are left.
type StepsLeft<'s> = Peekable<&'s mut dyn Iterator<Item = FrameStep>>;

/// Writes blocks from their steps.
struct BlockWriter<'a, 'f> {
    /// No block has more bytes of content.
    block_size: usize,
    store: &'a mut [u8],
    /// As a decoder has them.
    repeat: [u32; 3],
    /// How a compressed block is written.
    form: &'a mut BlockForm<'f>,
}

impl BlockWriter<'_, '_> {
    /// Writes all blocks of `src` from `at` on: the last one ends the steps. Returns where they
    /// end.
    fn blocks(
        &mut self,
        dst: &mut [u8],
        mut at: usize,
        src: &[u8],
        steps: &mut dyn Iterator<Item = FrameStep>,
    ) -> Result<usize, Error> {
        let mut steps = steps.peekable();
        let mut start = 0;
        loop {
            let room = dst.get_mut(at..).ok_or(Error::DstSizeTooSmall)?;
            let (end, bytes) = self.block(room, src, start, &mut steps)?;
            at += bytes;
            start = end;
            if steps.peek().is_none() {
                break;
            }
        }
        if start == src.len() {
            Ok(at)
        } else {
            Err(Error::SrcSizeWrong)
        }
    }

    /// Writes the block that begins at `start`. Returns where it ends, and its length.
    fn block(
        &mut self,
        out: &mut [u8],
        src: &[u8],
        start: usize,
        steps: &mut StepsLeft<'_>,
    ) -> Result<(usize, usize), Error> {
        let data = src.checked(..src.len().min(start + self.block_size))?;
        let mut store = SequenceStore::new(self.store);
        let mut at = start;
        let end = loop {
            match steps.next().ok_or(Error::SrcSizeWrong)? {
                FrameStep::Match {
                    literals,
                    length,
                    offset,
                    is_new,
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
                    let value = if is_new {
                        offset_value(offset)
                    } else {
                        offset_name(&self.repeat, offset, literals)
                    };
                    update_repeat_offsets(&mut self.repeat, value, literals);
                    store.push(data, at, Sequence::new(literals, value, length))?;
                    at += whole as usize;
                }
                FrameStep::BlockEnd { literals } => break at.saturating_add(literals as usize),
                FrameStep::Raw { bytes } if at == start => {
                    let end = start.saturating_add(bytes as usize);
                    let source = data.get(start..end).ok_or(Error::SrcSizeWrong)?;
                    return Ok((end, write_raw(out, source, steps.peek().is_none())?));
                }
                FrameStep::Run { bytes } if at == start => {
                    let end = start.saturating_add(bytes as usize);
                    let source = data.get(start..end).unwrap_or_default();
                    let byte = source.first().ok_or(Error::SrcSizeWrong)?;
                    let last = steps.peek().is_none();
                    let [a, b, c] = block_header(RLE, source.len(), last);
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
        let source = data.checked(start..end)?;
        let bytes = (self.form)(out, source, &store, steps.peek().is_none())?;
        Ok((end, bytes))
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
                    is_new: kind == 3,
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
