//! Watches a tier's files: a file that is removed or replaced keeps working while the node runs, but its contents are lost
//! when the node ends.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use moneta_device::devices::Devices;

/// How often the files are checked.
const EVERY: Duration = Duration::from_secs(1);

/// Files that are not at their paths any more.
#[derive(Debug, Default)]
pub(crate) struct Presence(Mutex<PresenceState>);

#[derive(Debug, Default)]
struct PresenceState {
    looked: Option<Instant>,
    gone: Vec<PathBuf>,
}

impl Presence {
    /// Checks the files, unless that was done within [`EVERY`], and logs what has changed.
    pub(crate) fn look(&self, devices: &Devices) {
        let mut state = self.0.lock();
        if state.looked.is_some_and(|looked| looked.elapsed() < EVERY) {
            return;
        }
        state.looked = Some(Instant::now());
        let gone = devices.gone();
        for path in gone.iter().filter(|path| !state.gone.contains(path)) {
            tracing::error!(
                path = %path.display(),
                "a file of the SSD tier was removed or replaced while the node runs: what is on it is lost when the node ends"
            );
        }
        for path in state.gone.iter().filter(|path| !gone.contains(path)) {
            tracing::warn!(path = %path.display(), "a file of the SSD tier is where it was again");
        }
        state.gone = gone;
    }

    /// How many files are not at their paths any more.
    pub(crate) fn gone(&self) -> usize {
        self.0.lock().gone.len()
    }

    /// A sentence about each of them.
    pub(crate) fn notes(&self) -> Vec<String> {
        let note = |path: &PathBuf| {
            format!(
                "{} was removed or replaced while the node runs: what the SSD tier has there is lost when the node ends",
                path.display()
            )
        };
        self.0.lock().gone.iter().map(note).collect()
    }
}
