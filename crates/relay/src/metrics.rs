//! What a relay tells as metrics, and whether it is ready. docs/metrics.md documents the metrics.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use moneta_process::desk::Observed;
use moneta_store::Health;
use moneta_store::metric::{self, Metric, Reading, Sample, Unit, Values, by};
use serde_json::{Map, Value};

use crate::apply::Refusal;
use crate::counts::of;
use crate::due::DueCause;
use crate::probe;
use crate::relay::Relay;
use crate::view::RelayShared;

struct OfRelay {
    shared: Arc<RelayShared>,
    region: String,
}

impl OfRelay {
    fn by(&self, value: impl Into<metric::Value>) -> Values {
        Values::NONE.and([self.region.as_str()], value)
    }
}

macro_rules! counter {
    ($name:literal, $unit:expr, $help:literal, $field:ident) => {
        Metric::counter($name, $unit, $help).labels(&["region"]).read(|now| now.by(of(&now.shared.counts.$field)))
    };
}

const TABLE: &[Reading<OfRelay>] = &[
    Metric::gauge(
        "relay_up",
        Unit::Count,
        "1 while all nodes of a copy of the other region are read, for the shares of this relay.",
    )
    .labels(&["region"])
    .read(|now| now.by(u64::from(now.shared.is_up()))),
    Metric::gauge(
        "relay_lag_seconds",
        Unit::Seconds,
        "Time since the moment up to which everything that the other region took is here; of the slowest node.",
    )
    .labels(&["region"])
    .read(|now| now.by(now.shared.lag().as_secs_f64())),
    Metric::gauge(
        "relay_lag_changes",
        Unit::Count,
        "Changes that wait in the feeds that are read, about, those that are not wanted among them, and those under way.",
    )
    .labels(&["region"])
    .read(|now| now.shared.lag_changes().map_or(Values::NONE, |changes| now.by(changes))),
    Metric::gauge("relay_under_way", Unit::Count, "Changes that were read and have not ended here.")
        .labels(&["region"])
        .read(|now| now.by(now.shared.counts.under_way())),
    counter!("relay_changes_total", Unit::Count, "Changes that were read.", read),
    counter!("relay_read_bytes_total", Unit::Bytes, "Bytes of their keys and values.", bytes),
    counter!("relay_taken_total", Unit::Count, "Changes that the cluster has now, or had.", taken),
    counter!(
        "relay_superseded_total",
        Unit::Count,
        "Changes in place of which the cluster has something newer.",
        superseded
    ),
    counter!(
        "relay_outdated_total",
        Unit::Count,
        "Items that were overwritten at their source when they were read, and not created here in doubt.",
        outdated
    ),
    counter!(
        "relay_unsure_total",
        Unit::Count,
        "Items that nodes here, which had just begun, did not create; they were read again.",
        unsure
    ),
    counter!("relay_retries_total", Unit::Count, "Tries of changes after the first.", retries),
    counter!(
        "relay_flushes_left_out_total",
        Unit::Count,
        "Flushes of the other region that did not cross.",
        flushes_left_out
    ),
    counter!(
        "relay_rolled_back_left_out_total",
        Unit::Count,
        "Changes of a backup's rollback in the other region that did not cross.",
        rolled_back
    ),
    counter!("relay_switches_total", Unit::Count, "Times that another copy was read, as a node had failed.", switches),
];

const BY_REASON: &[Reading<OfRelay>] = &[
    Metric::counter("relay_refused_total", Unit::Count, "Changes that are not here, and will not be, by reason.")
        .labels(&["reason"])
        .read(
            |now| by(&Refusal::ALL.map(|refusal| (refusal.word(), of(&now.shared.counts.refused[refusal as usize])))),
        ),
    Metric::counter("relay_gaps_total", Unit::Count, "Times that changes of the other region were missing, by cause.")
        .labels(&["cause"])
        .read(|now| by(&now.shared.counts.gaps())),
    Metric::counter(
        "relay_repairs_due_total",
        Unit::Count,
        "Times of the other region that were to be compared with what is here, by cause.",
    )
    .labels(&["cause"])
    .read(|now| by(&DueCause::ALL.map(|cause| (cause.word(), of(&now.shared.counts.due[cause as usize]))))),
];

/// Repairs that the relay has started, by how they ended; told by what runs them.
pub const REPAIRS: Metric =
    Metric::counter("relay_repairs_total", Unit::Count, "Repairs that the relay has started, by how they ended.")
        .labels(&["ended"]);

/// The declarations of a relay's metrics.
pub fn metrics() -> impl Iterator<Item = Metric> {
    let of_probe = probe::TABLE.iter().map(Reading::metric);
    TABLE.iter().map(Reading::metric).chain(BY_REASON.iter().map(Reading::metric)).chain(of_probe).chain([REPAIRS])
}

impl RelayShared {
    /// Why the topic between the regions does not answer.
    pub(crate) fn topic_failure(&self) -> Option<String> {
        self.topic.as_ref().and_then(|topic| topic.failure())
    }

    /// All nodes of a copy are read.
    pub(crate) fn is_up(&self) -> bool {
        let view = self.view.lock();
        self.topic_failure().is_none()
            && (self.is_leased() || !view.streams.is_empty() || self.is_idle(&view))
            && view.streams.iter().all(|stream| stream.state.trouble().is_none())
    }
}

impl Observed for Relay {
    fn samples(&self) -> Vec<Sample> {
        let now = OfRelay { shared: Arc::clone(&self.shared), region: self.shared.config.region.to_string() };
        let mut all = metric::samples(TABLE, &now);
        all.extend(metric::samples(BY_REASON, &now));
        if let Some(probe) = &self.shared.probe {
            all.extend(metric::samples(probe::TABLE, &probe.seen()));
        }
        all
    }

    fn health(&self) -> Health {
        let shared = &self.shared;
        let mut notes = Vec::new();
        let mut unready = false;
        {
            let view = shared.view.lock();
            for stream in &view.streams {
                if let Some((why, since)) = stream.state.trouble() {
                    unready = true;
                    notes.push(format!("{} at {}: {why}, for {} s", stream.slot, stream.address, since.as_secs()));
                }
                if let Some(why) = &*stream.state.refused.lock() {
                    unready = true;
                    notes.push(format!("the cluster here does not take changes: {why}"));
                }
            }
            if let Some(why) = &view.unleased {
                unready |= view.shares.is_empty();
                notes.push(format!("no share is asked for: {why}"));
            }
            if view.shares.is_empty() && shared.is_leased() {
                notes.push("no share is this relay's: others have them".to_owned());
            } else if shared.is_idle(&view) {
                let partitions = shared.topic.as_ref().map_or(0, |topic| topic.partitions());
                let shares: Vec<String> = view.shares.iter().map(ToString::to_string).collect();
                notes.push(format!(
                    "nothing to read: the topic has {partitions} partitions, none of them for share {}",
                    shares.join(", ")
                ));
            } else if view.streams.is_empty() {
                unready = true;
                notes.push("nothing of the other region is read".to_owned());
            }
            if let Some(why) = shared.topic_failure() {
                unready = true;
                notes.push(format!("the topic between the regions: {why}"));
            }
            if let Some(why) = &view.unkept {
                unready = true;
                notes.push(why.clone());
            }
        }
        let lag = shared.lag();
        if lag > shared.config.lag_max.get() {
            unready = true;
            notes.push(format!("{} s behind the other region", lag.as_secs()));
        }
        Health { unready, notes }
    }

    fn facts(&self) -> Map<String, Value> {
        let mut facts = Map::new();
        let view = self.shared.view.lock();
        facts.insert("region".into(), self.shared.config.region.into());
        facts.insert("copy".into(), view.copy.clone().into());
        let reads = view.streams.iter().filter(|stream| stream.state.answers.load(Ordering::Relaxed)).count();
        facts.insert("streams".into(), reads.into());
        facts.insert("shares".into(), view.shares.iter().map(ToString::to_string).collect());
        facts
    }
}
