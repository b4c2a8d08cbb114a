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
