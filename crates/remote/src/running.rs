//! The clock of a client: measures only time in which its thread could serve it.
//!
//! A thread may be delayed: its process is stopped, the machine is overloaded, other work took long. It neither sends nor
//! receives meanwhile, so that time must not count against a server. So a waiting client is turned in beats, several in each
//! timeout, and between two turns at most two beats count. On a thread that is always late, a request still times out after a few
//! turns, however far apart they are.
//!
//! A client without a request in flight needs no turns, and all time counts.

use std::time::{Duration, Instant};

/// Beats in a timeout. Each may be as late again before time is lost, so a hold-up costs what is under way at most a quarter
/// of its timeout, while a thread that only waits is woken eight times in one.
const BEATS: u32 = 8;

/// The clock of a client. Its time is the system's, less the time that does not count.
#[derive(Debug)]
pub(crate) struct RunningClock {
    beat: Duration,
    /// Time that does not count, so far.
    lost: Duration,
    /// Until when the next turn has to be, in the system's time, for all of its time to count.
    limit: Option<Instant>,
}

impl RunningClock {
    /// For a client whose shortest timeout is `timeout`.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { beat: timeout / BEATS, lost: Duration::ZERO, limit: None }
    }

    /// The moment at which something begins that waits for a turn.
    #[inline]
    pub(crate) fn begin(&mut self, system: Instant) -> Instant {
        let limit = *self.limit.get_or_insert(system + 2 * self.beat);
        system.min(limit) - self.lost
    }

    /// The moment of a turn.
    #[inline]
    pub(crate) fn turn(&mut self, system: Instant) -> Instant {
        if let Some(limit) = self.limit {
            self.lost += system.saturating_duration_since(limit);
        }
        system - self.lost
    }

    /// The system time of a moment at which nothing is waited for before.
    pub(crate) fn system(&self, moment: Instant) -> Instant {
        moment + self.lost
    }

    /// The system time of the turn that has to follow the one at `system`, given the next `deadline`.
    #[inline]
    pub(crate) fn next_turn(&mut self, deadline: Option<Instant>, system: Instant) -> Option<Instant> {
        self.limit = deadline.map(|_| system + 2 * self.beat);
        deadline.map(|deadline| (deadline + self.lost).min(system + self.beat))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(800);
    const BEAT: Duration = Duration::from_millis(100);

    #[test]
    fn of_a_hold_up_two_beats_count() {
        let (mut clock, start) = (RunningClock::new(TIMEOUT), Instant::now());
        let begun = clock.begin(start);
        assert_eq!(begun, start);
        let deadline = begun + TIMEOUT;

        assert_eq!(clock.turn(start + BEAT), start + BEAT);
        assert_eq!(clock.next_turn(Some(deadline), start + BEAT), Some(start + 2 * BEAT));
        // A turn that is late by a beat is in time.
        assert_eq!(clock.turn(start + 3 * BEAT), start + 3 * BEAT);
        assert_eq!(clock.next_turn(Some(deadline), start + 3 * BEAT), Some(start + 4 * BEAT));

        let hold_up = 100 * TIMEOUT;
        let resumed = start + 3 * BEAT + hold_up;
        // What begins in it begins no later than the turn that ends it.
        assert_eq!(clock.begin(resumed), start + 5 * BEAT);
        assert_eq!(clock.turn(resumed), start + 5 * BEAT);
        assert_eq!(clock.next_turn(Some(deadline), resumed), Some(resumed + BEAT));
        assert_eq!(clock.turn(resumed + BEAT), start + 6 * BEAT);
        // The last stretch is shorter than a beat.
        assert_eq!(clock.next_turn(Some(start + 6 * BEAT + BEAT / 2), resumed + BEAT), Some(resumed + BEAT + BEAT / 2));
    }

    #[test]
    fn what_begins_sets_the_limit_where_nothing_was_due() {
        let (mut clock, start) = (RunningClock::new(TIMEOUT), Instant::now());
        clock.turn(start);
        assert_eq!(clock.next_turn(None, start), None);
        let begun = clock.begin(start + TIMEOUT);
        assert_eq!(begun, start + TIMEOUT);
        assert_eq!(clock.turn(start + 10 * TIMEOUT), begun + 2 * BEAT);
    }

    #[test]
    fn while_nothing_is_due_all_time_counts() {
        let (mut clock, start) = (RunningClock::new(TIMEOUT), Instant::now());
        clock.turn(start);
        assert_eq!(clock.next_turn(None, start), None);
        assert_eq!(clock.turn(start + 10 * TIMEOUT), start + 10 * TIMEOUT);
    }
}
