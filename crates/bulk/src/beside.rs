//! Changes that are followed while the base is read: what is shown is the base, until they are alone.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::stages::Stages;
use crate::watch::{Counts, Watch};

/// Watches such changes.
pub(crate) struct Beside<'a> {
    watch: &'a dyn Watch,
    is_alone: AtomicBool,
}

impl<'a> Beside<'a> {
    /// On behalf of who watches the whole job.
    pub(crate) fn of(watch: &'a dyn Watch) -> Self {
        Self { watch, is_alone: AtomicBool::new(false) }
    }

    /// The base is done.
    pub(crate) fn is_alone(&self) {
        self.is_alone.store(true, Ordering::Relaxed);
    }
}

impl Watch for Beside<'_> {
    fn note(&self, text: &str) {
        self.watch.note(text);
    }

    fn phase(&self, what: &str, expected: Option<u64>) {
        self.watch.phase(what, expected);
    }

    fn progress(&self, counts: Counts) {
        if self.is_alone.load(Ordering::Relaxed) {
            self.watch.progress(counts);
        }
    }

    fn stages(&self, stages: &Stages) {
        if self.is_alone.load(Ordering::Relaxed) {
            self.watch.stages(stages);
        }
    }

    fn reached(&self, watermark: u64) {
        if self.is_alone.load(Ordering::Relaxed) {
            self.watch.reached(watermark);
        }
    }

    fn should_stop(&self) -> bool {
        self.watch.should_stop()
    }
}
