//! The relay does to packets what it was told: measured by `ping`, which knows nothing of it.

use std::time::Duration;

use syncline_testkit::enclosure::Enclosure;
use syncline_testkit::relay::{Relay, Weather};

/// Milliseconds that answers to `count` questions took, asked `interval` seconds apart.
fn ping(place: &Enclosure, count: usize, interval: f64) -> Vec<f64> {
    let line = format!("ping -c {count} -i {interval} -W 1 10.78.0.2");
    let words = place.on_host(1, &line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let output = place.command(&words).output().expect("nsenter starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok()).collect()
}

#[test]
fn jitter_makes_some_packets_later_than_others() {
    let joined = Enclosure::new(2).and_then(|place| Relay::between(&place, [1, 2], 5).map(|relay| (place, relay)));
    let (place, relay) = match joined {
        Ok(joined) => joined,
        Err(reason) => return println!("skipped: {reason}"),
    };
    relay.set(Weather { delay: Duration::from_millis(5), jitter: Duration::from_millis(20), ..Weather::default() });
    assert!(!ping(&place, 1, 0.1).is_empty(), "the first question also asks who has the address");
    // Far enough apart that none waits for the one ahead of it.
    let mut answers = ping(&place, 25, 0.05);
    assert_eq!(answers.len(), 25);
    answers.sort_by(f64::total_cmp);
    assert!(answers[0] >= 10.0, "{answers:?}");
    // Two draws from 0 to 20 ms: half of all pairs make more than 20, one in eight less than 10. A busy machine is late now and then,
    // but not by this much for half of the packets.
    assert!(answers[12] - answers[0] >= 5.0, "they take as long as each other: {answers:?}");
    assert!(answers[12] >= 20.0 && answers[12] <= 45.0, "{answers:?}");
}

#[test]
fn packets_are_late_lost_and_cut_off_as_told() {
    let joined = Enclosure::new(2).and_then(|place| Relay::between(&place, [1, 2], 7).map(|relay| (place, relay)));
    let (place, relay) = match joined {
        Ok(joined) => joined,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let ping = || ping(&place, 20, 0.002);
    assert_eq!(ping().len(), 20, "fine weather");
    relay.set(Weather { delay: Duration::from_millis(10), jitter: Duration::from_millis(2), ..Weather::default() });
    let answers = ping();
    assert_eq!(answers.len(), 20);
    assert!(answers.iter().all(|time| *time >= 20.0), "{answers:?}");
    relay.set(Weather { loss: 0.5, ..Weather::default() });
    let answered = ping().len();
    assert!((1..=15).contains(&answered), "a quarter of 20 is expected to come back, {answered} did");
    relay.set(Weather { cut: true, ..Weather::default() });
    assert_eq!(ping().len(), 0);
    relay.set(Weather { rate: Some(100_000), ..Weather::default() });
    // A first packet of 1000 bytes takes 10 ms each way at 100 kB/s.
    let words = place.on_host(1, &"ping -c 1 -s 958 10.78.0.2".split(' ').map(str::to_owned).collect::<Vec<_>>());
    let output = place.command(&words).output().expect("nsenter starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let time: f64 = text.split_once("time=").expect("an answer").1.split(' ').next().expect("a number").parse().expect("a number");
    assert!(time >= 20.0, "{text}");
    assert!(relay.passed() > 60);
}
