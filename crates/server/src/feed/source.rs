//! `changes`, the thread's side: reads the feed and queues what a connection is to be sent.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_store::feed::{Batch, Feed, Place, Reader, Told};
use moneta_store::{Store, StoreError};

use super::asked::{Asked, Begin};
use super::compress::Compressor;
use super::horizon;
use super::lines::resolve;
use super::pace::Pace;
use super::readers::StreamPermit;
use super::shared::{CHUNK, Gone, Shared};
use crate::node::Node;

/// Changes in a chunk.
const CHANGES: usize = 2048;
/// How often a reader that follows looks for changes.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How often a reader that follows is told how far it has come, while nothing changes.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// A chunk as it is sent. `is_last`: no other follows.
fn compressed(compressor: &mut Option<Compressor>, chunk: Vec<u8>, is_last: bool) -> Result<Vec<u8>, Gone> {
    let Some(compressor) = compressor else { return Ok(chunk) };
    // Without memory for it the stream cannot go on: the connection's end cuts it short, which its reader sees.
    compressor.add(&chunk, is_last).map_err(|error| {
        tracing::warn!(%error, "the feed cannot be compressed");
        Gone
    })
}

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

/// The thread.
pub(super) struct Source {
    shared: Arc<Shared>,
    asked: Asked,
    store: Arc<dyn Store>,
    node: Arc<Node>,
    _permit: StreamPermit,
}

/// What was read and is not told yet: of a feed that has keys alone, a batch may be any number of bytes.
struct Rest {
    changes: VecDeque<Told>,
    /// Behind them.
    next: Place,
    /// Once they are told.
    watermark: u64,
    /// Before they are.
    told: u64,
    is_end: bool,
}

/// What goes into a chunk.
struct Part {
    chunk: Vec<u8>,
    /// Where to read on behind it.
    place: Place,
    watermark: u64,
    is_end: bool,
}

impl Source {
    pub(super) fn new(
        shared: &Arc<Shared>,
        asked: Asked,
        store: &Arc<dyn Store>,
        node: &Arc<Node>,
        permit: StreamPermit,
    ) -> Self {
        let (store, node) = (Arc::clone(store), Arc::clone(node));
        Self { shared: Arc::clone(shared), asked, store, node, _permit: permit }
    }

    pub(super) fn run(self) {
        let outcome = self.read_all();
        self.shared.works_on(0);
        if let Some(name) = &self.asked.name {
            self.node.readers.leave(name);
        }
        if outcome.is_ok() {
            self.shared.end();
        }
    }

    fn feed(&self) -> &dyn Feed {
        self.store.parts().feed.expect("it had one")
    }

    fn read_all(&self) -> Result<(), Gone> {
        self.node.clock.refresh();
        let feed = self.feed();
        let place = match self.asked.begin {
            Begin::Now => feed.end(),
            Begin::Since(millis) => feed.since(millis),
            Begin::Cursor(place) => place,
        };
        let mut reader = feed.reader(place, self.asked.wanted.clone());
        let mut rest = Rest { changes: VecDeque::new(), next: place, watermark: 0, told: 0, is_end: false };
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
            let Part { mut chunk, place, watermark, is_end } = match self.part(&mut *reader, &mut rest) {
                Ok(part) => part,
                Err(error) => {
                    let refused = format!("SERVER_ERROR {error}\r\n").into_bytes();
                    return self.push(compressed(&mut compressor, refused, true)?);
                }
            };
            self.shared.note_end(is_end && chunk.is_empty());
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
            self.shared.works_on(reader.held() + chunk.capacity());
            if !chunk.is_empty() {
                self.push(chunk)?;
            }
            self.shared.works_on(reader.held());
            match is_end {
                true if !self.asked.follow => return Ok(()),
                true => self.wait(place, told)?,
                false => {}
            }
            let wait = pace.sent(sent, Instant::now());
            if !wait.is_zero() {
                self.shared.pause(wait)?;
            }
        }
    }

    /// The lines of what comes next, up to a chunk.
    fn part(&self, reader: &mut dyn Reader, rest: &mut Rest) -> Result<Part, StoreError> {
        let mut chunk = Vec::new();
        let mut place = rest.next;
        if rest.changes.is_empty() {
            let Batch { gap, changes, next, watermark, is_end } = reader.read(CHANGES, CHUNK)?;
            if !changes.is_empty() {
                chunk = self.shared.spare();
                // Lines are shorter than what a batch may have over.
                chunk.reserve(CHUNK + CHUNK / 8);
            }
            if let Some(since) = gap {
                let _ = write!(chunk, "GAP {since}\r\n");
            }
            *rest = Rest { changes: changes.into(), next, watermark, told: rest.watermark, is_end };
        }
        while let Some(told) = rest.changes.pop_front() {
            place = told.next;
            if let Some(line) = resolve(&self.store, told.change, &self.asked.wanted)? {
                line.write(&mut chunk);
            }
            if chunk.len() >= CHUNK {
                break;
            }
        }
        Ok(match rest.changes.is_empty() {
            true => Part { chunk, place: rest.next, watermark: rest.watermark, is_end: rest.is_end },
            false => Part { chunk, place, watermark: rest.told, is_end: false },
        })
    }

    fn push(&self, chunk: Vec<u8>) -> Result<(), Gone> {
        self.shared.push(chunk)
    }

    /// Waits for a change, or until the reader is to be told that there is none.
    fn wait(&self, place: Place, told: Option<Instant>) -> Result<(), Gone> {
        let feed = self.feed();
        loop {
            self.shared.pause(LOOK_EVERY)?;
            if feed.has_more(place) || told.is_none_or(|told| told.elapsed() >= HEARTBEAT) {
                return Ok(());
            }
        }
    }
}
