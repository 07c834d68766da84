//! The node that changes are applied to.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use moneta_client::wire::blocking::{Dialogue, DialogueError};
use moneta_client::wire::{Protocol, VALUE_LIMIT};
use moneta_feed::apply::{AsOf, Tally};
use moneta_feed::{Rules, StoreSink};
use moneta_net::{Address, Endpoint};
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::{Clock, KeyHash, Policy};

use super::admin::feed_number;
use super::print::words;
use crate::outward;

/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How long the node may take to say what it is.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often what was done is told.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// A node by its address.
#[derive(Clone)]
pub(super) struct Target {
    address: Address,
}

impl Target {
    pub(super) fn new(address: Address) -> Self {
        Self { address }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// What takes changes for it.
    ///
    /// # Errors
    /// If the system has no threads for it.
    pub(super) fn sink(&self) -> anyhow::Result<StoreSink<Remote>> {
        let clock = Arc::new(Clock::system());
        let config = RemoteConfig {
            request_timeout: Duration::from_secs(5).into(),
            // What is too large, the node itself says: a limit here would take what is older from it, too.
            item_max: VALUE_LIMIT,
            ..RemoteConfig::new(outward::of_command().to(self.address.clone()), KeyHash::seeded(0))
        };
        let node = Remote::new(config, Arc::clone(&clock)).context("cannot talk to the other node")?;
        let rules = Rules {
            as_of: AsOf::Told,
            policy: Policy::Online,
            pause: RETRY,
            early_tries: 1,
            clock_tries: None,
            failure_tries: None,
            overlaps: true,
        };
        let address = self.address.clone();
        let retrying = move |error: &moneta_store::StoreError, count: usize| {
            eprintln!("moneta feed: {address}: {error}; trying {count} changes again");
        };
        Ok(StoreSink::new(node, clock, rules, Arc::default(), Box::new(retrying)))
    }

    /// Waits until the node answers; tells what it waits for.
    ///
    /// # Errors
    /// If what answers is no node that takes changes.
    pub(super) fn wait(&self) -> anyhow::Result<()> {
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
                Err(error @ (DialogueError::Io(_) | DialogueError::Refused(_) | DialogueError::LogIn(_))) => {
                    words(&error.to_string())
                }
                Err(error) => bail!("{} does not take changes: {error}", self.address),
            };
            if told.as_ref() != Some(&why) {
                eprintln!("moneta feed: {} does not answer: {why}; waiting for it", self.address);
                told = Some(why);
            }
            sleep(RETRY);
        }
    }

    /// How it is reached for questions.
    pub(super) fn endpoint(&self) -> Endpoint {
        outward::of_command().to(self.address.clone()).patient(PATIENCE)
    }

    fn ask(&self) -> Result<Dialogue, DialogueError> {
        Dialogue::open(&self.endpoint(), Some(Protocol::Text), 0)
    }

    /// Whether the node answers. Says so if not.
    pub(super) fn answers(&self) -> bool {
        let asked = self.ask();
        if let Err(error) = &asked {
            eprintln!("moneta feed: {} does not answer: {}", self.address, words(&error.to_string()));
        }
        asked.is_ok()
    }

    /// Refuses to write to the node that is read, by the number of its feed: each has another one.
    ///
    /// # Errors
    /// If it is that node.
    pub(super) fn refuse_source(&self, source: &str, number: u64) -> Result<(), String> {
        match feed_number(&self.address, PATIENCE) {
            Ok(own) if own == number => Err(format!(
                "{} is the node at {source} itself: its changes would go where they come from",
                self.address
            )),
            _ => Ok(()),
        }
    }
}

/// Tells now and then what was done.
pub(super) struct Summary {
    gaps: u64,
    told: Instant,
}

impl Summary {
    pub(super) fn begin() -> Self {
        Self { gaps: 0, told: Instant::now() }
    }

    pub(super) fn count_gap(&mut self) {
        self.gaps += 1;
    }

    /// Whether it is time for a line on what was done.
    pub(super) fn is_due(&self) -> bool {
        self.told.elapsed() >= TELL_EVERY
    }

    /// There is nothing to be told now.
    pub(super) fn put_off(&mut self) {
        self.told = Instant::now();
    }

    /// A line on what was done. `lag`: milliseconds.
    pub(super) fn line(&mut self, tally: Tally, lag: u64) -> String {
        self.put_off();
        let Tally { taken, superseded, unsure, refused } = tally;
        let gaps = self.gaps;
        format!(
            "{taken} taken, {superseded} older than what is there, {unsure} not created for want of certainty, {refused} refused for \
             want of room, {gaps} gaps; {lag} ms behind"
        )
    }
}
