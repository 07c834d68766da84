//! All instances of an environment, what changed lately, and their encodings.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use moneta_eureka::applications::hash;
use moneta_eureka::{Action, Application, Applications, Encoding, Instance};
use moneta_ledger::Revision;
use parking_lot::Mutex;

use super::described::described;
use crate::control::Control;
use crate::error::Refusal;
use crate::record::Status;

/// How old the list may be that is told.
pub(super) const FRESH: Duration = Duration::from_millis(500);

/// How long a change is told in deltas.
const RECENT: Duration = Duration::from_secs(180);

/// The most changes that a delta has; a client that lacks older ones sees it by the hash, and asks for everything.
const RECENT_MAX: usize = 20_000;

/// What a client asks for that is encoded once for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Page {
    /// Everything.
    All,
    /// What changed lately.
    Delta,
}

/// What an instance was made of: as long as it is the same, the instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin {
    record: Revision,
    status_override: Option<Status>,
}

type Name = (Arc<str>, Arc<str>);

/// The list of one environment.
#[derive(Debug)]
pub(super) struct Registry {
    control: Arc<Control>,
    environment: String,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    /// When it was made, and of which revision.
    made: Option<(Instant, Revision)>,
    /// Whether it was ever made: what was there by then is no change.
    has_begun: bool,
    instances: BTreeMap<Name, (Origin, Arc<Instance>)>,
    hash: String,
    /// Grows with each change of the list.
    version: u64,
    recent: VecDeque<(Instant, Arc<Instance>)>,
    /// By what is asked, its encoding, and whether it is compressed; of this version.
    encoded: HashMap<(Page, Encoding, bool), Bytes>,
}

impl Registry {
    /// That of `environment`.
    pub(super) fn new(control: Arc<Control>, environment: &str) -> Self {
        Self { control, environment: environment.to_owned(), list: Mutex::default() }
    }

    /// The environment.
    pub(super) fn environment(&self) -> &str {
        &self.environment
    }

    /// The instances that `wanted` takes, in the order of their apps and names.
    ///
    /// # Errors
    /// 503 if this process is not in step with its ledger.
    pub(super) fn instances(&self, wanted: impl Fn(&Instance) -> bool) -> Result<Vec<Instance>, Refusal> {
        let mut list = self.list.lock();
        self.refresh(&mut list)?;
        let all = list.instances.values().map(|(_, instance)| instance);
        Ok(all.filter(|instance| wanted(instance)).map(|instance| Instance::clone(instance)).collect())
    }

    /// Everything, or what changed lately, encoded. May take long: for helper threads.
    ///
    /// # Errors
    /// 503 if this process is not in step with its ledger.
    pub(super) fn page(&self, page: Page, encoding: Encoding, compressed: bool) -> Result<Bytes, Refusal> {
        let mut list = self.list.lock();
        self.refresh(&mut list)?;
        list.forget(Instant::now());
        if let Some(encoded) = list.encoded.get(&(page, encoding, compressed)) {
            return Ok(encoded.clone());
        }
        let plain = match list.encoded.get(&(page, encoding, false)) {
            Some(plain) => plain.clone(),
            None => {
                let plain = Bytes::from(encoding.write_applications(&list.told(page)));
                list.encoded.insert((page, encoding, false), plain.clone());
                plain
            }
        };
        if !compressed {
            return Ok(plain);
        }
        let small = compress(&plain);
        list.encoded.insert((page, encoding, true), small.clone());
        Ok(small)
    }

    /// Looks again from now on, whenever the list was made: this client has just changed it.
    pub(super) fn invalidate(&self) {
        self.list.lock().made = None;
    }

    fn refresh(&self, list: &mut List) -> Result<(), Refusal> {
        let now = Instant::now();
        if list.made.is_some_and(|(made, _)| now.duration_since(made) < FRESH) {
            return Ok(());
        }
        let state = self.control.state_in_step()?;
        let revision = state.at.revision;
        if list.made.is_some_and(|(_, of)| of == revision) {
            list.made = Some((now, revision));
            return Ok(());
        }
        let mut instances = BTreeMap::new();
        let mut changed = Vec::new();
        let before = &mut list.instances;
        for (app, of) in state.environment(&self.environment).into_iter().flat_map(|of| &of.apps) {
            for (id, known) in &of.instances {
                let Some((record, _)) = known.record.as_ref().filter(|_| known.away.is_none()) else { continue };
                let word = known.status_override.as_ref().map(|word| word.status);
                let origin = Origin { record: *record, status_override: word };
                let name = (Arc::clone(app), Arc::clone(id));
                let kept = before.remove(&name);
                let (action, instance) = match kept {
                    Some((same, instance)) if same == origin => (None, instance),
                    kept => {
                        let Some(instance) = described(app, id, known, &self.environment) else { continue };
                        let action = if kept.is_some() { Action::Modified } else { Action::Added };
                        (Some(action), Arc::new(instance))
                    }
                };
                changed.extend(action.map(|action| with(&instance, action)));
                instances.insert(name, (origin, instance));
            }
        }
        drop(state);
        changed.extend(before.values().map(|(_, gone)| with(gone, Action::Deleted)));
        let is_first = !std::mem::replace(&mut list.has_begun, true);
        list.instances = instances;
        list.made = Some((now, revision));
        if changed.is_empty() {
            return Ok(());
        }
        list.version += 1;
        list.hash = hash(list.instances.values().map(|(_, instance)| instance.status));
        list.encoded.clear();
        if !is_first {
            list.recent.extend(changed.into_iter().map(|instance| (now, Arc::new(instance))));
        }
        Ok(())
    }
}

impl List {
    /// Drops changes that are too old to be told.
    fn forget(&mut self, now: Instant) {
        let mut forgotten = false;
        while self.recent.len() > RECENT_MAX
            || self.recent.front().is_some_and(|(at, _)| now.duration_since(*at) > RECENT)
        {
            self.recent.pop_front();
            forgotten = true;
        }
        if forgotten {
            self.encoded.retain(|(page, ..), _| *page != Page::Delta);
        }
    }

    fn told(&self, page: Page) -> Applications {
        let instances: Vec<Instance> = match page {
            Page::All => self.instances.values().map(|(_, instance)| Instance::clone(instance)).collect(),
            Page::Delta => self.recent.iter().map(|(_, instance)| Instance::clone(instance)).collect(),
        };
        let mut all = Applications { applications: by_app(instances), version: self.version, hash: String::new() };
        // Over all there are, also where only changes are told.
        all.hash.clone_from(&self.hash);
        all
    }
}

/// Instances by their app, in the order of its first.
pub(super) fn by_app(instances: Vec<Instance>) -> Vec<Application> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut applications: Vec<Application> = Vec::new();
    for instance in instances {
        let place = *places.entry(instance.app.clone()).or_insert_with(|| {
            applications.push(Application { name: instance.app.clone(), instances: Vec::new() });
            applications.len() - 1
        });
        applications[place].instances.push(instance);
    }
    applications
}

fn with(instance: &Instance, action: Action) -> Instance {
    Instance { action: Some(action), ..instance.clone() }
}

pub(super) fn compress(plain: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(plain);
    encoder.finish().unwrap_or_default().into()
}
