//! What workers ask: for a task, and what they say of it.
//!
//! ```text
//!  worker ── claim ──> term + 1, committed ── renewals with progress, in RAM ──┬── checkpoint, committed ──┐
//!                                              ^────────────────────────────────┴──────────────────────────┘
//!                                              └── end: done, failed, released: committed
//! ```
//! Each of them names the term. One that is not in force is answered 409: another worker has the task, and what this one did since
//! counts for nothing here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::board::Jobs;
use super::document::{CHECKPOINT_MAX, Job, JobState, Task, TaskState, VOLUME_MAX, kept_why};
use super::steer::{JobPlan, put_job, task, unknown};
use crate::commits::{Act, Draft, Who, unix_ms};
use crate::control::{Access, Control};
use crate::error::Refusal;
use crate::instances::act;
use crate::leases::Moment;
use crate::names;
use crate::state::State;

/// The most bytes of JSON of a progress that are kept.
const PROGRESS_MAX: usize = 1 << 10;
/// The most volumes of one claim.
const VOLUMES_MAX: usize = 64;
/// The most kinds of one claim.
const KINDS_MAX: usize = 16;

/// A worker asks for a task.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// Its name, which no other worker has that runs.
    pub worker: String,
    /// The kinds of jobs that it can do.
    pub kinds: Vec<String>,
    /// What it has for files of jobs: directories and URLs. It is given no task that needs another.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// Only jobs of this app.
    #[serde(default)]
    pub app: Option<String>,
    /// Only this job.
    #[serde(default)]
    pub job: Option<String>,
}

/// What a worker says of its task.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Said {
    /// Its name.
    pub worker: String,
    /// The term of its claim.
    pub term: u64,
    /// How far it is, for people.
    #[serde(default)]
    pub progress: Option<Value>,
    /// The progress, written down for the worker that gets the task next.
    #[serde(default)]
    pub checkpoint: Option<Value>,
    /// It works on it no more.
    #[serde(default)]
    pub end: Option<End>,
    /// Why it failed.
    #[serde(default)]
    pub why: String,
}

/// How work on a task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// It is done.
    Done,
    /// It did not work.
    Failed,
    /// Another may go on.
    Released,
}

impl Control {
    /// Gives a worker a task, if there is one that it may have: the first that can be done, of the oldest job.
    ///
    /// # Errors
    /// 400 for names that are none; 503 without the ledger.
    pub async fn claim(
        &self,
        who: Who,
        access: &Arc<dyn Access>,
        environment: &str,
        ask: Ask,
    ) -> Result<Value, Refusal> {
        names::check("an environment", environment)?;
        names::check("a worker", &ask.worker)?;
        if ask.kinds.len() > KINDS_MAX {
            return Err(Refusal::too_large(format!("a worker asks for {KINDS_MAX} kinds of jobs at most")));
        }
        if ask.volumes.len() > VOLUMES_MAX || ask.volumes.iter().any(|volume| volume.len() > VOLUME_MAX) {
            return Err(Refusal::too_large(format!(
                "a worker has {VOLUMES_MAX} volumes at most, of {VOLUME_MAX} bytes each"
            )));
        }
        let own = self.members.name().map(str::to_owned);
        let search =
            Search { who: who.clone(), access: Arc::clone(access), environment: environment.to_owned(), ask, own };
        {
            let mut state = self.state_in_step()?;
            let now = self.shared.now();
            let Some(of) = state.environment_mut(environment) else { return Ok(json!({ "task": null })) };
            of.jobs.tick(now);
            if search.find(&state, now).is_none() {
                return Ok(json!({ "task": null }));
            }
        }
        let found = Arc::new(Mutex::new(None));
        let (of_plan, shared) = (Arc::clone(&found), Arc::clone(&self.shared));
        let plan = move |state: &State| {
            let (draft, taken) = search.give(state, shared.now()).unzip();
            *of_plan.lock() = taken;
            Ok(draft)
        };
        self.commits.commit(who, Box::new(plan)).await?;
        let answer = found.lock().take();
        Ok(answer.map_or_else(
            || json!({ "task": null }),
            |Taken { answer, is_of_another }| {
                self.shared.tasks.taken_over.fetch_add(u64::from(is_of_another), Ordering::Relaxed);
                answer
            },
        ))
    }

    /// Takes what a worker says of its task; answers what it is to do.
    ///
    /// # Errors
    /// 403 if its job is of another's app; 404 if there is no such task; 409 if the term is over; 413 if a checkpoint is too large.
    pub async fn report(
        &self,
        who: Who,
        access: &dyn Access,
        (environment, id, name): (&str, &str, &str),
        said: Said,
    ) -> Result<Value, Refusal> {
        if said.checkpoint.as_ref().is_some_and(|value| value.to_string().len() > CHECKPOINT_MAX) {
            return Err(Refusal::too_large(format!("a checkpoint has at most {CHECKPOINT_MAX} bytes")));
        }
        {
            let mut state = self.state_in_step()?;
            let now = self.shared.now();
            let of = state.environment_mut(environment).ok_or_else(|| unknown(id))?;
            let job = Arc::clone(&of.jobs.get(id).ok_or_else(|| unknown(id))?.1);
            if !access.registers(&who, environment, &job.app) {
                return Err(Refusal::forbidden("the app of this job is not yours"));
            }
            of.jobs.tick(now);
            let task = in_force(&job, name, &said).inspect_err(|_| {
                self.shared.tasks.refused.fetch_add(1, Ordering::Relaxed);
            })?;
            let word = Jobs::word(&job, task);
            let is_short = |value: &Value| value.to_string().len() <= PROGRESS_MAX;
            let is_late = of.jobs.renew(id, name, said.progress.clone().filter(is_short), now);
            self.members.peers.note_task(environment, id, name);
            self.shared.tasks.renewed.fetch_add(1, Ordering::Relaxed);
            self.shared.tasks.late.fetch_add(u64::from(is_late), Ordering::Relaxed);
            if said.checkpoint.is_none() && said.end.is_none() {
                return Ok(json!({ "word": word.name() }));
            }
        }
        let what = said.end.map_or("checkpoint", |end| match end {
            End::Done => "task_done",
            End::Failed => "task_failed",
            End::Released => "task_released",
        });
        let plan = JobPlan { environment: environment.into(), id: id.into(), what: what.into() };
        let of_task = name.to_owned();
        self.change_job(who, plan, move |job| takes(job, &of_task, &said)).await?;
        let state = self.state_in_step()?;
        let job = state.environment(environment).and_then(|of| of.jobs.get(id)).ok_or_else(|| unknown(id))?;
        Ok(json!({ "word": Jobs::word(&job.1, task(&job.1, name)?).name() }))
    }
}

/// The task, if the worker has it under the term that is in force.
fn in_force<'a>(job: &'a Job, name: &str, said: &Said) -> Result<&'a Task, Refusal> {
    let task = task(job, name)?;
    let is_its = task.state == TaskState::Running
        && task.term == said.term
        && task.worker.as_deref() == Some(said.worker.as_str());
    if is_its && !job.state.is_over() {
        return Ok(task);
    }
    let term = task.term;
    Err(Refusal::conflict(format!("the term {} of {name} is over: {term} is the last one", said.term)))
}

/// What a worker says becomes part of the job.
fn takes(job: &mut Job, name: &str, said: &Said) -> Result<bool, Refusal> {
    let now = unix_ms();
    let cleans = in_force(job, name, said)?.cleans;
    let is_ending = job.state == JobState::Cancelling && !cleans;
    let tries = job.tries;
    let task = job.task_mut(name).ok_or_else(|| unknown(name))?;
    if let Some(checkpoint) = &said.checkpoint {
        task.checkpoint = checkpoint.clone();
    }
    let state = match said.end {
        None => TaskState::Running,
        // What is asked for no more is not done, nor has it failed.
        Some(_) if is_ending => TaskState::Waiting,
        Some(End::Done) => TaskState::Done,
        Some(End::Released) => TaskState::Waiting,
        Some(End::Failed) => {
            task.failures += 1;
            task.why = kept_why(&said.why);
            if task.failures >= tries { TaskState::Failed } else { TaskState::Waiting }
        }
    };
    if state != task.state {
        (task.state, task.since) = (state, now);
    }
    job.settle(now);
    Ok(true)
}

/// Looks for a task for a worker.
struct Search {
    who: Who,
    access: Arc<dyn Access>,
    environment: String,
    ask: Ask,
    /// The name of this member, if there are others.
    own: Option<String>,
}

/// A task that was given.
struct Taken {
    answer: Value,
    /// Whether another worker had it, and fell silent.
    is_of_another: bool,
}

impl Search {
    /// The job and the task that the worker may have.
    fn find(&self, state: &State, now: Moment) -> Option<(Arc<str>, Arc<Job>, String)> {
        let of = state.environment(&self.environment)?;
        let at = (now, state.heard_until(self.own.as_deref(), now));
        let Ask { worker, kinds, volumes, app, job } = &self.ask;
        let is_wanted = |id: &str, of: &Job| {
            kinds.contains(&of.kind)
                && app.as_ref().is_none_or(|app| of.app == *app)
                && job.as_ref().is_none_or(|job| *job == *id)
        };
        let mut jobs: Vec<_> = of.jobs.iter().filter(|(id, _, job)| is_wanted(id, job)).collect();
        jobs.sort_by_key(|(_, _, job)| job.begun);
        let mut allowed = jobs.into_iter().filter(|(_, _, job)| !job.state.is_over());
        allowed.find_map(|(id, _, job)| {
            let may = |task: &&Task| Job::is_for(task, volumes) && of.jobs.may_claim(id, job, task, worker, at);
            let task = job.tasks.iter().find(may)?;
            let may = self.access.registers(&self.who, &self.environment, &job.app);
            may.then(|| (Arc::clone(id), Arc::clone(job), task.name.clone()))
        })
    }

    /// The change that gives it the task, and what it is told.
    fn give(&self, state: &State, now: Moment) -> Option<(Draft, Taken)> {
        let (id, before, name) = self.find(state, now)?;
        let (revision, _) = state.environment(&self.environment)?.jobs.get(&id)?;
        let mut job = Job::clone(&before);
        let task = job.task_mut(&name)?;
        let was_running = task.state == TaskState::Running;
        let previous = task.worker.replace(self.ask.worker.clone());
        (task.state, task.since) = (TaskState::Running, unix_ms());
        task.term += 1;
        let answer = json!({
            "job": *id, "kind": before.kind, "app": before.app, "params": before.params, "lease_s": before.lease_s,
            "task": task.name, "term": task.term, "task_params": task.params, "checkpoint": task.checkpoint,
        });
        let act = Act {
            what: "claim".into(),
            before: json!({ "worker": previous }),
            after: json!({ "task": name, "term": task.term, "worker": self.ask.worker }),
            ..act(&self.environment, &before.app, &id)
        };
        let is_of_another = was_running && previous.as_ref() != Some(&self.ask.worker);
        let mut draft = Draft { act, ..Draft::default() };
        put_job(&mut draft, (&self.environment, &id), *revision, &job);
        Some((draft, Taken { answer, is_of_another }))
    }
}
