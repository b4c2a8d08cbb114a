//! Handles: numbers that look like pointers, so that a wrong one is found out instead of followed.
//!
//! ```text
//!   kind 8 bits │ generation 24 bits │ place + 1, 32 bits
//! ```
//! A place is used again after its owner has freed it, under the next generation: a handle that was freed matches none.
//! After sixteen million of them a place is given up. Looking one up costs a read lock and a count, about 20 ns.

use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, RwLock};

use crate::failure::Failure;
use crate::memory;

const LAST_GENERATION: u32 = (1 << 24) - 1;

/// All live values of one kind; `O` is the opaque type that C knows them by.
pub(crate) struct Handles<O, T> {
    name: &'static str,
    kind: u8,
    shelf: RwLock<Shelf<T>>,
    opaque: PhantomData<fn() -> O>,
}

struct Shelf<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

struct Place<T> {
    generation: u32,
    value: Option<Arc<T>>,
}

impl<O, T> Handles<O, T> {
    pub(crate) const fn new(name: &'static str, kind: u8) -> Handles<O, T> {
        let shelf = Shelf { places: Vec::new(), free: Vec::new() };
        Handles { name, kind, shelf: RwLock::new(shelf), opaque: PhantomData }
    }

    /// A handle for `value`, which lives until it is taken.
    pub(crate) fn put(&self, value: T) -> *mut O {
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        let value = Some(Arc::new(value));
        let index = match shelf.free.pop() {
            Some(index) => {
                shelf.places[index as usize].value = value;
                index
            }
            None => {
                shelf.places.push(Place { generation: 0, value });
                shelf.places.len() as u32 - 1
            }
        };
        let generation = shelf.places[index as usize].generation;
        let word = u64::from(self.kind) << 56 | u64::from(generation) << 32 | u64::from(index + 1);
        std::ptr::without_provenance_mut(word as usize)
    }

    /// Makes a value and writes its handle; nothing is made where that could not be written.
    ///
    /// # Safety
    /// `out` is NULL or may be written.
    pub(crate) unsafe fn give(&self, out: *mut *mut O, make: impl FnOnce() -> Result<T, Failure>) -> Result<(), Failure> {
        memory::check_out(out, "out")?;
        let value = make()?;
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", self.put(value)) }
    }

    /// The same, or NULL where there is nothing to stand for.
    ///
    /// # Safety
    /// `out` is NULL or may be written.
    pub(crate) unsafe fn give_if_any(&self, out: *mut *mut O, make: impl FnOnce() -> Result<Option<T>, Failure>) -> Result<(), Failure> {
        memory::check_out(out, "out")?;
        let handle = make()?.map_or_else(std::ptr::null_mut, |value| self.put(value));
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", handle) }
    }

    /// What the handle stands for.
    pub(crate) fn get(&self, handle: *const O) -> Result<Arc<T>, Failure> {
        let (index, generation) = self.read(handle)?;
        let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        let place = shelf.places.get(index).filter(|place| place.generation == generation);
        place.and_then(|place| place.value.clone()).ok_or_else(|| self.freed())
    }

    /// Takes it out: the handle is void from now on.
    pub(crate) fn take(&self, handle: *const O) -> Result<Arc<T>, Failure> {
        let (index, generation) = self.read(handle)?;
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        let place = shelf.places.get_mut(index).filter(|place| place.generation == generation);
        let Some((place, value)) = place.and_then(|place| place.value.take().map(|value| (place, value))) else {
            return Err(self.freed());
        };
        if place.generation < LAST_GENERATION {
            place.generation += 1;
            shelf.free.push(index as u32);
        }
        Ok(value)
    }

    /// Changes what the handle stands for; meanwhile it stands for nothing. `change` gets the value alone, or a copy.
    pub(crate) fn change(&self, handle: *const O, change: impl FnOnce(Arc<T>) -> T) -> Result<(), Failure> {
        let (index, generation) = self.read(handle)?;
        let of = |shelf: &mut Shelf<T>| {
            let place = shelf.places.get_mut(index).filter(|place| place.generation == generation);
            place.and_then(|place| place.value.take())
        };
        let value = of(&mut self.shelf.write().unwrap_or_else(PoisonError::into_inner)).ok_or_else(|| self.freed())?;
        let changed = Arc::new(change(value));
        self.shelf.write().unwrap_or_else(PoisonError::into_inner).places[index].value = Some(changed);
        Ok(())
    }

    fn read(&self, handle: *const O) -> Result<(usize, u32), Failure> {
        let word = handle.addr() as u64;
        if word == 0 {
            return Err(Failure::argument(format!("the {} is NULL", self.name)));
        }
        let (kind, generation, place) = ((word >> 56) as u8, (word >> 32) as u32 & LAST_GENERATION, word as u32);
        if kind != self.kind || place == 0 {
            return Err(Failure::argument(format!("{word:#x} is no {}", self.name)));
        }
        Ok((place as usize - 1, generation))
    }

    fn freed(&self) -> Failure {
        Failure::argument(format!("the {} was freed or closed before", self.name))
    }
}
