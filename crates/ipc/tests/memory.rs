//! Messages larger than any length that fits into 31 bits, received where they should be.

mod meeting;

use meeting::*;
use syncline_ipc::{Client, DType, Place, Server, Shape, TensorViewMut, Value};

#[test]
fn a_tensor_of_more_than_two_gigabytes_arrives_in_memory_that_is_there() {
    const BYTES: usize = (2 << 30) + 5;
    let server = Server::open(&Place::unix(&fresh_name()), &options()).unwrap();
    let client = Client::connect(&server.place(), &options()).unwrap();
    let shape = Shape::new(&[BYTES]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Mostly the kernel's one page of zeros, so that only the receiver needs the memory.
            let mut numbers = vec![0u8; BYTES];
            (0..BYTES).step_by(64 << 20).for_each(|at| numbers[at] = (at >> 26) as u8 + 1);
            *numbers.last_mut().unwrap() = 99;
            client.send(&Value::tensor(DType::U8, shape.clone(), &numbers[..]).unwrap()).unwrap();
        });
        let mut target = vec![0u8; BYTES];
        let mut view = TensorViewMut::contiguous(&mut target, DType::U8, shape.clone()).unwrap();
        server.clients(1, |peer| peer.recv_into(&mut view)).unwrap();
        for at in (0..BYTES).step_by(64 << 20) {
            assert_eq!((target[at], target[at + 1]), ((at >> 26) as u8 + 1, 0), "at {at}");
        }
        assert_eq!(target[BYTES - 1], 99);
    });
    let stats = server.net_stats().rx;
    eprintln!("{:.0} MB/s, {} system calls", stats.mb_per_s(), stats.num_system_calls);
}
