//! The last requests that waited long, and the last values that were large: what an operator asks for after a bad minute.
//!
//! A request that is answered at once is not looked at. One that waits for the store notes, in whole milliseconds of the clock that is
//! read once a turn, since when; its end compares. Values are compared where they are counted anyway.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::peer::Peer;

/// Entries that are kept: 150 KiB at most.
const KEPT: usize = 256;
/// Entries of one second that are kept; the rest is counted. A device that hangs makes every request slow.
const EACH_SECOND: u32 = 32;

/// Why a request is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It waited for the store.
    Waited {
        /// For so long, milliseconds.
        milliseconds: u64,
        /// Of that, its worker was held up by something else.
        worker_late: u64,
        /// Its reply then waited for those to requests before it on its connection.
        behind: bool,
    },
    /// It brought or fetched a large value.
    Large,
}

/// A request in the log.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// When it was answered, Unix milliseconds.
    pub(crate) at: u64,
    pub(crate) why: Why,
    /// The kind of command.
    pub(crate) command: &'static str,
    pub(crate) key: Box<[u8]>,
    /// Bytes of the value, where one is known.
    pub(crate) bytes: usize,
    /// What answered it: `ram`, or what it waited for.
    pub(crate) tier: &'static str,
    pub(crate) client: Option<SocketAddr>,
    pub(crate) user: Option<Arc<str>>,
    /// The number of its connection.
    pub(crate) connection: u64,
}

/// What a request tells of itself.
pub(crate) struct Noted<'a> {
    pub(crate) why: Why,
    pub(crate) command: &'static str,
    pub(crate) key: &'a [u8],
    pub(crate) bytes: usize,
    pub(crate) tier: &'static str,
}

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<Entry>,
    second: u64,
    in_second: u32,
}

/// The log of one server, with what it is to hold.
#[derive(Debug)]
pub struct SlowLog {
    /// Milliseconds from which a wait is long; `i32::MAX`: none is.
    from_milliseconds: AtomicI32,
    /// Bytes from which a value is large; `usize::MAX`: none is.
    from_bytes: AtomicUsize,
    ring: Mutex<Ring>,
    waited: AtomicU64,
    large: AtomicU64,
    left_out: AtomicU64,
}

impl Default for SlowLog {
    /// Holds nothing.
    fn default() -> Self {
        Self {
            from_milliseconds: AtomicI32::new(i32::MAX),
            from_bytes: AtomicUsize::new(usize::MAX),
            ring: Mutex::default(),
            waited: AtomicU64::new(0),
            large: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }
}

impl SlowLog {
    /// Waits from so many milliseconds on are long; 0: none is.
    pub fn set_milliseconds(&self, milliseconds: u32) {
        let from = i32::try_from(milliseconds).unwrap_or(i32::MAX);
        self.from_milliseconds.store(if from == 0 { i32::MAX } else { from }, Relaxed);
    }

    /// Values from so many bytes on are large; 0: none is.
    pub fn set_bytes(&self, bytes: usize) {
        self.from_bytes.store(if bytes == 0 { usize::MAX } else { bytes }, Relaxed);
    }

    /// The milliseconds from which a wait is long, if one is.
    pub(crate) fn milliseconds(&self) -> Option<i32> {
        Some(self.from_milliseconds.load(Relaxed)).filter(|from| *from != i32::MAX)
    }

    /// The bytes from which a value is large, if one is.
    pub(crate) fn bytes(&self) -> Option<usize> {
        Some(self.from_bytes.load(Relaxed)).filter(|from| *from != usize::MAX)
    }

    /// Whether a value of so many bytes is large.
    #[inline]
    pub(crate) fn is_large(&self, bytes: usize) -> bool {
        bytes >= self.from_bytes.load(Relaxed)
    }

    /// Whether a wait of so many milliseconds is long. A negative one, as where the clock was set back meanwhile, is not.
    #[inline]
    pub(crate) fn is_long(&self, milliseconds: i32) -> bool {
        milliseconds >= self.from_milliseconds.load(Relaxed)
    }

    /// Keeps a request that was answered at `at`, Unix milliseconds.
    #[cold]
    pub(crate) fn note(&self, at: u64, peer: &Peer, noted: &Noted<'_>) {
        let count = if noted.why == Why::Large { &self.large } else { &self.waited };
        count.fetch_add(1, Relaxed);
        // A worker does not wait for those who read it.
        let Some(mut ring) = self.ring.try_lock() else {
            self.left_out.fetch_add(1, Relaxed);
            return;
        };
        if ring.second != at / 1000 {
            (ring.second, ring.in_second) = (at / 1000, 0);
        }
        ring.in_second += 1;
        if ring.in_second > EACH_SECOND {
            self.left_out.fetch_add(1, Relaxed);
            return;
        }
        if ring.entries.len() == KEPT {
            ring.entries.pop_front();
        }
        let Noted { why, command, key, bytes, tier } = *noted;
        let (client, user, connection) = (peer.address, peer.user.clone(), peer.id);
        ring.entries.push_back(Entry { at, why, command, key: key.into(), bytes, tier, client, user, connection });
    }

    /// The entries, the last one first.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.ring.lock().entries.iter().rev().cloned().collect()
    }

    /// How many there were: that waited, that were large, and of both those that were not kept.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [&self.waited, &self.large, &self.left_out].map(|count| count.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(log: &SlowLog, at: u64, key: &str) {
        let why = Why::Waited { milliseconds: 120, worker_late: 0, behind: false };
        log.note(at, &Peer::default(), &Noted { why, command: "get", key: key.as_bytes(), bytes: 0, tier: "flash" });
    }

    #[test]
    fn the_last_ones_are_kept_and_a_bad_second_does_not_take_all_room() {
        let log = SlowLog::default();
        for at in 0..100 {
            note(&log, at, "bad second");
        }
        for second in 1..=KEPT as u64 - 10 {
            note(&log, second * 1000, &second.to_string());
        }
        let entries = log.entries();
        assert_eq!(entries.len(), KEPT);
        assert_eq!(*entries[0].key, *(KEPT - 10).to_string().as_bytes());
        assert_eq!(entries.iter().filter(|entry| *entry.key == *b"bad second").count(), 10);
        assert_eq!(log.counts(), [100 + KEPT as u64 - 10, 0, 100 - u64::from(EACH_SECOND)]);
    }

    #[test]
    fn nothing_is_long_or_large_where_that_is_off() {
        let log = SlowLog::default();
        assert!(!log.is_long(i32::MAX - 1) && !log.is_large(usize::MAX - 1));
        log.set_milliseconds(5);
        log.set_bytes(10);
        assert!(log.is_long(5) && !log.is_long(4) && log.is_large(10) && !log.is_large(9));
        assert!(!log.is_long(-3));
        log.set_milliseconds(0);
        assert!(!log.is_long(1 << 20) && log.milliseconds().is_none());
    }
}
