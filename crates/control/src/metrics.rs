//! What is measured, and whether the process is fit to serve.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moneta_process::desk::Observed;
use moneta_store::Health;
use moneta_store::metric::{self, Metric, Reading, Sample, Unit, by};

use crate::commits::Counts;
use crate::control::Control;
use crate::jobs::board::TaskCounts;
use crate::jobs::document::JobState;
use crate::leases::Renewals;

/// Numbers at one moment.
struct Now {
    control: Arc<Control>,
    renewals: Renewals,
    protected: u64,
    is_in_step: bool,
    revision: u64,
    apps: u64,
    members: u64,
    keeps: bool,
    jobs: HashMap<JobState, u64>,
    tasks: TaskCounts,
}

impl Now {
    fn commits(&self) -> &Counts {
        self.control.commits.counts()
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

const METRICS: &[Reading<Now>] = &[
    Metric::gauge("fleet_in_step", Unit::Count, "1 while the process knows all that its ledger has; 0: it refuses requests.")
        .keys(&[])
        .read(|now| u64::from(now.is_in_step).into()),
    Metric::gauge("fleet_revision", Unit::Count, "The revision of the ledger up to which it was read.")
        .keys(&[])
        .read(|now| now.revision.into()),
    Metric::gauge("fleet_instances", Unit::Count, "Instances, by how they stand.")
        .labels(&["state"])
        .keys(&[])
        .read(|now| {
            let Renewals { expected, suspect, away, .. } = now.renewals;
            by(&[("live", (expected - suspect) as u64), ("suspect", suspect as u64), ("away", away as u64)])
        }),
    Metric::gauge("fleet_renewals_missing", Unit::Count, "Instances whose last renewal is missing, of those that are not away.")
        .keys(&[])
        .read(|now| (now.renewals.missing as u64).into()),
    Metric::gauge(
        "fleet_protected",
        Unit::Count,
        "Environments in which no instance becomes away, unless its port refuses connections, because too many renewals are missing.",
    )
    .keys(&[])
    .read(|now| now.protected.into()),
    Metric::gauge("fleet_apps", Unit::Count, "Apps of all environments.").keys(&[]).read(|now| now.apps.into()),
    Metric::gauge("fleet_feed_readers", Unit::Count, "Readers of feeds.")
        .keys(&[])
        .read(|now| read(&now.control.shared.readers).into()),
    Metric::counter("fleet_renewals_total", Unit::Count, "Renewals of instances that were answered.")
        .keys(&[])
        .read(|now| read(&now.control.shared.renewals).into()),
    Metric::counter("fleet_away_total", Unit::Count, "Instances that became away.")
        .keys(&[])
        .read(|now| read(&now.control.shared.left).into()),
    Metric::counter("fleet_probes_total", Unit::Count, "Probes of instances that missed three renewals.")
        .labels(&["result"])
        .keys(&[])
        .read(|now| {
            let [answers, refused, silent] = &now.control.shared.probes;
            by(&[("answers", read(answers)), ("refused", read(refused)), ("silent", read(silent))])
        }),
    Metric::counter(
        "fleet_commits_total",
        Unit::Count,
        "Commits: done; conflict, when something came between; failed; and unknown, whose outcome was looked for.",
    )
    .labels(&["result"])
    .keys(&[])
    .read(|now| {
        let Counts { done, conflicts, failed, unknown } = now.commits();
        by(&[("done", read(done)), ("conflict", read(conflicts)), ("failed", read(failed)), ("unknown", read(unknown))])
    }),
    Metric::gauge("fleet_members", Unit::Count, "Processes that share the ledger; 1 where it is in a file.")
        .keys(&[])
        .read(|now| now.members.into()),
    Metric::gauge("fleet_keeper", Unit::Count, "1 where this process keeps the leases of instances: one of all members does.")
        .keys(&[])
        .read(|now| u64::from(now.keeps).into()),
    Metric::counter("fleet_handed_total", Unit::Count, "Renewals of instances and tasks that were handed to other members.")
        .keys(&[])
        .read(|now| read(&now.control.members.peers.handed).into()),
    Metric::counter("fleet_hand_failures_total", Unit::Count, "Times that renewals could not be handed to another member.")
        .keys(&[])
        .read(|now| read(&now.control.members.peers.failed).into()),
    Metric::gauge("fleet_jobs", Unit::Count, "Jobs, by how they stand.").labels(&["state"]).keys(&[]).read(|now| {
        let count = |state| now.jobs.get(&state).copied().unwrap_or(0);
        let states = [
            JobState::Running,
            JobState::Paused,
            JobState::Failed,
            JobState::Cancelling,
            JobState::Cancelled,
            JobState::Done,
        ];
        by(&states.map(|state| (state.name(), count(state))))
    }),
    Metric::gauge(
        "fleet_tasks",
        Unit::Count,
        "Tasks of jobs that are not over, by how they stand; silent: their workers have not renewed them for a lease.",
    )
    .labels(&["state"])
    .keys(&[])
    .read(|now| {
        let TaskCounts { waiting, running, silent, failed, done } = now.tasks;
        by(&[("waiting", waiting), ("running", running), ("silent", silent), ("failed", failed), ("done", done)])
    }),
    Metric::counter("fleet_task_renewals_total", Unit::Count, "Renewals of tasks by their workers that were answered.")
        .keys(&[])
        .read(|now| read(&now.control.shared.tasks.renewed).into()),
    Metric::counter(
        "fleet_task_renewals_late_total",
        Unit::Count,
        "Of these, those that came after a lease: another worker could have had the task.",
    )
    .keys(&[])
    .read(|now| read(&now.control.shared.tasks.late).into()),
    Metric::counter(
        "fleet_task_refusals_total",
        Unit::Count,
        "What workers said of a task under a term that was over.",
    )
    .keys(&[])
    .read(|now| read(&now.control.shared.tasks.refused).into()),
    Metric::counter(
        "fleet_tasks_taken_over_total",
        Unit::Count,
        "Tasks that were given to another worker because theirs had fallen silent.",
    )
    .keys(&[])
    .read(|now| read(&now.control.shared.tasks.taken_over).into()),
    Metric::counter("fleet_compared_total", Unit::Count, "Comparisons of what is known with the ledger.")
        .keys(&[])
        .read(|now| read(&now.control.shared.compared).into()),
    Metric::counter("fleet_differing_total", Unit::Count, "Keys that were not as in the ledger, and made the process read it anew.")
        .keys(&[])
        .read(|now| read(&now.control.shared.differing).into()),
    Metric::counter("fleet_resyncs_total", Unit::Count, "Times that all of the ledger was read anew; the start is one.")
        .keys(&[])
        .read(|now| read(&now.control.shared.resyncs).into()),
];

/// The declarations of all metrics.
pub fn metrics() -> impl Iterator<Item = Metric> {
    METRICS.iter().map(Reading::metric)
}

/// What operators are shown.
#[derive(Debug)]
pub struct Watched(pub Arc<Control>);

impl Observed for Watched {
    fn samples(&self) -> Vec<Sample> {
        let mut renewals = Renewals::default();
        let (mut protected, mut apps) = (0, 0);
        let (mut jobs, mut tasks) = (HashMap::new(), TaskCounts::default());
        let now = self.0.shared.now();
        let mut state = self.0.shared.state();
        for (_, of) in state.environments() {
            let Renewals { expected, missing, is_protected, suspect, away } = of.leases.renewals_at(now);
            renewals.expected += expected;
            renewals.missing += missing;
            renewals.suspect += suspect;
            renewals.away += away;
            protected += u64::from(is_protected);
            apps += of.apps.len() as u64;
            of.jobs.iter().for_each(|(_, _, job)| *jobs.entry(job.state).or_default() += 1);
            tasks += of.jobs.counts(now);
        }
        let (is_in_step, revision) = (state.is_in_step, state.at.revision.0);
        let keeps = self.0.members.keeps(&state);
        let members = if self.0.members.is_alone() { 1 } else { state.members.len() as u64 };
        drop(state);
        let control = Arc::clone(&self.0);
        let now = Now { control, renewals, protected, is_in_step, revision, apps, members, keeps, jobs, tasks };
        metric::samples(METRICS, &now)
    }

    fn health(&self) -> Health {
        if self.0.is_in_step() {
            return Health::default();
        }
        Health { unready: true, notes: vec!["not in step with the ledger: requests are refused".into()] }
    }
}
