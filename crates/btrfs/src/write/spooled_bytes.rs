//! A growing byte buffer: small ones stay in memory, large ones go to an unnamed temporary file.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tree::Result;

/// Bytes held in memory before they go to the file.
const MEMORY_BYTES: usize = 4 << 20;
/// Bytes that a reader buffers.
const WINDOW_BYTES: usize = 256 << 10;

/// Bytes that are appended in order and later read from any position.
#[derive(Debug)]
pub(crate) struct SpooledBytes {
    /// `None` if no file can be created: then everything stays in memory.
    file: Option<File>,
    /// Bytes in the file; those in memory follow.
    filed: u64,
    memory: Vec<u8>,
}

impl SpooledBytes {
    pub(crate) fn new(file: Option<File>) -> SpooledBytes {
        SpooledBytes {
            file,
            filed: 0,
            memory: Vec::new(),
        }
    }

    /// Number of bytes so far.
    pub(crate) fn len(&self) -> u64 {
        self.filed + self.memory.len() as u64
    }

    /// Appends bytes and returns where they start.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = self.len();
        if let Some(file) = &self.file
            && self.memory.len() + bytes.len() > MEMORY_BYTES
        {
            file.write_all_at(&self.memory, self.filed)?;
            self.filed += self.memory.len() as u64;
            self.memory.clear();
        }
        self.memory.extend_from_slice(bytes);
        Ok(at)
    }

    /// Truncates to `len` bytes.
    pub(crate) fn truncate(&mut self, len: u64) {
        match len.checked_sub(self.filed) {
            Some(left) => self.memory.truncate(left as usize),
            None => {
                self.memory.clear();
                self.filed = len;
            }
        }
    }

    pub(crate) fn reader(&self) -> SpooledReader<'_> {
        SpooledReader {
            spill: self,
            window: Vec::new(),
            window_at: 0,
        }
    }
}

/// Reads a [`SpooledBytes`]; fastest in order.
pub(crate) struct SpooledReader<'a> {
    spill: &'a SpooledBytes,
    window: Vec<u8>,
    window_at: u64,
}

impl SpooledReader<'_> {
    /// The `len` bytes starting at `at`, which must have been appended before.
    pub(crate) fn read(&mut self, at: u64, len: usize) -> Result<&[u8]> {
        let spill = self.spill;
        if let Some(from) = at.checked_sub(spill.filed) {
            return Ok(&spill.memory[from as usize..][..len]);
        }
        let end = at + len as u64;
        if at < self.window_at || end > self.window_at + self.window.len() as u64 {
            let wanted = (spill.len() - at).min(len.max(WINDOW_BYTES) as u64) as usize;
            let filed = wanted.min((spill.filed - at) as usize);
            self.window.resize(wanted, 0);
            self.window_at = at;
            if let Some(file) = &spill.file {
                file.read_exact_at(&mut self.window[..filed], at)?;
            }
            self.window[filed..].copy_from_slice(&spill.memory[..wanted - filed]);
        }
        Ok(&self.window[(at - self.window_at) as usize..][..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{Rng, TempDir};

    #[test]
    fn what_was_appended_is_read_back_from_memory_and_file() {
        let dir = TempDir::new();
        let path = dir.join("spill");
        let open = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path);
        for file in [None, Some(open.unwrap())] {
            let mut spill = SpooledBytes::new(file);
            let (mut rng, mut all) = (Rng::new(1), Vec::new());
            let mut parts = Vec::new();
            for round in 0..400 {
                let len = rng.index(60_000);
                let part = rng.bytes(len);
                parts.push((spill.append(&part).unwrap(), len));
                all.extend_from_slice(&part);
                if round % 50 == 49 {
                    let (at, _) = parts.pop().unwrap();
                    spill.truncate(at);
                    all.truncate(at as usize);
                }
            }
            assert_eq!(spill.len(), all.len() as u64);
            let mut reader = spill.reader();
            for &(at, len) in parts.iter().chain(parts.iter().rev()) {
                assert_eq!(reader.read(at, len).unwrap(), &all[at as usize..][..len]);
            }
        }
    }
}
