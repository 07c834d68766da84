//! The metrics of a cluster store.

use std::sync::atomic::Ordering;

use moneta_store::metric::{Metric, Reading, Sample, Unit, samples_of};

use crate::counters::ClusterCounters;
use crate::layout::Layout;
use crate::node::Node;
use crate::sources::SourceStatus;

const APP: &[&str] = &["app"];
const NODE: &[&str] = &["app", "zone", "node"];

const OF_APP: &[Reading<ClusterCounters>] = &[
    Metric::counter("cluster_reads_total", Unit::Count, "Keys read, by whether some copy had an item.")
        .labels(&["app", "result"])
        .read(|counters| counters.reads.values()),
    Metric::counter(
        "cluster_second_reads_total",
        Unit::Count,
        "Reads that went on to another copy, after a failure or a miss.",
    )
    .labels(APP)
    .read(|counters| counters.second_reads.get().into()),
    Metric::counter(
        "cluster_retries_refused_total",
        Unit::Count,
        "Reads that failed and found the retry budget spent.",
    )
    .labels(APP)
    .read(|counters| counters.retries_refused.get().into()),
    Metric::counter("cluster_fills_total", Unit::Count, "Items given to a near copy that had missed them.")
        .labels(APP)
        .read(|counters| counters.fills.get().into()),
    Metric::counter(
        "cluster_outdated_sources_total",
        Unit::Count,
        "Reads whose item was older than what a third copy has, as a fill has shown.",
    )
    .labels(APP)
    .read(|counters| counters.outdated_sources.get().into()),
    Metric::counter(
        "cluster_stamped_anew_total",
        Unit::Count,
        "Writes stamped again, since a copy held something newer.",
    )
    .labels(APP)
    .read(|counters| counters.stamped_anew.get().into()),
    Metric::counter("cluster_decisions_total", Unit::Count, "Changes that depend on what a key holds.")
        .labels(APP)
        .read(|counters| counters.decisions.get().into()),
    Metric::counter(
        "cluster_conflicts_total",
        Unit::Count,
        "Rounds of such changes that were repeated, since another change came in between.",
    )
    .labels(APP)
    .read(|counters| counters.conflicts.get().into()),
    Metric::counter("cluster_hints_delivered_total", Unit::Count, "Writes given to nodes that had missed them.")
        .labels(APP)
        .read(|counters| counters.hints_delivered.get().into()),
    Metric::counter(
        "cluster_doubt_checked_total",
        Unit::Count,
        "Items in doubt that were compared with other copies, by what became of them.",
    )
    .labels(&["app", "result"])
    .read(|counters| counters.swept.values()),
    Metric::counter(
        "cluster_carried_over_total",
        Unit::Count,
        "Writes by a topology that others had replaced, given to the nodes that hold their keys now.",
    )
    .labels(APP)
    .read(|counters| counters.carried_over.get().into()),
    Metric::counter(
        "cluster_gone_total",
        Unit::Count,
        "Processes of the app that were found gone, and whose last writes this one took up to compare.",
    )
    .labels(APP)
    .read(|counters| counters.mends.processes.get().into()),
    Metric::counter(
        "cluster_mended_total",
        Unit::Count,
        "Last writes of these that a copy lacked: given to it, or left as no other copy has them any more or answers.",
    )
    .labels(&["app", "result"])
    .read(|counters| counters.mends.values()),
    Metric::counter(
        "cluster_mend_gaps_total",
        Unit::Count,
        "Feeds that did not reach back to the last writes of a process that is gone.",
    )
    .labels(APP)
    .read(|counters| counters.mends.gaps.get().into()),
    Metric::counter("cluster_topologies_total", Unit::Count, "Topologies taken.")
        .labels(APP)
        .read(|counters| counters.topologies.get().into()),
    Metric::histogram(
        "cluster_request_duration_seconds",
        Unit::Seconds,
        "Time from a request to its answer, by app and command; one key in 61 is timed and stands for all.",
    )
    .labels(&["app", "command"])
    .read(|counters| counters.durations.values()),
];

const _: () = assert!(moneta_store::latency::SAMPLE == 61, "the help and docs/metrics.md tell the sample");

const EPOCH: Metric = Metric::gauge("cluster_epoch", Unit::Count, "Epoch of the topology.").labels(APP);

const AGREES: Metric = Metric::gauge(
    "cluster_topology_agrees",
    Unit::Count,
    "Whether no other process of the app has told of another topology: 1 or 0.",
)
.labels(APP);

const CLOCK_OFFSET: Metric = Metric::gauge(
    "cluster_clock_offset_seconds",
    Unit::Seconds,
    "By how much this process goes ahead of its system's clock, to go by the nodes'.",
)
.labels(APP);

const OF_NODE: &[Reading<Node>] = &[
    Metric::gauge(
        "cluster_node_up",
        Unit::Count,
        "Whether the node is asked: 1 or 0. One that fails is not, until it answers a probe.",
    )
    .labels(NODE)
    .read(|node| u64::from(!node.health.is_ejected()).into()),
    Metric::counter("cluster_node_ejections_total", Unit::Count, "Times the node was not asked any more.")
        .labels(NODE)
        .read(|node| node.health.ejections.load(Ordering::Relaxed).into()),
    Metric::counter("cluster_node_slow_ejections_total", Unit::Count, "Of these, since it was far slower than others.")
        .labels(NODE)
        .read(|node| node.health.slow_ejections.load(Ordering::Relaxed).into()),
    Metric::counter(
        "cluster_node_future_total",
        Unit::Count,
        "Answers of the node that told of a version from the future, and were not believed.",
    )
    .labels(NODE)
    .read(|node| node.future.load(Ordering::Relaxed).into()),
    Metric::gauge(
        "cluster_node_answer_seconds",
        Unit::Seconds,
        "How long the node took to answer, on average over the last window of a second or more; 0 before the first one.",
    )
    .labels(NODE)
    .read(|node| node.pace.mean().map_or(0.0, |mean| mean.as_secs_f64()).into()),
    Metric::gauge("cluster_hints", Unit::Count, "Writes that the node has missed and will be given.")
        .labels(NODE)
        .read(|node| node.hints.counts().0.into()),
    Metric::gauge("cluster_hint_bytes", Unit::Bytes, "Memory of these.")
        .labels(NODE)
        .read(|node| node.hints.counts().1.into()),
    Metric::counter(
        "cluster_hints_overflowed_total",
        Unit::Count,
        "Writes that the node has missed and that were too many to keep: their part of the keys is in doubt.",
    )
    .labels(NODE)
    .read(|node| node.hints.counts().2.into()),
    Metric::gauge(
        "cluster_doubt_ratio",
        Unit::Ratio,
        "Share of the node's keys that is in doubt: reads go to other copies first until they were compared.",
    )
    .labels(NODE)
    .read(|node| node.hints.doubt_share().into()),
];

const OF_SOURCE: &[Reading<SourceStatus>] = &[
    Metric::counter(
        "cluster_source_changes_total",
        Unit::Count,
        "Topologies that the source has said and that were believed.",
    )
    .labels(APP)
    .read(|source| source.changes.into()),
    Metric::counter(
        "cluster_source_refused_total",
        Unit::Count,
        "Topologies that were not believed at once: they lost too many nodes.",
    )
    .labels(APP)
    .read(|source| source.refused.into()),
    Metric::counter(
        "cluster_source_failures_total",
        Unit::Count,
        "Times the source of the topology could not be read.",
    )
    .labels(APP)
    .read(|source| source.failures.into()),
    Metric::gauge("cluster_source_up", Unit::Count, "Whether the source of the topology could be read last: 1 or 0.")
        .labels(APP)
        .read(|source| u64::from(!source.failing).into()),
];

/// The declarations of a cluster store's metrics.
pub fn metrics() -> impl Iterator<Item = Metric> {
    OF_APP
        .iter()
        .map(Reading::metric)
        .chain([EPOCH, AGREES, CLOCK_OFFSET])
        .chain(OF_NODE.iter().map(Reading::metric))
        .chain(OF_SOURCE.iter().map(Reading::metric))
}

/// Those of the topology's source.
pub(crate) fn of_source(app: &str, source: &SourceStatus) -> Vec<Sample> {
    samples_of([app], OF_SOURCE, source)
}

/// All metrics of an app. `clock_offset`: in milliseconds.
pub(crate) fn samples(
    app: &str,
    counters: &ClusterCounters,
    layout: &Layout,
    agrees: bool,
    clock_offset: i64,
) -> Vec<Sample> {
    let mut all = samples_of([app], OF_APP, counters);
    all.push(EPOCH.labelled([app], layout.epoch));
    all.push(AGREES.labelled([app], u64::from(agrees)));
    all.push(CLOCK_OFFSET.labelled([app], clock_offset as f64 / 1000.0));
    for node in &layout.nodes {
        all.extend(samples_of([app, &node.zone, &node.name], OF_NODE, &**node));
    }
    all
}
