//! The runs of both servers put side by side: medians, their ratio, and the ratios of the rounds.

use serde::Serialize;

use super::pairs::Paired;
use super::round::{Run, Side};
use crate::table::{Table, figure, median};

/// One figure over all rounds.
#[derive(Debug, Clone, Serialize)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The median of each server's rounds, A first.
    pub medians: [f64; 2],
    /// Median of B over median of A; none when A's is 0.
    pub ratio: Option<f64>,
    /// The least and the greatest ratio B/A of a single round.
    pub spread: Option<[f64; 2]>,
    /// The ratios B/A of the rounds, as pairs; none when A's was 0 in all of them.
    pub paired: Option<Paired>,
}

/// The result of a comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The servers' names, A first.
    pub names: [String; 2],
    /// Their addresses or command lines.
    pub servers: [String; 2],
    /// A's rate in a closed loop, in requests a second, if the load's rate was derived from it.
    pub peak: Option<f64>,
    /// What is compared.
    pub metrics: Vec<Metric>,
    /// All rounds.
    pub runs: Vec<Run>,
}

impl Comparison {
    /// Compares the runs; figures that a server did not report are left out.
    pub(super) fn new(sides: &[Side; 2], peak: Option<f64>, runs: Vec<Run>) -> Self {
        let names = sides.each_ref().map(|side| side.name.clone());
        let servers = sides.each_ref().map(|side| side.origin.to_string());
        let figures = runs.first().map(|run| run.figures.clone()).unwrap_or_default();
        let metrics = figures.iter().filter_map(|figure| metric(figure.name, figure.unit, &runs)).collect();
        Self { names, servers, peak, metrics, runs }
    }

    /// The comparison as a table.
    pub fn render(&self) -> String {
        let [a, b] = &self.names;
        let mut table = Table::new(["", a.as_str(), b.as_str(), "B/A", "rounds", "paired", "95 %", "unit"]);
        for metric in &self.metrics {
            let ratio = one(metric.ratio);
            let spread = range(metric.spread);
            let paired = one(metric.paired.as_ref().map(|paired| paired.median));
            let interval = range(metric.paired.as_ref().and_then(|paired| paired.interval));
            let [a, b] = metric.medians.map(figure);
            table.row([metric.name.to_owned(), a, b, ratio, spread, paired, interval, metric.unit.to_owned()]);
        }
        let rounds = self.runs.iter().map(|run| run.round).max().unwrap_or(0);
        let peak = self.peak.map(|peak| format!("peak rate of A: {} requests/s\n", figure(peak))).unwrap_or_default();
        format!(
            "A = {a}, B = {b}; medians of {rounds} rounds, B/A of the medians, range of the rounds' B/A, their median and its interval\n{peak}{}",
            table.render()
        )
    }
}

fn one(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"))
}

fn range(ratios: Option<[f64; 2]>) -> String {
    ratios.map_or("-".to_owned(), |[least, most]| format!("{least:.3}..{most:.3}"))
}

fn metric(name: &'static str, unit: &'static str, runs: &[Run]) -> Option<Metric> {
    let of_side = |side| -> Vec<f64> {
        let figures = runs.iter().filter(|run| run.side == side).flat_map(|run| &run.figures);
        figures.filter(|figure| figure.name == name).map(|figure| figure.value).collect()
    };
    let (a, b) = (of_side(0), of_side(1));
    let medians = [median(a.clone())?, median(b.clone())?];
    let ratios: Vec<f64> = a.iter().zip(&b).filter(|(a, _)| **a != 0.0).map(|(a, b)| b / a).collect();
    let least = ratios.iter().copied().reduce(f64::min);
    let most = ratios.iter().copied().reduce(f64::max);
    Some(Metric {
        name,
        unit,
        medians,
        ratio: (medians[0] != 0.0).then(|| medians[1] / medians[0]),
        spread: least.zip(most).map(|(least, most)| [least, most]),
        paired: Paired::new(ratios),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Figure;

    fn run(side: usize, round: usize, value: f64) -> Run {
        let figures = vec![Figure { name: "throughput", unit: "requests/s", value }];
        Run { side, round, figures, detail: serde_json::Value::Null }
    }

    fn sides() -> [Side; 2] {
        ["a", "b"].map(|name| Side { name: name.to_owned(), origin: "127.0.0.1:1".parse().unwrap() })
    }

    #[test]
    fn medians_ratio_and_spread_come_from_all_rounds() {
        let runs = vec![
            run(0, 1, 100.0),
            run(1, 1, 150.0),
            run(0, 2, 80.0),
            run(1, 2, 160.0),
            run(0, 3, 90.0),
            run(1, 3, 90.0),
        ];
        let comparison = Comparison::new(&sides(), None, runs);
        let metric = &comparison.metrics[0];
        assert_eq!(metric.medians, [90.0, 150.0]);
        assert_eq!(metric.spread, Some([1.0, 2.0]));
        assert!((metric.ratio.unwrap() - 150.0 / 90.0).abs() < 1e-12);
        assert!(comparison.render().contains("1.667"));
    }

    #[test]
    fn a_figure_of_zero_has_no_ratio() {
        let comparison = Comparison::new(&sides(), None, vec![run(0, 1, 0.0), run(1, 1, 5.0)]);
        assert_eq!(comparison.metrics[0].ratio, None);
    }
}
