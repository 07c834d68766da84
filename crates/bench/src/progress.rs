//! The line of progress that a running load prints to standard error every second.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::recorder::Tally;

const EVERY: Duration = Duration::from_secs(1);

/// Prints progress, or nothing when it is turned off.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    printed: bool,
    label: String,
    start: Instant,
    last: Instant,
    tally: Tally,
}

impl Progress {
    /// Progress of what `label` names.
    pub fn new(shown: bool, label: &str) -> Self {
        let start = Instant::now();
        Self { shown, printed: false, label: label.to_owned(), start, last: start, tally: Tally::default() }
    }

    /// Prints a line if a second has passed since the last one; `tally` is only called then.
    pub fn tick(&mut self, tally: impl FnOnce() -> Tally) {
        let since = self.last.elapsed();
        if !self.shown || since < EVERY {
            return;
        }
        let tally = tally();
        let done = tally.since(self.tally);
        let rate = done.requests as f64 / since.as_secs_f64();
        let reads = (done.hits + done.misses).max(1);
        let mut line = format!(
            "{} {:>4} s  {:>12} requests  {:>10.0}/s  {:5.1} % hits",
            self.label,
            self.start.elapsed().as_secs(),
            tally.requests,
            rate,
            100.0 * done.hits as f64 / reads as f64,
        );
        if tally.failed + tally.mismatches > 0 {
            line += &format!("  {} errors, {} wrong values", tally.failed, tally.mismatches);
        }
        // Progress that cannot be printed is no reason to stop a measurement.
        let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
        (self.last, self.tally, self.printed) = (Instant::now(), tally, true);
    }

    /// Ends the line.
    pub fn finish(&mut self) {
        if std::mem::take(&mut self.printed) {
            let _ = writeln!(std::io::stderr());
        }
    }
}
