//! The image in `testdata`, which needs no root to be read.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tree::ReadAt;

/// Bytes of a sector, and of a tree block.
pub(crate) const BLOCK: usize = 4096;

/// An image of which only the sectors are held that are not all zeros.
#[derive(Clone)]
pub(crate) struct Sparse {
    size: u64,
    pub(crate) blocks: Arc<BTreeMap<u64, [u8; BLOCK]>>,
    /// Sectors that are other than in `blocks`.
    pub(crate) changed: BTreeMap<u64, [u8; BLOCK]>,
}

impl Sparse {
    pub(crate) fn small() -> Sparse {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/small.zst");
        let frame = std::fs::read(path).unwrap();
        let mut bytes = vec![0; 1 << 20];
        let mut decoder = codec::Decoder::new();
        let len = decoder
            .decompress(codec::Codec::Zstd, &mut bytes, &frame)
            .unwrap();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let records = (8..len).step_by(8 + BLOCK);
        let block = |at: usize| (word(at), bytes[at + 8..at + 8 + BLOCK].try_into().unwrap());
        Sparse {
            size: word(0),
            blocks: Arc::new(records.map(block).collect()),
            changed: BTreeMap::new(),
        }
    }

    pub(crate) fn block(&self, at: u64) -> Option<&[u8; BLOCK]> {
        self.changed.get(&at).or_else(|| self.blocks.get(&at))
    }
}

impl ReadAt for Sparse {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        if at
            .checked_add(buf.len() as u64)
            .is_none_or(|end| end > self.size)
        {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while done < buf.len() {
            let place = at + done as u64;
            let skip = (place % BLOCK as u64) as usize;
            let len = (BLOCK - skip).min(buf.len() - done);
            let part = &mut buf[done..done + len];
            match self.block(place - skip as u64) {
                Some(block) => part.copy_from_slice(&block[skip..skip + len]),
                None => part.fill(0),
            }
            done += len;
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }
}
