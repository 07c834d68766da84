//! Several engines on the same disk, one after the other, each with an empty folder: one table of what each is good at.
//!
//! A fill, random gets while nothing else goes on, the same while all keys are overwritten at full speed, and a kill. The page
//! cache is dropped before each load that reads. What the device wrote is taken from its own counters, so that nothing else may
//! use the disk meanwhile.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde::Serialize;

use super::device::Device;
use super::fill;
use super::loads::Loads;
use super::reads::{Measured, measure};
use super::settings::Settings;
use super::subject::Subject;
use moneta_bench::Result;
use moneta_bench::compare::Side;
use moneta_bench::load::{self, Length, Outcome, Plan};
use moneta_bench::table::{Table, figure};
use moneta_bench::workload::Passes;

/// Connections of the gets.
const READERS: usize = 16;
/// How long the overwrites run before gets are measured beside them.
const HEAD_START: Duration = Duration::from_secs(1);

/// What was measured of one engine.
#[derive(Debug, Clone, Serialize)]
pub struct Engine {
    /// Its name.
    pub name: String,
    /// Sets a second of the fill, until the server had answered them.
    pub fill_rate: f64,
    /// The same until the disk had them.
    pub fill_rate_on_disk: f64,
    /// Memory of the process that is no file's, grown by the fill, in bytes an item.
    pub memory_per_item: f64,
    /// Gets a second while nothing else goes on.
    pub quiet_rate: f64,
    /// Their 99th percentile in microseconds.
    pub quiet_p99: f64,
    /// CPU of the server for each of them, in microseconds.
    pub quiet_cpu: f64,
    /// Of all gets, those that found nothing, in percent: what the engine had lost by then.
    pub misses: f64,
    /// Gets a second during the overwrites.
    pub loaded_rate: f64,
    /// Their 99th percentile in microseconds.
    pub loaded_p99: f64,
    /// Overwrites a second beside these gets.
    pub overwrite_rate: f64,
    /// Overwrites that were refused, in percent.
    pub refused: f64,
    /// Bytes the device wrote for the overwrites over the bytes of their keys and values; `None` where it has no counters.
    pub write_amplification: Option<f64>,
    /// Seconds from the start after `kill -9` until all is served.
    pub restart: f64,
    /// Gets that found nothing after it, in percent.
    pub misses_after: f64,
}

/// Measures every side of `settings` in turn; those that were measured before something failed are returned either way.
///
/// # Errors
/// The second of the pair: what went wrong with a server, or [`moneta_bench::BenchError::Interrupted`].
pub fn run(settings: &Settings) -> (Vec<Engine>, Result<()>) {
    let mut engines = Vec::new();
    for side in &settings.sides {
        match one(settings, side) {
            Ok(engine) => engines.push(engine),
            Err(error) => return (engines, Err(error)),
        }
    }
    (engines, Ok(()))
}

fn one(settings: &Settings, side: &Side) -> Result<Engine> {
    moneta_bench::affinity::pin_this_thread(&settings.client_cpus)?;
    let mut subject = Subject::start(side, &settings.data, settings.scale.flash, &settings.server_cpus)?;
    let device = Device::below(subject.folder())?;
    let load = Loads::new(settings, settings.scale.value_size);
    let empty = subject.process()?.anonymous()?;
    settings.announce("bulk fill", &subject)?;
    let start = std::time::Instant::now();
    let filled = write_all(&load, &subject, 0, 1)?;
    nix::unistd::sync();
    let on_disk = start.elapsed().as_secs_f64();
    subject.settle()?;
    let grown = subject.process()?.anonymous()?.saturating_sub(empty);
    let reads = |subject: &Subject| -> Result<Measured> {
        settings.drop_page_cache()?;
        measure(subject, &load.plan(READERS), false)
    };
    settings.announce("random gets", &subject)?;
    let quiet = reads(&subject)?;
    settings.announce("random gets while all keys are overwritten", &subject)?;
    subject.settle()?;
    settings.drop_page_cache()?;
    let before = device.as_ref().map(Device::written).transpose()?;
    let (loaded, overwritten) = overwrite(settings, &load, &subject)?;
    subject.settle()?;
    let after = device.as_ref().map(Device::written).transpose()?;
    let item_bytes = (overwritten.tally.requests * load.item_bytes) as f64;
    let amplification = after.zip(before).map(|(after, before)| (after - before) as f64 / item_bytes);
    settings.announce("restart after kill -9", &subject)?;
    subject.end(Signal::SIGKILL)?;
    settings.drop_page_cache()?;
    let startup = subject.start_again()?;
    let restarted = reads(&subject)?;
    Ok(Engine {
        name: side.name.clone(),
        fill_rate: filled.requests_per_second,
        fill_rate_on_disk: filled.tally.requests as f64 / on_disk,
        memory_per_item: grown as f64 / settings.scale.keys as f64,
        quiet_rate: quiet.rate(),
        quiet_p99: quiet.get_p99(),
        quiet_cpu: quiet.server_cpu().unwrap_or(0.0),
        misses: quiet.misses(),
        loaded_rate: loaded.rate(),
        loaded_p99: loaded.get_p99(),
        overwrite_rate: overwritten.requests_per_second,
        refused: overwritten.tally.failed as f64 * 100.0 / overwritten.tally.requests.max(1) as f64,
        write_amplification: amplification,
        restart: startup.ready.as_secs_f64(),
        misses_after: restarted.misses(),
    })
}

fn write_all(load: &Loads, subject: &Subject, first: u32, passes: u32) -> Result<Outcome> {
    let plan = fill::bulk(load);
    load::write_all(&plan, subject.batch(), Some(subject.process()?), Passes { first, count: Some(passes) })
}

/// Overwrites all keys as often as asked for, and gets beside it for as long as a measurement lasts.
fn overwrite(settings: &Settings, load: &Loads, subject: &Subject) -> Result<(Measured, Outcome)> {
    let gets = load.plan(READERS);
    let plan = Plan { length: Length::Duration(Duration::MAX), progress: false, ..fill::bulk(load) };
    let passes = Passes { first: 1, count: Some(settings.scale.overwrites) };
    std::thread::scope(|scope| {
        let bulk = scope.spawn(|| load::write_all(&plan, subject.batch(), None, passes));
        std::thread::sleep(HEAD_START);
        let loaded = measure(subject, &gets, false);
        let bulk = bulk.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((loaded?, bulk?))
    })
}

/// The head of the table.
const HEAD: [&str; 11] = [
    "engine",
    "fill, sets/s",
    "memory, B/item",
    "gets/s quiet",
    "p99 quiet, µs",
    "gets/s during overwrites",
    "p99 during, µs",
    "overwrites/s",
    "write amplification",
    "restart, s",
    "misses before, after, %",
];

fn cells(engine: &Engine) -> [String; 11] {
    let refused = if engine.refused > 0.0 { format!(" ({} % refused)", figure(engine.refused)) } else { String::new() };
    [
        engine.name.clone(),
        figure(engine.fill_rate),
        figure(engine.memory_per_item),
        figure(engine.quiet_rate),
        figure(engine.quiet_p99),
        figure(engine.loaded_rate),
        figure(engine.loaded_p99),
        figure(engine.overwrite_rate) + &refused,
        engine.write_amplification.map_or("–".into(), figure),
        figure(engine.restart),
        format!("{}, {}", figure(engine.misses), figure(engine.misses_after)),
    ]
}

/// The table as text.
pub fn render(engines: &[Engine]) -> String {
    let mut table = Table::new(HEAD);
    engines.iter().for_each(|engine| table.row(cells(engine)));
    table.render()
}

/// The table as Markdown.
pub fn markdown(engines: &[Engine]) -> String {
    let line = |cells: [String; 11]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(HEAD.map(str::to_owned)) + &line(std::array::from_fn(|_| "---".to_owned()));
    engines.iter().for_each(|engine| text += &line(cells(engine)));
    text
}
