//! The text format of a scrape: OpenMetrics if the client asks for it, else Prometheus' own, which every scraper reads.

use std::collections::HashSet;

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text format 0.0.4.
    Prometheus,
}

impl Format {
    /// The format that a request's `Accept` header prefers; on a tie OpenMetrics, which carries more.
    pub fn preferred(accept: &str) -> Self {
        let quality = |kind: &str| {
            accept
                .split(',')
                .filter_map(|range| weight(range, kind))
                .fold(None, |best: Option<f32>, weight| Some(best.map_or(weight, |best| best.max(weight))))
        };
        let plain = quality("text/plain").unwrap_or(0.0);
        match quality("application/openmetrics-text") {
            Some(open) if open > 0.0 && open >= plain => Self::OpenMetrics,
            _ => Self::Prometheus,
        }
    }

    /// The value of the `Content-Type` header.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts `text` from OpenMetrics to this format.
    pub fn of(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Prometheus => to_prometheus(&text),
        }
    }
}

/// The weight, 0 to 1, that a range of an `Accept` header gives to `kind`, if it names it.
fn weight(range: &str, kind: &str) -> Option<f32> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(kind) {
        return None;
    }
    let given = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    Some(given.map_or(1.0, |given| given.trim().parse().unwrap_or(0.0)))
}

/// Prometheus' format uses the counter suffix in descriptions too, and has neither units nor an end mark.
fn to_prometheus(text: &str) -> String {
    let counter = |line: &str| line.strip_prefix("# TYPE ")?.strip_suffix(" counter").map(str::to_owned);
    let counters: HashSet<String> = text.lines().filter_map(counter).collect();
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for line in text.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        let described = ["# HELP ", "# TYPE "].into_iter().find_map(|mark| {
            let (name, rest) = line.strip_prefix(mark)?.split_once(' ')?;
            counters.contains(name).then_some((mark, name, rest))
        });
        match described {
            Some((mark, name, rest)) => out.extend([mark, name, "_total ", rest, "\n"]),
            None => out.extend([line, "\n"]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_decides() {
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,*/*;q=0.2";
        for accept in [prometheus_3, "application/openmetrics-text", "text/plain, application/openmetrics-text"] {
            assert_eq!(Format::preferred(accept), Format::OpenMetrics, "{accept}");
        }
        let plain_first = "text/plain;version=0.0.4, application/openmetrics-text;q=0.5";
        for accept in ["", "*/*", "text/plain", "text/html", plain_first, "application/openmetrics-text;q=0"] {
            assert_eq!(Format::preferred(accept), Format::Prometheus, "{accept}");
        }
    }

    #[test]
    fn counters_are_described_under_the_name_of_their_samples() {
        let open =
            "# HELP a Of a.\n# TYPE a counter\na_total 1\n# HELP b Of b.\n# TYPE b gauge\n# UNIT b s\nb 2\n# EOF\n";
        let plain = "# HELP a_total Of a.\n# TYPE a_total counter\na_total 1\n# HELP b Of b.\n# TYPE b gauge\nb 2\n";
        assert_eq!(Format::Prometheus.of(open.to_owned()), plain);
        assert_eq!(Format::OpenMetrics.of(open.to_owned()), open);
    }
}
