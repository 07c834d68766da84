//! The metrics of every process. docs/metrics.md documents them.

use moneta_admin::{tally, tasks};
use moneta_store::metric::{self, Metric, Reading, Sample, Unit, Values, by};

use super::life::Life;
use crate::commit::COMMIT;

/// What is read at one moment.
struct Now {
    version: &'static str,
    begun_at: u64,
    is_ready: bool,
    /// Lines of the log that were dropped: for want of room, and as repeated.
    left_out: (u64, u64),
}

const TABLE: &[Reading<Now>] = &[
    Metric::gauge(
        "build_info",
        Unit::Count,
        "Always 1; the labels tell the version, and the commit it was built from.",
    )
    .labels(&["version", "commit"])
    .keys(&[])
    .read(|now| Values::NONE.and([now.version, COMMIT], 1)),
    Metric::gauge("start_time_seconds", Unit::Seconds, "Unix second of the start.")
        .keys(&[])
        .read(|now| now.begun_at.into()),
    Metric::gauge(
        "ready",
        Unit::Count,
        "1 while clients may be sent here, 0 while the process drains or its store is not fit to serve.",
    )
    .keys(&[])
    .read(|now| now.is_ready.into()),
    Metric::counter("log_lines_left_out_total", Unit::Count, "Lines of the log that were not written, by why.")
        .labels(&["reason"])
        .keys(&[])
        .read(|now| by(&[("queue", now.left_out.0), ("repeated", now.left_out.1)])),
];

/// The declarations of the metrics of every process.
pub fn metrics() -> impl Iterator<Item = Metric> {
    let of_admin = tally::METRICS.iter().map(Reading::metric).chain(tasks::METRICS.iter().map(Reading::metric));
    TABLE.iter().map(Reading::metric).chain(of_admin)
}

/// All of them as they are now, of a process that is ready or not.
pub(super) fn samples(life: &Life, is_ready: bool) -> Vec<Sample> {
    let left_out = life.vitals.left_out.as_ref().map_or((0, 0), |left_out| left_out.now());
    let now = Now { version: life.vitals.about.version, begun_at: life.begun_at, is_ready, left_out };
    let mut all = metric::samples(TABLE, &now);
    all.extend(metric::samples(tally::METRICS, &*life.tally));
    all.extend(tasks::samples());
    all
}
