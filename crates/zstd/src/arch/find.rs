//! Match finding without bounds checks.
//!
//! The search loops lie in `search`, which is compiled twice. Here its reads are not checked, see
//! [`super::access`], and the compiler uses BMI instructions where the machine has them. The safe
//! twin is `encode/finder/search`.
//!
//! Measured (128 KiB frames, level 1, mean of six corpora): see `docs/decisions/`.

#[cfg(target_arch = "x86_64")]
use super::bmi::has_bmi;
use super::search;
#[cfg(target_arch = "x86_64")]
use crate::ROOMY;
use crate::checked::{Checked, ensure};
use crate::encode::finder::index::{ChainCells, RowCells};
use crate::encode::store::SequenceStore;

/// Declares a kernel, and its twin with BMI for machines of which `$has_bmi` says so. If there is a
/// condition, the result is checked, and the body may rely on it.
macro_rules! kernel {
    (
        $(#[$doc:meta])* $name:ident, $bmi:ident if $has_bmi:ident,
        ($($arg:ident: $type:ty),* $(,)?) -> $result:ty $(where $condition:expr)?, $body:expr
    ) => {
        $(#[$doc])*
        pub(crate) fn $name($($arg: $type),*) -> $result {
            $(ensure!($condition);)?
            #[cfg(target_arch = "x86_64")]
            if $has_bmi() {
                // SAFETY: the machine has these instructions, as was just asked, and the condition
                // holds.
                return unsafe { $bmi($($arg),*) };
            }
            $body
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "bmi1,bmi2,lzcnt")]
        unsafe fn $bmi($($arg: $type),*) -> $result {
            $body
        }
    };
}
pub(super) use kernel;

kernel!(
    /// [`search::fast::find`].
    fast,
    fast_bmi if is_twice,
    (
        data: &[u8],
        positions: &mut [[u8; 4]],
        task: &search::fast::FastSearch,
        repeat: [u32; 3],
        store: &mut SequenceStore<'_>
    ) -> Checked<(usize, [usize; 3])>
    where task.fits(data),
    // SAFETY: the task fits, or else this is not called.
    unsafe { search::fast::find(data, positions, task, repeat, store) }
);

kernel!(
    /// [`search::double_fast::find`].
    double_fast,
    double_fast_bmi if is_twice,
    (
        data: &[u8],
        cells: &mut [[u8; 4]],
        task: &search::double_fast::DoubleFastSearch,
        repeat: [u32; 3],
        store: &mut SequenceStore<'_>
    ) -> Checked<(usize, [usize; 3])>
    where task.fits(data),
    // SAFETY: the task fits, or else this is not called.
    unsafe { search::double_fast::find(data, cells, task, repeat, store) }
);

kernel!(
    /// [`search::lazy::find`].
    lazy,
    lazy_bmi if is_twice,
    (
        data: &[u8],
        rows: RowCells<'_>,
        chains: ChainCells<'_>,
        task: &search::lazy::LazySearch,
        repeat: [u32; 3],
        store: &mut SequenceStore<'_>
    ) -> Checked<search::lazy::Found>
    where task.fits(data),
    // SAFETY: the task fits, or else this is not called.
    unsafe { search::lazy::find(data, rows, chains, task, repeat, store) }
);

kernel!(
    /// [`search::lazy::find_in_chains`].
    chained,
    chained_bmi if is_twice,
    (
        data: &[u8],
        chains: ChainCells<'_>,
        task: &search::lazy::LazySearch,
        repeat: [u32; 3],
        store: &mut SequenceStore<'_>
    ) -> Checked<search::lazy::Found>
    where task.fits(data),
    // SAFETY: the task fits, or else this is not called.
    unsafe { search::lazy::find_in_chains(data, chains, task, repeat, store) }
);

/// Whether searches have twins with BMI that this machine can run: where code is to be small, in a
/// kernel, they have none.
#[cfg(target_arch = "x86_64")]
#[inline]
fn is_twice() -> bool {
    ROOMY && has_bmi()
}
