//! Time limits of reads, and devices that hang.
//!
//! A late read fails for the request that waits for it. Its buffer stays with the kernel, or with the reading thread, until the
//! device completes the read.
//!
//! ```text
//!            a read is late
//!  answers ──────────────────> hangs     reads fail at once, except one after each check, which probes
//!          <──────────────────           whether the device answers again
//!            any read ends
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::io::running::{Deadline, RunningTime};

/// Checks for late reads within the time limit of a read.
const LOOKS: u32 = 4;
/// Shortest and longest time between two checks.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// The time limit of reads, and the state of each device.
pub(super) struct Patience {
    limit: Duration,
    time: Arc<RunningTime>,
    devices: Box<[Device]>,
}

#[derive(Default)]
struct Device {
    /// A read was late, and none has completed since.
    hangs: AtomicBool,
    /// While the device hangs: one read may go through as a probe.
    probes: AtomicBool,
}

/// How often to check for reads that take longer than `limit`.
pub fn look_every(limit: Duration) -> Duration {
    (limit / LOOKS).clamp(LOOK.0, LOOK.1)
}

impl Patience {
    pub(super) fn new(limit: Duration, time: Arc<RunningTime>, devices: usize) -> Self {
        Self { limit, time, devices: (0..devices).map(|_| Device::default()).collect() }
    }

    /// The time limit of a read.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Whether a read may be sent to a device.
    #[inline]
    pub(super) fn admits(&self, device: usize) -> bool {
        let device = &self.devices[device];
        !device.hangs.load(Relaxed) || device.probes.swap(false, Relaxed)
    }

    /// A device has completed a read, successfully or not.
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

    /// The deadline of a read that is requested now.
    #[inline]
    pub(super) fn deadline(&self) -> Deadline {
        Deadline::after(self.limit, &self.time)
    }

    /// Whether a read with this deadline is late.
    pub(super) fn is_late(&self, deadline: Deadline) -> bool {
        deadline.is_over(&self.time)
    }

    /// A read of this device was late.
    pub(super) fn note_late(&self, device: usize) {
        if !self.devices[device].hangs.swap(true, Relaxed) {
            let milliseconds = self.limit.as_millis() as u64;
            tracing::error!(device, milliseconds, "a device of the SSD tier does not end a read: reads of it fail");
        }
    }

    /// Lets one read through to each hanging device.
    pub(super) fn probe(&self) {
        self.devices.iter().filter(|device| device.hangs.load(Relaxed)).for_each(|device| {
            device.probes.store(true, Relaxed);
        });
    }

    /// How many devices hang.
    pub(super) fn hanging(&self) -> usize {
        self.devices.iter().filter(|device| device.hangs.load(Relaxed)).count()
    }

    /// The error of a late read.
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
        let patience = Patience::new(Duration::from_secs(5), Arc::new(RunningTime::new()), 2);
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
