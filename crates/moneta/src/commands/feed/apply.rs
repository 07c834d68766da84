//! Applying changes to a node, in mode newer: in any order, and any number of times.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use moneta_client::wire::blocking::{Dialogue, DialogueError, Next};
use moneta_client::wire::changes::Told;
use moneta_client::wire::{Protocol, VALUE_LIMIT};
use moneta_net::{Address, Endpoint};
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::versions::Floor;
use moneta_store::{
    Calls, Clock, Deleted, ErrorKind, Expiry, ItemMeta, ItemRef, Key, KeyHash, Pending, Step, StoreError, Value,
    Version, Written,
};

use super::line::{KeyText, Line, words};

/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How long the node may take to say what it is.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often what was done is told.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The node has it now, or had it.
    Taken,
    /// The node has something newer.
    Superseded,
    /// The node may have forgotten a delete of the key, and has nothing there.
    Unsure,
    /// The node has no room for it: it is larger than what it takes, or its memory is full and nothing goes from it.
    Refused,
    /// Changes are missing.
    Gap,
}

/// The node that changes are applied to.
pub(super) struct Target {
    node: Remote,
    clock: Arc<Clock>,
    address: Address,
    /// It may lack what it was told: it did not answer for a while, or had started so lately that it did not create items.
    lacks: bool,
}

/// A change as it is sent.
enum Sent {
    Set { key: Vec<u8>, meta: ItemMeta, value: Vec<u8>, as_of: Option<u64> },
    Delete { key: Vec<u8>, version: Version },
    Flush(Floor),
}

impl Target {
    /// Will talk to the node at `address`.
    ///
    /// # Errors
    /// If the system has no threads for it.
    pub(super) fn connect(address: Address) -> anyhow::Result<Self> {
        let clock = Arc::new(Clock::system());
        let config = RemoteConfig {
            request_timeout: Duration::from_secs(5),
            // What is too large, the node itself says: a limit here would take what is older from it, too.
            item_max: VALUE_LIMIT,
            ..RemoteConfig::new(address.clone(), KeyHash::seeded(0))
        };
        let node = Remote::new(config, Arc::clone(&clock)).context("cannot talk to the other node")?;
        Ok(Self { node, clock, address, lacks: false })
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Waits until the node answers; tells what it waits for.
    ///
    /// # Errors
    /// If what answers is no node that takes changes.
    pub(super) fn wait(&mut self) -> anyhow::Result<()> {
        let mut told = None;
        loop {
            let why = match self.ask() {
                Ok(dialogue) if dialogue.dialect().versions => {
                    if told.is_some() {
                        eprintln!("moneta feed: {} answers", self.address);
                    }
                    return Ok(());
                }
                Ok(_) => bail!("{} does not take changes: it knows no versions", self.address),
                // It starts, or has too many connections.
                Err(error @ (DialogueError::Io(_) | DialogueError::Refused(_))) => words(&error.to_string()),
                Err(error) => bail!("{} does not take changes: {error}", self.address),
            };
            if told.as_ref() != Some(&why) {
                eprintln!("moneta feed: {} does not answer: {why}; waiting for it", self.address);
                told = Some(why);
            }
            sleep(RETRY);
        }
    }

    fn ask(&self) -> Result<Dialogue, DialogueError> {
        let endpoint = Endpoint::new(self.address.clone()).patient(PATIENCE);
        Dialogue::open(&endpoint, Some(Protocol::Text), 0)
    }

    /// Whether the node answers, which nothing else tells while nothing changes; says so if it does not.
    pub(super) fn answers(&mut self) -> bool {
        let Err(error) = self.ask() else { return true };
        eprintln!("moneta feed: {} does not answer: {}", self.address, words(&error.to_string()));
        self.lacks = true;
        false
    }

    /// Refuses to write to the node that is read, by the cursor that it gave: each feed has a number of its own.
    ///
    /// # Errors
    /// If it is that node.
    pub(super) fn refuse_source(&self, source: &str, cursor: Option<&str>) -> anyhow::Result<()> {
        let number = |cursor: &str| cursor.split('-').next().map(str::to_owned);
        let read = cursor.and_then(number);
        if read.is_some() && self.cursor().as_deref().and_then(number) == read {
            bail!("{} is the node at {source} itself: its changes would go where they come from", self.address);
        }
        Ok(())
    }

    /// A cursor of the node's own feed, if it has one.
    fn cursor(&self) -> Option<String> {
        let mut dialogue = self.ask().ok()?;
        dialogue.changes("").ok()?;
        loop {
            match dialogue.next_change().ok()? {
                Next::Told(Told::At { cursor, .. }) => return Some(cursor),
                Next::Told(Told::End) => return None,
                Next::Told(_) => {}
                Next::Lacking(bytes) => dialogue.await_change(bytes).ok()?,
            }
        }
    }

    /// Whether the node may lack what it was told since this was asked last.
    pub(super) fn take_lacks(&mut self) -> bool {
        std::mem::take(&mut self.lacks)
    }

    /// Applies the changes of an answer, all under way at once but for flushes. `told` is called with what became of each.
    ///
    /// # Errors
    /// If the node refuses for good: it knows no versions, or is no node at all.
    pub(super) fn apply(&mut self, lines: &[Line], told: &mut Applied) -> anyhow::Result<()> {
        let mut under_way: Vec<(Sent, Pending<Fate>)> = Vec::new();
        for line in lines {
            let sent = match line {
                Line::Gap { .. } => {
                    told.count(Fate::Gap);
                    continue;
                }
                Line::Lost { until } => {
                    eprintln!("moneta feed: the node was killed, and lost what it took last before {until} ms");
                    continue;
                }
                Line::End { .. } => continue,
                Line::Set { key, version, flags, expiry, stale, value, as_of } => {
                    let value = value.as_deref().context("a change without its value")?;
                    let meta = ItemMeta {
                        cas: number(version)?,
                        flags: *flags,
                        expiry: Expiry(*expiry),
                        stale: *stale,
                        ..ItemMeta::default()
                    };
                    let value = STANDARD.decode(value).context("not base64")?;
                    Sent::Set { key: bytes(key)?, meta, value, as_of: *as_of }
                }
                Line::Delete { key, version } => Sent::Delete { key: bytes(key)?, version: Version(number(version)?) },
                Line::Flush { version, second } => {
                    let floor = Floor { version: Version(number(version)?), second: *second };
                    self.settle(std::mem::take(&mut under_way), told)?;
                    Sent::Flush(floor)
                }
            };
            let pending = self.send(&sent);
            under_way.push((sent, pending));
        }
        self.settle(under_way, told)
    }

    fn send(&self, sent: &Sent) -> Pending<Fate> {
        self.clock.refresh();
        let step = match sent {
            Sent::Set { key, meta, value, as_of } => {
                let item = ItemRef { meta: *meta, value: Value::whole(value) };
                // Without a time, the source has looked it up just now.
                let (since, is_now) = (as_of.unwrap_or_else(|| self.clock.millis()), as_of.is_none());
                self.node.put_newer(&self.key(key), &item, since).map(move |written| match written {
                    Written::Stored { .. } | Written::Unchanged { .. } => Fate::Taken,
                    Written::NotStored if is_now => Fate::Unsure,
                    Written::TooLarge | Written::OutOfMemory => Fate::Refused,
                    _ => Fate::Superseded,
                })
            }
            Sent::Delete { key, version } => self.node.bury(&self.key(key), *version).map(|deleted| match deleted {
                Deleted::Superseded { .. } => Fate::Superseded,
                _ => Fate::Taken,
            }),
            Sent::Flush(floor) => self.node.floor(*floor).map(|()| Fate::Taken),
        };
        match step {
            Step::Done(fate) => Box::pin(std::future::ready(fate)),
            Step::Wait(pending) => pending,
        }
    }

    fn key<'k>(&self, key: &'k [u8]) -> Key<'k> {
        Key::new(key, KeyHash::seeded(0))
    }

    /// Waits for the ends. What failed is sent again until it does not, all of it after one pause.
    fn settle(&mut self, mut under_way: Vec<(Sent, Pending<Fate>)>, told: &mut Applied) -> anyhow::Result<()> {
        loop {
            let (mut failed, mut why) = (Vec::new(), None);
            for (sent, pending) in under_way {
                match pollster::block_on(pending) {
                    Ok(fate) => {
                        self.lacks |= fate == Fate::Unsure;
                        told.count(fate);
                    }
                    Err(error) if !may_pass(&error) => bail!("{} does not take changes: {error}", self.address),
                    Err(error) => {
                        self.lacks |= error.kind() != ErrorKind::ClockAhead;
                        failed.push(sent);
                        why = Some(error);
                    }
                }
            }
            let Some(error) = why else { return Ok(()) };
            eprintln!("moneta feed: {}: {error}; trying {} changes again", self.address, failed.len());
            sleep(RETRY);
            under_way = failed
                .into_iter()
                .map(|sent| {
                    let pending = self.send(&sent);
                    (sent, pending)
                })
                .collect();
        }
    }
}

/// Whether the same may succeed later. A clock that is ahead is not, once time has passed.
fn may_pass(error: &StoreError) -> bool {
    !matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::NoVersions)
}

fn number(text: &str) -> anyhow::Result<u64> {
    text.parse().with_context(|| format!("{text:?} is no version"))
}

fn bytes(key: &KeyText) -> anyhow::Result<Vec<u8>> {
    match (&key.key, &key.key64) {
        (Some(text), _) => Ok(text.as_bytes().to_vec()),
        (None, Some(encoded)) => STANDARD.decode(encoded).context("a key that is not base64"),
        (None, None) => bail!("a change without a key"),
    }
}

/// What was done so far.
pub(super) struct Applied {
    taken: u64,
    superseded: u64,
    unsure: u64,
    refused: u64,
    gaps: u64,
    told: Instant,
}

impl Default for Applied {
    fn default() -> Self {
        Self { taken: 0, superseded: 0, unsure: 0, refused: 0, gaps: 0, told: Instant::now() }
    }
}

impl Applied {
    fn count(&mut self, fate: Fate) {
        match fate {
            Fate::Taken => self.taken += 1,
            Fate::Superseded => self.superseded += 1,
            Fate::Unsure => self.unsure += 1,
            Fate::Refused => self.refused += 1,
            Fate::Gap => self.gaps += 1,
        }
    }

    /// Whether it is time for a line on what was done.
    pub(super) fn is_due(&self) -> bool {
        self.told.elapsed() >= TELL_EVERY
    }

    /// There is nothing to be told now.
    pub(super) fn put_off(&mut self) {
        self.told = Instant::now();
    }

    /// A line on what was done, now and then. `watermark`: up to when all is told, milliseconds since the Unix epoch.
    pub(super) fn summary(&mut self, watermark: u64, now: u64) -> Option<String> {
        if !self.is_due() {
            return None;
        }
        self.put_off();
        let Self { taken, superseded, unsure, refused, gaps, .. } = self;
        let lag = now.saturating_sub(watermark);
        Some(format!(
            "{taken} taken, {superseded} older than what is there, {unsure} not created for want of certainty, {refused} refused for \
             want of room, {gaps} gaps; {lag} ms behind"
        ))
    }
}
