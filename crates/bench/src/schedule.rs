//! When an open loop's requests are due, whether or not the server keeps up.

use std::time::Instant;

use clap::ValueEnum;
use rand::RngExt;
use rand::rngs::SmallRng;
use serde::Serialize;

use crate::random::{generator, unit};

/// How the requests of an open loop are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// At equal distances.
    Fixed,
    /// At exponentially distributed distances, as independent clients would send them.
    Poisson,
}

/// Nanoseconds since a common start, cheap to store.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that reads 0 now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Nanoseconds since the start.
    #[inline]
    pub fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// The times at which one thread's requests are due.
#[derive(Debug)]
pub struct Schedule {
    interval: f64,
    next: f64,
    arrivals: Arrivals,
    random: SmallRng,
}

impl Schedule {
    /// `rate` requests a second, the first at `start` nanoseconds.
    pub fn new(rate: f64, arrivals: Arrivals, start: u64, seed: u64, stream: u64) -> Self {
        Self { interval: 1e9 / rate, next: start as f64, arrivals, random: generator(!seed, stream) }
    }

    /// The time of the next request, in nanoseconds.
    pub fn next(&self) -> u64 {
        self.next as u64
    }

    /// The intended time of the next request if it is not after `now`; every call moves on by one request.
    #[inline]
    pub fn due(&mut self, now: u64) -> Option<u64> {
        let intended = self.next as u64;
        if intended > now {
            return None;
        }
        self.next += match self.arrivals {
            Arrivals::Fixed => self.interval,
            // Inverse transform of the exponential distribution; 1 - u is never 0.
            Arrivals::Poisson => -(1.0 - unit(self.random.random())).ln() * self.interval,
        };
        Some(intended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_caller_gets_every_intended_time() {
        let mut schedule = Schedule::new(1e6, Arrivals::Fixed, 5_000, 0, 0);
        assert_eq!(schedule.due(4_999), None);
        let due: Vec<_> = std::iter::from_fn(|| schedule.due(9_000)).collect();
        assert_eq!(due, [5_000, 6_000, 7_000, 8_000, 9_000]);
        assert_eq!(schedule.next(), 10_000);
    }

    #[test]
    fn poisson_arrivals_keep_the_rate_and_vary() {
        let mut schedule = Schedule::new(1e6, Arrivals::Poisson, 0, 3, 0);
        let due: Vec<_> = std::iter::from_fn(|| schedule.due(100_000_000)).collect();
        // The standard deviation of the count is 316.
        assert!(due.len().abs_diff(100_000) < 1_600, "{}", due.len());
        let mean = 1_000.0;
        let variance =
            due.windows(2).map(|pair| ((pair[1] - pair[0]) as f64 - mean).powi(2)).sum::<f64>() / due.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{variance}");
    }
}
