//! The law by which a job makes room for clients: what its servers' online gets take, compared with what they take in quiet.
//!
//! ```text
//!  each second, for each server:  p99 of the last samples: of at least 100, in a window of up to 60 s
//!      above LIMIT × quiet, twice in a row, at any server  ─▶ rate × 0.7; the samples of before count no more
//!      too few samples since then, but not for 60 s        ─▶ the rate stays
//!      else                                                ─▶ rate + 5 % of the cap, up to the cap
//! ```
//!
//! A server with fewer than 100 samples in 60 s is idle, and holds nothing back. What is quiet is measured of each server when it has
//! samples for the first time: until then the job goes at a hundredth of its cap, for ten seconds at most.

use std::collections::VecDeque;

use serde::Serialize;

/// Samples that make a percentile.
pub const SAMPLES: u64 = 100;
/// Seconds that a window has at most.
pub const WINDOW: usize = 60;
/// By how much the rate falls.
const FALL: f64 = 0.7;
/// By how much of the cap it rises.
const RISE: f64 = 0.05;
/// The share of the cap below which it does not fall, and that it goes at while what is quiet is measured.
const FLOOR: f64 = 0.01;
/// Seconds for which the rate is low at most, until it is known what is quiet.
const LISTENING: u32 = 10;

/// What a server has counted since it began: the bound of a bucket in nanoseconds, and how many samples are in it.
pub type Durations = Vec<(u64, u64)>;

/// One server, seen once a second.
#[derive(Debug, Default)]
struct Seen {
    /// The last seconds, the oldest first.
    counted: VecDeque<Durations>,
    /// p99 in quiet, nanoseconds.
    quiet: Option<u64>,
    /// Seconds in a row in which it was above.
    above: u32,
    /// Since the rate fell last, or it was seen first.
    seconds: u32,
}

/// What a server says to the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// Lower.
    Fall,
    /// It cannot be told yet.
    Stay,
    /// Its quiet is being measured.
    Listen,
    /// Higher.
    Rise,
}

/// The law, with what it has seen.
#[derive(Debug)]
pub struct Law {
    limit: f64,
    /// The share of the cap that is allowed, 0 to 1.
    share: f64,
    cuts: u32,
    lowest: Option<f64>,
    servers: Vec<Seen>,
}

/// What a job may have of its bound, and had to leave to clients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Room {
    /// The share of the bound that it may go at now, or could at its end, 0 to 1.
    pub share: f64,
    /// How often the rate was cut.
    pub cuts: u32,
    /// The lowest share that a cut has left; `None`: there was no cut.
    pub lowest: Option<f64>,
}

impl Law {
    /// For so many servers, whose p99 may be up to `limit` times what it is in quiet.
    pub fn new(servers: usize, limit: f64) -> Self {
        Self {
            limit,
            share: FLOOR,
            cuts: 0,
            lowest: None,
            servers: std::iter::repeat_with(Seen::default).take(servers).collect(),
        }
    }

    /// The share of the cap that is allowed for the next second, now that each server has counted this; `None`: it did not answer, and
    /// counts as idle.
    pub fn second(&mut self, counted: Vec<Option<Durations>>) -> f64 {
        let words: Vec<Word> =
            self.servers.iter_mut().zip(counted).map(|(seen, counted)| seen.second(counted, self.limit)).collect();
        if words.contains(&Word::Fall) {
            self.share = (self.share * FALL).max(FLOOR);
            self.cuts = self.cuts.saturating_add(1);
            self.lowest = Some(self.lowest.map_or(self.share, |lowest| lowest.min(self.share)));
            self.servers.iter_mut().for_each(Seen::forget);
        } else if words.contains(&Word::Listen) {
            return FLOOR;
        } else if !words.contains(&Word::Stay) {
            self.share = (self.share + RISE).min(1.0);
        }
        self.share
    }

    /// What it allows by now, in thousandths.
    pub fn room(&self) -> Room {
        let rounded = |share: f64| (share * 1000.0).round() / 1000.0;
        Room { share: rounded(self.share), cuts: self.cuts, lowest: self.lowest.map(rounded) }
    }

    /// The p99 of each server in quiet, in nanoseconds; `None`: it was never busy.
    pub fn quiet(&self) -> Vec<Option<u64>> {
        self.servers.iter().map(|seen| seen.quiet).collect()
    }
}

impl Seen {
    fn second(&mut self, counted: Option<Durations>, limit: f64) -> Word {
        self.seconds += 1;
        let Some(counted) = counted else {
            self.counted.clear();
            return Word::Rise;
        };
        // A server that was started again counts from 0.
        if self.counted.back().is_some_and(|before| total(before) > total(&counted)) {
            self.counted.clear();
        }
        self.counted.push_back(counted);
        if self.counted.len() > WINDOW + 1 {
            self.counted.pop_front();
        }
        let Some(p99) = self.p99() else {
            let is_idle = self.counted.len() > WINDOW;
            return match self.quiet {
                None if self.seconds <= LISTENING => Word::Listen,
                Some(_) if !is_idle && self.seconds < WINDOW as u32 => Word::Stay,
                _ => Word::Rise,
            };
        };
        let Some(quiet) = self.quiet else {
            // Busy for the first time, perhaps in the midst of the job: what the job itself adds is not quiet.
            if self.seconds > LISTENING {
                self.forget();
                return Word::Listen;
            }
            self.quiet = Some(p99.max(1));
            return Word::Stay;
        };
        self.above = if p99 as f64 > limit * quiet as f64 { self.above + 1 } else { 0 };
        match self.above {
            0 => Word::Rise,
            1 => Word::Stay,
            _ => Word::Fall,
        }
    }

    /// What was seen until now counts no more.
    fn forget(&mut self) {
        let last = self.counted.pop_back();
        self.counted.clear();
        self.counted.extend(last);
        (self.above, self.seconds) = (0, 0);
    }

    /// Of the shortest window that has enough samples.
    fn p99(&self) -> Option<u64> {
        let now = self.counted.back()?;
        let since = self.counted.iter().rev().skip(1).find(|before| total(now) - total(before) >= SAMPLES)?;
        let added: Vec<(u64, u64)> =
            now.iter().map(|(bound, count)| (*bound, count.saturating_sub(count_of(since, *bound)))).collect();
        let above = added.iter().map(|(_, count)| count).sum::<u64>() / 100;
        let mut left = above;
        // From the slowest on: the bucket in which the hundredth part ends.
        for (bound, count) in added.iter().rev() {
            if *count > left {
                return Some(*bound);
            }
            left -= count;
        }
        None
    }
}

fn total(counted: &Durations) -> u64 {
    counted.iter().map(|(_, count)| count).sum()
}

fn count_of(counted: &Durations, bound: u64) -> u64 {
    counted.iter().find(|(own, _)| *own == bound).map_or(0, |(_, count)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that adds `samples` of each of these bounds a second.
    fn seconds(law: &mut Law, counted: &mut Durations, count: usize, added: &[(u64, u64)]) -> Vec<f64> {
        let second = |_| {
            for (bound, samples) in added {
                match counted.iter_mut().find(|(own, _)| own == bound) {
                    Some((_, all)) => *all += samples,
                    None => counted.push((*bound, *samples)),
                }
            }
            counted.sort_unstable();
            law.second(vec![Some(counted.clone())])
        };
        (0..count).map(second).collect()
    }

    #[test]
    fn the_rate_falls_where_gets_are_slower_than_in_quiet_and_rises_else() {
        let (mut law, mut counted) = (Law::new(1, 1.5), Durations::new());
        let quiet = seconds(&mut law, &mut counted, 30, &[(100, 500)]);
        assert_eq!((quiet[0], *quiet.last().unwrap()), (0.01, 1.0), "it rises to its cap");
        assert!(quiet.windows(2).all(|pair| pair[1] - pair[0] < 0.0501), "by a twentieth a second");
        assert_eq!(law.quiet(), [Some(100)]);
        let slow = seconds(&mut law, &mut counted, 4, &[(100, 500), (200, 20)]);
        assert_eq!(slow[..2], [1.0, 0.7], "the first time it waits");
        assert!((slow[3] - 0.49).abs() < 1e-9, "{slow:?}");
        // Less than a hundredth part, or not half as much again: as in quiet.
        let fine = seconds(&mut law, &mut counted, 2, &[(100, 500), (150, 40), (9000, 3)]);
        assert!((fine[1] - 0.59).abs() < 1e-9, "{fine:?}");
        assert_eq!(law.room(), Room { share: 0.59, cuts: 2, lowest: Some(0.49) });
    }

    #[test]
    fn servers_that_are_idle_do_not_hold_it_back() {
        let (mut law, mut counted) = (Law::new(1, 1.5), Durations::new());
        let idle = seconds(&mut law, &mut counted, 40, &[]);
        assert_eq!((idle[9], *idle.last().unwrap()), (0.01, 1.0), "it listens for ten seconds");
        // It becomes busy in the midst of the job, which makes room to hear what is quiet.
        let busy = seconds(&mut law, &mut counted, 4, &[(300, 500)]);
        assert_eq!(busy[0], 0.01);
        assert_eq!(law.quiet(), [Some(300)]);
    }

    #[test]
    fn a_few_slow_gets_are_no_reason_and_too_few_gets_wait_for_more() {
        let (mut law, mut counted) = (Law::new(1, 1.5), Durations::new());
        seconds(&mut law, &mut counted, 40, &[(100, 500)]);
        // 20 a second: five seconds make a percentile.
        let slow = seconds(&mut law, &mut counted, 12, &[(400, 20)]);
        assert!(slow.iter().filter(|share| **share < 0.71).count() > 0, "{slow:?}");
        assert!(*slow.last().unwrap() > 0.3, "not each second of old samples is held against it: {slow:?}");
    }

    #[test]
    fn a_server_that_was_started_again_or_does_not_answer_is_no_fault_of_the_job() {
        let mut law = Law::new(2, 1.5);
        let busy = |seconds: u64| Some(vec![(100, 200 * seconds)]);
        let shares: Vec<f64> = (1..40).map(|second| law.second(vec![busy(second), None])).collect();
        assert_eq!(shares.last(), Some(&1.0));
        assert_eq!(law.second(vec![busy(1), None]), 1.0);
        assert_eq!(law.second(vec![busy(2), busy(1)]), 1.0);
        assert_eq!(law.second(vec![busy(3), busy(2)]), 0.01, "the other is busy for the first time");
    }
}
