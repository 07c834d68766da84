//! The list of open connections, for `stats conns`: connections belong to their workers; this is what other threads may see.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::task::Waker;

use moneta_store::Clock;
use parking_lot::{Mutex, MutexGuard};

use crate::client_memory::ClientMemory;
use crate::connections::{ConnectionView, ListConnections};
use crate::peer::Peer;

/// The public state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It waits for requests.
    Reading,
    /// It has replies that the client does not take.
    Writing,
    /// It has requests that wait for the store.
    Waiting,
    /// It sends events or a dump.
    Watching,
}

impl Activity {
    /// memcached's word for it.
    fn name(self) -> &'static str {
        match self {
            Self::Reading => "conn_read",
            Self::Writing => "conn_mwrite",
            Self::Waiting => "conn_io_queue",
            Self::Watching => "conn_watch",
        }
    }

    fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Writing,
            2 => Self::Waiting,
            3 => Self::Watching,
            _ => Self::Reading,
        }
    }
}

/// The public part of a connection; written by its worker only.
#[derive(Debug)]
pub(crate) struct Entry {
    id: u64,
    address: Option<SocketAddr>,
    listener: Arc<str>,
    last_active: AtomicU32,
    activity: AtomicU8,
    /// Bytes of memory it holds.
    held: AtomicUsize,
    /// Unix second since which it has held memory.
    held_since: AtomicU32,
    /// Bytes it held when it was told to close; 0 while it may stay. Written by other threads.
    condemned: AtomicUsize,
    /// Wakes its worker for it.
    waker: Waker,
}

impl Entry {
    /// Notes that something was received or sent at the Unix second `now`.
    #[inline]
    pub(crate) fn touch(&self, now: u32) {
        // Read before writing: otherwise every request of a busy connection would dirty this cache line.
        if self.last_active.load(Ordering::Relaxed) != now {
            self.last_active.store(now, Ordering::Relaxed);
        }
    }

    /// Seconds since something was received or sent.
    pub(crate) fn idle_seconds(&self, now: u32) -> u32 {
        now.saturating_sub(self.last_active.load(Ordering::Relaxed))
    }

    /// Sets the state.
    #[inline]
    pub(crate) fn set_activity(&self, activity: Activity) {
        if self.activity.load(Ordering::Relaxed) != activity as u8 {
            self.activity.store(activity as u8, Ordering::Relaxed);
        }
    }

    /// Sets the bytes it holds at the Unix second `now`. A connection that holds nothing any more need not close.
    #[inline]
    pub(crate) fn hold(&self, bytes: usize, now: u32, memory: &ClientMemory) {
        // Only its worker writes this number.
        if self.held.load(Ordering::Relaxed) == 0 {
            self.held_since.store(now, Ordering::Relaxed);
        }
        self.held.store(bytes, Ordering::Relaxed);
        if bytes == 0 && self.is_condemned() {
            memory.has_left(self.condemned.swap(0, Ordering::Relaxed));
        }
    }

    /// Whether it was told to close.
    #[inline]
    pub(crate) fn is_condemned(&self) -> bool {
        self.condemned.load(Ordering::Relaxed) > 0
    }

    fn view(&self, now: u32) -> ConnectionView {
        let address = match self.address {
            Some(address @ SocketAddr::V4(_)) => format!("tcp:{address}"),
            Some(address @ SocketAddr::V6(_)) => format!("tcp6:{address}"),
            None => self.listener.to_string(),
        };
        ConnectionView {
            id: self.id,
            address,
            listener: self.listener.to_string(),
            state: Activity::from_byte(self.activity.load(Ordering::Relaxed)).name(),
            idle_seconds: u64::from(self.idle_seconds(now)),
        }
    }
}

/// All open connections.
#[derive(Debug, Default)]
pub(crate) struct ConnectionRegistry {
    // Taken when a connection opens or closes and when a part of the list is asked for; never for a request. In order, so that a
    // part begins where the one before ended.
    entries: Mutex<BTreeMap<u64, Arc<Entry>>>,
}

impl ConnectionRegistry {
    /// Enters a connection that opened at the Unix second `now`.
    pub(crate) fn enter(&self, peer: &Peer, listener: Arc<str>, waker: Waker, now: u32) -> Arc<Entry> {
        let entry = Arc::new(Entry {
            id: peer.id,
            address: peer.address,
            listener,
            last_active: AtomicU32::new(now),
            activity: AtomicU8::new(Activity::Reading as u8),
            held: AtomicUsize::new(0),
            held_since: AtomicU32::new(now),
            condemned: AtomicUsize::new(0),
            waker,
        });
        self.lock().insert(peer.id, Arc::clone(&entry));
        entry
    }

    /// Removes a closed connection.
    pub(crate) fn strike(&self, entry: &Entry) {
        self.lock().remove(&entry.id);
    }

    /// Tells the largest holders of memory to close, until these hold `excess` bytes; with `before`, only connections that have
    /// held memory since that second. Their workers close them at their next turn. Returns how many they are.
    pub(crate) fn condemn(&self, excess: usize, before: Option<u32>, memory: &ClientMemory) -> usize {
        let mut told = Vec::new();
        {
            let entries = self.lock();
            let mut holders: Vec<_> = entries
                .values()
                .filter(|entry| before.is_none_or(|before| entry.held_since.load(Ordering::Relaxed) <= before))
                .map(|entry| (entry.held.load(Ordering::Relaxed), entry))
                .filter(|(held, entry)| *held > 0 && !entry.is_condemned())
                .collect();
            holders.sort_unstable_by_key(|(held, _)| std::cmp::Reverse(*held));
            let mut left = excess;
            for (held, entry) in holders {
                if left == 0 {
                    break;
                }
                // It may free its memory meanwhile and then close although it need not.
                if entry.condemned.compare_exchange(0, held, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    memory.leaves(held);
                    left = left.saturating_sub(held);
                    told.push(entry.waker.clone());
                }
            }
        }
        let count = told.len();
        told.into_iter().for_each(Waker::wake);
        count
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Entry>>> {
        self.entries.lock()
    }
}

/// A registry with the clock for idle times.
pub(crate) struct RegistryView {
    /// The list.
    pub(crate) registry: Arc<ConnectionRegistry>,
    /// The clock.
    pub(crate) clock: Arc<Clock>,
}

impl ListConnections for RegistryView {
    fn connections(&self, after: Option<u64>, most: usize) -> Vec<ConnectionView> {
        let now = self.clock.now();
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        // Cloned under the lock and written out after it, since each connection that opens or closes takes it.
        let entries: Vec<Arc<Entry>> = {
            let all = self.registry.lock();
            all.range((begin, Bound::Unbounded)).take(most).map(|(_, entry)| Arc::clone(entry)).collect()
        };
        entries.iter().map(|entry| entry.view(now)).collect()
    }
}
