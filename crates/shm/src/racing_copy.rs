//! Copies out of memory that another thread or process may be writing at the same moment.
//!
//! A reader of a stripe, or of somebody's add, copies first and asks afterwards whether the bytes were still. Rust has no copy that may race,
//! so it is made of loads the compiler cannot reason about: assembly on x86-64, volatile words elsewhere. A torn copy
//! is then merely wrong bytes, which a word beside them makes the reader throw away.

/// From this size on the library copies by one instruction, which takes lines over from another core without fetching what it is about to
/// overwrite: between cores that share no cache that is most of the time of a copy. Of smaller copies it does not even promise whole lines.
pub(crate) const OF_THE_LIBRARY: usize = 8 << 10;

/// Copies `len` bytes from `from`, which may change meanwhile, to `to`.
///
/// # Safety
/// `from..from+len` is mapped and readable, `to..to+len` is private to the caller and writable, and they do not overlap.
#[inline]
pub(crate) unsafe fn copy_racing(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise, passed on. The wide copy runs where it was found.
    unsafe {
        if len >= WIDE && is_x86_feature_detected!("avx512f") {
            copy_wide(from, to, len);
        } else {
            copy_x86(from, to, len);
        }
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
pub(crate) unsafe fn copy_racing_past_cache(from: *const u8, to: *mut u8, len: usize) {
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

/// Copies at least [`WIDE`] bytes by four lines a turn. The last four may lie across lines and cover some bytes twice, which costs less than a loop for the rest.
///
/// Whole lines of `to` are written, whatever `malloc` made of its beginning: a store across two lines takes both. Four are read before the first is written,
/// since a read whose address ends in the same twelve bits as a write under way waits for it. 1 MB into an array that begins 16 bytes behind a page: 24.9 → 22.5 µs;
/// into one whose page offset is 64 bytes more than the source's: 27.6 → 22.9 (Zen 4).
///
/// The compiler does not see what the assembly leaves in the upper halves of its registers, so it clears them itself: otherwise the next instruction of the
/// baseline that touches a register waits for them, 60 ns and more on a Xeon of the fourth generation, wherever that may be.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn copy_wide(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::asm;
    let head = to.align_offset(LINE);
    let turns = (len - head) / (4 * LINE); // at least three, of `WIDE` bytes without less than a line
    // SAFETY: as in `copy_x86`: first the 64 bytes that the head is a part of, then `turns` times four lines behind the head, then
    // the last four, all of them within `len`.
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
            "vmovups {a}, [{last_from}]",
            "vmovups {b}, [{last_from} + 64]",
            "vmovups {c}, [{last_from} + 128]",
            "vmovups {d}, [{last_from} + 192]",
            "vmovups [{last_to}], {a}",
            "vmovups [{last_to} + 64], {b}",
            "vmovups [{last_to} + 128], {c}",
            "vmovups [{last_to} + 192], {d}",
            "vzeroupper",
            a = out(zmm_reg) _,
            b = out(zmm_reg) _,
            c = out(zmm_reg) _,
            d = out(zmm_reg) _,
            head = in(reg) head,
            last_from = in(reg) from.add(len - 4 * LINE),
            last_to = in(reg) to.add(len - 4 * LINE),
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            turns = inout(reg) turns => _,
            options(nostack),
        );
    }
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

/// 64 bytes a turn through four registers of the baseline, then 16 at a time, of which the last may cover some twice; less than 16 byte by byte.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_x86(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::asm;
    if len < 16 {
        // SAFETY: the caller's promise, passed on.
        return unsafe { copy_volatile(from, to, len) };
    }
    // SAFETY: reads exactly the `len` bytes at `from` and writes as many at `to`, both valid by the caller's promise; there are 16 at least. The
    // loads may race with stores of other processes: in assembly that is no undefined behaviour, each byte is then the
    // old or the new one. Only the named registers and the flags change.
    unsafe {
        asm!(
            "test {turns}, {turns}",
            "jz 3f",
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {turns}",
            "jnz 2b",
            "3:",
            "test {sixteens}, {sixteens}",
            "jz 5f",
            "4:",
            "movups {a}, [{from}]",
            "movups [{to}], {a}",
            "add {from}, 16",
            "add {to}, 16",
            "dec {sixteens}",
            "jnz 4b",
            "5:",
            "movups {a}, [{last_from}]",
            "movups [{last_to}], {a}",
            turns = inout(reg) len / 64 => _,
            sixteens = inout(reg) len % 64 / 16 => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            last_from = in(reg) from.add(len - 16),
            last_to = in(reg) to.add(len - 16),
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            options(nostack),
        );
    }
}

/// Word by word where both ends allow it, else byte by byte.
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
                for len in [
                    0, 1, 7, 8, 15, 16, 17, 31, 32, 48, 63, 64, 65, 127, 128, 200, 255, 1023, 1024, 1025, 1100, 1279, 1280, 1343, 1344,
                    1800,
                ] {
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
