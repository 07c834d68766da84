//! The bulk fill: every key once, as fast as the server takes it; and what memory the items then take.

use std::time::Instant;

use super::loads::Loads;
use super::report::{Figure, Report, Wanted};
use super::settings::Settings;
use super::subject::Subject;
use moneta_bench::Result;
use moneta_bench::load::{self, Length, Plan};
use moneta_bench::popularity::Popularity;
use moneta_bench::workload::Passes;

/// Connections of a bulk load.
pub const CONNECTIONS: usize = 8;
/// Share of the items that a server must have kept to be asked for them as it is: few misses change no figure.
const KEPT: f64 = 0.999;
/// Values of the size the bounds were set for, in bytes.
const USUAL_VALUE: usize = 1000;

/// A plan without an end but that of the passes.
pub fn bulk(load: &Loads) -> Plan {
    Plan { length: Length::Duration(std::time::Duration::MAX), ..load.plan(CONNECTIONS) }
}

/// Fills every subject.
///
/// # Errors
/// What goes wrong with a server.
pub fn run(settings: &Settings, load: &Loads, subjects: &[Subject], report: &mut Report) -> Result<()> {
    for (side, subject) in subjects.iter().enumerate() {
        settings.announce(&format!("bulk fill, {}", load.size), subject)?;
        settings.drop_page_cache()?;
        let items = fill(load, subject, side, report)?;
        if (items as f64) < settings.scale.keys as f64 * KEPT {
            let lost = 100.0 - items as f64 * 100.0 / settings.scale.keys as f64;
            let name = &subject.name;
            report.remarks.push(format!(
                "{name} did not keep {lost:.1} % of the bulk fill of {}; they were stored again, more slowly, before what follows.",
                load.size
            ));
            settings.announce("storing again what was lost", subject)?;
            store_again(load, subject)?;
        }
    }
    Ok(())
}

/// Asks for every key once and stores those that are not there: slower than a fill, so that a server that was overrun keeps up.
fn store_again(load: &Loads, subject: &Subject) -> Result<()> {
    let plan = load.with(CONNECTIONS, |workload| {
        workload.popularity = Popularity::Sequential;
        workload.lookaside = true;
    });
    let keys = plan.workload.keys;
    let plan = Plan { length: Length::Requests(keys), warmup: std::time::Duration::ZERO, ..plan };
    load::run(&plan, subject.batch(), None)?.check()?;
    subject.settle()
}

/// Fills a subject; how many items it then has.
fn fill(load: &Loads, subject: &Subject, side: usize, report: &mut Report) -> Result<u64> {
    let bounded = |wanted| (load.item_bytes as usize > USUAL_VALUE).then_some(wanted);
    let name = format!("bulk fill, {}", load.size);
    let empty = subject.process()?.memory()?.resident;
    let written_before = subject.process()?.traffic()?.written;
    let start = Instant::now();
    let plan = bulk(load);
    let filled =
        load::write_all(&plan, subject.batch(), Some(subject.process()?), Passes { first: 0, count: Some(1) })?;
    nix::unistd::sync();
    let on_disk = start.elapsed().as_secs_f64();
    subject.settle()?;
    let counters = subject.counters()?;
    let written = subject.process()?.traffic()?.written - written_before;
    let mut add = |figure: Figure, value: f64| report.add(&name, figure, side, value);
    let rate = filled.requests_per_second;
    add(Figure::new("rate", "sets/s").wanted(bounded(Wanted::RatioAtLeast(1.2))), rate);
    add(Figure::new("rate until all is handed to the disk", "sets/s"), filled.tally.requests as f64 / on_disk);
    if let Some(server) = &filled.server {
        add(Figure::new("server CPU per set", "µs"), server.cpu_per_request);
    }
    add(Figure::new("bytes written to the device over bytes of keys and values", ""), {
        written as f64 / (filled.tally.requests * load.item_bytes) as f64
    });
    add(Figure::new("refused", "sets"), filled.tally.failed as f64);
    add(Figure::new("lost", "items"), counters.lost as f64);
    add(Figure::new("items afterwards", ""), counters.items as f64);
    let items = counters.items.max(1) as f64;
    let name = format!("memory, {}", load.size);
    let mut add = |figure: Figure, value: f64| report.add(&name, figure, side, value / items);
    let grown = subject.process()?.memory()?.resident.saturating_sub(empty) as f64;
    add(Figure::new("resident, grown by the fill", "B/item").wanted(bounded(Wanted::RatioAtMost(0.15))), grown);
    let beyond = (grown - counters.buffers as f64).max(0.0);
    add(Figure::new("the same beyond fixed buffers", "B/item").wanted(bounded(Wanted::AtMost(24.0))), beyond);
    if let Some(index) = counters.index {
        add(Figure::new("index, from stats", "B/item").wanted(bounded(Wanted::AtMost(12.0))), index as f64);
    }
    Ok(counters.items)
}
