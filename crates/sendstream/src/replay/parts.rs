//! The content of files, part by part: all in one ordered map, so that a part costs the same wherever a file is written.

use std::collections::BTreeMap;

use tree::{Encoding, Error, Ino, Result};

/// Parts that any stream may make.
const PARTS_MIN: u64 = 1 << 20;
/// Parts that it may make for each command. Cloning takes a few bytes of the stream for any number of parts, and a file that is
/// cloned to its own end doubles them each time; Linux sends a command for each.
const PARTS_PER_COMMAND_MAX: u64 = 64;

/// A file whose content was changed by the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileNumber(pub(super) u32);

/// Where the bytes of a part are. There is no part where a file has a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Plain bytes of the stream: those of a command at this offset, without the first ones.
    Plain { at: u64, skip: u64 },
    /// An encoded extent at this offset of the stream.
    Encoded { at: u64, encoding: Encoding },
    /// Another tree's file, from this offset on.
    File { tree: u32, ino: Ino, offset: u64 },
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) place: Place,
}

impl Part {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The part of it between two offsets of the file, which both lie in it.
    pub(super) fn between(self, from: u64, to: u64) -> Part {
        let skip = from - self.offset;
        let place = match self.place {
            Place::Plain { at, skip: before } => Place::Plain {
                at,
                skip: before + skip,
            },
            Place::Encoded { at, encoding } => Place::Encoded {
                at,
                encoding: Encoding {
                    unencoded_offset: encoding.unencoded_offset + skip,
                    ..encoding
                },
            },
            Place::File { tree, ino, offset } => Place::File {
                tree,
                ino,
                offset: offset + skip,
            },
        };
        Part {
            offset: from,
            len: to - from,
            place,
        }
    }
}

/// The parts of all files.
#[derive(Clone, Default)]
pub(super) struct Parts {
    /// By file and offset.
    map: BTreeMap<(FileNumber, u64), (u64, Place)>,
    /// Parts that were ever made.
    made: u64,
    files: u32,
}

impl Parts {
    /// A file without content.
    pub(super) fn file(&mut self) -> Result<FileNumber> {
        let number = FileNumber(self.files);
        let next = self.files.checked_add(1);
        self.files = next.ok_or(Error::Limit("files of a send stream"))?;
        Ok(number)
    }

    /// The parts of a file that show bytes behind `from`, in order.
    pub(super) fn of(&self, file: FileNumber, from: u64) -> impl Iterator<Item = Part> + '_ {
        let part = |(&(_, offset), &(len, place)): (&(FileNumber, u64), &(u64, Place))| Part {
            offset,
            len,
            place,
        };
        let before = self.map.range((file, 0)..(file, from)).next_back();
        let before = before.map(part).filter(|part| part.end() > from);
        let rest = self.map.range((file, from)..=(file, u64::MAX)).map(part);
        before.into_iter().chain(rest)
    }

    /// Makes a hole between two offsets.
    pub(super) fn punch(&mut self, file: FileNumber, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let before = self.map.range((file, 0)..(file, from)).next_back();
        if let Some((&(_, offset), &(len, place))) = before {
            let part = Part { offset, len, place };
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
            let part = Part { offset, len, place };
            if part.end() > to {
                self.put(file, part.between(to, part.end()));
            }
        }
    }

    fn put(&mut self, file: FileNumber, part: Part) {
        self.map.insert((file, part.offset), (part.len, part.place));
    }

    /// Puts a part into a file in place of what is there. `commands` is how many commands were read.
    ///
    /// # Errors
    /// [`Error::Limit`] if the stream makes too many parts.
    pub(super) fn write(&mut self, file: FileNumber, part: Part, commands: u64) -> Result<()> {
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
            let mut parts = Parts::default();
            let (file, other) = (parts.file().unwrap(), parts.file().unwrap());
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
                let part = Part {
                    offset: from as u64,
                    len: (to - from) as u64,
                    place: Place::Plain { at, skip: 0 },
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
                    let Place::Plain { at, skip } = part.place else {
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
        let mut parts = Parts::default();
        let file = parts.file().unwrap();
        let part = Part {
            offset: 0,
            len: 1,
            place: Place::Plain { at: 0, skip: 0 },
        };
        let made = (0..).take_while(|_| parts.write(file, part, 3).is_ok());
        assert_eq!(made.count() as u64, PARTS_MIN + 3 * PARTS_PER_COMMAND_MAX);
    }
}
