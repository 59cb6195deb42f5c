//! Carving the memory that the caller gives.

/// Memory for a coder, aligned to a cache line. All bytes may be zero at the start, and anything
/// later.
///
/// The coders take any `&mut [u8]`, of any alignment; tables that begin on a cache line are a
/// little faster.
///
/// ```
/// use zstd::{DECOMPRESS_WORKSPACE_SIZE, Workspace};
/// static WORKSPACE: std::sync::Mutex<Workspace<DECOMPRESS_WORKSPACE_SIZE>> =
///     std::sync::Mutex::new(Workspace::new());
/// ```
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Workspace<const N: usize>(
    /// The bytes.
    pub [u8; N],
);

impl<const N: usize> Workspace<N> {
    /// Zeroed memory.
    pub const fn new() -> Workspace<N> {
        Workspace([0; N])
    }
}

impl<const N: usize> Default for Workspace<N> {
    fn default() -> Workspace<N> {
        Workspace::new()
    }
}

impl<const N: usize> AsMut<[u8]> for Workspace<N> {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl<const N: usize> core::ops::Deref for Workspace<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<const N: usize> core::ops::DerefMut for Workspace<N> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

// ---- reading (feature `decompress`) ----

#[cfg(feature = "decompress")]
mod read {
    use crate::{fse, huffman, sequences};

    /// The decoder's tables, in the caller's memory. No byte of them needs a value before it is
    /// used.
    pub(crate) struct DecoderTables<'w> {
        pub(crate) sequences: &'w mut [fse::Cell; sequences::CELLS],
        pub(crate) huffman: &'w mut [huffman::Cell; huffman::TABLE_CELLS],
        pub(crate) huffman_pairs: &'w mut [huffman::PairCell; huffman::TABLE_CELLS],
        pub(crate) weight_cells: &'w mut [fse::Cell; fse::WEIGHT_CELLS],
        pub(crate) weights: &'w mut [u8; huffman::SYMBOLS_MAX],
    }

    /// Bytes of [`DecoderTables`].
    pub(crate) const TABLES_SIZE: usize = size_of::<[fse::Cell; sequences::CELLS]>()
        + size_of::<[huffman::Cell; huffman::TABLE_CELLS]>()
        + size_of::<[huffman::PairCell; huffman::TABLE_CELLS]>()
        + size_of::<[fse::Cell; fse::WEIGHT_CELLS]>()
        + huffman::SYMBOLS_MAX;

    impl<'w> DecoderTables<'w> {
        /// Copies all tables.
        pub(crate) fn copy_from(&mut self, other: &DecoderTables<'_>) {
            self.sequences.copy_from_slice(other.sequences);
            self.huffman.copy_from_slice(other.huffman);
            self.huffman_pairs.copy_from_slice(other.huffman_pairs);
        }

        /// Takes the tables from the start of `bytes`; gives them and the rest, `None` if there are
        /// too few bytes.
        pub(crate) fn carve(bytes: &'w mut [u8]) -> Option<(DecoderTables<'w>, &'w mut [u8])> {
            let (sequences, bytes) = cells(bytes)?;
            let (huffman, bytes) = cells(bytes)?;
            let (huffman_pairs, bytes) = cells(bytes)?;
            let (weight_cells, bytes) = cells(bytes)?;
            let (weights, bytes) = bytes.split_first_chunk_mut()?;
            Some((
                DecoderTables {
                    sequences,
                    huffman,
                    huffman_pairs,
                    weight_cells,
                    weights,
                },
                bytes,
            ))
        }
    }

    /// Memory for the Huffman table of a dictionary.
    pub(crate) enum DictionaryCells<'t> {
        /// That of a decoder's tables.
        Tables(
            &'t mut [huffman::Cell; huffman::TABLE_CELLS],
            &'t mut [huffman::PairCell; huffman::TABLE_CELLS],
        ),
        /// For any table.
        Own(&'t mut [huffman::Cell; huffman::DICTIONARY_TABLE_CELLS]),
    }

    impl<'t> DictionaryCells<'t> {
        /// The cells of a table whose longest code has `log` bits.
        pub(crate) fn of(self, log: u32) -> &'t mut [huffman::Cell] {
            match self {
                DictionaryCells::Tables(_, pairs) if log > huffman::CODE_BITS_MAX => {
                    huffman::long_cells(pairs)
                }
                DictionaryCells::Tables(cells, _) => cells,
                DictionaryCells::Own(cells) => cells,
            }
        }
    }

    /// Splits `N` cells of `SIZE` bytes off.
    pub(crate) fn cells<const N: usize, const SIZE: usize>(
        bytes: &mut [u8],
    ) -> Option<(&mut [[u8; SIZE]; N], &mut [u8])> {
        let (cells, rest) = bytes.split_at_mut_checked(N * SIZE)?;
        Some((cells.as_chunks_mut().0.try_into().ok()?, rest))
    }
}
#[cfg(feature = "decompress")]
pub(crate) use read::{DecoderTables, DictionaryCells, TABLES_SIZE, cells};

// ---- writing (feature `compress`) ----

#[cfg(feature = "compress")]
use crate::checked::{Checked, CheckedSlice};

/// Cells of a table of numbers that lies in bytes of any alignment.
///
/// A workspace is plain bytes. Seen as `[[u8; 4]]`, it is a table of `u32` that needs neither an
/// aligned start nor unsafe code, and every load and store is still one instruction.
#[cfg(feature = "compress")]
pub(crate) trait Cells {
    /// The number in a cell.
    type Value;

    /// The number in cell `i`.
    fn at(&self, i: usize) -> Self::Value;

    /// Sets cell `i`.
    fn put(&mut self, i: usize, value: Self::Value);

    /// The number in cell `i`, where the compiler cannot prove that there is one.
    fn checked_at(&self, i: usize) -> Checked<Self::Value>;

    /// Sets cell `i`, where the compiler cannot prove that there is one.
    fn checked_put(&mut self, i: usize, value: Self::Value) -> Checked<()>;
}

#[cfg(feature = "compress")]
macro_rules! cells {
    ($($int:ty),*) => {$(
        impl Cells for [[u8; size_of::<$int>()]] {
            type Value = $int;

            #[inline(always)]
            fn at(&self, i: usize) -> $int {
                <$int>::from_ne_bytes(self[i])
            }

            #[inline(always)]
            fn put(&mut self, i: usize, value: $int) {
                self[i] = value.to_ne_bytes();
            }

            #[inline(always)]
            fn checked_at(&self, i: usize) -> Checked<$int> {
                Ok(<$int>::from_ne_bytes(*self.checked(i)?))
            }

            #[inline(always)]
            fn checked_put(&mut self, i: usize, value: $int) -> Checked<()> {
                *self.checked_mut(i)? = value.to_ne_bytes();
                Ok(())
            }
        }
    )*};
}

#[cfg(feature = "compress")]
cells!(u16, u32, u64);

/// Scratch memory: four counts of bytes, or the tables that sequences are written with.
#[cfg(feature = "compress")]
pub(crate) type Scratch = [[u8; 4]; 1152];

#[cfg(feature = "compress")]
pub(crate) mod sealed {
    /// Memory that is not changed or moved to another alignment while a coder has it: tables keep
    /// their values from frame to frame. Hence the trait is sealed.
    pub trait WorkspaceMemory {
        /// The bytes.
        fn bytes(&mut self) -> &mut [u8];

        /// The same, to be read.
        fn as_bytes(&self) -> &[u8];
    }

    impl WorkspaceMemory for &mut [u8] {
        fn bytes(&mut self) -> &mut [u8] {
            self
        }

        fn as_bytes(&self) -> &[u8] {
            self
        }
    }

    impl<const N: usize> WorkspaceMemory for crate::Workspace<N> {
        fn bytes(&mut self) -> &mut [u8] {
            self
        }

        fn as_bytes(&self) -> &[u8] {
            self
        }
    }

    #[cfg(feature = "alloc")]
    impl WorkspaceMemory for alloc::vec::Vec<u8> {
        fn bytes(&mut self) -> &mut [u8] {
            self
        }

        fn as_bytes(&self) -> &[u8] {
            self
        }
    }

    #[cfg(feature = "alloc")]
    impl WorkspaceMemory for alloc::boxed::Box<[u8]> {
        fn bytes(&mut self) -> &mut [u8] {
            self
        }

        fn as_bytes(&self) -> &[u8] {
            self
        }
    }
}

/// Takes parts off the start of a workspace, each of them cells of `N` bytes.
#[cfg(feature = "compress")]
pub(crate) struct Carver<'a> {
    rest: &'a mut [u8],
}

#[cfg(feature = "compress")]
impl<'a> Carver<'a> {
    /// Bytes that [`Carver::new`] may skip.
    pub(crate) const SLACK: usize = 63;

    /// Starts at the first cache line of `workspace`, from where on there are `bytes`: all that
    /// will be taken. There must be [`SLACK`](Self::SLACK) bytes more, wherever the workspace
    /// begins, so that its size alone decides. The cache line is for speed: nothing relies on it.
    pub(crate) fn new(workspace: &'a mut [u8], bytes: usize) -> Result<Self, crate::Error> {
        let is_large = workspace.len().checked_sub(Self::SLACK) >= Some(bytes);
        match workspace.get_mut(Self::skip(workspace)..) {
            Some(rest) if is_large => Ok(Carver { rest }),
            _ => Err(crate::Error::WorkspaceTooSmall),
        }
    }

    /// Where the first cache line of `workspace` begins.
    fn skip(workspace: &[u8]) -> usize {
        workspace.as_ptr().align_offset(64).min(Self::SLACK)
    }

    /// The `bytes` that [`Carver::new`] starts from.
    pub(crate) fn part(workspace: &[u8], bytes: usize) -> Result<&[u8], crate::Error> {
        let part = workspace.get(Self::skip(workspace)..);
        let part = part.and_then(|rest| rest.get(..bytes));
        part.ok_or(crate::Error::WorkspaceTooSmall)
    }

    /// Takes all from the first byte on.
    pub(crate) fn over(bytes: &'a mut [u8]) -> Self {
        Carver { rest: bytes }
    }

    /// The next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Checked<&'a mut [u8]> {
        let (part, rest) = core::mem::take(&mut self.rest).checked_split_mut(count)?;
        self.rest = rest;
        Ok(part)
    }

    /// The next `count` cells.
    pub(crate) fn cells<const N: usize>(&mut self, count: usize) -> Checked<&'a mut [[u8; N]]> {
        Ok(self.bytes(N * count)?.as_chunks_mut().0)
    }

    /// The next `COUNT` cells, where their number is known when compiling.
    pub(crate) fn array<const N: usize, const COUNT: usize>(
        &mut self,
    ) -> Checked<&'a mut [[u8; N]; COUNT]> {
        let cells = self.cells(COUNT)?.try_into();
        Ok(cells.expect("as many cells were taken"))
    }
}
