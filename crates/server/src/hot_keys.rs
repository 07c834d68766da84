//! The keys that clients ask for most: by requests, and by bytes in and out. Taken from the commands that are timed, one in
//! [`SAMPLE`], in windows of ten seconds; what is shown is the last window that is over.
//!
//! Each worker has two summaries for the window that goes on and two for the one before, 144 KiB once a command was sampled. A worker never
//! waits: while they are read, a sample is left out.

use moneta_store::OwnCounter;
use parking_lot::Mutex;

use crate::latency::SAMPLE;
use crate::space_saving::{Heavy, Merged, Summary};

/// Length of a window, seconds.
pub(crate) const WINDOW: u32 = 10;
/// Keys shown of each kind.
const SHOWN: usize = 20;
/// Bytes that count as one in the summary by bytes: what is less is carried on to the next sample, so that one that is counted
/// stands for those before it.
const BYTES_UNIT: u64 = 4096;

/// One window of one worker.
#[derive(Default)]
struct Window {
    /// Which one: Unix seconds over [`WINDOW`].
    number: u32,
    requests: Summary,
    bytes: Summary,
}

impl Window {
    fn begin(&mut self, number: u32) {
        self.number = number;
        self.requests.clear();
        self.bytes.clear();
    }
}

#[derive(Default)]
struct Windows {
    current: Window,
    closed: Window,
    /// Bytes that are not counted yet.
    carried: u64,
}

impl Windows {
    /// By itself: a caller that has room for all of it on its stack looks at each page of that, each time.
    #[cold]
    #[inline(never)]
    fn begin() -> Box<Self> {
        Box::default()
    }

    fn move_bytes(&mut self, key: &[u8], bytes: usize) {
        self.carried += bytes as u64;
        let units = self.carried / BYTES_UNIT;
        if units > 0 {
            self.carried %= BYTES_UNIT;
            self.current.bytes.add(key, units);
        }
    }

    fn turn(&mut self, number: u32) {
        if self.current.number != number {
            std::mem::swap(&mut self.current, &mut self.closed);
            self.current.begin(number);
        }
    }
}

/// The hot keys of one worker.
#[derive(Default)]
pub struct HotKeys {
    windows: Mutex<Option<Box<Windows>>>,
    /// Samples left out because the summaries were being read.
    missed: OwnCounter,
}

impl HotKeys {
    /// A command that stands for [`SAMPLE`] asked for one key at the Unix second `now`, and was answered: both took so many bytes.
    pub(crate) fn answered(&self, now: u32, key: &[u8], bytes: usize) {
        self.with(now, |windows| {
            windows.current.requests.add(key, 1);
            windows.move_bytes(key, bytes);
        });
    }

    /// One asked for `keys`, each of which stands for `times`.
    pub(crate) fn asked<'k>(&self, now: u32, keys: impl Iterator<Item = &'k [u8]>, times: u64) {
        self.with(now, |windows| keys.for_each(|key| windows.current.requests.add(key, times)));
    }

    /// Requests and replies of such a command took so many bytes.
    pub(crate) fn moved(&self, now: u32, key: &[u8], bytes: usize) {
        self.with(now, |windows| windows.move_bytes(key, bytes));
    }

    fn with(&self, now: u32, change: impl FnOnce(&mut Windows)) {
        let Some(mut windows) = self.windows.try_lock() else { return self.missed.bump() };
        let windows = windows.get_or_insert_with(Windows::begin);
        windows.turn(now / WINDOW);
        change(windows);
    }

    /// Gives its memory back.
    pub(crate) fn forget(&self) {
        *self.windows.lock() = None;
    }
}

impl std::fmt::Debug for HotKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HotKeys").field("missed", &self.missed).finish_non_exhaustive()
    }
}

/// The hottest keys of one kind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Hottest {
    /// All requests, or all bytes.
    pub(crate) total: u64,
    /// The heaviest keys, in the same unit.
    pub(crate) keys: Vec<Heavy>,
}

impl Hottest {
    fn of(merged: Merged, unit: u64) -> Self {
        let total = merged.total() * unit;
        let scaled = |heavy: Heavy| Heavy { weight: heavy.weight * unit, error: heavy.error * unit, ..heavy };
        Self { total, keys: merged.heaviest(SHOWN).into_iter().map(scaled).collect() }
    }

    /// The share of a weight in all.
    pub(crate) fn share(&self, weight: u64) -> f64 {
        if self.total == 0 { 0.0 } else { (weight as f64 / self.total as f64).min(1.0) }
    }

    /// The share that the hottest key has at least.
    pub(crate) fn top_share(&self) -> f64 {
        self.keys.iter().map(|heavy| self.share(heavy.weight - heavy.error)).fold(0.0, f64::max)
    }
}

/// The hottest keys of a server in the last window that is over.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// The Unix second it began.
    pub(crate) begun: u32,
    /// Commands that were sampled.
    pub(crate) samples: u64,
    pub(crate) by_requests: Hottest,
    pub(crate) by_bytes: Hottest,
}

/// Those of all workers at the Unix second `now`.
pub(crate) fn hottest<'a>(workers: impl Iterator<Item = &'a HotKeys>, now: u32) -> Told {
    let number = (now / WINDOW).saturating_sub(1);
    let (mut requests, mut bytes) = (Merged::default(), Merged::default());
    for worker in workers {
        let windows = worker.windows.lock();
        let Some(windows) = windows.as_deref() else { continue };
        // A worker that has had nothing to do since has not turned to the next one.
        let window = [&windows.closed, &windows.current].into_iter().find(|window| window.number == number);
        if let Some(window) = window {
            requests.add(&window.requests);
            bytes.add(&window.bytes);
        }
    }
    let samples = requests.total();
    Told {
        begun: number * WINDOW,
        samples,
        by_requests: Hottest::of(requests, SAMPLE),
        by_bytes: Hottest::of(bytes, SAMPLE * BYTES_UNIT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(worker: &HotKeys, now: u32, key: &str, times: usize, bytes: usize) {
        for _ in 0..times {
            worker.asked(now, std::iter::once(key.as_bytes()), 1);
            worker.moved(now, key.as_bytes(), bytes);
        }
    }

    #[test]
    fn the_last_window_that_is_over_is_told_of_all_workers_together() {
        let workers: [HotKeys; 2] = Default::default();
        ask(&workers[0], 1000, "often", 30, 8);
        ask(&workers[1], 1009, "often", 30, 8);
        ask(&workers[1], 1009, "large", 10, 1 << 20);
        assert_eq!(hottest(workers.iter(), 1009).samples, 0, "it goes on");
        for now in [1010, 1019] {
            let told = hottest(workers.iter(), now);
            assert_eq!((told.begun, told.samples, told.by_requests.total), (1000, 70, 70 * SAMPLE));
            let first = |hottest: &Hottest| String::from_utf8_lossy(&hottest.keys[0].key).into_owned();
            assert_eq!((first(&told.by_requests), first(&told.by_bytes)), ("often".into(), "large".into()));
            assert!((told.by_requests.top_share() - 6.0 / 7.0).abs() < 1e-9);
            assert!(told.by_bytes.total.abs_diff(SAMPLE * (10 << 20)) <= SAMPLE * 2 * BYTES_UNIT);
            ask(&workers[0], now, "later", 1, 0);
        }
        assert_eq!(hottest(workers.iter(), 1020).by_requests.total, 2 * SAMPLE);
        assert_eq!(hottest(workers.iter(), 1030).by_requests, Hottest::default(), "nothing was asked since");
        workers.iter().for_each(HotKeys::forget);
        assert!(workers.iter().all(|worker| worker.windows.lock().is_none()));
    }

    #[test]
    fn small_values_count_by_bytes_as_much_as_they_are() {
        let worker = HotKeys::default();
        for round in 0..1000 {
            ask(&worker, 50, if round % 4 == 0 { "quarter" } else { "rest" }, 1, 100);
        }
        let told = hottest(std::iter::once(&worker), 60);
        assert!(told.by_bytes.total.abs_diff(1000 * 100 * SAMPLE) <= SAMPLE * BYTES_UNIT, "{told:?}");
    }
}
