//! The connections of one thread to a server, and the driver that turns them.
//!
//! The connections have a separate event queue, whose descriptor the thread's event loop watches. The queue is never polled: a
//! turn receives from every connection with expected replies, which it would do anyway, and so saves a system call.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use moneta_client::wire::{Request, Verb};
use moneta_store::{ErrorKind, Key, Reactor, StoreError};
use rustix::event::epoll::{self, CreateFlags};
use rustix::io::Errno;

use crate::connection::{Claim, Link, NO_MEMORY, Outcome, ReadTold, Replies, Target, Turn, Won, giving_back};
use crate::failure::Failure;
use crate::large::LARGE;
use crate::running::RunningClock;
use crate::shared::ServerShared;
use crate::timer::Timer;

/// The connections of one thread to a server.
pub(crate) struct WorkerClient {
    shared: Arc<ServerShared>,
    state: RefCell<LinksState>,
}

struct LinksState {
    queue: OwnedFd,
    timer: Timer,
    clock: RunningClock,
    /// First those that take requests by the hashes of keys, then one for large values, if there is one, and then those that end
    /// with the requests they have.
    links: Vec<Link>,
    /// How many take requests by the hashes of keys.
    common: usize,
    replies: Replies,
    /// Bytes held, as of the last turn.
    held: usize,
}

/// Bytes by which what a thread holds may differ from what it has told.
const STEP: usize = 16 << 10;
/// Connections that end with the requests they have, at most.
const RETIRED: usize = 2;

impl WorkerClient {
    /// Connections for one thread; they begin to connect with the first turn.
    pub(crate) fn new(shared: &Arc<ServerShared>) -> Result<Self, Errno> {
        let queue = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = Timer::new(&queue)?;
        let now = Instant::now();
        let clock = RunningClock::new(shared.config.request_timeout.get().min(shared.config.connect_timeout()));
        let common = shared.config.connections;
        let mut links: Vec<Link> = (0..common).map(|_| Link::new(Arc::clone(shared), now)).collect();
        if shared.config.large_apart {
            links.push(Link::for_large_values(Arc::clone(shared), now));
        }
        let state = LinksState { queue, timer, clock, links, common, replies: Replies::default(), held: 0 };
        Ok(Self { shared: Arc::clone(shared), state: RefCell::new(state) })
    }

    /// Connections for a worker, which have begun to connect; `None` where the system has no room for them.
    pub(crate) fn of_worker(shared: &Arc<ServerShared>) -> Option<Rc<Self>> {
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
        let begun = state.begin(&self.shared, request, hash, Target::Local(slot));
        if begun.is_err() {
            state.replies.cancel(slot);
        }
        begun.map(|()| slot)
    }

    /// Has the descriptor become readable, for a reactor that turns a client only when an operation begins on it, or something
    /// came.
    #[cold]
    pub(crate) fn ask_for_turn(&self) {
        let now = Instant::now();
        self.state.borrow_mut().timer.cover(Some(now), now);
    }

    /// Begins a request whose answer goes elsewhere.
    pub(crate) fn begin_for(&self, request: &Request<'_>, hash: u64, target: Target) -> Result<(), StoreError> {
        self.state.borrow_mut().begin(&self.shared, request, hash, target)
    }

    /// Begins reads together; their answers are taken out of the slot that is returned, which [`WorkerClient::abandon_together`]
    /// ends.
    pub(crate) fn begin_together(&self, verb: Verb, keys: &[Key<'_>]) -> usize {
        let LinksState { queue, clock, links, common, replies, .. } = &mut *self.state.borrow_mut();
        let slot = replies.open_together(verb, keys);
        let now = clock.begin(Instant::now());
        // Most processes meet none.
        let some_are_large = self.shared.config.memory.large.knows_any();
        for (number, key) in keys.iter().enumerate() {
            let request = Request { verb, key: key.bytes, value: &[] };
            let (link, cost) = match some_are_large {
                true => route(&self.shared, &request, key.hash, *common),
                false => (index(key.hash, *common), 0),
            };
            let turn = &mut Turn { queue, replies, now, only_receives: false };
            let target = Target::Together { slot, index: number };
            let begun = match cost {
                0 => links[link].begin(&request, key.hash, cost, target, turn),
                _ => {
                    check_memory(&self.shared).and_then(|()| links[link].begin(&request, key.hash, cost, target, turn))
                }
            };
            if let Err(error) = begun {
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
        show: impl FnOnce(Key<'_>, ReadTold<'_>) -> T,
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
        let common = self.shared.config.connections;
        self.with_links(|links, turn| {
            turn.only_receives = only_receives;
            let mut is_clogged = false;
            for link in links.iter_mut() {
                link.turn(turn);
                is_clogged |= link.is_clogged();
            }
            if !turn.replies.won.is_empty() {
                give_back(&mut links[..common], turn);
            }
            // There is one for large values at most, and then those that end.
            if is_clogged || links.len() > common + 1 {
                self.replace_clogged(links, turn);
            }
        });
    }

    /// Gives those connections successors on which so much comes that others should not wait for it, and ends those that have one
    /// and no request any more.
    #[cold]
    fn replace_clogged(&self, links: &mut Vec<Link>, turn: &mut Turn<'_>) {
        let fixed = self.shared.config.connections + 1;
        for index in (fixed..links.len()).rev() {
            if links[index].is_done(turn) {
                links.swap_remove(index).close(turn);
            }
        }
        for index in 0..fixed - 1 {
            if links[index].is_clogged() && links.len() < fixed + RETIRED {
                let next = Link::new(Arc::clone(&self.shared), turn.now);
                let mut clogged = std::mem::replace(&mut links[index], next);
                let reads = clogged.retire(turn);
                match clogged.is_done(turn) {
                    true => clogged.close(turn),
                    false => links.push(clogged),
                }
                links[index].turn(turn);
                self.ask_anew(reads, links, turn);
            }
        }
    }

    /// Asks reads anew that were on a connection which is left.
    #[cold]
    fn ask_anew(&self, reads: Vec<Target>, links: &mut [Link], turn: &mut Turn<'_>) {
        // Before what has come since, so those that are to be first go last.
        for target in reads.into_iter().rev() {
            turn.replies.tally.failed();
            let question = match &target {
                Target::Together { slot, index } => turn.replies.question(*slot, *index),
                _ => None,
            };
            // Others know themselves what they ask.
            let Some((verb, key)) = question else {
                turn.replies.end(target, Err(Failure::displaced()));
                continue;
            };
            let key = key.key();
            let request = Request { verb, key: key.bytes, value: &[] };
            let (link, cost) = route(&self.shared, &request, key.hash, self.shared.config.connections);
            let Target::Together { slot, index } = target else { continue };
            let again = Target::Together { slot, index };
            let begun = match cost {
                0 => links[link].begin(&request, key.hash, cost, again, turn),
                _ => links[link].begin_first(&request, key.hash, cost, again, turn),
            };
            if let Err(error) = begun {
                let failure = Failure::new(error.kind(), error.to_string());
                turn.replies.end(Target::Together { slot, index }, Err(failure));
            }
        }
    }

    fn end(&self) {
        self.with_links(|links, turn| {
            links.iter_mut().for_each(|link| link.close(turn));
        });
        let state = &mut *self.state.borrow_mut();
        // Nothing is turned any more that would tell.
        self.shared.config.memory.change(state.held, 0);
        self.shared.counters.held.fetch_sub(state.held as u64, Ordering::Relaxed);
        state.held = 0;
    }

    fn with_links(&self, act: impl FnOnce(&mut Vec<Link>, &mut Turn<'_>)) {
        let mut wakers = {
            let state = &mut *self.state.borrow_mut();
            let LinksState { queue, timer, clock, links, replies, .. } = state;
            let system = Instant::now();
            let now = clock.turn(system);
            act(links, &mut Turn { queue, replies, now, only_receives: false });
            let (mut deadline, mut is_unread, mut held) = (None, false, replies.held());
            for link in links.iter().filter(|link| !link.sleeps()) {
                if let Some(at) = link.deadline() {
                    deadline = Some(deadline.map_or(at, |first: Instant| first.min(at)));
                }
                is_unread |= link.is_unread();
                held += link.held();
            }
            let next = clock.next_turn(deadline, system).or_else(|| {
                let check = links.iter().filter_map(Link::check_at).min();
                check.map(|at| clock.system(at))
            });
            timer.cover(if is_unread { Some(system) } else { next }, system);
            self.shared.counters.add(&mut replies.tally);
            state.tell_held(&self.shared, held);
            std::mem::take(&mut state.replies.wakers)
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
        let _ = link.begin(&Request { verb, key: &key, value: &[] }, hash, 0, Target::Unanswered, turn);
        link.turn(turn);
    }
}

/// Which of a client's connections a key's requests take. Goes by the upper half: the lower one picks shards and stripes.
#[inline]
fn index(hash: u64, links: usize) -> usize {
    if links == 1 { 0 } else { (hash >> 32) as usize % links }
}

/// Which of a client's connections a request takes, and about how many bytes it moves if that is one for large values.
#[inline]
fn route(shared: &ServerShared, request: &Request<'_>, hash: u64, common: usize) -> (usize, u32) {
    // Most processes meet no large values.
    if shared.config.large_apart
        && (request.value.len() >= LARGE || shared.config.memory.large.knows_any())
        && let Some(size) = large_size(shared, request, hash)
    {
        return (common, u32::try_from(size).unwrap_or(u32::MAX));
    }
    (index(hash, common), 0)
}

/// How long the value is that a request sends or asks for, if it goes by the connection for large ones. What this process writes
/// it knows when it is read.
#[cold]
fn large_size(shared: &ServerShared, request: &Request<'_>, hash: u64) -> Option<usize> {
    let written = request.value.len();
    match request.verb {
        Verb::Read(_) | Verb::Peek { .. } => shared.config.memory.large.size(hash),
        Verb::PutNewer(_) | Verb::Write(_) if written >= LARGE => {
            shared.config.memory.large.note(hash, written);
            // Servers without versions keep what arrives last, so there writes have to stay in their order.
            matches!(request.verb, Verb::PutNewer(_)).then_some(written)
        }
        Verb::PutNewer(_) | Verb::Write(_) => {
            shared.config.memory.large.forget(hash);
            None
        }
        _ => None,
    }
}

/// Whether there is room for a large value.
#[cold]
fn check_memory(shared: &ServerShared) -> Result<(), StoreError> {
    if !shared.config.memory.is_full() {
        return Ok(());
    }
    shared.counters.failure(ErrorKind::OutOfMemory);
    Err(StoreError::new(ErrorKind::OutOfMemory, NO_MEMORY).not_sent())
}

impl LinksState {
    #[inline]
    fn begin(
        &mut self,
        shared: &ServerShared,
        request: &Request<'_>,
        hash: u64,
        target: Target,
    ) -> Result<(), StoreError> {
        let is_large = request.value.len() >= LARGE;
        let Self { queue, clock, links, common, replies, .. } = self;
        let (index, cost) = route(shared, request, hash, *common);
        if is_large || cost > 0 {
            check_memory(shared)?;
        }
        let now = clock.begin(Instant::now());
        links[index].begin(request, hash, cost, target, &mut Turn { queue, replies, now, only_receives: false })?;
        if is_large {
            // Before the next one begins.
            let held = self.replies.held() + self.links.iter().map(Link::held).sum::<usize>();
            self.tell_held(shared, held);
        }
        Ok(())
    }

    /// Tells that so much is held now.
    #[inline]
    fn tell_held(&mut self, shared: &ServerShared, now: usize) {
        // A little more or less is not worth what all threads share; nothing is told as nothing.
        if now.abs_diff(self.held) >= STEP || (now == 0 && self.held != 0) {
            shared.config.memory.change(self.held, now);
            shared.counters.held.fetch_add((now as u64).wrapping_sub(self.held as u64), Ordering::Relaxed);
            self.held = now;
        }
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
