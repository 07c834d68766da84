//! The list of open connections, for `stats conns`: connections belong to their workers, what others may see of them lies
//! here.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use moneta_store::Clock;

use crate::node::{ConnectionView, ListConnections, Peer};

/// What a connection is doing, as far as others can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Waits for requests.
    Reading,
    /// Has replies the client does not take.
    Writing,
    /// Has requests that wait for the store.
    Waiting,
    /// Shows events or a dump.
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

/// What others may see of a connection; written by its worker only.
#[derive(Debug)]
pub(crate) struct Entry {
    id: u64,
    address: Option<SocketAddr>,
    listener: Arc<str>,
    last_active: AtomicU32,
    activity: AtomicU8,
}

impl Entry {
    /// Something was received or sent at the Unix second `now`.
    #[inline]
    pub(crate) fn touch(&self, now: u32) {
        // Read before writing: a busy connection would otherwise dirty this line with every request.
        if self.last_active.load(Ordering::Relaxed) != now {
            self.last_active.store(now, Ordering::Relaxed);
        }
    }

    /// Seconds since something was received or sent.
    pub(crate) fn idle_seconds(&self, now: u32) -> u32 {
        now.saturating_sub(self.last_active.load(Ordering::Relaxed))
    }

    /// Says what the connection is doing from now on.
    #[inline]
    pub(crate) fn set_activity(&self, activity: Activity) {
        if self.activity.load(Ordering::Relaxed) != activity as u8 {
            self.activity.store(activity as u8, Ordering::Relaxed);
        }
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
pub(crate) struct Roster {
    // Taken when a connection opens or closes and when the list is asked for; never for a request.
    entries: Mutex<HashMap<u64, Arc<Entry>>>,
}

impl Roster {
    /// Enters a connection that opened at the Unix second `now`.
    pub(crate) fn enter(&self, peer: &Peer, listener: Arc<str>, now: u32) -> Arc<Entry> {
        let entry = Arc::new(Entry {
            id: peer.id,
            address: peer.address,
            listener,
            last_active: AtomicU32::new(now),
            activity: AtomicU8::new(Activity::Reading as u8),
        });
        self.lock().insert(peer.id, Arc::clone(&entry));
        entry
    }

    /// Strikes a connection that closed.
    pub(crate) fn strike(&self, entry: &Entry) {
        self.lock().remove(&entry.id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A roster with the clock that idle times are told by.
pub(crate) struct RosterView {
    /// The list.
    pub(crate) roster: Arc<Roster>,
    /// The clock.
    pub(crate) clock: Arc<Clock>,
}

impl ListConnections for RosterView {
    fn connections(&self) -> Vec<ConnectionView> {
        let now = self.clock.now();
        let mut views: Vec<_> = self.roster.lock().values().map(|entry| entry.view(now)).collect();
        views.sort_unstable_by_key(|view| view.id);
        views
    }
}
