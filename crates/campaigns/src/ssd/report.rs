//! The results of a campaign: one row a figure, with the medians of both servers' rounds, their ratio, and what was asked for.

use serde::Serialize;

use moneta_bench::table::{Table, figure, median};

/// What a figure should come to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub enum Wanted {
    /// The ratio of the node to the peer is at least this.
    RatioAtLeast(f64),
    /// The ratio is at most this.
    RatioAtMost(f64),
    /// The node's figure is at least this.
    AtLeast(f64),
    /// The node's figure is at most this.
    AtMost(f64),
}

impl Wanted {
    fn text(self) -> String {
        match self {
            Self::RatioAtLeast(bound) => format!("ratio ≥ {bound}"),
            Self::RatioAtMost(bound) => format!("ratio ≤ {bound}"),
            Self::AtLeast(bound) => format!("≥ {bound}"),
            Self::AtMost(bound) => format!("≤ {bound}"),
        }
    }

    fn met(self, node: f64, ratio: Option<f64>) -> Option<bool> {
        match self {
            Self::RatioAtLeast(bound) => ratio.map(|ratio| ratio >= bound),
            Self::RatioAtMost(bound) => ratio.map(|ratio| ratio <= bound),
            Self::AtLeast(bound) => Some(node >= bound),
            Self::AtMost(bound) => Some(node <= bound),
        }
    }
}

/// One figure of one load.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The load.
    pub load: String,
    /// The figure.
    pub figure: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// What it should come to.
    pub wanted: Option<Wanted>,
    /// What each server reached in each round, the node first; empty where it was not measured.
    pub rounds: [Vec<f64>; 2],
}

impl Row {
    fn medians(&self) -> [Option<f64>; 2] {
        self.rounds.each_ref().map(|rounds| median(rounds.clone()))
    }

    fn ratio(&self) -> Option<f64> {
        let [node, peer] = self.medians();
        node.zip(peer).filter(|(_, peer)| *peer != 0.0).map(|(node, peer)| node / peer)
    }

    /// The least and the greatest ratio of a single round, if there was more than one.
    fn spread(&self) -> Option<[f64; 2]> {
        let [node, peer] = &self.rounds;
        let ratios = node.iter().zip(peer).filter(|(_, peer)| **peer != 0.0).map(|(node, peer)| node / peer);
        let ratios: Vec<f64> = ratios.collect();
        let bound = |choose: fn(f64, f64) -> f64| ratios.iter().copied().reduce(choose);
        (ratios.len() > 1).then(|| bound(f64::min).zip(bound(f64::max)).map(|(least, most)| [least, most])).flatten()
    }

    fn cells(&self) -> [String; 6] {
        let shown = |value: Option<f64>| value.map_or("–".to_owned(), figure);
        let [node, peer] = self.medians();
        let wanted = self.wanted.map_or(String::new(), |wanted| {
            let verdict = match node.and_then(|node| wanted.met(node, self.ratio())) {
                Some(true) => ": met",
                Some(false) => ": missed",
                None => "",
            };
            wanted.text() + verdict
        });
        [
            if self.unit.is_empty() { self.figure.to_owned() } else { format!("{}, {}", self.figure, self.unit) },
            shown(node),
            shown(peer),
            self.ratio().map_or("–".to_owned(), |ratio| format!("{ratio:.2}")),
            self.spread().map_or(String::new(), |[least, most]| format!("{least:.2}–{most:.2}")),
            wanted,
        ]
    }
}

/// What a campaign measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The servers' names, the node first; the same name twice without a peer.
    pub names: [String; 2],
    /// Their command lines.
    pub servers: Vec<String>,
    /// All figures in the order they were measured.
    pub rows: Vec<Row>,
    /// Sentences about what could not be measured, or was not as it should be.
    pub remarks: Vec<String>,
}

/// Names a row.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// The figure.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// What it should come to.
    pub wanted: Option<Wanted>,
}

impl Figure {
    /// A figure that nothing was asked of.
    pub const fn new(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, wanted: None }
    }

    /// With what it should come to.
    pub const fn wanted(mut self, wanted: Option<Wanted>) -> Self {
        self.wanted = wanted;
        self
    }
}

impl Report {
    /// Adds what server `side` (0 is the node) reached in the next round.
    pub fn add(&mut self, load: &str, figure: Figure, side: usize, value: f64) {
        let row = self.rows.iter_mut().find(|row| row.load == load && row.figure == figure.name);
        let row = match row {
            Some(row) => row,
            None => {
                let Figure { name, unit, wanted } = figure;
                self.rows.push(Row { load: load.to_owned(), figure: name, unit, wanted, rounds: [vec![], vec![]] });
                self.rows.last_mut().expect("a row was just added")
            }
        };
        row.rounds[side].push(value);
    }

    /// The table as plain text.
    pub fn render(&self) -> String {
        let mut table = Table::new(self.head());
        let mut load = "";
        for row in &self.rows {
            if row.load != load {
                load = &row.load;
                table.heading(load);
            }
            table.row(row.cells());
        }
        table.render() + &self.remarks.iter().map(|remark| format!("{remark}\n")).collect::<String>()
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from("Commands:\n\n```\n");
        self.servers.iter().for_each(|server| text += &format!("{server}\n"));
        text += &format!("```\n\n| load | {} |\n|---|---|---|---|---|---|---|\n", self.head().join(" | "));
        let mut load = "";
        for row in &self.rows {
            let name = if row.load == load { "" } else { &row.load };
            load = &row.load;
            text += &format!("| {name} | {} |\n", row.cells().join(" | "));
        }
        self.remarks.iter().for_each(|remark| text += &format!("\n{remark}\n"));
        text
    }

    fn head(&self) -> [&str; 6] {
        ["figure", &self.names[0], &self.names[1], "ratio", "rounds", "wanted"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report =
            Report { names: ["node".into(), "peer".into()], servers: vec![], rows: vec![], remarks: vec![] };
        let rate = Figure::new("rate", "gets/s").wanted(Some(Wanted::RatioAtLeast(2.0)));
        for (node, peer) in [(100.0, 40.0), (90.0, 50.0), (80.0, 20.0)] {
            report.add("reads", rate, 0, node);
            report.add("reads", rate, 1, peer);
        }
        report.add("reads", Figure::new("p99", "µs").wanted(Some(Wanted::AtMost(5.0))), 0, 7.0);
        report
    }

    #[test]
    fn rows_show_medians_ratio_range_and_verdict() {
        let text = report().markdown();
        assert!(text.contains("| reads | rate, gets/s | 90.0 | 40.0 | 2.25 | 1.80–4.00 | ratio ≥ 2: met |"), "{text}");
        assert!(text.contains("|  | p99, µs | 7.000 | – | – |  | ≤ 5: missed |"), "{text}");
    }

    #[test]
    fn a_ratio_that_is_not_known_is_neither_met_nor_missed() {
        let mut report = report();
        report.add("fill", Figure::new("rate", "sets/s").wanted(Some(Wanted::RatioAtLeast(1.2))), 0, 1.0);
        assert!(report.render().lines().any(|line| line.starts_with("rate") && line.ends_with("ratio ≥ 1.2")));
    }
}
