//! How fast a node answers: the mean over windows of its requests.
//!
//! What a node's connections count anyway is looked at ten times a second, so requests cost nothing more. A window ends when it
//! is a second old and has seen enough requests. One that lasts for too long begins anew, so that what a quiet node did long ago
//! does not count. So does one in which the way to the node was full of large values, of this process or of another one: what
//! waits behind these is not slow.

use std::time::Duration;

use parking_lot::Mutex;

/// The shortest window, in milliseconds: a pause of the network of some tenths of a second makes no node slow.
const SHORTEST: u64 = 1_000;
/// The longest window, in milliseconds.
const LONGEST: u64 = 30_000;
/// How long after its end a window tells how fast the node is, beside others, in milliseconds: those of a node with enough requests
/// end each second, unless the way to it is full. What it took to answer long ago makes no other one slow now.
const RECENT: u64 = 3_000;
/// Bytes of large values that have to move between two looks for the way to be full: a node that is slow within one moves less.
const FULL: u64 = 32 << 10;
/// How long requests that end behind a full way may have waited there, in milliseconds.
const CALM: u64 = 1_000;
/// Nothing keeps windows from ending for longer than that at a time, in milliseconds.
const CALM_MAX: u64 = 10_000;

/// What a node has answered so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Requests that were answered, or given up because no answer came in time.
    pub requests: u64,
    /// The time from request to answer, of all of these together.
    pub time: Duration,
    /// Bytes of large values that have moved: small ones wait behind them on the way.
    pub carried: u64,
    /// A large value is half through.
    pub is_carrying: bool,
}

/// A window in which the node was slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slow {
    /// When that was found, in milliseconds since the Unix epoch.
    pub(crate) at: u64,
    pub(crate) mean: Duration,
    /// The mean of others, and the one above which it is slow.
    pub(crate) usual: Duration,
    pub(crate) limit: Duration,
}

/// Tells what a node has answered so far. Does not wait.
pub type Answers = Box<dyn Fn() -> Answered + Send + Sync>;

/// How fast a node answers.
pub(crate) struct Pace {
    /// `None`: the node's store does not count.
    answers: Option<Answers>,
    // Locked ten times a second by one thread, and by those that show metrics.
    window: Mutex<Window>,
}

#[derive(Default)]
struct Window {
    /// In milliseconds since the Unix epoch; 0: there is none.
    began: u64,
    from: Answered,
    /// When the last one ended, and its mean.
    last: Option<(u64, Duration)>,
    /// [`Answered::carried`] at the last look.
    carried: u64,
    /// Until when the way is taken to be full, by what this process sees of it, and when windows may begin again.
    full_until: u64,
    calm_at: u64,
    /// It was slow, and others are asked whether that is the way to it.
    suspicion: Option<Slow>,
}

impl Pace {
    pub(crate) fn new(answers: Option<Answers>) -> Self {
        Self { answers, window: Mutex::default() }
    }

    /// Begins a window at `now`, in milliseconds since the Unix epoch.
    pub(crate) fn begin(&self, now: u64) {
        if let Some(answers) = &self.answers {
            let mut window = self.window.lock();
            (window.began, window.from) = (now, answers());
        }
    }

    /// The mean of a window that ends at `now`, with `enough` requests; `None`: none ends.
    pub(crate) fn end(&self, now: u64, enough: u32) -> Option<Duration> {
        let answered = self.answers.as_ref()?();
        let mut window = self.window.lock();
        let moved = answered.carried.saturating_sub(window.carried);
        window.carried = answered.carried;
        if answered.is_carrying && moved >= FULL {
            window.full_until = now + CALM;
            window.calm_at = window.calm_at.max(now + CALM);
        }
        if window.calm_at > now && window.calm_at - now <= CALM_MAX {
            (window.began, window.from, window.suspicion) = (now, answered, None);
            return None;
        }
        let age = now.checked_sub(window.began).filter(|_| window.began != 0);
        let requests = answered.requests.saturating_sub(window.from.requests);
        let mean = match age {
            Some(age) if age >= SHORTEST && requests >= u64::from(enough.max(1)) => {
                let time = answered.time.saturating_sub(window.from.time);
                Some(time / u32::try_from(requests).unwrap_or(u32::MAX))
            }
            Some(age) if age < LONGEST => return None,
            _ => None,
        };
        (window.began, window.from) = (now, answered);
        window.last = mean.map(|mean| (now, mean)).or(window.last);
        mean
    }

    /// Whether the way to the node is full at `now`, by what this process sees of it.
    pub(crate) fn is_full(&self, now: u64) -> bool {
        let until = self.window.lock().full_until;
        until > now && until - now <= CALM
    }

    /// Another process says that the way to the node is full until then.
    pub(crate) fn disturb(&self, until: u64, now: u64) {
        let mut window = self.window.lock();
        window.calm_at = window.calm_at.max(until.min(now + CALM_MAX));
        window.suspicion = None;
    }

    /// It was slow: others are asked before it is left out.
    pub(crate) fn suspect(&self, slow: Slow) {
        self.window.lock().suspicion = Some(slow);
    }

    pub(crate) fn suspicion(&self) -> Option<Slow> {
        self.window.lock().suspicion
    }

    /// Takes the suspicion back.
    pub(crate) fn acquit(&self) {
        self.window.lock().suspicion = None;
    }

    /// The mean of the last window, if that ended lately.
    pub(crate) fn last(&self, now: u64) -> Option<Duration> {
        let last = self.window.lock().last;
        last.filter(|(ended, _)| now.saturating_sub(*ended) < RECENT).map(|(_, mean)| mean)
    }

    /// The mean of the last window, however long ago that was.
    pub(crate) fn mean(&self) -> Option<Duration> {
        self.window.lock().last.map(|(_, mean)| mean)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_window_ends_with_enough_time_and_enough_requests() {
        let counted = Arc::new(Mutex::new(Answered::default()));
        let theirs = Arc::clone(&counted);
        let pace = Pace::new(Some(Box::new(move || *theirs.lock())));
        let add = |requests: u32, each: Duration| {
            let mut counted = counted.lock();
            counted.requests += u64::from(requests);
            counted.time += each * requests;
        };
        add(1_000, 500 * MS);
        assert_eq!(pace.end(10_000, 10), None, "what was before the first look does not count");
        add(9, 100 * MS);
        assert_eq!(pace.end(12_000, 10), None, "too few");
        add(1, 200 * MS);
        assert_eq!(pace.end(12_100, 10), Some(110 * MS));
        add(50, MS);
        assert_eq!(pace.end(13_000, 10), None, "too soon");
        assert_eq!((pace.last(13_000), pace.mean()), (Some(110 * MS), Some(110 * MS)));
        assert_eq!(pace.end(13_100, 10), Some(MS));
        add(9, 900 * MS);
        assert_eq!(pace.end(13_100 + LONGEST, 10), None, "too few in too long");
        assert_eq!((pace.last(13_100 + LONGEST), pace.mean()), (None, Some(MS)));
        add(9, 900 * MS);
        assert_eq!(pace.end(15_000 + LONGEST, 10), None, "they do not add up to those of before");
        pace.begin(15_000 + LONGEST);
        add(10, 3 * MS);
        assert_eq!(pace.end(16_000 + LONGEST, 10), Some(3 * MS));
        assert_eq!(Pace::new(None).end(90_000, 1), None);
    }

    #[test]
    fn what_waits_behind_large_values_has_no_weight() {
        let counted = Arc::new(Mutex::new(Answered::default()));
        let theirs = Arc::clone(&counted);
        let pace = Pace::new(Some(Box::new(move || *theirs.lock())));
        let look = |at: u64, carried: u64, is_carrying: bool| {
            let mut counted = counted.lock();
            counted.requests += 10;
            counted.time += 10_000 * MS;
            (counted.carried, counted.is_carrying) = (counted.carried + carried, is_carrying);
            drop(counted);
            (pace.end(at, 10).is_some(), pace.is_full(at))
        };
        assert_eq!(look(10_000, 0, false), (false, false));
        assert_eq!(look(11_000, FULL, true), (false, true));
        assert_eq!(look(11_900, 0, false), (false, true));
        assert_eq!(look(12_100, 0, false), (false, false), "the next window is not over");
        assert_eq!(look(13_100, 1 << 30, false), (true, false), "all of them went through");
        assert_eq!(look(14_200, FULL - 1, true), (true, false), "a node that sends nothing more is slow");
        pace.disturb(15_000, 14_300);
        assert_eq!(
            (look(14_900, 0, false), look(15_100, 0, false)),
            ((false, false), (false, false)),
            "another process says so"
        );
        assert!(look(16_100, 0, false).0);
    }
}
