//! The ring: what changed last, up to a bound in bytes.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use moneta_store::feed::{Batch, Change, Feed, Place};
use moneta_store::versions::Floor;
use moneta_store::{Clock, Version};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Bytes that a change takes beside its key, about.
const CHANGE_BYTES: u64 = 64;

/// The changes that are still known. Readers cost it nothing.
pub struct Ring {
    incarnation: u64,
    limit: u64,
    clock: Arc<Clock>,
    // Held to append or copy a few changes.
    state: Mutex<State>,
    /// Readers that wait.
    waiting: Arc<AtomicUsize>,
    notify: Arc<Notify>,
}

struct State {
    /// Oldest first, with when each was told.
    changes: VecDeque<(u64, Change)>,
    bytes: u64,
    /// Position of the first change that is known.
    first: u64,
    /// What was told before this moment may be forgotten, in milliseconds since the Unix epoch.
    since: u64,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("incarnation", &self.incarnation)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

fn bytes_of(change: &Change) -> u64 {
    let key = match change {
        Change::Set(key) | Change::Deleted(key, _) => key.len() as u64,
        Change::Flushed(_) => 0,
    };
    CHANGE_BYTES + key
}

impl Ring {
    /// An empty ring of up to `bytes`.
    pub fn new(bytes: u64, clock: Arc<Clock>) -> Self {
        let since = clock.millis();
        Self {
            incarnation: fastrand::u64(1..),
            limit: bytes,
            clock,
            state: Mutex::new(State { changes: VecDeque::new(), bytes: 0, first: 0, since }),
            waiting: Arc::default(),
            notify: Arc::default(),
        }
    }

    /// A key holds something else, or will when it is looked up.
    pub fn set(&self, key: &[u8]) {
        self.append(Change::Set(key.into()));
    }

    /// A key was deleted under a version.
    pub fn deleted(&self, key: &[u8], version: Version) {
        self.append(Change::Deleted(key.into(), version));
    }

    /// The store was flushed.
    pub fn flushed(&self, floor: Floor) {
        self.append(Change::Flushed(floor));
    }

    fn append(&self, change: Change) {
        let mut state = self.state.lock();
        // Under the lock: times grow with positions.
        let now = self.clock.millis();
        state.bytes += bytes_of(&change);
        state.changes.push_back((now, change));
        while state.bytes > self.limit {
            let Some((at, oldest)) = state.changes.pop_front() else { break };
            state.bytes -= bytes_of(&oldest);
            state.first += 1;
            state.since = at + 1;
        }
        drop(state);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.notify.notify_waiters();
        }
    }

    fn place(&self, position: u64) -> Place {
        Place { incarnation: self.incarnation, position }
    }
}

impl State {
    fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }
}

impl Feed for Ring {
    fn end(&self) -> Place {
        self.place(self.state.lock().end())
    }

    fn since(&self, millis: u64) -> Place {
        let state = self.state.lock();
        if millis < state.since {
            // A place before all that is known: reading from it tells of the gap.
            return Place { incarnation: 0, position: 0 };
        }
        let before = state.changes.partition_point(|(at, _)| *at < millis);
        self.place(state.first + before as u64)
    }

    fn read(&self, from: Place, limit: usize) -> Batch {
        let state = self.state.lock();
        let is_known = from.incarnation == self.incarnation && (state.first..=state.end()).contains(&from.position);
        let start = if is_known { from.position } else { state.first };
        let skipped = (start - state.first) as usize;
        let changes: Vec<Change> =
            state.changes.iter().skip(skipped).take(limit).map(|(_, change)| change.clone()).collect();
        let next = start + changes.len() as u64;
        let watermark = if next == state.end() {
            self.clock.millis()
        } else {
            state.changes[(next - state.first) as usize].0.saturating_sub(1)
        };
        Batch { gap: (!is_known).then_some(state.since), changes, next: self.place(next), watermark }
    }

    fn changed(&self, from: Place) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let waiting = Waiting::new(&self.waiting);
        let notify = Arc::clone(&self.notify);
        let mut notified = Box::pin(notify.clone().notified_owned());
        // Before the look: a change in between is not missed.
        notified.as_mut().enable();
        let is_there = from.incarnation != self.incarnation || from.position < self.state.lock().end();
        Box::pin(async move {
            let _waiting = waiting;
            if !is_there {
                notified.await;
            }
        })
    }
}

/// A reader that waits, for as long as it does.
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(key: &str) -> Change {
        Change::Set(key.as_bytes().into())
    }

    #[test]
    fn a_reader_goes_on_where_it_ended_and_is_told_of_a_gap() {
        let clock = Arc::new(Clock::manual(1_700_000_000));
        let ring = Ring::new(10 * (CHANGE_BYTES + 1), Arc::clone(&clock));
        let start = ring.end();
        ring.set(b"a");
        clock.advance(1);
        ring.deleted(b"b", Version(7));
        let first = ring.read(start, 1);
        assert_eq!((first.gap, &first.changes[..]), (None, &[set("a")][..]));
        assert!(first.watermark < clock.millis(), "b is not told yet");
        let second = ring.read(first.next, 10);
        assert_eq!(second.changes, [Change::Deleted(b"b"[..].into(), Version(7))]);
        assert_eq!((second.watermark, second.next), (clock.millis(), ring.end()));
        assert_eq!(ring.read(ring.since(clock.millis()), 10).changes.len(), 1);
        let before = ring.since(clock.millis() - 1000);
        assert_eq!((ring.read(before, 10).gap, ring.read(before, 10).changes.len()), (None, 2));
        clock.advance(1);
        (0..10).for_each(|_| ring.set(b"c"));
        let late = ring.read(first.next, 100);
        assert_eq!((late.changes.len(), late.gap), (10, Some(clock.millis() - 999)));
        let other = Place { incarnation: start.incarnation ^ 1, ..start };
        assert!(ring.read(other, 1).gap.is_some() && ring.read(ring.since(0), 1).gap.is_some());
    }

    #[test]
    fn a_reader_that_waits_is_woken() {
        let ring = Arc::new(Ring::new(1 << 20, Arc::new(Clock::manual(1_700_000_000))));
        pollster::block_on(ring.changed(Place { incarnation: 0, position: 0 }));
        let (waiting, at) = (Arc::clone(&ring), ring.end());
        let reader = std::thread::spawn(move || pollster::block_on(waiting.changed(at)));
        while ring.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        ring.set(b"a");
        reader.join().expect("it ends");
        assert_eq!(ring.waiting.load(Ordering::SeqCst), 0);
    }
}
