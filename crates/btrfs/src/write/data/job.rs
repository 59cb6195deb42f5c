//! The jobs of the workers, and their results.

use tree::{Encoding, Error, Extent, ExtentId, FileId, KeptCount, Result};

/// Bytes of content in one compressed extent, and in one job.
pub(super) const PIECE_BYTES: u64 = 128 << 10;

/// A job for a worker.
pub(super) enum DataJob {
    /// Files that may be small enough to store inline.
    Small(Vec<FileId>),
    /// A part of a file: `len` bytes, starting at a sector boundary.
    Piece {
        file: FileId,
        offset: u64,
        len: usize,
        /// Whether other files may refer to it.
        is_numbered: bool,
    },
    /// A compressed extent of the source that nothing has referred to yet.
    Keep {
        file: FileId,
        extent: Extent,
        stored: Encoding,
        is_numbered: bool,
    },
    /// Nothing for a worker to do.
    Pass(FileStep),
}

impl DataJob {
    /// Where it begins in its file.
    pub(super) fn offset(&self) -> u64 {
        match self {
            DataJob::Piece { offset, .. }
            | DataJob::Pass(FileStep::Shared { offset, .. } | FileStep::Reserve { offset, .. }) => {
                *offset
            }
            DataJob::Keep { extent, .. } => extent.offset,
            DataJob::Small(_) | DataJob::Pass(_) => 0,
        }
    }
}

/// A step for a file that needs no work on its content.
pub(super) enum FileStep {
    /// A part that refers to a numbered part or a kept extent, starting at `skip`.
    Shared {
        file: FileId,
        offset: u64,
        len: u64,
        number: u32,
        skip: u32,
    },
    /// A preallocated part, starting at `at` in the space that the source reserved.
    Reserve {
        file: FileId,
        offset: u64,
        len: u64,
        id: ExtentId,
        at: u64,
    },
    /// A small file that refers to the same stored bytes as another one.
    Same { file: FileId, original: FileId },
    /// The source cannot tell where the file's data is.
    Unreadable { file: FileId, error: Error },
    /// All parts of the file are done.
    End(FileId),
}

/// The result of a job.
pub(super) enum DataResult {
    Small(Vec<(FileId, Result<SmallContent>)>),
    Piece {
        file: FileId,
        offset: u64,
        len: u64,
        is_numbered: bool,
        piece: Result<UnplacedExtent>,
    },
    Pass(FileStep),
}

/// The encoded content of a small file.
pub(super) enum SmallContent {
    Hole,
    /// Preallocated: this sector of the space that the source reserved.
    Reserved {
        id: ExtentId,
        at: u64,
    },
    Inline {
        bytes: Vec<u8>,
        compression: u8,
        /// It is stored exactly as in the old image.
        is_reused: bool,
    },
    Extent(UnplacedExtent),
}

/// An extent that has no place yet.
#[derive(Default)]
pub(super) struct UnplacedExtent {
    /// The extent is the start of the buffer.
    pub(super) buffer: Vec<u8>,
    pub(super) len: usize,
    pub(super) ram: u64,
    /// Offset of the file's part in the decoded data.
    pub(super) skip: u32,
    pub(super) compression: u8,
    /// Empty for a file without checksums.
    pub(super) sums: Vec<u8>,
    /// It is stored exactly as in the source.
    pub(super) kept: KeptCount,
    /// It is stored exactly as in the old image.
    pub(super) is_reused: bool,
    /// Preallocated: the buffer is empty, and nothing is written.
    pub(super) is_reserved: bool,
}

impl UnplacedExtent {
    /// A preallocated extent.
    pub(super) fn reserved(len: u64) -> UnplacedExtent {
        UnplacedExtent {
            len: len as usize,
            ram: len,
            is_reserved: true,
            ..UnplacedExtent::default()
        }
    }
}
