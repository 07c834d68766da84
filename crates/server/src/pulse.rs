//! Checks that a server's workers are turning, for a supervisor's watchdog.

use std::sync::Arc;

use moneta_process::supervisor;
use parking_lot::Mutex;

use crate::mailbox::Mailbox;

/// The watchdog's view of one server's workers.
#[derive(Debug)]
pub struct Pulse {
    workers: Vec<Arc<Mailbox>>,
    // Beats at the last check; locked because several threads may check.
    last: Mutex<Vec<u64>>,
}

impl Pulse {
    pub(crate) fn new(workers: Vec<Arc<Mailbox>>) -> Self {
        let last = Mutex::new(workers.iter().map(|worker| worker.beats()).collect());
        workers.iter().for_each(|worker| worker.nudge());
        Self { workers, last }
    }

    /// The numbers, from 0, of workers that have not turned since the last call. Wakes all workers, so that idle ones turn too
    /// before the next call; leave enough time between calls for that.
    pub fn standing_still(&self) -> Vec<usize> {
        let mut last = self.last.lock();
        let mut still = Vec::new();
        for (number, (worker, last)) in self.workers.iter().zip(last.iter_mut()).enumerate() {
            let beats = worker.beats();
            if std::mem::replace(last, beats) == beats {
                still.push(number);
            }
            worker.nudge();
        }
        still
    }
}

impl supervisor::Pulse for Pulse {
    fn standing_still(&self) -> Vec<usize> {
        Pulse::standing_still(self)
    }
}
