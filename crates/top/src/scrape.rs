//! The numbers of a process at one moment, by name and labels: read from Prometheus' text format, or made of memcached's statistics.

use std::collections::HashMap;
use std::time::Instant;

/// Most samples of one process that are kept.
const SAMPLES_MAX: usize = 100_000;

/// Labels of a sample, in the order they were told in.
pub(crate) type Labels = Vec<(String, String)>;

/// Numbers of one moment.
#[derive(Clone, Debug)]
pub(crate) struct Scrape {
    pub(crate) at: Instant,
    by_name: HashMap<String, Vec<(Labels, f64)>>,
}

impl Scrape {
    pub(crate) fn new(at: Instant) -> Self {
        Self { at, by_name: HashMap::new() }
    }

    /// Those of a page in Prometheus' text format. Lines that are none of its samples are passed over.
    pub(crate) fn parse(at: Instant, page: &str) -> Self {
        let mut scrape = Self::new(at);
        for (name, labels, value) in page.lines().filter_map(sample).take(SAMPLES_MAX) {
            scrape.put(name, labels, value);
        }
        scrape
    }

    pub(crate) fn put(&mut self, name: &str, labels: Labels, value: f64) {
        let name = name.strip_prefix("moneta_").unwrap_or(name);
        self.by_name.entry(name.to_owned()).or_default().push((labels, value));
    }

    /// All samples of a metric, named without `moneta_`.
    pub(crate) fn all(&self, name: &str) -> &[(Labels, f64)] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// The sum of those whose labels have all these values; `None`: there is none.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |of: &Labels| labels.iter().all(|(name, value)| label(of, name) == Some(value));
        let mut found = self.all(name).iter().filter(|(of, _)| has(of)).map(|(_, value)| *value).peekable();
        found.peek().is_some().then(|| found.sum())
    }

    /// The value of a label of the first sample of a metric.
    pub(crate) fn label(&self, name: &str, of: &str) -> Option<&str> {
        label(&self.all(name).first()?.0, of)
    }
}

/// The value of a label.
pub(crate) fn label<'a>(labels: &'a Labels, name: &str) -> Option<&'a str> {
    labels.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
}

fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Labels::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name, labels, value))
}

/// Reads labels up to the brace that closes them.
fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut all = Labels::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((all, rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => match letters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        all.push((name.to_owned(), value));
        rest = &after[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_and_what_is_none_is_passed_over() {
        let page = "# HELP moneta_items Items.\n# TYPE moneta_items gauge\nmoneta_items 7\n\nnonsense\nx{broken 3\n\
                    moneta_commands_total{command=\"get\"} 10\nmoneta_commands_total{command=\"set\"} 4 1700000000\n\
                    h_bucket{le=\"+Inf\",of=\"a\\\"b\\\\,}\\n\"} 2\nbig 1.5e3\n# EOF\n";
        let scrape = Scrape::parse(Instant::now(), page);
        assert_eq!(scrape.sum("items", &[]), Some(7.0));
        assert_eq!(scrape.sum("commands_total", &[]), Some(14.0));
        assert_eq!(scrape.sum("commands_total", &[("command", "set")]), Some(4.0));
        assert_eq!(scrape.sum("commands_total", &[("command", "cas")]), None);
        assert_eq!(scrape.label("h_bucket", "of"), Some("a\"b\\,}\n"));
        assert_eq!(scrape.sum("big", &[]), Some(1500.0));
        assert!(scrape.all("x").is_empty() && scrape.all("nonsense").is_empty());
    }
}
