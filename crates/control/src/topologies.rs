//! Changes of topologies, and their epochs.

use std::sync::Arc;

use serde_json::json;

use crate::commits::{Act, Draft, Who};
use crate::control::Control;
use crate::error::Refusal;
use crate::instances::{act, put_topology};
use crate::names;
use crate::slots;
use crate::state::State;
use crate::topology::{Change, Document, Found, Order};

impl Control {
    /// Changes the topology of an app; returns what is in force then.
    ///
    /// # Errors
    /// What [`Change::apply`] says; 409 if another epoch is in force than was expected; 503 if the ledger cannot be had.
    pub async fn change(&self, who: Who, environment: &str, app: &str, order: Order) -> Result<Arc<Document>, Refusal> {
        names::check("an environment", environment)?;
        names::check("an app", app)?;
        let earlier = match order.change {
            Change::Rollback { epoch } => Some(self.epoch(environment, app, epoch).await?),
            _ => None,
        };
        let (of, name) = (environment.to_owned(), app.to_owned());
        let shared = Arc::clone(&self.shared);
        let plan = move |state: &State| {
            let environment = state.environment(&of);
            if environment.is_none() && state.environment_count() >= crate::state::ENVIRONMENTS_MAX {
                return Err(Refusal::conflict("there are too many environments"));
            }
            let before = environment.and_then(|environment| environment.topology(&name));
            let in_force = before.map_or(0, |(_, document)| document.epoch);
            if let Some(expected) = order.expect_epoch.filter(|expected| *expected != in_force) {
                return Err(Refusal::conflict(format!("epoch {in_force} is in force, not {expected}")));
            }
            let instance = match &order.change {
                Change::Replace { instance: Some(id), .. } => environment
                    .and_then(|environment| environment.record(&name, id))
                    .and_then(|record| Some((record.address()?.to_owned(), record.admin().map(str::to_owned)))),
                _ => None,
            };
            let found = Found { instance, earlier: earlier.clone() };
            let mut after = order.change.apply(before.map(|(_, document)| &**document), found)?;
            if let Some(environment) = environment {
                slots::fill(&mut after, environment, &name.as_str().into(), shared.now())?;
            }
            let mut draft = Draft {
                act: Act {
                    what: order.change.name().into(),
                    before: json!({ "epoch": in_force }),
                    after: json!({ "epoch": after.epoch, "change": order.change }),
                    why: order.why.clone(),
                    ..act(&of, &name, "")
                },
                ..Draft::default()
            };
            put_topology(
                &mut draft,
                &of,
                &name,
                before.map(|(revision, document)| (*revision, document.epoch)),
                &after,
            );
            Ok(Some(draft))
        };
        self.commits.commit(who, Box::new(plan)).await?;
        self.topology(environment, app)
    }

    /// The topology of an app that is in force.
    ///
    /// # Errors
    /// 404 if it has none.
    pub fn topology(&self, environment: &str, app: &str) -> Result<Arc<Document>, Refusal> {
        let state = self.state_in_step()?;
        let found = state.environment(environment).and_then(|of| of.topology(app));
        found.map(|(_, document)| Arc::clone(document)).ok_or_else(|| Refusal::missing("the app has no topology"))
    }

    /// An epoch of it that is kept.
    ///
    /// # Errors
    /// 404 if it is not kept; 503 if the ledger cannot be had.
    pub async fn epoch(&self, environment: &str, app: &str, epoch: u64) -> Result<Document, Refusal> {
        names::check("an environment", environment)?;
        names::check("an app", app)?;
        let key = names::epoch(environment, app, epoch);
        let found = self.ledger.snapshot(&key).await?;
        let entry = found.entries.iter().find(|entry| entry.key == key);
        let entry = entry.ok_or_else(|| Refusal::missing(format!("the epoch {epoch} is not kept")))?;
        serde_json::from_slice(&entry.value)
            .map_err(|error| Refusal::unavailable(format!("the epoch {epoch} is not understood: {error}")))
    }

    /// The epochs of an app that are kept, in order.
    ///
    /// # Errors
    /// 503 if the ledger cannot be had.
    pub async fn epochs(&self, environment: &str, app: &str) -> Result<Vec<u64>, Refusal> {
        names::check("an environment", environment)?;
        names::check("an app", app)?;
        let prefix = format!("env/{environment}/epochs/{app}/");
        let found = self.ledger.snapshot(&prefix).await?;
        Ok(found.entries.iter().filter_map(|entry| entry.key.strip_prefix(&prefix)?.parse().ok()).collect())
    }

    /// Gives a region a number, if it has none; returns it. `wanted`: this one; otherwise the least that is free.
    ///
    /// # Errors
    /// 400 if it is none; 409 if there is none left, or it is another's, or the region has another; 503 if the ledger cannot be had.
    pub async fn add_region(&self, who: Who, name: &str, wanted: Option<u64>) -> Result<u8, Refusal> {
        use crate::state::REGIONS_MAX;
        names::check("a region", name)?;
        let region = name.to_owned();
        let wanted = match wanted.map(u8::try_from) {
            Some(Ok(id)) if usize::from(id) < REGIONS_MAX => Some(id),
            Some(_) => return Err(Refusal::invalid(format!("the number of a region is below {REGIONS_MAX}"))),
            None => None,
        };
        let plan = move |state: &State| {
            if let Some(has) = state.regions.get(&region) {
                return match wanted.filter(|wanted| wanted != has) {
                    Some(_) => Err(Refusal::conflict(format!("the region has the number {has}"))),
                    None => Ok(None),
                };
            }
            let is_free = |id: &u8| !state.regions.values().any(|taken| taken == id);
            let id = match wanted {
                Some(id) if is_free(&id) => id,
                Some(id) => return Err(Refusal::conflict(format!("another region has the number {id}"))),
                None => (0..REGIONS_MAX as u8)
                    .find(is_free)
                    .ok_or_else(|| Refusal::conflict(format!("there are {REGIONS_MAX} regions already")))?,
            };
            let act = Act { what: "add_region".into(), after: json!({ "region": region, "id": id }), ..Act::default() };
            let key = names::region(&region);
            // A number is given once, whoever gives it.
            let number = names::region_number(id);
            let compares = [&key, &number].map(|key| moneta_ledger::Compare::Absent(key.clone()));
            let puts = vec![(key, crate::state::region(id)), (number, json!(region).to_string())];
            Ok(Some(Draft { compares: compares.into(), puts, act, ..Draft::default() }))
        };
        self.commits.commit(who, Box::new(plan)).await?;
        let state = self.state_in_step()?;
        state.regions.get(name).copied().ok_or_else(not_kept)
    }
}

fn not_kept() -> Refusal {
    Refusal::unavailable("the region is not seen yet: ask again")
}
