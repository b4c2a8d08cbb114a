//! A peer that writes garbage into every control word: errors, never a panic, never a hang.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use memmap2::{MmapOptions, MmapRaw};
use proptest::prelude::*;
use syncline_shm::board::Board;
use syncline_shm::duplex::{Duplex, DuplexError, Geometry, Inlet, Outlet};
use syncline_shm::wait::{Deadline, Patience};

const TINY: Geometry = Geometry {
    ring: 4096,
    slots: 2,
    slot_size: 4096,
};
/// Header, sides, rings and slots of a tiny duplex lie in its first page; its rings follow.
const CONTROL_WORDS: usize = 4096 / 8;
const RING_WORDS: usize = 2 * 4096 / 8;

/// The hostile peer's view of a segment.
struct Scribbler(MmapRaw);

impl Scribbler {
    fn new(fd: &OwnedFd) -> Self {
        Scribbler(MmapOptions::new().map_raw(fd).unwrap())
    }

    fn write(&self, word: usize, value: u64) {
        assert!(word < self.0.len() / 8);
        // SAFETY: inside the mapping (asserted), aligned to 8, and atomics may change under
        // anyone; being rude to the other mapping is the purpose of this test.
        let word = unsafe { &*self.0.as_mut_ptr().cast::<AtomicU64>().add(word) };
        word.store(value, Ordering::Relaxed);
    }
}

fn briefly() -> Deadline {
    Deadline::after(Duration::from_micros(200))
}

/// One call of each kind, whatever comes of it.
fn try_everything(out: &mut Outlet, into: &mut Inlet, body: &[u8]) -> Vec<Option<DuplexError>> {
    let alive = || true;
    let mut results = Vec::new();
    results.push(out.send(&[b"head"], &[body], briefly(), &alive).err());
    let mut head = Vec::new();
    let received = into.recv_head(&mut head, briefly(), &alive);
    if let Ok(len) = received {
        // A receiver would check the length before it allocates; so does this one.
        if let Ok(Some(held)) = into.hold_body(briefly(), &alive) {
            held.copy_to(0, &mut vec![0; held.len()]);
        } else if len < 1 << 20 {
            let mut body = vec![0; len as usize];
            results.push(into.recv_body(&mut body, briefly(), &alive).err());
        } else {
            results.push(into.skip_body(briefly(), &alive).err());
        }
    }
    results.push(received.err());
    results
}

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0_u64..64,
        (0_u64..5000).prop_map(|n| n | 1 << 63), // a label of the first record
        (0_u64..1024, 0_u64..5000).prop_map(|(at, n)| at << 32 | n | 1 << 63),
        Just(u64::MAX),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn garbage_in_a_duplex_gives_errors(
        rounds in prop::collection::vec(
            (prop::collection::vec((16..CONTROL_WORDS + RING_WORDS, value()), 0..6), 0_usize..9000),
            1..6,
        ),
    ) {
        let (here, fd) = Duplex::create_with(TINY).unwrap();
        let scribbler = Scribbler::new(&fd);
        let there = Duplex::open(fd).unwrap().with_patience(Patience::none());
        let (mut out, mut back_in) = here.with_patience(Patience::none()).split();
        let (mut back_out, mut into) = there.split();
        for (writes, len) in rounds {
            for (word, value) in writes {
                scribbler.write(word, value);
            }
            let body = vec![1; len];
            try_everything(&mut out, &mut into, &body);
            try_everything(&mut back_out, &mut back_in, &body);
        }
    }

    #[test]
    fn a_garbled_header_is_refused_or_harmless(writes in prop::collection::vec((0_usize..4, value()), 1..4)) {
        let (_here, fd) = Duplex::create_with(TINY).unwrap();
        let scribbler = Scribbler::new(&fd);
        for (word, value) in writes {
            scribbler.write(word, value);
        }
        if let Ok(there) = Duplex::open(fd) {
            let (mut out, _into) = there.split();
            let _ = out.send(&[b"x"], &[&[0; 3000]], briefly(), &|| true);
        }
    }

    #[test]
    fn garbage_on_a_board_never_panics(
        writes in prop::collection::vec((0_usize..(256 + 3 * 640) / 8, value()), 0..40),
    ) {
        let board = Board::create(3, [9; 16]).unwrap();
        let fd = board.fd().try_clone_to_owned().unwrap();
        let scribbler = Scribbler::new(&fd);
        let mut meeting = board.meeting(1, Patience::none());
        for (word, value) in writes {
            scribbler.write(word, value);
            for rank in 0..3 {
                let slot = board.slot(rank);
                let _ = (slot.state(), slot.blame(), slot.pid(), slot.rank(), slot.doing());
                slot.blame_once(u32::MAX);
                slot.bell().ring_if_waiting();
            }
            let round = meeting.arrive();
            let _ = meeting.wait(round, Deadline::after(Duration::ZERO), &|_| false);
            let _ = meeting.wait_released(round, 0, Deadline::after(Duration::ZERO), &|_| false);
            let _ = meeting.missing(round);
        }
        let _ = Board::open(fd, 3, [9; 16]);
    }
}

#[test]
fn a_peer_that_scribbles_all_the_time_cannot_panic_or_hang_us() {
    let (here, fd) = Duplex::create_with(TINY).unwrap();
    let scribbler = Scribbler::new(&fd);
    let there = Duplex::open(fd.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
            while !stop.load(Ordering::Relaxed) {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let word = 16 + (seed >> 20) as usize % (CONTROL_WORDS + RING_WORDS - 16);
                scribbler.write(word, if seed & 1 == 0 { seed } else { seed % 128 });
            }
        });
        drop((here, there));
        for round in 0..300 {
            // The segment is garbled already: a fresh pair of ends over the same memory.
            let again = Duplex::open(fd.as_fd().try_clone_to_owned().unwrap()).unwrap();
            let (mut out, mut into) = again.with_patience(Patience::none()).split();
            try_everything(&mut out, &mut into, &vec![1; round * 31]);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
