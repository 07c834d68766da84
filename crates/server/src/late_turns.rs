//! What is known of a worker's turns that took long (`crate::late` looks for them).

use std::collections::VecDeque;

use moneta_store::OwnCounter;
use parking_lot::Mutex;

/// Late turns of a worker that are remembered, for what the slow log says of requests that waited meanwhile.
const REMEMBERED: usize = 16;

/// The late turns of one worker. Only the thread that looks writes.
#[derive(Debug, Default)]
pub struct LateTurns {
    turns: OwnCounter,
    milliseconds: OwnCounter,
    /// The last ones: when they were seen first and last, Unix milliseconds.
    last: Mutex<VecDeque<(u64, u64)>>,
}

impl LateTurns {
    /// How many there were, and how long they took together, in milliseconds.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.turns.get(), self.milliseconds.get())
    }

    /// How long the worker was late between two moments, in milliseconds.
    pub(crate) fn between(&self, from: u64, to: u64) -> u64 {
        let within = |(begun, ended): &(u64, u64)| (*ended).min(to).saturating_sub((*begun).max(from));
        self.last.lock().iter().map(within).sum()
    }

    /// It was in one turn from one look to the next; `is_new`: that turn was not seen to be late before. Unix milliseconds.
    pub(crate) fn note(&self, is_new: bool, from: u64, to: u64) {
        let mut last = self.last.lock();
        if is_new {
            self.turns.bump();
            if last.len() == REMEMBERED {
                last.pop_front();
            }
            last.push_back((from, from));
        }
        if let Some((begun, ended)) = last.back_mut() {
            let before = ended.saturating_sub(*begun);
            *ended = to.max(*begun);
            self.milliseconds.add((*ended - *begun).saturating_sub(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_goes_on_counts_once_and_as_long_as_it_was_seen() {
        let late = LateTurns::default();
        late.note(true, 1000, 1025);
        late.note(false, 1025, 1050);
        late.note(true, 2000, 2025);
        assert_eq!(late.counts(), (2, 75));
        assert_eq!(late.between(0, 5000), 75);
        assert_eq!(late.between(1010, 2010), 50);
        assert_eq!(late.between(1050, 2000), 0);
        for turn in 0..100 {
            late.note(true, 3000 + turn, 3001 + turn);
        }
        assert!(late.last.lock().len() <= REMEMBERED);
    }
}
