//! Indexes of the encoder that the compiler cannot prove.
//!
//! They are right as long as nothing else writes to the workspace. A wrong one panics in user
//! space, where these functions are plain indexing. With the feature `no-panic` it is returned, and
//! the call ends with [`Error::Inconsistent`]. Both have one source: without the feature, [`Fault`]
//! has no value, and the compiler drops all that hands it on.

use crate::Error;
use core::ops::Range;
use core::slice::SliceIndex;

/// A wrong index.
#[derive(Debug)]
pub(crate) enum Fault {
    #[cfg(feature = "no-panic")]
    Index,
}

/// A value, if all indexes were right.
pub(crate) type Checked<T> = Result<T, Fault>;

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        match fault {
            #[cfg(feature = "no-panic")]
            Fault::Index => Error::Inconsistent,
        }
    }
}

/// An `Option`, or the expression that panics instead.
#[cfg(feature = "no-panic")]
macro_rules! checked {
    ($option:expr, $plain:expr) => {
        match $option {
            Some(value) => Ok(value),
            None => {
                crate::hint::cold_path();
                Err(Fault::Index)
            }
        }
    };
}
#[cfg(not(feature = "no-panic"))]
macro_rules! checked {
    ($option:expr, $plain:expr) => {
        Ok($plain)
    };
}

/// `assert!`, in a function whose result is checked. A macro, for loops to be compiled with the
/// same facts.
macro_rules! ensure {
    ($condition:expr) => {
        #[cfg(feature = "no-panic")]
        if !$condition {
            crate::hint::cold_path();
            return Err($crate::checked::Fault::Index);
        }
        #[cfg(not(feature = "no-panic"))]
        assert!($condition);
    };
}
pub(crate) use ensure;

/// The logarithm of a number above 0.
#[inline(always)]
pub(crate) const fn ilog2(number: u32) -> u32 {
    if cfg!(feature = "no-panic") {
        (number | 1).ilog2()
    } else {
        number.ilog2()
    }
}

/// Slices whose indexes are checked.
pub(crate) trait CheckedSlice<T> {
    /// An element or a range.
    fn checked<I: SliceIndex<[T]>>(&self, at: I) -> Checked<&I::Output>;

    /// The same, to be changed.
    fn checked_mut<I: SliceIndex<[T]>>(&mut self, at: I) -> Checked<&mut I::Output>;

    /// The elements before `at`, and the others.
    fn checked_split_mut(&mut self, at: usize) -> Checked<(&mut [T], &mut [T])>;

    /// Copies as many elements as there are.
    fn checked_copy(&mut self, from: &[T]) -> Checked<()>
    where
        T: Copy;

    /// Copies a range to the elements starting at `to`.
    fn checked_copy_within(&mut self, from: Range<usize>, to: usize) -> Checked<()>
    where
        T: Copy;
}

impl<T> CheckedSlice<T> for [T] {
    #[inline(always)]
    fn checked<I: SliceIndex<[T]>>(&self, at: I) -> Checked<&I::Output> {
        checked!(self.get(at), &self[at])
    }

    #[inline(always)]
    fn checked_mut<I: SliceIndex<[T]>>(&mut self, at: I) -> Checked<&mut I::Output> {
        checked!(self.get_mut(at), &mut self[at])
    }

    #[inline(always)]
    fn checked_split_mut(&mut self, at: usize) -> Checked<(&mut [T], &mut [T])> {
        checked!(self.split_at_mut_checked(at), self.split_at_mut(at))
    }

    #[inline(always)]
    fn checked_copy(&mut self, from: &[T]) -> Checked<()>
    where
        T: Copy,
    {
        checked!(
            (self.len() == from.len()).then(|| self.copy_from_slice(from)),
            self.copy_from_slice(from)
        )
    }

    #[inline(always)]
    fn checked_copy_within(&mut self, from: Range<usize>, to: usize) -> Checked<()>
    where
        T: Copy,
    {
        checked!(
            self.get(from.clone())
                .is_some_and(|part| to <= self.len() - part.len())
                .then(|| self.copy_within(from, to)),
            self.copy_within(from, to)
        )
    }
}
