//! The content of files, part by part.
//!
//! Most files have one part, which is in a table. The parts of all others are in one ordered map,
//! so that a part costs the same wherever a file is written.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use tree::{Encoding, Error, Ino, RecordTable, Result, Scratch, high_u32, low_u32, wide_u64};

use crate::encoded::{algorithm, compression};

/// Parts that any stream may make.
const PARTS_MIN: u64 = 1 << 20;
/// Parts that it may make for each command. Cloning takes a few bytes of the stream for any number
/// of parts, and a file that is cloned to its own end doubles them each time; Linux sends a command
/// for each.
const PARTS_PER_COMMAND_MAX: u64 = 64;

/// A file whose content was changed by the stream: an index plus 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileNumber(NonZeroU32);

impl FileNumber {
    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Where the bytes of a part are. There is no part where a file has a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartSource {
    /// Plain bytes of the stream: those of a command at this offset, without the first ones.
    Plain { at: u64, skip: u64 },
    /// An encoded extent at this offset of the stream.
    Encoded { at: u64, encoding: Encoding },
    /// Another tree's file, from this offset on.
    File { tree: u32, ino: Ino, offset: u64 },
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilePart {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) place: PartSource,
}

impl FilePart {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The part of it between two offsets of the file, which both lie in it.
    pub(super) fn between(self, from: u64, to: u64) -> FilePart {
        let skip = from - self.offset;
        let place = match self.place {
            PartSource::Plain { at, skip: before } => PartSource::Plain {
                at,
                skip: before + skip,
            },
            PartSource::Encoded { at, encoding } => PartSource::Encoded {
                at,
                encoding: Encoding {
                    unencoded_offset: encoding.unencoded_offset + skip,
                    ..encoding
                },
            },
            PartSource::File { tree, ino, offset } => PartSource::File {
                tree,
                ino,
                offset: offset + skip,
            },
        };
        FilePart {
            offset: from,
            len: to - from,
            place,
        }
    }
}

/// The parts of a file.
#[derive(Clone, Copy)]
enum WholeFile {
    /// A hole, however long.
    Nothing,
    /// Parts in the map.
    Parts,
    /// One part from the beginning on: see [`PartSource::Plain`].
    Plain { at: u64, skip: u64 },
    /// As [`PartSource::Encoded`], if the lengths are no longer than Linux makes them.
    Encoded {
        at: u64,
        stored_len: u32,
        unencoded_len: u32,
        unencoded_offset: u32,
        /// The number of the algorithm in streams.
        compression: u8,
    },
    /// As [`PartSource::File`].
    File { tree: u32, ino: Ino, offset: u64 },
}

impl WholeFile {
    /// The one part of a file; `None` if it has to be in the map.
    fn of(part: &FilePart) -> Option<WholeFile> {
        if part.offset > 0 {
            return None;
        }
        Some(match part.place {
            PartSource::Plain { at, skip } => WholeFile::Plain { at, skip },
            PartSource::Encoded { at, encoding } => WholeFile::Encoded {
                at,
                stored_len: u32::try_from(encoding.stored_len).ok()?,
                unencoded_len: u32::try_from(encoding.unencoded_len).ok()?,
                unencoded_offset: u32::try_from(encoding.unencoded_offset).ok()?,
                compression: compression(encoding.algorithm)? as u8, // At most 7.
            },
            PartSource::File { tree, ino, offset } => WholeFile::File { tree, ino, offset },
        })
    }

    /// Where the bytes of the only part are.
    fn place(self) -> Option<PartSource> {
        Some(match self {
            WholeFile::Nothing | WholeFile::Parts => return None,
            WholeFile::Plain { at, skip } => PartSource::Plain { at, skip },
            WholeFile::Encoded {
                at,
                stored_len,
                unencoded_len,
                unencoded_offset,
                compression,
            } => PartSource::Encoded {
                at,
                encoding: Encoding {
                    algorithm: algorithm(compression.into())?,
                    stored_len: stored_len.into(),
                    unencoded_len: unencoded_len.into(),
                    unencoded_offset: unencoded_offset.into(),
                },
            },
            WholeFile::File { tree, ino, offset } => PartSource::File { tree, ino, offset },
        })
    }
}

/// A file, and the length of its part if it has only one.
#[derive(Clone, Copy)]
struct PartsOfFile {
    whole: WholeFile,
    len: u64,
}

impl PartsOfFile {
    fn pack(&self) -> [u32; 8] {
        let [tag, a, b, c, d, e] = match self.whole {
            WholeFile::Nothing => [0; 6],
            WholeFile::Parts => [1, 0, 0, 0, 0, 0],
            WholeFile::Plain { at, skip } => [
                2,
                0,
                low_u32(at),
                high_u32(at),
                low_u32(skip),
                high_u32(skip),
            ],
            WholeFile::File { tree, ino, offset } => {
                let (ino, from) = (ino.0, offset);
                [
                    3,
                    tree,
                    low_u32(ino),
                    high_u32(ino),
                    low_u32(from),
                    high_u32(from),
                ]
            }
            WholeFile::Encoded {
                at,
                stored_len,
                unencoded_len,
                unencoded_offset,
                compression,
            } => [
                4 | u32::from(compression) << 8,
                low_u32(at),
                high_u32(at),
                stored_len,
                unencoded_len,
                unencoded_offset,
            ],
        };
        [low_u32(self.len), high_u32(self.len), tag, a, b, c, d, e]
    }

    fn unpack([len, len_high, tag, a, b, c, d, e]: [u32; 8]) -> PartsOfFile {
        let whole = match tag & 0xff {
            0 => WholeFile::Nothing,
            1 => WholeFile::Parts,
            2 => WholeFile::Plain {
                at: wide_u64(b, c),
                skip: wide_u64(d, e),
            },
            3 => WholeFile::File {
                tree: a,
                ino: Ino(wide_u64(b, c)),
                offset: wide_u64(d, e),
            },
            _ => WholeFile::Encoded {
                at: wide_u64(a, b),
                stored_len: c,
                unencoded_len: d,
                unencoded_offset: e,
                compression: (tag >> 8) as u8,
            },
        };
        PartsOfFile {
            whole,
            len: wide_u64(len, len_high),
        }
    }

    fn part(&self) -> Option<FilePart> {
        self.whole.place().map(|place| FilePart {
            offset: 0,
            len: self.len,
            place,
        })
    }
}

/// The parts of all files.
#[derive(Clone, Default)]
pub(super) struct FileParts {
    /// Each is a [`PartsOfFile`].
    files: RecordTable<8>,
    /// By file and offset.
    map: BTreeMap<(FileNumber, u64), (u64, PartSource)>,
    /// Parts that were ever made.
    made: u64,
}

impl FileParts {
    pub(super) fn new(scratch: &Scratch) -> FileParts {
        FileParts {
            files: RecordTable::new(scratch),
            map: BTreeMap::new(),
            made: 0,
        }
    }

    fn known(&self, file: FileNumber) -> PartsOfFile {
        PartsOfFile::unpack(self.files.get(file.index()))
    }

    fn set(&mut self, file: FileNumber, known: PartsOfFile) {
        self.files.set(file.index(), known.pack());
    }

    /// A file without content.
    pub(super) fn file(&mut self) -> Result<FileNumber> {
        let none = PartsOfFile {
            whole: WholeFile::Nothing,
            len: 0,
        };
        self.files.push(none.pack());
        let number = u32::try_from(self.files.len()).ok();
        let number = number.and_then(NonZeroU32::new).map(FileNumber);
        number.ok_or(Error::Limit("files of a send stream"))
    }

    /// The parts of a file that show bytes behind `from`, in order.
    pub(super) fn of(&self, file: FileNumber, from: u64) -> impl Iterator<Item = FilePart> + '_ {
        let part = |(&(_, offset), &(len, place)): (&(FileNumber, u64), &(u64, PartSource))| {
            FilePart { offset, len, place }
        };
        let known = self.known(file);
        let has_parts = matches!(known.whole, WholeFile::Parts);
        let before = if has_parts {
            self.map
                .range((file, 0)..(file, from))
                .next_back()
                .map(part)
        } else {
            known.part()
        };
        let before = before.filter(|part| part.end() > from);
        let rest = has_parts.then(|| self.map.range((file, from)..=(file, u64::MAX)).map(part));
        before.into_iter().chain(rest.into_iter().flatten())
    }

    /// Makes a hole between two offsets.
    pub(super) fn punch(&mut self, file: FileNumber, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let mut known = self.known(file);
        match known.whole {
            WholeFile::Nothing => return,
            WholeFile::Parts => {}
            _ if from >= known.len => return,
            _ if to >= known.len => {
                // What is left begins at 0, too.
                known.len = from;
                if from == 0 {
                    known.whole = WholeFile::Nothing;
                }
                self.set(file, known);
                return;
            }
            _ => self.use_map(file),
        }
        let before = self.map.range((file, 0)..(file, from)).next_back();
        if let Some((&(_, offset), &(len, place))) = before {
            let part = FilePart { offset, len, place };
            if part.end() > from {
                self.put(file, part.between(offset, from));
                if part.end() > to {
                    self.put(file, part.between(to, part.end()));
                }
            }
        }
        loop {
            let next = self.map.range((file, from)..(file, to)).next();
            let Some((&(_, offset), &(len, place))) = next else {
                return;
            };
            self.map.remove(&(file, offset));
            let part = FilePart { offset, len, place };
            if part.end() > to {
                self.put(file, part.between(to, part.end()));
            }
        }
    }

    /// Moves the only part of a file into the map.
    fn use_map(&mut self, file: FileNumber) {
        let known = self.known(file);
        let part = known.part();
        let whole = WholeFile::Parts;
        self.set(file, PartsOfFile { whole, ..known });
        if let Some(part) = part {
            self.put(file, part);
        }
    }

    /// Puts a part where there is a hole.
    fn put(&mut self, file: FileNumber, part: FilePart) {
        match (self.known(file).whole, WholeFile::of(&part)) {
            (WholeFile::Nothing, Some(whole)) => {
                let len = part.len;
                self.set(file, PartsOfFile { whole, len });
                return;
            }
            (WholeFile::Parts, _) => {}
            _ => self.use_map(file),
        }
        self.map.insert((file, part.offset), (part.len, part.place));
    }

    /// The memory that it holds, in bytes; of the map, what it has at least.
    pub(super) fn memory_bytes(&self) -> usize {
        self.files.memory_bytes()
            + self.map.len() * size_of::<((FileNumber, u64), (u64, PartSource))>()
    }

    /// Puts a part into a file in place of what is there. `commands` is how many commands were
    /// read.
    ///
    /// # Errors
    /// [`Error::Limit`] if the stream makes too many parts.
    pub(super) fn write(&mut self, file: FileNumber, part: FilePart, commands: u64) -> Result<()> {
        self.made += 1;
        if self.made > PARTS_MIN.saturating_add(commands.saturating_mul(PARTS_PER_COMMAND_MAX)) {
            return Err(Error::Limit("parts that a send stream clones"));
        }
        self.punch(file, part.offset, part.end());
        self.put(file, part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use testkit::Rng;

    use super::*;

    #[test]
    fn parts_show_what_a_file_of_bytes_would() {
        let mut rng = Rng::new(1);
        for _ in 0..200 {
            let mut parts = FileParts::default();
            let (file, other) = (parts.file().unwrap(), parts.file().unwrap());
            assert!(parts.of(file, 0).next().is_none());
            // For each byte, the place in the stream that it is from.
            let mut bytes = [None; 64];
            for step in 0..30 {
                let from = rng.index(64);
                let to = from + rng.index(64 - from) + 1;
                if rng.index(4) == 0 {
                    parts.punch(file, from as u64, to as u64);
                    bytes[from..to].fill(None);
                    continue;
                }
                let at = 1000 * step as u64;
                let part = FilePart {
                    offset: from as u64,
                    len: (to - from) as u64,
                    place: PartSource::Plain { at, skip: 0 },
                };
                parts.write(file, part, 0).unwrap();
                parts.write(other, part, 0).unwrap();
                for (index, byte) in bytes[from..to].iter_mut().enumerate() {
                    *byte = Some(at + index as u64);
                }
            }
            for from in 0..64 {
                let mut shown = [None; 64];
                for part in parts.of(file, from) {
                    let PartSource::Plain { at, skip } = part.place else {
                        panic!("{part:?}")
                    };
                    assert!(part.end() > from);
                    for index in 0..part.len {
                        shown[(part.offset + index) as usize] = Some(at + skip + index);
                    }
                }
                assert_eq!(shown[from as usize..], bytes[from as usize..]);
            }
        }
    }

    #[test]
    fn clones_cannot_make_parts_without_end() {
        let mut parts = FileParts::default();
        let file = parts.file().unwrap();
        let part = FilePart {
            offset: 0,
            len: 1,
            place: PartSource::Plain { at: 0, skip: 0 },
        };
        let made = (0..).take_while(|_| parts.write(file, part, 3).is_ok());
        assert_eq!(made.count() as u64, PARTS_MIN + 3 * PARTS_PER_COMMAND_MAX);
    }
}
