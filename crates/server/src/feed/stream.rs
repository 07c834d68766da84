//! `changes`: a thread reads the feed and writes what a connection is to be sent; the worker sends it as the socket takes it.
//!
//! Reading may wait for a device, which a worker must not. Between both is a queue of a few chunks: a slow client holds its own
//! thread back and nothing else.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use moneta_store::feed::{Batch, Feed, Place};
use moneta_store::{Store, StoreError};
use parking_lot::{Condvar, Mutex};

use super::asked::{Asked, Begin};
use super::compress::Compressor;
use super::horizon;
use super::lines::resolve;
use super::pace::Pace;
use super::readers::StreamPermit;
use crate::node::Node;

/// Bytes of keys and values in a chunk, about; one item may be larger. Each chunk is a send, and wakes the client.
const CHUNK: usize = 256 << 10;
/// Changes in a chunk.
const CHANGES: usize = 2048;
/// Chunks that wait to be sent.
const CHUNKS: usize = 2;
/// How often a reader that follows looks for changes.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How often a reader that follows is told how far it has come, while nothing changes.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// What the thread and the worker share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The worker took a chunk, or the connection is gone.
    room: Condvar,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Vec<u8>>,
    /// A buffer for a chunk.
    spare: Option<Vec<u8>>,
    ended: bool,
    gone: bool,
    waker: Option<Waker>,
}

/// The feed that a connection is sent.
pub(crate) struct Changes(Arc<Shared>);

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

impl Changes {
    /// Begins to read for a connection. `Err`: the line that refuses.
    pub(crate) fn begin(asked: Asked, store: &Arc<dyn Store>, node: &Arc<Node>) -> Result<Self, &'static str> {
        if store.parts().feed.is_none() {
            return Err("SERVER_ERROR this node has no feed: start it with --cluster");
        }
        let Some(permit) = node.readers.begin_stream() else {
            return Err("SERVER_ERROR too many readers of the feed");
        };
        let shared = Arc::<Shared>::default();
        let (store, node) = (Arc::clone(store), Arc::clone(node));
        let source = Source { shared: Arc::clone(&shared), asked, store, node, _permit: permit };
        match std::thread::Builder::new().name("feed".into()).spawn(move || source.run()) {
            Ok(_) => Ok(Self(shared)),
            Err(error) => {
                tracing::warn!(%error, "no thread for a reader of the feed");
                Err("SERVER_ERROR out of threads")
            }
        }
    }

    /// Appends what there is until `output` has grown past `high_water`, which one chunk may exceed.
    pub(crate) fn write(&mut self, cx: &Context<'_>, output: &mut Vec<u8>, high_water: usize) -> Progress {
        let mut state = self.0.state.lock();
        while output.len() < high_water {
            match state.chunks.pop_front() {
                // Sent as it is, without a copy.
                Some(chunk) if output.is_empty() => state.spare = Some(std::mem::replace(output, chunk)),
                Some(chunk) => output.extend_from_slice(&chunk),
                None if state.ended => return Progress::All,
                None => {
                    state.waker = Some(cx.waker().clone());
                    return Progress::Waiting;
                }
            }
            self.0.room.notify_one();
        }
        Progress::Some
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.0.state.lock().gone = true;
        self.0.room.notify_one();
    }
}

/// A chunk as it is sent. `is_last`: no other follows.
fn compressed(compressor: &mut Option<Compressor>, chunk: Vec<u8>, is_last: bool) -> Result<Vec<u8>, Gone> {
    let Some(compressor) = compressor else { return Ok(chunk) };
    // Without memory for it the stream cannot go on: the connection's end cuts it short, which its reader sees.
    compressor.add(&chunk, is_last).map_err(|error| {
        tracing::warn!(%error, "the feed cannot be compressed");
        Gone
    })
}

/// The thread's side.
struct Source {
    shared: Arc<Shared>,
    asked: Asked,
    store: Arc<dyn Store>,
    node: Arc<Node>,
    _permit: StreamPermit,
}

/// The connection is gone.
struct Gone;

/// The store's horizon, which is looked up now and then: it moves by minutes, and a look collects all that a store reports.
#[derive(Default)]
struct Horizon(Option<(u64, Instant)>);

impl Horizon {
    fn of(&mut self, store: &Arc<dyn Store>) -> u64 {
        match self.0 {
            Some((millis, looked)) if looked.elapsed() < HEARTBEAT => millis,
            _ => {
                let millis = horizon(store);
                self.0 = Some((millis, Instant::now()));
                millis
            }
        }
    }
}

impl Source {
    fn run(self) {
        let outcome = self.read_all();
        if let Some(name) = &self.asked.name {
            self.node.readers.leave(name);
        }
        if outcome.is_err() {
            return;
        }
        let mut state = self.shared.state.lock();
        state.ended = true;
        state.waker.take().into_iter().for_each(Waker::wake);
    }

    fn feed(&self) -> &dyn Feed {
        self.store.parts().feed.expect("it had one")
    }

    fn read_all(&self) -> Result<(), Gone> {
        self.node.clock.refresh();
        let feed = self.feed();
        let mut place = match self.asked.begin {
            Begin::Now => feed.end(),
            Begin::Since(millis) => feed.since(millis),
            Begin::Cursor(place) => place,
        };
        let mut reader = feed.reader(place, self.asked.wanted.clone());
        let mut pace = Pace::of(self.asked.rate);
        let mut told = None::<Instant>;
        let mut horizon = Horizon::default();
        let mut compressor = match self.asked.compress.map(Compressor::begin).transpose() {
            Ok(compressor) => compressor,
            Err(error) => return self.push(format!("SERVER_ERROR {error}\r\n").into_bytes()),
        };
        if let Some(compressor) = &compressor {
            self.push(compressor.announced().to_vec())?;
        }
        loop {
            self.node.clock.refresh();
            let read =
                reader.read(CHANGES, CHUNK).and_then(|batch| Ok((batch.next, batch.is_end, self.encode(batch)?)));
            let (next, is_end, (mut chunk, watermark)) = match read {
                Ok(read) => read,
                Err(error) => {
                    let refused = format!("SERVER_ERROR {error}\r\n").into_bytes();
                    return self.push(compressed(&mut compressor, refused, true)?);
                }
            };
            place = next;
            let is_told = told.is_some_and(|told| told.elapsed() < HEARTBEAT);
            if !chunk.is_empty() || !is_told || is_end && !self.asked.follow {
                told = Some(Instant::now());
                let _ = write!(chunk, "AT {place} {watermark} {}\r\n", horizon.of(&self.store));
            }
            let is_last = is_end && !self.asked.follow;
            if is_last {
                chunk.extend_from_slice(b"END\r\n");
            }
            if !chunk.is_empty() {
                chunk = compressed(&mut compressor, chunk, is_last)?;
            }
            let sent = chunk.len() as u64;
            if let Some(name) = &self.asked.name {
                self.node.readers.note(name, place, watermark, sent, true, self.node.clock.millis());
            }
            if !chunk.is_empty() {
                self.push(chunk)?;
            }
            match is_end {
                true if !self.asked.follow => return Ok(()),
                true => self.wait(place, told)?,
                false => {}
            }
            let wait = pace.sent(sent, Instant::now());
            if !wait.is_zero() {
                self.pause(wait)?;
            }
        }
    }

    /// The lines of a batch, and its watermark.
    fn encode(&self, batch: Batch) -> Result<(Vec<u8>, u64), StoreError> {
        let mut chunk = Vec::new();
        if !batch.changes.is_empty() {
            chunk = self.shared.state.lock().spare.take().unwrap_or_default();
            // Lines are shorter than what a batch may have over.
            chunk.reserve(CHUNK + CHUNK / 8);
        }
        if let Some(since) = batch.gap {
            let _ = write!(chunk, "GAP {since}\r\n");
        }
        for told in batch.changes {
            if let Some(line) = resolve(&self.store, told.change, &self.asked.wanted)? {
                line.write(&mut chunk);
            }
        }
        Ok((chunk, batch.watermark))
    }

    /// Queues a chunk, once there is room.
    fn push(&self, chunk: Vec<u8>) -> Result<(), Gone> {
        let mut state = self.shared.state.lock();
        while state.chunks.len() >= CHUNKS && !state.gone {
            self.shared.room.wait(&mut state);
        }
        if state.gone {
            return Err(Gone);
        }
        state.chunks.push_back(chunk);
        state.waker.take().into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Waits for a change, or until the reader is to be told that there is none.
    fn wait(&self, place: Place, told: Option<Instant>) -> Result<(), Gone> {
        let feed = self.feed();
        loop {
            self.pause(LOOK_EVERY)?;
            if feed.has_more(place) || told.is_none_or(|told| told.elapsed() >= HEARTBEAT) {
                return Ok(());
            }
        }
    }

    fn pause(&self, time: Duration) -> Result<(), Gone> {
        let until = Instant::now() + time;
        let mut state = self.shared.state.lock();
        while !state.gone && !self.shared.room.wait_until(&mut state, until).timed_out() {}
        if state.gone { Err(Gone) } else { Ok(()) }
    }
}
