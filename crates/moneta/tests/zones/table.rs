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
        self.0.push((phase.to_owned(), Instant::now()));
        std::thread::sleep(length);
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

/// Prints the table, and of a long run the plot as SVG.
pub fn print(phases: &Phases, seen: &Seen, long: bool) {
    println!(
        "| phase | operations/s | errors | own old values | others' old values | hits | median | p99 |\n|---|---|---|---|---|---|---|---|"
    );
    for Row { phase, rate, errors, old, late, hits, p50, p99 } in phases.rows(seen) {
        let [p50, p99] = [p50, p99].map(|took| took.as_secs_f64() * 1000.0);
        println!(
            "| {phase} | {rate:.0} | {errors} | {old} | {late} | {:.2} % | {p50:.2} ms | {p99:.1} ms |",
            hits * 100.0
        );
    }
    if long {
        println!("{}", plot(phases, seen));
    }
}

/// A part of the plot: a value of each second, on a scale up to `least` at least.
struct Panel {
    name: &'static str,
    value: fn(&Row) -> f64,
    least: f64,
}

/// Hit rate, errors and p99 by second.
fn plot(phases: &Phases, seen: &Seen) -> String {
    const WIDTH: f64 = 960.0;
    const HEIGHT: f64 = 120.0;
    let seconds = seen.samples.iter().map(|sample| (sample.at - seen.began).as_secs() as usize).max().unwrap_or(0);
    let rows: Vec<Row> = (0..seconds)
        .map(|second| {
            let of_second = |sample: &&Sample| (sample.at - seen.began).as_secs() as usize == second;
            row("", seen.samples.iter().filter(of_second), Duration::from_secs(1))
        })
        .collect();
    let x = |second: f64| 60.0 + second * WIDTH / seconds.max(1) as f64;
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="1040" height="520" font-family="sans-serif" font-size="11">"#
    );
    let panels = [
        Panel { name: "hits, %", value: |row| row.hits * 100.0, least: 100.0 },
        Panel { name: "errors a second", value: |row| row.errors as f64, least: 0.0 },
        Panel { name: "p99, ms", value: |row| row.p99.as_secs_f64() * 1000.0, least: 0.0 },
    ];
    for (number, Panel { name, value, least }) in panels.iter().enumerate() {
        let top = 20.0 + number as f64 * (HEIGHT + 40.0);
        let most = rows.iter().map(value).fold(*least, f64::max).max(1.0);
        let _ = writeln!(svg, r#"<text x="4" y="{}">{name}</text>"#, top - 4.0);
        let _ = writeln!(svg, r#"<text x="4" y="{}">{most:.0}</text>"#, top + 10.0);
        let _ =
            writeln!(svg, r##"<rect x="60" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>"##);
        let points: Vec<String> = rows
            .iter()
            .enumerate()
            .map(|(second, row)| format!("{:.1},{:.1}", x(second as f64), top + HEIGHT - value(row) / most * HEIGHT))
            .collect();
        let _ = writeln!(svg, r##"<polyline points="{}" fill="none" stroke="#06c"/>"##, points.join(" "));
    }
    for (number, (_, began)) in phases.0.iter().enumerate() {
        let at = x((*began - seen.began).as_secs_f64());
        let _ = writeln!(svg, r##"<line x1="{at:.1}" x2="{at:.1}" y1="20" y2="470" stroke="#ccc"/>"##);
        let _ = writeln!(svg, r#"<text x="{at:.1}" y="{}">{}</text>"#, 484 + number % 2 * 14, number + 1);
    }
    svg.push_str("</svg>\n");
    svg
}
