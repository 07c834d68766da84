//! How fast a node answers: the mean over windows of its requests.
//!
//! What a node's connections count anyway is looked at ten times a second, so requests cost nothing more. A window ends when it is a second
//! old and has seen enough requests. One that lasts for too long begins anew, so that what a quiet node did long ago does not count.

use std::time::Duration;

use parking_lot::Mutex;

/// The shortest window, in milliseconds: a pause of the network of some tenths of a second makes no node slow.
const SHORTEST: u64 = 1_000;
/// The longest window, and how long the last one tells of a node, in milliseconds.
const LONGEST: u64 = 30_000;

/// What a node has answered so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Requests that were answered, or given up because no answer came in time.
    pub requests: u64,
    /// The time from request to answer, of all of these together.
    pub time: Duration,
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

    /// The mean of the last window, if that ended lately.
    pub(crate) fn last(&self, now: u64) -> Option<Duration> {
        let last = self.window.lock().last;
        last.filter(|(ended, _)| now.saturating_sub(*ended) < LONGEST).map(|(_, mean)| mean)
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
}
