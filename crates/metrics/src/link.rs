//! What passed over one link, and how often its two sides had to sleep.
//!
//! The sending and the receiving side are usually two threads. Each bumps counters in cache lines of its own, so
//! that counting a frame costs neither of them a trip to the other's core.

use crate::Counter;

/// Counters of one link, as this process sees it.
///
/// ```
/// let stats = syncline_metrics::LinkStats::new();
/// stats.frames_sent.increment();
/// stats.bytes_sent.add(64);
/// assert_eq!(stats.snapshot().bytes_sent, 64);
/// ```
#[derive(Debug, Default)]
#[repr(C, align(128))] // two lines per side: CPUs fetch lines in pairs
pub struct LinkStats {
    /// Frames handed to the link whole.
    pub frames_sent: Counter,
    /// Bytes of those frames, headers included.
    pub bytes_sent: Counter,
    /// Times a send had to sleep until the peer made room.
    pub send_parks: Counter,
    gap: Gap,
    /// Frames taken from the link whole.
    pub frames_received: Counter,
    /// Bytes of those frames, headers included.
    pub bytes_received: Counter,
    /// Times a receive had to sleep until something came.
    pub parks: Counter,
    /// Frames that were refused: a bad header, a wrong epoch.
    pub frames_refused: Counter,
}

/// Pushes the receiving side's counters off the sending side's cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Gap;

impl LinkStats {
    /// All zeros.
    pub fn new() -> LinkStats {
        LinkStats::default()
    }

    /// The counts so far. While the link runs, they may differ by the frames under way.
    pub fn snapshot(&self) -> LinkSnapshot {
        LinkSnapshot {
            frames_sent: self.frames_sent.get(),
            bytes_sent: self.bytes_sent.get(),
            send_parks: self.send_parks.get(),
            frames_received: self.frames_received.get(),
            bytes_received: self.bytes_received.get(),
            parks: self.parks.get(),
            frames_refused: self.frames_refused.get(),
        }
    }
}

/// [`LinkStats`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSnapshot {
    /// Frames handed to the link whole.
    pub frames_sent: u64,
    /// Bytes of those frames, headers included.
    pub bytes_sent: u64,
    /// Times a send had to sleep.
    pub send_parks: u64,
    /// Frames taken from the link whole.
    pub frames_received: u64,
    /// Bytes of those frames, headers included.
    pub bytes_received: u64,
    /// Times a receive had to sleep.
    pub parks: u64,
    /// Frames that were refused.
    pub frames_refused: u64,
}

impl LinkSnapshot {
    /// Name, help and value of each count, as the registry shows them.
    pub(crate) fn named(&self) -> [(&'static str, &'static str, u64); 7] {
        [
            ("syncline_link_frames_sent_total", "Frames handed to the link.", self.frames_sent),
            ("syncline_link_bytes_sent_total", "Bytes of frames handed to the link.", self.bytes_sent),
            ("syncline_link_send_parks_total", "Times a send slept until there was room.", self.send_parks),
            ("syncline_link_frames_received_total", "Frames taken from the link.", self.frames_received),
            ("syncline_link_bytes_received_total", "Bytes of frames taken from the link.", self.bytes_received),
            ("syncline_link_parks_total", "Times a receive slept until something came.", self.parks),
            ("syncline_link_frames_refused_total", "Frames refused by their header.", self.frames_refused),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_two_directions_never_share_a_cache_line() {
        let sending = offset_of!(LinkStats, send_parks) / 128;
        let receiving = offset_of!(LinkStats, frames_received) / 128;
        assert!(sending < receiving);
        assert_eq!(align_of::<LinkStats>(), 128);
    }

    #[test]
    fn a_snapshot_tells_every_counter() {
        let stats = LinkStats::new();
        let counters = [
            &stats.frames_sent,
            &stats.bytes_sent,
            &stats.send_parks,
            &stats.frames_received,
            &stats.bytes_received,
            &stats.parks,
            &stats.frames_refused,
        ];
        for (value, counter) in (1..).zip(counters) {
            counter.add(value);
        }
        let seen = stats.snapshot();
        assert_eq!(seen.named().map(|(_, _, value)| value), [1, 2, 3, 4, 5, 6, 7]);
    }
}
