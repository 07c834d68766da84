//! Watchers of the `watch` command: events become lines in bounded queues, one for each watcher.
//!
//! Without watchers, an event costs one relaxed load; if no watcher has room, one more and a count. A watcher that reads too
//! slowly loses lines, never delays requests, and is told how many it lost.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{SystemTime, UNIX_EPOCH};

use moneta_store::Written;
use moneta_store::component::{Observer, RemovalCause, Removed};
use moneta_store::request::{Exptime, Write, WriteMode};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::lanes::Tally;
use crate::peer::{CloseReason, Peer, SocketKind};
use moneta_store::escape::percent_encode;

/// Reads of items.
pub const FETCHERS: u32 = 1;
/// Writes of items.
pub const MUTATIONS: u32 = 2;
/// Evicted items.
pub const EVICTIONS: u32 = 4;
/// Connections opened and closed.
pub const CONNEVENTS: u32 = 8;
/// Items deleted by clients.
pub const DELETIONS: u32 = 16;

/// Most streams: bits of a set.
const STREAMS: usize = 8;

/// Most watchers at once, as in memcached.
const WATCHERS_MAX: usize = 20;
/// Most bytes queued for one watcher; further lines are dropped and counted.
pub(crate) const QUEUE_MAX: usize = 256 * 1024;

/// The streams that a `watch` line names; `None` if one does not exist here. Without names: fetchers.
pub fn streams<'a>(words: impl Iterator<Item = &'a [u8]>) -> Option<u32> {
    let mut streams = 0;
    for word in words {
        streams |= match word {
            b"fetchers" => FETCHERS,
            b"mutations" => MUTATIONS,
            b"evictions" => EVICTIONS,
            b"connevents" => CONNEVENTS,
            b"deletions" => DELETIONS,
            _ => return None,
        };
    }
    Some(if streams == 0 { FETCHERS } else { streams })
}

/// How a read of one key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// A hit.
    Found {
        /// Bytes of the value.
        size: usize,
    },
    /// A miss.
    Missed {
        /// The item had expired.
        expired: bool,
    },
}

#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
    skipped: u64,
    /// Events of its streams that no watcher had room for, as of the last check; later ones add to its skipped lines.
    unheard: u64,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Queue {
    streams: u32,
    lines: Mutex<Lines>,
    /// A line did not fit, and none has been taken out since.
    is_full: AtomicBool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock()
    }

    /// Appends a line or counts it as skipped; returns whether there was room. `unheard`: events of its streams that no watcher
    /// had room for.
    fn push(&self, line: &[u8], unheard: u64) -> bool {
        let mut lines = self.lock();
        lines.skipped += unheard.saturating_sub(lines.unheard);
        lines.unheard = lines.unheard.max(unheard);
        let fits = lines.bytes.len() + line.len() <= QUEUE_MAX;
        if fits {
            if lines.skipped > 0 {
                let skipped = std::mem::take(&mut lines.skipped);
                lines.bytes.extend_from_slice(format!("[skipped: {skipped}]\n").as_bytes());
            }
            lines.bytes.extend_from_slice(line);
        } else {
            lines.skipped += 1;
            self.is_full.store(true, Ordering::Relaxed);
        }
        let waker = lines.waker.take();
        drop(lines);
        if let Some(waker) = waker {
            waker.wake();
        }
        fits
    }
}

/// The watchers of a node.
#[derive(Debug, Default)]
pub struct Hub {
    /// Streams with a watcher.
    wanted: AtomicU32,
    /// Streams with a watcher that has room.
    heard: AtomicU32,
    /// Events of each stream that no watcher had room for.
    unheard: [Tally; STREAMS],
    noting: Mutex<()>,
    /// Number of the next line, over all streams.
    next_line: AtomicU64,
    skipped: AtomicU64,
    sent: AtomicU64,
    // Written when a watcher joins or leaves, or its queue becomes full or is emptied.
    queues: RwLock<Vec<Arc<Queue>>>,
}

/// Statistics of the watchers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HubStats {
    /// Watchers now.
    pub watchers: u64,
    /// Lines dropped for want of room.
    pub skipped: u64,
    /// Lines queued.
    pub sent: u64,
}

/// A session's watcher.
#[derive(Debug)]
pub struct Watcher {
    queue: Arc<Queue>,
    hub: Arc<Hub>,
}

impl Watcher {
    /// Moves lines to `output` while it is below `high_water`, and registers a waker for the next line.
    pub fn poll(&mut self, cx: &mut Context<'_>, output: &mut Vec<u8>, high_water: usize) {
        let mut has_room = false;
        let mut lines = self.queue.lock();
        if output.len() < high_water {
            output.append(&mut lines.bytes);
            has_room = self.queue.is_full.swap(false, Ordering::Relaxed);
        }
        match &mut lines.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        drop(lines);
        if has_room {
            self.hub.note_heard(&self.hub.read());
        }
    }

    /// Stops watching.
    pub fn leave(self, hub: &Hub) {
        let mut queues = hub.write();
        queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        hub.note_wanted(&queues);
    }
}

impl Hub {
    /// Whether any of `streams` (a bit set) has a watcher.
    #[inline]
    pub fn wants(&self, streams: u32) -> bool {
        self.wanted.load(Ordering::Relaxed) & streams != 0
    }

    /// A new watcher of `streams`; `None` if there are too many.
    pub fn join(self: &Arc<Self>, streams: u32) -> Option<Watcher> {
        let mut queues = self.write();
        if queues.len() >= WATCHERS_MAX {
            return None;
        }
        let lines = Lines { unheard: self.unheard(streams), ..Lines::default() };
        let queue = Arc::new(Queue { streams, lines: Mutex::new(lines), is_full: AtomicBool::new(false) });
        queues.push(Arc::clone(&queue));
        self.note_wanted(&queues);
        Some(Watcher { queue, hub: Arc::clone(self) })
    }

    /// Numbers of the hub.
    pub fn stats(&self) -> HubStats {
        HubStats {
            watchers: self.read().len() as u64,
            skipped: self.skipped.load(Ordering::Relaxed) + self.unheard(u32::MAX),
            sent: self.sent.load(Ordering::Relaxed),
        }
    }

    /// A key was read.
    #[cold]
    pub fn fetched(&self, peer: &Peer, key: &[u8], fetched: &Fetched) {
        if !self.is_heard(FETCHERS) {
            return;
        }
        let (status, class, size) = match fetched {
            Fetched::Found { size } => ("found", 1, *size),
            Fetched::Missed { expired: true } => ("expired", 0, 0),
            Fetched::Missed { expired: false } => ("not_found", 0, 0),
        };
        let rest = format!(" status={status} clsid={class} cfd={} size={size}\n", peer.id);
        self.send(FETCHERS, "item_get key=", key, &rest);
    }

    /// A write of a key was stored or refused.
    #[cold]
    pub fn stored(&self, peer: &Peer, key: &[u8], request: &Write, written: Written, size: usize) {
        if !self.is_heard(MUTATIONS) {
            return;
        }
        let status = match written {
            Written::Stored { .. } | Written::Unchanged { .. } => "stored",
            Written::NotStored => "not_stored",
            Written::Exists => "exists",
            Written::Superseded { .. } => "superseded",
            Written::NotFound => "not_found",
            Written::TooLarge => "too_large",
            Written::OutOfMemory => "no_memory",
        };
        let command = match request.mode {
            WriteMode::Set | WriteMode::Replace if request.compare.is_some() => "cas",
            WriteMode::Set => "set",
            WriteMode::Add => "add",
            WriteMode::Replace => "replace",
            WriteMode::Append => "append",
            WriteMode::Prepend => "prepend",
        };
        let Exptime(ttl) = request.exptime;
        let rest = format!(" status={status} cmd={command} ttl={ttl} clsid=1 cfd={} size={size}\n", peer.id);
        self.send(MUTATIONS, "item_store key=", key, &rest);
    }

    /// A key was deleted, by `md` or by a command of another protocol.
    #[cold]
    pub fn deleted(&self, key: &[u8], by_meta: bool) {
        if !self.is_heard(DELETIONS) {
            return;
        }
        let command = if by_meta { "md" } else { "delete" };
        self.send(DELETIONS, "deleted key=", key, &format!(" cmd={command} clsid=1\n"));
    }

    /// A connection was accepted.
    #[cold]
    pub fn connection_opened(&self, peer: &Peer) {
        let rest = format!("{} cfd={}\n", describe(peer), peer.id);
        self.send(CONNEVENTS, "conn_new ", b"", &rest);
    }

    /// A connection ended.
    #[cold]
    pub fn connection_closed(&self, peer: &Peer, reason: CloseReason) {
        let reason = match reason {
            CloseReason::Normal => "normal",
            CloseReason::Error => "error",
            CloseReason::IdleTimeout => "idle_timeout",
            CloseReason::Memory => "memory",
            CloseReason::Shutdown => "shutdown",
        };
        let rest = format!("{} reason={reason} cfd={}\n", describe(peer), peer.id);
        self.send(CONNEVENTS, "conn_close ", b"", &rest);
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<Queue>>> {
        self.queues.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Arc<Queue>>> {
        self.queues.write()
    }

    /// Whether there is any watcher.
    #[inline]
    pub fn has_watchers(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// Whether a watcher of `stream` has room for a line. If not, counts the line, which then need not be formatted.
    fn is_heard(&self, stream: u32) -> bool {
        let heard = self.heard.load(Ordering::Relaxed) & stream != 0;
        if !heard {
            self.unheard[stream.trailing_zeros() as usize % STREAMS].bump();
        }
        heard
    }

    /// Events of `streams` that no watcher had room for.
    fn unheard(&self, streams: u32) -> u64 {
        let of = |stream: usize| if streams & (1 << stream) != 0 { self.unheard[stream].sum() } else { 0 };
        (0..STREAMS).map(of).sum()
    }

    fn note_heard(&self, queues: &[Arc<Queue>]) {
        // One thread at a time: the last one has seen the changes of the others.
        let _noting = self.noting.lock();
        let has_room = |queue: &&Arc<Queue>| !queue.is_full.load(Ordering::Relaxed);
        let heard = queues.iter().filter(has_room).fold(0, |heard, queue| heard | queue.streams);
        self.heard.store(heard, Ordering::Relaxed);
    }

    fn note_wanted(&self, queues: &[Arc<Queue>]) {
        let wanted = queues.iter().fold(0, |wanted, queue| wanted | queue.streams);
        self.wanted.store(wanted, Ordering::Relaxed);
        self.note_heard(queues);
    }

    /// Queues a line for all watchers of `stream`.
    fn send(&self, stream: u32, kind: &str, key: &[u8], rest: &str) {
        let line = self.line(kind, key, rest);
        let queues = self.read();
        let mut has_filled = false;
        for queue in queues.iter().filter(|queue| queue.streams & stream != 0) {
            let fits = queue.push(&line, self.unheard(queue.streams));
            has_filled |= !fits;
            let counter = if fits { &self.sent } else { &self.skipped };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if has_filled {
            self.note_heard(&queues);
        }
    }

    fn line(&self, kind: &str, key: &[u8], rest: &str) -> Vec<u8> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let number = self.next_line.fetch_add(1, Ordering::Relaxed) + 1;
        let mut front = String::with_capacity(96);
        let _ = write!(front, "ts={}.{:06} gid={number} type={kind}", now.as_secs(), now.subsec_micros());
        let mut line = front.into_bytes();
        percent_encode(key, &mut line);
        line.extend_from_slice(rest.as_bytes());
        line
    }
}

fn describe(peer: &Peer) -> String {
    match (peer.kind, peer.address) {
        (SocketKind::Tcp, Some(address)) => {
            format!("rip={} rport={} transport=tcp", address.ip(), address.port())
        }
        (SocketKind::Tcp, None) => "rip=unknown rport=0 transport=tcp".to_owned(),
        (SocketKind::Unix, _) => "rip=unix rport=0 transport=unix".to_owned(),
    }
}

impl Observer for Hub {
    fn removed(&self, item: &Removed<'_>) {
        if item.cause != RemovalCause::Evicted || !self.wants(EVICTIONS) || !self.is_heard(EVICTIONS) {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let now = u32::try_from(now).unwrap_or(u32::MAX);
        let fetch = if item.meta.fetched { "yes" } else { "no" };
        let ttl = item.meta.expiry.remaining(now).map_or(-1, i64::from);
        let la = now.saturating_sub(item.meta.last_access);
        let rest = format!(" fetch={fetch} ttl={ttl} la={la} clsid=1 size={}\n", item.value_bytes);
        self.send(EVICTIONS, "eviction key=", item.key, &rest);
    }
}
