//! How often the sides of a control link say that they live, and how long silence is no death.

use std::time::Duration;

/// How often both sides of a control link between hosts say that they live: six times within the timeout,
/// at most every five seconds, so that a few lost ones alarm nobody.
pub fn heartbeat_interval(timeout: Duration) -> Duration {
    (timeout / 6).clamp(Duration::from_millis(50), Duration::from_secs(5))
}

/// Silence after which a member on another host, or the coordinator, counts as cut off: four missed heartbeats.
///
/// This is less than the timeout, so that whoever waits for a rank that itself waits for the silent one hears of
/// the silent one before its own patience ends and it names the wrong rank.
pub fn silent_after(timeout: Duration) -> Duration {
    (timeout * 2 / 3).max(2 * heartbeat_interval(timeout))
}
