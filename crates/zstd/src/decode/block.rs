//! A compressed block: literals and sequences become content (RFC 8878, section 3.1.1.3).

use super::execute::{execute, push_literals};
use super::output::{BlockOutput, CHUNK, Extent, Literals};
use crate::Error;
use crate::dictionary::Loaded;
use crate::huffman::{self, HuffmanTable, WeightScratch};
use crate::literals::{self, Coding};
use crate::sequences::{self, Logs, REPEAT_OFFSETS, SequenceReader, update_tables};
use crate::workspace::DecoderTables;

/// State that a block passes to the next of its frame, besides the tables.
#[derive(Clone, Debug)]
pub(crate) struct FrameState {
    /// The longest code of the Huffman table; `None` if there is none.
    huffman: Option<u32>,
    /// Whether there is a table of pairs for it, or long codes lie in its place.
    has_pairs: bool,
    sequences: Logs,
    repeat: [u32; 3],
}

impl FrameState {
    pub(crate) const fn new(loaded: &Loaded<'_>) -> FrameState {
        FrameState {
            huffman: loaded.huffman,
            has_pairs: matches!(loaded.huffman, Some(log) if log > huffman::CODE_BITS_MAX),
            sequences: loaded.sequences,
            repeat: loaded.repeat,
        }
    }
}

/// Where Huffman-coded literals, and those of one byte, may be kept until they are used.
pub(crate) enum LiteralsRegion<'w> {
    /// Here, if they are few: the fast loop then reads all of them in chunks. Otherwise in the
    /// output, so that the last of them would be just before this byte. The block must not give
    /// content after it.
    InPlace { end: usize, few: &'w mut [u8] },
    /// Here, if they fit; otherwise, in the output once it is known how long the content is.
    Buffer(&'w mut [u8]),
}

/// Literals of a block that are few: at the end of the block, the fast loop can hardly use those in
/// the output, and copying them costs less than that.
const FEW: usize = 8 * 1024;

/// Decodes one compressed block. `content_max` is the largest block of the frame.
pub(crate) fn decode(
    block: &[u8],
    content_max: usize,
    state: &mut FrameState,
    tables: &mut DecoderTables<'_>,
    keep: LiteralsRegion<'_>,
    output: &mut BlockOutput<'_, '_>,
) -> Result<Extent, Error> {
    let header = literals::LiteralsHeader::parse(block, content_max)?;
    let rest = block.get(header.bytes..).ok_or(Error::Corruption)?;
    let (stored, section) = rest
        .split_at_checked(header.stored)
        .ok_or(Error::Corruption)?;
    let codes = read_codes(&header, stored, state, tables)?;
    let within = block
        .get(..header.bytes + header.stored)
        .unwrap_or_default();

    let counted = sequences::SequencesHeader::parse(section)?;
    let mut section = section.get(counted.bytes..).ok_or(Error::Corruption)?;
    if counted.count > 0 {
        section = update_tables(&mut state.sequences, &counted, section, tables.sequences)?;
    } else if !section.is_empty() {
        return Err(Error::Corruption);
    }
    let tables = &*tables;
    let table = |log| HuffmanTable {
        cells: tables.huffman,
        log,
        pairs: state.has_pairs.then_some(tables.huffman_pairs),
    };
    // Whether the last literals do not fit, and hence were not decoded.
    let mut cut = false;
    let mut literals = match header.coding {
        // Copies may read past the end of the literals.
        Coding::Raw => Literals::Slice {
            bytes: rest,
            at: 0,
            end: header.content,
        },
        _ => match keep {
            LiteralsRegion::Buffer(buffer) if header.content <= buffer.len() => {
                let literals = buffer.get_mut(..header.content).ok_or(Error::Corruption)?;
                decode_literals(&header, within, codes, state.huffman.map(table), literals)?;
                Literals::Slice {
                    bytes: buffer,
                    at: 0,
                    end: header.content,
                }
            }
            LiteralsRegion::Buffer(_) => {
                let (content, used) = match counted.count {
                    0 => [output.fit(header.content)?; 2].into(),
                    _ => {
                        let logs = state.sequences;
                        measure(tables, logs, section, counted.count, header.content, output)?
                    }
                };
                cut = used < header.content;
                let end = output.at + content;
                let at = end - used;
                let literals = output.bytes.get_mut(at..end).ok_or(Error::Corruption)?;
                if cut {
                    decode_first_literals(&header, codes, state.huffman.map(table), literals)?;
                } else {
                    decode_literals(&header, within, codes, state.huffman.map(table), literals)?;
                }
                Literals::InPlace { at, end }
            }
            LiteralsRegion::InPlace { few, .. }
                if header.content <= FEW && header.content + CHUNK <= few.len() =>
            {
                let literals = few.get_mut(..header.content).ok_or(Error::Corruption)?;
                decode_literals(&header, within, codes, state.huffman.map(table), literals)?;
                Literals::Slice {
                    bytes: few,
                    at: 0,
                    end: header.content,
                }
            }
            LiteralsRegion::InPlace { end, .. } => {
                let at = end
                    .checked_sub(header.content)
                    .filter(|&at| at >= output.at);
                // More literals than the content may have bytes.
                let at = at.ok_or(Error::Corruption)?;
                let literals = output.bytes.get_mut(at..end).ok_or(Error::Corruption)?;
                decode_literals(&header, within, codes, state.huffman.map(table), literals)?;
                Literals::InPlace { at, end }
            }
        },
    };
    if counted.count == 0 {
        return push_last_literals(literals, cut, output);
    }
    let extent = run_sequences(tables, state, section, counted.count, &mut literals, output)?;
    if extent == Extent::Truncated {
        return Ok(extent);
    }
    push_last_literals(literals, cut, output)
}

/// Executes the sequences of a block, all of them if there is room.
#[inline(never)]
fn run_sequences(
    tables: &DecoderTables<'_>,
    state: &mut FrameState,
    section: &[u8],
    count: usize,
    literals: &mut Literals<'_>,
    output: &mut BlockOutput<'_, '_>,
) -> Result<Extent, Error> {
    let (cells, logs) = (&*tables.sequences, state.sequences);
    let mut reader = SequenceReader::new(cells, logs, section, state.repeat, count)?;
    let extent = execute(&mut reader, literals, output)?;
    if extent == Extent::Whole {
        if !reader.bits.is_finished() {
            return Err(Error::Corruption);
        }
        state.repeat = reader.repeat;
    }
    Ok(extent)
}

/// Writes the literals after the last sequence; there are more of them if they were `cut`.
fn push_last_literals(
    literals: Literals<'_>,
    cut: bool,
    output: &mut BlockOutput<'_, '_>,
) -> Result<Extent, Error> {
    let extent = push_literals(literals, output)?;
    Ok(if cut { Extent::Truncated } else { extent })
}

/// Reads the Huffman table, if there is one, and makes that of pairs, if it helps; returns the rest
/// of the section.
#[inline(never)]
fn read_codes<'s>(
    header: &literals::LiteralsHeader,
    stored: &'s [u8],
    state: &mut FrameState,
    tables: &mut DecoderTables<'_>,
) -> Result<&'s [u8], Error> {
    let mut codes = stored;
    if header.coding == Coding::Compressed {
        codes = read_table(stored, state, tables)?;
    }
    if let Some(log) = state.huffman
        && header.four_streams
        && matches!(header.coding, Coding::Compressed | Coding::Treeless)
        && !state.has_pairs
        && huffman::pairs_are_worth_it(codes.len(), header.content)
    {
        huffman::fill_pairs(tables.huffman, log, tables.huffman_pairs);
        state.has_pairs = true;
    }
    Ok(codes)
}

/// Reads a Huffman table; returns the rest of the section.
fn read_table<'s>(
    stored: &'s [u8],
    state: &mut FrameState,
    tables: &mut DecoderTables<'_>,
) -> Result<&'s [u8], Error> {
    let mut scratch = WeightScratch {
        weights: tables.weights,
        cells: tables.weight_cells,
    };
    state.huffman = None;
    state.has_pairs = false;
    let (log, bytes) = huffman::read_table(stored, &mut scratch, tables.huffman)?;
    state.huffman = Some(log);
    stored.get(bytes..).ok_or(Error::Corruption)
}

/// Decodes literals that are not raw, all of them. The codes lie in `within`.
#[inline(never)]
fn decode_literals(
    header: &literals::LiteralsHeader,
    within: &[u8],
    codes: &[u8],
    table: Option<HuffmanTable<'_>>,
    literals: &mut [u8],
) -> Result<(), Error> {
    if header.coding == Coding::Rle {
        literals.fill(*codes.first().ok_or(Error::Corruption)?);
        return Ok(());
    }
    let table = table.ok_or(Error::Corruption)?;
    if header.four_streams {
        huffman::decode_four(table, within, codes, literals)
    } else {
        huffman::decode_one(table, codes, literals)
    }
}

/// Decodes as many literals as fit in `literals`.
#[cold]
#[inline(never)]
fn decode_first_literals(
    header: &literals::LiteralsHeader,
    codes: &[u8],
    table: Option<HuffmanTable<'_>>,
    literals: &mut [u8],
) -> Result<(), Error> {
    if header.coding == Coding::Rle {
        literals.fill(*codes.first().ok_or(Error::Corruption)?);
        return Ok(());
    }
    let table = table.ok_or(Error::Corruption)?;
    huffman::decode_first(table, codes, header.four_streams, header.content, literals)
}

/// How long the content of a block is, or how much of it fits, and how many literals that needs.
#[cold]
#[inline(never)]
fn measure(
    tables: &DecoderTables<'_>,
    logs: Logs,
    section: &[u8],
    count: usize,
    literals: usize,
    output: &BlockOutput<'_, '_>,
) -> Result<(usize, usize), Error> {
    // Offsets do not matter here, hence neither do the repeat offsets.
    let mut reader = SequenceReader::new(tables.sequences, logs, section, REPEAT_OFFSETS, count)?;
    let mut used = 0;
    let mut copied = 0;
    while reader.left > 0 {
        let sequence = reader.read();
        if sequence.literals as usize > literals - used {
            return Err(Error::Corruption);
        }
        used += sequence.literals as usize;
        let fits = output.fit(used + copied)?;
        if fits < used + copied {
            return Ok((fits, fits - copied));
        }
        let length = sequence.length as usize;
        let fits = output.fit(used + copied + length)?;
        if fits < used + copied + length {
            return Ok((fits, used));
        }
        copied += length;
    }
    let fits = output.fit(literals + copied)?;
    Ok((fits, fits - copied))
}
