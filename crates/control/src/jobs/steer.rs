//! Beginning jobs, showing them, and telling them to pause, go on or end.

use std::sync::Arc;

use moneta_ledger::{Compare, Revision};
use serde_json::{Value, json};

use super::board::Jobs;
use super::document::{Job, JobState, Task, TaskState, changed};
use crate::commits::{Act, Draft, Who, unix_ms};
use crate::control::Control;
use crate::error::Refusal;
use crate::instances::{act, put_topology};
use crate::names::{self, short};
use crate::state::{Environment, State};
use crate::topology::Change;

/// The most jobs of an environment, those that are over among them: the oldest of these makes room.
pub const JOBS_MAX: usize = 200;
/// The most of them that are not over.
pub const OPEN_MAX: usize = 100;

/// What a job is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Steer {
    /// To give out no task, and have workers stop.
    Pause,
    /// To go on; what failed is tried anew.
    Resume,
    /// To end.
    Cancel,
}

impl Steer {
    fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
        }
    }
}

impl Control {
    /// Begins a job. Asked for again it changes nothing.
    ///
    /// # Errors
    /// 409 if there is another one of this id, one that is open begins with the same change, or too many are open; what the changes at its begin say; 503 without the ledger.
    pub async fn begin_job(&self, who: Who, environment: &str, id: &str, job: Job) -> Result<Value, Refusal> {
        names::check("an environment", environment)?;
        names::check("a job", id)?;
        let (of, name) = (environment.to_owned(), id.to_owned());
        let by = who.name.as_deref().unwrap_or_default().to_owned();
        let plan = move |state: &State| {
            let environment = state.environment(&of);
            if environment.is_none() && state.environment_count() >= crate::state::ENVIRONMENTS_MAX {
                return Err(Refusal::conflict("there are too many environments"));
            }
            let key = names::job(&of, &name);
            let mut draft =
                Draft { act: Act { what: "begin_job".into(), ..act(&of, &job.app, &name) }, ..Draft::default() };
            if let Some(environment) = environment {
                if let Some((_, there)) = environment.jobs.get(&name) {
                    return if there.asks_as(&job) { Ok(None) } else { Err(Refusal::conflict("there is such a job")) };
                }
                make_room(&mut draft, &of, &environment.jobs)?;
                refuse_same(&environment.jobs, &job)?;
            }
            change_topology(&mut draft, environment, (&of, &job.app), &job.at_begin)?;
            let begun = Job { by: by.clone(), begun: unix_ms(), since: unix_ms(), ..job.clone() };
            draft.act.after = json!({ "kind": begun.kind, "tasks": begun.tasks.len(), "params": begun.params });
            draft.compares.push(Compare::Absent(key.clone()));
            draft.puts.push((key, begun.text()));
            Ok(Some(draft))
        };
        self.commits.commit(who, Box::new(plan)).await?;
        self.job(environment, id)
    }

    /// A job as it is shown.
    ///
    /// # Errors
    /// 404 if there is none.
    pub fn job(&self, environment: &str, id: &str) -> Result<Value, Refusal> {
        let state = self.state_in_step()?;
        let now = self.shared.now();
        let of = state.environment(environment);
        let found = of.and_then(|of| Some((&of.jobs, of.jobs.get(id)?)));
        found.map(|(jobs, (_, job))| jobs.shown(&id.into(), job, now)).ok_or_else(|| unknown(id))
    }

    /// All jobs in short, the latest first; `app`: of one app alone.
    ///
    /// # Errors
    /// 503 if this process is not in step with its ledger.
    pub fn jobs(&self, environment: &str, app: Option<&str>) -> Result<Value, Refusal> {
        let state = self.state_in_step()?;
        let now = self.shared.now();
        let mut all = Vec::new();
        if let Some(of) = state.environment(environment) {
            for (id, _, job) in of.jobs.iter().filter(|(_, _, job)| app.is_none_or(|app| job.app == app)) {
                let live = job.tasks.iter().filter(|task| of.jobs.is_live(id, job, task, now)).count();
                let mut page = job.in_short();
                (page["id"], page["live"]) = (json!(**id), json!(live));
                all.push(page);
            }
        }
        all.sort_by_key(|job| std::cmp::Reverse(job["begun"].as_u64()));
        Ok(json!({ "jobs": all }))
    }

    /// Tells a job to pause, go on or end.
    ///
    /// # Errors
    /// 404 if there is none; 409 if it is over; 503 without the ledger.
    pub async fn steer_job(
        &self,
        who: Who,
        environment: &str,
        id: &str,
        steer: Steer,
        why: &str,
    ) -> Result<Value, Refusal> {
        let why = why.to_owned();
        let plan = JobPlan { environment: environment.into(), id: id.into(), what: format!("{}_job", steer.name()) };
        let change = move |job: &mut Job| {
            let now = unix_ms();
            let next = match (steer, job.state) {
                (_, JobState::Done | JobState::Cancelled) => {
                    return Err(Refusal::conflict(format!("the job is {} already", job.state.name())));
                }
                (Steer::Pause, JobState::Running) => JobState::Paused,
                (Steer::Resume, JobState::Paused | JobState::Failed) => JobState::Running,
                (Steer::Cancel, JobState::Running | JobState::Paused | JobState::Failed) => JobState::Cancelling,
                (Steer::Pause, JobState::Failed) | (Steer::Pause | Steer::Resume, JobState::Cancelling) => {
                    return Err(Refusal::conflict(format!("the job is {}", job.state.name())));
                }
                (Steer::Pause, JobState::Paused)
                | (Steer::Resume, JobState::Running)
                | (Steer::Cancel, JobState::Cancelling) => return Ok(false),
            };
            if next != JobState::Paused {
                for task in &mut job.tasks {
                    task.failures = 0;
                    if task.state == TaskState::Failed {
                        (task.state, task.since) = (TaskState::Waiting, now);
                    }
                }
            }
            job.stand(next, &why, now);
            // Where nothing cleans, it is over now.
            job.settle(now);
            Ok(true)
        };
        self.change_job(who, plan, change).await?;
        self.job(environment, id)
    }

    /// Commits what `change` makes of a job; false: nothing.
    pub(super) async fn change_job(
        &self,
        who: Who,
        plan: JobPlan,
        mut change: impl FnMut(&mut Job) -> Result<bool, Refusal> + Send + 'static,
    ) -> Result<(), Refusal> {
        self.commits.commit(who, Box::new(move |state| plan.draft(state, |_, job| change(job)))).await
    }
}

/// Changes one job.
pub(super) struct JobPlan {
    pub(super) environment: String,
    pub(super) id: String,
    /// For the audit.
    pub(super) what: String,
}

impl JobPlan {
    pub(super) fn draft(
        &self,
        state: &State,
        change: impl FnOnce(&Jobs, &mut Job) -> Result<bool, Refusal>,
    ) -> Result<Option<Draft>, Refusal> {
        let Self { environment: of, id, what } = self;
        let environment = state.environment(of);
        let Some((environment, (revision, before))) =
            environment.and_then(|environment| Some((environment, environment.jobs.get(id)?)))
        else {
            return Err(unknown(id));
        };
        let mut job = Job::clone(before);
        if !change(&environment.jobs, &mut job)? {
            return Ok(None);
        }
        let mut draft = Draft { act: Act { what: what.clone(), ..act(of, &job.app, id) }, ..Draft::default() };
        if job.state != before.state {
            (draft.act.before, draft.act.after) = (json!(before.state), json!(job.state));
            draft.act.why.clone_from(&job.why);
        }
        if job.state == JobState::Done && before.state != JobState::Done {
            let place = (of.as_str(), before.app.as_str());
            if let Err(refusal) = change_topology(&mut draft, Some(environment), place, &job.when_done) {
                // Without the end that was asked for it is not done; the last task is tried again by a resume.
                (draft.compares, draft.puts, draft.deletes) = (Vec::new(), Vec::new(), Vec::new());
                if let Some(last) = job.tasks.last_mut() {
                    last.state = TaskState::Failed;
                    last.why = format!("the topology cannot be changed: {refusal}");
                }
                job.state = JobState::Running;
                job.settle(unix_ms());
            }
        }
        job.check_size()?;
        put_job(&mut draft, (of, id), *revision, &job);
        Ok(Some(draft))
    }
}

/// Puts a job that is changed.
pub(super) fn put_job(draft: &mut Draft, (environment, id): (&str, &str), before: Revision, job: &Job) {
    let key = names::job(environment, id);
    draft.compares.push(Compare::Modified(key.clone(), before));
    draft.puts.push((key, job.text()));
}

/// The job or the task is not there.
pub(super) fn unknown(id: &str) -> Refusal {
    Refusal::missing(format!("there is no job `{}`", short(id)))
}

/// A task of a job.
pub(super) fn task<'a>(job: &'a Job, name: &str) -> Result<&'a Task, Refusal> {
    job.task(name).ok_or_else(|| Refusal::missing(format!("the job has no task `{}`", short(name))))
}

/// Refuses a job that begins with a change that an open one began with: both would end it, each at its own end.
fn refuse_same(jobs: &Jobs, job: &Job) -> Result<(), Refusal> {
    let is_same = |open: &Job| {
        !open.state.is_over() && open.app == job.app && open.at_begin.iter().any(|change| job.at_begin.contains(change))
    };
    match jobs.iter().find(|(_, _, open)| is_same(open)) {
        Some((id, ..)) => Err(Refusal::conflict(format!(
            "the job {id}, which is not over, began with the same change of the topology: wait for it, or cancel it"
        ))),
        None => Ok(()),
    }
}

/// Removes the oldest job that is over where there is no room for one more.
pub(super) fn make_room(draft: &mut Draft, environment: &str, jobs: &Jobs) -> Result<(), Refusal> {
    let ended = jobs.ended_before(u64::MAX);
    if jobs.count() - ended.len() >= OPEN_MAX {
        return Err(Refusal::conflict(format!("{OPEN_MAX} jobs are open: wait for one of them, or cancel it")));
    }
    if jobs.count() >= JOBS_MAX {
        draft.deletes.extend(ended.first().map(|id| names::job(environment, id)));
    }
    Ok(())
}

fn change_topology(
    draft: &mut Draft,
    environment: Option<&Environment>,
    (of, app): (&str, &str),
    changes: &[Change],
) -> Result<(), Refusal> {
    if changes.is_empty() {
        return Ok(());
    }
    let before = environment.and_then(|environment| environment.topology(app));
    let (revision, document) = before.ok_or_else(|| Refusal::missing("the app has no topology"))?;
    if let Some(after) = changed(document, changes)? {
        put_topology(draft, of, &Arc::<str>::from(app), Some((*revision, document.epoch)), &after);
    }
    Ok(())
}
