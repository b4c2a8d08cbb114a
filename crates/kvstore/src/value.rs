//! What goes into a store and what comes out: arrays of the caller's, borrowed for the time of the call.

use syncline_cluster::Error;
use syncline_optimizer::Key;
use syncline_tensor::{DType, Element, Shape, Tensor};

use crate::RowSparse;

/// A dense array in row-major order.
#[derive(Clone, Copy, Debug)]
pub struct Dense<'a> {
    dtype: DType,
    shape: &'a [usize],
    bytes: &'a [u8],
}

impl<'a> Dense<'a> {
    /// From raw bytes.
    ///
    /// # Errors
    /// `ShapeMismatch` when there are more or fewer bytes than the shape needs.
    pub fn new(dtype: DType, shape: &'a [usize], bytes: &'a [u8]) -> Result<Dense<'a>, Error> {
        check_bytes(dtype, shape, bytes.len())?;
        Ok(Dense { dtype, shape, bytes })
    }

    /// From numbers.
    pub fn of<T: Element>(shape: &'a [usize], numbers: &'a [T]) -> Result<Dense<'a>, Error> {
        Dense::new(T::DTYPE, shape, bytemuck::cast_slice(numbers))
    }

    /// The dtype of its numbers.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its extents.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Its numbers.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// A dense array to be written.
#[derive(Debug)]
pub struct DenseMut<'a> {
    dtype: DType,
    shape: &'a [usize],
    bytes: &'a mut [u8],
}

impl<'a> DenseMut<'a> {
    /// Over raw bytes.
    ///
    /// # Errors
    /// `ShapeMismatch` when there are more or fewer bytes than the shape needs.
    pub fn new(dtype: DType, shape: &'a [usize], bytes: &'a mut [u8]) -> Result<DenseMut<'a>, Error> {
        check_bytes(dtype, shape, bytes.len())?;
        Ok(DenseMut { dtype, shape, bytes })
    }

    /// Over numbers.
    pub fn of<T: Element>(shape: &'a [usize], numbers: &'a mut [T]) -> Result<DenseMut<'a>, Error> {
        DenseMut::new(T::DTYPE, shape, bytemuck::cast_slice_mut(numbers))
    }

    /// The dtype of its numbers.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its extents.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Its numbers.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.bytes
    }
}

#[inline]
fn check_bytes(dtype: DType, shape: &[usize], found: usize) -> Result<(), Error> {
    let elements = shape.iter().try_fold(1usize, |elements, extent| elements.checked_mul(*extent));
    match elements.and_then(|elements| elements.checked_mul(dtype.size())) {
        Some(expected) if expected == found && expected > 0 => Ok(()),
        _ => check_bytes_closely(dtype, shape, found),
    }
}

/// Whatever is not as it usually is: nothing at all, too much, too little.
#[cold]
fn check_bytes_closely(dtype: DType, shape: &[usize], found: usize) -> Result<(), Error> {
    let refused = |detail: String| Err(Error::ShapeMismatch { operation: "an array".into(), detail });
    match Shape::elements_of(shape).map(|elements| elements * dtype.size()) {
        Ok(expected) if expected == found => Ok(()),
        Ok(expected) => refused(format!("{found} bytes given, an array of {shape:?} {dtype} has {expected}")),
        Err(error) => refused(error.to_string()),
    }
}

/// What is stored or pushed.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// All numbers.
    Dense(Dense<'a>),
    /// Some rows.
    RowSparse(&'a RowSparse),
}

impl Value<'_> {
    /// The dtype of its numbers.
    pub fn dtype(&self) -> DType {
        match self {
            Value::Dense(dense) => dense.dtype,
            Value::RowSparse(rows) => rows.dtype(),
        }
    }

    /// Its extents.
    pub fn shape(&self) -> &[usize] {
        match self {
            Value::Dense(dense) => dense.shape,
            Value::RowSparse(rows) => rows.shape(),
        }
    }

    /// The same with memory of its own.
    pub(crate) fn to_memory(self) -> Owned {
        match self {
            Value::Dense(dense) => {
                let shape = Shape::new(dense.shape).expect("checked when it was made");
                Owned::Dense(Tensor::from_bytes(dense.dtype, shape, dense.bytes).expect("checked when it was made"))
            }
            Value::RowSparse(rows) => Owned::RowSparse(rows.clone()),
        }
    }

    /// Bytes of the numbers that are there.
    pub(crate) fn byte_len(&self) -> usize {
        match self {
            Value::Dense(dense) => dense.bytes.len(),
            Value::RowSparse(rows) => rows.values().len(),
        }
    }
}

impl<'a> From<Dense<'a>> for Value<'a> {
    fn from(dense: Dense<'a>) -> Value<'a> {
        Value::Dense(dense)
    }
}

impl<'a> From<&'a Tensor> for Value<'a> {
    fn from(tensor: &'a Tensor) -> Value<'a> {
        Value::Dense(Dense { dtype: tensor.dtype(), shape: tensor.shape().dims(), bytes: tensor.bytes() })
    }
}

impl<'a> From<&'a RowSparse> for Value<'a> {
    fn from(rows: &'a RowSparse) -> Value<'a> {
        Value::RowSparse(rows)
    }
}

/// Where a pulled value goes.
#[derive(Debug)]
pub enum Output<'a> {
    /// All numbers.
    Dense(DenseMut<'a>),
    /// Only rows that are asked for, or all.
    RowSparse(&'a mut RowSparse),
}

impl Output<'_> {
    /// The dtype of its numbers.
    pub fn dtype(&self) -> DType {
        match self {
            Output::Dense(dense) => dense.dtype,
            Output::RowSparse(rows) => rows.dtype(),
        }
    }

    /// Its extents.
    pub fn shape(&self) -> &[usize] {
        match self {
            Output::Dense(dense) => dense.shape,
            Output::RowSparse(rows) => rows.shape(),
        }
    }
}

impl<'a> From<DenseMut<'a>> for Output<'a> {
    fn from(dense: DenseMut<'a>) -> Output<'a> {
        Output::Dense(dense)
    }
}

impl<'a> From<&'a mut RowSparse> for Output<'a> {
    fn from(rows: &'a mut RowSparse) -> Output<'a> {
        Output::RowSparse(rows)
    }
}

/// A value that waits in a queue.
#[derive(Debug)]
pub(crate) enum Owned {
    Dense(Tensor),
    RowSparse(RowSparse),
}

impl Owned {
    pub(crate) fn as_value(&self) -> Value<'_> {
        match self {
            Owned::Dense(tensor) => tensor.into(),
            Owned::RowSparse(rows) => rows.into(),
        }
    }
}

/// What a key is: fixed by its init.
#[derive(Clone, Debug)]
pub(crate) struct KeySpec {
    pub(crate) key: Key,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// Whether it was initialised with rows, and may be pulled by them.
    pub(crate) sparse: bool,
}

impl KeySpec {
    pub(crate) fn of(key: &Key, value: &Value<'_>) -> KeySpec {
        let shape = Shape::new(value.shape()).expect("checked when the value was made");
        KeySpec { key: key.clone(), dtype: value.dtype(), shape, sparse: matches!(value, Value::RowSparse(_)) }
    }

    pub(crate) fn elements(&self) -> usize {
        self.shape.elements()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.shape.byte_len(self.dtype)
    }

    /// Rows; a scalar is one.
    pub(crate) fn rows(&self) -> usize {
        self.shape.dims().first().copied().unwrap_or(1)
    }

    /// Numbers per row.
    pub(crate) fn row_len(&self) -> usize {
        self.shape.dims().iter().skip(1).product()
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.row_len() * self.dtype.size()
    }

    /// Refuses arrays of another dtype or shape.
    #[inline]
    pub(crate) fn check(&self, operation: &str, dtype: DType, shape: &[usize]) -> Result<(), Error> {
        let dims = self.shape.dims();
        // Extent by extent: a call that compares memory costs more than the few there are.
        if dtype == self.dtype && shape.len() == dims.len() && shape.iter().zip(dims).all(|(given, own)| given == own) {
            return Ok(());
        }
        Err(self.refusal(operation, dtype, shape))
    }

    #[cold]
    fn refusal(&self, operation: &str, dtype: DType, shape: &[usize]) -> Error {
        let detail = format!("key {} is {} of shape {:?}, given was {dtype} of shape {shape:?}", self.key, self.dtype, self.shape.dims());
        Error::ShapeMismatch { operation: operation.into(), detail }
    }
}
