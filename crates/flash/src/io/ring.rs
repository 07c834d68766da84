//! Reads through the io_uring of the thread that asks.
//!
//! A read is only noted when it is asked for; a turn hands all that were noted to the kernel in one call, and
//! the same call lets the kernel post what is done. Where the kernel can (6.1), completions wait until the thread comes for
//! them instead of interrupting it. An event descriptor tells of them: such a ring does not wake who waits for the ring's
//! own descriptor. It is told to keep silent while a turn takes completions anyway.
//!
//! One of the few places with `unsafe`: the kernel writes into buffers behind the compiler's back. They lie in `reads` from
//! the moment a read is queued until its completion was taken, whatever becomes of who waits for it. What the kernel does not
//! end in time fails for who waits; its buffer stays where it is. A ring that goes leaves such buffers to the kernel.

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
use super::reader::Inner;
use super::{Aligned, BLOCK_BYTES};

/// How often a ring that goes looks for completions, if nothing tells of them.
const LOOK: Duration = Duration::from_millis(10);

/// The ring of one thread for one reader.
pub(super) struct Ring {
    reader: Arc<Inner>,
    /// Of the bell.
    descriptor: RawFd,
    state: RefCell<State>,
}

struct State {
    uring: IoUring,
    /// Rings with every completion outside a turn, and when reads that last too long are to be given up.
    bell: Arc<Bell>,
    /// Whether the devices are registered, so that the kernel need not look their descriptors up.
    registered: bool,
    reads: Slab<Entry>,
    /// Reads to hand to the kernel, in order.
    waiting: VecDeque<usize>,
    /// Reads in the queues shared with the kernel.
    in_kernel: u32,
    /// The kernel took nothing and has nothing that would call us back: whoever waits has to keep the loop turning.
    stuck: bool,
    tally: Tally,
    /// Reads waiting or under way that the shared counters know of.
    told: u64,
    /// Whom to wake once the state is no longer borrowed; kept for its memory.
    wakers: Vec<Waker>,
}

impl Ring {
    /// Makes a ring for the calling thread.
    pub(super) fn new(reader: &Arc<Inner>, kinds: &[Kind]) -> io::Result<Self> {
        let state = State::new(&reader.media, build(kinds)?)?;
        let descriptor = state.bell.descriptor();
        reader.bells.lock().push(Arc::downgrade(&state.bell));
        Ok(Self { reader: Arc::clone(reader), descriptor, state: RefCell::new(state) })
    }

    /// Asks for a read, if the device can be read through a ring.
    #[inline]
    pub(super) fn read(self: Rc<Self>, device: usize, offset: u64, bytes: usize) -> Option<RingRead> {
        self.reader.media[device].descriptor()?;
        let entry = Entry {
            buffer: Aligned::recycled(bytes),
            device,
            offset,
            done: 0,
            asked: Instant::now(),
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
                // Many turns of a loop find nothing: all that ended before has been told.
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
            // Only a turn adds to the list, and wakers take none: it is still empty.
            self.state.borrow_mut().wakers = wakers;
        }
    }

    /// Ends everything that was asked for. No buffer may be freed while the kernel has it: it keeps what it does not end in time.
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
    /// Tells the counters how many reads wait and are under way.
    fn tell(&self, state: &mut State) {
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

    /// Waits for what is under way, as long as a read may take.
    fn close(&self) {
        self.finish();
    }
}

impl State {
    fn new(media: &[Arc<dyn Media>], uring: IoUring) -> io::Result<Self> {
        let bell = Arc::new(Bell::new()?);
        uring.submitter().register_eventfd(bell.descriptor())?;
        let descriptors: Vec<RawFd> = media.iter().map(|media| media.descriptor().unwrap_or(-1)).collect();
        let registered = uring.submitter().register_files(&descriptors).is_ok();
        // Only saves the kernel a look-up; without it the calls name the descriptor.
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

    /// Whether there is nothing to hand over and nothing to come.
    fn is_idle(&self) -> bool {
        self.in_kernel == 0 && self.waiting.is_empty()
    }

    /// Hands over what waits, takes what is done, and gives up what lasts too long.
    fn turn(&mut self, reader: &Inner) {
        self.stuck = false;
        if self.is_idle() {
            return;
        }
        self.uring.completion().disable_eventfd();
        let through = self.exchange(reader);
        self.uring.completion().enable_eventfd();
        // What came while the kernel kept silent is seen here, what comes from here on is told.
        fence(Ordering::SeqCst);
        let (_, called) = self.queued();
        if through && (called || !self.uring.completion().is_empty()) {
            // Once and no more: the flag that calls us may stay up with nothing behind it, when the kernel raises it for work
            // that we have taken already.
            self.exchange(reader);
        }
        if self.bell.has_asked() {
            self.give_up_late(&reader.patience);
        }
    }

    /// False when the kernel refused to take more.
    fn exchange(&mut self, reader: &Inner) -> bool {
        loop {
            self.queue(&reader.media);
            let (unsent, called) = self.queued();
            // A call that fails leaves the queue as it is; what the kernel has already will bring us back here.
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

    /// How many reads wait in the shared queue, and whether the kernel wants to be called to post completions.
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

    /// Moves reads from `waiting` into the queue shared with the kernel, as far as there is room.
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
            // SAFETY: the buffer is not touched before the completion that names `key` was taken: its entry stays in
            // `reads` until then, and the ring outlives what the kernel has (`finish`).
            let pushed: Result<(), PushError> = unsafe { queue.push(&request) };
            debug_assert!(pushed.is_ok(), "there was room");
            self.in_kernel += 1;
        }
    }

    /// Takes completions.
    fn reap(&mut self, patience: &Patience) {
        let completions = self.uring.completion();
        if completions.is_empty() {
            return;
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
                // Who waits was woken, and finds that it has ended after all.
                Progress::Late => {}
                _ => drop(self.reads.remove(key)),
            }
        }
    }

    /// Ends what has lasted too long, for who waits for it.
    #[cold]
    fn give_up_late(&mut self, patience: &Patience) {
        let now = Instant::now();
        let late = self.reads.iter().filter(|(_, entry)| patience.is_late(entry.asked, now)).map(|(key, _)| key);
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

    /// Ends all that is left, for who waits for it, and leaves to the kernel for good what it has.
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
                // Better lost than freed.
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
