//! MXNet's key-value store, with the timeouts of a session and arguments for one key at a time.
//!
//! ```
//! use syncline::kvstore::{KvStore, Optimizer, Tensor};
//!
//! let store = KvStore::local("local")?; // for `dist_sync` and the others: `session.kvstore("dist_sync")`
//! store.init("w", &Tensor::from_slice(&[2], &[1.0f32, 2.0])?)?;
//! store.set_optimizer(Optimizer::create("sgd", &[("learning_rate", 0.5.into())])?)?;
//! store.push("w", &Tensor::from_slice(&[2], &[1.0f32, 1.0])?)?;
//! assert_eq!(store.pull("w")?.as_slice::<f32>()?, [0.5, 1.5]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::panic::Location;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use syncline_cluster::Deadline;
pub use syncline_kvstore::{
    Compression, Dense, DenseMut, Key, Kind, Optimizer, Output, Pending, Pull, Push, Quantizer, RowPull, RowSparse, Updater, Value,
};
pub use syncline_optimizer::{Decay, Method, OptimizerError, OptionValue, Schedule, Warmup, expression};
pub use syncline_tensor::{Shape, Tensor, TensorError};

use crate::Error;

/// A handle on a store; clones are handles on the same one.
#[derive(Clone, Debug)]
pub struct KvStore {
    store: syncline_kvstore::KvStore,
    timeout: Duration,
}

impl KvStore {
    /// A store in the memory of this process: `local`, `device` and their aliases.
    pub fn local(kind: &str) -> Result<KvStore, Error> {
        let store = syncline_kvstore::KvStore::local(Kind::from_name(kind)?)?;
        Ok(KvStore { store, timeout: Duration::from_secs(30) })
    }

    pub(crate) fn over(store: syncline_kvstore::KvStore, timeout: Duration) -> KvStore {
        KvStore { store, timeout }
    }

    /// The same store with deadlines and lists of keys in every call.
    pub fn raw(&self) -> &syncline_kvstore::KvStore {
        &self.store
    }

    fn by(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.store.kind()
    }

    /// This process's number among the workers; 0 in a local store.
    pub fn rank(&self) -> u32 {
        self.store.rank()
    }

    /// How many workers push; 1 in a local store.
    pub fn num_workers(&self) -> u32 {
        self.store.num_workers()
    }

    /// Makes a key. In a distributed store every worker does, in any order, and worker 0's value counts.
    #[track_caller]
    pub fn init<'v>(&self, key: impl Into<Key>, value: impl Into<Value<'v>>) -> Result<(), Error> {
        let site = Location::caller().to_string();
        Ok(self.store.init(&[(&key.into(), value.into())], &site, self.by())?)
    }

    /// Pushes one value.
    pub fn push<'v>(&self, key: impl Into<Key>, value: impl Into<Value<'v>>) -> Result<(), Error> {
        self.push_values(key, &[value.into()])
    }

    /// Pushes the sum of several values, for example one of each device.
    pub fn push_values(&self, key: impl Into<Key>, values: &[Value<'_>]) -> Result<(), Error> {
        Ok(self.store.push(&[Push { key: &key.into(), values }], self.by())?)
    }

    /// The stored value, as a new array.
    pub fn pull(&self, key: impl Into<Key>) -> Result<Tensor, Error> {
        Ok(self.store.pull_new(&key.into(), self.by())?)
    }

    /// The stored value, into an array of the caller's.
    pub fn pull_into<'o>(&self, key: impl Into<Key>, output: impl Into<Output<'o>>) -> Result<(), Error> {
        Ok(self.store.pull(&mut [Pull { key: &key.into(), outputs: &mut [output.into()] }], true, self.by())?)
    }

    /// Pushes a value and returns what is stored then.
    pub fn push_pull<'v>(&self, key: impl Into<Key>, value: impl Into<Value<'v>>) -> Result<Tensor, Error> {
        let key = key.into();
        self.push_values(key.clone(), &[value.into()])?;
        self.pull(key)
    }

    /// Makes a key and returns its value: worker 0's, on every worker.
    #[track_caller]
    pub fn broadcast<'v>(&self, key: impl Into<Key>, value: impl Into<Value<'v>>) -> Result<Tensor, Error> {
        let key = key.into();
        self.init(key.clone(), value)?;
        self.pull(key)
    }

    /// The rows of these ids, in any order, of a key that was initialised with rows.
    pub fn row_sparse_pull(&self, key: impl Into<Key>, ids: &[i64]) -> Result<RowSparse, Error> {
        Ok(self.store.row_sparse_pull_new(&key.into(), ids, self.by())?)
    }

    /// Pushes one row for each id as they come: any order, and those of an id that stands twice are added.
    ///
    /// ```
    /// use syncline::DType;
    /// use syncline::kvstore::{Dense, DenseMut, KvStore, Optimizer, RowSparse};
    ///
    /// let store = KvStore::local("local")?;
    /// store.init("embeddings", &RowSparse::empty(DType::F32, &[1000, 2])?)?;
    /// store.set_optimizer(Optimizer::create("sgd", &[("learning_rate", (-1.0).into())])?)?; // adds what is pushed
    /// store.push_rows("embeddings", &[7, 3, 7], Dense::of(&[3, 2], &[1.0f32, 2.0, 3.0, 4.0, 10.0, 20.0])?)?;
    /// let mut rows = [0.0f32; 6];
    /// store.pull_rows("embeddings", &[3, 7, 3], DenseMut::of(&[3, 2], &mut rows)?)?;
    /// assert_eq!(rows, [3.0, 4.0, 11.0, 22.0, 3.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn push_rows(&self, key: impl Into<Key>, ids: &[i64], rows: Dense<'_>) -> Result<(), Error> {
        Ok(self.store.push_rows(&key.into(), ids, rows, self.by())?)
    }

    /// Rows into an array of the caller's, one for each id in their order, of a key that was initialised with rows.
    pub fn pull_rows(&self, key: impl Into<Key>, ids: &[i64], out: DenseMut<'_>) -> Result<(), Error> {
        Ok(self.store.pull_rows(&key.into(), ids, out, self.by())?)
    }

    /// Pushes in the background; a larger priority goes first. The value is copied.
    pub fn push_async<'v>(&self, key: impl Into<Key>, value: impl Into<Value<'v>>, priority: i32) -> Result<Pending<()>, Error> {
        Ok(self.store.push_async(&[Push { key: &key.into(), values: &[value.into()] }], priority, self.by())?)
    }

    /// Pulls in the background; [`wait_one`] waits for it.
    pub fn pull_async(&self, key: impl Into<Key>, priority: i32) -> Result<Pending<Tensor>, Error> {
        Ok(self.store.pull_async(&[&key.into()], priority, self.by())?)
    }

    /// Lets a function decide what a push does: it gets the user's key, the sum of what was pushed and the stored numbers. Local stores only.
    ///
    /// ```
    /// use syncline::kvstore::{KvStore, Tensor};
    ///
    /// let store = KvStore::local("local")?;
    /// store.init(3, &Tensor::from_slice(&[2], &[1i32, 1])?)?;
    /// store.set_updater(|_key, value, mut weight| {
    ///     let pushed = match value {
    ///         syncline::kvstore::Value::Dense(dense) => bytemuck::pod_collect_to_vec::<u8, i32>(dense.bytes()),
    ///         syncline::kvstore::Value::RowSparse(rows) => bytemuck::pod_collect_to_vec(rows.to_dense().bytes()),
    ///     };
    ///     let stored: &mut [i32] = bytemuck::cast_slice_mut(weight.bytes());
    ///     stored.iter_mut().zip(pushed).for_each(|(stored, pushed)| *stored += 2 * pushed);
    ///     Ok(())
    /// })?;
    /// store.push(3, &Tensor::from_slice(&[2], &[4i32, 5])?)?;
    /// assert_eq!(store.pull(3)?.as_slice::<i32>()?, [9, 11]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_updater(
        &self,
        mut updater: impl FnMut(&Key, Value<'_>, DenseMut<'_>) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let updater: Updater = Box::new(move |key, value, weight| updater(key, value, weight).map_err(Error::into_inner));
        Ok(self.store.set_updater(Some(updater))?)
    }

    /// Lets an optimizer decide what a push does; its states begin anew.
    pub fn set_optimizer(&self, optimizer: Optimizer) -> Result<(), Error> {
        Ok(self.store.set_optimizer(optimizer, self.by())?)
    }

    /// Changes the learning rate, at the servers too; states stay.
    pub fn set_learning_rate(&self, rate: f64) -> Result<(), Error> {
        Ok(self.store.set_learning_rate(rate, self.by())?)
    }

    /// Makes pushes smaller: `[("type", "2bit"), ("threshold", "0.5")]` and others, see [`Compression::from_words`].
    pub fn set_gradient_compression(&self, words: &[(&str, &str)]) -> Result<(), Error> {
        Ok(self.store.set_gradient_compression(Compression::from_words(words)?)?)
    }

    /// Writes what the optimizer keeps, and the optimizer if asked, to one file. Every worker of a distributed store calls it.
    pub fn save_optimizer_states(&self, path: impl AsRef<Path>, with_optimizer: bool) -> Result<(), Error> {
        Ok(self.store.save_optimizer_states(path.as_ref(), with_optimizer, self.by())?)
    }

    /// Reads such a file, written by any number of workers and servers. Every worker of a distributed store calls it.
    pub fn load_optimizer_states(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        Ok(self.store.load_optimizer_states(path.as_ref(), self.by())?)
    }

    /// Returns when every worker has called it, after what they queued before.
    pub fn barrier(&self) -> Result<(), Error> {
        Ok(self.store.barrier(self.by())?)
    }
}

/// Waits for a call of one key in the background. It ends by its own deadline, the session's timeout.
pub fn wait_one<T>(pending: &Pending<T>) -> Result<Arc<T>, Error> {
    let mut results = pending.wait(None, Deadline::never())?;
    results.pop().ok_or_else(|| Error::configuration("the call was about no key"))
}
