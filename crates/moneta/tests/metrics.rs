//! Guards against metrics that no document names, and against documents of metrics that are no more.

use std::collections::BTreeMap;

use moneta_store::StoreStats;
use moneta_store::metric::{Kind, Metric, Reading, Unit};

/// All metrics that a node can show.
fn declared() -> Vec<Metric> {
    let all = StoreStats::METRICS.iter().map(Reading::metric);
    let all = all
        .chain(moneta_process::desk::metrics())
        .chain(moneta_server::metrics())
        .chain(moneta_memory::metrics())
        .chain(moneta_layers::metrics());
    let all = all.chain(moneta_flash::metrics()).chain(moneta_remote::metrics()).chain(moneta_cluster::metrics());
    let all = all.chain(moneta_cluster::catchup::catch_up_metrics()).chain(moneta_link::metrics());
    let all = all.chain(moneta_control::metrics()).chain(moneta_relay::metrics());
    #[cfg(feature = "lmdb")]
    let all = all.chain(moneta_lmdb::metrics());
    #[cfg(feature = "rocks")]
    let all = all.chain(moneta_rocks::metrics());
    all.filter(Metric::is_in_metrics).collect()
}

/// What is not in every build.
fn is_left_out(name: &str) -> bool {
    let of = |engine: &str| name.starts_with(&format!("moneta_{engine}_"));
    (!cfg!(feature = "lmdb") && of("lmdb")) || (!cfg!(feature = "rocks") && of("rocks"))
}

/// Type and labels by name, as docs/metrics.md has them.
fn documented() -> BTreeMap<String, (String, Vec<String>)> {
    let page = std::fs::read_to_string("../../docs/metrics.md").unwrap();
    let row = |line: &str| {
        let (series, meaning) = line.strip_prefix("| `")?.split_once("` | ")?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.trim_end_matches('}').split(", ").filter(|label| !label.is_empty()).map(str::to_owned);
        let kind = match () {
            () if name.ends_with("_total") => "counter",
            () if meaning.starts_with("Histogram: ") => "histogram",
            () => "gauge",
        };
        let entry = || (name.to_owned(), (kind.to_owned(), labels.collect()));
        (name.starts_with("moneta_") && !is_left_out(name)).then(entry)
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn the_documented_metrics_are_the_declared_ones() {
    let kind = |metric: &Metric| match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let labels = |metric: &Metric| metric.labels.iter().map(|&label| label.to_owned()).collect();
    let declared: BTreeMap<String, (String, Vec<String>)> = declared()
        .iter()
        .map(|metric| (format!("moneta_{}", metric.name), (kind(metric).to_owned(), labels(metric))))
        .collect();
    let documented = documented();
    for (name, as_declared) in &declared {
        assert_eq!(documented.get(name), Some(as_declared), "{name} in docs/metrics.md");
    }
    for name in documented.keys() {
        assert!(declared.contains_key(name), "docs/metrics.md has {name}, and nothing declares it");
    }
}

#[test]
fn each_name_is_declared_once_and_says_what_prometheus_wants_it_to() {
    let declared = declared();
    for metric in &declared {
        let name = metric.name;
        assert_eq!(declared.iter().filter(|other| other.name == name).count(), 1, "{name}");
        assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
        assert_eq!(name.contains("bytes"), metric.unit == Unit::Bytes, "{name}");
        assert_eq!(name.contains("seconds"), metric.unit == Unit::Seconds, "{name}");
        assert!(metric.help.ends_with('.'), "{name}: {}", metric.help);
    }
}
