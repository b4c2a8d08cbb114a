//! Asks for lines of the cache ahead of their use. Hints: nothing is read or written, any address will do, and other processors ignore them.

/// Asks for the line at `at`, to be read.
#[inline]
pub(crate) fn to_read<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and cannot fault, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for the line at `at`, to be written: others' copies of it go meanwhile, not when the writer waits for it.
///
/// The intrinsic with `_MM_HINT_ET0` becomes this instruction only where the compiler may assume it, which it may not here, and a plain prefetch
/// elsewhere. Processors that do not know it (before 2014) take it for a no-op.
#[inline]
pub(crate) fn to_write<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch writes nothing and cannot fault, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
