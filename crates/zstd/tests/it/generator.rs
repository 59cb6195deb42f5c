//! Valid frames that an encoder would hardly make: every literals form and table mode, odd windows,
//! wide fields, empty blocks, repeat offsets in every order, matches of every kind of length.

use crate::assemble::{
    BlockType, Coding, Counts, Header, Huffman, LITERAL_LENGTHS, Literals, MATCH_LENGTHS, Model,
    OFFSETS, Sections, Sequence, block, checksum, codes, skippable,
};
use testkit::Rng;

/// A frame and what it stands for.
pub(crate) struct Generated {
    pub(crate) frame: Vec<u8>,
    pub(crate) content: Vec<u8>,
}

/// What a dictionary gives to a frame's first block.
#[derive(Clone)]
pub(crate) struct Start {
    pub(crate) id: u32,
    pub(crate) content: Vec<u8>,
    pub(crate) repeats: [u64; 3],
    pub(crate) huffman: Option<Huffman>,
    /// Literal lengths, offsets, match lengths.
    pub(crate) tables: [Option<Coding>; 3],
}

impl Start {
    /// No dictionary.
    pub(crate) fn nothing() -> Self {
        Self {
            id: 0,
            content: Vec::new(),
            repeats: [1, 4, 8],
            huffman: None,
            tables: [None, None, None],
        }
    }
}

/// A frame with about `budget` bytes of content at most.
pub(crate) fn frame(rng: &mut Rng, start: &Start, budget: usize) -> Generated {
    let mantissa = if rng.chance(2) { 0 } else { rng.below(8) as u8 };
    let exponent = rng.below(9) as u8;
    let base = 1u64 << (10 + exponent);
    let window = base + base / 8 * u64::from(mantissa);
    let mut maker = Maker {
        rng,
        model: Model::with_dictionary(&start.content, start.repeats),
        dictionary: start.content.len(),
        window: window as usize,
        block_max: (window as usize).min(128 << 10),
        huffman: start.huffman.clone(),
        tables: start.tables.clone(),
        largest: 0,
    };
    let mut body = Vec::new();
    let blocks = 1 + maker.skewed(6);
    for index in 0..blocks {
        let room = budget
            .saturating_sub(maker.model.content().len())
            .min(maker.block_max);
        body.extend(maker.block(index + 1 == blocks, room));
    }
    let (content, largest) = (maker.model.content().to_vec(), maker.largest);
    let header = header(
        rng,
        start.id,
        exponent << 3 | mantissa,
        content.len(),
        largest,
    );
    let mut frame = header.bytes();
    frame.extend(body);
    if header.checksum {
        frame.extend(checksum(&content));
    }
    if rng.chance(20) {
        let bytes = rng.index(20);
        let skip = skippable(0x184D_2A50 + rng.below(16) as u32, &rng.bytes(bytes));
        frame = if rng.chance(2) {
            [skip, frame].concat()
        } else {
            [frame, skip].concat()
        };
    }
    Generated { frame, content }
}

/// A header that fits the content, its fields as wide as chance will have them.
fn header(rng: &mut Rng, id: u32, window: u8, content: usize, largest: usize) -> Header {
    let mut header = Header {
        window,
        ..Header::window(0)
    };
    // In a single segment the window is the content, and no block may be larger, compressed or not.
    header.single_segment = largest <= content && rng.chance(3);
    let flags: Vec<u8> = (0..4)
        .filter(|flag| match flag {
            0 => content < 256 || !header.single_segment,
            1 => (256..65_792).contains(&content),
            _ => true,
        })
        .collect();
    header.size_flag = flags[rng.index(flags.len())];
    header.content_size = content as u64;
    header.unused_bit = rng.chance(8);
    header.checksum = rng.chance(3);
    if id == 0 {
        header.dictionary_flag = if rng.chance(4) { rng.below(4) as u8 } else { 0 };
    } else if rng.chance(2) {
        header.dictionary_flag = 3;
        header.dictionary = id;
    }
    header
}

struct Maker<'r> {
    rng: &'r mut Rng,
    model: Model,
    dictionary: usize,
    window: usize,
    block_max: usize,
    huffman: Option<Huffman>,
    tables: [Option<Coding>; 3],
    /// The largest block, compressed or not.
    largest: usize,
}

impl Maker<'_> {
    /// Small numbers often.
    fn skewed(&mut self, end: usize) -> usize {
        let bits = self.rng.below(u64::from(end.ilog2()) + 2);
        self.rng.index((1 << bits).min(end))
    }

    fn block(&mut self, last: bool, room: usize) -> Vec<u8> {
        match self.rng.below(8) {
            0 => self.raw(last, room),
            1 => {
                let len = self.skewed(room + 1);
                let byte = self.rng.below(256) as u8;
                self.model.plain(&vec![byte; len]);
                self.largest = self.largest.max(len);
                block(last, BlockType::Rle, len, &[byte])
            }
            _ => self
                .compressed(last, room)
                .unwrap_or_else(|| self.raw(last, room)),
        }
    }

    fn raw(&mut self, last: bool, room: usize) -> Vec<u8> {
        let len = self.skewed(room + 1);
        let bytes = self.bytes(len);
        self.model.plain(&bytes);
        self.largest = self.largest.max(len);
        block(last, BlockType::Raw, len, &bytes)
    }

    /// Bytes of an alphabet of random size.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let symbols = [1, 2, 3, 5, 16, 60, 128, 256][self.rng.index(8)];
        let first = self.rng.index(257 - symbols);
        (0..len)
            .map(|_| (first + self.skewed(symbols)) as u8)
            .collect()
    }

    /// `None` if chance made something that cannot be written.
    fn compressed(&mut self, last: bool, room: usize) -> Option<Vec<u8>> {
        let mut sequences = Vec::new();
        let mut ahead = self.model.clone_repeats();
        let wanted = if self.rng.chance(6) {
            0
        } else {
            1 + self.skewed(400)
        };
        let (mut length, mut literals) = (0, 0);
        // One kind of everything makes RLE tables likely.
        let uniform = self
            .rng
            .chance(6)
            .then(|| (self.skewed(20), self.skewed(40)));
        for _ in 0..wanted {
            let (copied, matched) = match uniform {
                Some(same) => same,
                None if self.rng.chance(30) => (self.skewed(70_000), self.skewed(70_000)),
                None => (self.skewed(40), self.skewed(80)),
            };
            let matched = matched + 3;
            if length + copied + matched > room {
                break;
            }
            let position = self.model.content().len() + length + copied;
            let mut repeats = ahead.clone_repeats();
            let offset = self.offset(position, copied == 0, &mut repeats)?;
            ahead = repeats;
            sequences.push(Sequence {
                literals: copied as u32,
                offset,
                length: matched as u32,
            });
            length += copied + matched;
            literals += copied;
        }
        literals += self.skewed(room - length + 1);
        let (literals, huffman) = self.literals(literals)?;
        let mut body = literals.bytes();
        let mut tables = self.tables.clone();
        if sequences.is_empty() {
            body.extend(if self.rng.chance(3) {
                vec![128, 0]
            } else {
                vec![0]
            });
        } else {
            let sections = self.sections(&sequences, &mut tables)?;
            body.extend(sections.bytes(&sequences)?);
        }
        if body.len() > self.block_max {
            return None;
        }
        let before = self.model.content().len();
        self.model.compressed(&literals, &sequences)?;
        self.largest = self
            .largest
            .max(body.len())
            .max(self.model.content().len() - before);
        self.huffman = huffman;
        self.tables = tables;
        Some(block(last, BlockType::Compressed, body.len(), &body))
    }

    /// An offset value that may stand at this position.
    fn offset(&mut self, position: usize, no_literals: bool, model: &mut Model) -> Option<u64> {
        let dictionary = if position <= self.window {
            self.dictionary
        } else {
            0
        };
        let window = self.window;
        let good = |distance: u64| {
            let distance = distance as usize;
            distance <= position.min(window)
                || (distance > position && distance <= position + dictionary)
        };
        let literals = u32::from(!no_literals);
        for _ in 0..4 {
            let value = if self.rng.chance(2) {
                1 + self.rng.below(3)
            } else {
                let most = if self.rng.chance(4) {
                    position + dictionary
                } else {
                    position.min(self.window)
                };
                if most == 0 {
                    continue;
                }
                let distance = match self.rng.below(4) {
                    0 => most, // the farthest
                    1 => 1 + self.skewed(most),
                    _ => 1 + self.rng.index(most),
                };
                3 + distance as u64
            };
            let mut next = model.clone_repeats();
            if next.distance(value, literals).is_some_and(good) {
                model.repeats = next.repeats;
                return Some(value);
            }
        }
        None
    }

    fn literals(&mut self, len: usize) -> Option<(Literals, Option<Huffman>)> {
        let bytes = self.bytes(len);
        let kept = self.huffman.clone();
        let plain_formats: &[u8] = match len {
            0..32 => &[0, 1, 3],
            32..4096 => &[1, 3],
            _ => &[3],
        };
        let format = plain_formats[self.rng.index(plain_formats.len())];
        let raw = Literals::Raw {
            format,
            bytes: bytes.clone(),
        };
        match self.rng.below(8) {
            0 => return Some((raw, kept)),
            1 => {
                let byte = self.rng.below(256) as u8;
                return Some((Literals::Rle { format, byte, len }, kept));
            }
            _ if len == 0 => return Some((raw, kept)),
            _ => {}
        }
        let formats: &[u8] = match len {
            0..6 => &[0],
            6..1024 => &[0, 1, 2, 3],
            1024..16_384 => &[2, 3],
            _ => &[3],
        };
        let format = formats[self.rng.index(formats.len())];
        let codes = |huffman: &Huffman| {
            bytes
                .iter()
                .all(|b| huffman.weights.get(usize::from(*b)).is_some_and(|w| *w > 0))
        };
        let written = match kept.clone() {
            Some(huffman) if codes(&huffman) && self.rng.chance(2) => Literals::Treeless {
                format,
                huffman,
                bytes,
            },
            _ => {
                let mut frequencies = [0u32; 256];
                bytes
                    .iter()
                    .for_each(|byte| frequencies[usize::from(*byte)] += 1);
                // Symbols that do not occur may have codes, too; there must be two at least.
                for _ in 0..1 + self.skewed(4) {
                    frequencies[self.rng.index(256)] += 1;
                }
                if frequencies.iter().filter(|f| **f > 0).count() < 2 {
                    return Some((raw, kept));
                }
                let bits = 1 + self.rng.below(11) as u32;
                let huffman = Huffman::for_symbols(&frequencies, bits);
                let accuracy = 5 + self.rng.below(2) as u32;
                let direct = (huffman.weights.len() <= 129).then(|| huffman.describe_direct());
                let fse = huffman.describe_fse(accuracy).or(huffman.describe_fse(6));
                let table = match (direct, fse) {
                    (Some(direct), Some(fse)) => {
                        if self.rng.chance(2) {
                            direct
                        } else {
                            fse
                        }
                    }
                    (direct, fse) => match direct.or(fse) {
                        Some(table) => table,
                        None => return Some((raw, kept)),
                    },
                };
                Literals::Compressed {
                    format,
                    table,
                    huffman,
                    bytes,
                }
            }
        };
        // Sizes that the format cannot say, and streams that the jump table cannot, are written
        // raw.
        let most = [1023, 1023, 16_383, 262_143][usize::from(format)];
        match &written {
            Literals::Compressed {
                huffman,
                table,
                bytes,
                ..
            } => {
                let size = size(huffman, format, bytes)? + table.len();
                Some(if size > most {
                    (raw, kept)
                } else {
                    (written.clone(), Some(huffman.clone()))
                })
            }
            Literals::Treeless { huffman, bytes, .. } => {
                let size = size(huffman, format, bytes)?;
                Some(if size > most {
                    (raw, kept)
                } else {
                    (written.clone(), Some(huffman.clone()))
                })
            }
            _ => None,
        }
    }

    fn sections(
        &mut self,
        sequences: &[Sequence],
        tables: &mut [Option<Coding>; 3],
    ) -> Option<Sections> {
        let mut used: [Vec<u8>; 3] = Default::default();
        for sequence in sequences {
            for (kind, code) in codes(sequence).into_iter().enumerate() {
                used[kind].push(code);
            }
        }
        let predefined = [LITERAL_LENGTHS, OFFSETS, MATCH_LENGTHS];
        let mut coding = |kind: usize, most: u32| {
            let codes = &used[kind];
            let mut choices = Vec::new();
            if Coding::Predefined.codes(codes, predefined[kind]) {
                choices.push(Coding::Predefined);
            }
            if codes.iter().all(|code| *code == codes[0]) {
                choices.extend([Coding::Rle(codes[0]), Coding::Rle(codes[0])]);
            }
            if let Some(before) = &tables[kind]
                && before.codes(codes, predefined[kind])
            {
                choices.extend([
                    Coding::Repeat(Box::new(before.clone())),
                    Coding::Repeat(Box::new(before.clone())),
                ]);
            }
            let mut frequencies = vec![0u32; usize::from(*codes.iter().max()?) + 1];
            codes
                .iter()
                .for_each(|code| frequencies[usize::from(*code)] += 1);
            if self.rng.chance(3) {
                frequencies.iter_mut().for_each(|f| *f += 1);
            }
            let symbols = frequencies.iter().filter(|f| **f > 0).count() as u32;
            let least = (symbols * 2).next_power_of_two().ilog2().max(5);
            let accuracy = least + self.rng.below(u64::from(most.saturating_sub(least)) + 1) as u32;
            choices.push(Coding::Fse(Counts::near(accuracy.min(most), &frequencies)));
            let choice = choices.swap_remove(self.rng.index(choices.len()));
            tables[kind] = Some(match &choice {
                Coding::Repeat(before) => (**before).clone(),
                new => new.clone(),
            });
            Some(choice)
        };
        Some(Sections {
            literal_lengths: coding(0, 9)?,
            offsets: coding(1, 8)?,
            match_lengths: coding(2, 9)?,
        })
    }
}

fn size(huffman: &Huffman, format: u8, bytes: &[u8]) -> Option<usize> {
    let streams = if format == 0 {
        huffman.stream(bytes)
    } else {
        huffman.four_streams(bytes)
    };
    streams.map(|streams| streams.len())
}
