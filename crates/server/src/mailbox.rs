//! A worker's mailbox: it receives accepted sockets and wakes of parked requests. The worker is woken through the kernel only if
//! the mailbox was empty.
//!
//! Most wakes come from the worker itself, when it completes device reads. They go to a thread-local list, without a lock.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use moneta_net::Transport;
use parking_lot::{Mutex, MutexGuard};

use crate::listener_state::ConnectionPermit;
use crate::node::Peer;
use crate::wake::wake;

/// A connection on its way from the acceptor to its worker.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// What it is read and written through, not blocking.
    pub(crate) transport: Transport,
    /// The client.
    pub(crate) peer: Peer,
    /// Its permit from the listener.
    pub(crate) permit: ConnectionPermit,
}

/// Identifies a connection of a worker. Slots are reused, numbers are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    /// Its slot.
    pub(crate) slot: usize,
    /// Its number.
    pub(crate) id: u64,
}

thread_local! {
    /// The mailbox of the worker on this thread.
    static OWN: Cell<*const Mailbox> = const { Cell::new(std::ptr::null()) };
    /// Connections woken by the worker itself.
    static WOKEN: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

/// Marks the current thread as the worker of a mailbox while it lives.
pub(crate) struct Owned<'a>(PhantomData<(&'a Mailbox, *const ())>);

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        OWN.set(std::ptr::null());
        WOKEN.with_borrow_mut(Vec::clear);
    }
}

#[derive(Debug, Default)]
struct Letters {
    accepted: Vec<Accepted>,
    woken: Vec<Handle>,
}

/// One worker's mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox {
    // Held for a push or a swap of vectors, never across slow work.
    letters: Mutex<Letters>,
    /// The mailbox is not empty; changed under its lock.
    has_letters: AtomicBool,
    waker: Arc<mio::Waker>,
    open: AtomicUsize,
    /// Begins and ends of turns of the worker's loop: odd while it waits for events. Written by the worker only.
    beats: AtomicU64,
}

impl Mailbox {
    /// An empty mailbox whose worker is woken by `waker`.
    pub(crate) fn new(waker: Arc<mio::Waker>) -> Self {
        Self {
            letters: Mutex::default(),
            has_letters: AtomicBool::new(false),
            waker,
            open: AtomicUsize::new(0),
            beats: AtomicU64::new(0),
        }
    }

    /// Makes the current thread the worker for as long as the guard lives.
    pub(crate) fn own(&self) -> Owned<'_> {
        OWN.set(self);
        Owned(PhantomData)
    }

    /// Whether the current thread is the worker.
    #[inline]
    fn is_own(&self) -> bool {
        std::ptr::eq(OWN.get(), self)
    }

    /// The worker's loop ends a turn and waits for events, or begins one.
    #[inline]
    pub(crate) fn beat(&self) {
        self.beats.store(self.beats.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Begins and ends of turns of the worker's loop so far.
    pub(crate) fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// Whether the worker was amid a turn at so many beats.
    pub(crate) fn is_in_turn(beats: u64) -> bool {
        // None: it has not begun.
        beats != 0 && beats.is_multiple_of(2)
    }

    /// Makes the worker's loop turn, if it is not stuck.
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

    /// Notes that a connection handed over is closed.
    pub(crate) fn closed_one(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether there is nothing to collect. Called by the worker: what is put in later wakes it through the kernel.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_letters.load(Ordering::Acquire) && WOKEN.with_borrow(Vec::is_empty)
    }

    /// Appends the contents of the mailbox to the two lists. Called by the worker.
    #[inline]
    pub(crate) fn collect(&self, accepted: &mut Vec<Accepted>, woken: &mut Vec<Handle>) {
        WOKEN.with_borrow_mut(|own| woken.append(own));
        if self.has_letters.load(Ordering::Acquire) {
            self.collect_letters(accepted, woken);
        }
    }

    #[cold]
    fn collect_letters(&self, accepted: &mut Vec<Accepted>, woken: &mut Vec<Handle>) {
        let mut letters = self.lock();
        self.has_letters.store(false, Ordering::Release);
        accepted.append(&mut letters.accepted);
        woken.append(&mut letters.woken);
    }

    fn put(&self, put: impl FnOnce(&mut Letters)) {
        let was_empty = {
            let mut letters = self.lock();
            put(&mut letters);
            !self.has_letters.swap(true, Ordering::AcqRel)
        };
        // The worker checks its mailbox before it sleeps.
        if was_empty && !self.is_own() {
            wake(&self.waker);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock()
    }
}

/// Wakes one connection of a worker; the implementation of the `std` waker that its parked requests get.
struct ConnectionWaker {
    mailbox: Arc<Mailbox>,
    handle: Handle,
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.mailbox.is_own() {
            WOKEN.with_borrow_mut(|woken| note(self.handle, woken));
        } else {
            self.mailbox.put(|letters| note(self.handle, &mut letters.woken));
        }
    }
}

/// Queues a wake of a connection. A burst of events for one watcher is a single wake.
#[inline]
fn note(handle: Handle, woken: &mut Vec<Handle>) {
    if woken.last() != Some(&handle) {
        woken.push(handle);
    }
}

/// A waker for the connection `handle` of the worker behind `mailbox`.
pub(crate) fn connection_waker(mailbox: &Arc<Mailbox>, handle: Handle) -> Waker {
    Waker::from(Arc::new(ConnectionWaker { mailbox: Arc::clone(mailbox), handle }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox() -> (mio::Poll, Arc<Mailbox>) {
        let poll = mio::Poll::new().unwrap();
        let waker = Arc::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
        (poll, Arc::new(Mailbox::new(waker)))
    }

    fn collected(mailbox: &Mailbox) -> Vec<usize> {
        let (mut accepted, mut woken) = (Vec::new(), Vec::new());
        mailbox.collect(&mut accepted, &mut woken);
        assert!(accepted.is_empty());
        woken.into_iter().map(|handle| handle.slot).collect()
    }

    /// Whether the worker of `poll` has been woken through the kernel.
    fn is_nudged(poll: &mut mio::Poll) -> bool {
        let mut events = mio::Events::with_capacity(4);
        poll.poll(&mut events, Some(std::time::Duration::ZERO)).unwrap();
        !events.is_empty()
    }

    #[test]
    fn wakes_of_the_worker_itself_take_no_call_of_the_kernel_and_those_of_others_one() {
        let (mut poll, mailbox) = mailbox();
        let _owned = mailbox.own();
        let wakers: Vec<Waker> =
            (0..4).map(|slot| connection_waker(&mailbox, Handle { slot, id: slot as u64 })).collect();
        wakers[1].wake_by_ref();
        wakers[1].wake_by_ref();
        wakers[2].wake_by_ref();
        assert!(!is_nudged(&mut poll));
        assert_eq!(collected(&mailbox), [1, 2]);

        std::thread::scope(|scope| {
            scope.spawn(|| wakers[..].iter().for_each(Waker::wake_by_ref));
        });
        assert!(is_nudged(&mut poll));
        wakers[0].wake_by_ref();
        let mut all = collected(&mailbox);
        all.sort_unstable();
        assert_eq!(all, [0, 0, 1, 2, 3]);
        assert!(collected(&mailbox).is_empty());

        std::thread::scope(|scope| {
            scope.spawn(|| wakers[3].wake_by_ref());
        });
        assert!(is_nudged(&mut poll), "also after the box was emptied");
    }

    #[test]
    fn a_worker_that_wakes_a_connection_of_another_reaches_it() {
        let ((mut poll, mailbox), (mut other_poll, other)) = (mailbox(), mailbox());
        let _owned = mailbox.own();
        connection_waker(&other, Handle { slot: 7, id: 7 }).wake();
        assert!(is_nudged(&mut other_poll) && !is_nudged(&mut poll));
        assert!(collected(&mailbox).is_empty());
    }

    #[test]
    fn what_a_worker_wakes_after_its_end_stays_in_the_box() {
        let (mut poll, mailbox) = mailbox();
        drop(mailbox.own());
        connection_waker(&mailbox, Handle { slot: 1, id: 1 }).wake();
        assert!(is_nudged(&mut poll));
        assert_eq!(collected(&mailbox), [1]);
    }
}
