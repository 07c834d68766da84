//! A topic between the regions: a log of partitions, as Kafka has them, which a relay of one region writes and relays of others read.
//!
//! ```text
//!   the region of the changes                                        the others
//!   nodes ──streams──▶ relay ─▶ TopicSink ─▶ partition by key ─▶ TopicSource ─▶ workers ─▶ cluster
//!                        │ all before a moment is in the topic                ▲
//!                        └──────────────▶ a mark in every partition ──────────┘ that moment is here
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use moneta_background::Run;
use moneta_feed::{
    Begin, Buckets, Change, FeedPlace, Gap, GapCause, Line, Mark, Next, Sink, SinkError, Source, SourceError,
};
use moneta_store::{Clock, Version};
use parking_lot::Mutex;

use crate::apply::{Fate, Refusal};
use crate::counts::{Counts, add};
use crate::message::{self, Received};

/// Pause before a topic that does not take messages is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// How often a topic is asked how many partitions it has; and how often while that is not known.
const PARTITIONS_EVERY: Duration = Duration::from_secs(10);
const PARTITIONS_AGAIN: Duration = Duration::from_secs(1);
/// How often it is said in a topic how far the relay is that writes it.
const MARK_EVERY: Duration = Duration::from_secs(1);
/// How often a message that is none is logged: whoever may write a topic may write many.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// Most bytes of a key.
const KEY_MAX: usize = 250;

/// How a secret is proved to brokers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mechanism {
    /// SCRAM with SHA-512: the secret itself is not sent.
    #[default]
    ScramSha512,
    /// SCRAM with SHA-256.
    ScramSha256,
    /// The secret is sent as it is.
    Plain,
}

/// A message to be written.
#[derive(Clone, Debug)]
pub struct Message {
    /// The key of the cache; `None`: it is about no key.
    pub key: Option<Bytes>,
    /// The message.
    pub value: Vec<u8>,
    /// When it is written, in milliseconds since the Unix epoch.
    pub at: u64,
}

/// A message that was read.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its place in the partition.
    pub offset: u64,
    /// The time that the topic has for it, in milliseconds since the Unix epoch.
    pub at: u64,
    /// The message.
    pub value: Vec<u8>,
}

/// Why a topic does not do what it is asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// The messages are larger than it takes at once.
    #[error("the messages are larger than the topic takes")]
    TooLarge,
    /// There is nothing at this offset: it was dropped, or never was.
    #[error("the topic has nothing at this offset")]
    OutOfRange,
    /// It is not there, or slow: the same may succeed later.
    #[error("{0}")]
    Away(String),
}

/// A log of partitions. Calls wait for seconds at most.
pub trait Topic: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// How many partitions it has now.
    ///
    /// # Errors
    /// [`TopicError::Away`], also if there is no such topic.
    fn partitions(&self) -> Result<u32, TopicError>;

    /// Writes messages, in this order; all replicas that are in sync have them when this returns. After an error they may be there.
    ///
    /// # Errors
    /// [`TopicError`].
    fn append(&self, partition: u32, messages: Vec<Message>) -> Result<(), TopicError>;

    /// What is at an offset and after it: some of it; and the next offset that will be written. Waits for up to a second where there
    /// is nothing yet.
    ///
    /// # Errors
    /// [`TopicError`].
    fn read(&self, partition: u32, offset: u64) -> Result<(Vec<Record>, u64), TopicError>;

    /// The first offset that is still there, and the next that will be written.
    ///
    /// # Errors
    /// [`TopicError::Away`].
    fn bounds(&self, partition: u32) -> Result<(u64, u64), TopicError>;

    /// The offset of the first message of this moment or later; `None`: there is none.
    ///
    /// # Errors
    /// [`TopicError::Away`].
    fn at(&self, partition: u32, moment: u64) -> Result<Option<u64>, TopicError>;
}

/// What is known of a topic.
#[derive(Default)]
pub(crate) struct Known {
    /// How many partitions it has; 0: not known yet.
    partitions: AtomicU32,
    /// Why it does not say how many.
    unanswered: Mutex<Option<String>>,
    /// Partitions that take no messages, and why.
    untaken: Mutex<BTreeMap<u32, String>>,
}

impl Known {
    /// How many partitions it has; 0: not known yet.
    pub(crate) fn partitions(&self) -> u32 {
        self.partitions.load(Ordering::Acquire)
    }

    /// Why it does not answer.
    pub(crate) fn failure(&self) -> Option<String> {
        let unanswered = self.unanswered.lock().clone();
        unanswered.or_else(|| self.untaken.lock().first_key_value().map(|(_, why)| why.clone()))
    }

    /// Asks how many partitions it has. Topics are given more, and never less.
    pub(crate) fn look(&self, topic: &dyn Topic) {
        let ended = topic.partitions();
        let mut unanswered = self.unanswered.lock();
        match ended {
            Ok(count) => {
                if unanswered.take().is_some() {
                    tracing::info!(topic = topic.name(), "the topic answers again");
                }
                if self.partitions.fetch_max(count, Ordering::AcqRel) < count {
                    tracing::info!(topic = topic.name(), partitions = count, "the topic has partitions");
                }
            }
            Err(error) => {
                if unanswered.replace(error.to_string()).is_none() {
                    tracing::warn!(topic = topic.name(), %error, "the topic does not answer: trying again");
                }
            }
        }
    }

    /// Takes note of how a write ended. Logs when the first partition fails, and when none does any more.
    fn noted<T>(&self, topic: &str, partition: u32, ended: Result<T, TopicError>) -> Result<T, TopicError> {
        let mut untaken = self.untaken.lock();
        let before = untaken.len();
        match &ended {
            Err(TopicError::Away(why)) => {
                untaken.insert(partition, why.clone());
                if before == 0 {
                    tracing::warn!(topic, partition, error = why, "the topic takes no messages: trying again");
                }
            }
            _ if untaken.remove(&partition).is_some() && untaken.is_empty() => {
                tracing::info!(topic, "the topic takes messages again");
            }
            _ => {}
        }
        ended
    }
}

/// Looks after a topic until it is told to end, on a thread of its own, since each call may take seconds: asks how many partitions it
/// has, and says how far the relay is where it writes.
pub(crate) fn watch(run: &Run, topic: &dyn Topic, known: &Known, outlet: Option<&Outlet>) {
    let (mut looked, mut said): (Option<Instant>, _) = (None, 0);
    while !run.is_stopped() {
        let every = if known.partitions() > 0 { PARTITIONS_EVERY } else { PARTITIONS_AGAIN };
        if looked.is_none_or(|looked| looked.elapsed() >= every) {
            known.look(topic);
            looked = Some(Instant::now());
        }
        if let Some(outlet) = outlet {
            said = outlet.say(said);
        }
        run.sleep(if known.partitions() > 0 { MARK_EVERY } else { PAUSE });
    }
}

/// Where a relay writes messages to.
pub(crate) struct Outlet {
    pub(crate) topic: Arc<dyn Topic>,
    pub(crate) region: u8,
    pub(crate) counts: Arc<Counts>,
    pub(crate) clock: Arc<Clock>,
    /// Nothing more is to be written.
    pub(crate) closed: Arc<AtomicBool>,
    pub(crate) known: Arc<Known>,
    /// The relay began without progress, and tells what was taken from this moment on: readers are to be told that what was before it
    /// may be missing. 0: they were, or need not be.
    pub(crate) anew: AtomicU64,
    /// Up to when all is in the topic, in milliseconds since the Unix epoch.
    pub(crate) whole: AtomicU64,
}

/// A message with what it says, for the case that it is too large.
struct Written {
    message: Message,
    /// A set, by its key and version; `None`: another change.
    set: Option<(Bytes, Version)>,
    /// What it becomes once it is written.
    fate: Fate,
}

impl Outlet {
    fn now(&self) -> u64 {
        self.clock.refresh();
        self.clock.millis()
    }

    fn put(&self, partition: u32, messages: Vec<Message>) -> Result<(), TopicError> {
        self.known.noted(self.topic.name(), partition, self.topic.append(partition, messages))
    }

    /// Says in every partition up to when all is in the topic, if that is more than what was `said`. Returns what all have heard.
    fn say(&self, said: u64) -> u64 {
        // In this order: what was written by fewer partitions than the marks tell is before them.
        let until = self.whole.load(Ordering::Acquire);
        let partitions = self.known.partitions();
        let since = self.anew.load(Ordering::Acquire);
        if partitions == 0 || until <= said {
            return said;
        }
        let message = |value| vec![Message { key: None, value, at: self.now() }];
        if since > 0 {
            let gap = Change::Gap(Gap { since, cause: Some(GapCause::Start) });
            if self.put(0, message(message::change(self.region, &gap))).is_err() {
                return said;
            }
            self.anew.store(0, Ordering::Release);
        }
        let mark = message::mark(self.region, until, partitions);
        let is_said = (0..partitions).all(|partition| self.put(partition, message(mark.clone())).is_ok());
        if is_said { until } else { said }
    }

    /// How many partitions there are, once that is known.
    fn partitions(&self) -> Result<u32, SinkError> {
        loop {
            match self.known.partitions() {
                0 if self.closed.load(Ordering::Relaxed) => return Err(SinkError::Closed),
                0 => std::thread::sleep(PAUSE),
                count => return Ok(count),
            }
        }
    }

    fn written(&self, change: &Change) -> Option<Written> {
        if matches!(change, Change::Lost { .. }) {
            // Its region's own: other copies have what was lost.
            self.counts.count(Fate::Nothing);
            return None;
        }
        let key = change.key().cloned();
        let set = match change {
            Change::Set(set) => Some((set.key.clone(), set.meta.version())),
            _ => None,
        };
        let message = Message { key, value: message::change(self.region, change), at: self.now() };
        Some(Written { message, set, fate: Fate::Taken })
    }

    fn append(&self, partition: u32, batch: Vec<Written>) -> Result<(), SinkError> {
        let mut left = VecDeque::from([batch]);
        while let Some(mut part) = left.pop_front() {
            let messages = part.iter().map(|written| written.message.clone()).collect();
            match self.put(partition, messages) {
                Ok(()) => part.iter().for_each(|written| self.counts.count(written.fate)),
                Err(TopicError::TooLarge) if part.len() > 1 => {
                    let rest = part.split_off(part.len() / 2);
                    left.push_front(rest);
                    left.push_front(part);
                }
                Err(TopicError::TooLarge) => match part.pop().and_then(|written| written.set) {
                    Some((key, version)) => {
                        // What is older is gone here, and is to go there.
                        let delete = Change::Delete { key, version: version.just_below() };
                        let fate = Fate::Refused(Refusal::TooLarge);
                        left.push_front(self.written(&delete).map(|one| Written { fate, ..one }).into_iter().collect());
                    }
                    None => {
                        tracing::error!(
                            topic = self.topic.name(),
                            "the topic does not even take a delete: it is left out"
                        );
                        self.counts.count(Fate::Refused(Refusal::Failed));
                    }
                },
                Err(_) => {
                    if self.closed.load(Ordering::Relaxed) {
                        return Err(SinkError::Closed);
                    }
                    add(&self.counts.retries, part.len() as u64);
                    left.push_front(part);
                    std::thread::sleep(PAUSE);
                }
            }
        }
        Ok(())
    }
}

/// The partition of a key: ranges of the buckets of a ring of slots.
fn partition_of(key: &[u8], partitions: u32) -> u32 {
    // Below the number of partitions, so it fits.
    ((u64::from(Buckets::of(key)) * u64::from(partitions)) >> 16) as u32
}

/// Writes what one stream tells.
pub(crate) struct TopicSink(pub(crate) Arc<Outlet>);

impl Sink for TopicSink {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        let outlet = &self.0;
        add(&outlet.counts.read, changes.len() as u64);
        add(&outlet.counts.bytes, changes.iter().map(|change| change.size() as u64).sum());
        let partitions = outlet.partitions()?;
        let mut parts: Vec<Vec<Written>> = (0..partitions).map(|_| Vec::new()).collect();
        for change in &changes {
            // What is about no key concerns all: whoever reads the first partition does it.
            let of = change.key().map_or(0, |key| partition_of(key, partitions));
            parts[of as usize].extend(outlet.written(change));
        }
        for (partition, part) in (0..partitions).zip(parts).filter(|(_, part)| !part.is_empty()) {
            outlet.append(partition, part)?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn take_lacks(&mut self) -> bool {
        false
    }
}

/// Reads one partition. Cursors are offsets.
pub(crate) struct TopicSource {
    pub(crate) topic: Arc<dyn Topic>,
    pub(crate) partition: u32,
    /// How many there are, as far as is known.
    pub(crate) partitions: u32,
    /// Whose changes are wanted: a topic may have those of several regions.
    pub(crate) region: u8,
    /// Largest value, in bytes.
    pub(crate) value_max: usize,
    pub(crate) counts: Arc<Counts>,
    pub(crate) clock: Arc<Clock>,
    offset: u64,
    told: VecDeque<Next>,
    /// Up to when all is before the offset.
    watermark: u64,
    /// What was before the offset may have been dropped: changes until the next message may be missing.
    is_first: bool,
    /// A message that this build does not read.
    stuck: Option<String>,
    /// The offset of the last one, which is counted once.
    refused: Option<u64>,
    /// When a message that is none was logged last.
    logged: Option<Instant>,
}

impl TopicSource {
    pub(crate) fn new(
        topic: Arc<dyn Topic>,
        (partition, partitions): (u32, u32),
        (region, value_max): (u8, usize),
        counts: Arc<Counts>,
        clock: Arc<Clock>,
    ) -> Self {
        Self {
            topic,
            partition,
            partitions,
            region,
            value_max,
            counts,
            clock,
            offset: 0,
            told: VecDeque::new(),
            watermark: 0,
            is_first: false,
            stuck: None,
            refused: None,
            logged: None,
        }
    }

    fn tell(&mut self, line: Line) {
        self.told.push_back(Next::Line(line));
    }

    fn gap(&mut self, since: u64, cause: GapCause) {
        self.tell(Line::Change(Change::Gap(Gap { since, cause: Some(cause) })));
    }

    /// A message that is not one.
    fn unreadable(&mut self, offset: u64, why: &str) {
        add(&self.counts.read, 1);
        self.counts.count(Fate::Refused(Refusal::Unreadable));
        if self.logged.is_none_or(|logged| logged.elapsed() >= LOG_EVERY) {
            let (topic, partition) = (self.topic.name(), self.partition);
            tracing::error!(topic, partition, offset, why, "a message of the topic is none of a relay: it is left out");
            self.logged = Some(Instant::now());
        }
    }

    /// A mark. One that knows more partitions than are read here says nothing of the others: those are read soon.
    fn mark(&mut self, until: u64, partitions: u32, at: u64) {
        if partitions <= self.partitions {
            self.clock.refresh();
            self.watermark = self.watermark.max(until.min(at).min(self.clock.millis()));
        }
    }

    fn receive(&mut self, record: &Record) {
        match message::read(&record.value) {
            Ok(Received::Change { region, .. } | Received::Mark { region, .. }) if region != self.region => {}
            Ok(Received::Mark { until, partitions, .. }) => self.mark(until, partitions, record.at),
            Ok(Received::Change { change, .. })
                if change.key().is_some_and(|key| !(1..=KEY_MAX).contains(&key.len())) =>
            {
                self.unreadable(record.offset, "its key has no length of a key");
            }
            Ok(Received::Change { change: Change::Set(mut set), .. }) => {
                let version = set.meta.version();
                match &set.value {
                    Some(value) if value.len() > self.value_max => {
                        self.told.push_back(Next::Oversized { key: set.key, version });
                    }
                    Some(_) => {
                        // Who does not say when it was current says nothing that creates an item.
                        set.as_of.get_or_insert(0);
                        self.tell(Line::Change(Change::Set(set)));
                    }
                    None => self.tell(Line::Change(Change::Delete { key: set.key, version: version.just_below() })),
                }
            }
            Ok(Received::Change { change, .. }) => self.tell(Line::Change(change)),
            Ok(Received::Later { format }) => {
                if self.refused.replace(record.offset) != Some(record.offset) {
                    add(&self.counts.read, 1);
                    self.counts.count(Fate::Refused(Refusal::Unreadable));
                }
                self.stuck = Some(format!(
                    "the message at offset {} has format {format}, and this build reads {} at most",
                    record.offset,
                    message::FORMAT
                ));
            }
            Err(why) => self.unreadable(record.offset, &why),
        }
    }

    /// The offset is not there.
    fn find_place(&mut self) -> Result<(), TopicError> {
        let (earliest, next) = self.topic.bounds(self.partition)?;
        if self.offset > next {
            // Another topic of the name, or one that lost its end.
            self.clock.refresh();
            self.gap(self.clock.millis(), GapCause::Lost);
        }
        self.is_first = earliest > 0;
        self.offset = earliest;
        Ok(())
    }
}

fn away(error: TopicError) -> SourceError {
    SourceError::Away(error.to_string())
}

impl Source for TopicSource {
    fn begin(&mut self, from: Begin, _: u64) -> Result<(), SourceError> {
        self.told.clear();
        (self.stuck, self.is_first) = (None, false);
        match from {
            Begin::Cursor(FeedPlace { position, .. }) => self.offset = position,
            Begin::Since(moment) => {
                let (earliest, next) = self.topic.bounds(self.partition).map_err(away)?;
                let at = self.topic.at(self.partition, moment).map_err(away)?.unwrap_or(next);
                self.offset = at.max(earliest);
                // What begins with its first message has dropped none.
                self.is_first = at <= earliest && earliest > 0;
            }
            Begin::Now => self.offset = self.topic.bounds(self.partition).map_err(away)?.1,
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        match (self.told.pop_front(), &self.stuck) {
            (Some(next), _) => Ok(next),
            (None, Some(why)) => Err(SourceError::Refused(why.clone())),
            (None, None) => Ok(Next::Lacking(1)),
        }
    }

    fn is_ready(&self) -> bool {
        !self.told.is_empty()
    }

    fn wait(&mut self, _: usize) -> Result<(), SourceError> {
        let (records, next) = match self.topic.read(self.partition, self.offset) {
            Ok(read) => read,
            Err(TopicError::OutOfRange) => {
                self.find_place().map_err(away)?;
                return Ok(());
            }
            Err(error) => return Err(away(error)),
        };
        let from = self.offset;
        for record in &records {
            if std::mem::take(&mut self.is_first) {
                self.gap(record.at, GapCause::Reclaimed);
            }
            self.receive(record);
            if self.stuck.is_some() {
                break;
            }
            self.offset = record.offset + 1;
        }
        let cursor = FeedPlace { incarnation: 0, position: self.offset, told: 0 }.to_string();
        let behind = Some(next.saturating_sub(self.offset));
        let mark = Mark { cursor, watermark: self.watermark, horizon: 0, behind, more: true };
        // A message that is not read is no answer: the partition stays in trouble.
        if self.stuck.is_none() || self.offset > from {
            self.tell(Line::Mark(mark));
        }
        Ok(())
    }

    fn set_rate(&mut self, _: u64) -> Result<bool, SourceError> {
        Ok(false)
    }
}
