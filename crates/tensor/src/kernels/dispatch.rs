//! Picks, once per process, the widest instructions that this CPU has, and runs loops compiled for them.
//!
//! `SYNCLINE_SIMD=baseline|avx2|avx512` asks for a level, read when the first kernel runs. A level that the CPU lacks
//! gives the best one below it; any other value is ignored, as if the variable were not set.

use std::fmt;
use std::sync::OnceLock;

use half::f16;

use super::half_bits;

/// A set of instructions that kernels are compiled for and that this CPU has.
///
/// Only levels found on this CPU can be had, so holding one is the proof that its code may run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimdLevel(Level);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Level {
    /// What every CPU of this architecture has: SSE2 on x86-64, NEON on aarch64.
    Baseline,
    /// AVX2 with F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// The level that kernels use in this process.
///
/// ```
/// let level = syncline_tensor::kernels::simd_level();
/// assert!(["baseline", "avx2", "avx512"].contains(&level.name()));
/// ```
pub fn simd_level() -> SimdLevel {
    static CHOSEN: OnceLock<SimdLevel> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let request = std::env::var("SYNCLINE_SIMD").ok();
        choose(request.as_deref(), &SimdLevel::available())
    })
}

/// The best of `available` (ascending, never empty) that does not exceed what was requested by name.
fn choose(request: Option<&str>, available: &[SimdLevel]) -> SimdLevel {
    const NAMES: [&str; 3] = ["baseline", "avx2", "avx512"];
    let ceiling = request.and_then(|name| NAMES.iter().position(|known| *known == name));
    let allowed = ceiling.unwrap_or(NAMES.len());
    let rank = |level: &SimdLevel| NAMES.iter().position(|known| *known == level.name());
    let within = available.iter().rev().find(|level| rank(level) <= Some(allowed));
    *within.unwrap_or(&available[0])
}

impl SimdLevel {
    /// What every CPU of this architecture has.
    pub const BASELINE: SimdLevel = SimdLevel(Level::Baseline);

    /// Every level of this CPU, the baseline first and the widest last.
    pub fn available() -> Vec<SimdLevel> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "only x86-64 has levels to add"))]
        let mut levels = vec![SimdLevel::BASELINE];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            levels.extend(avx2.then_some(SimdLevel(Level::Avx2)));
            levels.extend((avx2 && avx512).then_some(SimdLevel(Level::Avx512)));
        }
        levels
    }

    /// The name that `SYNCLINE_SIMD` knows it by.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Baseline => "baseline",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
        }
    }

    /// Runs the copy of another crate's loop that was compiled for this level.
    #[inline]
    pub fn run_loop<L: Loop>(self, work: L) {
        self.run(Foreign(work));
    }

    /// Runs the copy of `work` that was compiled for this level.
    #[inline]
    #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls code for instructions found at run time"))]
    pub(crate) fn run<W: Work>(self, work: W) {
        match self.0 {
            Level::Baseline => work.run(Baseline(())),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `available` is the only place that makes this level, after finding AVX2 and F16C on this CPU.
            Level::Avx2 => unsafe { x86::run_avx2(work) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `available` is the only place that makes this level, after finding AVX-512 F, BW, DQ and VL
            // as well as AVX2 and F16C on this CPU.
            Level::Avx512 => unsafe { x86::run_avx512(work) },
        }
    }
}

impl fmt::Display for SimdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for SimdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A loop over numbers, compiled once per level.
///
/// `run` and all that it calls per number must be `#[inline(always)]`: what is not inlined into the level's
/// function is compiled for the baseline.
pub(crate) trait Work {
    /// Does the work; `isa` is the proof of, and the door to, instructions that the compiler would not pick itself.
    fn run<I: Isa>(self, isa: I);
}

/// A loop of another crate over plain numbers, compiled once per level.
///
/// `run` and all that it calls per number must be `#[inline(always)]`, as for the kernels here.
///
/// ```
/// use syncline_tensor::kernels::{Loop, simd_level};
///
/// struct Square<'a>(&'a mut [f32]);
///
/// impl Loop for Square<'_> {
///     #[inline(always)]
///     fn run(self) {
///         self.0.iter_mut().for_each(|number| *number *= *number);
///     }
/// }
///
/// let mut numbers = [1.0, 2.0, 3.0];
/// simd_level().run_loop(Square(&mut numbers));
/// assert_eq!(numbers, [1.0, 4.0, 9.0]);
/// ```
pub trait Loop {
    /// Does the work.
    fn run(self);
}

struct Foreign<L>(L);

impl<L: Loop> Work for Foreign<L> {
    #[inline(always)]
    fn run<I: Isa>(self, _: I) {
        self.0.run();
    }
}

/// A line of the cache: written in full, it can go to memory in one piece.
#[repr(C, align(64))]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct Line(pub(crate) [u8; Line::BYTES]);

impl Line {
    pub(crate) const BYTES: usize = 64;
}

/// Orders streamed lines before whatever is stored next, as plain stores would be.
#[inline]
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    x86::fence();
}

/// What has instructions of its own at some levels: conversions, where slices are of equal length, and words to the cache.
pub(crate) trait Isa: Copy {
    /// Overwrites a line in memory without fetching it into the cache. A [`fence`] comes after the last one.
    #[inline(always)]
    fn stream(self, to: &mut Line, from: &[u8; Line::BYTES]) {
        #[cfg(target_arch = "x86_64")]
        x86::stream_by_16(to, from);
        #[cfg(not(target_arch = "x86_64"))]
        {
            to.0 = *from;
        }
    }

    /// Asks for the line of `numbers[index]` ahead of its use; the index may lie behind the end.
    #[inline(always)]
    fn ask_for<T>(self, numbers: &[T], index: usize) {
        #[cfg(target_arch = "x86_64")]
        x86::prefetch(numbers.as_ptr().wrapping_add(index));
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (numbers, index);
    }

    /// Widens exactly; signalling NaNs become quiet.
    #[inline(always)]
    fn widen_f16(self, src: &[f16], dst: &mut [f32]) {
        for (wide, half) in dst.iter_mut().zip(src) {
            *wide = half_bits::f16_to_f32(*half);
        }
    }

    /// Rounds to nearest even; signalling NaNs become quiet.
    #[inline(always)]
    fn narrow_f16(self, src: &[f32], dst: &mut [f16]) {
        for (half, wide) in dst.iter_mut().zip(src) {
            *half = half_bits::f32_to_f16(*wide);
        }
    }
}

#[derive(Clone, Copy)]
struct Baseline(());

impl Isa for Baseline {}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! The wider copies, and F16C, which the compiler does not use by itself.
    #![expect(unsafe_code, reason = "intrinsics that load and store through pointers")]

    use std::arch::x86_64::*;

    use half::f16;

    use super::super::half_bits;
    use super::{Isa, Line, Work};

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn run_avx2<W: Work>(work: W) {
        work.run(Avx2(()));
    }

    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn run_avx512<W: Work>(work: W) {
        work.run(Avx512(()));
    }

    /// Made only in `run_avx2`, so whoever holds one runs on a CPU with AVX2 and F16C.
    #[derive(Clone, Copy)]
    pub(super) struct Avx2(());

    /// Made only in `run_avx512`, so whoever holds one runs on a CPU with AVX-512 F and what `Avx2` promises.
    #[derive(Clone, Copy)]
    pub(super) struct Avx512(());

    impl Isa for Avx2 {
        #[inline(always)]
        fn stream(self, to: &mut Line, from: &[u8; Line::BYTES]) {
            // SAFETY: `self` exists, so this CPU has AVX2.
            unsafe { stream_by_32(to, from) }
        }

        #[inline(always)]
        fn widen_f16(self, src: &[f16], dst: &mut [f32]) {
            // SAFETY: `self` exists, so this CPU has F16C.
            unsafe { widen_by_8(src, dst) }
        }

        #[inline(always)]
        fn narrow_f16(self, src: &[f32], dst: &mut [f16]) {
            // SAFETY: `self` exists, so this CPU has F16C.
            unsafe { narrow_by_8(src, dst) }
        }
    }

    impl Isa for Avx512 {
        #[inline(always)]
        fn stream(self, to: &mut Line, from: &[u8; Line::BYTES]) {
            // SAFETY: `self` exists, so this CPU has AVX-512 F.
            unsafe { stream_by_64(to, from) }
        }

        #[inline(always)]
        fn widen_f16(self, src: &[f16], dst: &mut [f32]) {
            // SAFETY: `self` exists, so this CPU has AVX-512 F.
            unsafe { widen_by_16(src, dst) }
        }

        #[inline(always)]
        fn narrow_f16(self, src: &[f32], dst: &mut [f16]) {
            // SAFETY: `self` exists, so this CPU has AVX-512 F.
            unsafe { narrow_by_16(src, dst) }
        }
    }

    #[inline(always)]
    pub(super) fn stream_by_16(to: &mut Line, from: &[u8; Line::BYTES]) {
        let (to, from) = (to.0.as_mut_ptr().cast::<__m128i>(), from.as_ptr().cast::<__m128i>());
        for part in 0..4 {
            // SAFETY: four times 16 bytes are the 64 of either side; a `Line` is aligned, and the load needs no alignment.
            unsafe { _mm_stream_si128(to.add(part), _mm_loadu_si128(from.add(part))) };
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn stream_by_32(to: &mut Line, from: &[u8; Line::BYTES]) {
        let (to, from) = (to.0.as_mut_ptr().cast::<__m256i>(), from.as_ptr().cast::<__m256i>());
        for part in 0..2 {
            // SAFETY: twice 32 bytes are the 64 of either side; a `Line` is aligned, and the load needs no alignment.
            unsafe { _mm256_stream_si256(to.add(part), _mm256_loadu_si256(from.add(part))) };
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn stream_by_64(to: &mut Line, from: &[u8; Line::BYTES]) {
        // SAFETY: both sides are 64 bytes; a `Line` is aligned, and the load needs no alignment.
        unsafe { _mm512_stream_si512(to.0.as_mut_ptr().cast(), _mm512_loadu_si512(from.as_ptr().cast())) };
    }

    #[inline(always)]
    pub(super) fn fence() {
        // SAFETY: an instruction of every x86-64.
        unsafe { _mm_sfence() };
    }

    #[inline(always)]
    pub(super) fn prefetch<T>(at: *const T) {
        // SAFETY: a prefetch reads nothing and cannot fault, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn widen_by_8(src: &[f16], dst: &mut [f32]) {
        let (src, src_tail) = src.as_chunks::<8>();
        let (dst, dst_tail) = dst.as_chunks_mut::<8>();
        for (wide, half) in dst.iter_mut().zip(src) {
            // SAFETY: both point at eight numbers, 16 and 32 bytes, and neither access needs alignment.
            unsafe { _mm256_storeu_ps(wide.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(half.as_ptr().cast()))) };
        }
        widen_each(src_tail, dst_tail);
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn narrow_by_8(src: &[f32], dst: &mut [f16]) {
        let (src, src_tail) = src.as_chunks::<8>();
        let (dst, dst_tail) = dst.as_chunks_mut::<8>();
        for (half, wide) in dst.iter_mut().zip(src) {
            // SAFETY: both point at eight numbers, 32 and 16 bytes, and neither access needs alignment.
            unsafe {
                let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(wide.as_ptr()));
                _mm_storeu_si128(half.as_mut_ptr().cast(), rounded);
            }
        }
        narrow_each(src_tail, dst_tail);
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn widen_by_16(src: &[f16], dst: &mut [f32]) {
        let (src, src_tail) = src.as_chunks::<16>();
        let (dst, dst_tail) = dst.as_chunks_mut::<16>();
        for (wide, half) in dst.iter_mut().zip(src) {
            // SAFETY: both point at sixteen numbers, 32 and 64 bytes, and neither access needs alignment.
            unsafe { _mm512_storeu_ps(wide.as_mut_ptr(), _mm512_cvtph_ps(_mm256_loadu_si256(half.as_ptr().cast()))) };
        }
        widen_each(src_tail, dst_tail);
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn narrow_by_16(src: &[f32], dst: &mut [f16]) {
        let (src, src_tail) = src.as_chunks::<16>();
        let (dst, dst_tail) = dst.as_chunks_mut::<16>();
        for (half, wide) in dst.iter_mut().zip(src) {
            // SAFETY: both point at sixteen numbers, 64 and 32 bytes, and neither access needs alignment.
            unsafe {
                let rounded = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_loadu_ps(wide.as_ptr()));
                _mm256_storeu_si256(half.as_mut_ptr().cast(), rounded);
            }
        }
        narrow_each(src_tail, dst_tail);
    }

    #[inline(always)]
    fn widen_each(src: &[f16], dst: &mut [f32]) {
        for (wide, half) in dst.iter_mut().zip(src) {
            *wide = half_bits::f16_to_f32(*half);
        }
    }

    #[inline(always)]
    fn narrow_each(src: &[f32], dst: &mut [f16]) {
        for (half, wide) in dst.iter_mut().zip(src) {
            *half = half_bits::f32_to_f16(*wide);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_level_is_taken_unless_another_is_asked_for() {
        let available = SimdLevel::available();
        let widest = *available.last().unwrap();
        assert_eq!(choose(None, &available), widest);
        for level in &available {
            assert_eq!(choose(Some(level.name()), &available), *level);
        }
        for unknown in ["", "sse9", "AVX2", "avx2 "] {
            assert_eq!(choose(Some(unknown), &available), widest, "{unknown:?} is ignored");
        }
    }

    #[test]
    fn a_level_that_the_cpu_lacks_gives_the_best_below_it() {
        let plain = [SimdLevel::BASELINE];
        assert_eq!(choose(Some("avx512"), &plain), SimdLevel::BASELINE);
        assert_eq!(choose(Some("baseline"), &SimdLevel::available()), SimdLevel::BASELINE);
    }

    #[test]
    fn levels_are_listed_from_narrow_to_wide() {
        let available = SimdLevel::available();
        assert_eq!(available[0], SimdLevel::BASELINE);
        assert!(available.is_sorted());
        assert!(available.contains(&simd_level()));
    }
}
