//! Renewals that reach one process and are handed to the others that share its ledger, as they are never written down: the keeper of
//! leases looks at them, and each shows what came with them.
//!
//! A thread for each other process posts what has come since its last turn, of each instance the last. What cannot be handed over waits,
//! bounded by the number of instances. While the keeper cannot be reached for long, renewals are refused: their senders go to another
//! process.
//!
//! Renewals of tasks of jobs go the same way, as any process may give a silent worker's task to another. It does so only by what it
//! surely knows: each post says what the last answer said of the receiver's clock, so all that the sender heard up to then has come.
//! A process that does not reach another one, but reaches the ledger, gives away no task that a worker may still have.

use std::collections::{HashMap, HashSet};
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
/// How often a process says that it has heard of no task.
const TASKS_EVERY: Duration = Duration::from_secs(1);
/// Bytes of renewals that are posted together, but for the last of them.
const PIECE: usize = 512 << 10;
/// Bytes of a task that is handed over, beside its progress; names have up to 128.
const TASK_BYTES: usize = 600;
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

/// What a process has heard of tasks since its last post.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct HandedTasks {
    /// Its name.
    from: String,
    /// The receiver's clock as its last answer had it: all that was heard before is here, or was.
    known: u64,
    tasks: Vec<HandedTask>,
}

/// A renewal of a task that another process heard.
#[derive(Debug, Serialize, Deserialize)]
struct HandedTask {
    environment: String,
    job: String,
    task: String,
    term: u64,
    /// How long ago that was.
    ago_ms: u64,
    #[serde(default)]
    progress: Value,
}

/// What is answered to these.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Noted {
    /// The receiver's clock.
    now: u64,
}

type Waiting = HashMap<(Arc<str>, Instance), Moment>;
/// By environment, job and task.
type Tasks = HashSet<(Arc<str>, Arc<str>, String)>;

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
    tasks: Mutex<Tasks>,
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
            let path = format!("/v1/members/{}", member.token);
            let of = Arc::<PeerState>::default();
            let hands = Hands {
                own: own.to_owned(),
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

    /// A worker has renewed its task here.
    pub(crate) fn note_task(&self, environment: &str, job: &str, task: &str) {
        let all = self.all.lock();
        for peer in all.values() {
            peer.shared.tasks.lock().insert((environment.into(), job.into(), task.to_owned()));
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
    own: String,
    of: Arc<PeerState>,
    shared: Arc<Shared>,
    client: HttpClient,
    path: String,
    handed: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
}

impl Hands {
    fn run(&self, run: &Run) {
        let (mut known, mut told) = (0, Instant::now());
        while run.sleep(EVERY) {
            if let Err(why) = self.hand_tasks(&mut known, &mut told) {
                self.failed.fetch_add(1, Ordering::Relaxed);
                run.failed(&why);
            }
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
                if let Err(why) = self.post("renewals", &text) {
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

    /// Hands over what was heard of tasks, which waits where that fails.
    fn hand_tasks(&self, known: &mut u64, told: &mut Instant) -> Result<(), String> {
        let taken = std::mem::take(&mut *self.of.tasks.lock());
        if taken.is_empty() && told.elapsed() < TASKS_EVERY {
            return Ok(());
        }
        let mut left = taken.iter();
        loop {
            let mut said = HandedTasks { from: self.own.clone(), known: 0, tasks: Vec::new() };
            let mut size = 0;
            for task in left.by_ref().filter_map(|key| self.written_task(key)) {
                size += task.progress.to_string().len() + TASK_BYTES;
                said.tasks.push(task);
                if size > PIECE {
                    break;
                }
            }
            // Until the last of them has come the receiver does not know all.
            let is_all = size <= PIECE;
            if is_all {
                said.known = *known;
            }
            let count = said.tasks.len() as u64;
            let posted = serde_json::to_string(&said).map_err(|error| error.to_string());
            match posted.and_then(|text| self.post("tasks", &text)) {
                Ok(answer) => {
                    self.handed.fetch_add(count, Ordering::Relaxed);
                    if is_all {
                        // A member of an older version says nothing of its clock, and is told of nothing.
                        *known = serde_json::from_str::<Noted>(&answer).map_or(0, |noted| noted.now);
                        *told = Instant::now();
                        return Ok(());
                    }
                }
                Err(why) => {
                    self.of.tasks.lock().extend(taken);
                    return Err(why);
                }
            }
        }
    }

    /// A task's last renewal as it is handed over; `None`: its job is gone.
    fn written_task(&self, (environment, job, task): &(Arc<str>, Arc<str>, String)) -> Option<HandedTask> {
        let now = self.shared.now();
        let state = self.shared.state.lock();
        let (term, at, progress) = state.environment(environment)?.jobs.heard(job, task)?;
        Some(HandedTask {
            environment: environment.to_string(),
            job: job.to_string(),
            task: task.clone(),
            term,
            ago_ms: now.since(at),
            progress: progress.clone(),
        })
    }

    fn post(&self, what: &str, text: &str) -> Result<String, String> {
        let answer = self.client.post(&format!("{}/{what}", self.path), text).map_err(|error| error.to_string())?;
        let status = answer.status();
        match answer.is_success() {
            true => answer.text().map_err(|error| error.to_string()),
            // Of tasks members of older versions hear nothing.
            false if status == 404 && what == "tasks" => Ok(String::new()),
            false => Err(format!("refused with status {status}")),
        }
    }
}

impl Shared {
    /// Takes what another process has heard of tasks.
    pub(crate) fn take_tasks(&self, handed: HandedTasks) -> Noted {
        let now = self.now();
        let mut state = self.state();
        for HandedTask { environment, job, task, term, ago_ms, progress } in handed.tasks {
            if let Some(of) = state.environment_mut(&environment) {
                let at = Moment(now.0.saturating_sub(ago_ms));
                of.jobs.heard_elsewhere(&job, &task, term, progress, at);
            }
        }
        if state.members.contains_key(&*handed.from) {
            let until = state.heard.entry(handed.from.into()).or_default();
            *until = Moment(handed.known.min(now.0)).max(*until);
        }
        Noted { now: now.0 }
    }

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
