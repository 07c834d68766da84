//! A feed of the control plane as a source of topologies: `control:APP`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_cluster::Topology;
use moneta_cluster::sources::{Advised, SourceError, TopologySource};
use parking_lot::Mutex;

use crate::control::Control;
use crate::document::Document;
use crate::follower::{Follower, Query, View};

/// How often a failure is told of that goes on.
const FAILURES_EVERY: Duration = Duration::from_secs(1);

/// The greatest epochs that a process has seen, by app: it reports them, so that a control plane that was restored from an old
/// backup goes on above them. Shared by all that hold it.
#[derive(Clone, Debug, Default)]
pub struct Epochs(Arc<Mutex<BTreeMap<String, u64>>>);

impl Epochs {
    /// An epoch was seen.
    pub fn note(&self, app: &str, epoch: u64) {
        let mut all = self.0.lock();
        let known = all.entry(app.to_owned()).or_default();
        *known = epoch.max(*known);
    }

    /// All of them.
    pub fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().clone()
    }
}

/// The topologies of an app, as a control plane says them.
pub struct ControlSource {
    name: String,
    app: String,
    follower: Arc<Follower>,
    epochs: Epochs,
    /// Steps of the feed that were looked at.
    steps: u64,
    advice: Option<Vec<Advised>>,
    failed: Option<Instant>,
}

impl ControlSource {
    /// The topologies of `app`. `epochs` is told of those that are seen.
    ///
    /// # Errors
    /// If the system has no thread for the feed.
    pub fn new(control: Arc<Control>, app: impl Into<String>, epochs: Epochs) -> std::io::Result<Self> {
        let (app, name) = (app.into(), control.name());
        let query = Query { kinds: vec!["topologies", "away", "instances"], app: Some(app.clone()) };
        let follower = Arc::new(Follower::start(control, query)?);
        let name = format!("control {name} {app}");
        Ok(Self { name, app, follower, epochs, steps: 0, advice: None, failed: None })
    }

    /// What follows the feed.
    pub fn follower(&self) -> Arc<Follower> {
        Arc::clone(&self.follower)
    }

    fn read(&mut self, view: &View) -> Result<Topology, SourceError> {
        let of_app = || SourceError::Other(format!("the control plane has no topology of app {}", self.app));
        let item = view.items.get("topologies", &self.app).ok_or_else(of_app)?;
        let wrong = |error| SourceError::Other(format!("the topology of app {} makes no sense: {error}", self.app));
        let document = Document::read(&item.value).map_err(wrong)?;
        let topology = document.topology().map_err(wrong)?;
        self.epochs.note(&self.app, topology.epoch);
        self.advice = Some(document.advice(&self.app, &view.items));
        Ok(topology)
    }

    /// A failure, told of once a second.
    fn fail(&mut self, why: SourceError) -> Result<Option<Topology>, SourceError> {
        // What was said of states is as old as the rest, and says less by the second.
        self.advice = Some(Vec::new());
        if self.failed.is_some_and(|failed| failed.elapsed() < FAILURES_EVERY) {
            return Ok(None);
        }
        self.failed = Some(Instant::now());
        Err(why)
    }
}

impl TopologySource for ControlSource {
    fn next(&mut self, timeout: Duration) -> Result<Option<Topology>, SourceError> {
        let view = self.follower.wait(self.steps, timeout);
        let is_news = view.steps > self.steps;
        self.steps = view.steps;
        if !view.is_begun() || !view.is_fresh() {
            // A connection that has just broken is tried again before anyone hears of it.
            return match &view.failure {
                Some(why) => self.fail(SourceError::Other(why.to_string())),
                None => Ok(None),
            };
        }
        if !is_news {
            return Ok(None);
        }
        match self.read(&view) {
            Ok(topology) => {
                self.failed = None;
                Ok(Some(topology))
            }
            Err(error) => self.fail(error),
        }
    }

    fn advice(&mut self) -> Option<Vec<Advised>> {
        self.advice.take()
    }

    fn epochs_grow(&self) -> bool {
        true
    }

    fn is_behind(&mut self, epoch: u64) {
        self.epochs.note(&self.app, epoch);
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
