//! Short byte strings, such as names, which may be in a temporary file.

use std::borrow::Cow;

use super::{RecordTable, Scratch};

/// Words of a chunk of bytes.
const CHUNK_WORDS: usize = 16;
const CHUNK_BYTES: usize = 4 * CHUNK_WORDS;

/// Byte strings of at most 255 bytes, by the place that each has among all of them. With a
/// [`Scratch`] file, most of them are there: see [`RecordTable`].
///
/// # Panics
/// All functions panic if there is no string at a place. They unwind as those of [`RecordTable`]
/// do.
#[derive(Clone, Debug)]
pub struct Strings {
    /// For each string, a length byte and the string; nothing if they are in `chunks`.
    bytes: Vec<u8>,
    /// The same bytes, if they may be in a file.
    chunks: Option<RecordTable<CHUNK_WORDS>>,
    len: usize,
}

impl Strings {
    /// No strings.
    pub fn new(scratch: &Scratch) -> Strings {
        Strings {
            bytes: Vec::new(),
            chunks: scratch.is_file().then(|| RecordTable::new(scratch)),
            len: 0,
        }
    }

    /// The number of bytes, with one more for each string: the place of the next one.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a string, and returns its place.
    pub fn push(&mut self, string: &[u8]) -> usize {
        let at = self.len;
        let count = u8::try_from(string.len()).expect("the string is short");
        self.len += 1 + string.len();
        match &mut self.chunks {
            None => {
                // It grows by an eighth, not by doubling.
                if self.bytes.capacity() < self.len {
                    let room = string.len() + 1 + self.bytes.len() / 8 + 16;
                    self.bytes.reserve_exact(room);
                }
                self.bytes.push(count);
                self.bytes.extend_from_slice(string);
            }
            Some(chunks) => {
                append(chunks, at, &[count]);
                append(chunks, at + 1, string);
            }
        }
        at
    }

    /// The string at this place.
    pub fn get(&self, at: usize) -> Cow<'_, [u8]> {
        let Some(chunks) = &self.chunks else {
            let len = usize::from(self.bytes[at]);
            return Cow::Borrowed(&self.bytes[at + 1..at + 1 + len]);
        };
        assert!(at < self.len, "the string exists");
        let mut chunk = bytes_of(chunks.get(at / CHUNK_BYTES));
        let mut from = at % CHUNK_BYTES;
        let len = usize::from(chunk[from]);
        from += 1;
        let mut string = Vec::with_capacity(len);
        for index in at / CHUNK_BYTES + 1.. {
            let part = &chunk[from..];
            string.extend_from_slice(&part[..part.len().min(len - string.len())]);
            if string.len() == len {
                break;
            }
            chunk = bytes_of(chunks.get(index));
            from = 0;
        }
        Cow::Owned(string)
    }

    /// Drops the strings from this place on.
    pub fn truncate(&mut self, at: usize) {
        if at < self.len {
            self.len = at;
            self.bytes.truncate(at);
            if let Some(chunks) = &mut self.chunks {
                chunks.truncate(at.div_ceil(CHUNK_BYTES));
            }
        }
    }

    /// Drops room for more strings.
    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// The memory that it holds, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.chunks.as_ref().map_or(0, RecordTable::memory_bytes)
    }
}

/// Puts bytes behind the first `at` ones.
fn append(chunks: &mut RecordTable<CHUNK_WORDS>, mut at: usize, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let from = at % CHUNK_BYTES;
        let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - from));
        let last = if from == 0 { None } else { chunks.last() };
        let mut chunk = bytes_of(last.unwrap_or_default());
        chunk[from..from + now.len()].copy_from_slice(now);
        match last {
            None => chunks.push(words_of(&chunk)),
            Some(_) => chunks.set_last(words_of(&chunk)),
        }
        at += now.len();
        bytes = later;
    }
}

fn bytes_of(words: [u32; CHUNK_WORDS]) -> [u8; CHUNK_BYTES] {
    let mut bytes = [0; CHUNK_BYTES];
    for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn words_of(bytes: &[u8; CHUNK_BYTES]) -> [u32; CHUNK_WORDS] {
    let mut words = [0; CHUNK_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    use testkit::{Rng, TempDir};

    use super::*;

    fn check(scratch: &Scratch) {
        let mut strings = Strings::new(scratch);
        let (mut must, mut rng) = (Vec::new(), Rng::new(3));
        for step in 0..20_000 {
            let len = rng.index(256);
            let string = rng.bytes(len);
            let at = strings.push(&string);
            must.push((at, string));
            if step % 1000 == 999 {
                let (end, _) = must[must.len() - 1 - rng.index(500)];
                strings.truncate(end);
                must.retain(|(at, _)| *at < end);
                assert_eq!(strings.len(), end);
            }
        }
        for (at, string) in &must {
            assert_eq!(*strings.get(*at), **string);
        }
        assert!(must.len() > 10_000);
    }

    #[test]
    fn strings_are_those_that_were_added() {
        check(&Scratch::memory());
        let dir = TempDir::new();
        check(&Scratch::in_dir(dir.path()).unwrap());
    }
}
