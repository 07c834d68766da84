//! What is measured, and whether the process is fit to serve.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moneta_process::desk::Observed;
use moneta_store::Health;
use moneta_store::metric::{self, Metric, Reading, Sample, Unit, by};

use crate::commits::Counts;
use crate::control::Control;
use crate::leases::Renewals;

/// Numbers at one moment.
struct Now {
    control: Arc<Control>,
    renewals: Renewals,
    protected: u64,
    is_in_step: bool,
    revision: u64,
    apps: u64,
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
        let now = self.0.shared.now();
        let mut state = self.0.shared.state.lock();
        for (_, of) in state.environments() {
            let Renewals { expected, missing, is_protected, suspect, away } = of.leases.renewals_at(now);
            renewals.expected += expected;
            renewals.missing += missing;
            renewals.suspect += suspect;
            renewals.away += away;
            protected += u64::from(is_protected);
            apps += of.apps.len() as u64;
        }
        let (is_in_step, revision) = (state.is_in_step, state.at.revision.0);
        drop(state);
        metric::samples(METRICS, &Now { control: Arc::clone(&self.0), renewals, protected, is_in_step, revision, apps })
    }

    fn health(&self) -> Health {
        if self.0.is_in_step() {
            return Health::default();
        }
        Health { unready: true, notes: vec!["not in step with the ledger: requests are refused".into()] }
    }
}
