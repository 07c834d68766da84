//! All keys overwritten several times, each time in another order: what the device has to write for it, and whether reads suffer.

use super::fill;
use super::loads::Loads;
use super::reads::{Measured, measure};
use super::report::{Figure, Report, Wanted};
use super::settings::Settings;
use super::subject::Subject;
use moneta_bench::Result;
use moneta_bench::load;
use moneta_bench::workload::Passes;

/// Connections of the reads before and after.
const READERS: usize = 16;
/// Above this size of a key and its value, in bytes, the tighter bound holds.
const LARGE: u64 = 1000;

/// Runs it on every subject.
///
/// # Errors
/// What goes wrong with a server.
pub fn run(settings: &Settings, load: &Loads, subjects: &[Subject], report: &mut Report) -> Result<()> {
    let name = format!("all keys overwritten {} times, {}", settings.scale.overwrites, load.size);
    for (side, subject) in subjects.iter().enumerate() {
        settings.announce(&name, subject)?;
        overwrite(settings, load, subject, side, &name, report)?;
    }
    Ok(())
}

fn overwrite(
    settings: &Settings,
    load: &Loads,
    subject: &Subject,
    side: usize,
    name: &str,
    report: &mut Report,
) -> Result<()> {
    let reads = || -> Result<Measured> {
        settings.drop_page_cache()?;
        measure(subject, &load.plan(READERS), false)
    };
    let before = reads()?;
    subject.settle()?;
    let (counters, traffic) = (subject.counters()?, subject.process()?.traffic()?);
    let passes = Passes { first: 1, count: Some(settings.scale.overwrites) };
    let plan = fill::bulk(load);
    let written = load::write_all(&plan, subject.online(), Some(subject.process()?), passes)?;
    subject.settle()?;
    let now = subject.counters()?;
    let counted = now.device_written.saturating_sub(counters.device_written);
    let by_kernel = subject.process()?.traffic()?.written - traffic.written;
    let after = reads()?;
    let item_bytes = (written.tally.requests * load.item_bytes) as f64;
    let bound = Some(Wanted::AtMost(if load.item_bytes > LARGE { 1.1 } else { 1.25 }));
    let mut add = |figure: Figure, value: f64| report.add(name, figure, side, value);
    add(Figure::new("rate", "sets/s"), written.requests_per_second);
    if let Some(server) = &written.server {
        add(Figure::new("server CPU per set", "µs"), server.cpu_per_request);
    }
    add(Figure::new("write amplification, from stats", "").wanted(bound), counted as f64 / item_bytes);
    if side == 0 {
        // Of a peer that writes through the page cache the kernel counts a page once, however often it is overwritten there.
        add(Figure::new("write amplification, from the kernel", "").wanted(bound), by_kernel as f64 / item_bytes);
    }
    if let Some((now, before)) = now.carried.zip(counters.carried) {
        add(Figure::new("of it, carried forward", ""), (now - before) as f64 / item_bytes);
    }
    add(Figure::new("p99 of gets from SSD before", "µs"), before.get_p99());
    add(Figure::new("p99 of gets from SSD after", "µs"), after.get_p99());
    add(Figure::new("misses before", "%"), before.misses());
    add(Figure::new("misses after", "%"), after.misses());
    Ok(())
}
