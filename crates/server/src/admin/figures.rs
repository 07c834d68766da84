//! Metrics that engines name themselves ([`moneta_store::Figure`]): an engine on a library, or a peer, knows best what to count,
//! so their names are in no table here.

use std::fmt;

use moneta_store::{Figure, FigureKind};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Writes all figures; figures with the same name become one metric.
pub(super) fn encode(figures: &[Figure], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut families: Vec<(&'static str, Vec<&Figure>)> = Vec::new();
    for figure in figures {
        match families.iter_mut().find(|(name, _)| *name == figure.name) {
            Some((_, family)) => family.push(figure),
            None => families.push((figure.name, vec![figure])),
        }
    }
    families.iter().try_for_each(|(name, family)| encode_family(name, family, encoder))
}

fn encode_family(name: &str, figures: &[&Figure], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Some(first) = figures.first() else { return Ok(()) };
    let sort = match first.kind {
        FigureKind::Counter => MetricType::Counter,
        FigureKind::Gauge => MetricType::Gauge,
    };
    // The library adds the suffix of counters again.
    let name = format!("moneta_{}", name.strip_suffix("_total").unwrap_or(name));
    let mut family = encoder.encode_descriptor(&name, first.help, None, sort)?;
    for figure in figures {
        let labels: Vec<(&str, &str)> = figure.labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
        match (figure.kind, labels.is_empty()) {
            (FigureKind::Counter, true) => family.encode_counter::<NoLabelSet, _, u64>(&figure.value, None)?,
            (FigureKind::Counter, false) => {
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&figure.value, None)?;
            }
            (FigureKind::Gauge, true) => family.encode_gauge(&figure.value)?,
            (FigureKind::Gauge, false) => family.encode_family(&labels)?.encode_gauge(&figure.value)?,
        }
    }
    Ok(())
}
