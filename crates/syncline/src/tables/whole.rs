//! Calls about a whole table, which arrays and matrices have in common.

/// Gives `$Table` the calls that move all of its numbers.
macro_rules! moves_whole {
    ($Table:ident) => {
        impl<T: syncline_tensor::Element> $Table<T> {
            /// All numbers, as the table's consistency allows; this worker's own adds are always in them.
            pub fn get(&self) -> Result<Vec<T>, crate::Error> {
                let mut values = crate::tables::handle::Handle::zeros(self.len());
                self.handle.get(&mut values, None)?;
                Ok(values)
            }

            /// [`get`](Self::get) into memory of the caller's, which saves an allocation. After an error, what `out`
            /// holds is not told.
            pub fn get_into(&self, out: &mut [T]) -> Result<(), crate::Error> {
                self.handle.get(out, None)
            }

            /// Begins to get and returns at once; compute meanwhile.
            pub fn get_async(&self) -> Result<crate::PendingValues<T>, crate::Error> {
                self.handle.get_async(None)
            }

            /// Adds `delta`, one number for each of the table's, through its updater. Returns at once: the delta may be
            /// changed again, while the add goes on.
            pub fn add(&self, delta: &[T]) -> Result<(), crate::Error> {
                self.add_with(delta, &crate::AddOptions::default())
            }

            /// [`add`](Self::add) that returns when everybody's next get sees it. In sync mode that needs everybody's
            /// add of the same round.
            pub fn add_wait(&self, delta: &[T]) -> Result<(), crate::Error> {
                self.handle.add(delta, None, &crate::AddOptions::default(), crate::tables::handle::Return::Applied)
            }

            /// [`add`](Self::add) with numbers for the updater: learning rate, momentum, rho, lambda.
            ///
            /// # Errors
            /// `Configuration` when the updater can make no sense of them; nothing was changed.
            pub fn add_with(&self, delta: &[T], options: &crate::AddOptions) -> Result<(), crate::Error> {
                self.handle.add(delta, None, options, crate::tables::handle::Return::AtOnce)
            }

            /// Adds `delta` and gets the table after it, in one pass where the consistency allows it.
            pub fn add_get(&self, delta: &[T], out: &mut [T]) -> Result<(), crate::Error> {
                self.add_get_with(delta, out, &crate::AddOptions::default())
            }

            /// [`add_get`](Self::add_get) with numbers for the updater.
            pub fn add_get_with(&self, delta: &[T], out: &mut [T], options: &crate::AddOptions) -> Result<(), crate::Error> {
                self.handle.add_get(delta, out, None, options)
            }

            /// How many numbers it has.
            pub fn len(&self) -> u64 {
                self.handle.table.spec().rows_and_cols().map_or(0, |(rows, cols)| rows * cols)
            }

            /// Whether it has none.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }
    };
}
pub(super) use moves_whole;
