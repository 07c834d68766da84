//! Renders samples as text for Prometheus. It names no metric: components declare what is shown.

use std::fmt;

use moneta_store::metric::{Kind, Sample, Value};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::process;

/// All samples of one moment.
#[derive(Debug)]
struct Samples(Vec<Sample>);

/// The text of `samples`, in the format of OpenMetrics, with the process's use of resources. Leaves out those that are not for
/// metrics.
///
/// # Errors
/// If a sample cannot be encoded.
pub fn text(mut samples: Vec<Sample>) -> Result<String, fmt::Error> {
    samples.retain(|sample| sample.metric.is_in_metrics());
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Samples(samples)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

impl Collector for Samples {
    /// Samples of one name stand together, wherever they come from.
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families: Vec<(&str, Vec<&Sample>)> = Vec::new();
        for sample in &self.0 {
            match families.iter_mut().find(|(name, _)| *name == sample.metric.name) {
                Some((_, family)) => family.push(sample),
                None => families.push((sample.metric.name, vec![sample])),
            }
        }
        for (name, family) in families {
            encode_family(name, &family, &mut encoder)?;
        }
        process::encode(&mut encoder)
    }
}

fn encode_family(name: &str, samples: &[&Sample], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Some(first) = samples.first() else { return Ok(()) };
    let sort = match first.metric.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
    };
    // The library adds the suffix of counters again.
    let name = format!("moneta_{}", name.strip_suffix("_total").unwrap_or(name));
    let mut family = encoder.encode_descriptor(&name, first.metric.help, None, sort)?;
    for sample in samples {
        let labels: Vec<(&str, &str)> =
            sample.metric.labels.iter().copied().zip(sample.labels.iter().map(String::as_str)).collect();
        if labels.is_empty() {
            encode_value(sample, &mut family)?;
        } else {
            encode_value(sample, &mut family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_value(sample: &Sample, into: &mut MetricEncoder<'_>) -> fmt::Result {
    match (sample.metric.kind, &sample.value) {
        (_, Value::Histogram(histogram)) => {
            into.encode_histogram::<NoLabelSet>(histogram.sum, histogram.count(), &histogram.buckets, None)
        }
        (Kind::Counter, Value::Whole(value)) => into.encode_counter::<NoLabelSet, _, u64>(value, None),
        (Kind::Counter, Value::Real(value)) => into.encode_counter::<NoLabelSet, _, u64>(value, None),
        (_, Value::Whole(value)) => into.encode_gauge(value),
        (_, Value::Real(value)) => into.encode_gauge(value),
    }
}
