//! Results as tables for people and as JSON for programs.

use serde::Serialize;

use super::output_args::ResultFile;
use crate::error::{BenchError, Result};
use crate::load::Outcome;
use crate::recorder::{LatencySummary, Tally};
use crate::replay::Replayed;
use crate::table::{Table, figure};

const MIB: f64 = 1024.0 * 1024.0;

impl ResultFile {
    /// Writes a result to the file that was asked for, if one was.
    ///
    /// # Errors
    /// [`BenchError::File`].
    pub fn write(&self, result: &impl Serialize) -> Result<()> {
        let Some(path) = &self.json else { return Ok(()) };
        let text = serde_json::to_string_pretty(result)
            .map_err(|error| BenchError::system("write a result as JSON", error))?;
        std::fs::write(path, text + "\n").map_err(|source| BenchError::File { path: path.clone(), source })
    }
}

/// A load's result.
pub(super) fn outcome(outcome: &Outcome) -> String {
    let mut text = format!(
        "{} requests in {:.2} s: {} a second\n",
        outcome.tally.requests,
        outcome.seconds,
        figure(outcome.requests_per_second)
    );
    text += &counts(&outcome.tally, outcome.hit_ratio);
    if let Some(server) = &outcome.server {
        text += &format!(
            "server: {} µs CPU per request ({:.0} % in the kernel), {} cores, {:.1} MiB resident, {:.1} MiB at its peak\n",
            figure(server.cpu_per_request),
            server.system_share * 100.0,
            figure(server.cpu_cores),
            server.memory.resident as f64 / MIB,
            server.memory.peak as f64 / MIB,
        );
    }
    text += "\n";
    text += &latencies(outcome);
    text + &complaints(&outcome.failures, &outcome.mismatches)
}

/// A replay's result.
pub(super) fn replayed(replayed: &Replayed) -> String {
    let reads = replayed.tally.hits + replayed.tally.misses;
    let mut text =
        format!("{} requests in {:.2} s, {reads} of them reads\n", replayed.tally.requests, replayed.seconds);
    text += &counts(&replayed.tally, Some(1.0 - replayed.miss_ratio));
    text += &format!("miss ratio {:.5}\n", replayed.miss_ratio);
    if replayed.latest > 0.0 {
        text += &format!("the latest request was sent {} s after it was due\n", figure(replayed.latest));
    }
    if let Some(memory) = replayed.memory {
        text += &format!("server: {:.1} MiB resident\n", memory.resident as f64 / MIB);
    }
    text + &complaints(&replayed.failures, &replayed.mismatches)
}

fn counts(tally: &Tally, hit_ratio: Option<f64>) -> String {
    let hits = hit_ratio.map(|ratio| format!(" ({:.3} % hits)", ratio * 100.0)).unwrap_or_default();
    format!(
        "{} hits, {} misses{hits}, {} fills, {} not stored, {} errors, {} wrong values\n",
        tally.hits, tally.misses, tally.fills, tally.not_stored, tally.failed, tally.mismatches
    )
}

fn latencies(outcome: &Outcome) -> String {
    let mut table = Table::new(["latency, µs", "count", "mean", "p50", "p90", "p99", "p99.9", "max"]);
    let mut row = |name: &str, summary: &LatencySummary| {
        let LatencySummary { count, mean, p50, p90, p99, p999, max } = *summary;
        let [mean, p50, p90, p99, p999, max] = [mean, p50, p90, p99, p999, max].map(figure);
        table.row([name.to_owned(), count.to_string(), mean, p50, p90, p99, p999, max]);
    };
    for (operation, summary) in &outcome.operations {
        row(operation.name(), summary);
    }
    if outcome.operations.len() != 1 {
        row("all", &outcome.latency);
    }
    table.render()
}

fn complaints(failures: &[String], mismatches: &[String]) -> String {
    let failures = failures.iter().map(|failure| format!("error: {failure}\n"));
    failures.chain(mismatches.iter().map(|mismatch| format!("wrong value: {mismatch}\n"))).collect()
}
