//! The nightly load: online gets at a fixed rate, first alone, then while a bulk load overwrites everything at full speed.
//!
//! The online client sleeps between its requests and runs ahead of the bulk load's, as if it had a separate machine; its
//! latency counts from the moment a request was due.

use std::time::Duration;

use super::fill::{self, CONNECTIONS};
use super::loads::Loads;
use super::reads::{Measured, measure};
use super::report::{Figure, Report, Wanted};
use super::settings::Settings;
use super::subject::Subject;
use moneta_bench::Arrivals;
use moneta_bench::Result;
use moneta_bench::load::{self, Length, Outcome, Plan, Rate};
use moneta_bench::popularity::Popularity;
use moneta_bench::workload::Passes;

/// Zipf exponent of the online keys: YCSB's.
const THETA: f64 = 0.99;
/// Connections of the online client.
const ONLINE: usize = 16;
/// How long the bulk load runs before the online gets are measured, and goes on after it.
const MARGIN: Duration = Duration::from_secs(2);

const LOAD: &str = "nightly load";

/// Runs it on every subject.
///
/// # Errors
/// What goes wrong with a server.
pub fn run(settings: &Settings, load: &Loads, subjects: &[Subject], report: &mut Report) -> Result<()> {
    let scale = &settings.scale;
    let name = format!("online gets, {} a second, Zipf {THETA}", scale.online_rate);
    let zipf = || load.with(ONLINE, |workload| workload.popularity = Popularity::Zipf { theta: THETA });
    let rate = Rate { per_second: scale.online_rate, arrivals: Arrivals::Poisson, sleeps: true };
    let warm = Plan { length: Length::Duration(scale.online_warmup), ..zipf() };
    let [alone, beside] = std::array::from_fn(|_| Plan { rate: Some(rate), ..zipf() });
    for (side, subject) in subjects.iter().enumerate() {
        settings.announce(&format!("{LOAD}: {name}"), subject)?;
        settings.drop_page_cache()?;
        load::run(&warm, subject.online(), None)?.check()?;
        let quiet = measure(subject, &alone, true)?;
        let (loaded, bulk) = under_load(load, subject, &beside, scale.length)?;
        add(report, side, &name, &quiet, &loaded, &bulk);
        subject.settle()?;
    }
    Ok(())
}

fn under_load(load: &Loads, subject: &Subject, online: &Plan, length: Duration) -> Result<(Measured, Outcome)> {
    let length = Length::Duration(MARGIN + online.warmup + length + MARGIN);
    let bulk = Plan { length, progress: false, ..fill::bulk(load) };
    std::thread::scope(|scope| {
        let bulk = scope.spawn(|| load::write_all(&bulk, subject.batch(), None, Passes { first: 1, count: None }));
        std::thread::sleep(MARGIN);
        let loaded = measure(subject, online, true);
        let bulk = bulk.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((loaded?, bulk?))
    })
}

fn add(report: &mut Report, side: usize, online: &str, quiet: &Measured, loaded: &Measured, bulk: &Outcome) {
    let ram = |measured: &Measured| (1.0 - measured.ssd_share) * 100.0;
    let name = format!("{online}, quiet");
    report.add(&name, Figure::new("p50", "µs"), side, quiet.get_p50());
    report.add(&name, Figure::new("p99", "µs"), side, quiet.get_p99());
    report.add(&name, Figure::new("hits answered from RAM", "%"), side, ram(quiet));
    report.add(&name, Figure::new("misses", "%"), side, quiet.misses());
    let name = format!("the same during a bulk load over {CONNECTIONS} connections");
    report.add(&name, Figure::new("p50", "µs"), side, loaded.get_p50());
    report.add(&name, Figure::new("p99", "µs"), side, loaded.get_p99());
    let times = Figure::new("p99 over the quiet p99", "").wanted(Some(Wanted::AtMost(2.0)));
    report.add(&name, times, side, loaded.get_p99() / quiet.get_p99().max(f64::MIN_POSITIVE));
    report.add(&name, Figure::new("hits answered from RAM", "%"), side, ram(loaded));
    let fewer = Figure::new("fewer hits from RAM", "points").wanted(Some(Wanted::AtMost(2.0)));
    report.add(&name, fewer, side, ram(quiet) - ram(loaded));
    report.add(&name, Figure::new("misses", "%"), side, loaded.misses());
    report.add(&name, Figure::new("rate of the bulk load", "sets/s"), side, bulk.requests_per_second);
}
