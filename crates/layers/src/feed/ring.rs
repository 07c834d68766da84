//! The ring: what changed last, up to a bound in bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use moneta_store::feed::{Batch, Change, Entry, Feed, FeedPlace, Gap, GapCause, Reader, Recorded, Wanted};
use moneta_store::versions::Floor;
use moneta_store::{Clock, StoreError, Version};
use parking_lot::Mutex;

/// Bytes that a change takes beside its key, about.
const CHANGE_BYTES: u64 = 64;

/// The changes that are still known. Readers cost it nothing. Clones are the same ring.
#[derive(Clone)]
pub struct Ring(Arc<RingShared>);

struct RingShared {
    incarnation: u64,
    limit: u64,
    clock: Arc<Clock>,
    // Held to append or copy a few changes.
    state: Mutex<RingState>,
}

struct RingState {
    /// Oldest first, with when each was told.
    changes: VecDeque<(u64, Kept)>,
    bytes: u64,
    /// Position of the first change that is known.
    first: u64,
    /// What was told before this moment may be forgotten, in milliseconds since the Unix epoch.
    since: u64,
    /// Why.
    cause: GapCause,
}

/// A change as the ring keeps it.
enum Kept {
    Set(Arc<[u8]>),
    Deleted(Arc<[u8]>, Version),
    Flushed(Floor),
}

impl Kept {
    /// Bytes that it takes, about.
    fn bytes(&self) -> u64 {
        let key = match self {
            Self::Set(key) | Self::Deleted(key, _) => key.len() as u64,
            Self::Flushed(_) => 0,
        };
        CHANGE_BYTES + key
    }

    fn recorded(&self) -> Recorded {
        match self {
            Self::Set(key) => Recorded::KeyOnly(Arc::clone(key)),
            Self::Deleted(key, version) => {
                Recorded::Whole(Change::Delete { key: Bytes::copy_from_slice(key), version: *version })
            }
            Self::Flushed(floor) => Recorded::Whole(Change::Flush(*floor)),
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("incarnation", &self.0.incarnation)
            .field("limit", &self.0.limit)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// An empty ring of up to `bytes`.
    pub fn new(bytes: u64, clock: Arc<Clock>) -> Self {
        let since = clock.millis();
        let state =
            Mutex::new(RingState { changes: VecDeque::new(), bytes: 0, first: 0, since, cause: GapCause::Start });
        Self(Arc::new(RingShared { incarnation: fastrand::u64(1..), limit: bytes, clock, state }))
    }

    /// A key holds something else, or will when it is looked up.
    pub fn set(&self, key: &[u8]) {
        self.append(Kept::Set(key.into()));
    }

    /// A key was deleted under a version.
    pub fn deleted(&self, key: &[u8], version: Version) {
        self.append(Kept::Deleted(key.into(), version));
    }

    /// The store was flushed.
    pub fn flushed(&self, floor: Floor) {
        self.append(Kept::Flushed(floor));
    }

    /// Changes are lost: each reader is told of a gap.
    pub fn lose(&self) {
        let mut state = self.0.state.lock();
        state.first = state.end() + 1;
        state.changes.clear();
        state.bytes = 0;
        (state.since, state.cause) = (self.0.clock.millis(), GapCause::Lost);
    }

    fn append(&self, change: Kept) {
        let mut state = self.0.state.lock();
        // Under the lock: times grow with positions.
        let now = self.0.clock.millis();
        state.bytes += change.bytes();
        state.changes.push_back((now, change));
        while state.bytes > self.0.limit {
            let Some((at, oldest)) = state.changes.pop_front() else { break };
            state.bytes -= oldest.bytes();
            state.first += 1;
            (state.since, state.cause) = (at + 1, GapCause::Ring);
        }
    }

    fn place(&self, position: u64) -> FeedPlace {
        FeedPlace { incarnation: self.0.incarnation, position, told: 0 }
    }
}

impl RingState {
    fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }
}

impl Ring {
    fn read(&self, from: FeedPlace, limit: usize) -> Batch {
        let state = self.0.state.lock();
        let is_known = from.incarnation == self.0.incarnation && (state.first..=state.end()).contains(&from.position);
        let start = if is_known { from.position } else { state.first };
        let skipped = (start - state.first) as usize;
        let entry = |(number, (_, change)): (u64, &(u64, Kept))| Entry {
            recorded: change.recorded(),
            next: self.place(number),
        };
        let entries: Vec<Entry> =
            (start + 1..).zip(state.changes.iter().skip(skipped)).take(limit).map(entry).collect();
        let next = start + entries.len() as u64;
        let is_end = next == state.end();
        let watermark = if is_end {
            self.0.clock.millis()
        } else {
            state.changes[(next - state.first) as usize].0.saturating_sub(1)
        };
        let gap = Gap { since: state.since, cause: Some(state.cause) };
        Batch { gap: (!is_known).then_some(gap), entries, next: self.place(next), watermark, is_end }
    }
}

impl Feed for Ring {
    fn end(&self) -> FeedPlace {
        self.place(self.0.state.lock().end())
    }

    fn since(&self, millis: u64) -> FeedPlace {
        let state = self.0.state.lock();
        if millis < state.since {
            // A place before all that is known: reading from it tells of the gap.
            return FeedPlace { incarnation: 0, position: 0, told: 0 };
        }
        let before = state.changes.partition_point(|(at, _)| *at < millis);
        self.place(state.first + before as u64)
    }

    fn has_more(&self, from: FeedPlace) -> bool {
        from.incarnation != self.0.incarnation || from.position < self.0.state.lock().end()
    }

    fn behind(&self, from: FeedPlace) -> u64 {
        let state = self.0.state.lock();
        let known = if from.incarnation == self.0.incarnation { from.position.max(state.first) } else { state.first };
        state.end().saturating_sub(known)
    }

    fn reader(&self, from: FeedPlace, _: Wanted) -> Box<dyn Reader> {
        Box::new(RingReader { ring: self.clone(), place: from })
    }
}

/// A place in the ring.
struct RingReader {
    ring: Ring,
    place: FeedPlace,
}

impl Reader for RingReader {
    /// The ring has keys alone: what the reader looks up counts for nothing here.
    fn read(&mut self, limit: usize, _: usize) -> Result<Batch, StoreError> {
        let batch = self.ring.read(self.place, limit);
        self.place = batch.next;
        Ok(batch)
    }

    fn held(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(key: &str) -> Recorded {
        Recorded::KeyOnly(key.as_bytes().into())
    }

    fn changes(batch: &Batch) -> Vec<Recorded> {
        batch.entries.iter().map(|entry| entry.recorded.clone()).collect()
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
        assert_eq!((first.gap, changes(&first), first.is_end), (None, vec![set("a")], false));
        assert_eq!(first.entries[0].next, first.next);
        assert!(first.watermark < clock.millis(), "b is not told yet");
        let second = ring.read(first.next, 10);
        assert_eq!(changes(&second), [Recorded::Whole(Change::Delete { key: b"b"[..].into(), version: Version(7) })]);
        assert!(second.is_end);
        assert_eq!((second.watermark, second.next), (clock.millis(), ring.end()));
        assert_eq!(ring.read(ring.since(clock.millis()), 10).entries.len(), 1);
        let before = ring.since(clock.millis() - 1000);
        assert_eq!((ring.read(before, 10).gap, ring.read(before, 10).entries.len()), (None, 2));
        clock.advance(1);
        (0..10).for_each(|_| ring.set(b"c"));
        let late = ring.read(first.next, 100);
        assert_eq!(
            (late.entries.len(), late.gap),
            (10, Some(Gap { since: clock.millis() - 999, cause: Some(GapCause::Ring) }))
        );
        let other = FeedPlace { incarnation: start.incarnation ^ 1, ..start };
        assert!(ring.read(other, 1).gap.is_some() && ring.read(ring.since(0), 1).gap.is_some());
        ring.lose();
        assert_eq!(ring.read(late.next, 1).gap.and_then(|gap| gap.cause), Some(GapCause::Lost));
    }

    #[test]
    fn there_is_more_behind_a_place_once_something_changes() {
        let ring = Ring::new(1 << 20, Arc::new(Clock::manual(1_700_000_000)));
        assert!(ring.has_more(FeedPlace { incarnation: 0, position: 0, told: 0 }), "the gap");
        let at = ring.end();
        assert!(!ring.has_more(at));
        ring.set(b"a");
        assert!(ring.has_more(at) && !ring.has_more(ring.end()));
    }
}
