//! Metrics: each is declared once, beside what it counts, and reported as a list of samples.
//!
//! A component has a table of [`Reading`]s: a [`Metric`] says what a number is called and what it means, and a function takes the
//! number out of what the component counts. `/metrics`, the `stats` command and `/stats` render the samples, and know no
//! component. So a new metric is one line in such a table, and one in docs/metrics.md.
//!
//! ```
//! use moneta_store::metric::{Metric, Reading, Unit, by, samples};
//!
//! struct Doors { opened: u64, closed: u64, glass: u64 }
//!
//! const TABLE: &[Reading<Doors>] = &[
//!     Metric::counter("doors_total", Unit::Count, "Doors, by what was done with them.")
//!         .labels(&["done"])
//!         .read(|doors| by(&[("opened", doors.opened), ("closed", doors.closed)])),
//!     Metric::gauge("doors_glass_bytes", Unit::Bytes, "Weight of their glass.").keys(&["glass"]).read(|doors| doors.glass.into()),
//! ];
//!
//! let told = samples(TABLE, &Doors { opened: 2, closed: 1, glass: 7 });
//! assert_eq!(told[1].to_string(), r#"doors_total{done="closed"} 1"#);
//! assert_eq!(told[1].key().as_deref(), Some("doors_total:closed"));
//! assert_eq!(told[2].key().as_deref(), Some("glass"));
//! ```

use std::fmt;

/// How a metric moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Grows only, from 0 at the start of the process.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Values by size, and their sum; both grow only.
    Histogram,
}

/// What a metric is measured in. The name tells it too, as Prometheus asks for: a name has `bytes` or `seconds` in it if and only
/// if that is the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things, events, or 1 for yes and 0 for no.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds, or the Unix second of a moment.
    Seconds,
    /// One number divided by another.
    Ratio,
}

/// Where the `stats` command shows a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    /// Under the metric's name, with the value of each label after a colon.
    Own,
    /// The metric's samples, in order, under one of these each; no sample beyond them, and none whose key is empty. `{}`
    /// stands for the value of the sample's first label.
    Listed(&'static [&'static str]),
}

/// The declaration of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Snake case, in the manner of Prometheus, and without the `moneta_` that `/metrics` puts before it; counters end in `_total`.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// What it is measured in.
    pub unit: Unit,
    /// One sentence on what it counts.
    pub help: &'static str,
    /// The labels of its samples, in snake case.
    pub labels: &'static [&'static str],
    keys: Keys,
    in_metrics: bool,
}

impl Metric {
    const fn new(name: &'static str, kind: Kind, unit: Unit, help: &'static str) -> Self {
        Self { name, kind, unit, help, labels: &[], keys: Keys::Own, in_metrics: true }
    }

    /// A counter. `stats` shows it under its name, unless [`Metric::keys`] says otherwise.
    pub const fn counter(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, Kind::Counter, unit, help)
    }

    /// A gauge. `stats` shows it under its name, unless [`Metric::keys`] says otherwise.
    pub const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, Kind::Gauge, unit, help)
    }

    /// A histogram, which `stats` does not show.
    pub const fn histogram(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, Kind::Histogram, unit, help).keys(&[])
    }

    /// A number that only `stats` tells, under `key`: what metrics tell in another form or unit.
    pub const fn only_stats(key: &'static str) -> Self {
        Self { in_metrics: false, ..Self::new(key, Kind::Gauge, Unit::Count, "") }
    }

    /// The labels of its samples.
    #[must_use]
    pub const fn labels(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }

    /// The keys of `stats` that its samples, in order, are shown under; empty for a sample that `stats` does not show. `{}` stands
    /// for the value of the sample's first label.
    #[must_use]
    pub const fn keys(self, keys: &'static [&'static str]) -> Self {
        Self { keys: Keys::Listed(keys), ..self }
    }

    /// The metric with the function that reads it.
    pub const fn read<N>(self, read: fn(&N) -> Values) -> Reading<N> {
        Reading { metric: self, read }
    }

    /// Whether `/metrics` shows it.
    pub fn is_in_metrics(&self) -> bool {
        self.in_metrics
    }

    /// The sample of a metric without labels.
    pub fn sample(self, value: impl Into<Value>) -> Sample {
        self.labelled([], value)
    }

    /// A sample with the values of the metric's labels, in their order.
    pub fn labelled<const N: usize>(self, labels: [&str; N], value: impl Into<Value>) -> Sample {
        debug_assert_eq!(self.labels.len(), N, "{}: each label has a value", self.name);
        Sample { metric: self, labels: labels.map(str::to_owned).to_vec(), value: value.into(), place: 0 }
    }
}

/// A metric and where its values are read, in a table of a component's metrics.
pub struct Reading<N> {
    metric: Metric,
    read: fn(&N) -> Values,
}

impl<N> Reading<N> {
    /// The declaration.
    pub const fn metric(&self) -> Metric {
        self.metric
    }
}

/// The samples of all metrics of `table`, of what `counted` holds now.
pub fn samples<N>(table: &[Reading<N>], counted: &N) -> Vec<Sample> {
    samples_of([], table, counted)
}

/// The same of one of several alike: `which` are the values of the first labels, which all metrics of `table` share.
pub fn samples_of<N, const L: usize>(which: [&str; L], table: &[Reading<N>], counted: &N) -> Vec<Sample> {
    let all = |reading: &Reading<N>| {
        let metric = reading.metric;
        let values = (reading.read)(counted).0.into_iter().enumerate();
        values.map(move |(place, (others, value))| {
            let labels: Vec<String> = which.iter().map(|&label| label.to_owned()).chain(others).collect();
            debug_assert_eq!(metric.labels.len(), labels.len(), "{}: each label has a value", metric.name);
            Sample { metric, labels, value, place }
        })
    };
    table.iter().flat_map(all).collect()
}

/// The values of one metric: one for each combination of labels.
#[derive(Clone, Debug, Default)]
pub struct Values(Vec<(Vec<String>, Value)>);

impl Values {
    /// No sample: what the metric counts is not there.
    pub const NONE: Self = Self(Vec::new());

    /// One more, with the values of its labels.
    #[must_use]
    pub fn and<const N: usize>(mut self, labels: [&str; N], value: impl Into<Value>) -> Self {
        self.0.push((labels.map(str::to_owned).to_vec(), value.into()));
        self
    }
}

impl<V: Into<Value>> From<V> for Values {
    fn from(value: V) -> Self {
        Self::NONE.and([], value)
    }
}

/// A sample for each value of a metric's only label.
pub fn by(values: &[(&str, u64)]) -> Values {
    values.iter().fold(Values::NONE, |all, &(label, value)| all.and([label], value))
}

/// A metric's value at some moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What it is a value of.
    pub metric: Metric,
    /// The values of the metric's labels.
    pub labels: Vec<String>,
    /// The value.
    pub value: Value,
    /// Which sample of its metric this is, counted from 0.
    place: usize,
}

impl Sample {
    /// Whether its key in `stats` is its metric's own name, which memcached does not know.
    pub fn has_own_key(&self) -> bool {
        self.metric.in_metrics && matches!(self.metric.keys, Keys::Own)
    }

    /// The key that `stats` shows it under; `None` if it does not.
    pub fn key(&self) -> Option<String> {
        let value = match self.metric.keys {
            Keys::Own => {
                let labels = self.labels.iter().flat_map(|label| [":", label.as_str()]);
                let mut key: String = std::iter::once(self.metric.name).chain(labels).collect();
                key.retain(|letter| !letter.is_whitespace());
                return Some(key);
            }
            Keys::Listed(keys) => keys.get(self.place).filter(|key| !key.is_empty())?,
        };
        Some(self.labels.first().map_or_else(|| (*value).to_owned(), |label| value.replace("{}", label)))
    }
}

impl fmt::Display for Sample {
    /// As a line of `/metrics`, without `moneta_`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.metric.name)?;
        for (index, (label, value)) in self.metric.labels.iter().zip(&self.labels).enumerate() {
            write!(formatter, "{}{label}={value:?}", if index == 0 { "{" } else { "," })?;
        }
        write!(formatter, "{} {}", if self.labels.is_empty() { "" } else { "}" }, self.value)
    }
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(u64),
    /// Any number.
    Real(f64),
    /// Of a histogram.
    Histogram(Histogram),
}

impl Value {
    /// As a number; of a histogram the number of its values.
    pub fn number(&self) -> f64 {
        match self {
            Self::Whole(value) => *value as f64,
            Self::Real(value) => *value,
            Self::Histogram(histogram) => histogram.count() as f64,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(formatter),
            Self::Real(value) => value.fmt(formatter),
            Self::Histogram(histogram) => histogram.count().fmt(formatter),
        }
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<Histogram> for Value {
    fn from(value: Histogram) -> Self {
        Self::Histogram(value)
    }
}

/// How often values were of which size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Upper bounds, growing, the last of them infinite, each with the values above the bound before.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all values.
    pub sum: f64,
}

impl Histogram {
    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_shown_in_stats_under_the_key_of_its_place() {
        const TABLE: &[Reading<()>] = &[
            Metric::counter("reads_total", Unit::Count, "Reads.")
                .labels(&["tier"])
                .keys(&["reads_{}", "", "none"])
                .read(|()| by(&[("ram", 1), ("ssd", 2), ("other", 3), ("beyond", 4)])),
            Metric::only_stats("limit").read(|()| 5.into()),
            Metric::histogram("wait_seconds", Unit::Seconds, "Waits.").read(|()| Histogram::default().into()),
            Metric::gauge("absent", Unit::Count, "What is not there.").read(|()| Values::NONE),
        ];
        let samples = samples(TABLE, &());
        let keys: Vec<_> = samples.iter().map(Sample::key).collect();
        assert_eq!(keys, [Some("reads_ram".into()), None, Some("none".into()), None, Some("limit".into()), None]);
        assert!(samples.iter().all(|sample| sample.metric.is_in_metrics() == (sample.metric.name != "limit")));
    }

    #[test]
    fn a_key_has_no_blanks_whatever_its_labels_are() {
        const UP: Metric = Metric::gauge("peer_up", Unit::Count, "Whether it answers.").labels(&["server", "port"]);
        assert_eq!(UP.labelled(["a b", "1"], true).key().as_deref(), Some("peer_up:ab:1"));
        assert_eq!(UP.labelled(["a", "1"], 0.5).to_string(), r#"peer_up{server="a",port="1"} 0.5"#);
    }
}
