//! The bytes of a tensor: the caller's, the value's own, or some that several values hold together.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes that stay where they are while somebody holds them: a piece of whatever owns them.
///
/// Cloning copies no byte. This is how threads hand a tensor over by reference, and how one is read in the shared memory
/// that it arrived in.
/// ```
/// use std::sync::Arc;
/// use syncline_wire::SharedBytes;
///
/// let all = SharedBytes::new(Arc::new(vec![1_u8, 2, 3, 4]));
/// let some = all.slice(1..3).expect("inside");
/// assert_eq!(&some[..], [2, 3]);
/// assert_eq!(some.as_ptr(), all[1..].as_ptr());
/// ```
#[derive(Clone)]
pub struct SharedBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
    lent: bool,
}

impl SharedBytes {
    /// All bytes of `owner`, which must always show the same ones.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> SharedBytes {
        let range = 0..(*owner).as_ref().len();
        SharedBytes { owner, range, lent: false }
    }

    /// The same for memory that others than values have, too (an interpreter's array): who is given it may not write there.
    pub fn lent(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> SharedBytes {
        SharedBytes { lent: true, ..SharedBytes::new(owner) }
    }

    /// Whether others than values have this memory.
    pub fn is_lent(&self) -> bool {
        self.lent
    }

    /// A part of them; none if it reaches outside.
    pub fn slice(&self, part: Range<usize>) -> Option<SharedBytes> {
        if part.start > part.end || part.end > self.range.len() {
            return None;
        }
        let range = self.range.start + part.start..self.range.start + part.end;
        Some(SharedBytes { owner: Arc::clone(&self.owner), range, lent: self.lent })
    }

    /// How many hold the owner, this one included: 1 says that nobody else can see these bytes through a value.
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.owner)
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // An owner that shows fewer bytes than before breaks its promise; it gets nothing rather than a panic.
        (*self.owner).as_ref().get(self.range.clone()).unwrap_or_default()
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedBytes").field(&&**self).finish()
    }
}

/// Whose bytes they are.
#[derive(Clone, Debug)]
pub enum Data<'a> {
    /// Lent by the caller or by a received buffer.
    Borrowed(&'a [u8]),
    /// Held by the value.
    Owned(Vec<u8>),
    /// Held together with others.
    Shared(SharedBytes),
}

impl Data<'_> {
    /// The same bytes, held: shared ones stay shared, borrowed ones are copied.
    pub fn into_owned(self) -> Data<'static> {
        match self {
            Data::Borrowed(bytes) => Data::Owned(bytes.to_vec()),
            Data::Owned(bytes) => Data::Owned(bytes),
            Data::Shared(bytes) => Data::Shared(bytes),
        }
    }
}

impl Deref for Data<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Data::Borrowed(bytes) => bytes,
            Data::Owned(bytes) => bytes,
            Data::Shared(bytes) => bytes,
        }
    }
}

impl PartialEq for Data<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<'a> From<std::borrow::Cow<'a, [u8]>> for Data<'a> {
    fn from(bytes: std::borrow::Cow<'a, [u8]>) -> Self {
        match bytes {
            std::borrow::Cow::Borrowed(bytes) => Data::Borrowed(bytes),
            std::borrow::Cow::Owned(bytes) => Data::Owned(bytes),
        }
    }
}

impl<'a> From<&'a [u8]> for Data<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Data::Borrowed(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Data<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Data::Borrowed(bytes)
    }
}

impl From<Vec<u8>> for Data<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Data::Owned(bytes)
    }
}

impl From<SharedBytes> for Data<'_> {
    fn from(bytes: SharedBytes) -> Self {
        Data::Shared(bytes)
    }
}
