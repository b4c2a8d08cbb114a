//! Messages of a gigabyte, and larger than any length that fits into 31 bits, received where they should be.

mod meeting;

use meeting::*;
use syncline_ipc::{Client, DType, Options, Place, Server, Shape, TensorViewMut, Value};

/// Sends a tensor of `bytes` bytes from a client to the server at `place`, and looks at it here and there.
fn send_a_large_tensor(place: &Place, options: &Options, bytes: usize) {
    let server = Server::open(place, options).unwrap();
    let client = Client::connect(&server.place(), options).unwrap();
    let shape = Shape::new(&[bytes]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Mostly the kernel's one page of zeros, so that only the receiver needs the memory.
            let mut numbers = vec![0u8; bytes];
            (0..bytes).step_by(64 << 20).for_each(|at| numbers[at] = (at >> 26) as u8 + 1);
            *numbers.last_mut().unwrap() = 99;
            client.send(&Value::tensor(DType::U8, shape.clone(), &numbers[..]).unwrap()).unwrap();
        });
        let mut target = vec![0u8; bytes];
        let mut view = TensorViewMut::contiguous(&mut target, DType::U8, shape.clone()).unwrap();
        server.clients(1, |peer| peer.recv_into(&mut view)).unwrap();
        for at in (0..bytes).step_by(64 << 20) {
            assert_eq!((target[at], target[at + 1]), ((at >> 26) as u8 + 1, 0), "at {at}");
        }
        assert_eq!(target[bytes - 1], 99);
    });
    let stats = server.net_stats().rx;
    eprintln!("{:.0} MB/s, {} system calls", stats.mb_per_s(), stats.num_system_calls);
}

#[test]
fn a_tensor_of_more_than_two_gigabytes_arrives_in_memory_that_is_there() {
    send_a_large_tensor(&Place::unix(&fresh_name()), &options(), (2 << 30) + 5);
}

#[test]
fn a_tensor_of_a_gigabyte_arrives_over_tcp_in_the_clear_and_encrypted() {
    for encrypted in [false, true] {
        let options = Options { encrypt: Some(encrypted), ..options() };
        send_a_large_tensor(&Place::tcp("127.0.0.1", 0), &options, (1 << 30) + 5);
    }
}
