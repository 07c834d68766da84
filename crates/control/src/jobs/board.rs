//! The jobs of an environment as they are now: their documents, and in RAM alone who renews which task, and how far that is.
//! Renewals that other members hear are handed to this one (`handing`), so that each knows all.
//!
//! Everything is a function of a monotonic clock that is passed in. A process that starts, or was stopped, grants all a full lease.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use moneta_ledger::Revision;
use serde_json::{Value, json};

use super::document::{Job, JobState, Task, TaskState};
use crate::leases::Moment;

/// A pause between ticks from which on it is this process that was stopped, in milliseconds: renewals of that time were not heard.
const PAUSE: u64 = 5_000;
/// How long a task rests after a failure, in milliseconds; after the second twice as long, and so on.
const REST: u64 = 2_000;
/// The longest rest, in milliseconds.
const REST_MAX: u64 = 60_000;

/// The jobs of an environment.
#[derive(Debug, Default)]
pub struct Jobs {
    known: BTreeMap<Arc<str>, (Revision, Arc<Job>)>,
    /// By job and task: of those that were claimed and are not done.
    leases: HashMap<(Arc<str>, String), Lease>,
    ticked: Option<Moment>,
}

#[derive(Clone, Debug)]
struct Lease {
    term: u64,
    state: TaskState,
    /// When its worker was heard of; of one that waits: since when.
    seen: Moment,
    progress: Value,
}

/// Tasks of jobs that are not over, by how they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// No worker has it.
    pub waiting: u64,
    /// A worker has it, and renews.
    pub running: u64,
    /// Its worker has not renewed for a lease.
    pub silent: u64,
    /// It failed too often.
    pub failed: u64,
    /// It is done.
    pub done: u64,
}

impl std::ops::AddAssign for TaskCounts {
    fn add_assign(&mut self, other: Self) {
        self.waiting += other.waiting;
        self.running += other.running;
        self.silent += other.silent;
        self.failed += other.failed;
        self.done += other.done;
    }
}

/// What a worker is told with each answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Go on.
    Go,
    /// Bring it to its end: what it was needed for is done.
    Finish,
    /// Write down how far it is, and give it back.
    Stop,
}

impl Word {
    /// As it is told.
    pub fn name(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Finish => "finish",
            Self::Stop => "stop",
        }
    }
}

impl Jobs {
    /// A job by its id.
    pub fn get(&self, id: &str) -> Option<&(Revision, Arc<Job>)> {
        self.known.get(id)
    }

    /// All jobs.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, Revision, &Arc<Job>)> {
        self.known.iter().map(|(id, (revision, job))| (id, *revision, job))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// Takes a document as the ledger has it.
    pub(crate) fn put(&mut self, id: &str, revision: Revision, job: Job, now: Moment) {
        let id: Arc<str> = id.into();
        for task in &job.tasks {
            let key = (Arc::clone(&id), task.name.clone());
            if task.term == 0 || task.state == TaskState::Done {
                self.leases.remove(&key);
                continue;
            }
            let is_same = |lease: &&mut Lease| (lease.term, lease.state) == (task.term, task.state);
            if self.leases.get_mut(&key).as_ref().filter(|lease| is_same(lease)).is_none() {
                let progress = Value::Null;
                self.leases.insert(key, Lease { term: task.term, state: task.state, seen: now, progress });
            }
        }
        self.known.insert(id, (revision, Arc::new(job)));
    }

    /// A job is gone.
    pub(crate) fn remove(&mut self, id: &str) {
        self.known.remove(id);
        self.leases.retain(|(of, _), _| **of != *id);
    }

    /// Those of the same that was read before: leases go on.
    pub(crate) fn take_leases(&mut self, before: Self) {
        (self.leases, self.ticked) = (before.leases, before.ticked);
    }

    /// Drops leases of jobs that are not there.
    pub(crate) fn tidy(&mut self) {
        let known = &self.known;
        self.leases.retain(|(id, _), _| known.contains_key(id));
    }

    /// Time has passed. After a long pause all are granted a full lease.
    pub fn tick(&mut self, now: Moment) {
        if self.ticked.is_some_and(|before| now.since(before) > PAUSE) {
            self.leases.values_mut().for_each(|lease| lease.seen = now);
        }
        self.ticked = Some(now);
    }

    fn lease(&self, id: &Arc<str>, task: &Task) -> Option<&Lease> {
        self.leases.get(&(Arc::clone(id), task.name.clone())).filter(|lease| lease.term == task.term)
    }

    /// Whether a task has a worker that renews it.
    pub fn is_live(&self, id: &Arc<str>, job: &Job, task: &Task, now: Moment) -> bool {
        let is_silent = |lease: &Lease| now.since(lease.seen) > u64::from(job.lease_s) * 1_000;
        task.state == TaskState::Running && self.lease(id, task).is_some_and(|lease| !is_silent(lease))
    }

    fn rests(&self, id: &Arc<str>, task: &Task, now: Moment) -> bool {
        let rest = REST.saturating_mul(u64::from(task.failures)).min(REST_MAX);
        task.failures > 0 && self.lease(id, task).is_some_and(|lease| now.since(lease.seen) < rest)
    }

    /// Whether a worker may have a task now. A worker that has it may have it again: it was restarted, or missed the answer.
    /// `known`: the moment up to which the renewals that all members heard are known here; `now` where there are no others.
    pub fn may_claim(
        &self,
        id: &Arc<str>,
        job: &Job,
        task: &Task,
        worker: &str,
        (now, known): (Moment, Moment),
    ) -> bool {
        let is_its = task.worker.as_deref() == Some(worker);
        let is_open = match task.state {
            TaskState::Waiting => !self.rests(id, task, now),
            TaskState::Running => is_its || !self.is_live(id, job, task, known),
            TaskState::Failed | TaskState::Done => false,
        };
        is_open
            && match job.state {
                JobState::Running => job.are_done(&task.after),
                JobState::Cancelling => {
                    let mut others = job.tasks.iter().filter(|other| other.name != task.name);
                    task.cleans && !others.any(|other| self.is_live(id, job, other, known))
                }
                _ => false,
            }
    }

    /// A worker is heard of, which has the term in force; returns whether that was later than its lease allows.
    pub(crate) fn renew(&mut self, id: &str, task: &str, progress: Option<Value>, now: Moment) -> bool {
        let allowed = self.known.get(id).map_or(0, |(_, job)| u64::from(job.lease_s) * 1_000);
        let Some(lease) = self.leases.get_mut(&(Arc::from(id), task.to_owned())) else { return false };
        let is_late = now.since(lease.seen) > allowed;
        lease.seen = now;
        lease.progress = progress.unwrap_or_else(|| std::mem::take(&mut lease.progress));
        is_late
    }

    /// The renewal of a task that was heard last: the term, when, and the progress that came with it.
    pub(crate) fn heard(&self, id: &Arc<str>, task: &str) -> Option<(u64, Moment, &Value)> {
        let lease = self.leases.get(&(Arc::clone(id), task.to_owned()))?;
        Some((lease.term, lease.seen, &lease.progress))
    }

    /// Another member heard a worker at a moment. Of a term that is not in force here, or that was heard of since, it says nothing.
    pub(crate) fn heard_elsewhere(&mut self, id: &str, task: &str, term: u64, progress: Value, at: Moment) {
        let lease = self.leases.get_mut(&(Arc::from(id), task.to_owned()));
        if let Some(lease) = lease.filter(|lease| lease.term == term && lease.seen <= at) {
            (lease.seen, lease.progress) = (at, progress);
        }
    }

    /// Numbers of tasks of jobs that are not over: waiting, running, of these with a silent worker, failed, done.
    pub fn counts(&self, now: Moment) -> TaskCounts {
        let mut counts = TaskCounts::default();
        for (id, (_, job)) in self.known.iter().filter(|(_, (_, job))| !job.state.is_over()) {
            for task in &job.tasks {
                match task.state {
                    TaskState::Waiting => counts.waiting += 1,
                    TaskState::Running if self.is_live(id, job, task, now) => counts.running += 1,
                    TaskState::Running => counts.silent += 1,
                    TaskState::Failed => counts.failed += 1,
                    TaskState::Done => counts.done += 1,
                }
            }
        }
        counts
    }

    /// What the worker of a task is to do.
    pub fn word(job: &Job, task: &Task) -> Word {
        match job.state {
            JobState::Running if !task.until.is_empty() && job.are_done(&task.until) => Word::Finish,
            JobState::Running => Word::Go,
            JobState::Cancelling if task.cleans => Word::Go,
            _ => Word::Stop,
        }
    }

    /// The tasks of a job as they are shown: with progress, and how long ago their workers were heard of.
    pub fn shown(&self, id: &Arc<str>, job: &Job, now: Moment) -> Value {
        let mut page = json!(job);
        page["id"] = json!(**id);
        let tasks = page["tasks"].as_array_mut();
        for (shown, task) in tasks.into_iter().flatten().zip(&job.tasks) {
            if task.state != TaskState::Running {
                continue;
            }
            let lease = self.lease(id, task);
            shown["live"] = json!(self.is_live(id, job, task, now));
            shown["seen_ms_ago"] = json!(lease.map(|lease| now.since(lease.seen)));
            shown["progress"] = lease.map_or(Value::Null, |lease| lease.progress.clone());
        }
        page
    }

    /// Jobs that ended before a moment of Unix time, in milliseconds, the oldest first.
    pub fn ended_before(&self, moment: u64) -> Vec<Arc<str>> {
        let ended = self.iter().filter(|(_, _, job)| job.state.is_over() && job.since < moment);
        let mut ended: Vec<_> = ended.map(|(id, _, job)| (job.since, Arc::clone(id))).collect();
        ended.sort();
        ended.into_iter().map(|(_, id)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(tasks: &Value, state: JobState) -> (Jobs, Arc<str>) {
        let asked = json!({ "kind": "k", "app": "a", "lease_s": 10, "tasks": tasks });
        let mut job: Job = serde_json::from_value(asked).unwrap();
        job.state = state;
        let mut jobs = Jobs::default();
        jobs.put("j", Revision(1), job, Moment(1_000));
        (jobs, "j".into())
    }

    fn may(jobs: &Jobs, id: &Arc<str>, task: &str, worker: &str, at: u64) -> bool {
        let job = &jobs.get(id).unwrap().1;
        jobs.may_claim(id, job, job.task(task).unwrap(), worker, (Moment(at), Moment(at)))
    }

    #[test]
    fn a_task_goes_to_another_worker_once_its_own_has_been_silent_for_a_lease() {
        let (mut jobs, id) =
            board(&json!([{ "name": "t", "state": "running", "term": 3, "worker": "w" }]), JobState::Running);
        assert!(!may(&jobs, &id, "t", "other", 11_000));
        assert!(may(&jobs, &id, "t", "w", 1_001), "its own may have it anew");
        assert!(may(&jobs, &id, "t", "other", 11_001));
        jobs.renew("j", "t", Some(json!(7)), Moment(9_000));
        assert!(!may(&jobs, &id, "t", "other", 19_000) && may(&jobs, &id, "t", "other", 19_001));
        let job = Arc::clone(&jobs.get(&id).unwrap().1);
        let shown = jobs.shown(&id, &job, Moment(12_000));
        assert_eq!((&shown["tasks"][0]["progress"], &shown["tasks"][0]["seen_ms_ago"]), (&json!(7), &json!(3_000)));
        // What is put again under this term keeps the lease; another term begins a new one.
        jobs.put("j", Revision(2), Job::clone(&job), Moment(30_000));
        assert!(may(&jobs, &id, "t", "other", 30_000));
        let mut next = Job::clone(&job);
        next.tasks[0].term = 4;
        jobs.put("j", Revision(3), next, Moment(30_000));
        assert!(!may(&jobs, &id, "t", "other", 40_000));
    }

    #[test]
    fn what_another_member_heard_keeps_a_task_and_what_it_may_have_heard_does_too() {
        let (mut jobs, id) =
            board(&json!([{ "name": "t", "state": "running", "term": 3, "worker": "w" }]), JobState::Running);
        jobs.heard_elsewhere("j", "t", 3, json!(7), Moment(9_000));
        assert!(!may(&jobs, &id, "t", "other", 19_000) && may(&jobs, &id, "t", "other", 19_001));
        // Overtaken on its way, or of another term.
        jobs.heard_elsewhere("j", "t", 3, json!(6), Moment(8_000));
        jobs.heard_elsewhere("j", "t", 2, json!(5), Moment(18_000));
        assert_eq!(jobs.heard(&id, "t"), Some((3, Moment(9_000), &json!(7))));
        // Another member has told what it heard up to 19.0 s alone.
        let job = Arc::clone(&jobs.get(&id).unwrap().1);
        let may = |known| jobs.may_claim(&id, &job, &job.tasks[0], "other", (Moment(99_000), Moment(known)));
        assert!(!may(19_000) && may(19_001));
    }

    #[test]
    fn a_renewal_is_late_after_a_lease_and_tasks_are_counted_as_they_stand() {
        let tasks = json!([{ "name": "t", "state": "running", "term": 1, "worker": "w" }, { "name": "u" },
            { "name": "v", "state": "done" }, { "name": "x", "state": "failed" }]);
        let (mut jobs, _) = board(&tasks, JobState::Running);
        assert!(!jobs.renew("j", "t", None, Moment(11_000)));
        let counts = |jobs: &Jobs, at| {
            let TaskCounts { waiting, running, silent, failed, done } = jobs.counts(Moment(at));
            [waiting, running, silent, failed, done]
        };
        assert_eq!((counts(&jobs, 21_000), counts(&jobs, 21_001)), ([1, 1, 0, 1, 1], [1, 0, 1, 1, 1]));
        assert!(jobs.renew("j", "t", None, Moment(21_001)));
        let (jobs, _) = board(&tasks, JobState::Cancelled);
        assert_eq!(counts(&jobs, 1_000), [0; 5]);
    }

    #[test]
    fn a_process_that_was_stopped_grants_a_full_lease() {
        let (mut jobs, id) =
            board(&json!([{ "name": "t", "state": "running", "term": 1, "worker": "w" }]), JobState::Running);
        jobs.tick(Moment(2_000));
        jobs.tick(Moment(60_000));
        assert!(!may(&jobs, &id, "t", "other", 70_000) && may(&jobs, &id, "t", "other", 70_001));
    }

    #[test]
    fn a_task_waits_for_those_before_it_and_rests_after_failures() {
        let tasks =
            json!([{ "name": "t", "term": 1, "failures": 2 }, { "name": "u", "after": ["t"] }, { "name": "v" }]);
        let (jobs, id) = board(&tasks, JobState::Running);
        assert!(!may(&jobs, &id, "u", "w", 99_000) && may(&jobs, &id, "v", "w", 1_000));
        assert!(!may(&jobs, &id, "t", "w", 4_999) && may(&jobs, &id, "t", "w", 5_000));
        let (jobs, id) = board(&json!([{ "name": "t" }]), JobState::Paused);
        assert!(!may(&jobs, &id, "t", "w", 99_000));
    }

    #[test]
    fn what_cleans_is_given_out_for_a_cancelled_job_once_nothing_else_runs() {
        let tasks = json!([
            { "name": "t", "state": "running", "term": 1, "worker": "w" },
            { "name": "u" },
            { "name": "c", "cleans": true, "after": ["t", "u"] }
        ]);
        let (jobs, id) = board(&tasks, JobState::Cancelling);
        assert!(!may(&jobs, &id, "u", "x", 99_000));
        assert!(!may(&jobs, &id, "c", "x", 11_000) && may(&jobs, &id, "c", "x", 11_001));
        let job = &jobs.get("j").unwrap().1;
        assert_eq!([0, 2].map(|at| Jobs::word(job, &job.tasks[at])), [Word::Stop, Word::Go]);
    }

    #[test]
    fn a_worker_is_told_to_finish_when_what_needed_it_is_done() {
        let tasks = json!([{ "name": "t", "until": ["u"] }, { "name": "u", "state": "done" }]);
        let (jobs, _) = board(&tasks, JobState::Running);
        let job = &jobs.get("j").unwrap().1;
        assert_eq!(Jobs::word(job, &job.tasks[0]), Word::Finish);
    }
}
