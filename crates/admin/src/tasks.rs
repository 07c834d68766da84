//! The process's background tasks, as metrics and as text.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use moneta_background::{Listed, list};
use moneta_store::metric::{self, Metric, Reading, Sample, Unit, Values};

/// A value of each task.
fn by_task(tasks: &[Listed], value: impl Fn(&Listed) -> u64) -> Values {
    tasks.iter().fold(Values::NONE, |all, task| all.and([&task.name], value(task)))
}

/// The metrics of background tasks.
pub const METRICS: &[Reading<Vec<Listed>>] = &[
    Metric::gauge("task_running", Unit::Count, "Background tasks that run now, by name.")
        .labels(&["task"])
        .keys(&[])
        .read(|tasks| by_task(tasks, |task| task.running)),
    Metric::counter("task_started_total", Unit::Count, "Background tasks that were started, by name.")
        .labels(&["task"])
        .keys(&[])
        .read(|tasks| by_task(tasks, |task| task.started)),
    Metric::counter(
        "task_failures_total",
        Unit::Count,
        "Failures of background tasks, by name: those after which a task goes on, and ends by a panic.",
    )
    .labels(&["task"])
    .keys(&[])
    .read(|tasks| by_task(tasks, |task| task.failures)),
    Metric::gauge(
        "task_last_end_seconds",
        Unit::Seconds,
        "Unix second at which a background task of this name ended last.",
    )
    .labels(&["task"])
    .keys(&[])
    .read(|tasks| {
        let ended = tasks.iter().filter_map(|task| Some((&task.name, task.last_end?)));
        ended.fold(Values::NONE, |all, (name, end)| all.and([name], end))
    }),
];

/// All of them as they are now.
pub fn samples() -> Vec<Sample> {
    metric::samples(METRICS, &list())
}

/// A line for each task, for people.
pub fn text() -> String {
    let tasks = list();
    let width = tasks.iter().map(|task| task.name.len()).max().unwrap_or(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let mut text = String::new();
    for Listed { name, running, started, failures, last_failure, last_end, .. } in tasks {
        let _ = write!(text, "  {name:width$}  {running} running, {started} started");
        if let Some(end) = last_end {
            let _ = write!(text, ", last ended {:.0} s ago", (now - end).max(0.0));
        }
        match last_failure {
            Some(why) => {
                let _ = writeln!(text, ", {failures} failures, last: {why}");
            }
            None => text.push('\n'),
        }
    }
    text
}
