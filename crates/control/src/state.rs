//! What the ledger has, as this process knows it: decoded, and with a journal for readers of the feed.
//!
//! It is changed by what the ledger tells alone, a whole commit at a time; leases and vitals are beside it, in RAM only.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use moneta_ledger::{Change, Cursor, Entry, Revision, Snapshot};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::decode::decode;
use crate::error::Refusal;
use crate::jobs::board::Jobs;
use crate::jobs::document::Job;
use crate::journal::{Journal, Kind};
use crate::keys::Keys;
use crate::leases::{Instance, Leases, Moment, Standing};
use crate::member::{Keeper, Member};
use crate::names::{self, Key};
use crate::properties::known::Properties;
use crate::record::{Record, Status};
use crate::topology::Document;

/// The most environments, counted with those that are only asked for.
pub const ENVIRONMENTS_MAX: usize = 64;
/// The most regions: their numbers are part of versions.
pub const REGIONS_MAX: usize = 16;

/// How long the ledger may tell nothing before this counts as not in step, in milliseconds: it tells something every five seconds.
pub(crate) const SILENT: u64 = 15_000;

/// All there is.
#[derive(Debug)]
pub struct State {
    /// Up to where the ledger was read.
    pub at: Cursor,
    /// Whether that is as far as the ledger is, or was a few seconds ago.
    pub is_in_step: bool,
    /// When the ledger told something last.
    told: Moment,
    /// What all of this was made of.
    pub(crate) keys: Keys,
    /// Who keeps the leases, where several processes share the ledger.
    pub(crate) keeper: Option<Keeper>,
    /// The processes that share the ledger, by their names.
    pub(crate) members: BTreeMap<Arc<str>, Member>,
    /// Up to when each of the others has told this one which tasks it heard workers renew.
    pub(crate) heard: BTreeMap<Arc<str>, Moment>,
    environments: BTreeMap<Arc<str>, Environment>,
    /// The numbers of regions.
    pub regions: BTreeMap<String, u8>,
    /// The period of an instance that asks for none, in milliseconds.
    period: u64,
}

/// One environment.
#[derive(Debug)]
pub struct Environment {
    /// Its apps.
    pub apps: BTreeMap<Arc<str>, App>,
    /// What its readers are told.
    pub journal: Journal,
    /// Who renews.
    pub leases: Leases,
    /// What came with renewals.
    pub vitals: HashMap<Instance, Vitals>,
    /// Its properties.
    pub properties: Properties,
    /// Its jobs.
    pub jobs: Jobs,
}

/// One app.
#[derive(Debug, Default)]
pub struct App {
    /// Its instances.
    pub instances: BTreeMap<Arc<str>, Known>,
    /// Its topology, and the commit that put it.
    pub topology: Option<(Revision, Arc<Document>)>,
}

/// An instance.
#[derive(Debug, Default)]
pub struct Known {
    /// Its record and the commit that put it; `None`: only an operator's word, or that it is away, is left of it.
    pub record: Option<(Revision, Record)>,
    /// What an operator says of it.
    pub status_override: Option<Override>,
    /// Whether the ledger says that it is away.
    pub away: Option<Away>,
}

/// An operator's word on an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// What it is.
    pub status: Status,
    /// Who says so.
    #[serde(default)]
    pub by: String,
    /// When, in milliseconds of Unix time.
    #[serde(default)]
    pub at: u64,
    /// Why.
    #[serde(default)]
    pub why: String,
}

/// That an instance is away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Away {
    /// Since when, in milliseconds of Unix time.
    #[serde(default)]
    pub at: u64,
    /// `refused` or `silent`.
    #[serde(default)]
    pub why: String,
}

/// What an instance tells with its renewals; it is nowhere else.
#[derive(Clone, Debug, Default)]
pub struct Vitals {
    /// The number of the renewal that told it.
    pub seq: u64,
    /// Numbers.
    pub vitals: Value,
    /// Revisions of properties that it applied.
    pub acks: Value,
}

impl Known {
    /// What it is, by the operator's word or its own.
    pub fn effective(&self) -> Option<Status> {
        let own = self.record.as_ref().map(|(_, record)| record.status);
        own.map(|own| self.status_override.as_ref().map_or(own, |word| word.status))
    }

    /// As readers are told: the record, with what an operator says.
    pub fn told(&self) -> Option<Value> {
        let (_, record) = self.record.as_ref()?;
        let mut value = serde_json::to_value(record).ok()?;
        value["override"] = json!(self.status_override.as_ref().map(|word| word.status));
        value["effective"] = json!(self.effective());
        Some(value)
    }

    fn is_empty(&self) -> bool {
        self.record.is_none() && self.status_override.is_none() && self.away.is_none()
    }
}

impl State {
    /// Nothing yet. `period`: of an instance that asks for none, in milliseconds.
    pub fn new(period: u64) -> Self {
        Self {
            at: Cursor::default(),
            is_in_step: false,
            told: Moment::default(),
            keys: Keys::default(),
            keeper: None,
            members: BTreeMap::new(),
            heard: BTreeMap::new(),
            environments: BTreeMap::new(),
            regions: BTreeMap::new(),
            period,
        }
    }

    /// Takes all there is anew. Leases of instances that are still there go on.
    pub fn replace(&mut self, snapshots: &[Snapshot], at: Cursor, now: Moment) {
        let before = std::mem::take(&mut self.environments);
        self.regions.clear();
        self.members.clear();
        (self.keys, self.keeper, self.at) = (Keys::default(), None, at);
        let mut entries: Vec<&Entry> = snapshots.iter().flat_map(|snapshot| &snapshot.entries).collect();
        // As they were told: the journal is in the order of revisions.
        entries.sort_by_key(|entry| entry.modified);
        for (name, old) in before {
            // Its readers look for it, and begin anew.
            let environment = self.make(&name);
            environment.leases = old.leases;
            environment.vitals = old.vitals;
            environment.jobs.take_leases(old.jobs);
        }
        for entry in entries {
            self.put(entry, now);
        }
        for environment in self.environments.values_mut() {
            let Environment { apps, leases, vitals, jobs, .. } = environment;
            let is_there = |instance: &Instance| is_registered(apps, instance);
            leases.retain(is_there);
            let is_away = |instance: &Instance| {
                let known = apps.get(&instance.app).and_then(|app| app.instances.get(&instance.id));
                known.is_some_and(|known| known.away.is_some())
            };
            leases.set_all_away(is_away);
            vitals.retain(|instance, _| is_there(instance));
            jobs.tidy();
        }
        let Self { members, heard, .. } = self;
        heard.retain(|name, _| members.contains_key(name));
        (self.is_in_step, self.told) = (true, now);
    }

    /// Takes a commit.
    pub fn apply(&mut self, revision: Revision, changes: &[Change], now: Moment) {
        for change in changes {
            match change {
                Change::Put(entry) => self.put(entry, now),
                Change::Deleted { key, .. } => self.deleted(key, revision),
            }
        }
        self.at.revision = self.at.revision.max(revision);
        self.told = now;
    }

    /// All up to this revision was told.
    pub(crate) fn marked(&mut self, revision: Revision, now: Moment) {
        self.at.revision = self.at.revision.max(revision);
        // Also where it had fallen silent for a while.
        (self.is_in_step, self.told) = (true, now);
    }

    /// Falls out of step where nothing was told for some time: also in the first moment after this process was stopped.
    pub(crate) fn age(&mut self, now: Moment) {
        self.is_in_step &= now.since(self.told) <= SILENT;
    }

    /// Up to when it is known here which tasks workers renewed, wherever they were heard. `own`: the name of this member.
    pub(crate) fn heard_until(&self, own: Option<&str>, now: Moment) -> Moment {
        let others = self.members.keys().filter(|name| Some(&***name) != own);
        others.map(|name| self.heard.get(name).copied().unwrap_or_default()).fold(now, Moment::min)
    }

    /// An environment that is there.
    pub fn environment(&self, name: &str) -> Option<&Environment> {
        self.environments.get(name)
    }

    /// The same, to be changed.
    pub fn environment_mut(&mut self, name: &str) -> Option<&mut Environment> {
        self.environments.get_mut(name)
    }

    /// All environments.
    pub fn environments(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut Environment)> {
        self.environments.iter_mut()
    }

    /// The names of all environments, in order.
    pub fn environment_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.environments.keys()
    }

    /// How many there are.
    pub fn environment_count(&self) -> usize {
        self.environments.len()
    }

    /// Instances of all environments.
    pub fn instances(&self) -> usize {
        self.environments.values().map(Environment::instance_count).sum()
    }

    /// An environment, which is made if there is room for one more.
    ///
    /// # Errors
    /// 409 if there is not.
    pub fn open(&mut self, name: &str) -> Result<&mut Environment, Refusal> {
        if self.environments.len() >= ENVIRONMENTS_MAX && !self.environments.contains_key(name) {
            return Err(Refusal::conflict(format!(
                "there are {ENVIRONMENTS_MAX} environments, and no more can be had"
            )));
        }
        Ok(self.make(name))
    }

    fn make(&mut self, name: &str) -> &mut Environment {
        let forgotten = self.at.revision.0;
        self.environments.entry(name.into()).or_insert_with(|| Environment {
            apps: BTreeMap::new(),
            journal: Journal::new(forgotten),
            leases: Leases::default(),
            vitals: HashMap::new(),
            properties: Properties::default(),
            jobs: Jobs::default(),
        })
    }

    fn put(&mut self, entry: &Entry, now: Moment) {
        let revision = entry.modified;
        let key = Key::read(&entry.key);
        if key.is_some() {
            self.keys.put(&entry.key, revision);
        }
        match key {
            None => {}
            Some(Key::Keeper) => self.keeper = decode(entry).map(|of| Keeper { of, revision, hold: entry.hold }),
            Some(Key::Member(name)) => {
                if let Some(member) = decode::<Member>(entry) {
                    self.members.insert(name.into(), member);
                }
            }
            Some(Key::Region(name)) => {
                if let Some(id) = decode::<Region>(entry) {
                    self.regions.insert(name.to_owned(), id.id);
                }
            }
            Some(Key::Job { environment, id }) => {
                let Some(job) = decode::<Job>(entry) else { return };
                let of = self.make(environment);
                let app: Arc<str> = job.app.as_str().into();
                of.journal.put(revision.0, Kind::Jobs, id, Some(&app), &job.in_short().to_string());
                of.jobs.put(id, revision, job, now);
            }
            Some(Key::Property { environment, scope, name }) => {
                let Some(value) = decode::<Value>(entry) else { return };
                let app: Option<Arc<str>> = names::app_of_scope(scope).map(Into::into);
                let key = format!("{scope}/{name}");
                let of = self.make(environment);
                of.journal.put(revision.0, Kind::Properties, &key, app.as_ref(), &value.to_string());
                of.properties.put_value(scope, name, entry);
            }
            Some(Key::Properties { environment, what }) => self.make(environment).properties.put(what, entry),
            Some(Key::Of { environment, kind, app, id }) => {
                let period = self.period;
                let environment = self.make(environment);
                let app: Arc<str> = app.into();
                match kind {
                    names::Kind::Topology => {
                        let Some(document) = decode::<Document>(entry) else { return };
                        let text = document.text();
                        environment.journal.put(revision.0, Kind::Topologies, &app, Some(&app), &text);
                        let of = environment.apps.entry(app).or_default();
                        of.topology = Some((revision, Arc::new(document)));
                    }
                    names::Kind::Instance => {
                        let Some(record) = decode::<Record>(entry) else { return };
                        let own = record.renew_every_s.map_or(period, |seconds| u64::from(seconds) * 1_000);
                        let is_away = environment.known(&app, id).is_some_and(|known| known.away.is_some());
                        environment.known_mut(&app, id).record = Some((revision, record));
                        let instance = Instance { app: Arc::clone(&app), id: id.into() };
                        environment.leases.adopt(&instance, own, is_away, now);
                        environment.tell(&instance, revision);
                    }
                    names::Kind::Override => {
                        let word = decode::<Override>(entry);
                        environment.known_mut(&app, id).status_override = word;
                        environment.tell(&Instance { app, id: id.into() }, revision);
                    }
                    names::Kind::Away => {
                        let Some(away) = decode::<Away>(entry) else { return };
                        let text = json!(away).to_string();
                        environment.known_mut(&app, id).away = Some(away);
                        environment.journal.put(revision.0, Kind::Away, &format!("{app}/{id}"), Some(&app), &text);
                        environment.leases.set_away(&Instance { app, id: id.into() });
                    }
                }
            }
        }
    }

    fn deleted(&mut self, key: &str, revision: Revision) {
        self.keys.delete(key);
        match Key::read(key) {
            None => {}
            Some(Key::Keeper) => self.keeper = None,
            Some(Key::Member(name)) => {
                self.members.remove(name);
                self.heard.remove(name);
            }
            Some(Key::Region(name)) => drop(self.regions.remove(name)),
            Some(Key::Job { environment, id }) => {
                let of = self.make(environment);
                if let Some((_, job)) = of.jobs.get(id) {
                    let app: Arc<str> = job.app.as_str().into();
                    of.journal.delete(revision.0, Kind::Jobs, id, Some(&app));
                }
                of.jobs.remove(id);
            }
            Some(Key::Property { environment, scope, name }) => {
                let app: Option<Arc<str>> = names::app_of_scope(scope).map(Into::into);
                let key = format!("{scope}/{name}");
                let of = self.make(environment);
                of.journal.delete(revision.0, Kind::Properties, &key, app.as_ref());
                of.properties.delete_value(scope, name);
            }
            Some(Key::Properties { environment, what }) => self.make(environment).properties.deleted(what),
            Some(Key::Of { environment, kind, app, id }) => {
                let environment = self.make(environment);
                let app: Arc<str> = app.into();
                let of_feed = format!("{app}/{id}");
                match kind {
                    names::Kind::Topology => {
                        environment.journal.delete(revision.0, Kind::Topologies, &app, Some(&app));
                        if let Some(of) = environment.apps.get_mut(&app) {
                            of.topology = None;
                        }
                    }
                    names::Kind::Instance => {
                        environment.journal.delete(revision.0, Kind::Instances, &of_feed, Some(&app));
                        environment.known_mut(&app, id).record = None;
                        let instance = Instance { app: Arc::clone(&app), id: id.into() };
                        environment.leases.forget(&instance);
                        environment.vitals.remove(&instance);
                    }
                    names::Kind::Override => {
                        environment.known_mut(&app, id).status_override = None;
                        environment.tell(&Instance { app: Arc::clone(&app), id: id.into() }, revision);
                    }
                    names::Kind::Away => {
                        environment.journal.delete(revision.0, Kind::Away, &of_feed, Some(&app));
                        environment.known_mut(&app, id).away = None;
                        environment.leases.set_here(&Instance { app: Arc::clone(&app), id: id.into() });
                    }
                }
                environment.tidy(&app, id);
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Region {
    id: u8,
}

/// The value of a region's key.
pub(crate) fn region(id: u8) -> String {
    json!({ "id": id }).to_string()
}

fn is_registered(apps: &BTreeMap<Arc<str>, App>, instance: &Instance) -> bool {
    let known = apps.get(&instance.app).and_then(|app| app.instances.get(&instance.id));
    known.is_some_and(|known| known.record.is_some())
}

impl Environment {
    /// What is known of an instance.
    pub fn known(&self, app: &str, id: &str) -> Option<&Known> {
        self.apps.get(app)?.instances.get(id)
    }

    /// The record of an instance.
    pub fn record(&self, app: &str, id: &str) -> Option<&Record> {
        self.known(app, id)?.record.as_ref().map(|(_, record)| record)
    }

    /// The topology of an app.
    pub fn topology(&self, app: &str) -> Option<&(Revision, Arc<Document>)> {
        self.apps.get(app)?.topology.as_ref()
    }

    /// Instances that are registered.
    pub fn instance_count(&self) -> usize {
        self.apps.values().map(|app| app.instances.len()).sum()
    }

    /// Whether an instance is registered and not away.
    pub fn is_here(&self, app: &Arc<str>, id: &str, now: Moment) -> bool {
        // By the names that are there already: this is asked of all instances again and again.
        let named = self.apps.get(app).and_then(|of| of.instances.get_key_value(id));
        let Some((id, _)) = named else { return false };
        let instance = Instance { app: Arc::clone(app), id: Arc::clone(id) };
        self.leases.standing(&instance, now).is_some_and(|standing| standing != Standing::Away)
    }

    fn known_mut(&mut self, app: &Arc<str>, id: &str) -> &mut Known {
        self.apps.entry(Arc::clone(app)).or_default().instances.entry(id.into()).or_default()
    }

    /// Tells readers of an instance as it is now.
    fn tell(&mut self, instance: &Instance, revision: Revision) {
        let Instance { app, id } = instance;
        if let Some(value) = self.known(app, id).and_then(Known::told) {
            let key = format!("{app}/{id}");
            self.journal.put(revision.0, Kind::Instances, &key, Some(app), &value.to_string());
        }
    }

    /// Drops what says nothing any more.
    fn tidy(&mut self, app: &Arc<str>, id: &str) {
        let Some(of) = self.apps.get_mut(app) else { return };
        if of.instances.get(id).is_some_and(Known::is_empty) {
            of.instances.remove(id);
        }
        if of.instances.is_empty() && of.topology.is_none() {
            self.apps.remove(app);
        }
    }
}
