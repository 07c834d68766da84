//! The connections of one thread to a server, and the driver that turns them.
//!
//! The connections have a separate event queue, whose descriptor the thread's event loop watches. The queue is never polled: a
//! turn receives from every connection with expected replies, which it would do anyway, and so saves a system call.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use moneta_client::wire::{Request, Verb};
use moneta_store::{Key, Reactor, StoreError};
use rustix::event::epoll::{self, CreateFlags};
use rustix::io::Errno;

use crate::connection::{Claim, Link, Outcome, Replies, Target, Told, Turn, Won, giving_back};
use crate::running::RunningClock;
use crate::shared::Shared;
use crate::timer::Timer;

/// The connections of one thread to a server.
pub(crate) struct WorkerClient {
    shared: Arc<Shared>,
    state: RefCell<State>,
}

struct State {
    queue: OwnedFd,
    timer: Timer,
    clock: RunningClock,
    links: Vec<Link>,
    replies: Replies,
}

impl WorkerClient {
    /// Connections for one thread; they begin to connect with the first turn.
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Self, Errno> {
        let queue = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = Timer::new(&queue)?;
        let now = Instant::now();
        let clock = RunningClock::new(shared.config.request_timeout.min(shared.config.connect_timeout));
        let links = (0..shared.config.connections).map(|_| Link::new(Arc::clone(shared), now)).collect();
        let state = State { queue, timer, clock, links, replies: Replies::default() };
        Ok(Self { shared: Arc::clone(shared), state: RefCell::new(state) })
    }

    /// Connections for a worker, which have begun to connect; `None` where the system has no room for them.
    pub(crate) fn of_worker(shared: &Arc<Shared>) -> Option<Rc<Self>> {
        let client =
            Self::new(shared).inspect_err(|error| tracing::warn!(%error, "a worker cannot have connections")).ok()?;
        client.exchange();
        Some(Rc::new(client))
    }

    /// Begins a request whose answer a future of this thread takes out of the slot that is returned.
    #[inline]
    pub(crate) fn begin(&self, request: &Request<'_>, hash: u64) -> Result<usize, StoreError> {
        let state = &mut *self.state.borrow_mut();
        let slot = state.replies.open();
        let begun = state.begin(request, hash, Target::Local(slot));
        if begun.is_err() {
            state.replies.cancel(slot);
        }
        begun.map(|()| slot)
    }

    /// Has the descriptor become readable, for a reactor that turns a client only when an operation begins on it, or something came.
    #[cold]
    pub(crate) fn ask_for_turn(&self) {
        let now = Instant::now();
        self.state.borrow_mut().timer.cover(Some(now), now);
    }

    /// Begins a request whose answer goes elsewhere.
    pub(crate) fn begin_for(&self, request: &Request<'_>, hash: u64, target: Target) -> Result<(), StoreError> {
        self.state.borrow_mut().begin(request, hash, target)
    }

    /// Begins reads together; their answers are taken out of the slot that is returned, which [`WorkerClient::abandon_together`] ends.
    pub(crate) fn begin_together(&self, verb: Verb, keys: &[Key<'_>]) -> usize {
        let State { queue, clock, links, replies, .. } = &mut *self.state.borrow_mut();
        let slot = replies.open_together(keys);
        let now = clock.begin(Instant::now());
        for (number, key) in keys.iter().enumerate() {
            let link = index(key.hash, links.len());
            let request = Request { verb, key: key.bytes, value: &[] };
            let turn = &mut Turn { queue, replies, now, only_receives: false };
            if let Err(error) = links[link].begin(&request, Target::Together { slot, index: number }, turn) {
                replies.refuse_together(slot, number, error);
            }
        }
        slot
    }

    /// Looks for the answer to one of the reads in a slot, and shows it with its key. Each is told once.
    #[inline]
    pub(crate) fn poll_together<T>(
        &self,
        slot: usize,
        index: usize,
        context: &Context<'_>,
        show: impl FnOnce(Key<'_>, Told<'_>) -> T,
    ) -> Poll<T> {
        self.state.borrow_mut().replies.poll_together(slot, index, context).map(|(key, told)| show(key, told))
    }

    /// The answers in a slot are not waited for any more. What those that are there have won.
    pub(crate) fn abandon_together(&self, slot: usize) -> Vec<Won> {
        self.state.borrow_mut().replies.abandon_together(slot)
    }

    pub(crate) fn poll(&self, slot: usize, context: &Context<'_>) -> Poll<Outcome<'static>> {
        self.state.borrow_mut().replies.poll(slot, context)
    }

    pub(crate) fn abandon(&self, slot: usize, claim: Option<Claim>) -> Option<Won> {
        self.state.borrow_mut().replies.abandon(slot, claim)
    }

    /// Sends, receives, wakes.
    pub(crate) fn exchange(&self) {
        self.move_bytes(false);
    }

    fn move_bytes(&self, only_receives: bool) {
        self.with_links(|links, turn| {
            turn.only_receives = only_receives;
            links.iter_mut().for_each(|link| link.turn(turn));
            if !turn.replies.won.is_empty() {
                give_back(links, turn);
            }
        });
    }

    fn end(&self) {
        self.with_links(|links, turn| links.iter_mut().for_each(|link| link.close(turn)));
    }

    fn with_links(&self, act: impl FnOnce(&mut [Link], &mut Turn<'_>)) {
        let mut wakers = {
            let State { queue, timer, clock, links, replies } = &mut *self.state.borrow_mut();
            let system = Instant::now();
            let now = clock.turn(system);
            act(links, &mut Turn { queue, replies, now, only_receives: false });
            let deadline = links.iter().filter_map(Link::deadline).min();
            let next = clock.next_turn(deadline, system).or_else(|| {
                let check = links.iter().filter_map(Link::check_at).min();
                check.map(|at| clock.system(at))
            });
            timer.cover(if links.iter().any(Link::is_unread) { Some(system) } else { next }, system);
            self.shared.counters.add(&mut replies.tally);
            std::mem::take(&mut replies.wakers)
        };
        if wakers.capacity() == 0 {
            return;
        }
        wakers.drain(..).for_each(Waker::wake);
        // Wakers do nothing here but queue their tasks; should one have turned the client, its list is the newer.
        let mut state = self.state.borrow_mut();
        if state.replies.wakers.is_empty() {
            state.replies.wakers = wakers;
        }
    }

    /// Waits until a turn has something to do. For a thread that has nothing else to wait for.
    pub(crate) fn wait(&self) {
        // The thread that waits here is the only user of this client.
        let state = self.state.borrow();
        let mut events = Vec::with_capacity(16);
        match epoll::wait(&state.queue, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => tracing::error!(%error, "cannot wait for replies"),
        }
    }

    /// Has [`WorkerClient::wait`] end when `descriptor` becomes readable anew.
    pub(crate) fn watch(&self, descriptor: &OwnedFd) -> Result<(), Errno> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.state.borrow().queue, descriptor, epoll::EventData::new_u64(0), flags)
    }
}

/// Gives back recaches won by reads whose waiters are gone, and sends that.
#[cold]
fn give_back(links: &mut [Link], turn: &mut Turn<'_>) {
    for Won { key, hash, cas } in std::mem::take(&mut turn.replies.won) {
        let link = &mut links[index(hash, links.len())];
        let verb = Verb::Delete(giving_back(cas, link.dialect()));
        // If it cannot be begun, the server is gone.
        let _ = link.begin(&Request { verb, key: &key, value: &[] }, Target::Unanswered, turn);
        link.turn(turn);
    }
}

/// Which of a client's connections a key's requests take. Goes by the upper half: the lower one picks shards and stripes.
#[inline]
fn index(hash: u64, links: usize) -> usize {
    if links == 1 { 0 } else { (hash >> 32) as usize % links }
}

impl State {
    #[inline]
    fn begin(&mut self, request: &Request<'_>, hash: u64, target: Target) -> Result<(), StoreError> {
        let Self { queue, clock, links, replies, .. } = self;
        let index = index(hash, links.len());
        let now = clock.begin(Instant::now());
        links[index].begin(request, target, &mut Turn { queue, replies, now, only_receives: false })
    }
}

impl Reactor for WorkerClient {
    fn descriptor(&self) -> RawFd {
        self.state.borrow().queue.as_raw_fd()
    }

    fn turn(&self) {
        self.exchange();
    }

    fn reap(&self) {
        self.move_bytes(true);
    }

    fn is_eager(&self) -> bool {
        false
    }

    fn close(&self) {
        // Futures that are left hold the connections, but they are not turned any more.
        self.end();
    }
}

impl Drop for WorkerClient {
    fn drop(&mut self) {
        self.end();
    }
}
