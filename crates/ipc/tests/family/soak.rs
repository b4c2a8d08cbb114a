//! Random operations and random kills for as long as one likes, with memory that stays where it is:
//! `SYNCLINE_SOAK_SECONDS=600 cargo test --release -p syncline-ipc --test family soak`. Without the variable it lasts a moment.

use std::time::{Duration, Instant};

use syncline_ipc::{Channel, ChannelOptions, Family, Mutex, SharedTable, Taken, Value, Workqueue};

use crate::child::Kid;
use crate::roles::large;
use crate::{int, soon};

fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

#[test]
fn soak() {
    let seconds = std::env::var("SYNCLINE_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let began = Instant::now();
    let family = Family::alone().unwrap();
    let queue = Workqueue::new(&family).unwrap();
    let table = SharedTable::new(&family).unwrap();
    let start = || Kid::start("square", &family, &[queue.handle()], &[]);
    let mut kids: Vec<Kid> = (0..2).map(|_| start()).collect();
    let (mut seed, mut settled) = (began.elapsed().as_nanos() as u64 | 1, None);
    println!("seed {seed}");
    while began.elapsed() < Duration::from_secs_f64(seconds) {
        match random(&mut seed) % 100 {
            0..=39 => {
                let count = 1 + random(&mut seed) as i64 % 50;
                queue.write_all(&(0..count).map(|n| if n % 7 == 0 { large(n) } else { int(n) }).collect::<Vec<_>>(), soon()).unwrap();
            }
            40..=69 => {
                while let Taken::Item(answer) = queue.try_read().unwrap() {
                    drop(answer);
                }
            }
            70..=84 => {
                let key = int(random(&mut seed) as i64 % 500);
                match random(&mut seed) % 3 {
                    0 => drop(table.remove(&key).unwrap()),
                    1 => drop(table.set(&key, &Value::from("v".repeat(random(&mut seed) as usize % 3_000))).unwrap()),
                    _ => drop(table.get(&key).unwrap()),
                }
            }
            85..=97 => {
                let options = ChannelOptions { capacity: None, leases: random(&mut seed).is_multiple_of(2) };
                let channel = Channel::with(&family, options).unwrap();
                for number in 0..random(&mut seed) % 200 {
                    channel.write(&Value::List(vec![int(number as i64), Mutex::new(&family).unwrap().handle(), large(1)]), soon()).unwrap();
                    if number % 3 == 0 {
                        channel.read(soon()).unwrap();
                    }
                }
            }
            _ => {
                let victim = random(&mut seed) as usize % kids.len();
                kids[victim].kill();
                kids[victim] = start();
            }
        }
        if queue.unfinished() > 2_000 {
            queue.drain(soon()).unwrap();
        }
        // What the first part of the run needed is all that it ever needs, give or take what waits in the queues.
        let part = began.elapsed().as_secs_f64() / seconds;
        let memory = family.stats().memory;
        if part > 0.3 {
            let peak = *settled.get_or_insert(memory);
            assert!(memory < peak.max(64 << 20) * 4, "{memory} bytes after {peak}, {:?}", family.stats());
        }
    }
    queue.drain(soon()).unwrap();
    queue.close().unwrap();
    assert!(kids.iter_mut().all(Kid::ends_well));
    while queue.try_read().unwrap().item().is_some() {}
    family.bury_the_dead();
    let stats = family.stats();
    assert_eq!((stats.blocks, stats.objects, family.members().len()), (0, 2, 1), "{stats:?}");
}
