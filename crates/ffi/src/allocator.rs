//! Contexts and dictionaries in memory that functions of the caller give.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use crate::memory::{place, with};

/// `zstd_custom_mem`: functions that give memory and take it back. Without both of them there is no
/// memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CustomMem {
    /// Returns memory of this size in bytes, or NULL.
    pub alloc: Option<unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void>,
    /// Frees memory that `alloc` returned.
    pub free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    /// The first argument of both.
    pub opaque: *mut c_void,
}

impl CustomMem {
    /// A block of `size` bytes. `None` if there is none, or if a function is missing.
    ///
    /// # Safety
    ///
    /// Memory that `alloc` returns has as many bytes as requested, which no other code uses until
    /// `free` gets it.
    // Calls the caller's function, here alone, as the kernel modules' check of stacks wants it.
    #[inline(never)]
    pub(crate) unsafe fn block(&self, size: usize) -> Option<AllocatedBytes> {
        let (alloc, _) = self.alloc.zip(self.free)?;
        // SAFETY: these are the arguments that it is declared with.
        let start = unsafe { alloc(self.opaque, size) };
        (!start.is_null()).then_some(AllocatedBytes {
            owner: *self,
            start,
            size,
        })
    }
}

/// Bytes that `alloc` gave.
pub(crate) struct AllocatedBytes {
    owner: CustomMem,
    start: *mut c_void,
    size: usize,
}

impl AllocatedBytes {
    /// The place for a `T`, and the memory behind it.
    ///
    /// # Safety
    ///
    /// No other code uses the block while the results are used.
    pub(crate) unsafe fn place<T>(
        &self,
    ) -> Option<(&'static mut MaybeUninit<T>, &'static mut [u8])> {
        // SAFETY: the memory has this size, and the caller promises the rest.
        unsafe { place(self.start, self.size) }
    }

    /// Gives the bytes back.
    ///
    /// # Safety
    ///
    /// Nothing in the block is used any more.
    #[inline(never)]
    pub(crate) unsafe fn free(self) {
        if let Some(free) = self.owner.free {
            // SAFETY: these are the arguments that it is declared with; `alloc` gave the block, and
            // it is given back once.
            unsafe { free(self.owner.opaque, self.start) };
        }
    }

    /// More bytes of the same allocator.
    ///
    /// # Safety
    ///
    /// As for [`CustomMem::block`].
    pub(crate) unsafe fn another(&self, size: usize) -> Option<AllocatedBytes> {
        // SAFETY: the caller promises it.
        unsafe { self.owner.block(size) }
    }

    /// All bytes.
    ///
    /// # Safety
    ///
    /// As for [`place`](Self::place).
    pub(crate) unsafe fn bytes(&self) -> Option<&'static mut [u8]> {
        // SAFETY: the caller promises it.
        unsafe { crate::memory::bytes_mut(self.start, self.size) }
    }
}

/// A `T` at the start of a block of its own, with `bytes` of memory behind it, made by `make` at
/// its place and of that memory.
///
/// # Safety
///
/// As for [`CustomMem::block`].
pub(crate) unsafe fn create<T>(
    custom: &CustomMem,
    bytes: usize,
    make: impl FnOnce(&'static mut MaybeUninit<T>, &'static mut [u8]) -> Option<&'static mut T>,
    owner: impl FnOnce(&mut T, AllocatedBytes),
) -> Option<&'static mut T> {
    // SAFETY: the caller promises it.
    let block = unsafe { custom.block(with::<T>(bytes)) }?;
    // SAFETY: it was just given.
    let placed = unsafe { block.place::<T>() };
    match placed.and_then(|(place, memory)| make(place, memory)) {
        Some(made) => {
            owner(made, block);
            Some(made)
        }
        None => {
            // SAFETY: nothing was made in it.
            unsafe { block.free() };
            None
        }
    }
}
