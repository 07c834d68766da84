//! The limit of keys a second: a token bucket without a store of tokens, so that keys are spread evenly (the generic cell rate
//! algorithm, ITU-T I.371, with no burst tolerance).

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Into how many parts a second is cut: no batch has more keys than fit one.
const PARTS: f64 = 10.0;

/// When the next keys may be asked for.
#[derive(Debug)]
struct Schedule {
    /// Keys a second.
    rate: f64,
    /// Since the start of the run.
    next: Duration,
}

impl Schedule {
    /// Takes the next place for `keys` keys, at `now`; returns how long it is until then.
    fn take(&mut self, now: Duration, keys: usize) -> Duration {
        let begin = self.next.max(now);
        self.next = begin + Duration::from_secs_f64(keys as f64 / self.rate);
        begin - now
    }
}

/// The schedule that all threads of a run share.
#[derive(Debug)]
pub(crate) struct Pace {
    start: Instant,
    schedule: Option<Mutex<Schedule>>,
    batch: usize,
}

impl Pace {
    /// At most `rate` keys a second, `batch` of them at once.
    pub(crate) fn new(rate: Option<f64>, batch: usize) -> Self {
        let part = rate.map_or(usize::MAX, |rate| (rate / PARTS).ceil() as usize);
        let schedule = rate.map(|rate| Mutex::new(Schedule { rate, next: Duration::ZERO }));
        Self { start: Instant::now(), schedule, batch: batch.min(part).max(1) }
    }

    /// How many keys may be asked for at once.
    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    /// How long to wait before asking for `keys` keys, which are entered into the schedule.
    pub(crate) fn take(&self, keys: usize) -> Duration {
        self.schedule.as_ref().map_or(Duration::ZERO, |schedule| schedule.lock().take(self.start.elapsed(), keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_keys_than_the_rate() {
        let pace = Pace::new(Some(1000.0), 500);
        assert_eq!(pace.batch(), 100, "a batch is a tenth of a second");
        let mut schedule = Schedule { rate: 1000.0, next: Duration::ZERO };
        let (mut now, mut moments) = (Duration::ZERO, Vec::new());
        for round in 0..200 {
            now += schedule.take(now, pace.batch());
            moments.push(now);
            // Some batches take longer than their part of the second; what is lost is not made up for.
            now += Duration::from_millis(if round % 7 == 0 { 150 } else { 3 });
        }
        for (index, begin) in moments.iter().enumerate() {
            let batches = moments[index..].iter().take_while(|at| **at < *begin + Duration::from_secs(1)).count();
            assert!(batches * pace.batch() <= 1000, "{batches} batches in the second from {begin:?}");
        }
        assert!(now > Duration::from_secs(20), "{now:?}");
    }

    #[test]
    fn threads_that_come_at_once_get_places_one_after_another() {
        let mut schedule = Schedule { rate: 100.0, next: Duration::ZERO };
        let waits: Vec<_> = (0..4).map(|_| schedule.take(Duration::from_secs(1), 10).as_millis()).collect();
        assert_eq!(waits, [0, 100, 200, 300]);
    }

    #[test]
    fn without_a_rate_there_is_no_wait() {
        let pace = Pace::new(None, 500);
        assert_eq!((pace.batch(), pace.take(1_000_000), pace.take(1)), (500, Duration::ZERO, Duration::ZERO));
        assert_eq!(Pace::new(Some(0.5), 500).batch(), 1);
    }
}
