//! The same calls in the background: values are copied, results come later, urgent ones first.

use std::sync::Arc;

use syncline_cluster::{Deadline, Error};
use syncline_optimizer::Key;
use syncline_tensor::Tensor;

use super::{KvStore, Push, Shared};
use crate::RowSparse;
use crate::memory::not_updating;
use crate::pending::Pending;
use crate::slot::Slot;
use crate::value::{Owned, Value};

impl KvStore {
    /// Queues a push; the values are copied. Its error is that of the result, or of the key's next pull, whoever comes first.
    ///
    /// Calls of one key keep their order; among keys a larger `priority` goes first. `by` is for the wait when very much is queued already.
    pub fn push_async(&self, pushes: &[Push<'_>], priority: i32, by: Deadline) -> Result<Pending<()>, Error> {
        self.pushing("push", pushes, priority, by, move |shared, slot, values| shared.push_later(slot, values, priority, shared.by()))
    }

    /// Queues a push of each key and a pull right after it; the results are new arrays.
    pub fn push_pull_async(&self, pushes: &[Push<'_>], priority: i32, by: Deadline) -> Result<Pending<Tensor>, Error> {
        self.pushing("pushpull", pushes, priority, by, move |shared, slot, values| {
            let by = shared.by();
            shared.push_later(slot, values, priority, by)?;
            slot.take_trouble()?;
            shared.pull_now(slot, Some(priority), by)
        })
    }

    /// Queues pulls; the results are new arrays, in the order of the keys.
    pub fn pull_async(&self, keys: &[&Key], priority: i32, by: Deadline) -> Result<Pending<Tensor>, Error> {
        not_updating("pull")?;
        let slots = keys.iter().map(|key| self.shared.slot("pull", key).cloned()).collect::<Result<Vec<_>, _>>()?;
        let pending = Pending::new("pull", slots.len());
        for (part, slot) in slots.into_iter().enumerate() {
            let (shared, promise, line) = (Arc::clone(&self.shared), pending.promise(part), Arc::clone(&slot.line));
            let work = move || promise.keep(slot.take_trouble().and_then(|()| shared.pull_now(&slot, Some(priority), shared.by())));
            self.shared.queue.submit(&line, priority, 0, by, work)?;
        }
        Ok(pending)
    }

    /// Queues pulls of rows; the results are new arrays, in the order given.
    pub fn row_sparse_pull_async(&self, rows: &[(&Key, &[i64])], priority: i32, by: Deadline) -> Result<Pending<RowSparse>, Error> {
        const WHAT: &str = "row_sparse_pull";
        not_updating(WHAT)?;
        let wanted = rows.iter().map(|(key, ids)| self.shared.checked_rows(WHAT, key, ids)).collect::<Result<Vec<_>, _>>()?;
        let pending = Pending::new(WHAT, wanted.len());
        for (part, (slot, ids)) in wanted.into_iter().enumerate() {
            let (shared, promise, line) = (Arc::clone(&self.shared), pending.promise(part), Arc::clone(&slot.line));
            let work =
                move || promise.keep(slot.take_trouble().and_then(|()| shared.pull_sparse_now(&slot, ids, Some(priority), shared.by())));
            self.shared.queue.submit(&line, priority, 0, by, work)?;
        }
        Ok(pending)
    }

    /// One task per key, with copies of its values.
    fn pushing<T: Send + Sync + 'static>(
        &self,
        operation: &'static str,
        pushes: &[Push<'_>],
        priority: i32,
        by: Deadline,
        body: impl Fn(&Shared, &Slot, &[Owned]) -> Result<T, Error> + Send + Clone + 'static,
    ) -> Result<Pending<T>, Error> {
        not_updating(operation)?;
        let groups = self.shared.checked(operation, pushes, self.shared.compression())?;
        let pending = Pending::new(operation, groups.len());
        for (part, (slot, values)) in groups.into_iter().enumerate() {
            let bytes = values.iter().map(Value::byte_len).sum();
            let values: Vec<Owned> = values.iter().map(|value| value.to_memory()).collect();
            let (shared, promise, line, body) = (Arc::clone(&self.shared), pending.promise(part), Arc::clone(&slot.line), body.clone());
            let work = move || promise.keep(body(&shared, &slot, &values));
            self.shared.queue.submit(&line, priority, bytes, by, work)?;
        }
        Ok(pending)
    }
}

impl Shared {
    /// How long a call in the background may take, from when it begins.
    fn by(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    fn push_later(&self, slot: &Slot, values: &[Owned], priority: i32, by: Deadline) -> Result<(), Error> {
        let values: Vec<Value<'_>> = values.iter().map(Owned::as_value).collect();
        slot.push(&values, self.how(Some(priority), by)).inspect_err(|error| slot.complain(error.clone()))
    }
}
