//! The document of a job, and what its states lead to.
//!
//! ```text
//!  running <── pause, resume ──> paused         tasks:  waiting ──claim──> running ──> done
//!     │ │ └── the last task is done ──> done              ^                 │ │
//!     │ └── a task failed too often ──> failed            └── released, ────┘ └──> failed
//!     │         (resume: running)                             failed once
//!     └── cancel, also of what is paused or failed ──> cancelling ── what cleans is done ──> cancelled
//! ```
//! Done and cancelled have no way out. A task that runs goes to another worker by a claim, without another state between.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::Refusal;
use crate::names;
use crate::topology::{Change, Document};

/// The most tasks of a job.
pub const TASKS_MAX: usize = 256;
/// The largest document of a job, in bytes of JSON.
pub const JOB_MAX: usize = 256 << 10;
/// The largest checkpoint of a task, and the largest parameters of it, in bytes of JSON.
pub const CHECKPOINT_MAX: usize = 4 << 10;
/// The most bytes of the name of a volume.
pub(crate) const VOLUME_MAX: usize = 1 << 10;
/// The most bytes of a reason that are kept.
const WHY_MAX: usize = 500;
/// The most changes of the topology that a job makes at its begin, and at its end.
const CHANGES_MAX: usize = 16;
/// Bounds of the time that a worker may be silent, in seconds.
const LEASE: std::ops::RangeInclusive<u32> = 1..=600;

/// How a job stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Workers may claim its tasks.
    #[default]
    Running,
    /// No task is given out.
    Paused,
    /// A task failed too often.
    Failed,
    /// Told to end: only tasks that clean are given out.
    Cancelling,
    /// Ended before all was done.
    Cancelled,
    /// All is done.
    Done,
}

impl JobState {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Failed => "failed",
            Self::Cancelling => "cancelling",
            Self::Cancelled => "cancelled",
            Self::Done => "done",
        }
    }

    /// Whether nothing more becomes of it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Cancelled | Self::Done)
    }
}

/// How a task stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// It may be claimed once what it comes after is done.
    #[default]
    Waiting,
    /// A worker has it.
    Running,
    /// It failed too often.
    Failed,
    /// It is done.
    Done,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The form of the document.
    #[serde(default = "one")]
    pub v: u32,
    /// What it is: who can do it.
    pub kind: String,
    /// The app that it is for.
    pub app: String,
    /// What it is to do, in the words of its kind.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub params: Value,
    /// How long a worker may be silent before its task is given to another, in seconds.
    #[serde(default = "lease")]
    pub lease_s: u32,
    /// Failures of a task that fail the job.
    #[serde(default = "tries")]
    pub tries: u32,
    /// Changes of the app's topology that take effect with its begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_begin: Vec<Change>,
    /// Changes of the app's topology that take effect with its end, if all is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when_done: Vec<Change>,
    /// Its tasks, in the order in which they are given out.
    pub tasks: Vec<Task>,
    /// How it stands.
    #[serde(default)]
    pub state: JobState,
    /// Why, if that is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Who began it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// When it began, in milliseconds of Unix time.
    #[serde(default)]
    pub begun: u64,
    /// Since when it stands so, in milliseconds of Unix time.
    #[serde(default)]
    pub since: u64,
}

/// A task of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its name, which no other task of the job has.
    pub name: String,
    /// What it is to do, in the words of the job's kind.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub params: Value,
    /// Tasks before it in the list that are to be done first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Its worker is told to finish once these are done: it goes on for as long as they need it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub until: Vec<String>,
    /// What its worker has to have for its files: a directory or a URL; `None`: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// It is done also for a job that is cancelled, when nothing else runs any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cleans: bool,
    /// How it stands.
    #[serde(default)]
    pub state: TaskState,
    /// How often it was claimed.
    #[serde(default)]
    pub term: u64,
    /// Who has it, or had it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// How far it is, as its worker has written down.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub checkpoint: Value,
    /// Failures since the job was begun or resumed.
    #[serde(default)]
    pub failures: u32,
    /// Why it failed last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Since when it stands so, in milliseconds of Unix time.
    #[serde(default)]
    pub since: u64,
}

fn one() -> u32 {
    1
}

fn lease() -> u32 {
    30
}

fn tries() -> u32 {
    3
}

/// A reason as it is kept.
pub(crate) fn kept_why(why: &str) -> String {
    why.chars().filter(|letter| !letter.is_control()).take(WHY_MAX / 4).collect()
}

impl Job {
    /// Reads one that is to begin: nothing of it has happened yet.
    ///
    /// # Errors
    /// 400 with what is wrong with it; 413 if it is too large.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        let mut job: Self =
            serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("this is no job: {error}")))?;
        (job.state, job.since, job.begun) = (JobState::Running, 0, 0);
        (job.why, job.by) = (String::new(), String::new());
        for task in &mut job.tasks {
            let Task { name, params, after, until, volume, cleans, .. } = std::mem::take(task);
            *task = Task { name, params, after, until, volume, cleans, ..Task::default() };
        }
        job.check()?;
        Ok(job)
    }

    fn check(&self) -> Result<(), Refusal> {
        if self.v != 1 {
            return Err(Refusal::invalid(format!("a job of the form {} is not known here", self.v)));
        }
        names::check("a kind of job", &self.kind)?;
        names::check("an app", &self.app)?;
        if self.tasks.is_empty() || self.tasks.len() > TASKS_MAX {
            return Err(Refusal::invalid(format!("a job has 1 to {TASKS_MAX} tasks")));
        }
        if !LEASE.contains(&self.lease_s) || !(1..=100).contains(&self.tries) {
            let (least, most) = (LEASE.start(), LEASE.end());
            return Err(Refusal::invalid(format!("lease_s is {least} to {most}, and tries is 1 to 100")));
        }
        for (place, task) in self.tasks.iter().enumerate() {
            names::check("a task", &task.name)?;
            let (before, all) = (&self.tasks[..place], &self.tasks);
            let is_among = |tasks: &[Task], name: &String| tasks.iter().any(|other| other.name == *name);
            if is_among(before, &task.name) {
                return Err(Refusal::invalid(format!("two tasks are called {}", task.name)));
            }
            if !task.after.iter().all(|name| is_among(before, name)) {
                return Err(Refusal::invalid(format!("{} comes after a task that is not before it", task.name)));
            }
            if !task.until.iter().all(|name| is_among(all, name) && *name != task.name) {
                return Err(Refusal::invalid(format!("{} waits for a task that there is not", task.name)));
            }
            if task.volume.as_ref().is_some_and(|volume| volume.len() > VOLUME_MAX) {
                return Err(Refusal::too_large(format!("a volume has at most {VOLUME_MAX} bytes")));
            }
            if task.params.to_string().len() > CHECKPOINT_MAX {
                return Err(Refusal::too_large(format!("parameters of a task have at most {CHECKPOINT_MAX} bytes")));
            }
        }
        for changes in [&self.at_begin, &self.when_done] {
            let are_known =
                changes.iter().all(|change| matches!(change, Change::WriteOnly { .. } | Change::Weight { .. }));
            if !are_known || changes.len() > CHANGES_MAX {
                return Err(Refusal::invalid(format!(
                    "a job changes `write_only` and `weight` of a topology, and {CHANGES_MAX} of them at most"
                )));
            }
        }
        self.check_size()
    }

    pub(crate) fn check_size(&self) -> Result<(), Refusal> {
        if self.text().len() > JOB_MAX {
            return Err(Refusal::too_large(format!("a job has at most {JOB_MAX} bytes")));
        }
        Ok(())
    }

    /// As it is kept.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// As lists and feeds have it: without its tasks, but with how many stand how.
    pub fn in_short(&self) -> Value {
        let count = |state| self.tasks.iter().filter(|task| task.state == state).count();
        json!({
            "kind": self.kind, "app": self.app, "state": self.state, "why": self.why, "by": self.by, "begun": self.begun,
            "since": self.since, "tasks": self.tasks.len(), "waiting": count(TaskState::Waiting),
            "running": count(TaskState::Running), "failed": count(TaskState::Failed), "done": count(TaskState::Done),
        })
    }

    /// Whether a worker with these volumes can do a task.
    pub(crate) fn is_for(task: &Task, volumes: &[String]) -> bool {
        task.volume.as_ref().is_none_or(|volume| volumes.contains(volume))
    }

    /// A task of this name.
    pub fn task(&self, name: &str) -> Option<&Task> {
        self.tasks.iter().find(|task| task.name == name)
    }

    pub(crate) fn task_mut(&mut self, name: &str) -> Option<&mut Task> {
        self.tasks.iter_mut().find(|task| task.name == name)
    }

    /// Whether all of these are done.
    pub fn are_done(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.task(name).is_some_and(|task| task.state == TaskState::Done))
    }

    /// Whether it asks for the same as another, whatever has become of either.
    pub(crate) fn asks_as(&self, other: &Self) -> bool {
        let asked = |job: &Self| {
            let tasks: Vec<_> = job.tasks.iter().map(|task| (task.name.clone(), task.params.clone())).collect();
            (job.kind.clone(), job.app.clone(), job.params.clone(), tasks)
        };
        asked(self) == asked(other)
    }

    pub(crate) fn stand(&mut self, state: JobState, why: &str, now: u64) {
        (self.state, self.why, self.since) = (state, kept_why(why), now);
    }

    /// What follows from the states of its tasks; true: all is done.
    pub(crate) fn settle(&mut self, now: u64) -> bool {
        match self.state {
            JobState::Running => {
                if let Some(failed) = self.tasks.iter().find(|task| task.state == TaskState::Failed) {
                    let why = format!("{}: {}", failed.name, failed.why);
                    self.stand(JobState::Failed, &why, now);
                } else if self.tasks.iter().all(|task| task.state == TaskState::Done) {
                    self.stand(JobState::Done, "", now);
                    return true;
                }
            }
            JobState::Cancelling => {
                let is_settled = |task: &Task| matches!(task.state, TaskState::Done | TaskState::Failed);
                if self.tasks.iter().filter(|task| task.cleans).all(is_settled) {
                    let why = std::mem::take(&mut self.why);
                    self.stand(JobState::Cancelled, &why, now);
                }
            }
            JobState::Paused | JobState::Failed | JobState::Cancelled | JobState::Done => {}
        }
        false
    }
}

/// The document of a topology after changes; `None`: it is so already.
///
/// # Errors
/// What [`Change::apply`] says of what is not there.
pub(crate) fn changed(before: &Document, changes: &[Change]) -> Result<Option<Document>, Refusal> {
    let mut after = before.clone();
    for change in changes {
        match change.apply(Some(&after), crate::topology::Found::default()) {
            Ok(document) => after = document,
            // Of these changes none is refused so but for being there already.
            Err(refusal) if refusal.status == 409 => {}
            Err(refusal) => return Err(refusal),
        }
    }
    if after.epoch == before.epoch {
        return Ok(None);
    }
    after.epoch = before.epoch + 1;
    Ok(Some(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &Value) -> Result<Job, u16> {
        Job::read(value.to_string().as_bytes()).map_err(|refusal| refusal.status)
    }

    fn job(tasks: &Value) -> Value {
        json!({ "kind": "k", "app": "a", "tasks": tasks })
    }

    #[test]
    fn a_job_that_begins_has_nothing_behind_it() {
        let of_old = json!([{ "name": "t", "state": "done", "term": 7, "worker": "w", "checkpoint": 1, "why": "x" }]);
        let mut asked = job(&of_old);
        (asked["state"], asked["by"]) = (json!("done"), json!("root"));
        let job = read(&asked).unwrap();
        assert_eq!((job.state, job.by.as_str()), (JobState::Running, ""));
        assert_eq!(job.tasks[0], Task { name: "t".into(), ..Task::default() });
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let many: Vec<Value> = (0..=TASKS_MAX).map(|number| json!({ "name": format!("t{number}") })).collect();
        for (tasks, status) in [
            (json!([]), 400),
            (json!(many), 400),
            (json!([{ "name": "a/b" }]), 400),
            (json!([{ "name": "t" }, { "name": "t" }]), 400),
            (json!([{ "name": "t", "after": ["u"] }, { "name": "u" }]), 400),
            (json!([{ "name": "t", "until": ["t"] }]), 400),
            (json!([{ "name": "t", "until": ["u"] }]), 400),
            (json!([{ "name": "t", "unknown": 1 }]), 400),
            (json!([{ "name": "t", "params": "x".repeat(CHECKPOINT_MAX) }]), 413),
        ] {
            assert_eq!(read(&job(&tasks)), Err(status), "{tasks}");
        }
        let mut large = job(&json!([{ "name": "t" }]));
        large["params"] = json!("x".repeat(JOB_MAX));
        assert_eq!(read(&large), Err(413));
        let mut moves = job(&json!([{ "name": "t" }]));
        moves["when_done"] = json!([{ "remove_replica": { "name": "a" } }]);
        assert_eq!(read(&moves), Err(400));
        moves["when_done"] = json!([{ "write_only": { "replica": "a", "on": false } }]);
        assert!(read(&moves).is_ok());
    }

    #[test]
    fn changes_of_a_topology_that_are_there_already_change_nothing() {
        let create: Change = serde_json::from_value(json!({ "create": { "replicas": [
            { "name": "a", "zone": "a", "slots": ["a0"] }, { "name": "b", "zone": "b", "slots": ["b0"] }] } }))
        .unwrap();
        let before = create.apply(None, crate::topology::Found::default()).unwrap();
        let write_only = |replica: &str, on| Change::WriteOnly { replica: replica.into(), on };
        assert_eq!(changed(&before, &[write_only("b", false)]), Ok(None));
        let after = changed(&before, &[write_only("a", false), write_only("b", true)]).unwrap().unwrap();
        assert_eq!((after.epoch, after.replicas[1].write_only), (before.epoch + 1, true));
        assert_eq!(changed(&before, &[write_only("c", true)]).unwrap_err().status, 404);
    }
}
