//! Where the acceptor leaves connections for the threads of handshakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mio::Waker;
use moneta_net::TlsAcceptor;
use parking_lot::Mutex;

use crate::mailbox::Accepted;
use crate::wake::wake;

/// Connections that wait for a thread, beside those under way on it.
const WAITING: usize = 64;

/// An accepted connection that TLS is to protect.
#[derive(Debug)]
pub(crate) struct Begun {
    /// The connection, not protected yet.
    pub(crate) accepted: Accepted,
    /// What protects it.
    pub(crate) acceptor: TlsAcceptor,
}

/// The acceptor's side of all threads.
#[derive(Debug)]
pub(crate) struct Handshakes {
    desks: Vec<Arc<Desk>>,
}

/// One thread's place in this.
#[derive(Debug)]
pub(crate) struct Desk {
    inbox: Mutex<Inbox>,
    /// Those that wait and those under way.
    held: AtomicUsize,
    thread: Arc<Waker>,
    acceptor: Arc<Waker>,
}

#[derive(Debug, Default)]
struct Inbox {
    waiting: Vec<Begun>,
    /// The acceptor rests until there is room.
    is_wanted: bool,
}

impl Handshakes {
    /// Threads that are woken through `threads`, and that wake the acceptor when there is room again.
    pub(crate) fn new(threads: impl IntoIterator<Item = Arc<Waker>>, acceptor: &Arc<Waker>) -> Self {
        let desk = |thread| {
            let (inbox, held) = (Mutex::default(), AtomicUsize::new(0));
            Arc::new(Desk { inbox, held, thread, acceptor: Arc::clone(acceptor) })
        };
        Self { desks: threads.into_iter().map(desk).collect() }
    }

    /// The places of the threads.
    pub(crate) fn desks(&self) -> &[Arc<Desk>] {
        &self.desks
    }

    /// Connections that have no worker yet.
    pub(crate) fn held(&self) -> usize {
        self.desks.iter().map(|desk| desk.held.load(Ordering::Relaxed)).sum()
    }

    /// Whether one more can wait; if not, the acceptor is woken as soon as it can.
    pub(crate) fn have_room(&self) -> bool {
        self.desks.iter().any(|desk| desk.has_room())
    }

    /// Leaves a connection with the thread that has the fewest.
    pub(crate) fn begin(&self, begun: Begun) {
        if let Some(desk) = self.desks.iter().min_by_key(|desk| desk.held.load(Ordering::Relaxed)) {
            desk.put(begun);
        }
    }
}

impl Desk {
    fn has_room(&self) -> bool {
        let mut inbox = self.inbox.lock();
        inbox.is_wanted = inbox.waiting.len() >= WAITING;
        !inbox.is_wanted
    }

    fn put(&self, begun: Begun) {
        self.held.fetch_add(1, Ordering::Relaxed);
        let is_first = {
            let mut inbox = self.inbox.lock();
            inbox.waiting.push(begun);
            inbox.waiting.len() == 1
        };
        if is_first {
            wake(&self.thread);
        }
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.inbox.lock().waiting.len()
    }

    /// The `most` that have waited longest.
    pub(super) fn take(&self, most: usize) -> Vec<Begun> {
        let mut inbox = self.inbox.lock();
        let count = most.min(inbox.waiting.len());
        let taken = inbox.waiting.drain(..count).collect();
        if std::mem::take(&mut inbox.is_wanted) {
            wake(&self.acceptor);
        }
        taken
    }

    /// One of those taken has a worker, or is closed.
    pub(super) fn ended_one(&self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}
