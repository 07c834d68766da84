//! What clients saw, by phase and by second: a table, and a plot of the long run.

use std::fmt::Write;
use std::time::{Duration, Instant};

use crate::clients::{End, Sample, Seen};

/// What was done, and when it began.
pub struct Phases(Vec<(String, Instant)>);

#[derive(Debug)]
pub struct Row {
    pub phase: String,
    pub rate: f64,
    pub errors: usize,
    pub old: usize,
    /// Old values of what was written through another proxy.
    pub late: usize,
    /// Share of reads of keys that were stored.
    pub hits: f64,
    pub p50: Duration,
    pub p99: Duration,
}

impl Phases {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    pub fn run(&mut self, phase: &str, length: Duration) {
        self.begin(phase);
        std::thread::sleep(length);
    }

    pub fn begin(&mut self, phase: &str) {
        self.0.push((phase.to_owned(), Instant::now()));
    }

    /// What clients saw in each.
    pub fn rows(&self, seen: &Seen) -> Vec<Row> {
        let ends = self.0[1..].iter().map(|(_, began)| *began).chain([Instant::now()]);
        let last = seen.samples.iter().map(|sample| sample.at).max().unwrap_or(seen.began);
        self.0
            .iter()
            .zip(ends)
            .map(|((phase, began), end)| {
                let end = end.min(last);
                let samples = seen.samples.iter().filter(|sample| (*began..end).contains(&sample.at));
                row(phase, samples, end.saturating_duration_since(*began))
            })
            .collect()
    }
}

fn row<'s>(phase: &str, samples: impl Iterator<Item = &'s Sample>, length: Duration) -> Row {
    let samples: Vec<&Sample> = samples.collect();
    let count = |end| samples.iter().filter(|sample| sample.end == end).count();
    let mut took: Vec<Duration> = samples.iter().map(|sample| sample.took).collect();
    took.sort_unstable();
    let quantile = |share: f64| took.get((took.len() as f64 * share) as usize).copied().unwrap_or_default();
    let (hits, misses) = (count(End::Hit), count(End::Miss));
    Row {
        phase: phase.to_owned(),
        rate: samples.len() as f64 / length.as_secs_f64().max(0.001),
        errors: count(End::Error),
        old: count(End::Old),
        late: count(End::Late),
        hits: hits as f64 / (hits + misses).max(1) as f64,
        p50: quantile(0.5),
        p99: quantile(0.99),
    }
}

/// Prints the table, and writes the plot as SVG to where `MONETA_ZONES_PLOT` says. Phases have the same numbers in both.
pub fn print(phases: &Phases, seen: &Seen) {
    println!(
        "| | phase | operations/s | errors | own old values | others' old values | hits | median | p99 |\n|---|---|---|---|---|---|---|---|---|"
    );
    for (number, Row { phase, rate, errors, old, late, hits, p50, p99 }) in phases.rows(seen).into_iter().enumerate() {
        let [p50, p99] = [p50, p99].map(|took| took.as_secs_f64() * 1000.0);
        println!(
            "| {} | {phase} | {rate:.0} | {errors} | {old} | {late} | {:.2} % | {p50:.2} ms | {p99:.1} ms |",
            number + 1,
            hits * 100.0
        );
    }
    if let Some(path) = std::env::var_os("MONETA_ZONES_PLOT") {
        std::fs::write(&path, plot(phases, seen)).expect("the plot can be written");
    }
}

/// A part of the plot: a value of each second, `None` where there is none.
struct Panel {
    name: &'static str,
    value: fn(&Row) -> Option<f64>,
    /// What its scale has at least.
    scale: (f64, f64),
}

/// Hit rate, errors and p99 by second.
fn plot(phases: &Phases, seen: &Seen) -> String {
    const LEFT: f64 = 60.0;
    const WIDTH: f64 = 900.0;
    const HEIGHT: f64 = 110.0;
    const PITCH: f64 = HEIGHT + 30.0;
    let seconds = seen.samples.iter().map(|sample| (sample.at - seen.began).as_secs() as usize).max().unwrap_or(0);
    let mut samples = vec![Vec::new(); seconds + 1];
    seen.samples.iter().for_each(|sample| samples[(sample.at - seen.began).as_secs() as usize].push(sample));
    // The last one is not whole.
    let rows: Vec<Row> =
        samples[..seconds].iter().map(|samples| row("", samples.iter().copied(), Duration::from_secs(1))).collect();
    let x = |second: f64| LEFT + second * WIDTH / seconds.max(1) as f64;
    let panels = [
        Panel {
            name: "hits, % of reads of keys that were stored",
            value: |row| (row.hits > 0.0).then_some(row.hits * 100.0),
            scale: (99.0, 100.0),
        },
        Panel { name: "errors a second", value: |row| Some(row.errors as f64), scale: (0.0, 10.0) },
        Panel {
            name: "p99 in that second, ms",
            value: |row| (row.rate > 0.0).then_some(row.p99.as_secs_f64() * 1000.0),
            scale: (0.0, 10.0),
        },
    ];
    let bottom = 20.0 + panels.len() as f64 * PITCH;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 980 {}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        bottom + 24.0
    );
    for (number, (_, began)) in phases.0.iter().enumerate() {
        let at = x((*began - seen.began).as_secs_f64());
        let _ = writeln!(svg, r##"<path d="M{at:.1},20V{bottom:.1}" stroke="#dddddd"/>"##);
        let _ = writeln!(svg, r#"<text x="{:.1}" y="{:.1}">{}</text>"#, at + 1.0, bottom + 12.0, number + 1);
    }
    for (number, Panel { name, value, scale: (low, high) }) in panels.iter().enumerate() {
        let top = 24.0 + number as f64 * PITCH;
        let values: Vec<Option<f64>> = rows.iter().map(value).collect();
        let low = values.iter().flatten().copied().fold(*low, f64::min).floor();
        let high = values.iter().flatten().copied().fold(*high, f64::max).ceil();
        let y = |value: f64| top + HEIGHT * (high - value) / (high - low);
        let _ = writeln!(svg, r#"<text x="{LEFT}" y="{:.1}" font-weight="bold">{name}</text>"#, top - 5.0);
        for limit in [low, high] {
            let down = y(limit) + 4.0;
            let _ = writeln!(svg, r#"<text x="{}" y="{down:.1}" text-anchor="end">{limit:.0}</text>"#, LEFT - 4.0);
        }
        let _ = writeln!(
            svg,
            r##"<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999999"/>"##
        );
        let points: Vec<String> = values
            .iter()
            .enumerate()
            .filter_map(|(second, value)| Some(format!("{:.1},{:.1}", x(second as f64 + 0.5), y((*value)?))))
            .collect();
        let _ = writeln!(svg, r##"<polyline points="{}" fill="none" stroke="#1f77b4"/>"##, points.join(" "));
    }
    svg.push_str("</svg>\n");
    svg
}
