//! One app: its topology with who holds which slot, and the instances beside.

use std::collections::HashSet;
use std::sync::Arc;

use moneta_control::leases::{Instance, Moment, Standing};
use moneta_control::record::{InstanceKind, Record, Status};
use moneta_control::state::{Environment, State};
use moneta_control::topology::Document;
use serde_json::Value;

use crate::words::{Health, number, stands};

/// An instance as a page has it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) id: String,
    pub(crate) record: Record,
    /// What it is, by an operator's word or its own.
    pub(crate) status: Option<Status>,
    pub(crate) is_overridden: bool,
    pub(crate) standing: Option<Standing>,
    pub(crate) seen_ms_ago: Option<u64>,
    pub(crate) vitals: Value,
    pub(crate) acks: Value,
}

impl Seen {
    pub(crate) fn health(&self) -> Health {
        Health::of(self.status, self.standing)
    }

    pub(crate) fn word(&self) -> &'static str {
        stands(self.status, self.standing)
    }

    pub(crate) fn version(&self) -> Option<&str> {
        self.record.rest.get("version").and_then(Value::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        number(&self.vitals, &[name])
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self.record.kind {
            InstanceKind::Node => "node",
            InstanceKind::Proxy => "proxy",
            InstanceKind::Other => "other",
        }
    }
}

/// A slot and who holds it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) slot: String,
    pub(crate) leaving: bool,
    /// Where it is asked, and for pages.
    pub(crate) address: Option<String>,
    pub(crate) admin: Option<String>,
    pub(crate) holder_id: Option<String>,
    pub(crate) holder: Option<Seen>,
}

impl Place {
    pub(crate) fn health(&self) -> Health {
        match (&self.holder, &self.holder_id, &self.address) {
            (Some(holder), ..) => holder.health(),
            // A server that registers nothing: nothing is known of it.
            (None, None, Some(_)) => Health::Idle,
            _ => Health::Bad,
        }
    }

    pub(crate) fn word(&self) -> &'static str {
        match (&self.holder, &self.holder_id, &self.address) {
            (Some(_), ..) if self.leaving => "leaving",
            (Some(holder), ..) => holder.word(),
            (None, None, Some(_)) => "by address",
            (None, Some(_), _) => "holder gone",
            (None, None, None) => "vacant",
        }
    }
}

/// A replica.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) name: String,
    pub(crate) zone: String,
    pub(crate) write_only: bool,
    pub(crate) places: Vec<Place>,
}

impl Copy {
    /// The sum of a number over the nodes that serve.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.holders().filter_map(|holder| holder.number(name)).sum()
    }

    /// The greatest of it.
    pub(crate) fn most(&self, name: &str) -> Option<f64> {
        self.holders().filter_map(|holder| holder.number(name)).reduce(f64::max)
    }

    fn holders(&self) -> impl Iterator<Item = &Seen> {
        let here = |holder: &&Seen| matches!(holder.standing, Some(Standing::Live | Standing::Suspect));
        self.places.iter().filter_map(|place| place.holder.as_ref()).filter(here)
    }
}

/// An app.
#[derive(Debug, Default)]
pub(crate) struct AppView {
    pub(crate) document: Option<Arc<Document>>,
    pub(crate) copies: Vec<Copy>,
    /// Instances that hold no slot.
    pub(crate) others: Vec<Seen>,
    pub(crate) instances: usize,
}

impl AppView {
    /// The app of this name; `None`: there is none.
    pub(crate) fn of(state: &State, now: Moment, environment: &str, app: &str) -> Option<Self> {
        let of = state.environment(environment)?;
        let (name, known) = of.apps.get_key_value(app)?;
        let mut view = Self::default();
        let mut holders = HashSet::new();
        if let Some((_, document)) = &known.topology {
            for replica in &document.replicas {
                let places = replica.slots.iter().map(|slot| {
                    holders.extend(slot.holder.clone());
                    Place {
                        slot: slot.slot.clone(),
                        leaving: slot.leaving,
                        address: slot.address.clone(),
                        admin: slot.admin.clone(),
                        holder_id: slot.holder.clone(),
                        holder: slot.holder.as_deref().and_then(|id| seen(of, name, id, now)),
                    }
                });
                let places = places.collect();
                let (name, zone) = (replica.name.clone(), replica.zone.clone());
                view.copies.push(Copy { name, zone, write_only: replica.write_only, places });
            }
            view.document = Some(Arc::clone(document));
        }
        for (id, known) in &known.instances {
            if known.record.is_some() {
                view.instances += 1;
                if !holders.contains(&**id) {
                    view.others.extend(seen(of, name, id, now));
                }
            }
        }
        Some(view)
    }
}

/// An instance; `None`: it is not registered.
pub(crate) fn seen(of: &Environment, app: &Arc<str>, id: &str, now: Moment) -> Option<Seen> {
    let known = of.known(app, id)?;
    let (_, record) = known.record.as_ref()?;
    let key = Instance { app: Arc::clone(app), id: id.into() };
    let vitals = of.vitals.get(&key);
    Some(Seen {
        id: id.to_owned(),
        record: record.clone(),
        status: known.effective(),
        is_overridden: known.status_override.is_some(),
        standing: of.leases.standing(&key, now),
        seen_ms_ago: of.leases.unseen_for(&key, now),
        vitals: vitals.map(|vitals| vitals.vitals.clone()).unwrap_or_default(),
        acks: vitals.map(|vitals| vitals.acks.clone()).unwrap_or_default(),
    })
}
