//! The readers of the feed: how far those with a name have come, and how many streams there may be.
//!
//! Each stream has a thread of the node. Readers that are copies of the node's data, which cannot answer reads until they have
//! read, have places of their own, and so have relays, without which another region falls behind; the name tells both, which any
//! client may give itself. So a newcomer that finds no place left among its kind pushes out, in this order:
//!
//! 1. the reader of its kind that has taken nothing for the longest, if that is over [`IDLE`];
//! 2. one from the address that has most readers of this kind, if it has at least two more than the newcomer's;
//! 3. of copies, the one that has been at the end of the feed for the longest, if that is over [`AT_END`]: it follows, and tries again.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use moneta_store::feed::{COPY_READER, Change, FeedPlace, Gap, GapCause, RELAY_READER};
use parking_lot::Mutex;
use serde::Serialize;

use super::answers::Answers;

/// Most readers that are remembered; beyond it the one that was not seen for the longest goes.
const READERS_MAX: usize = 256;
/// Most streams of copies at once: where the slots of two zones differ, each node of one may read every node of the other, for
/// two zones of 64 nodes.
const COPIES_MAX: usize = 128;
/// Most streams of relays at once: of 15 other regions, each with four relays that share the keys.
const RELAYS_MAX: usize = 64;
/// Most other streams at once.
const OTHERS_MAX: usize = 16;
/// Time after which a reader that takes nothing of what it is sent is idle.
const IDLE: Duration = Duration::from_secs(5);
/// Time after which a copy that has read everything may be pushed out by one that has not.
const AT_END: Duration = Duration::from_secs(10);

/// All readers of a node.
#[derive(Debug, Default)]
pub struct Readers {
    // Held to enter a few numbers, once a batch.
    named: Mutex<BTreeMap<String, ReaderState>>,
    streams: Arc<Mutex<Vec<Open>>>,
    /// Streams that were begun.
    begun: AtomicU64,
    /// Gaps that readers were told of, in the order of [`GapCause::ALL`].
    gaps: [AtomicU64; GapCause::ALL.len()],
    /// Answers over HTTP.
    pub(crate) answers: Answers,
}

/// A stream, as others see it that need its place.
pub(crate) trait Pushed: Send + Sync {
    /// For how long its reader has taken nothing of what is there for it.
    fn idle(&self) -> Duration;

    /// For how long everything was read for it; `None`: there is more to read.
    fn at_end(&self) -> Option<Duration>;

    /// Ends it.
    fn push_out(&self);
}

/// A stream that has a place.
#[derive(Debug)]
struct Open {
    number: u64,
    kind: ReaderKind,
    address: Option<IpAddr>,
    stream: Weak<dyn Pushed>,
}

impl std::fmt::Debug for dyn Pushed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a stream")
    }
}

/// What a reader is; each kind has places that no other kind takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReaderKind {
    /// A copy of the node's data.
    Copy,
    /// A relay to another region.
    Relay,
    Other,
}

impl ReaderKind {
    /// By a reader's name: a word, and perhaps a colon and what tells it from others.
    fn of(name: Option<&str>) -> Self {
        match name.map(|name| name.split(':').next().unwrap_or_default()) {
            Some(COPY_READER) => Self::Copy,
            Some(RELAY_READER) => Self::Relay,
            _ => Self::Other,
        }
    }

    /// Its places.
    fn most(self) -> usize {
        match self {
            Self::Copy => COPIES_MAX,
            Self::Relay => RELAYS_MAX,
            Self::Other => OTHERS_MAX,
        }
    }
}

/// How far a reader has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReaderState {
    /// Its name.
    pub name: String,
    /// Where it reads on.
    pub cursor: String,
    /// It has been told of everything until then, in milliseconds since the Unix epoch; 0: unknown.
    pub watermark: u64,
    /// Milliseconds since the watermark; `None` if that is unknown.
    pub lag: Option<u64>,
    /// When it read last, in milliseconds since the Unix epoch.
    pub seen: u64,
    /// Bytes that it was sent since the node began.
    pub bytes: u64,
    /// Whether it is connected and follows.
    pub connected: bool,
}

impl Readers {
    /// A reader was sent `bytes` up to a place. `now`: milliseconds since the Unix epoch.
    pub(crate) fn note(&self, name: &str, place: FeedPlace, watermark: u64, bytes: u64, connected: bool, now: u64) {
        let mut named = self.named.lock();
        if !named.contains_key(name) && named.len() == READERS_MAX {
            let oldest = named.values().min_by_key(|state| state.seen).map(|state| state.name.clone());
            oldest.into_iter().for_each(|oldest| drop(named.remove(&oldest)));
        }
        let state = named.entry(name.to_owned()).or_insert_with(|| ReaderState {
            name: name.to_owned(),
            cursor: String::new(),
            watermark: 0,
            lag: None,
            seen: 0,
            bytes: 0,
            connected: false,
        });
        state.cursor = place.to_string();
        state.watermark = state.watermark.max(watermark);
        state.bytes += bytes;
        (state.seen, state.connected) = (now, connected);
    }

    /// A reader was told of this change; gaps are counted.
    pub(crate) fn count(&self, told: &Change) {
        if let Change::Gap(Gap { cause: Some(cause), .. }) = told {
            self.gaps[*cause as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gaps that readers were told of, by cause.
    pub fn gaps(&self) -> [(&'static str, u64); GapCause::ALL.len()] {
        GapCause::ALL.map(|cause| (cause.word(), self.gaps[cause as usize].load(Ordering::Relaxed)))
    }

    /// A reader has gone.
    pub(crate) fn leave(&self, name: &str) {
        if let Some(state) = self.named.lock().get_mut(name) {
            state.connected = false;
        }
    }

    /// All of them, by name. `now`: milliseconds since the Unix epoch.
    pub fn list(&self, now: u64) -> Vec<ReaderState> {
        let lag = |state: &ReaderState| (state.watermark > 0).then(|| now.saturating_sub(state.watermark));
        let named = self.named.lock();
        named.values().map(|state| ReaderState { lag: lag(state), ..state.clone() }).collect()
    }

    /// A permit for one more stream of a reader with this name and address; `None` if there are too many. May end another one.
    pub(crate) fn begin_stream(
        &self,
        name: Option<&str>,
        address: Option<IpAddr>,
        stream: Weak<dyn Pushed>,
    ) -> Option<StreamPermit> {
        let kind = ReaderKind::of(name);
        let mut streams = self.streams.lock();
        if streams.iter().filter(|open| open.kind == kind).count() >= kind.most() {
            let gives_way = gives_way(&streams, kind, address)?;
            let pushed = streams.swap_remove(gives_way);
            tracing::debug!(address = ?pushed.address, ?kind, "a reader of the feed makes room for another one");
            if let Some(stream) = pushed.stream.upgrade() {
                stream.push_out();
            }
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        streams.push(Open { number, kind, address, stream });
        drop(streams);
        Some(StreamPermit { streams: Arc::clone(&self.streams), number })
    }
}

/// Which stream of a kind gives its place to a newcomer from `address`.
fn gives_way(streams: &[Open], kind: ReaderKind, address: Option<IpAddr>) -> Option<usize> {
    let idle = |open: &Open| open.stream.upgrade().map_or(Duration::MAX, |stream| stream.idle());
    let at_end = |open: &Open| open.stream.upgrade().and_then(|stream| stream.at_end()).unwrap_or_default();
    let of_address = |address| streams.iter().filter(|open| open.kind == kind && open.address == address).count();
    let rivals = || streams.iter().enumerate().filter(|(_, open)| open.kind == kind);
    let longest = |time: &dyn Fn(&Open) -> Duration, least: Duration| {
        let timed = rivals().map(|(number, open)| (time(open), number)).filter(|(time, _)| *time >= least);
        timed.max().map(|(_, number)| number)
    };
    let crowded = || {
        let most = rivals().map(|(_, open)| of_address(open.address)).max()?;
        let is_of_crowd = |open: &Open| of_address(open.address) == most && most >= of_address(address) + 2;
        // The one that waited longest among them, or else the first.
        rivals().filter(|(_, open)| is_of_crowd(open)).max_by_key(|(_, open)| idle(open)).map(|(number, _)| number)
    };
    let done = || longest(&at_end, AT_END).filter(|_| kind == ReaderKind::Copy);
    longest(&idle, IDLE).or_else(crowded).or_else(done)
}

/// Keeps the place of a stream for as long as it lives.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    streams: Arc<Mutex<Vec<Open>>>,
    number: u64,
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        // Another one may have its place already.
        self.streams.lock().retain(|open| open.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_reader_is_listed_with_its_lag_and_the_oldest_goes_when_there_are_too_many() {
        let readers = Readers::default();
        let place = FeedPlace { incarnation: 1, position: 2, told: 0 };
        readers.note("a", place, 0, 10, true, 100);
        assert_eq!(readers.list(500)[0].lag, None);
        readers.note("a", place, 90, 10, true, 110);
        readers.leave("a");
        let listed = readers.list(500);
        assert_eq!((listed[0].lag, listed[0].bytes, listed[0].connected), (Some(410), 20, false));
        (0..READERS_MAX as u64)
            .for_each(|number| readers.note(&format!("r{number}"), place, 1, 0, false, 200 + number));
        let listed = readers.list(500);
        assert_eq!(listed.len(), READERS_MAX);
        assert!(listed.iter().all(|state| state.name != "a"));
    }

    /// A stream that was idle, and at the end, for so many seconds.
    struct Still {
        idle: u64,
        at_end: Option<u64>,
        pushed: AtomicBool,
    }

    impl Pushed for Still {
        fn idle(&self) -> Duration {
            Duration::from_secs(self.idle)
        }

        fn at_end(&self) -> Option<Duration> {
            self.at_end.map(Duration::from_secs)
        }

        fn push_out(&self) {
            self.pushed.store(true, Ordering::Relaxed);
        }
    }

    struct Desk {
        readers: Readers,
        streams: Vec<(Arc<Still>, StreamPermit)>,
    }

    impl Desk {
        fn begin(&mut self, name: &str, address: u8, idle: u64, at_end: Option<u64>) -> bool {
            let still = Arc::new(Still { idle, at_end, pushed: AtomicBool::new(false) });
            let stream: Weak<dyn Pushed> = Arc::downgrade(&(Arc::clone(&still) as Arc<dyn Pushed>));
            let permit = self.readers.begin_stream(Some(name), Some(IpAddr::from([10, 0, 0, address])), stream);
            permit.map(|permit| self.streams.push((still, permit))).is_some()
        }

        /// The places, in the order in which they were given, of streams that were pushed out.
        fn pushed(&self) -> Vec<usize> {
            let is_pushed = |(still, _): &(Arc<Still>, StreamPermit)| still.pushed.load(Ordering::Relaxed);
            (0..self.streams.len()).filter(|number| is_pushed(&self.streams[*number])).collect()
        }
    }

    fn desk(kind: &str, most: usize, address: impl Fn(usize) -> u8, at_end: Option<u64>) -> Desk {
        let mut desk = Desk { readers: Readers::default(), streams: Vec::new() };
        assert!((0..most).all(|number| desk.begin(kind, address(number), 0, at_end)), "there is room");
        desk
    }

    #[test]
    fn copies_and_relays_have_places_that_no_other_reader_takes() {
        let mut desk = desk("backup", OTHERS_MAX, |_| 1, Some(60));
        assert!(!desk.begin("backup", 1, 0, None), "streams have a bound");
        assert!(!desk.begin("catch-up-not", 1, 0, None) && !desk.begin("relays:app", 1, 0, None), "other words");
        assert!((0..RELAYS_MAX).all(|_| desk.begin("relay:app", 1, 0, Some(60))), "relays have places of their own");
        assert!(!desk.begin("relay:app", 1, 0, None), "which have a bound, and follow for good");
        assert!(desk.begin("catch-up", 1, 0, None) && desk.begin("catch-up:10.0.0.1:11211", 1, 0, None));
        assert_eq!(desk.pushed(), [] as [usize; 0]);
        desk.streams.remove(0);
        assert!(desk.begin("backup", 1, 0, None), "a place that was left");
    }

    #[test]
    fn the_idle_go_first_then_those_of_the_address_that_has_most() {
        for (kind, most) in [("backup", OTHERS_MAX), ("catch-up", COPIES_MAX), ("relay:app", RELAYS_MAX)] {
            let mut all = desk(kind, most - 2, |_| 1, None);
            assert!(all.begin(kind, 1, 5, None) && all.begin(kind, 2, 9, None));
            assert!(all.begin(kind, 3, 0, None));
            assert_eq!(all.pushed(), [most - 1], "{kind}: idle for the longest");
            assert!(all.begin(kind, 3, 0, None));
            assert_eq!(all.pushed(), [most - 2, most - 1], "{kind}: idle for less");
            // A stranger has all that are left: an address with fewer takes some of them.
            assert!((0..3).all(|_| all.begin(kind, 4, 0, None)), "{kind}");
            assert_eq!(all.pushed().len(), 5, "{kind}");
            assert!(!all.begin(kind, 1, 0, None), "{kind}: it has most itself");
        }
    }

    #[test]
    fn a_copy_that_only_follows_makes_room_for_one_that_is_behind() {
        let mut all = desk("catch-up", COPIES_MAX, |_| 1, Some(9));
        assert!(!all.begin("catch-up", 1, 0, None));
        all.streams.pop();
        assert!(all.begin("catch-up", 1, 0, Some(10)) && all.begin("catch-up", 1, 0, None));
        assert_eq!(all.pushed(), [COPIES_MAX - 1]);
        let mut others = desk("backup", OTHERS_MAX, |_| 1, Some(60));
        assert!(!others.begin("backup", 1, 0, None), "others follow for good");
    }
}
