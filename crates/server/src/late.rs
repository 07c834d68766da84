//! Turns of workers that take long: a client on such a worker waits, whatever the store does.
//!
//! They are seen from outside, by a thread that looks at all workers every 25 ms, so that a turn costs nothing more than a count
//! that it has anyway, and one that hangs is seen while it does. A worker that has been in one turn for two looks is late, from the
//! first of them on.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_background::Task;
use moneta_store::Clock;

use crate::counters::WorkerCounters;
use crate::mailbox::Mailbox;

/// How often workers are looked at.
const LOOK: Duration = Duration::from_millis(25);
/// What was seen of a worker.
struct Seen {
    mailbox: Arc<Mailbox>,
    counters: Arc<WorkerCounters>,
    beats: u64,
    /// It was in this turn at the look before, too.
    is_late: bool,
}

impl Seen {
    /// Looks; `before`, `now`: Unix milliseconds of the look before and of this one.
    fn look(&mut self, before: u64, now: u64) {
        let beats = self.mailbox.beats();
        let in_turn = Mailbox::is_in_turn(beats) && beats == self.beats;
        if in_turn {
            self.counters.late.note(!self.is_late, before, now);
        }
        (self.beats, self.is_late) = (beats, in_turn);
    }
}

/// Begins to look, until the task is dropped.
///
/// # Errors
/// If the system has no thread for it.
pub(crate) fn watch(workers: Vec<(Arc<Mailbox>, Arc<WorkerCounters>)>, clock: Arc<Clock>) -> io::Result<Task> {
    let seen = |(mailbox, counters): (Arc<Mailbox>, Arc<WorkerCounters>)| Seen {
        beats: mailbox.beats(),
        mailbox,
        counters,
        is_late: false,
    };
    let mut all: Vec<Seen> = workers.into_iter().map(seen).collect();
    moneta_background::start("late turns", move |run| {
        let mut looked = (Instant::now(), clock.millis());
        while run.sleep(LOOK) {
            // Idle workers do not turn the clock.
            clock.refresh();
            let at = Instant::now();
            let elapsed = u64::try_from((at - looked.0).as_millis()).unwrap_or(u64::MAX);
            let now = clock.millis();
            all.iter_mut().for_each(|seen| seen.look(now.saturating_sub(elapsed), now));
            looked = (at, now);
        }
    })
}
