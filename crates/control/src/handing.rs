//! Renewals that reach one process and are handed to the others that share its ledger, as they are never written down: the keeper of
//! leases looks at them, and each shows what came with them.
//!
//! A thread for each other process posts what has come since its last turn, of each instance the last. What cannot be handed over waits,
//! bounded by the number of instances. While the keeper cannot be reached for long, renewals are refused: their senders go to another
//! process.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moneta_background::{Run, Task};
use moneta_net::{Address, Endpoint, HostPort, HttpClient, Outward, Timeouts};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::leases::{Instance, Moment};
use crate::shared::Shared;
use crate::state::{State, Vitals};

/// How often a process hands over what has come.
const EVERY: Duration = Duration::from_millis(500);
/// How long it rests after a failure.
const REST: Duration = Duration::from_secs(1);
/// How long connecting may take, a wait for bytes, and all of it.
const CONNECT: Duration = Duration::from_secs(1);
const TOTAL: Duration = Duration::from_secs(3);
/// How long the keeper may be out of reach before renewals are refused.
const CUT_OFF: Duration = Duration::from_secs(15);
/// Bytes of renewals that are posted together, but for the last of them.
const PIECE: usize = 512 << 10;
/// The most bytes of a post.
pub(crate) const POST_MAX: usize = 1 << 20;

/// A renewal that another process heard.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Handed {
    environment: String,
    app: String,
    id: String,
    /// How long ago that was.
    ago_ms: u64,
    seq: u64,
    #[serde(default)]
    vitals: Value,
    #[serde(default)]
    acks: Value,
}

type Waiting = HashMap<(Arc<str>, Instance), Moment>;

/// The other processes.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    // Taken while the state is, never the other way round.
    all: Mutex<HashMap<Arc<str>, Peer>>,
    /// Renewals that were handed over, and posts that failed.
    pub(crate) handed: Arc<AtomicU64>,
    pub(crate) failed: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Peer {
    shared: Arc<PeerState>,
    task: Option<Task>,
}

#[derive(Debug, Default)]
struct PeerState {
    waiting: Mutex<Waiting>,
    /// Since when it cannot be reached.
    failing: Mutex<Option<Instant>>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.stop();
        }
    }
}

impl Peers {
    /// Hands over to those that the state names, but for this process itself, and to no others.
    pub(crate) fn follow(&self, shared: &Arc<Shared>, state: &State, own: &str, outward: &Outward) {
        let mut all = self.all.lock();
        all.retain(|name, _| state.members.contains_key(name));
        for (name, member) in state.members.iter().filter(|(name, _)| ***name != *own) {
            if all.contains_key(name) {
                continue;
            }
            let Ok(place) = member.address.parse::<HostPort>() else { continue };
            let timeouts = Timeouts { connect: Some(CONNECT), idle: Some(TOTAL), total: Some(TOTAL) };
            let client = HttpClient::new(Endpoint { timeouts, ..outward.to(Address::Tcp(place)) });
            let path = format!("/v1/members/{}/renewals", member.token);
            let of = Arc::<PeerState>::default();
            let hands = Hands {
                of: Arc::clone(&of),
                shared: Arc::clone(shared),
                client,
                path,
                handed: Arc::clone(&self.handed),
                failed: Arc::clone(&self.failed),
            };
            let task = moneta_background::start(format!("control-hand-{}", member.address), move |run| hands.run(run));
            match task {
                Ok(task) => drop(all.insert(Arc::clone(name), Peer { shared: of, task: Some(task) })),
                Err(error) => tracing::error!(%error, "no thread hands renewals over"),
            }
        }
    }

    /// An instance has renewed here.
    pub(crate) fn note(&self, environment: &str, instance: &Instance, at: Moment) {
        let all = self.all.lock();
        if all.is_empty() {
            return;
        }
        let environment: Arc<str> = environment.into();
        for peer in all.values() {
            peer.shared.waiting.lock().insert((Arc::clone(&environment), instance.clone()), at);
        }
    }

    /// Whether this one has been out of reach for long.
    pub(crate) fn is_cut_off_from(&self, name: &str) -> bool {
        let failing = self.all.lock().get(name).and_then(|peer| *peer.shared.failing.lock());
        failing.is_some_and(|since| since.elapsed() > CUT_OFF)
    }
}

/// What hands over to one process.
struct Hands {
    of: Arc<PeerState>,
    shared: Arc<Shared>,
    client: HttpClient,
    path: String,
    handed: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
}

impl Hands {
    fn run(&self, run: &Run) {
        while run.sleep(EVERY) {
            let mut taken = std::mem::take(&mut *self.of.waiting.lock()).into_iter();
            loop {
                let (mut posted, mut text) = (Vec::new(), String::from("["));
                for (key, at) in taken.by_ref() {
                    if let Some(handed) = self.written(&key, at) {
                        if !posted.is_empty() {
                            text.push(',');
                        }
                        text.push_str(&handed);
                        posted.push((key, at));
                    }
                    if text.len() > PIECE {
                        break;
                    }
                }
                if posted.is_empty() {
                    break;
                }
                text.push(']');
                if let Err(why) = self.post(&text) {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    self.of.failing.lock().get_or_insert_with(Instant::now);
                    run.failed(&why);
                    // What has come meanwhile is newer.
                    let mut waiting = self.of.waiting.lock();
                    for (key, at) in posted.into_iter().chain(taken) {
                        waiting.entry(key).or_insert(at);
                    }
                    drop(waiting);
                    run.sleep(REST);
                    break;
                }
                *self.of.failing.lock() = None;
                self.handed.fetch_add(posted.len() as u64, Ordering::Relaxed);
            }
        }
    }

    /// A renewal as it is handed over; `None`: the instance has left.
    fn written(&self, (environment, instance): &(Arc<str>, Instance), at: Moment) -> Option<String> {
        let now = self.shared.now();
        let state = self.shared.state.lock();
        let of = state.environment(environment)?;
        of.record(&instance.app, &instance.id)?;
        let Vitals { seq, vitals, acks } = of.vitals.get(instance).cloned().unwrap_or_default();
        drop(state);
        let handed = Handed {
            environment: environment.to_string(),
            app: instance.app.to_string(),
            id: instance.id.to_string(),
            ago_ms: now.since(at),
            seq,
            vitals,
            acks,
        };
        serde_json::to_string(&handed).ok()
    }

    fn post(&self, text: &str) -> Result<(), String> {
        let answer = self.client.post(&self.path, text).map_err(|error| error.to_string())?;
        match answer.is_success() {
            true => Ok(()),
            false => Err(format!("refused with status {}", answer.status())),
        }
    }
}

impl Shared {
    /// Takes renewals that another process has heard. Those of instances that are not known here yet are left out: they renew again.
    pub(crate) fn take_handed(&self, handed: Vec<Handed>) {
        let now = self.now();
        let mut state = self.state();
        for Handed { environment, app, id, ago_ms, seq, vitals, acks } in handed {
            let Some(of) = state.environment_mut(&environment) else { continue };
            if of.record(&app, &id).is_none() {
                continue;
            }
            let instance = Instance { app: app.into(), id: id.into() };
            of.leases.heard(&instance, now, ago_ms);
            let known = of.vitals.entry(instance).or_default();
            // One that a later one has overtaken on another way says nothing, nor does a registration, which is none; a process that
            // began anew counts from one.
            if seq >= known.seq.max(1) || seq == 1 {
                *known = Vitals { seq, vitals, acks };
            }
        }
    }
}
