//! Copies out of memory that another thread or process may be writing at the same moment.
//!
//! A reader of a stripe copies first and asks afterwards whether the bytes were still. Rust has no copy that may race,
//! so it is made of loads the compiler cannot reason about: assembly on x86-64, volatile words elsewhere. A torn copy
//! is then merely wrong bytes, which the stripe's word makes the reader throw away.

/// Copies `len` bytes from `from`, which may change meanwhile, to `to`.
///
/// # Safety
/// `from..from+len` is mapped and readable, `to..to+len` is private to the caller and writable, and they do not overlap.
#[inline]
pub(super) unsafe fn copy_racing(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise, passed on; the pieces make up the whole. The wide copy runs where it was found.
    unsafe {
        let done = if len >= WIDE && is_x86_feature_detected!("avx512f") { copy_wide(from, to, len) } else { 0 };
        copy_x86(from.add(done), to.add(done), len - done);
    };
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise, passed on.
    unsafe {
        copy_volatile(from, to, len)
    };
}

/// As [`copy_racing`], without fetching the lines of `to` into the cache.
///
/// # Safety
/// As there.
pub(super) unsafe fn copy_racing_past_cache(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise, passed on: the three pieces make up the whole, and the middle one begins on a line of `to`.
    unsafe {
        let head = to.align_offset(LINE).min(len);
        let lines = (len - head) / LINE;
        let tail = head + lines * LINE;
        copy_x86(from, to, head);
        if lines > 0 {
            stream_lines(from.add(head), to.add(head), lines);
        }
        copy_x86(from.add(tail), to.add(tail), len - tail);
    };
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise, passed on.
    unsafe {
        copy_volatile(from, to, len)
    };
}

#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;
/// From here on the widest registers are worth looking for: a line that another core had is taken over by one store and not by four.
/// In profiles of two workers with 16 MB each, the way of blocks into the table fell from 18 to between 5 and 10 hundredths.
#[cfg(target_arch = "x86_64")]
const WIDE: usize = 1024;

/// Copies most of it, from the beginning, and says how much: at least [`WIDE`] bytes come in, and less than four lines are left over.
///
/// Whole lines of `to` are written, whatever `malloc` made of its beginning: a store across two lines takes both. Four are read before the first is written,
/// since a read whose address ends in the same twelve bits as a write under way waits for it. 1 MB into an array that begins 16 bytes behind a page: 24.9 → 22.5 µs;
/// into one whose page offset is 64 bytes more than the source's: 27.6 → 22.9 (Zen 4).
///
/// The compiler does not see what the assembly leaves in the upper halves of its registers, so it clears them itself: otherwise the next instruction of the
/// baseline that touches a register waits for them, 60 ns and more on a Xeon of the fourth generation, wherever that may be.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn copy_wide(from: *const u8, to: *mut u8, len: usize) -> usize {
    use std::arch::asm;
    let head = to.align_offset(LINE);
    let turns = (len - head) / (4 * LINE); // at least three, of `WIDE` bytes without less than a line
    // SAFETY: as in `copy_x86`: first the 64 bytes that the head is a part of, then `turns` times four lines behind the head, all of them within `len`.
    unsafe {
        asm!(
            "vmovups {a}, [{from}]",
            "vmovups [{to}], {a}",
            "add {from}, {head}",
            "add {to}, {head}",
            "2:",
            "vmovups {a}, [{from}]",
            "vmovups {b}, [{from} + 64]",
            "vmovups {c}, [{from} + 128]",
            "vmovups {d}, [{from} + 192]",
            "vmovaps [{to}], {a}",
            "vmovaps [{to} + 64], {b}",
            "vmovaps [{to} + 128], {c}",
            "vmovaps [{to} + 192], {d}",
            "add {from}, 256",
            "add {to}, 256",
            "dec {turns}",
            "jnz 2b",
            "vzeroupper",
            a = out(zmm_reg) _,
            b = out(zmm_reg) _,
            c = out(zmm_reg) _,
            d = out(zmm_reg) _,
            head = in(reg) head,
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            turns = inout(reg) turns => _,
            options(nostack),
        );
    }
    head + turns * 4 * LINE
}

/// Lines by way of four registers to memory itself, asked for 1 KB ahead; there is at least one, and `to` begins on a line.
#[cfg(target_arch = "x86_64")]
unsafe fn stream_lines(from: *const u8, to: *mut u8, lines: usize) {
    use std::arch::asm;
    // SAFETY: as in `copy_x86`, for `lines` times 64 bytes, with aligned stores. The prefetch may point behind the end, where it does
    // nothing. The fence orders the stores before the second look at the stripe and whatever follows.
    unsafe {
        asm!(
            "2:",
            "prefetcht0 [{from} + 1024]",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movntps [{to}], {a}",
            "movntps [{to} + 16], {b}",
            "movntps [{to} + 32], {c}",
            "movntps [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            "sfence",
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            options(nostack),
        );
    }
}

/// 64 bytes a turn through four registers of the baseline, then the rest by bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_x86(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::asm;
    // SAFETY: reads exactly `len` bytes at `from` and writes as many at `to`, both valid by the caller's promise. The
    // loads may race with stores of other processes: in assembly that is no undefined behaviour, each byte is then the
    // old or the new one. Only the named registers and the flags change; the direction flag is clear on entry by the ABI.
    unsafe {
        asm!(
            "test {turns}, {turns}",
            "jz 3f",
            "2:",
            "movups {a}, [rsi]",
            "movups {b}, [rsi + 16]",
            "movups {c}, [rsi + 32]",
            "movups {d}, [rsi + 48]",
            "movups [rdi], {a}",
            "movups [rdi + 16], {b}",
            "movups [rdi + 32], {c}",
            "movups [rdi + 48], {d}",
            "add rsi, 64",
            "add rdi, 64",
            "dec {turns}",
            "jnz 2b",
            "3:",
            "test rcx, rcx",
            "jz 4f",
            "rep movsb",
            "4:",
            turns = inout(reg) len / 64 => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            inout("rcx") len % 64 => _,
            options(nostack),
        );
    }
}

/// Word by word where both ends allow it, else byte by byte.
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "other processors, and the tests"))]
unsafe fn copy_volatile(from: *const u8, to: *mut u8, len: usize) {
    let mut done = 0;
    if from.addr() % 8 == to.addr() % 8 {
        while done < len && !from.wrapping_add(done).addr().is_multiple_of(8) {
            // SAFETY: `done < len`, inside both ranges by the caller's promise.
            unsafe { to.add(done).write(from.add(done).read_volatile()) };
            done += 1;
        }
        while len - done >= 8 {
            // SAFETY: eight bytes are left in both ranges, and both addresses are aligned as just arranged.
            unsafe { to.add(done).cast::<u64>().write(from.add(done).cast::<u64>().read_volatile()) };
            done += 8;
        }
    }
    while done < len {
        // SAFETY: `done < len`, inside both ranges by the caller's promise.
        unsafe { to.add(done).write(from.add(done).read_volatile()) };
        done += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_arrives() {
        let source: Vec<u8> = (0..2000).map(|i| (i * 7 / 3) as u8).collect();
        for copy in [copy_racing as unsafe fn(*const u8, *mut u8, usize), copy_racing_past_cache, copy_volatile] {
            for (skip, shift) in [(0, 0), (1, 1), (3, 0), (8, 5), (0, 16), (7, 63)] {
                for len in [0, 1, 7, 8, 15, 63, 64, 65, 127, 128, 200, 1023, 1024, 1025, 1100, 1279, 1280, 1343, 1344, 1800] {
                    let mut target = vec![0xee; 2000];
                    // SAFETY: both ranges lie inside their vectors (63 + 1800 < 2000).
                    unsafe { copy(source.as_ptr().add(skip), target.as_mut_ptr().add(shift), len) };
                    assert_eq!(target[shift..shift + len], source[skip..skip + len]);
                    assert!(target[shift + len..].iter().all(|byte| *byte == 0xee), "nothing behind the end is touched");
                }
            }
        }
    }
}
