//! A value that is laid out once, in a block, and read by everybody where it lies.
//!
//! ```text
//!   page    block · bytes of it · words of meta · how many objects it names
//!   block   what its maker laid out, filled up to 8 · numbers of the objects
//! ```
//! The words are written before anybody can see the object and never again, so reading takes no latch: who holds the object may
//! read. From the moment the page speaks of the block, the block belongs to the object and is freed when that ends.

use std::sync::Arc;

use super::blocks::Block;
use super::{Estate, EstateError, Held, KIND_DEPOSIT};
use crate::corrupt::Corrupt;
use crate::mortality::moment;
use crate::placed::{Placed, Shared};
use crate::sync::{AtomicU64, Ordering};

/// The words of a deposit.
#[repr(C)]
#[derive(Default)]
pub(crate) struct DepositWords {
    /// Written last when it is made, and cleared first when it ends.
    block: AtomicU64,
    len: AtomicU64,
    meta_words: AtomicU64,
    objects: AtomicU64,
}

// SAFETY: `repr(C)`, atomics only, no drop glue, zero is a deposit of nothing.
unsafe impl Placed for DepositWords {}

/// A deposit that this process holds; it shows the bytes that its maker laid out.
pub struct Deposit {
    block: Block,
    len: usize,
    meta_words: u32,
    held: Arc<Held>,
}

impl Deposit {
    /// Lays out `len` bytes, which `fill` writes. `objects` are those that the value names; the caller holds them meanwhile.
    pub fn make(
        estate: &Arc<Estate>,
        len: usize,
        meta_words: u32,
        objects: &[u64],
        thread: u64,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Deposit, EstateError> {
        let mut block = estate.block(whole(len, objects.len()).ok_or_else(|| estate.too_large(len))?)?;
        let (value, behind) = block.bytes_mut().split_at_mut(len);
        fill(value);
        let behind = &mut behind[len.next_multiple_of(8) - len..];
        for (place, object) in behind.chunks_exact_mut(8).zip(objects) {
            place.copy_from_slice(&object.to_le_bytes());
        }
        objects.iter().for_each(|object| estate.count_named(*object, true));
        let lay_out = |estate: &Arc<Estate>, slot: usize| {
            let words: Shared<DepositWords> = estate.own_words(slot);
            words.len.store(len as u64, Ordering::Relaxed);
            words.meta_words.store(meta_words.into(), Ordering::Relaxed);
            words.objects.store(objects.len() as u64, Ordering::Relaxed);
            moment();
            words.block.store(block.id(), Ordering::Release);
            Ok(())
        };
        match estate.make(KIND_DEPOSIT, None, thread, &lay_out) {
            Ok((held, _)) => {
                block.leave();
                Ok(Deposit { block, len, meta_words, held })
            }
            Err(error) => {
                objects.iter().for_each(|object| estate.count_named(*object, false));
                Err(error)
            }
        }
    }

    /// The one that is held.
    pub fn over(held: Arc<Held>) -> Result<Deposit, Corrupt> {
        let (block, len, objects) = laid_out(held.estate(), held.slot())?;
        let words: Shared<DepositWords> = held.estate().own_words(held.slot());
        let meta_words = Corrupt::check("meta of a deposit", words.meta_words.load(Ordering::Relaxed), 0, len as u64 / 8)? as u32;
        drop(objects);
        Ok(Deposit { block, len, meta_words, held })
    }

    /// The object that it is.
    pub fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// Words of meta at the beginning of its bytes.
    pub fn meta_words(&self) -> u32 {
        self.meta_words
    }
}

impl AsRef<[u8]> for Deposit {
    fn as_ref(&self) -> &[u8] {
        &self.block.as_ref()[..self.len]
    }
}

/// Bytes of the block for a value of so many that names so many objects.
fn whole(len: usize, objects: usize) -> Option<usize> {
    len.checked_next_multiple_of(8)?.checked_add(objects.checked_mul(8)?)
}

/// What the page of a slot says, checked: the block, which stays the object's, the bytes of the value, and the objects it names.
fn laid_out(estate: &Arc<Estate>, slot: usize) -> Result<(Block, usize, Vec<u64>), Corrupt> {
    let words: Shared<DepositWords> = estate.own_words(slot);
    let id = words.block.load(Ordering::Acquire); // pairs with the Release of its maker
    let (len, objects) = (words.len.load(Ordering::Relaxed), words.objects.load(Ordering::Relaxed));
    let block = whole(len as usize, objects as usize).and_then(|whole| Block::new(estate, id, whole));
    let largest = estate.largest_block() as u64;
    let block = block.ok_or(Corrupt { word: "bytes of a deposit", found: len, least: 0, most: largest })?;
    block.leave();
    let behind = &block.as_ref()[(len as usize).next_multiple_of(8)..];
    let objects = behind.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
    Ok((block, len as usize, objects))
}

/// The block that a slot's page speaks of.
pub(super) fn block_of(estate: &Arc<Estate>, slot: usize) -> Option<u64> {
    let words: Shared<DepositWords> = estate.own_words(slot);
    Some(words.block.load(Ordering::Acquire)).filter(|block| *block != 0)
}

/// The objects that a deposit names.
pub(super) fn named_by(estate: &Arc<Estate>, slot: usize) -> Vec<u64> {
    laid_out(estate, slot).map(|(_, _, objects)| objects).unwrap_or_default()
}

/// Frees the block of a deposit that ends; returns the objects that it named.
///
/// The block is the caller's before the page stops to speak of it: a death at any moment in between leaves it to be freed once.
pub(super) fn empty(estate: &Arc<Estate>, slot: usize) -> Vec<u64> {
    let objects = named_by(estate, slot);
    let words: Shared<DepositWords> = estate.own_words(slot);
    let block = words.block.load(Ordering::Acquire);
    if block != 0 && estate.adopt(block) {
        moment();
        words.block.store(0, Ordering::Release);
        moment();
        estate.blocks().free(block);
    }
    objects
}
