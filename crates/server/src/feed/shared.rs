//! What the thread that reads a feed and the worker that sends it share: a queue of a few chunks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::readers::Pushed;

/// Bytes of keys and values in a chunk, about; one item may be larger. Each chunk is a send, and wakes the client.
pub(super) const CHUNK: usize = 256 << 10;
/// Chunks that wait to be sent.
const CHUNKS: usize = 2;
/// Most bytes of a buffer that is kept for another chunk.
const SPARE_MAX: usize = 2 * CHUNK;
/// What a reader is told whose place another one takes.
const PUSHED_OUT: &[u8] = b"SERVER_ERROR this reader of the feed made room for another one\r\n";

/// What the thread and the worker share.
#[derive(Default)]
pub(super) struct StreamShared {
    state: Mutex<StreamState>,
    /// The worker took a chunk, or the connection is gone.
    room: Condvar,
    /// Bytes of the chunks that wait, and of the spare buffer.
    queued: AtomicUsize,
    /// Bytes that the thread holds beside them.
    working: AtomicUsize,
    /// Bytes a second, at most; 0: no bound.
    rate: AtomicU64,
}

#[derive(Default)]
struct StreamState {
    chunks: VecDeque<Vec<u8>>,
    /// A buffer for a chunk.
    spare: Option<Vec<u8>>,
    ended: bool,
    gone: bool,
    waker: Option<Waker>,
    /// Since when the first chunk waits to be taken.
    untaken: Option<Instant>,
    /// Since when there is no more to read.
    at_end: Option<Instant>,
    /// The stream is one frame of a compressor: no line can follow what is cut off.
    is_compressed: bool,
}

impl StreamState {
    fn bytes(&self) -> usize {
        self.chunks.iter().chain(&self.spare).map(Vec::capacity).sum()
    }

    fn wake(&self) {
        self.waker.iter().for_each(Waker::wake_by_ref);
    }
}

/// How sending goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Everything was sent.
    All,
    /// The output is full.
    Some,
    /// There is nothing to send now; the waker will be called.
    Waiting,
}

/// The connection is gone.
pub(super) struct Gone;

impl StreamShared {
    /// A buffer for a chunk.
    pub(super) fn spare(&self) -> Vec<u8> {
        self.state.lock().spare.take().unwrap_or_default()
    }

    /// The thread holds so many bytes beside what it has queued.
    pub(super) fn works_on(&self, bytes: usize) {
        self.working.store(bytes, Ordering::Relaxed);
    }

    /// Bytes a second, at most; 0: no bound.
    pub(super) fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub(super) fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// Whether everything was read for now.
    pub(super) fn note_end(&self, is_end: bool) {
        let mut state = self.state.lock();
        match is_end {
            true => _ = state.at_end.get_or_insert_with(Instant::now),
            false => state.at_end = None,
        }
    }

    /// Queues a chunk, once there is room.
    pub(super) fn push(&self, chunk: Vec<u8>) -> Result<(), Gone> {
        let mut state = self.state.lock();
        while state.chunks.len() >= CHUNKS && !state.gone {
            self.room.wait(&mut state);
        }
        if state.gone {
            return Err(Gone);
        }
        state.chunks.push_back(chunk);
        state.untaken.get_or_insert_with(Instant::now);
        self.queued.store(state.bytes(), Ordering::Relaxed);
        // Also one that cannot send: its account grows.
        state.wake();
        Ok(())
    }

    pub(super) fn pause(&self, time: Duration) -> Result<(), Gone> {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.gone && !self.room.wait_until(&mut state, until).timed_out() {}
        if state.gone { Err(Gone) } else { Ok(()) }
    }

    /// Appends what there is until `output` has grown past `high_water`, which one chunk may exceed.
    pub(super) fn write(&self, cx: &Context<'_>, output: &mut Vec<u8>, high_water: usize) -> Progress {
        let mut state = self.state.lock();
        if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        let mut progress = Progress::Some;
        while output.len() < high_water {
            match state.chunks.pop_front() {
                // Sent as it is, without a copy.
                Some(chunk) if output.is_empty() => {
                    let before = std::mem::replace(output, chunk);
                    state.spare = Some(before).filter(|buffer| buffer.capacity() <= SPARE_MAX);
                }
                Some(chunk) => output.extend_from_slice(&chunk),
                None => {
                    progress = if state.ended { Progress::All } else { Progress::Waiting };
                    break;
                }
            }
            state.untaken = (!state.chunks.is_empty()).then(Instant::now);
            self.room.notify_one();
        }
        self.queued.store(state.bytes(), Ordering::Relaxed);
        progress
    }

    /// Bytes that are held, what was handed out aside.
    pub(super) fn held(&self) -> usize {
        self.queued.load(Ordering::Relaxed) + self.working.load(Ordering::Relaxed)
    }

    /// The connection is gone.
    pub(super) fn leave(&self) {
        self.state.lock().gone = true;
        self.room.notify_one();
    }

    /// What is sent is a frame of a compressor.
    pub(super) fn compress(&self) {
        self.state.lock().is_compressed = true;
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.wake();
    }
}

impl Pushed for StreamShared {
    fn idle(&self) -> Duration {
        self.state.lock().untaken.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn at_end(&self) -> Option<Duration> {
        self.state.lock().at_end.map(|since| since.elapsed())
    }

    fn push_out(&self) {
        let mut state = self.state.lock();
        (state.gone, state.ended, state.spare) = (true, true, None);
        state.chunks.clear();
        if !state.is_compressed {
            state.chunks.push_back(PUSHED_OUT.to_vec());
        }
        self.queued.store(state.bytes(), Ordering::Relaxed);
        state.wake();
        self.room.notify_one();
    }
}
