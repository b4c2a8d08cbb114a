//! The relay does to packets what it was told: measured by `ping`, which knows nothing of it.

use std::time::Duration;

use syncline_testkit::enclosure::Enclosure;
use syncline_testkit::relay::{Relay, Weather};

#[test]
fn packets_are_late_lost_and_cut_off_as_told() {
    let joined = Enclosure::new(2).and_then(|place| Relay::between(&place, [1, 2], 7).map(|relay| (place, relay)));
    let (place, relay) = match joined {
        Ok(joined) => joined,
        Err(reason) => return println!("skipped: {reason}"),
    };
    // Milliseconds of the answers to twenty questions, 2 ms apart.
    let ping = || -> Vec<f64> {
        let words = place.on_host(1, &"ping -c 20 -i 0.002 -W 1 10.78.0.2".split(' ').map(str::to_owned).collect::<Vec<_>>());
        let output = place.command(&words).output().expect("nsenter starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok()).collect()
    };
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
