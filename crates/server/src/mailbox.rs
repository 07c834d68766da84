//! How other threads reach a worker: accepted sockets are put in, wakes of parked requests are put in, the worker takes
//! them out. Only when the box was empty is the worker woken through the kernel.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};
use std::thread::ThreadId;

use parking_lot::{Mutex, MutexGuard};

use crate::entrance::Place;
use crate::lifecycle::wake;
use crate::node::Peer;

/// A connection on its way from the acceptor to its worker.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// The socket, non-blocking.
    pub(crate) socket: OwnedFd,
    /// Who is there.
    pub(crate) peer: Peer,
    /// Its place behind the listener it came through.
    pub(crate) place: Place,
}

/// Names a connection of a worker. Slots are used again, numbers are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    /// Its slot.
    pub(crate) slot: usize,
    /// Its number.
    pub(crate) id: u64,
}

#[derive(Debug, Default)]
struct Letters {
    accepted: Vec<Accepted>,
    woken: Vec<Handle>,
}

/// One worker's mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox {
    // Held for a push or a swap of vectors, never across anything slow.
    letters: Mutex<Letters>,
    waker: Arc<mio::Waker>,
    owner: OnceLock<ThreadId>,
    open: AtomicUsize,
    /// Turns of the worker's loop; written by the worker only.
    beats: AtomicU64,
}

impl Mailbox {
    /// An empty box whose worker is woken by `waker`.
    pub(crate) fn new(waker: Arc<mio::Waker>) -> Self {
        Self {
            letters: Mutex::default(),
            waker,
            owner: OnceLock::new(),
            open: AtomicUsize::new(0),
            beats: AtomicU64::new(0),
        }
    }

    /// Says that the current thread is the worker.
    pub(crate) fn own(&self) {
        let _ = self.owner.set(std::thread::current().id());
    }

    /// The worker's loop begins another turn.
    #[inline]
    pub(crate) fn beat(&self) {
        self.beats.store(self.beats.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Turns of the worker's loop so far.
    pub(crate) fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// Has the worker's loop turn, if it can.
    pub(crate) fn nudge(&self) {
        wake(&self.waker);
    }

    /// Connections handed to this worker and not yet closed.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Hands over a connection.
    pub(crate) fn deliver(&self, accepted: Accepted) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.put(|letters| letters.accepted.push(accepted));
    }

    /// Says that a connection handed over is closed.
    pub(crate) fn closed_one(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Moves everything in the box to the back of the two lists.
    pub(crate) fn collect(&self, accepted: &mut Vec<Accepted>, woken: &mut Vec<Handle>) {
        let mut letters = self.lock();
        accepted.append(&mut letters.accepted);
        woken.append(&mut letters.woken);
    }

    fn put(&self, put: impl FnOnce(&mut Letters)) {
        let was_empty = {
            let mut letters = self.lock();
            let was_empty = letters.accepted.is_empty() && letters.woken.is_empty();
            put(&mut letters);
            was_empty
        };
        // The worker itself looks into the box before it sleeps.
        if was_empty && self.owner.get() != Some(&std::thread::current().id()) {
            wake(&self.waker);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock()
    }
}

/// Wakes one connection of a worker; stands behind the `std` waker its parked requests get.
struct ConnectionWaker {
    mailbox: Arc<Mailbox>,
    handle: Handle,
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mailbox.put(|letters| {
            // A burst of events for one watcher is one wake.
            if letters.woken.last() != Some(&self.handle) {
                letters.woken.push(self.handle);
            }
        });
    }
}

/// A waker for the connection `handle` of the worker behind `mailbox`.
pub(crate) fn connection_waker(mailbox: &Arc<Mailbox>, handle: Handle) -> Waker {
    Waker::from(Arc::new(ConnectionWaker { mailbox: Arc::clone(mailbox), handle }))
}
