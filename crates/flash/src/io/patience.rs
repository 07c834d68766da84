//! How long reads are waited for, and which devices do not answer.
//!
//! A read that lasts too long fails for the request that waits for it. Its buffer stays with the kernel, or with the thread that
//! reads, until the device ends it.
//!
//! ```text
//!            a read is late
//!  answers ──────────────────> hangs     reads fail at once, but for one after each look, which finds out
//!          <──────────────────           whether the device answers
//!            any read ends
//! ```

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Looks at what is under way in the time that a read may take.
const LOOKS: u32 = 4;
/// Shortest and longest time between two looks.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How long reads are waited for, and which devices do not answer.
pub(super) struct Patience {
    limit: Duration,
    devices: Box<[Device]>,
}

#[derive(Default)]
struct Device {
    /// A read was late, and none has ended since.
    hangs: AtomicBool,
    /// While it hangs: one read may find out whether it still does.
    probes: AtomicBool,
}

/// How often is looked for reads that last longer than `limit`.
pub(crate) fn look_every(limit: Duration) -> Duration {
    (limit / LOOKS).clamp(LOOK.0, LOOK.1)
}

impl Patience {
    pub(super) fn new(limit: Duration, devices: usize) -> Self {
        Self { limit, devices: (0..devices).map(|_| Device::default()).collect() }
    }

    /// How long a read may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Whether a device may be asked for something.
    #[inline]
    pub(super) fn admits(&self, device: usize) -> bool {
        let device = &self.devices[device];
        !device.hangs.load(Relaxed) || device.probes.swap(false, Relaxed)
    }

    /// A device has ended a read, well or not.
    #[inline]
    pub(super) fn note_answer(&self, device: usize) {
        if self.devices[device].hangs.load(Relaxed) {
            self.note_return(device);
        }
    }

    #[cold]
    fn note_return(&self, device: usize) {
        if self.devices[device].hangs.swap(false, Relaxed) {
            tracing::warn!(device, "a device of the SSD tier answers reads again");
        }
    }

    /// Whether a read that was asked for then has lasted too long.
    pub(super) fn is_late(&self, asked: Instant, now: Instant) -> bool {
        now.duration_since(asked) >= self.limit
    }

    /// A request has given up a read that a device has and does not end.
    pub(super) fn note_late(&self, device: usize) {
        if !self.devices[device].hangs.swap(true, Relaxed) {
            let milliseconds = self.limit.as_millis() as u64;
            tracing::error!(device, milliseconds, "a device of the SSD tier does not end a read: reads of it fail");
        }
    }

    /// Lets one read go to each device that hangs.
    pub(super) fn probe(&self) {
        self.devices.iter().filter(|device| device.hangs.load(Relaxed)).for_each(|device| {
            device.probes.store(true, Relaxed);
        });
    }

    /// How many devices hang.
    pub(super) fn hanging(&self) -> usize {
        self.devices.iter().filter(|device| device.hangs.load(Relaxed)).count()
    }

    /// The error of a read that lasts too long.
    pub(super) fn late(&self) -> io::Error {
        let reason = format!("a read has not ended in {} ms", self.limit.as_millis());
        io::Error::new(io::ErrorKind::TimedOut, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_hangs_takes_one_read_after_each_look_until_one_ends() {
        let patience = Patience::new(Duration::from_secs(5), 2);
        assert!(patience.admits(0) && patience.admits(0));
        patience.note_late(0);
        assert_eq!(patience.hanging(), 1);
        assert!(!patience.admits(0) && patience.admits(1));
        patience.probe();
        assert!(patience.admits(0) && !patience.admits(0));
        patience.note_answer(1);
        assert!(!patience.admits(0), "the other one");
        patience.note_answer(0);
        assert!(patience.admits(0) && patience.admits(0));
    }

    #[test]
    fn looks_are_neither_rare_nor_many() {
        let milliseconds = Duration::from_millis;
        assert_eq!(look_every(milliseconds(10)), milliseconds(10));
        assert_eq!(look_every(milliseconds(2000)), milliseconds(500));
        assert_eq!(look_every(milliseconds(3_600_000)), milliseconds(1000));
    }
}
