//! From bytes of unknown alignment to typed slices.
//!
//! Numbers in shared memory or in a frame may begin anywhere. Where they are aligned, as nearly always, a kernel
//! works in place; otherwise it works on short aligned copies that stay in the first-level cache.

use crate::{DType, Element, TensorError};

/// Numbers copied at a time when they are not aligned.
const CHUNK: usize = 512;

/// How many numbers these bytes hold, if it is a whole number of them.
pub(super) fn elements_in(dtype: DType, bytes: &[u8]) -> Result<usize, TensorError> {
    let bytes = bytes.len();
    if bytes.is_multiple_of(dtype.size()) { Ok(bytes / dtype.size()) } else { Err(TensorError::PartialElement { bytes, dtype }) }
}

/// Refuses slices that are combined number by number and differ in length.
pub(super) fn same_count(what: &'static str, expected: usize, found: usize) -> Result<(), TensorError> {
    if found == expected { Ok(()) } else { Err(TensorError::ElementCount { what, expected, found }) }
}

/// Gives `body` all numbers to change, in one slice or in several.
pub(super) fn change<A: Element>(data: &mut [u8], mut body: impl FnMut(&mut [A])) {
    if let Ok(data) = bytemuck::try_cast_slice_mut(data) {
        return body(data);
    }
    let mut copy = [A::zeroed(); CHUNK];
    for data in data.chunks_mut(CHUNK * size_of::<A>()) {
        let copy = &mut copy[..data.len() / size_of::<A>()];
        bytemuck::cast_slice_mut(copy).copy_from_slice(data);
        body(copy);
        data.copy_from_slice(bytemuck::cast_slice(copy));
    }
}

/// Gives `body` the numbers to change beside those to read, which may be of another type but are as many.
pub(super) fn change_by<A: Element, B: Element>(acc: &mut [u8], src: &[u8], mut body: impl FnMut(&mut [A], &[B])) {
    debug_assert_eq!(acc.len() / size_of::<A>(), src.len() / size_of::<B>());
    if let (Ok(acc), Ok(src)) = (bytemuck::try_cast_slice_mut(acc), bytemuck::try_cast_slice(src)) {
        return body(acc, src);
    }
    let (mut acc_copy, mut src_copy) = ([A::zeroed(); CHUNK], [B::zeroed(); CHUNK]);
    for (acc, src) in acc.chunks_mut(CHUNK * size_of::<A>()).zip(src.chunks(CHUNK * size_of::<B>())) {
        let acc_copy = &mut acc_copy[..acc.len() / size_of::<A>()];
        let src_copy = &mut src_copy[..src.len() / size_of::<B>()];
        bytemuck::cast_slice_mut(acc_copy).copy_from_slice(acc);
        bytemuck::cast_slice_mut(src_copy).copy_from_slice(src);
        body(acc_copy, src_copy);
        acc.copy_from_slice(bytemuck::cast_slice(acc_copy));
    }
}

/// Gives `body` the numbers to write beside two slices to read, all as many.
#[inline]
pub(super) fn write_from<T: Element>(out: &mut [u8], a: &[u8], b: &[u8], mut body: impl FnMut(&mut [T], &[T], &[T])) {
    debug_assert!(out.len() == a.len() && out.len() == b.len());
    let typed = (bytemuck::try_cast_slice_mut(out), bytemuck::try_cast_slice(a), bytemuck::try_cast_slice(b));
    if let (Ok(out), Ok(a), Ok(b)) = typed {
        return body(out, a, b);
    }
    let bytes = CHUNK * size_of::<T>();
    let mut copies = [[T::zeroed(); CHUNK]; 3];
    let [out_copy, a_copy, b_copy] = &mut copies;
    for (out, (a, b)) in out.chunks_mut(bytes).zip(a.chunks(bytes).zip(b.chunks(bytes))) {
        let count = out.len() / size_of::<T>();
        let (out_copy, a_copy, b_copy) = (&mut out_copy[..count], &mut a_copy[..count], &mut b_copy[..count]);
        bytemuck::cast_slice_mut(a_copy).copy_from_slice(a);
        bytemuck::cast_slice_mut(b_copy).copy_from_slice(b);
        body(out_copy, a_copy, b_copy);
        out.copy_from_slice(bytemuck::cast_slice(out_copy));
    }
}
