//! What this machine allows: the same bytes moved by a plain loop, measured in the same run as the links.

use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Instant;

/// Bytes per second when one thread copies messages of `size` into shared slots and another copies them out.
///
/// Two threads stand for two processes: the memory and the cores do not know the difference.
pub(crate) fn memory(size: usize, count: usize) -> f64 {
    const SLOTS: usize = 8;
    let slots: Vec<Mutex<Vec<u8>>> = (0..SLOTS).map(|_| Mutex::new(vec![0; size])).collect();
    let (written, read) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let source = vec![1u8; size];
    let mut target = vec![0u8; size];
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for index in 0..count {
                wait_until(|| index - read.load(Acquire) < SLOTS);
                slots[index % SLOTS].lock().expect("no panic while held").copy_from_slice(&source);
                written.store(index + 1, Release);
            }
        });
        for index in 0..count {
            wait_until(|| written.load(Acquire) > index);
            target.copy_from_slice(&slots[index % SLOTS].lock().expect("no panic while held"));
            read.store(index + 1, Release);
        }
    });
    (size * count) as f64 / start.elapsed().as_secs_f64()
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let mut spins = 0;
    while !condition() {
        spins += 1;
        if spins < 200 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

/// Sends `count` messages of `size` on a plain socket and waits for one byte of thanks; bytes per second.
pub(crate) fn send_raw(socket: &mut (impl Read + Write), size: usize, count: usize) -> std::io::Result<f64> {
    let source = vec![1u8; size];
    let start = Instant::now();
    for _ in 0..count {
        socket.write_all(&source)?;
    }
    socket.read_exact(&mut [0])?;
    Ok((size * count) as f64 / start.elapsed().as_secs_f64())
}

/// The other end of [`send_raw`].
pub(crate) fn receive_raw(socket: &mut (impl Read + Write), size: usize, count: usize) -> std::io::Result<()> {
    let mut target = vec![0u8; size];
    for _ in 0..count {
        socket.read_exact(&mut target)?;
    }
    socket.write_all(&[1])
}
