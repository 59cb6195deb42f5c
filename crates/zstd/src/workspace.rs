//! Carving a caller's memory into the parts that a codec needs.

// ---- reading (feature `decompress`) ----

// ---- writing (feature `compress`) ----

/// Cells of a table of numbers that lies in bytes of any alignment.
///
/// A workspace is plain bytes. Seen as `[[u8; 4]]`, it is a table of `u32` that needs neither an aligned start nor
/// unsafe code, and every load and store is still one instruction.
#[cfg(feature = "compress")]
pub(crate) trait Cells {
    /// The number in a cell.
    type Value;

    /// The number in cell `i`.
    fn at(&self, i: usize) -> Self::Value;

    /// Sets cell `i`.
    fn put(&mut self, i: usize, value: Self::Value);
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
        }
    )*};
}

#[cfg(feature = "compress")]
cells!(u16, u32, u64);

/// Takes parts off the front of a workspace, each of them cells of `N` bytes.
#[cfg(feature = "compress")]
pub(crate) struct Carver<'a> {
    rest: &'a mut [u8],
}

#[cfg(feature = "compress")]
impl<'a> Carver<'a> {
    /// Bytes that [`Carver::new`] may skip.
    pub(crate) const SLACK: usize = 63;

    /// Starts at the first cache line of `workspace`. That is for speed alone: nothing relies on it.
    pub(crate) fn new(workspace: &'a mut [u8]) -> Self {
        let skip = workspace
            .as_ptr()
            .align_offset(64)
            .min(workspace.len())
            .min(Self::SLACK);
        Carver {
            rest: &mut workspace[skip..],
        }
    }

    /// The next `count` cells.
    pub(crate) fn cells<const N: usize>(
        &mut self,
        count: usize,
    ) -> Result<&'a mut [[u8; N]], crate::Error> {
        let bytes = count
            .checked_mul(N)
            .ok_or(crate::Error::WorkspaceTooSmall)?;
        let rest = core::mem::take(&mut self.rest);
        let (part, rest) = rest
            .split_at_mut_checked(bytes)
            .ok_or(crate::Error::WorkspaceTooSmall)?;
        self.rest = rest;
        Ok(part.as_chunks_mut().0)
    }

    /// The next `COUNT` cells, where their number is known when compiling.
    pub(crate) fn array<const N: usize, const COUNT: usize>(
        &mut self,
    ) -> Result<&'a mut [[u8; N]; COUNT], crate::Error> {
        self.cells(COUNT)?
            .try_into()
            .map_err(|_| crate::Error::WorkspaceTooSmall)
    }
}
