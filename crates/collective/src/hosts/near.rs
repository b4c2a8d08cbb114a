//! Ranks of one host that share memory.

use super::Neighbours;
use crate::call::{Call, Failure};
use crate::memory::Memory;
use crate::setback::Setback;

impl Neighbours for Memory {
    fn roll_call(&mut self, call: &Call<'_>) -> Result<u32, Failure> {
        Memory::roll_call(self, call)
    }

    fn gather(&mut self, call: &Call<'_>, mine: &[u8], want: bool) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        Memory::gather(self, call, mine, want)
    }

    fn broadcast(&mut self, call: &Call<'_>, array: &mut [u8], root: usize) -> Result<(), Failure> {
        Memory::broadcast(self, call, array, root)
    }

    fn broadcast_message(&mut self, call: &Call<'_>, message: &[u8], root: usize) -> Result<Vec<u8>, Failure> {
        Memory::broadcast_message(self, call, message, root)
    }

    fn tell(&mut self, setback: &Setback) {
        Memory::tell(self, setback);
    }
}
