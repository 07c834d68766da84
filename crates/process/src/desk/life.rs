//! The desk's state: a process that starts, serves, or is about to end, and its parts.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use moneta_admin::ask::{Unanswered, ask};
use moneta_admin::{Tally, Turn};
use moneta_store::Health;
use moneta_store::metric::Sample;
use parking_lot::RwLock;

use super::observed::{Observed, Vitals};
use crate::phases::Phase;

/// Time limit of the parts' health.
const HEALTH_WITHIN: Duration = Duration::from_secs(5);
/// What is told if a part hangs.
pub(super) const NO_ANSWER: &str = "the store does not answer";

/// How far the process is, in steps that its phases do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Starting,
    Serving,
    Closing,
}

/// State shared by all requests of a desk.
pub(super) struct Life {
    pub(super) vitals: Vitals,
    /// What the listener counts.
    pub(super) tally: Arc<Tally>,
    pub(super) begun: Instant,
    /// Unix second of the beginning.
    pub(super) begun_at: u64,
    // Read for each request, written a few times in the process's life.
    now: RwLock<(Step, Parts)>,
    /// Admits one request at a time that asks the parts.
    pub(super) metrics: Turn,
    readiness: Turn,
}

/// The parts of a process.
pub(super) type Parts = Arc<Vec<Arc<dyn Observed>>>;

/// Whether the process is ready for clients, or why not.
pub(super) struct Readiness {
    pub(super) is_ready: bool,
    pub(super) phase: String,
    pub(super) notes: Vec<String>,
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Life").field("vitals", &self.vitals).finish_non_exhaustive()
    }
}

impl Life {
    pub(super) fn new(vitals: Vitals, tally: Arc<Tally>) -> Self {
        Self {
            vitals,
            tally,
            begun: Instant::now(),
            begun_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            now: RwLock::new((Step::Starting, Parts::default())),
            metrics: Turn::of(1),
            readiness: Turn::of(1),
        }
    }

    pub(super) fn add(&self, part: Arc<dyn Observed>) {
        let (_, parts) = &mut *self.now.write();
        Arc::make_mut(parts).push(part);
    }

    pub(super) fn serve(&self) {
        self.now.write().0 = Step::Serving;
    }

    pub(super) fn close(&self) {
        *self.now.write() = (Step::Closing, Parts::default());
    }

    /// The parts of a process that serves; else a sentence about what it is doing.
    pub(super) fn parts(&self) -> Result<Parts, String> {
        match &*self.now.read() {
            (Step::Serving, parts) => Ok(Arc::clone(parts)),
            (Step::Starting, _) => Err(match self.vitals.recovery.percent() {
                Some(percent) => format!("starting: recovering, {percent} %"),
                None => "starting".to_owned(),
            }),
            (Step::Closing, _) => Err("stopping: the store is being closed".to_owned()),
        }
    }

    /// What it is doing, unless it serves.
    pub(super) fn doing(&self) -> Option<String> {
        self.parts().err()
    }

    /// Whether it is ready, given that its parts are so.
    pub(super) fn is_ready(&self, health: &Health) -> bool {
        self.vitals.phases.phase() == Phase::Running && !health.unready
    }

    /// Whether it is ready, or why not.
    pub(super) async fn readiness(&self) -> Readiness {
        let parts = match self.parts() {
            Ok(parts) => parts,
            Err(phase) => return Readiness { is_ready: false, phase, notes: Vec::new() },
        };
        let phase = self.vitals.phases.phase();
        let asked = match phase {
            Phase::Running => Some(ask(&self.readiness, HEALTH_WITHIN, move || health(&parts)).await),
            _ => None,
        };
        let (is_ready, notes) = match asked {
            Some(Ok(health)) => {
                let is_ready = self.is_ready(&health);
                (is_ready, health.notes.into_iter().chain(moneta_background::unwell()).collect())
            }
            Some(Err(Unanswered)) => (false, vec![NO_ANSWER.to_owned()]),
            None => (false, Vec::new()),
        };
        Readiness { is_ready, phase: phase.name().to_owned(), notes }
    }
}

/// The health of all parts together; may block.
pub(super) fn health(parts: &Parts) -> Health {
    let join = |all: Health, part: &Arc<dyn Observed>| {
        let Health { unready, notes } = part.health();
        Health { unready: all.unready || unready, notes: all.notes.into_iter().chain(notes).collect() }
    };
    parts.iter().fold(Health::default(), join)
}

/// The metrics of all parts; may block.
pub(super) fn samples(parts: &Parts) -> Vec<Sample> {
    parts.iter().flat_map(|part| part.samples()).collect()
}
