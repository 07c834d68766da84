//! How long an app's requests take until they are answered, by kind.
//!
//! One key in [`SAMPLE`] is timed and counted as many times, as the server does with its commands: a clock that is read twice
//! costs as much as all that a request needs of some layers. Each thread counts its keys, over all apps, so a busy app has more
//! samples.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use moneta_store::latency::{Kind, SAMPLE, SharedLatency};
use moneta_store::metric::Values;
use moneta_store::{Lookup, PendingReads, Reads, Step, StoreError, Visit};

thread_local! {
    /// Keys of this thread until the next one that is timed.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// The times of an app's requests. All threads share them, and a sample of all requests is noted.
#[derive(Debug, Default)]
pub(crate) struct Durations([SharedLatency; Kind::ALL.len()]);

impl Durations {
    /// A histogram for each kind.
    pub(crate) fn values(&self) -> Values {
        let of = |all: Values, kind: Kind| all.and([kind.name()], self.0[kind as usize].latency().histogram());
        Kind::ALL.into_iter().fold(Values::NONE, of)
    }
}

/// A request that is timed.
pub(crate) struct Timed {
    kind: Kind,
    started: Instant,
    /// Keys that it stands for.
    keys: u64,
}

impl Timed {
    /// A request of so many keys begins. `None`: it is not timed.
    #[inline]
    pub(crate) fn begin(kind: Kind, keys: u64) -> Option<Self> {
        let left = LEFT.get();
        if keys <= left {
            LEFT.set(left - keys);
            return None;
        }
        let stands_for = (keys - left).div_ceil(SAMPLE) * SAMPLE;
        LEFT.set(left + stands_for - keys);
        Some(Self { kind, started: Instant::now(), keys: stands_for })
    }

    /// It is answered.
    fn end(&self, durations: &Durations) {
        durations.0[self.kind as usize].note(self.started.elapsed(), self.keys);
    }

    /// Ends with the step.
    #[cold]
    pub(crate) fn step(self, durations: &Arc<Durations>, step: Step) -> Step {
        let durations = Arc::clone(durations);
        step.then(move |ended| {
            self.end(&durations);
            ended
        })
    }

    /// Ends with the last of the reads.
    #[cold]
    pub(crate) fn reads(self, durations: &Arc<Durations>, reads: PendingReads) -> PendingReads {
        Box::pin(TimedReads { reads, timed: Some(self), durations: Arc::clone(durations) })
    }
}

/// Reads that are timed together.
struct TimedReads {
    reads: PendingReads,
    /// Until they have ended.
    timed: Option<Timed>,
    durations: Arc<Durations>,
}

impl Reads for TimedReads {
    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut dyn Visit,
    ) -> Poll<Option<Result<Lookup, StoreError>>> {
        let next = ready!(self.reads.as_mut().poll_next(context, out));
        if next.is_none()
            && let Some(timed) = self.timed.take()
        {
            timed.end(&self.durations);
        }
        Poll::Ready(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_counted_once_however_many_are_read_together() {
        let counted = |keys: &[u64]| {
            LEFT.set(0);
            let begun = keys.iter().filter_map(|&keys| Timed::begin(Kind::Get, keys));
            begun.map(|timed| timed.keys).sum::<u64>()
        };
        assert_eq!(counted(&[1; 61]), 61);
        assert_eq!(counted(&[1; 62]), 122, "the first of each sample is timed");
        assert_eq!(counted(&[61]), 61);
        assert_eq!(counted(&[62, 60]), 122);
        assert_eq!(counted(&[7; 610]), 7 * 610);
        assert_eq!(counted(&[1, 200, 43]), 244);
    }
}
