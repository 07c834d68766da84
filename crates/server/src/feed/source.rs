//! `changes`, the thread's side: reads the feed and queues what a connection is to be sent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_feed::{Begin, Change, Compressor, LogSource, Mark, Pace, Request, horizon, text};
use moneta_store::feed::{Feed, FeedPlace};
use moneta_store::{Clock, Store, StoreError};

use super::readers::{Readers, StreamPermit};
use super::shared::{CHUNK, Gone, StreamShared};

/// Changes in a chunk.
const CHANGES: usize = 2048;
/// Bytes that the line of a change takes beside key and value, about.
const LINE: usize = 64;
/// Bytes of the last item of a batch that are over a chunk, and of the mark, if they are few.
const SPARE: usize = 4 << 10;
/// How often a reader that follows looks for changes.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How often a reader that waits for its rate looks whether it has changed.
const LOOK_AT_RATE: Duration = Duration::from_millis(100);
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

/// How many changes wait, which is counted now and then: a count looks at all regions of a log.
#[derive(Default)]
struct Behind(Option<(u64, Instant)>);

impl Behind {
    /// After a part of so many changes that ends at a place.
    fn of(&mut self, feed: &dyn Feed, part: &Part) -> u64 {
        let counted = match self.0.take() {
            _ if part.is_end => return 0,
            Some((count, counted)) if counted.elapsed() < HEARTBEAT => (count.saturating_sub(part.changes), counted),
            _ => (feed.behind(part.place), Instant::now()),
        };
        self.0.insert(counted).0
    }
}

/// The thread.
pub(super) struct Source {
    shared: Arc<StreamShared>,
    request: Request,
    store: Arc<dyn Store>,
    readers: Arc<Readers>,
    clock: Arc<Clock>,
    _permit: StreamPermit,
}

/// What goes into a chunk.
struct Part {
    chunk: Vec<u8>,
    /// Changes that it was made of, the unwanted among them.
    changes: u64,
    /// Where to read on after it.
    place: FeedPlace,
    watermark: u64,
    is_end: bool,
}

impl Source {
    pub(super) fn new(
        shared: &Arc<StreamShared>,
        request: Request,
        store: &Arc<dyn Store>,
        readers: &Arc<Readers>,
        clock: &Arc<Clock>,
        permit: StreamPermit,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            request,
            store: Arc::clone(store),
            readers: Arc::clone(readers),
            clock: Arc::clone(clock),
            _permit: permit,
        }
    }

    pub(super) fn run(self) {
        let outcome = self.read_all();
        self.shared.works_on(0);
        if let Some(name) = &self.request.name {
            self.readers.leave(name);
        }
        if outcome.is_ok() {
            self.shared.end();
        }
    }

    fn feed(&self) -> &dyn Feed {
        self.store.parts().feed.expect("it had one")
    }

    fn read_all(&self) -> Result<(), Gone> {
        self.clock.refresh();
        let feed = self.feed();
        let place = match self.request.begin {
            Begin::Now => feed.end(),
            Begin::Since(millis) => feed.since(millis),
            Begin::Cursor(place) => place,
        };
        let mut log = LogSource::new(&self.store, place, self.request.wanted.clone()).expect("it had a feed");
        let mut pace = Pace::of(self.shared.rate());
        let mut told = None::<Instant>;
        let (mut horizon, mut behind) = (Horizon::default(), Behind::default());
        let mut compressor = match self.request.compress.map(Compressor::begin).transpose() {
            Ok(compressor) => compressor,
            Err(error) => return self.push(format!("SERVER_ERROR {error}\r\n").into_bytes()),
        };
        if compressor.is_some() {
            self.push([text::COMPRESSED, b"\r\n"].concat())?;
        }
        loop {
            self.clock.refresh();
            let part = match self.part(&mut log) {
                Ok(part) => part,
                Err(error) => {
                    let refused = format!("SERVER_ERROR {error}\r\n").into_bytes();
                    return self.push(compressed(&mut compressor, refused, true)?);
                }
            };
            let behind = behind.of(feed, &part);
            let Part { mut chunk, place, watermark, is_end, .. } = part;
            self.shared.note_end(is_end && chunk.is_empty());
            let is_told = told.is_some_and(|told| told.elapsed() < HEARTBEAT);
            if !chunk.is_empty() || !is_told || is_end && !self.request.follow {
                told = Some(Instant::now());
                let mark = Mark {
                    cursor: place.to_string(),
                    watermark,
                    horizon: horizon.of(&self.store),
                    behind: Some(behind),
                    more: !is_end,
                };
                text::write_mark(&mark, &mut chunk);
            }
            let is_last = is_end && !self.request.follow;
            if is_last {
                chunk.extend_from_slice(text::END);
            }
            if !chunk.is_empty() {
                chunk = compressed(&mut compressor, chunk, is_last)?;
            }
            let sent = chunk.len() as u64;
            if let Some(name) = &self.request.name {
                self.readers.note(name, place, watermark, sent, true, self.clock.millis());
            }
            self.shared.works_on(log.held() + chunk.capacity());
            if !chunk.is_empty() {
                self.push(chunk)?;
            }
            self.shared.works_on(log.held());
            match is_end {
                true if !self.request.follow => return Ok(()),
                true => self.wait(place, told)?,
                false => {}
            }
            pace.sent(sent, Instant::now());
            self.keep_pace(&mut pace)?;
        }
    }

    /// The lines of what comes next, up to a chunk.
    fn part(&self, log: &mut LogSource) -> Result<Part, StoreError> {
        let (mut chunk, mut most, mut changes) = (Vec::new(), CHUNK, 0);
        if log.is_empty() {
            changes = log.read(CHANGES, CHUNK)?;
            if changes > 0 {
                // All of a batch that has its values: a rest would be a chunk of its own.
                most = CHUNK + changes * LINE + SPARE;
                chunk = self.shared.spare();
                chunk.reserve(most);
            }
        }
        let mut write = |change: &Change| {
            self.readers.count(change);
            text::write(change, &mut chunk);
            chunk.len()
        };
        while log.visit_next(&mut write)?.is_some_and(|length| length < most) {}
        let (place, watermark, is_end) = (log.place(), log.watermark(), log.is_end());
        Ok(Part { chunk, changes: changes as u64, place, watermark, is_end })
    }

    /// Waits as the rate says, which may change meanwhile.
    fn keep_pace(&self, pace: &mut Pace) -> Result<(), Gone> {
        loop {
            let now = Instant::now();
            pace.set(self.shared.rate(), now);
            match pace.left(now) {
                Duration::ZERO => return Ok(()),
                left => self.shared.pause(left.min(LOOK_AT_RATE))?,
            }
        }
    }

    fn push(&self, chunk: Vec<u8>) -> Result<(), Gone> {
        self.shared.push(chunk)
    }

    /// Waits for a change, or until the reader is to be told that there is none.
    fn wait(&self, place: FeedPlace, told: Option<Instant>) -> Result<(), Gone> {
        let feed = self.feed();
        loop {
            self.shared.pause(LOOK_EVERY)?;
            if feed.has_more(place) || told.is_none_or(|told| told.elapsed() >= HEARTBEAT) {
                return Ok(());
            }
        }
    }
}
