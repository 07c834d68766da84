//! Has a job make room for clients: asks its servers each second what online gets take, and sets how fast it goes.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, Builder};
use std::time::Duration;

use moneta_client::wire::blocking::Dialogue;
use moneta_client::wire::{Answer, Request, Verb};
use moneta_net::Endpoint;

use crate::error::BulkError;
use crate::law::{Durations, Law, Room};
use crate::throttle::Throttle;
use crate::watch::Watch;

/// The name, among a node's statistics, of how long its online gets have taken.
const DURATIONS: &str = "online_get_durations";
/// A node times one command of so many, and counts it as often.
const SAMPLE: u64 = 61;
/// How often servers are asked.
const SECOND: Duration = Duration::from_secs(1);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// How fast a job may go.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateConfig {
    /// Bytes of keys and values a second; 0: as many as it goes.
    pub bytes: u64,
    /// Changes a second; 0: as many as it goes.
    pub operations: u64,
    /// How many times what it is in quiet the p99 of online gets may be; `None`: however long they take. Of use with a bound.
    pub p99_limit: Option<f64>,
}

impl RateConfig {
    /// What keeps to it.
    pub fn throttle(&self) -> Throttle {
        Throttle::of(self.bytes, self.operations)
    }

    /// Runs a job, and meanwhile sets its `throttles` by what these servers' clients have to wait. Tells what it had to leave to them:
    /// `None`, if there is no limit.
    ///
    /// # Errors
    /// If the system has no thread.
    pub fn governed<T>(
        self,
        servers: impl IntoIterator<Item = Endpoint>,
        throttles: &[Throttle],
        watch: &dyn Watch,
        run: impl FnOnce() -> T,
    ) -> Result<(T, Option<Room>), BulkError> {
        let Some(limit) = self.p99_limit.filter(|_| self.bytes > 0 || self.operations > 0) else {
            return Ok((run(), None));
        };
        let mut servers: Vec<Asked> = servers.into_iter().map(|server| Asked { server, dialogue: None }).collect();
        let (stop, stopped) = channel::<()>();
        let govern = move || {
            let mut law = Law::new(servers.len(), limit);
            loop {
                let share = law.second(servers.iter_mut().map(Asked::ask).collect());
                let part = |cap: u64| if cap == 0 { 0 } else { ((cap as f64 * share) as u64).max(1) };
                throttles.iter().for_each(|throttle| throttle.set(part(self.bytes), part(self.operations)));
                watch.room(&law.room());
                if stopped.recv_timeout(SECOND) != Err(RecvTimeoutError::Timeout) {
                    return law.room();
                }
            }
        };
        thread::scope(|scope| {
            let governor = Builder::new().name("bulk-governor".into()).spawn_scoped(scope, govern)?;
            let ended = run();
            drop(stop);
            // It has panicked, or not: the job has ended.
            Ok((ended, governor.join().ok()))
        })
    }
}

/// A server that is asked.
struct Asked {
    server: Endpoint,
    dialogue: Option<Dialogue>,
}

impl Asked {
    /// `None`: it does not answer, or is no node that tells.
    fn ask(&mut self) -> Option<Durations> {
        let asked = self.try_ask();
        if asked.is_none() {
            self.dialogue = None;
        }
        asked
    }

    fn try_ask(&mut self) -> Option<Durations> {
        let dialogue = match &mut self.dialogue {
            Some(dialogue) => dialogue,
            None => self.dialogue.insert(Dialogue::open(&self.server.clone().patient(PATIENCE), None, 0).ok()?),
        };
        match dialogue.call(&Request { verb: Verb::Statistics, key: &[], value: &[] }).ok()? {
            Answer::Statistics(list) => durations(&list.iter().find(|(name, _)| name == DURATIONS)?.1),
            _ => None,
        }
    }
}

/// `BOUND:COUNT,…`, bounds in nanoseconds.
fn durations(words: &str) -> Option<Durations> {
    let word = |word: &str| {
        let (bound, count) = word.split_once(':')?;
        let bound = if bound == "inf" { u64::MAX } else { bound.parse().ok()? };
        Some((bound, count.parse::<u64>().ok()? / SAMPLE))
    };
    words.split(',').filter(|word| !word.is_empty()).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_tells_is_read() {
        assert_eq!(durations("1280:122,1536:61,inf:6100"), Some(vec![(1280, 2), (1536, 1), (u64::MAX, 100)]));
        assert_eq!(durations(""), Some(Vec::new()));
        assert_eq!(durations("1280"), None);
    }
}
