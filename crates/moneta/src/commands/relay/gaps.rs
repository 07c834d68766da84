//! Repairs the times of which a relay was not told: one at a time, from the earliest moment that is missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use moneta_background::{Run, Task};
use moneta_cluster::Topology;
use moneta_cluster::sources::{GuardConfig, Guarded, TopologySource};
use moneta_net::Outward;
use moneta_options::values::Values;
use moneta_process::desk::Observed;
use moneta_relay::{Gapped, RelayConfig};
use moneta_repair::{Goal, RepairConfig, Watch};
use moneta_store::Clock;
use moneta_store::metric::{Sample, Value as MetricValue};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::{source_here, source_there};
use crate::commands::repair::{Pair, in_words};
use crate::options::of_relay::{FROM, PREFIX, TO};
use crate::proxy;

/// How long after a gap it is repaired: what the relay reads meanwhile need not be.
const AFTER: Duration = Duration::from_secs(30);
/// Pause before a repair that failed is tried again.
const AGAIN: Duration = Duration::from_secs(60);
/// Keys that are repaired in a second.
const RATE: u64 = 5_000;
/// How long a repair may take to see that the process ends.
const LOOK: Duration = Duration::from_millis(200);

/// Repairs of gaps.
pub struct Repairs {
    /// Since when changes are missing, in milliseconds since the Unix epoch; 0: none are.
    since: AtomicU64,
    last: Mutex<Option<Result<moneta_repair::Report, String>>>,
    done: AtomicU64,
    failed: AtomicU64,
    task: Mutex<Option<Task>>,
}

impl Repairs {
    /// Starts the thread that repairs.
    ///
    /// # Errors
    /// If the system has none.
    pub fn start(options: &Values, outward: &Outward, clock: &Arc<Clock>) -> anyhow::Result<Arc<Self>> {
        let repairs = Arc::new(Self {
            since: AtomicU64::new(0),
            last: Mutex::default(),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            task: Mutex::default(),
        });
        let (running, options, outward, clock) =
            (Arc::clone(&repairs), options.clone(), outward.clone(), Arc::clone(clock));
        let task = moneta_background::start("relay-repair", move |run| {
            while !run.is_stopped() {
                let since = running.since.load(Ordering::Relaxed);
                if since == 0 {
                    run.sleep(LOOK);
                    continue;
                }
                run.sleep(AFTER);
                if run.is_stopped() {
                    return;
                }
                let since = running.since.swap(0, Ordering::Relaxed);
                if !running.once(run, (&options, &outward, &clock), since) {
                    running.note(since);
                    run.sleep(AGAIN);
                }
            }
        });
        *repairs.task.lock() = Some(task.context("no thread for repairs")?);
        Ok(repairs)
    }

    /// Changes are missing.
    pub fn gap(&self, gap: Gapped) {
        let margin = u64::try_from(RelayConfig::MARGIN.as_millis()).unwrap_or(u64::MAX);
        self.note(gap.since.saturating_sub(margin).max(1));
    }

    fn note(&self, since: u64) {
        let least = |before: u64| Some(if before == 0 { since } else { before.min(since) });
        let _ = self.since.fetch_update(Ordering::Relaxed, Ordering::Relaxed, least);
    }

    /// Ends it.
    pub fn close(&self) {
        if let Some(task) = self.task.lock().take() {
            task.stop();
            task.join();
        }
    }

    /// What the page tells.
    pub fn shown(&self) -> Map<String, Value> {
        let last = match &*self.last.lock() {
            None => Value::Null,
            Some(Ok(report)) => json!(report),
            Some(Err(why)) => json!({ "failure": why }),
        };
        let since = self.since.load(Ordering::Relaxed);
        let repairs = json!({"waiting_since": (since > 0).then_some(since), "last": last});
        [("repairs".to_owned(), repairs)].into_iter().collect()
    }

    /// Repairs what was written since a moment. False: it is to be tried again.
    fn once(&self, run: &Run, (options, outward, clock): (&Values, &Outward, &Arc<Clock>), since: u64) -> bool {
        tracing::info!(since, "what was written in the other region since is compared with what is here");
        let watch = Watching(run);
        let ended = pair(options, outward, clock).and_then(|pair| {
            let config = RepairConfig {
                goal: Goal::Since(since),
                rate: RATE,
                prefix: options.get(&PREFIX).unwrap_or_default(),
                ..RepairConfig::default()
            };
            let ended = moneta_repair::repair(&pair.a, &pair.b, &config, &watch);
            pair.close();
            Ok(ended?)
        });
        match ended {
            Ok(report) => {
                tracing::info!(
                    done = report.done,
                    "a gap is repaired: {}",
                    in_words(&report, false).replace('\n', "; ")
                );
                let is_done = report.done && report.failed == 0;
                (if is_done { &self.done } else { &self.failed }).fetch_add(1, Ordering::Relaxed);
                *self.last.lock() = Some(Ok(report));
                is_done || run.is_stopped()
            }
            Err(error) => {
                let why = format!("{error:#}");
                tracing::error!(error = why, "a gap is not repaired; `moneta repair` may be run by hand");
                self.failed.fetch_add(1, Ordering::Relaxed);
                *self.last.lock() = Some(Err(why));
                false
            }
        }
    }
}

struct Watching<'r>(&'r Run);

impl Watch for Watching<'_> {
    fn note(&self, text: &str) {
        tracing::info!("repair: {text}");
    }

    fn should_stop(&self) -> bool {
        self.0.is_stopped()
    }
}

/// Both regions as their topologies have them now.
fn pair(options: &Values, outward: &Outward, clock: &Arc<Clock>) -> anyhow::Result<Pair> {
    let first = |source: Box<dyn TopologySource>| -> anyhow::Result<Topology> {
        Ok(Guarded::new(source, GuardConfig::default()).first(proxy::FIRST)?)
    };
    let (from, to) = (options.get(&FROM).context("it has a source")?, options.get(&TO).context("it has a target")?);
    let there = first(source_there(options, outward)(&from)?).context("from")?;
    let here = first(source_here(options, outward)(&to)?).context("to")?;
    Pair::of_regions((&there, None), (&here, None), outward, clock)
}

impl Observed for Repairs {
    fn samples(&self) -> Vec<Sample> {
        let of = |counter: &AtomicU64| MetricValue::from(counter.load(Ordering::Relaxed));
        vec![
            moneta_relay::REPAIRS.labelled(["done"], of(&self.done)),
            moneta_relay::REPAIRS.labelled(["failed"], of(&self.failed)),
        ]
    }
}
