//! Reads through the io_uring of the calling thread.
//!
//! A request only queues its read; a turn submits all queued reads in one system call, and the same call lets the kernel post
//! completions. Since Linux 6.1, completions wait until the thread asks for them instead of interrupting it. Such a ring does
//! not wake a poller of the ring descriptor, so an event descriptor reports completions; it is disabled during a turn, which
//! takes completions anyway.
//!
//! One of the few places with `unsafe`: the kernel writes into buffers outside the compiler's view. A buffer stays in `reads`
//! from submission until its completion is taken, even if its waiter is dropped. A late read fails for its waiter, and its buffer
//! stays. A dropped ring leaks such buffers to the kernel.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use io_uring::IoUring;
use io_uring::squeue::PushError;
use moneta_store::Reactor;
use slab::Slab;

use super::bell::Bell;
use super::counters::Tally;
use super::entry::{Entry, Progress};
use super::kinds::{IN_KERNEL, Kind, build};
use super::media::Media;
use super::patience::Patience;
use super::shared::RingShared;
use moneta_store::aligned::{Aligned, BLOCK_BYTES};

/// How often a ring that is being closed checks for completions, if no event reports them.
const LOOK: Duration = Duration::from_millis(10);

/// The ring of one thread for one reader.
pub(super) struct Ring {
    reader: Arc<RingShared>,
    /// The bell's descriptor.
    descriptor: RawFd,
    state: RefCell<RingState>,
}

struct RingState {
    uring: IoUring,
    /// Rings with each completion outside a turn, and when late reads have to fail.
    bell: Arc<Bell>,
    /// Whether the devices' descriptors are registered, which saves the kernel a look-up.
    registered: bool,
    reads: Slab<Entry>,
    /// Reads to submit, in order.
    waiting: VecDeque<usize>,
    /// Reads in the submission queue or in the kernel.
    in_kernel: u32,
    /// The kernel took nothing and has no read whose completion would wake the thread: the loop has to keep turning.
    stuck: bool,
    tally: Tally,
    /// Reads in flight as last reported to the shared counters.
    told: u64,
    /// Wakers to call once the state is no longer borrowed; kept for its allocation.
    wakers: Vec<Waker>,
}

impl Ring {
    /// Makes a ring for the calling thread.
    pub(super) fn new(reader: &Arc<RingShared>, kinds: &[Kind]) -> io::Result<Self> {
        let state = RingState::new(&reader.media, build(kinds)?)?;
        let descriptor = state.bell.descriptor();
        reader.bells.lock().push(Arc::downgrade(&state.bell));
        Ok(Self { reader: Arc::clone(reader), descriptor, state: RefCell::new(state) })
    }

    /// Queues a read, if the device can be read through a ring.
    #[inline]
    pub(super) fn read(self: Rc<Self>, device: usize, offset: u64, bytes: usize) -> Option<RingRead> {
        self.reader.media[device].descriptor()?;
        let entry = Entry {
            buffer: Aligned::recycled(bytes),
            device,
            offset,
            done: 0,
            asked: Instant::now(),
            deadline: self.reader.patience.deadline(),
            progress: Progress::UnderWay(None),
        };
        let key = {
            let mut state = self.state.borrow_mut();
            let key = state.reads.insert(entry);
            state.waiting.push_back(key);
            key
        };
        Some(RingRead { ring: self, key })
    }

    fn advance(&self) {
        let mut wakers = {
            let mut state = self.state.borrow_mut();
            if state.is_idle() && state.told == 0 && state.wakers.is_empty() {
                // Most turns find nothing to do; the counters are up to date then.
                state.stuck = false;
                return;
            }
            state.turn(&self.reader);
            self.reader.counters.add(&mut state.tally);
            self.tell(&mut state);
            std::mem::take(&mut state.wakers)
        };
        if wakers.capacity() > 0 {
            wakers.drain(..).for_each(Waker::wake);
            // Only a turn fills the list, and wakers do not turn the ring, so it is still empty.
            self.state.borrow_mut().wakers = wakers;
        }
    }

    /// Ends all reads. A buffer must not be freed while the kernel has it, so buffers of late reads are leaked.
    fn finish(&self) {
        let deadline = Instant::now() + self.reader.patience.limit();
        let bell = Arc::clone(&self.state.borrow().bell);
        loop {
            bell.calm();
            self.advance();
            if self.state.borrow().is_idle() {
                return;
            }
            if Instant::now() >= deadline {
                self.state.borrow_mut().leave(&self.reader.patience);
                return self.advance();
            }
            bell.wait(LOOK);
        }
    }
}

impl Ring {
    /// Reports the reads in flight to the shared counters.
    fn tell(&self, state: &mut RingState) {
        let now = u64::from(state.in_kernel) + state.waiting.len() as u64;
        self.reader.counters.change_in_flight(std::mem::replace(&mut state.told, now), now);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Reactor for Ring {
    fn descriptor(&self) -> RawFd {
        self.descriptor
    }

    fn turn(&self) {
        self.advance();
    }

    fn is_eager(&self) -> bool {
        true
    }

    /// Waits for reads in the kernel, up to the time limit of a read.
    fn close(&self) {
        self.finish();
    }
}

impl RingState {
    fn new(media: &[Arc<dyn Media>], uring: IoUring) -> io::Result<Self> {
        let bell = Arc::new(Bell::new()?);
        uring.submitter().register_eventfd(bell.descriptor())?;
        let descriptors: Vec<RawFd> = media.iter().map(|media| media.descriptor().unwrap_or(-1)).collect();
        let registered = uring.submitter().register_files(&descriptors).is_ok();
        // Saves the kernel a look-up; without it, calls pass the descriptor.
        let _ = uring.submitter().register_ring_fd();
        Ok(Self {
            uring,
            bell,
            registered,
            reads: Slab::new(),
            waiting: VecDeque::new(),
            in_kernel: 0,
            stuck: false,
            tally: Tally::default(),
            told: 0,
            wakers: Vec::new(),
        })
    }

    /// Whether nothing is to be submitted and nothing is in the kernel.
    fn is_idle(&self) -> bool {
        self.in_kernel == 0 && self.waiting.is_empty()
    }

    /// Submits queued reads, takes completions, and fails late reads.
    fn turn(&mut self, reader: &RingShared) {
        self.stuck = false;
        if self.is_idle() {
            return;
        }
        self.uring.completion().disable_eventfd();
        let through = self.exchange(reader);
        self.uring.completion().enable_eventfd();
        // Completions posted while events were disabled are seen below; later ones raise an event.
        fence(Ordering::SeqCst);
        let (_, called) = self.queued();
        if through && (called || !self.uring.completion().is_empty()) {
            // Only once: the kernel may raise the flag for work that was already taken, and then leaves it set.
            self.exchange(reader);
        }
        if self.bell.has_asked() {
            self.take_all(&reader.patience);
            self.give_up_late(&reader.patience);
        }
    }

    /// Takes all completions that there are. A call has the kernel post only some of them (20 since Linux 6.13).
    #[cold]
    fn take_all(&mut self, patience: &Patience) {
        // The flag may be set for work that was already taken.
        while self.queued().1 && self.uring.submit().is_ok() && self.reap(patience) > 0 {}
    }

    /// False if the kernel refused to take more.
    fn exchange(&mut self, reader: &RingShared) -> bool {
        loop {
            self.queue(&reader.media);
            let (unsent, called) = self.queued();
            // A failed call leaves the queue as it is; a completion of a read in the kernel will cause the next turn.
            let failed = (unsent > 0 || called) && self.uring.submit().is_err();
            self.reap(&reader.patience);
            let (unsent, _) = self.queued();
            if failed {
                self.be_stuck(self.in_kernel == unsent);
                return false;
            }
            let room = self.in_kernel < IN_KERNEL && !self.waiting.is_empty();
            if !room && unsent == 0 {
                return true;
            }
        }
    }

    /// How many reads are in the submission queue, and whether the kernel needs a call to post completions.
    fn queued(&mut self) -> (u32, bool) {
        let queue = self.uring.submission();
        (queue.len() as u32, queue.taskrun() || queue.cq_overflow())
    }

    fn be_stuck(&mut self, stuck: bool) {
        self.stuck = stuck;
        if stuck {
            let waiting = self.reads.iter().filter_map(|(_, entry)| match &entry.progress {
                Progress::UnderWay(waker) => waker.clone(),
                _ => None,
            });
            self.wakers.extend(waiting);
        }
    }

    /// Moves reads from `waiting` to the submission queue, as far as there is room.
    fn queue(&mut self, media: &[Arc<dyn Media>]) {
        let mut queue = self.uring.submission();
        while self.in_kernel < IN_KERNEL
            && !queue.is_full()
            && let Some(key) = self.waiting.pop_front()
        {
            let entry = &mut self.reads[key];
            if matches!(entry.progress, Progress::Abandoned { .. }) {
                self.reads.remove(key);
                continue;
            }
            let request = entry.request(self.registered, media).user_data(key as u64);
            // SAFETY: the buffer is not accessed before the completion with `key` is taken: its entry stays in `reads`
            // until then, and the ring outlives the kernel's reads (`finish`).
            let pushed: Result<(), PushError> = unsafe { queue.push(&request) };
            debug_assert!(pushed.is_ok(), "there was room");
            self.in_kernel += 1;
        }
    }

    /// Takes the completions that are posted. Returns how many there were.
    fn reap(&mut self, patience: &Patience) -> usize {
        let completions = self.uring.completion();
        let posted = completions.len();
        if posted == 0 {
            return 0;
        }
        let now = Instant::now();
        for completion in completions {
            self.in_kernel -= 1;
            let key = completion.user_data() as usize;
            let entry = &mut self.reads[key];
            let Some(outcome) = entry.advance(completion.result()) else {
                self.waiting.push_front(key);
                continue;
            };
            patience.note_answer(entry.device);
            let is_counted = matches!(entry.progress, Progress::Late | Progress::Abandoned { counted: true });
            if !is_counted {
                self.tally.note(outcome.is_ok().then_some(entry.buffer.len()), now.duration_since(entry.asked));
            }
            match std::mem::replace(&mut entry.progress, Progress::Ended(outcome)) {
                Progress::UnderWay(waker) => self.wakers.extend(waker),
                // The waiter has been woken, and will find that the read ended after all.
                Progress::Late => {}
                _ => drop(self.reads.remove(key)),
            }
        }
        posted
    }

    /// Fails late reads for their waiters.
    #[cold]
    fn give_up_late(&mut self, patience: &Patience) {
        let now = Instant::now();
        let late = self.reads.iter().filter(|(_, entry)| patience.is_late(entry.deadline)).map(|(key, _)| key);
        let late: Vec<usize> = late.collect();
        if late.is_empty() {
            return;
        }
        let queued: HashSet<usize> = self.waiting.iter().copied().collect();
        for key in late {
            let entry = &mut self.reads[key];
            let Progress::UnderWay(waker) = &mut entry.progress else { continue };
            self.wakers.extend(waker.take());
            self.tally.note(None, now.duration_since(entry.asked));
            if queued.contains(&key) {
                entry.progress = Progress::Ended(Err(patience.late()));
            } else {
                entry.progress = Progress::Late;
                patience.note_late(entry.device);
            }
        }
        let reads = &self.reads;
        self.waiting.retain(|key| !matches!(reads[*key].progress, Progress::Ended(_)));
    }

    /// Fails all remaining reads for their waiters, and leaks the buffers that the kernel still has.
    #[cold]
    fn leave(&mut self, patience: &Patience) {
        tracing::error!(reads = self.in_kernel, "a device does not end reads: the kernel keeps their memory");
        let queued: HashSet<usize> = self.waiting.drain(..).collect();
        self.in_kernel = 0;
        let Self { reads, wakers, .. } = self;
        reads.retain(|key, entry| {
            if matches!(entry.progress, Progress::Ended(_)) {
                return true;
            }
            if !queued.contains(&key) {
                // Leak the buffer: freeing it would let the kernel write into reused memory.
                std::mem::forget(std::mem::replace(&mut entry.buffer, Aligned::zeroed(BLOCK_BYTES)));
            }
            match std::mem::replace(&mut entry.progress, Progress::Ended(Err(patience.late()))) {
                Progress::Abandoned { .. } => false,
                Progress::UnderWay(waker) => {
                    wakers.extend(waker);
                    true
                }
                Progress::Late | Progress::Ended(_) => true,
            }
        });
    }
}

/// A read through a ring.
pub(super) struct RingRead {
    ring: Rc<Ring>,
    key: usize,
}

impl RingRead {
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Aligned>> {
        let mut state = self.ring.state.borrow_mut();
        let stuck = state.stuck;
        match &mut state.reads[self.key].progress {
            Progress::UnderWay(waker) => {
                waker.get_or_insert_with(|| context.waker().clone()).clone_from(context.waker());
                if stuck {
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
            progress @ Progress::Late => {
                *progress = Progress::Abandoned { counted: true };
                self.key = usize::MAX;
                Poll::Ready(Err(self.ring.reader.patience.late()))
            }
            _ => {
                let entry = state.reads.remove(self.key);
                self.key = usize::MAX;
                let Progress::Ended(outcome) = entry.progress else { unreachable!("only a dropped read is abandoned") };
                Poll::Ready(outcome.map(|()| entry.buffer))
            }
        }
    }
}

impl Drop for RingRead {
    fn drop(&mut self) {
        let mut state = self.ring.state.borrow_mut();
        let Some(entry) = state.reads.get_mut(self.key) else { return };
        match &mut entry.progress {
            Progress::Ended(_) => drop(state.reads.remove(self.key)),
            progress => *progress = Progress::Abandoned { counted: matches!(progress, Progress::Late) },
        }
    }
}
