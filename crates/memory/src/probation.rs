//! What a shard keeps: how much the small log may take, learnt from what is wanted again after it was evicted, and which items
//! are worth their bytes.
//!
//! *The share of the small log.* A longer small log would have kept the keys that come back soon after they left it; a longer
//! main log those that come back soon after they left that. What a byte more is worth to a log is the number of its recent
//! ghosts that come back, over the bytes evicted from it meanwhile. The share moves towards the log where that is more, as
//! ARC moves its target (Megiddo, Modha, FAST 2003, section III); but ARC weighs hits by the lengths of its ghost lists, not
//! by the rates at which they fill, and so gives its recent list too much where popularity does not change.
//!
//! *Probes.* Keys that come round in a loop longer than memory and ghosts are never hit and never come back in time: the main
//! log would stay empty, and every key of the loop would be evicted just before it is wanted. So while the main log has too
//! little that proved itself, one in a few items goes there without a hit. What is hit there stays.
//!
//! *Pace.* What is in the main log and not wanted any more leaves it only as others are promoted. Where nothing is, as in traffic
//! of writes alone, it would stay for ever; so eviction looks at some of the main log for all it looks at of the small one.
//!
//! *Bytes.* An item much larger than others takes the room of many. What that room is worth is measured too: the ghosts that
//! came back, over all bytes evicted meanwhile. An item whose hits are fewer than its bytes would have brought to others stays
//! with the probability of the one over the other: it has two bits of hits, too few for a threshold. An item much smaller than
//! what is evicted on average takes next to no room, and most of these go on to the main log unread: where sizes are equal, none.

use crate::segments::{CAPACITY, Log};

/// The share to begin with (S3-FIFO: 10 %), and always where it is not to be learnt.
const START: f64 = 0.1;
/// Bounds of what is learnt.
const LEAST: f64 = 0.01;
const MOST: f64 = 0.9;
/// Items' worth of share that a ghost which comes back moves at most. Measured: with 2 to 16 misses differ by less than 0.2 %.
const STEP: f64 = 4.0;
/// The main log is starved while the small one has this many times its share, and of the share to begin with.
const STARVED: f64 = 2.0;
/// One in this many items goes to a starved main log without a hit.
const PROBE: u32 = 16;
/// One byte of the main log is looked at for at least so many of the small one, while it has more than one in `MAIN_PART` of
/// both: a little more than probes bring.
const PACE: i64 = 12;
const MAIN_PART: usize = 4;
/// Bytes that neither log looks ahead of the other: a segment of the main one.
const DEBT_MAX: i64 = PACE * (CAPACITY as i64);
/// Hits that pay for room in which one evicted item would have been wanted again, and was remembered. Measured: with 0.25 to 2
/// misses differ by less than 0.5 %; the less, the more large items go.
const PRICE: f64 = 2.0;
/// What is this many times smaller than the mean of what is evicted goes on unread. Measured: with 2 or 4 as good within 0.4 %.
const LIGHT: f64 = 3.0;
/// The share of it that does. Not all: where it comes round in a loop longer than memory, a part that stays is worth more than
/// all in turn.
const LIGHT_SHARE: f64 = 0.75;
/// The golden ratio of 2^32: its multiples are spread evenly over 32 bits, without clusters.
const GOLDEN: u32 = 0x9e37_79b9;

/// The share, and what it is learnt from.
#[derive(Debug)]
pub(crate) struct Probation {
    share: f64,
    /// Whether it is S3-FIFO with nothing learnt.
    pinned: bool,
    /// Bytes lately evicted from each log; older ones count less.
    evicted: [f64; 2],
    /// Items that these bytes were.
    items: f64,
    /// Ghosts that came back meanwhile.
    returns: f64,
    /// Decides over large and small items.
    dice: u32,
    /// Items since the last probe.
    since_probe: u32,
    /// Bytes of the main log that are to be looked at for those of the small one that were, times [`PACE`].
    debt: i64,
}

impl Probation {
    pub(crate) fn new() -> Self {
        Self {
            share: START,
            pinned: false,
            evicted: [0.0; 2],
            items: 0.0,
            returns: 0.0,
            dice: 0,
            since_probe: 0,
            debt: 0,
        }
    }

    /// Keeps the share where it begins, sends no probes, and weighs no bytes.
    pub(crate) fn pin(&mut self) {
        *self = Self { pinned: true, ..Self::new() };
    }

    /// The log whose old end is to be looked at next. Lengths are those of the small and the main log in segments.
    #[inline]
    pub(crate) fn turn(&self, [small, main]: [usize; 2]) -> Log {
        let exceeded = small as f64 > self.share * (small + main) as f64;
        if exceeded && self.debt <= 0 { Log::Small } else { Log::Main }
    }

    /// Counts bytes of `log` that eviction has looked at.
    #[inline]
    pub(crate) fn note_scan(&mut self, log: Log, bytes: usize, [small, main]: [usize; 2]) {
        self.debt = match log {
            _ if self.pinned || main * MAIN_PART <= small + main => 0,
            Log::Small => (self.debt + bytes as i64).min(DEBT_MAX),
            Log::Main => (self.debt - bytes as i64 * PACE).max(-DEBT_MAX),
        };
    }

    /// Whether an item of the small log that had no hit goes to the main one all the same.
    #[inline]
    pub(crate) fn takes_unread(&mut self, bytes: usize, lengths: [usize; 2]) -> bool {
        self.takes_light(bytes) || self.takes_probe(lengths)
    }

    /// Whether it goes there as a probe.
    #[inline]
    fn takes_probe(&mut self, [small, main]: [usize; 2]) -> bool {
        if self.pinned || (small as f64) <= STARVED * self.share.max(START) * (small + main) as f64 {
            return false;
        }
        self.since_probe = (self.since_probe + 1) % PROBE;
        self.since_probe == 0
    }

    /// Counts bytes evicted from `log`; `memory` is the bytes of both logs.
    pub(crate) fn note_eviction(&mut self, log: Log, bytes: usize, memory: usize) {
        self.evicted[log as usize] += bytes as f64;
        self.items += 1.0;
        if self.evicted[0] + self.evicted[1] > memory as f64 {
            self.evicted.iter_mut().for_each(|evicted| *evicted /= 2.0);
            self.items /= 2.0;
            self.returns /= 2.0;
        }
    }

    /// Whether an item of `bytes` with so many hits is worth its room. Says so in turns where it is with a probability only.
    #[inline]
    pub(crate) fn is_worth(&mut self, bytes: usize, hits: u64) -> bool {
        let paid = hits as f64 * (self.evicted[0] + self.evicted[1]);
        let price = PRICE * bytes as f64 * self.returns;
        price <= paid || self.is_lucky(paid / price)
    }

    /// Whether it goes there because it is so small.
    #[inline]
    fn takes_light(&mut self, bytes: usize) -> bool {
        let is_light = bytes as f64 * LIGHT * self.items < self.evicted[0] + self.evicted[1];
        is_light && !self.pinned && self.is_lucky(LIGHT_SHARE)
    }

    #[cold]
    fn is_lucky(&mut self, probability: f64) -> bool {
        self.dice = self.dice.wrapping_add(GOLDEN);
        f64::from(self.dice) < probability * 4_294_967_296.0
    }

    /// A key that left `log` was wanted again, and if `recent`, soon. `items` are in memory.
    pub(crate) fn note_return(&mut self, log: Log, recent: bool, items: usize) {
        if self.pinned {
            return;
        }
        self.returns += 1.0;
        if !recent {
            return;
        }
        let [small, main] = self.evicted;
        let both = (small + main).max(1.0);
        let step = STEP / items.max(1) as f64;
        // Hits over bytes of the one log against those of the other, both times the product of the bytes.
        let moved = match log {
            Log::Small => step * main / both,
            Log::Main => -step * small / both,
        };
        self.share = (self.share + moved).clamp(LEAST, MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: usize = 1 << 20;

    /// The share after many evictions and returns at these rates in 100 from the small and the main log.
    fn learnt(evictions: [u32; 2], returns: [u32; 2]) -> f64 {
        let mut probation = Probation::new();
        for round in 0..100_000u32 {
            for log in [Log::Small, Log::Main] {
                if round % 100 < evictions[log as usize] {
                    probation.note_eviction(log, 100, MEMORY);
                }
                if round % 100 < returns[log as usize] {
                    probation.note_return(log, true, 1000);
                }
            }
        }
        probation.share
    }

    #[test]
    fn the_share_goes_to_the_log_whose_evictions_come_back_more_often() {
        assert!(learnt([90, 10], [50, 1]) > 0.8);
        assert!(learnt([90, 10], [10, 5]) < 0.02);
    }

    #[test]
    fn returns_count_against_what_was_evicted() {
        // Five times as many from the small log, but of nine times as many evicted.
        assert!(learnt([90, 10], [10, 2]) < START);
        assert!(learnt([50, 50], [10, 2]) > START);
    }

    #[test]
    fn what_is_large_stays_as_often_as_its_hits_pay_for_its_bytes() {
        let mut probation = Probation::new();
        let kept =
            |probation: &mut Probation, bytes, hits| (0..1000).filter(|_| probation.is_worth(bytes, hits)).count();
        // Nothing that was evicted came back: no room is too much for a hit.
        (0..100).for_each(|_| probation.note_eviction(Log::Small, 100, MEMORY));
        assert_eq!(kept(&mut probation, 1_000_000, 1), 1000);
        // A tenth came back: room of 500 bytes is worth half a hit, and the price is twice that.
        (0..10).for_each(|_| probation.note_return(Log::Small, false, 1000));
        assert_eq!([100, 500].map(|bytes| kept(&mut probation, bytes, 1)), [1000, 1000]);
        assert!((95..105).contains(&kept(&mut probation, 5000, 1)));
        assert!((295..305).contains(&kept(&mut probation, 5000, 3)));
    }

    #[test]
    fn most_of_what_is_much_smaller_than_the_mean_goes_on_unread() {
        let mut probation = Probation::new();
        let taken = |probation: &mut Probation, bytes| (0..1000).filter(|_| probation.takes_light(bytes)).count();
        // Nothing was evicted: nothing is known.
        assert_eq!(taken(&mut probation, 1), 0);
        (0..100).for_each(|_| probation.note_eviction(Log::Small, 200, MEMORY));
        (0..100).for_each(|_| probation.note_eviction(Log::Main, 1000, MEMORY));
        assert_eq!([201, 600, 10_000].map(|bytes| taken(&mut probation, bytes)), [0, 0, 0]);
        assert!((745..755).contains(&taken(&mut probation, 199)));
        // Long after, the mean is that of what was evicted lately.
        (0..100_000).for_each(|_| probation.note_eviction(Log::Small, 200, MEMORY));
        assert_eq!(taken(&mut probation, 199), 0);
    }

    #[test]
    fn pinned_it_learns_nothing() {
        let mut probation = Probation::new();
        probation.pin();
        for _ in 0..1000 {
            probation.note_eviction(Log::Main, 1000, MEMORY);
            probation.note_return(Log::Small, true, 1);
            probation.note_scan(Log::Small, 1000, [20, 80]);
        }
        assert_eq!([probation.turn([11, 89]), probation.turn([10, 90])], [Log::Small, Log::Main]);
        assert!(probation.is_worth(MEMORY, 1));
        assert!(!probation.takes_light(1));
        assert!((0..100).all(|_| !probation.takes_probe([90, 10])));
    }

    #[test]
    fn one_in_a_few_probes_a_starved_main_log() {
        let mut probation = Probation::new();
        let mut probes = |lengths| (0..160).filter(|_| probation.takes_probe(lengths)).count();
        assert_eq!([probes([90, 10]), probes([20, 80]), probes([10, 90])], [10, 0, 0]);
    }

    #[test]
    fn the_main_log_is_looked_through_at_a_pace() {
        let mut probation = Probation::new();
        let lengths = [60, 40];
        let mut main = 0;
        for _ in 0..13_000 {
            let log = probation.turn(lengths);
            main += u32::from(log == Log::Main);
            probation.note_scan(log, 100, lengths);
        }
        assert!((900..=1100).contains(&main), "{main} of 13,000");
        // Not one that is small.
        probation.note_scan(Log::Small, 100, [80, 20]);
        assert_eq!(probation.turn([80, 20]), Log::Small);
    }
}
