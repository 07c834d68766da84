//! The readers of the feed that have a name: how far each has come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use moneta_store::feed::Place;
use parking_lot::Mutex;
use serde::Serialize;

/// Most bytes of a name.
pub const NAME_MAX: usize = 64;
/// Most readers that are remembered; beyond it the one that was not seen for the longest goes.
const READERS_MAX: usize = 256;
/// Most streams at once: each has a thread.
const STREAMS_MAX: usize = 16;

/// All readers of a node.
#[derive(Debug, Default)]
pub struct Readers {
    // Held to enter a few numbers, once a batch.
    named: Mutex<BTreeMap<String, ReaderState>>,
    streams: Arc<AtomicUsize>,
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
    pub(crate) fn note(&self, name: &str, place: Place, watermark: u64, bytes: u64, connected: bool, now: u64) {
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

    /// A permit for one more stream; `None` if there are too many.
    pub(crate) fn begin_stream(&self) -> Option<StreamPermit> {
        let more = |streams: usize| (streams < STREAMS_MAX).then_some(streams + 1);
        self.streams.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).ok()?;
        Some(StreamPermit(Arc::clone(&self.streams)))
    }
}

/// Counts a stream for as long as it lives.
#[derive(Debug)]
pub(crate) struct StreamPermit(Arc<AtomicUsize>);

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_is_listed_with_its_lag_and_the_oldest_goes_when_there_are_too_many() {
        let readers = Readers::default();
        let place = Place { incarnation: 1, position: 2, told: 0 };
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

    #[test]
    fn streams_have_a_bound() {
        let readers = Readers::default();
        let permits: Vec<_> = (0..STREAMS_MAX).map(|_| readers.begin_stream().expect("there is room")).collect();
        assert!(readers.begin_stream().is_none());
        drop(permits);
        assert!(readers.begin_stream().is_some());
    }
}
