//! A file from which a patch is made.

use tree::ReadAt;

/// A raw LZ4 block: nothing at its beginning tells it from other bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lz4Block {
    /// Where it begins.
    pub at: u64,
    /// Its length.
    pub bytes: u32,
    /// The length of its content.
    pub content_bytes: u32,
}

/// A file from which a patch is made.
#[derive(Clone, Copy)]
pub struct DeltaInput<'a> {
    pub(crate) file: &'a dyn ReadAt,
    pub(crate) lz4: &'a [Lz4Block],
}

impl<'a> DeltaInput<'a> {
    /// A file whose blocks are found by their beginning.
    pub fn new(file: &'a dyn ReadAt) -> Self {
        DeltaInput { file, lz4: &[] }
    }

    /// Adds the LZ4 blocks of the file, in order.
    pub fn lz4(self, lz4: &'a [Lz4Block]) -> Self {
        DeltaInput { lz4, ..self }
    }
}
