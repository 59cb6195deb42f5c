//! Whether the processor has the instructions that the faster twins are built with.

#[cfg(feature = "assume-bmi")]
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether [`assume_bmi`] was called.
#[cfg(feature = "assume-bmi")]
static ASSUMED: AtomicBool = AtomicBool::new(false);

/// From now on, loops are used that need BMI1, BMI2 and LZCNT: integer instructions, which a kernel
/// may use anywhere.
///
/// For programs without the standard library, which finds out by itself.
///
/// # Safety
///
/// Every processor that the program runs on has these instructions.
#[cfg(feature = "assume-bmi")]
pub unsafe fn assume_bmi() {
    ASSUMED.store(true, Ordering::Relaxed);
}

#[cfg(all(target_arch = "x86_64", not(feature = "std")))]
#[inline(always)]
fn is_assumed() -> bool {
    #[cfg(feature = "assume-bmi")]
    return ASSUMED.load(Ordering::Relaxed);
    #[cfg(not(feature = "assume-bmi"))]
    false
}

/// Whether the processor has BMI1, BMI2 and LZCNT.
#[cfg(all(feature = "compress", target_arch = "x86_64"))]
#[inline]
pub(crate) fn has_bmi() -> bool {
    #[cfg(feature = "std")]
    return std::arch::is_x86_feature_detected!("bmi2")
        && std::arch::is_x86_feature_detected!("bmi1")
        && std::arch::is_x86_feature_detected!("lzcnt");
    #[cfg(not(feature = "std"))]
    return is_assumed()
        || cfg!(all(
            target_feature = "bmi1",
            target_feature = "bmi2",
            target_feature = "lzcnt"
        ));
}

/// Whether it also has AVX2, if this is built for vectors at all.
#[cfg(all(feature = "decompress", target_arch = "x86_64"))]
pub(super) fn is_haswell() -> bool {
    #[cfg(test)]
    if super::twin() == super::Twin::Plain {
        return false;
    }
    #[cfg(feature = "std")]
    return std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("bmi2")
        && std::is_x86_feature_detected!("lzcnt");
    #[cfg(not(feature = "std"))]
    return is_assumed() && cfg!(not(target_feature = "sse2"))
        || cfg!(all(
            target_feature = "avx2",
            target_feature = "bmi1",
            target_feature = "bmi2",
            target_feature = "lzcnt"
        ));
}
