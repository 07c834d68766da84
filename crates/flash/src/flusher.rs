//! Writing regions to devices: one thread, large aligned writes, one sync for all that waits for it.
//!
//! A round writes the regions that are sealed, and what was appended to open ones if the flush interval is over, somebody
//! waits for durability, or a megabyte has piled up. The block in which an open region ends is written as far as it is
//! filled, and again with the next round; until a device has the whole block its first part never changes, so a torn write
//! of it costs no record that was written before.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use moneta_store::{ErrorKind, StoreError};
use parking_lot::{Condvar, Mutex};

use crate::buffer::Buffer;
use crate::counters::{Counters, count};
use crate::devices::Devices;
use crate::format::BLOCK;
use crate::format::region::HEADER_BYTES;
use crate::io::Aligned;
use crate::log::{GROUPS, Log, Sealed};
use crate::regions::State;

/// How long after a failed write devices are tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Bytes of one write: what requests read waits behind it.
const WRITE_BYTES: usize = 256 << 10;
/// The same while full regions wait: a device that is slow to answer takes more a second in large pieces.
const WRITE_BYTES_BEHIND: usize = 1 << 20;

/// What the flusher has to do, and what it has done.
pub(crate) struct FlushQueue {
    state: Mutex<QueueState>,
    work: Condvar,
    /// Appends up to this number are on the devices.
    durable: AtomicU64,
    nudged: AtomicBool,
    /// A write failed, and none has succeeded since.
    off: AtomicBool,
    /// Too few regions are left that devices can read and write.
    worn_out: AtomicBool,
    /// Devices hold what must not be served any more and could not be told so.
    outdated: AtomicBool,
    /// The flusher is gone: what is not durable yet never will be.
    ended: AtomicBool,
    // Held for a push or a swap.
    waiting: Mutex<Vec<(Goal, Waker)>>,
    /// Rounds of reclaiming that ended with a region free; who waits for room looks at it.
    freed: AtomicU64,
}

#[derive(Default)]
struct QueueState {
    sealed: VecDeque<Sealed>,
    /// Somebody waits for everything appended so far.
    commit: bool,
    jobs: Vec<Job>,
    stop: Stop,
}

/// Something to be done before a round's writes by the thread that may block.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stop {
    #[default]
    No,
    /// Write everything, then end.
    AfterFlush,
    /// End at once.
    Now,
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// That append and all before it are on the devices.
    Durable(u64),
    /// Room has been made since so many regions were freed.
    Room(u64),
}

impl FlushQueue {
    /// Bytes that an open region may pile up before they are written early.
    pub(crate) const EAGER_BYTES: usize = 1 << 20;

    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            work: Condvar::new(),
            durable: AtomicU64::new(0),
            nudged: AtomicBool::new(false),
            off: AtomicBool::new(false),
            worn_out: AtomicBool::new(false),
            outdated: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            waiting: Mutex::default(),
            freed: AtomicU64::new(0),
        })
    }

    pub(crate) fn push(&self, sealed: Sealed) {
        self.state.lock().sealed.push_back(sealed);
        self.work.notify_one();
    }

    /// Asks for a round soon.
    pub(crate) fn nudge(&self) {
        if !self.nudged.swap(true, Ordering::AcqRel) {
            // Under the lock, so that it cannot fall between the flusher's look and its sleep.
            let _state = self.state.lock();
            self.work.notify_one();
        }
    }

    /// Has the flusher do something.
    pub(crate) fn run(&self, job: Job) {
        self.state.lock().jobs.push(job);
        self.work.notify_one();
    }

    /// Stops the flusher, after it has written everything or at once.
    pub(crate) fn stop(&self, flush: bool) {
        self.state.lock().stop = if flush { Stop::AfterFlush } else { Stop::Now };
        self.work.notify_one();
    }

    pub(crate) fn is_off(&self) -> bool {
        self.off.load(Ordering::Acquire) || self.is_worn_out()
    }

    pub(crate) fn is_worn_out(&self) -> bool {
        self.worn_out.load(Ordering::Acquire)
    }

    /// Takes no writes any more: too few regions are left.
    pub(crate) fn wear_out(&self) {
        if !self.worn_out.swap(true, Ordering::AcqRel) {
            tracing::error!("so many regions have bad blocks that the SSD tier is off: replace the device");
        }
        self.wake(|_| true);
    }

    /// Takes note that devices hold what must not be served any more. True if that was not known before.
    pub(crate) fn note_outdated(&self) -> bool {
        !self.outdated.swap(true, Ordering::AcqRel)
    }

    /// Whether devices hold what must not be served any more; from now on they do not.
    pub(crate) fn take_outdated(&self) -> bool {
        self.outdated.swap(false, Ordering::AcqRel)
    }

    /// Takes no writes until a device has taken one.
    pub(crate) fn turn_off(&self, error: &io::Error) {
        if !self.off.swap(true, Ordering::AcqRel) {
            tracing::error!(%error, "cannot write to a device: the SSD tier is off until it answers again");
        }
        self.wake(|_| true);
    }

    pub(crate) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// Says that there is room again.
    pub(crate) fn note_room(&self) {
        self.freed.fetch_add(1, Ordering::AcqRel);
        self.wake(|goal| matches!(goal, Goal::Room(_)));
    }

    /// Waits for `goal`.
    pub(crate) fn wait(self: &Arc<Self>, goal: Goal) -> Wait {
        if matches!(goal, Goal::Durable(_)) {
            self.state.lock().commit = true;
            self.work.notify_one();
        }
        Wait { queue: Arc::clone(self), goal }
    }

    fn is_reached(&self, goal: Goal) -> Option<Result<(), StoreError>> {
        let reached = match goal {
            Goal::Durable(number) => self.durable.load(Ordering::Acquire) >= number,
            Goal::Room(before) => self.freed() > before,
        };
        if reached {
            return Some(Ok(()));
        }
        if self.ended.load(Ordering::Acquire) {
            return Some(Err(StoreError::new(ErrorKind::Unavailable, "the SSD tier is closed")));
        }
        self.is_off().then(|| Err(off()))
    }

    fn wake(&self, mut whom: impl FnMut(Goal) -> bool) {
        let woken: Vec<Waker> = {
            let mut waiting = self.waiting.lock();
            let (woken, rest) = std::mem::take(&mut *waiting).into_iter().partition(|(goal, _)| whom(*goal));
            *waiting = rest;
            let woken: Vec<(Goal, Waker)> = woken;
            woken.into_iter().map(|(_, waker)| waker).collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }
}

/// The error of requests that need a device while devices are off.
pub(crate) fn off() -> StoreError {
    StoreError::new(ErrorKind::Unavailable, "the SSD tier is off after a device error")
}

/// Waits for a [`Goal`].
pub(crate) struct Wait {
    queue: Arc<FlushQueue>,
    goal: Goal,
}

impl Future for Wait {
    type Output = Result<(), StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(ended) = self.queue.is_reached(self.goal) {
            return Poll::Ready(ended);
        }
        self.queue.waiting.lock().push((self.goal, cx.waker().clone()));
        // It may have been reached before the waker was there.
        match self.queue.is_reached(self.goal) {
            Some(ended) => Poll::Ready(ended),
            None => Poll::Pending,
        }
    }
}

/// The thread that writes.
pub(crate) struct Flusher {
    pub(crate) log: Arc<Log>,
    pub(crate) devices: Arc<Devices>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) interval: Duration,
    /// Called when devices answer again after an error.
    pub(crate) came_back: Box<dyn Fn() + Send>,
}

/// Lets nobody wait for a flusher that is gone, however it went.
struct End(Arc<FlushQueue>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
        self.0.wake(|_| true);
    }
}

/// What woke the flusher.
struct Round {
    sealed: VecDeque<Sealed>,
    jobs: Vec<Job>,
    /// Write open regions and sync.
    commit: bool,
    /// Write what open regions have piled up.
    eager: bool,
    stop: Stop,
}

impl Flusher {
    pub(crate) fn run(mut self) {
        let queue = Arc::clone(&self.log.queue);
        let _end = End(Arc::clone(&queue));
        let mut next_tick = Instant::now() + self.interval;
        loop {
            let round = self.next_round(&mut next_tick);
            if round.stop == Stop::Now {
                return;
            }
            let number = self.log.appended();
            let mut sealed = round.sealed;
            // Before the writes: what they make durable may have been stored after a flush that a job writes down.
            round.jobs.into_iter().for_each(|job| job());
            let ended = self.write(&mut sealed, round.commit, round.eager);
            match ended {
                Ok(()) => self.succeeded(number, round.commit),
                Err(error) => {
                    let mut state = queue.state.lock();
                    for left in sealed.into_iter().rev() {
                        state.sealed.push_front(left);
                    }
                    drop(state);
                    self.failed(&error);
                }
            }
            if round.stop == Stop::AfterFlush {
                return;
            }
        }
    }

    /// Sleeps until there is something to do.
    fn next_round(&self, next_tick: &mut Instant) -> Round {
        let queue = &self.log.queue;
        let mut state = queue.state.lock();
        loop {
            let is_off = queue.is_off();
            let eager = queue.nudged.swap(false, Ordering::AcqRel) && !is_off;
            let tick = Instant::now() >= *next_tick;
            let sealed = !state.sealed.is_empty() && !is_off;
            let commit = state.commit && !is_off;
            if tick || eager || sealed || commit || !state.jobs.is_empty() || state.stop != Stop::No {
                if tick {
                    *next_tick = Instant::now() + if is_off { RETRY } else { self.interval };
                }
                state.commit = false;
                return Round {
                    sealed: std::mem::take(&mut state.sealed),
                    jobs: std::mem::take(&mut state.jobs),
                    commit: commit || tick || state.stop == Stop::AfterFlush,
                    eager,
                    stop: state.stop,
                };
            }
            queue.work.wait_until(&mut state, *next_tick);
        }
    }

    fn write(&mut self, sealed: &mut VecDeque<Sealed>, commit: bool, eager: bool) -> io::Result<()> {
        while let Some(first) = sealed.front() {
            let is_behind = sealed.len() > 1;
            self.write_sealed(first, if is_behind { WRITE_BYTES_BEHIND } else { WRITE_BYTES })?;
            sealed.pop_front();
        }
        if commit || eager {
            let mut wrote = false;
            for group in 0..GROUPS {
                wrote |= self.write_open(group, commit)?;
            }
            if commit && (wrote || self.log.queue.durable.load(Ordering::Relaxed) < self.log.appended()) {
                self.devices.all().iter().try_for_each(|media| media.sync())?;
            }
        }
        Ok(())
    }

    /// Writes what is left of a full region, footer and all, in pieces of `step` bytes, and lets go of its memory.
    fn write_sealed(&self, sealed: &Sealed, step: usize) -> io::Result<()> {
        if !sealed.buffer.is_discarded() {
            self.write_copy(sealed.region, &sealed.buffer)?;
            let whole = sealed.end / BLOCK * BLOCK;
            self.write_blocks(sealed.region, &sealed.buffer, sealed.buffer.written()..whole, step)?;
            let region_bytes = self.devices.region_bytes();
            let tail_start = region_bytes - sealed.tail.len();
            let tail_block = tail_start / BLOCK * BLOCK;
            let mut tail = Aligned::zeroed(region_bytes - tail_block);
            tail[tail_start - tail_block..].copy_from_slice(&sealed.tail);
            let rest = sealed.buffer.slice(whole..sealed.end);
            if tail_block == whole {
                tail[..rest.len()].copy_from_slice(rest);
            } else if !rest.is_empty() {
                self.write_partial(sealed.region, &sealed.buffer, whole..sealed.end)?;
            }
            self.write_at(sealed.region, tail_block, &tail)?;
        }
        let region = self.log.regions.get(sealed.region);
        if region.sequence() == sealed.sequence && region.change_state(State::Sealed, State::Closed) {
            *region.resident.write() = None;
            self.log.note_closed();
        }
        Ok(())
    }

    /// Writes what was appended to an open region since the last time; all of it, or only whole blocks. Tells whether there
    /// was anything.
    fn write_open(&self, group: usize, all: bool) -> io::Result<bool> {
        let found =
            self.log.with_open(group, |open| open.map(|open| (open.region, Arc::clone(&open.buffer), open.end)));
        let Some((region, buffer, end)) = found.filter(|(_, buffer, end)| !buffer.is_covered(*end)) else {
            return Ok(false);
        };
        self.write_copy(region, &buffer)?;
        let whole = end / BLOCK * BLOCK;
        self.write_blocks(region, &buffer, buffer.written()..whole, WRITE_BYTES)?;
        if all && whole < end {
            self.write_partial(region, &buffer, whole..end)?;
        }
        buffer.note_written(whole, if all { end } else { whole });
        Ok(true)
    }

    fn write_blocks(&self, region: usize, buffer: &Buffer, part: Range<usize>, step: usize) -> io::Result<()> {
        for start in part.clone().step_by(step) {
            self.write_at(region, start, buffer.slice(start..part.end.min(start + step)))?;
        }
        Ok(())
    }

    /// Writes the copy of a region's header to the region's end, if nothing of the region is on the device yet.
    fn write_copy(&self, region: usize, buffer: &Buffer) -> io::Result<()> {
        if buffer.is_covered(HEADER_BYTES) {
            return Ok(());
        }
        let last = self.devices.region_bytes() - BLOCK;
        self.write_partial(region, buffer, last..last)
    }

    /// Writes less than a block of a region that is not sealed yet, with zeros behind it.
    fn write_partial(&self, region: usize, buffer: &Buffer, part: Range<usize>) -> io::Result<()> {
        let mut block = Aligned::zeroed(BLOCK);
        let offset = part.start;
        if !part.is_empty() {
            block[..part.len()].copy_from_slice(buffer.slice(part));
        }
        if offset + BLOCK == self.devices.region_bytes() {
            block[BLOCK - HEADER_BYTES..].copy_from_slice(buffer.slice(0..HEADER_BYTES));
        }
        self.write_at(region, offset, &block)
    }

    fn write_at(&self, region: usize, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let (device, start) = self.devices.place(region);
        self.devices.media(device).write_at(bytes, start + offset as u64)?;
        count(&self.counters.device_bytes, bytes.len() as u64);
        Ok(())
    }

    fn succeeded(&self, number: u64, committed: bool) {
        let queue = &self.log.queue;
        if committed && (queue.is_off() || queue.outdated.load(Ordering::Acquire)) {
            // Before writes are taken again: what they are to replace goes here.
            (self.came_back)();
            if queue.off.swap(false, Ordering::AcqRel) {
                tracing::warn!("the devices of the SSD tier answer again");
            }
        }
        if committed {
            queue.durable.fetch_max(number, Ordering::AcqRel);
            queue.wake(|goal| matches!(goal, Goal::Durable(waited) if waited <= number));
        }
        // A buffer may have come back.
        queue.note_room();
    }

    fn failed(&self, error: &io::Error) {
        count(&self.counters.io_errors, 1);
        self.log.queue.turn_off(error);
    }
}
