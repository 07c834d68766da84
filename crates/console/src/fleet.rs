//! An environment in numbers, for its overview: regions and zones, apps, and what asks for attention.

use std::collections::{BTreeMap, BTreeSet};

use moneta_control::leases::{Instance, Moment, Renewals, Standing};
use moneta_control::properties::scope::Scope;
use moneta_control::record::Status;
use moneta_control::state::{App, Environment, State};
use serde_json::Value;

use crate::words::{Health, number, stands};

/// Instances that are named as they ask for attention.
const TROUBLES: usize = 20;

/// Sums over instances.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) instances: u64,
    /// Of these, those that serve.
    pub(crate) good: u64,
    /// Those that start, or are out of service.
    pub(crate) idle: u64,
    /// Suspect ones.
    pub(crate) doubtful: u64,
    /// Those that are down or away.
    pub(crate) bad: u64,
    /// Reads a second, as nodes tell with their renewals: those of proxies are the same reads once more.
    pub(crate) gets: f64,
    pub(crate) items: f64,
    /// The longest p99 of all, in microseconds.
    pub(crate) p99: f64,
}

/// An app in a line.
#[derive(Debug)]
pub(crate) struct AppLine {
    pub(crate) name: String,
    pub(crate) sums: Sums,
    pub(crate) epoch: u64,
    pub(crate) replicas: usize,
    pub(crate) slots: usize,
    /// Slots without a holder, or with one that is away.
    pub(crate) vacant: usize,
}

impl AppLine {
    /// How it is, as its worst part.
    pub(crate) fn health(&self) -> Health {
        match &self.sums {
            _ if self.vacant > 0 => Health::Bad,
            sums if sums.bad > 0 => Health::Bad,
            sums if sums.doubtful > 0 => Health::Doubtful,
            sums if sums.idle > 0 => Health::Idle,
            _ => Health::Good,
        }
    }
}

/// An instance that asks for attention.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) app: String,
    pub(crate) id: String,
    pub(crate) health: Health,
    pub(crate) word: &'static str,
    pub(crate) seen_ms_ago: Option<u64>,
}

/// The environment.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) sums: Sums,
    pub(crate) renewals: Renewals,
    pub(crate) places: BTreeMap<(String, String), Sums>,
    /// Regions that are drained, and why.
    pub(crate) drained: BTreeMap<String, String>,
    pub(crate) apps: Vec<AppLine>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) revision: u64,
}

impl Sums {
    fn add(&mut self, health: Health, is_node: bool, vitals: Option<&Value>) {
        self.instances += 1;
        match health {
            Health::Good => self.good += 1,
            Health::Idle => self.idle += 1,
            Health::Doubtful => self.doubtful += 1,
            Health::Bad => self.bad += 1,
        }
        let Some(vitals) = vitals.filter(|_| is_node && health != Health::Bad) else { return };
        self.gets += number(vitals, &["gets_s"]).unwrap_or(0.0);
        self.items += number(vitals, &["items"]).unwrap_or(0.0);
        self.p99 = self.p99.max(number(vitals, &["p99_us"]).unwrap_or(0.0));
    }
}

/// The reason that was given for draining a region, and the user who gave it; `None` where the region is not drained.
fn drained(of: &Environment, region: &str) -> Option<String> {
    let (_, property) = of.properties.get(&Scope::Region(region.to_owned()), "drain")?;
    (property.value == true).then(|| match (&*property.why, &*property.by) {
        (why, "") => why.to_owned(),
        (why, by) => format!("{why} ({by})"),
    })
}

impl Fleet {
    /// The environment of this name, which may have nothing.
    pub(crate) fn of(state: &State, now: Moment, environment: &str) -> Self {
        let mut fleet = Self { revision: state.at.revision.0, ..Self::default() };
        let Some(of) = state.environment(environment) else { return fleet };
        fleet.renewals = of.leases.renewals_at(now);
        let regions: BTreeSet<&String> = of
            .apps
            .values()
            .flat_map(|app| app.instances.values().filter_map(|known| known.record.as_ref()?.1.region.as_ref()))
            .collect();
        fleet.drained = regions.into_iter().filter_map(|region| Some((region.clone(), drained(of, region)?))).collect();
        for (name, app) in &of.apps {
            fleet.add(of, name, app, now);
        }
        // The worst first; of these, in the order of their names.
        fleet.troubles.sort_by_key(|trouble| std::cmp::Reverse(trouble.health));
        fleet.troubles.truncate(TROUBLES);
        fleet
    }

    fn add(&mut self, of: &Environment, name: &std::sync::Arc<str>, app: &App, now: Moment) {
        let mut sums = Sums::default();
        for (id, known) in &app.instances {
            let Some((_, record)) = &known.record else { continue };
            let key = Instance { app: name.clone(), id: id.clone() };
            let (status, standing) = (known.effective(), of.leases.standing(&key, now));
            let health = Health::of(status, standing);
            let is_node = record.kind == moneta_control::record::InstanceKind::Node;
            let vitals = of.vitals.get(&key).map(|vitals| &vitals.vitals);
            let place = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".into());
            let zone = self.places.entry((place(&record.region), place(&record.zone))).or_default();
            for sums in [&mut sums, zone, &mut self.sums] {
                sums.add(health, is_node, vitals);
            }
            // What an operator has taken out needs no attention.
            let is_drained = record.region.as_ref().is_some_and(|region| self.drained.contains_key(region));
            let is_asked_for = (known.status_override.is_some() || is_drained) && health == Health::Idle;
            if health != Health::Good && !is_asked_for {
                self.note(&key, health, status, standing, of.leases.unseen_for(&key, now));
            }
        }
        let slots = app.topology.iter().flat_map(|(_, document)| document.slots());
        let is_vacant = |holder: &Option<String>| !holder.as_deref().is_some_and(|id| of.is_here(name, id, now));
        let (mut count, mut vacant) = (0, 0);
        for (_, slot) in slots {
            count += 1;
            // A server that registers nothing is in its slot by its address.
            vacant += usize::from(is_vacant(&slot.holder) && (slot.holder.is_some() || slot.address.is_none()));
        }
        let document = app.topology.as_ref().map(|(_, document)| document);
        self.apps.push(AppLine {
            name: name.to_string(),
            sums,
            epoch: document.map_or(0, |document| document.epoch),
            replicas: document.map_or(0, |document| document.replicas.len()),
            slots: count,
            vacant,
        });
    }

    fn note(
        &mut self,
        key: &Instance,
        health: Health,
        status: Option<Status>,
        standing: Option<Standing>,
        seen_ms_ago: Option<u64>,
    ) {
        // Half of a fleet may be in trouble: the list stays short while it is made.
        if self.troubles.len() >= 50 * TROUBLES {
            return;
        }
        let (app, id) = (key.app.to_string(), key.id.to_string());
        self.troubles.push(Trouble { app, id, health, word: stands(status, standing), seen_ms_ago });
    }
}
