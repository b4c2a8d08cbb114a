//! What a forked child inherits and must not take down: it belongs to the parent.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::job;

/// A value that is dropped as usual, except in a forked child, where it is left alone.
pub(crate) struct Parental<T>(ManuallyDrop<T>);

impl<T> Parental<T> {
    pub(crate) fn new(value: T) -> Parental<T> {
        Parental(ManuallyDrop::new(value))
    }

    /// The value; none in a forked child, where it is left alone.
    pub(crate) fn into_inner(mut self) -> Option<T> {
        if job::is_fork() {
            return None;
        }
        // SAFETY: taken once, here: `self` is forgotten below and so not dropped.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        std::mem::forget(self);
        Some(value)
    }
}

impl<T> Deref for Parental<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Parental<T> {
    fn drop(&mut self) {
        if !job::is_fork() {
            // SAFETY: dropped once, here, and not touched again.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}
