//! Memory that C gives: bytes, and a value at the start of a workspace.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::slice;

/// More bytes than one object has: there is no such memory.
const SIZE_MAX: usize = isize::MAX as usize;

/// The bytes at `start`. `None` if `size` is more than an object can have, or if `start` is NULL
/// and `size` is not 0.
///
/// # Safety
///
/// There are `size` bytes at `start` that no code writes to while the result is used, unless
/// `start` is NULL or `size` 0.
pub(crate) unsafe fn bytes<'a>(start: *const c_void, size: usize) -> Option<&'a [u8]> {
    if size == 0 {
        return Some(&[]);
    }
    if start.is_null() || size > SIZE_MAX {
        return None;
    }
    // SAFETY: `start` is not NULL, `u8` has no alignment, `size` is at most `isize::MAX`, and the
    // caller promises the rest.
    Some(unsafe { slice::from_raw_parts(start.cast(), size) })
}

/// The bytes at `start`, to be written. `None` as in [`bytes`]. Their initial values have no
/// meaning.
///
/// # Safety
///
/// There are `size` bytes at `start` that no other code uses while the result is used, unless
/// `start` is NULL or `size` 0.
pub(crate) unsafe fn bytes_mut<'a>(start: *mut c_void, size: usize) -> Option<&'a mut [u8]> {
    if size == 0 {
        return Some(&mut []);
    }
    if start.is_null() || size > SIZE_MAX {
        return None;
    }
    // SAFETY: as in `bytes`; each bit pattern is a `u8`.
    Some(unsafe { slice::from_raw_parts_mut(start.cast(), size) })
}

/// Bytes of workspace for a `T` with `bytes` of memory, wherever the workspace begins.
pub(crate) const fn with<T>(bytes: usize) -> usize {
    bytes.saturating_add(size_of::<T>() + align_of::<T>() - 1)
}

/// The place for a `T` at the start of a workspace, and the memory behind it. `None` if the
/// workspace is NULL or too small.
///
/// # Safety
///
/// There are `size` bytes at `workspace` that no other code uses while the results are used, unless
/// `workspace` is NULL.
pub(crate) unsafe fn place<T>(
    workspace: *mut c_void,
    size: usize,
) -> Option<(&'static mut MaybeUninit<T>, &'static mut [u8])> {
    // SAFETY: the caller promises it.
    let bytes = unsafe { bytes_mut(workspace, size) }?;
    let skipped = bytes.as_ptr().align_offset(align_of::<T>());
    let (place, memory) = bytes
        .get_mut(skipped..)?
        .split_at_mut_checked(size_of::<T>())?;
    let place = place.as_mut_ptr().cast::<MaybeUninit<T>>();
    // SAFETY: it has the size of a `T` and its alignment, no other reference to it exists, and it
    // need not be initialised.
    Some((unsafe { &mut *place }, memory))
}

/// The memory of a context, which its coders use in turn.
pub(crate) struct ContextMemory {
    start: *mut u8,
    size: usize,
}

impl ContextMemory {
    pub(crate) fn new(bytes: &'static mut [u8]) -> ContextMemory {
        ContextMemory {
            size: bytes.len(),
            start: bytes.as_mut_ptr(),
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// All of it.
    ///
    /// # Safety
    ///
    /// Bytes lent before are not used any more.
    pub(crate) unsafe fn lend(&mut self) -> &'static mut [u8] {
        // SAFETY: these are the bytes that `new` was given for good, and the caller promises that
        // no other code uses them.
        unsafe { slice::from_raw_parts_mut(self.start, self.size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_placed_wherever_the_workspace_begins() {
        let mut workspace = [0_u8; 64];
        for skipped in 0..8 {
            for size in 0..=with::<u64>(3) {
                let start = workspace[skipped..].as_mut_ptr().cast();
                // SAFETY: these are 15 of 64 bytes at most, from one of the first eight on.
                let placed = unsafe { place::<u64>(start, size) };
                let Some((place, memory)) = placed else {
                    assert!(size < with::<u64>(0), "{size} bytes at {skipped}");
                    continue;
                };
                assert!(place.as_ptr().is_aligned());
                assert!(size < with::<u64>(3) || memory.len() >= 3);
                assert!(memory.len() + size_of::<u64>() <= size);
            }
        }
        // SAFETY: NULL is allowed.
        assert!(unsafe { place::<u64>(core::ptr::null_mut(), 100) }.is_none());
    }

    #[test]
    fn no_bytes_are_at_null() {
        // SAFETY: NULL is allowed, and no object has more than `isize::MAX` bytes.
        unsafe {
            assert_eq!(bytes(core::ptr::null(), 0), Some(&[][..]));
        }
        // SAFETY: as above.
        assert_eq!(unsafe { bytes(core::ptr::null(), 1) }, None);
        // SAFETY: as above.
        assert_eq!(unsafe { bytes([0_u8].as_ptr().cast(), usize::MAX) }, None);
    }
}
