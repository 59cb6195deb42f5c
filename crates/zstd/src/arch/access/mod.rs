//! Unchecked access of the search loops to data and tables.
//!
//! Tables, rows and chains find their cells themselves, from a hash or by a mask, so that no value
//! leads out of them. Whether a position lies in the data depends on the loop: methods that take
//! one are `unsafe`, and each call in `search` proves it valid. The safe twin is
//! `encode/finder/access.rs`.

#![cfg_attr(
    not(feature = "no-panic"),
    expect(
        clippy::unnecessary_wraps,
        reason = "with the feature there are errors"
    )
)]

mod memory;
mod store;
mod tables;

pub(crate) use memory::{IndexedBytes, MatchTail};
pub(crate) use store::Store;
pub(crate) use tables::{ChainLinks, PositionTable, TaggedRows};

/// Defines a function that returns its argument.
macro_rules! opaque {
    ($(#[$doc:meta])* $visibility:vis $name:ident: $type:ty) => {
        $(#[$doc])*
        #[inline(always)]
        #[allow(clippy::pointers_in_nomem_asm_block, reason = "no address is followed")]
        $visibility fn $name(value: $type) -> $type {
            // Where the compiler takes assembly at all.
            #[cfg(all(
                not(miri),
                any(
                    target_arch = "x86_64",
                    target_arch = "x86",
                    target_arch = "aarch64",
                    target_arch = "arm",
                    target_arch = "riscv64",
                    target_arch = "riscv32",
                    target_arch = "loongarch64",
                    target_arch = "s390x"
                )
            ))]
            let value = {
                let same;
                // SAFETY: no instruction at all.
                unsafe {
                    core::arch::asm!(
                        "/* {0} */",
                        inout(reg) value => same,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
                same
            };
            value
        }
    };
}

opaque!(
    /// `value`, of which the compiler does not see where it comes from: else it keeps every sum
    /// with a loop's counter in a register of its own, of which there are too few.
    pub(crate) opaque: usize
);

opaque!(
    /// The same for an address.
    opaque_place: *const u8
);

/// The same for a word, where registers are as long.
#[inline(always)]
pub(crate) fn opaque_word(value: u64) -> u64 {
    if cfg!(target_pointer_width = "64") {
        opaque(value as usize) as u64
    } else {
        value
    }
}
