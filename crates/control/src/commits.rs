//! Commits: one after the other, each with its audit record.
//!
//! A plan looks at the state and says what to compare and change, or why not. Plans that wait together and touch different keys are
//! one commit. What is answered is in the state already. A commit whose outcome is unknown is settled by its audit record, which each
//! commit makes only if it is not there: who puts that key first decides whether the commit took effect.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use moneta_ledger::{Commit, Committed, Compare, Ledger, LedgerError, Put, Revision};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::error::Refusal;
use crate::names;
use crate::shared::Shared;
use crate::state::State;

/// Plans that wait at most; further ones are refused.
const QUEUE: usize = 4_096;
/// The most compares, puts and deletes of one commit, and bytes that it puts: less than a ledger takes.
const PARTS_MAX: usize = 110;
const BYTES_MAX: usize = 1 << 20;
/// Plans of one commit at most: its audit record names each.
const PLANS_MAX: usize = 40;
/// How often a plan is made anew when something came between.
const TRIES: u32 = 8;
/// How long it rests at most when something came between.
const CONFLICT_REST: Duration = Duration::from_millis(20);
/// How long what was committed may take to be seen.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
/// How long, and how often, an unknown outcome is looked for.
const LOOK_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The longest text of an audit record, in bytes.
const AUDIT_TEXT_MAX: usize = 2_048;
/// Milliseconds of Unix time at which 2020 began, in UTC.
const EPOCH_2020: u64 = 1_577_836_800_000;

/// Who asks, for the audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// The user; `None`: there are none here, or it is this process itself.
    pub name: Option<Arc<str>>,
    /// The address that it asks from; empty: this process.
    pub from: String,
}

impl Who {
    /// The one that takes turns with others: the user, or the address where there are none.
    pub fn asker(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.from)
    }
}

/// What happened, for the audit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Act {
    /// Where.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub environment: String,
    /// What, in a word.
    pub what: String,
    /// Which app.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub app: String,
    /// Which instance.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// How it was before, in short.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub before: Value,
    /// How it is now, in short.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub after: Value,
    /// Why, as was said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What a plan asks for.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// What has to hold of keys that the plan looked at, beside those that it changes: these have to be as it saw them in any case.
    pub compares: Vec<Compare>,
    /// What has to hold for several plans together: that the keeper is who it was.
    pub guards: Vec<Compare>,
    /// What is put.
    pub puts: Vec<(String, String)>,
    /// What is deleted.
    pub deletes: Vec<String>,
    /// For the audit.
    pub act: Act,
}

/// Looks at the state: what to change; `None`: nothing, all is as it should be. It may be asked several times.
pub type Plan = Box<dyn FnMut(&State) -> Result<Option<Draft>, Refusal> + Send>;

struct Job {
    plan: Plan,
    who: Who,
    tries: u32,
    answer: oneshot::Sender<Result<(), Refusal>>,
}

/// Takes plans.
#[derive(Clone, Debug)]
pub struct Commits {
    jobs: mpsc::Sender<Job>,
    counts: Arc<Counts>,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Counts {
    /// Commits that took effect.
    pub done: AtomicU64,
    /// Commits that something came between.
    pub conflicts: AtomicU64,
    /// Commits that failed.
    pub failed: AtomicU64,
    /// Commits whose outcome had to be looked for.
    pub unknown: AtomicU64,
}

/// Makes commits of plans.
pub(crate) struct Committer {
    jobs: mpsc::Receiver<Job>,
    counts: Arc<Counts>,
    ledger: Arc<dyn Ledger>,
    shared: Arc<Shared>,
    /// The revision that the state has.
    seen: watch::Receiver<Revision>,
}

/// What takes plans, and what makes commits of them.
pub(crate) fn commits(
    ledger: Arc<dyn Ledger>,
    shared: Arc<Shared>,
    seen: watch::Receiver<Revision>,
) -> (Commits, Committer) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let counts = Arc::<Counts>::default();
    let committer = Committer { jobs: receiver, counts: Arc::clone(&counts), ledger, shared, seen };
    (Commits { jobs: sender, counts }, committer)
}

impl Commits {
    /// Has a plan committed, and waits until the state has it.
    ///
    /// # Errors
    /// What the plan says, or 503 if the ledger cannot be had or too many wait.
    pub async fn commit(&self, who: Who, plan: Plan) -> Result<(), Refusal> {
        let answered = self.begin(who, plan)?;
        answered.await.unwrap_or_else(|_| Err(Refusal::unavailable("this process ends")))
    }

    /// Has a plan committed, and does not wait.
    ///
    /// # Errors
    /// 503 if too many wait.
    pub fn begin(&self, who: Who, plan: Plan) -> Result<oneshot::Receiver<Result<(), Refusal>>, Refusal> {
        let (answer, answered) = oneshot::channel();
        self.jobs
            .try_send(Job { plan, who, tries: 0, answer })
            .map_err(|_| Refusal::unavailable("too many changes wait to be written"))?;
        Ok(answered)
    }

    /// What was counted.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// Plans that are one commit.
#[derive(Default)]
struct Batch {
    jobs: Vec<Job>,
    acts: Vec<Value>,
    commit: Commit,
    keys: HashSet<String>,
    guards: Vec<Compare>,
    bytes: usize,
}

impl Committer {
    /// Makes commits until nothing takes plans any more.
    pub(crate) async fn run(mut self) {
        let mut waiting = std::collections::VecDeque::new();
        loop {
            if waiting.is_empty() {
                let Some(job) = self.jobs.recv().await else { return };
                waiting.push_back(job);
            }
            while waiting.len() < PLANS_MAX
                && let Ok(job) = self.jobs.try_recv()
            {
                waiting.push_back(job);
            }
            let mut batch = Batch::default();
            while let Some(mut job) = waiting.pop_front() {
                match self.plan(&mut job) {
                    Ok(None) => answer(job, Ok(())),
                    Err(refusal) => answer(job, Err(refusal)),
                    Ok(Some(draft)) if batch.has_room_for(&draft) => batch.add(job, draft),
                    Ok(Some(_)) => {
                        waiting.push_front(job);
                        break;
                    }
                }
            }
            if !batch.jobs.is_empty() {
                for job in self.settle(batch).await.into_iter().rev() {
                    waiting.push_front(job);
                }
            }
        }
    }

    fn plan(&self, job: &mut Job) -> Result<Option<Draft>, Refusal> {
        let state = self.shared.state();
        if !state.is_in_step {
            return Err(Refusal::not_in_step());
        }
        Ok((job.plan)(&state)?.map(|draft| draft.of(&state)))
    }

    /// Commits, and answers; returns those to be planned anew.
    async fn settle(&mut self, batch: Batch) -> Vec<Job> {
        let Batch { mut jobs, acts, mut commit, guards, .. } = batch;
        commit.compares.extend(guards);
        let key = match audit_key() {
            Ok(key) => key,
            Err(refusal) => {
                jobs.into_iter().for_each(|job| answer(job, Err(refusal.clone())));
                return Vec::new();
            }
        };
        let record = json!({ "v": 1, "at": unix_ms(), "acts": acts }).to_string();
        commit.compares.push(Compare::Absent(key.clone()));
        commit.puts.push(Put { key: key.clone(), value: record.into(), hold: None });
        let outcome = match self.ledger.commit(commit).await {
            Err(LedgerError::Unknown { reason }) => self.look(&key, reason).await,
            other => other,
        };
        match outcome {
            Ok(Committed::Done(revision)) => {
                self.counts.done.fetch_add(1, Ordering::Relaxed);
                let result = self.wait_for(revision).await;
                jobs.into_iter().for_each(|job| answer(job, result.clone()));
                Vec::new()
            }
            Ok(Committed::Conflict) => {
                self.counts.conflicts.fetch_add(1, Ordering::Relaxed);
                self.catch_up().await;
                let mut again = Vec::new();
                for mut job in jobs.drain(..) {
                    job.tries += 1;
                    if job.tries < TRIES {
                        again.push(job);
                    } else {
                        answer(job, Err(Refusal::conflict("others change the same: try again")));
                    }
                }
                again
            }
            Err(error) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "a change cannot be written to the ledger");
                let refusal = Refusal::from(error);
                jobs.into_iter().for_each(|job| answer(job, Err(refusal.clone())));
                Vec::new()
            }
        }
    }

    /// Whether a commit took effect whose answer did not come. Its audit record is put in its place where it is not there yet: then
    /// the commit, which comes only where there is none, never takes effect.
    async fn look(&self, key: &str, reason: String) -> Result<Committed, LedgerError> {
        self.counts.unknown.fetch_add(1, Ordering::Relaxed);
        let until = Instant::now() + LOOK_WITHIN;
        while Instant::now() < until {
            if let Ok(found) = self.ledger.snapshot(key).await {
                let record = found.entries.iter().find(|entry| entry.key == key);
                if let Some(record) = record {
                    let is_void = record.value == VOID;
                    let void = || LedgerError::Unavailable { reason: reason.clone() };
                    return if is_void { Err(void()) } else { Ok(Committed::Done(record.modified)) };
                }
                let absent = Compare::Absent(key.to_owned());
                let _ = self.ledger.commit(Commit::new().only_if(absent).put(key, VOID)).await;
                continue;
            }
            sleep(LOOK_EVERY).await;
        }
        Err(LedgerError::Unknown { reason })
    }

    /// Waits until the state has what came between.
    async fn catch_up(&mut self) {
        // Others that met the same are not to try again at the same moment.
        sleep(Duration::from_millis(1) + CONFLICT_REST.mul_f64(jitter())).await;
        match self.ledger.snapshot(names::KEEPER).await {
            // The answer to that is not needed here: plans are made anew by what there is.
            Ok(found) => drop(self.wait_for(found.revision).await),
            Err(_) => sleep(CONFLICT_REST).await,
        }
    }

    /// Waits until the state has a revision.
    async fn wait_for(&mut self, revision: Revision) -> Result<(), Refusal> {
        let seen = timeout(SEEN_WITHIN, self.seen.wait_for(|seen| *seen >= revision)).await;
        match seen {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Refusal::unavailable("it was written, but is not seen yet: ask again")),
        }
    }
}

/// What stands in place of an audit record whose commit did not take effect.
const VOID: &str = "{\"v\":1,\"acts\":[]}";

fn answer(job: Job, result: Result<(), Refusal>) {
    // Who asked may have gone.
    let _ = job.answer.send(result);
}

impl Batch {
    fn parts(&self) -> usize {
        let Commit { compares, puts, deletes, .. } = &self.commit;
        compares.len() + self.guards.len() + puts.len() + deletes.len()
    }

    fn has_room_for(&self, draft: &Draft) -> bool {
        if self.jobs.is_empty() {
            return true;
        }
        let mut keys = draft.keys();
        self.jobs.len() < PLANS_MAX
            && self.parts() + draft.parts() <= PARTS_MAX
            && self.bytes + draft.bytes() <= BYTES_MAX
            && !keys.any(|key| self.keys.contains(key))
    }

    fn add(&mut self, job: Job, draft: Draft) {
        self.keys.extend(draft.keys().map(str::to_owned));
        self.bytes += draft.bytes();
        let Draft { compares, guards, puts, deletes, act } = draft;
        self.acts.push(act.recorded(&job.who));
        // The same one may guard several.
        for guard in guards {
            if !self.guards.contains(&guard) {
                self.guards.push(guard);
            }
        }
        self.commit.compares.extend(compares);
        self.commit.puts.extend(puts.into_iter().map(|(key, value)| Put { key, value: value.into(), hold: None }));
        self.commit.deletes.extend(deletes);
        self.jobs.push(job);
    }
}

fn compared(compare: &Compare) -> &str {
    match compare {
        Compare::Absent(key) | Compare::Present(key) | Compare::Modified(key, _) => key,
    }
}

impl Draft {
    fn keys(&self) -> impl Iterator<Item = &str> {
        let compared = self.compares.iter().map(compared);
        let puts = self.puts.iter().map(|(key, _)| key.as_str());
        compared.chain(puts).chain(self.deletes.iter().map(String::as_str))
    }

    fn parts(&self) -> usize {
        self.compares.len() + self.guards.len() + self.puts.len() + self.deletes.len()
    }

    /// With what each key that it changes has to be: as the plan saw it, since others may have changed it in the ledger.
    fn of(mut self, state: &State) -> Self {
        let is_compared = |key: &str| self.compares.iter().any(|compare| compared(compare) == key);
        let changed = self.puts.iter().map(|(key, _)| key).chain(&self.deletes).filter(|key| !is_compared(key));
        let unchanged: Vec<Compare> = changed.filter_map(|key| state.keys.unchanged(key)).collect();
        self.compares.extend(unchanged);
        self
    }

    fn bytes(&self) -> usize {
        let puts: usize = self.puts.iter().map(|(_, value)| value.len()).sum();
        puts + self.keys().map(str::len).sum::<usize>() + AUDIT_TEXT_MAX
    }
}

impl Act {
    /// As the audit has it.
    fn recorded(mut self, who: &Who) -> Value {
        for value in [&mut self.before, &mut self.after] {
            if value.to_string().len() > AUDIT_TEXT_MAX / 3 {
                let text: String = value.to_string().chars().take(AUDIT_TEXT_MAX / 8).collect();
                *value = Value::from(text + "...");
            }
        }
        self.why = self.why.chars().take(AUDIT_TEXT_MAX / 8).collect();
        let mut value = json!(self);
        value["who"] = json!(who.name.as_deref());
        value["from"] = json!(who.from);
        value
    }
}

/// Milliseconds of Unix time.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 2020 of a moment of Unix time.
pub(crate) fn since_2020(unix_ms: u64) -> u64 {
    unix_ms.saturating_sub(EPOCH_2020)
}

/// From 0 to 1.
fn jitter() -> f64 {
    f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX)
}

fn audit_key() -> Result<String, Refusal> {
    let random = getrandom::u64().map_err(|error| Refusal::unavailable(format!("no randomness: {error}")))?;
    Ok(format!("{}{:013}-{random:016x}", names::AUDIT, since_2020(unix_ms())))
}
