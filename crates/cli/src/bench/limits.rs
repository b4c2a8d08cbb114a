//! What this machine allows: the same bytes moved by a plain loop, measured in the same run as links and tables.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use clap::Args;
use syncline_tensor::DType;
use syncline_tensor::kernels::{ReduceOp, RowLayout, gather_rows, reduce_into, scatter_add_rows};

use crate::print;

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

/// How often per second `step` runs, in about `secs` and at least a few times, after one that does not count.
pub(crate) fn loops_per_second(secs: f64, mut step: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    step()?;
    let (start, long_enough) = (Instant::now(), Duration::from_secs_f64(secs));
    for count in 1.. {
        step()?;
        let elapsed = start.elapsed();
        if elapsed >= long_enough && count >= 3 {
            return Ok(f64::from(count) / elapsed.as_secs_f64());
        }
    }
    unreachable!("a machine that loops for ever within `secs`")
}

/// `a += b` and a copy of `a`: what a dense add and get cannot go below. One call is one loop.
pub(crate) fn dense(bytes: usize) -> impl FnMut() -> Result<(), String> {
    let (mut values, delta, mut copy) = (vec![1u8; bytes], vec![1u8; bytes], vec![1u8; bytes]);
    move || {
        reduce_into(ReduceOp::Sum, DType::F32, &mut values, &delta).map_err(|error| error.to_string())?;
        copy.copy_from_slice(&values);
        Ok(())
    }
}

/// `batch` random rows of a private matrix of f32 added to and copied out.
pub(crate) fn rows(rows: usize, cols: usize, batch: usize) -> Result<impl FnMut() -> Result<(), String>, String> {
    let layout = RowLayout::new(DType::F32, rows, cols).map_err(|error| error.to_string())?;
    let (mut table, delta, mut copy) = (vec![1u8; layout.table_bytes()], vec![1u8; batch * cols * 4], vec![1u8; batch * cols * 4]);
    let (mut ids, mut state) = (vec![0i64; batch], 12345u32);
    Ok(move || {
        for id in &mut ids {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *id = i64::from(state >> 4) % rows as i64;
        }
        scatter_add_rows(layout, &mut table, &ids, &delta).map_err(|error| error.to_string())?;
        gather_rows(layout, &table, &ids, &mut copy).map_err(|error| error.to_string())
    })
}

/// Sends `size` bytes to the other end of a plain socket and gets as many back.
pub(crate) fn echo(socket: &mut (impl Read + Write), bytes: &mut [u8]) -> Result<(), String> {
    socket.write_all(bytes).and_then(|()| socket.read_exact(bytes)).map_err(|error| format!("a plain socket: {error}"))
}

/// The other end of [`echo`]: answers until nobody asks any more.
pub(crate) fn answer_echo(mut socket: impl Read + Write, size: usize) {
    let mut bytes = vec![1u8; size];
    while socket.read_exact(&mut bytes).and_then(|()| socket.write_all(&bytes)).is_ok() {}
}

/// Where to listen, and how much comes at a time.
#[derive(Debug, Args)]
pub(crate) struct EchoOptions {
    at: SocketAddr,
    size: usize,
}

/// Answers everybody until this process is ended.
pub(crate) fn run_echo(options: &EchoOptions) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("a plain socket at {}: {error}", options.at);
    let listener = TcpListener::bind(options.at).map_err(failed)?;
    print::line("listening");
    let size = options.size;
    loop {
        let (socket, _) = listener.accept().map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        std::thread::spawn(move || answer_echo(socket, size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_move_their_bytes_and_count_their_loops() {
        assert!(loops_per_second(0.0, dense(64)).unwrap() > 0.0);
        assert!(loops_per_second(0.0, rows(10, 2, 4).unwrap()).unwrap() > 0.0);
        assert!(loops_per_second(0.0, || Err("enough".to_owned())).is_err());
        let (mut near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| answer_echo(far, 3));
            let mut bytes = *b"abc";
            echo(&mut near, &mut bytes).unwrap();
            assert_eq!(&bytes, b"abc");
            drop(near);
        });
    }
}
