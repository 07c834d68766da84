//! Renders a snapshot of all metrics as text.

use std::fmt;
use std::sync::Arc;

use moneta_store::{Figure, Report, StoreStats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::figures;
use super::metrics::{self, Metric, Sort};
use super::observed::Observed;
use super::process;
use super::tiers;
use crate::client_memory::Holding;
use crate::counters::Totals;
use crate::latency::{Kind, LatencyTotals};
use crate::node::LogLeftOut;

/// The source values of all metrics, read at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// Sums over workers.
    pub(super) totals: Totals,
    /// Service times.
    pub(super) latencies: LatencyTotals,
    /// The store's statistics.
    pub(super) store: StoreStats,
    /// Metrics that the store's engines name themselves.
    pub(super) figures: Vec<Figure>,
    /// Memory held for clients.
    pub(super) held: Holding,
    /// Limit on that, in bytes.
    pub(super) client_memory: u64,
    /// Most connections at once.
    pub(super) max_connections: u64,
    /// Worker threads.
    pub(super) threads: u64,
    /// Unix second of the start.
    pub(super) started: u64,
    /// Unix second now.
    pub(super) second: u64,
    /// Whether the node is ready for clients.
    pub(super) ready: bool,
    /// Log lines that were dropped.
    pub(super) log: LogLeftOut,
}

impl Snapshot {
    fn of(observed: &Observed) -> Self {
        let node = &observed.node;
        let Report { stats, mut figures } = observed.report();
        figures.extend(observed.listener_figures());
        Self {
            totals: node.registry.totals(),
            latencies: node.registry.latencies(),
            store: stats,
            figures,
            held: node.registry.holding(),
            client_memory: node.client_memory.limit() as u64,
            max_connections: node.settings.max_connections,
            threads: node.settings.threads as u64,
            started: u64::from(node.started),
            second: u64::from(node.clock.now()),
            ready: observed.is_ready(&observed.health()),
            log: node.log_left_out(),
        }
    }
}

/// The metrics as they are now.
pub(super) fn text(observed: &Arc<Observed>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot::of(observed)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in metrics::TABLE.iter().chain(tiers::TABLE) {
            self.encode_metric(metric, &mut encoder)?;
        }
        for real in tiers::REALS {
            if let Some(value) = (real.read)(self) {
                encoder.encode_descriptor(real.name, real.help, None, MetricType::Gauge)?.encode_gauge(&value)?;
            }
        }
        process::encode(&mut encoder)?;
        self.encode_latencies(&mut encoder)?;
        self.encode_device_latency(&mut encoder)?;
        figures::encode(&self.figures, &mut encoder)
    }
}

impl Snapshot {
    fn encode_metric(&self, metric: &Metric, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let samples = (metric.read)(self);
        if samples.is_empty() {
            return Ok(());
        }
        let sort = match metric.sort {
            Sort::Counter => MetricType::Counter,
            Sort::Gauge => MetricType::Gauge,
        };
        let mut family = encoder.encode_descriptor(metric.name, metric.help, None, sort)?;
        for (labels, value) in samples {
            match (metric.sort, labels.is_empty()) {
                (Sort::Counter, true) => family.encode_counter::<NoLabelSet, _, u64>(&value, None)?,
                (Sort::Counter, false) => {
                    family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
                }
                (Sort::Gauge, true) => family.encode_gauge(&value)?,
                (Sort::Gauge, false) => family.encode_family(&labels)?.encode_gauge(&value)?,
            }
        }
        Ok(())
    }

    fn encode_latencies(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family =
            encoder.encode_descriptor(metrics::HISTOGRAM_NAME, metrics::HISTOGRAM_HELP, None, MetricType::Histogram)?;
        for kind in Kind::ALL {
            let totals = self.latencies.of(kind);
            let seconds = totals.sum as f64 / 1e9;
            family.encode_family(&[("command", kind.name())])?.encode_histogram::<NoLabelSet>(
                seconds,
                totals.count(),
                &metrics::histogram(totals),
                None,
            )?;
        }
        Ok(())
    }

    fn encode_device_latency(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(flash) = &self.store.flash else { return Ok(()) };
        let latency = &flash.read_latency;
        let seconds = latency.sum_microseconds as f64 / 1e6;
        let sort = MetricType::Histogram;
        encoder
            .encode_descriptor(tiers::HISTOGRAM_NAME, tiers::HISTOGRAM_HELP, None, sort)?
            .encode_histogram::<NoLabelSet>(seconds, latency.count(), &tiers::histogram(latency), None)
    }
}
