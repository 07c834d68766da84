//! Reads through the io_uring of the thread that asks.
//!
//! A read is only noted when it is asked for; a turn of the driver hands all that were noted to the kernel in one call, and
//! the same call lets the kernel post what is done. Where the kernel can (6.1), completions wait until the thread comes for
//! them instead of interrupting it. An event descriptor tells of them: such a ring does not wake who waits for the ring's
//! own descriptor. It is told to keep silent while a turn takes completions anyway.
//!
//! One of the few places with `unsafe`: the kernel writes into buffers behind the compiler's back. They lie in `reads` from
//! the moment a read is queued until its completion was taken, whatever becomes of who waits for it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use io_uring::squeue::PushError;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use moneta_store::Driver;
use rustix::event::{EventfdFlags, eventfd};
use slab::Slab;

use super::aligned::Aligned;
use super::counters::Tally;
use super::media::Media;
use super::reader::Inner;

/// Reads handed to the kernel in one call.
const SUBMISSIONS: u32 = 256;
/// Reads in the kernel at once; the kernel has room for so many completions, so none ever overflows.
const IN_KERNEL: u32 = 1024;

thread_local! {
    /// Rings of this thread, one for each reader that has a driver here: nearly always one.
    static RINGS: RefCell<Vec<Rc<Ring>>> = const { RefCell::new(Vec::new()) };
}

/// Whether this kernel gives us a ring that can read.
pub(super) fn probe() -> io::Result<()> {
    let ring = IoUring::new(4)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    match probe.is_supported(opcode::Read::CODE) {
        true => Ok(()),
        false => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// The ring of one thread for one reader.
pub(super) struct Ring {
    reader: Arc<Inner>,
    state: RefCell<State>,
}

struct State {
    uring: IoUring,
    /// Becomes readable anew with every completion outside a turn. Never read: whoever watches it watches for changes.
    event: OwnedFd,
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

/// A read that somebody asked for.
struct Entry {
    buffer: Aligned,
    device: usize,
    offset: u64,
    /// Bytes read so far.
    done: usize,
    asked: Instant,
    progress: Progress,
}

enum Progress {
    UnderWay(Option<Waker>),
    Ended(io::Result<()>),
    /// Nobody waits any more; the entry goes when the kernel is through with the buffer.
    Abandoned,
}

impl Ring {
    /// Makes a ring for the calling thread, unless it has one.
    pub(super) fn install(reader: &Arc<Inner>, kinds: &[Kind]) -> io::Result<Option<Box<dyn Driver>>> {
        if find(reader).is_some() {
            return Ok(None);
        }
        let state = State::new(&reader.media, build(kinds)?)?;
        let descriptor = state.event.as_raw_fd();
        let ring = Rc::new(Self { reader: Arc::clone(reader), state: RefCell::new(state) });
        RINGS.with(|rings| rings.borrow_mut().push(Rc::clone(&ring)));
        Ok(Some(Box::new(RingDriver { ring, descriptor })))
    }

    /// Asks for a read, if the calling thread has a ring and the device can be read through one.
    #[inline]
    pub(super) fn read(reader: &Arc<Inner>, device: usize, offset: u64, bytes: usize) -> Option<RingRead> {
        reader.media[device].descriptor()?;
        let ring = find(reader)?;
        let entry = Entry {
            buffer: Aligned::recycled(bytes),
            device,
            offset,
            done: 0,
            asked: Instant::now(),
            progress: Progress::UnderWay(None),
        };
        let key = {
            let mut state = ring.state.borrow_mut();
            let key = state.reads.insert(entry);
            state.waiting.push_back(key);
            key
        };
        Some(RingRead { ring, key })
    }

    fn turn(&self) {
        let mut wakers = {
            let mut state = self.state.borrow_mut();
            state.turn(&self.reader.media);
            self.reader.counters.add(&mut state.tally);
            self.tell(&mut state);
            std::mem::take(&mut state.wakers)
        };
        wakers.drain(..).for_each(Waker::wake);
        // Only a turn adds to the list, and wakers take none: it is still empty.
        self.state.borrow_mut().wakers = wakers;
    }

    /// Ends everything that was asked for: no buffer may be freed while the kernel has it.
    fn finish(&self) {
        while self.state.borrow_mut().wait() {
            self.turn();
        }
        self.turn();
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

#[inline]
fn find(reader: &Arc<Inner>) -> Option<Rc<Ring>> {
    RINGS
        .try_with(|rings| rings.borrow().iter().find(|ring| Arc::ptr_eq(&ring.reader, reader)).map(Rc::clone))
        .ok()
        .flatten()
}

impl State {
    fn new(media: &[Arc<dyn Media>], uring: IoUring) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        uring.submitter().register_eventfd(event.as_raw_fd())?;
        let descriptors: Vec<RawFd> = media.iter().map(|media| media.descriptor().unwrap_or(-1)).collect();
        let registered = uring.submitter().register_files(&descriptors).is_ok();
        // Only saves the kernel a look-up; without it the calls name the descriptor.
        let _ = uring.submitter().register_ring_fd();
        Ok(Self {
            uring,
            event,
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

    /// Hands over what waits and takes what is done.
    fn turn(&mut self, media: &[Arc<dyn Media>]) {
        self.stuck = false;
        if self.in_kernel == 0 && self.waiting.is_empty() {
            return;
        }
        self.uring.completion().disable_eventfd();
        let through = self.exchange(media);
        self.uring.completion().enable_eventfd();
        // What came while the kernel kept silent is seen here, what comes from here on is told.
        fence(Ordering::SeqCst);
        let (_, called) = self.queued();
        if through && (called || !self.uring.completion().is_empty()) {
            // Once and no more: the flag that calls us may stay up with nothing behind it, when the kernel raises it for work
            // that we have taken already.
            self.exchange(media);
        }
    }

    /// False when the kernel refused to take more.
    fn exchange(&mut self, media: &[Arc<dyn Media>]) -> bool {
        loop {
            self.queue(media);
            let (unsent, called) = self.queued();
            // A call that fails leaves the queue as it is; what the kernel has already will bring us back here.
            let failed = (unsent > 0 || called) && self.uring.submit().is_err();
            self.reap();
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
            if matches!(entry.progress, Progress::Abandoned) {
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
    fn reap(&mut self) {
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
            self.tally.note(outcome.is_ok().then_some(entry.buffer.len()), now.duration_since(entry.asked));
            match std::mem::replace(&mut entry.progress, Progress::Ended(outcome)) {
                Progress::UnderWay(waker) => self.wakers.extend(waker),
                _ => drop(self.reads.remove(key)),
            }
        }
    }

    /// Waits for a completion, if one is to come.
    fn wait(&mut self) -> bool {
        if self.in_kernel == 0 {
            return !self.waiting.is_empty();
        }
        match self.uring.submit_and_wait(1) {
            Ok(_) => true,
            Err(error) if is_passing(&error) => true,
            Err(error) => {
                // The kernel may still write into these buffers: better lost than freed.
                tracing::error!(%error, reads = self.in_kernel, "cannot wait for reads under way");
                std::mem::forget(std::mem::take(&mut self.reads));
                self.waiting.clear();
                self.in_kernel = 0;
                false
            }
        }
    }
}

impl Entry {
    fn request(&mut self, registered: bool, media: &[Arc<dyn Media>]) -> squeue::Entry {
        let rest = &mut self.buffer[self.done..];
        let (pointer, bytes) = (rest.as_mut_ptr(), u32::try_from(rest.len()).expect("a read is smaller than 4 GiB"));
        let read = match registered {
            true => opcode::Read::new(types::Fixed(self.device as u32), pointer, bytes),
            false => {
                let descriptor = media[self.device].descriptor().expect("was there when the read was asked for");
                opcode::Read::new(types::Fd(descriptor), pointer, bytes)
            }
        };
        read.offset(self.offset + self.done as u64).build()
    }

    /// What a completion means; `None`: the rest is still to be read.
    fn advance(&mut self, result: i32) -> Option<io::Result<()>> {
        match result {
            0 => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            1.. => {
                self.done += result as usize;
                (self.done >= self.buffer.len()).then_some(Ok(()))
            }
            _ => {
                let error = io::Error::from_raw_os_error(-result);
                (!is_passing(&error)).then_some(Err(error))
            }
        }
    }
}

/// Whether a call may well succeed if it is made again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy)
}

/// How a ring lets completions through to its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// When the thread comes for them (6.1).
    Deferred,
    /// At the thread's next call of any kind (5.19).
    Cooperative,
    /// At once, interrupting the thread.
    Plain,
}

impl Kind {
    /// All kinds, the best first.
    pub(super) const ALL: [Self; 3] = [Self::Deferred, Self::Cooperative, Self::Plain];

    fn build(self) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(IN_KERNEL);
        match self {
            Self::Deferred => builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
            Self::Cooperative => builder.setup_coop_taskrun().setup_taskrun_flag(),
            Self::Plain => &mut builder,
        }
        .build(SUBMISSIONS)
    }
}

/// The first of `kinds` that this kernel gives.
fn build(kinds: &[Kind]) -> io::Result<IoUring> {
    let mut refused = io::Error::from(io::ErrorKind::Unsupported);
    for kind in kinds {
        match kind.build() {
            Ok(ring) => return Ok(ring),
            Err(error) => refused = error,
        }
    }
    Err(refused)
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
            progress => *progress = Progress::Abandoned,
        }
    }
}

/// Turns the ring of one thread; dropping it waits for what is under way and sends later reads to the pool.
struct RingDriver {
    ring: Rc<Ring>,
    descriptor: RawFd,
}

impl Driver for RingDriver {
    fn descriptor(&self) -> RawFd {
        self.descriptor
    }

    fn turn(&mut self) {
        self.ring.turn();
    }
}

impl Drop for RingDriver {
    fn drop(&mut self) {
        let _ = RINGS.try_with(|rings| rings.borrow_mut().retain(|ring| !Rc::ptr_eq(ring, &self.ring)));
        self.ring.finish();
    }
}
