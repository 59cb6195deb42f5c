//! An image in memory whose reads are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tree::ReadAt;

/// Bytes in memory, and how often they were read.
pub struct CountedBytes(pub Vec<u8>, pub Arc<AtomicU64>);

impl ReadAt for CountedBytes {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> std::io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_exact_at(buf, at)
    }

    fn size(&self) -> std::io::Result<u64> {
        Ok(self.0.len() as u64)
    }
}
