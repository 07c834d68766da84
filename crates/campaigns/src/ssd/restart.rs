//! The node is stopped and killed, and started again: how long until it serves everything, and whether everything is there.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::loads::Loads;
use super::reads::measure;
use super::report::{Figure, Report, Wanted};
use super::settings::Settings;
use super::subject::Subject;
use moneta_bench::Result;

/// Longest time until all is served after a clean stop, in seconds.
const CLEAN: f64 = 2.0;
/// Longest time until all is served after a kill, in seconds.
const KILLED: f64 = 10.0;

/// Restarts the subject after a clean stop, then after a kill.
///
/// # Errors
/// What goes wrong with the server.
pub fn run(settings: &Settings, load: &Loads, subject: &mut Subject, report: &mut Report) -> Result<()> {
    subject.settle()?;
    for (name, signal, bound) in
        [("restart after a clean stop", Signal::SIGTERM, CLEAN), ("restart after kill -9", Signal::SIGKILL, KILLED)]
    {
        settings.announce(name, subject)?;
        let items = subject.counters()?.items;
        let stop = subject.end(signal)?;
        settings.drop_page_cache()?;
        let startup = subject.start_again()?;
        let counters = subject.counters()?;
        let sample = measure(subject, &load.plan(16), false)?;
        let mut add = |figure: Figure, value: f64| report.add(name, figure, 0, value);
        let seconds = |duration: Duration| duration.as_secs_f64();
        add(Figure::new("time to stop", "s"), seconds(stop));
        add(Figure::new("time until the first answer", "s"), seconds(startup.first_answer));
        let ready = Figure::new("time until all is served", "s").wanted(Some(Wanted::AtMost(bound)));
        add(ready, seconds(startup.ready));
        let recovery = counters.recovery_microseconds as f64 / 1e6;
        add(Figure::new("recovery, from stats", "s"), recovery);
        add(Figure::new("read by it", "MB"), counters.recovery_read as f64 / 1e6);
        if recovery > 0.0 && counters.recovery_covered > 0 {
            add(Figure::new("device recovered", "GB/s"), counters.recovery_covered as f64 / 1e9 / recovery);
        }
        add(Figure::new("items before", ""), items as f64);
        add(Figure::new("items after", ""), counters.items as f64);
        add(Figure::new("misses of random gets after", "%"), sample.misses());
    }
    Ok(())
}
