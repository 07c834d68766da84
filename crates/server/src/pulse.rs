//! Whether a server's workers turn: what a supervisor's watchdog wants to know.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::lifecycle::{Phase, Stopper};
use crate::mailbox::Mailbox;

/// Feels the workers of one server.
#[derive(Debug)]
pub struct Pulse {
    stopper: Arc<Stopper>,
    workers: Vec<Arc<Mailbox>>,
    // Beats at the last check; the lock is there because whoever asks may do so from several threads.
    last: Mutex<Vec<u64>>,
}

impl Pulse {
    pub(crate) fn new(stopper: Arc<Stopper>, workers: Vec<Arc<Mailbox>>) -> Self {
        let last = Mutex::new(workers.iter().map(|worker| worker.beats()).collect());
        workers.iter().for_each(|worker| worker.nudge());
        Self { stopper, workers, last }
    }

    /// Numbers of the workers that have not turned since the last call, from 0; and has all of them turn before the next. A
    /// worker that has nothing to do turns then, so between two calls there must be time enough for that.
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

    /// Whether the server has been told to stop, in whatever way.
    pub fn is_leaving(&self) -> bool {
        self.stopper.phase() != Phase::Running
    }
}
