//! Tests of the LZO1X codec.

#[cfg(not(miri))] // it starts programs
mod differential;
mod examples;
mod optimal;
mod property;
mod vectors;

/// A small deterministic generator (xorshift64), so that every run sees the same cases.
pub struct Random(pub u64);

impl Random {
    /// The next number below `below`.
    pub fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below.max(1)
    }

    /// Content with repeats near and far, runs and noise, of up to `len_max` bytes.
    pub fn content(&mut self, len_max: usize) -> Vec<u8> {
        let target = self.below(len_max + 1);
        let alphabet = [1, 2, 4, 16, 256][self.below(5)];
        let mut content = Vec::with_capacity(target);
        while content.len() < target {
            let len = [
                1 + self.below(4),
                self.below(20),
                self.below(600),
                self.below(5000),
            ][self.below(4)];
            match self.below(4) {
                0 if !content.is_empty() => {
                    let reach = [4, 2048, 16384, 60000][self.below(4)];
                    let distance = 1 + self.below(content.len().min(reach));
                    for _ in 0..len {
                        content.push(content[content.len() - distance]);
                    }
                }
                1 => content.resize(content.len() + len, self.below(alphabet) as u8),
                _ => content.extend((0..len.min(40)).map(|_| self.below(alphabet) as u8)),
            }
        }
        content.truncate(target);
        content
    }
}

/// Encodes into a destination that suffices for anything.
pub fn pack(content: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; lzo::compressed_len_max(content.len())];
    let len = lzo::compress(&mut packed, content, &mut lzo::Workspace::new()).expect("it fits");
    packed.truncate(len);
    packed
}

/// Decodes into a destination of exactly `len` bytes.
pub fn unpack(packed: &[u8], len: usize) -> Result<Vec<u8>, lzo::Error> {
    let mut content = vec![0; len];
    let got = lzo::decompress(&mut content, packed)?;
    content.truncate(got);
    Ok(content)
}

/// Encodes at a level into a destination that suffices for anything; level 1 is the fast encoder.
pub fn pack_at(level: u8, content: &[u8]) -> Vec<u8> {
    if level == 1 {
        return pack(content);
    }
    let mut packed = vec![0; lzo::compressed_len_max(content.len())];
    let mut workspace = Box::new(lzo::OptimalWorkspace::new());
    let len = lzo::compress_optimal(&mut packed, content, level, &mut workspace);
    packed.truncate(len.expect("it fits"));
    packed
}
