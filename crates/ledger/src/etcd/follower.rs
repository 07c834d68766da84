//! A follower: one watch of all of a ledger's keys.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tonic::Streaming;

use crate::deadline::within;
use crate::entry::{Change, Revision};
use crate::error::LedgerError;
use crate::etcd::state::State;
use crate::etcd::wire::{Event, WatchResponse};
use crate::etcd::{Shared, misunderstood};
use crate::ledger::{AT_EVERY, Answer, Follow, Step};

/// How long no beat is seen before one is put. Several processes see each other's.
const BEAT_EVERY: Duration = Duration::from_secs(2);
/// How long a watch may be silent before it is given up: marks come earlier.
const SILENCE_MAX: Duration = Duration::from_secs(2 * AT_EVERY.as_secs());
/// Most events of one message in parts.
const EVENTS_MAX: usize = 1 << 20;

/// What follows one prefix.
pub(crate) struct Follower {
    shared: Arc<Shared>,
    prefix: String,
    state: State,
    /// etcd's revision after which it began, until it is sure that nothing was compacted away behind it.
    unsure: Option<i64>,
    watch: Streaming<WatchResponse>,
    /// The member that serves it.
    member: usize,
    /// Of a message that comes in parts.
    events: Vec<Event>,
    steps: VecDeque<Result<Step, LedgerError>>,
    heard: Instant,
    /// The revision that was told last.
    told: i64,
}

impl Follower {
    pub(crate) fn new(
        shared: Arc<Shared>,
        prefix: String,
        state: State,
        after: i64,
        watch: Streaming<WatchResponse>,
        member: usize,
    ) -> Self {
        let (events, steps, heard) = (Vec::new(), VecDeque::new(), Instant::now());
        Self { shared, prefix, state, unsure: Some(after), watch, member, events, steps, heard, told: after }
    }

    async fn next(&mut self) -> Result<Step, LedgerError> {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return step;
            }
            let silent = self.heard.elapsed();
            if silent > SILENCE_MAX {
                self.shared.client.leave(self.member);
                return Err(LedgerError::Unavailable { reason: format!("etcd was silent for {} s", silent.as_secs()) });
            }
            let message = within(&self.shared.client.runtime, self.until_beat(), self.watch.message()).await;
            match message {
                None => self.beat(),
                Some(Ok(Some(message))) => {
                    self.heard = Instant::now();
                    self.take(message).await?;
                }
                Some(Ok(None)) => return Err(LedgerError::Unavailable { reason: "etcd ended the watch".to_owned() }),
                Some(Err(status)) => {
                    self.shared.client.leave(self.member);
                    return Err(LedgerError::Unavailable { reason: status.message().to_owned() });
                }
            }
        }
    }

    /// How long until it puts a beat, if none is seen.
    fn until_beat(&self) -> Duration {
        let quiet = self.shared.beaten.lock().map_or(Duration::ZERO, |beaten| beaten.elapsed());
        BEAT_EVERY.saturating_sub(quiet).max(Duration::from_millis(50))
    }

    fn beat(&self) {
        let mut beaten = self.shared.beaten.lock();
        if beaten.is_none_or(|beaten| beaten.elapsed() >= BEAT_EVERY) {
            // The followers of one process put one beat together; the next follows if it is not seen.
            *beaten = Some(Instant::now());
            drop(beaten);
            self.shared.beat();
        }
    }

    async fn take(&mut self, message: WatchResponse) -> Result<(), LedgerError> {
        if message.canceled {
            return Err(match message.compact_revision {
                0 => LedgerError::Unavailable { reason: format!("etcd ended the watch: {}", message.cancel_reason) },
                oldest => LedgerError::Compacted { oldest: self.state.ours(oldest) },
            });
        }
        self.events.extend(message.events);
        if self.events.len() > EVENTS_MAX {
            return Err(misunderstood());
        }
        if message.fragment || self.events.is_empty() {
            return Ok(());
        }
        // etcd forgets a delete at the very revision that it compacts, and still lets one watch from there: what was told is all only
        // if it can still be read as it was before the first of it.
        if let Some(after) = self.unsure {
            self.shared.check_kept(self.state, after).await?;
            self.unsure = None;
        }
        let mut events = std::mem::take(&mut self.events).into_iter().peekable();
        while let Some(event) = events.next() {
            let at = revision(&event)?;
            let mut commit = vec![event];
            while let Some(event) = events.next_if(|event| revision(event).is_ok_and(|next| next == at)) {
                commit.push(event);
            }
            self.told(at, commit)?;
        }
        Ok(())
    }

    /// Makes steps of what one commit did.
    fn told(&mut self, at: i64, events: Vec<Event>) -> Result<(), LedgerError> {
        if at <= self.told {
            return Err(LedgerError::Unavailable { reason: format!("etcd told of revision {at} after {}", self.told) });
        }
        self.told = at;
        let keys = &self.shared.keys;
        let (mut changes, mut is_beat) = (Vec::new(), false);
        for event in events {
            let found = event.kv.ok_or_else(misunderstood)?;
            if let Some(key) = keys.key_of(&found.key) {
                if key.starts_with(&self.prefix) {
                    changes.push(match event.kind {
                        0 => Change::Put(self.shared.entry(self.state, found)?),
                        _ => Change::Deleted { key, revision: self.state.ours(at) },
                    });
                }
            } else if found.key == keys.state() {
                if event.kind != 0 {
                    return Err(misunderstood());
                }
                let now = self.shared.keep(&found)?;
                if now.incarnation != self.state.incarnation {
                    self.steps.push_back(Err(LedgerError::Replaced { now: now.incarnation }));
                    return Ok(());
                }
            } else if found.key == keys.beat() {
                is_beat = true;
            }
        }
        let revision: Revision = self.state.ours(at);
        if !changes.is_empty() {
            changes.sort_unstable_by(|one: &Change, other| one.key().cmp(other.key()));
            self.steps.push_back(Ok(Step::Changes { revision, changes }));
        }
        if is_beat {
            *self.shared.beaten.lock() = Some(Instant::now());
            self.steps.push_back(Ok(Step::At(revision)));
        }
        Ok(())
    }
}

fn revision(event: &Event) -> Result<i64, LedgerError> {
    event.kv.as_ref().map(|found| found.mod_revision).ok_or_else(misunderstood)
}

impl Follow for Follower {
    fn step(&mut self) -> Answer<'_, Step> {
        Box::pin(self.next())
    }
}
