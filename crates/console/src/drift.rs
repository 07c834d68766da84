//! Where an app is not as its topology has it, and where its replicas differ.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::app::{AppView, Seen};
use crate::words::{Health, percent, whole};

/// Sentences at most; others are counted.
const MOST: usize = 30;
/// Items by which a replica may be behind the fullest one, as a share: evictions and expiries are each node's own.
const BEHIND: f64 = 0.1;
/// Replicas with fewer items say nothing by their differences.
const ITEMS_MIN: f64 = 1_000.0;

/// What differs, the worst first.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Drift {
    pub(crate) found: Vec<(Health, String)>,
    /// How many there are beyond those.
    pub(crate) more: usize,
}

impl Drift {
    /// What differs of an app.
    pub(crate) fn of(app: &AppView) -> Self {
        let mut drift = Self::default();
        drift.slots(app);
        drift.copies(app);
        drift.versions(app);
        drift.others(app);
        drift.found.sort_by_key(|(health, _)| std::cmp::Reverse(*health));
        drift.more = drift.found.len().saturating_sub(MOST);
        drift.found.truncate(MOST);
        drift
    }

    fn add(&mut self, health: Health, sentence: String) {
        self.found.push((health, sentence));
    }

    fn slots(&mut self, app: &AppView) {
        for copy in &app.copies {
            for place in &copy.places {
                let (replica, slot) = (&copy.name, &place.slot);
                match (&place.holder, &place.holder_id, &place.address) {
                    (None, None, None) => self.add(Health::Bad, format!("{replica}/{slot} has no holder")),
                    (None, Some(id), _) => {
                        self.add(Health::Bad, format!("{replica}/{slot} is held by {id}, which is not registered"));
                    }
                    (Some(holder), ..) if holder.health() != Health::Good => {
                        self.add(holder.health(), format!("{replica}/{slot}: {} is {}", holder.id, holder.word()));
                    }
                    _ => {}
                }
                if place.leaving {
                    self.add(Health::Idle, format!("{replica}/{slot} is being drained"));
                }
                if let Some(zone) = place.holder.as_ref().and_then(|holder| holder.record.zone.as_deref())
                    && zone != copy.zone
                {
                    let id = place.holder_id.as_deref().unwrap_or("its holder");
                    self.add(
                        Health::Doubtful,
                        format!("{replica}/{slot}: {id} is in zone {zone}, the replica in {}", copy.zone),
                    );
                }
            }
            if copy.write_only {
                self.add(Health::Idle, format!("{} takes writes alone", copy.name));
            }
        }
    }

    fn copies(&mut self, app: &AppView) {
        let items = |copy: &crate::app::Copy| copy.sum("items");
        let fullest = app.copies.iter().map(items).fold(0.0, f64::max);
        if fullest < ITEMS_MIN {
            return;
        }
        for copy in app.copies.iter().filter(|copy| items(copy) < fullest * (1.0 - BEHIND)) {
            let (has, lacks) = (items(copy), 1.0 - items(copy) / fullest);
            let sentence = format!(
                "{} has {} items, {} fewer than the fullest replica",
                copy.name,
                whole(has as u64),
                percent(lacks)
            );
            self.add(Health::Doubtful, sentence);
        }
    }

    fn versions(&mut self, app: &AppView) {
        let all = || {
            let holders = app.copies.iter().flat_map(|copy| &copy.places).filter_map(|place| place.holder.as_ref());
            holders.chain(&app.others)
        };
        let mut by_version: BTreeMap<&str, usize> = BTreeMap::new();
        all().filter_map(Seen::version).for_each(|version| *by_version.entry(version).or_default() += 1);
        if by_version.len() > 1 {
            let told: Vec<String> = by_version.iter().map(|(version, count)| format!("{version} on {count}")).collect();
            self.add(Health::Doubtful, format!("several versions run: {}", told.join(", ")));
        }
        for one in all() {
            let ack = &one.acks["properties"];
            match ack["state"].as_str() {
                Some("refused") => {
                    let why = ack["why"].as_str().unwrap_or_default();
                    self.add(Health::Bad, format!("{} refuses its properties: {why}", one.id));
                }
                Some("restart") => {
                    let which: Vec<&str> =
                        ack["after_restart"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                    self.add(
                        Health::Idle,
                        format!("{} takes properties after a restart: {}", one.id, which.join(", ")),
                    );
                }
                _ => {}
            }
        }
    }

    fn others(&mut self, app: &AppView) {
        let Some(document) = &app.document else { return };
        for other in &app.others {
            let Some((replica, slot)) = other.record.wanted() else { continue };
            if document.slot(replica, slot).is_some() {
                self.add(Health::Idle, format!("{} is a spare for {replica}/{slot}", other.id));
            } else {
                self.add(Health::Doubtful, format!("{} wants {replica}/{slot}, which the topology has not", other.id));
            }
        }
    }
}
