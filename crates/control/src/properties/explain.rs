//! What an instance has and why, and what each instance says has become of what it was told.

use std::collections::BTreeMap;
use std::sync::Arc;

use moneta_ledger::Revision;
use serde_json::{Map, Value, json};

use crate::control::Control;
use crate::error::Refusal;
use crate::leases::{Instance, Standing};
use crate::names::short;
use crate::properties::acked::Acked;
use crate::properties::known::{Properties, scopes_of};
use crate::properties::scope::Scope;
use crate::properties::value::Property;
use crate::record::{InstanceKind, Record};
use crate::state::Environment;

/// Instances that are listed at most.
const LISTED_MAX: usize = 1_000;

/// The commit that changed a value of each scope last.
pub(crate) fn told_by_scope(known: &Properties) -> BTreeMap<&Scope, Revision> {
    let mut told = BTreeMap::new();
    for ((scope, _), (revision, _)) in &known.values {
        let last: &mut Revision = told.entry(scope).or_default();
        *last = (*last).max(*revision);
    }
    told
}

fn shown(of: (&str, &str), record: &Record, scope: &Scope, property: &Property, wins: bool) -> Value {
    let mut value = json!({
        "scope": scope.to_string(),
        "value": property.value_for(of.0, of.1, record),
        "version": property.version,
        "by": property.by,
        "at": property.at,
        "why": property.why,
        "wins": wins,
    });
    if let Some(next) = &property.next {
        value["rollout"] = json!(next.rollout);
    }
    value
}

impl Control {
    /// All values of one instance: of each name those of every scope, the narrowest first, which wins.
    ///
    /// # Errors
    /// 404 if it is not registered; 503 if this process is not in step.
    pub fn explain_properties(
        &self,
        environment: &str,
        app: &str,
        id: &str,
        name: Option<&str>,
    ) -> Result<Value, Refusal> {
        let state = self.state_in_step()?;
        let missing =
            || Refusal::missing(format!("no instance `{}` of the app `{}` is registered", short(id), short(app)));
        let of = state.environment(environment).ok_or_else(missing)?;
        let record = of.record(app, id).ok_or_else(missing)?;
        let mut names: BTreeMap<&str, Vec<(&Scope, &Property)>> = BTreeMap::new();
        for scope in scopes_of(app, id, record) {
            let from = (scope.clone(), String::new());
            for ((of, key), (_, property)) in of.properties.values.range(from..).take_while(|((of, _), _)| *of == scope)
            {
                if name.is_none_or(|name| name == key) {
                    names.entry(key).or_default().push((of, property));
                }
            }
        }
        let explained: Vec<Value> = names
            .into_iter()
            .map(|(name, values)| {
                // One that a rollout has not come to yet may be none.
                let winner = values.iter().position(|(_, property)| !property.value_for(app, id, record).is_null());
                let all = values.iter().enumerate();
                let all: Vec<Value> =
                    all.map(|(place, (scope, property))| shown((app, id), record, scope, property, winner == Some(place))).collect();
                let value = winner.map(|place| values[place].1.value_for(app, id, record));
                json!({ "name": name, "value": value, "scope": winner.map(|place| values[place].0.to_string()), "values": all })
            })
            .collect();
        let instance = Instance { app: app.into(), id: id.into() };
        let mut page = self.stands(of, &instance, record, &told_by_scope(&of.properties));
        page.insert("properties".into(), explained.into());
        page.insert("at".into(), state.at.to_string().into());
        Ok(page.into())
    }

    /// Values by their names, as text; null where there is none: those of an instance, of an app, or of all. Apps are found whatever
    /// the case of their letters, as Eureka's clients write them.
    ///
    /// # Errors
    /// 404 if the instance is not registered; 400 if it has no app; 503 if this process is not in step.
    pub(crate) fn property_texts<'a>(
        &self,
        environment: &str,
        (app, id): (Option<&str>, Option<&str>),
        names: impl Iterator<Item = &'a str>,
    ) -> Result<Map<String, Value>, Refusal> {
        let state = self.state_in_step()?;
        let of = state.environment(environment);
        let app = app.map(|app| {
            let known = of.and_then(|of| of.apps.keys().find(|known| known.eq_ignore_ascii_case(app)));
            known.map_or(app, |known| &**known)
        });
        let (scopes, instance) = match (app, id) {
            (Some(app), Some(id)) => {
                let record = of.and_then(|of| of.record(app, id)).ok_or_else(|| {
                    Refusal::missing(format!("no instance `{}` of the app `{}` is registered", short(id), short(app)))
                })?;
                (scopes_of(app, id, record), Some((app, id, record)))
            }
            (Some(app), None) => (vec![Scope::App(app.to_owned()), Scope::Global], None),
            (None, None) => (vec![Scope::Global], None),
            (None, Some(_)) => return Err(Refusal::invalid("an instance is named with its app")),
        };
        let value = |name: &str| {
            let all = scopes.iter().filter_map(|scope| of?.properties.get(scope, name));
            let mut all = all.map(|(_, property)| match instance {
                Some((app, id, record)) => property.value_for(app, id, record),
                None => &property.value,
            });
            match all.find(|value| !value.is_null()) {
                Some(Value::String(text)) => text.as_str().into(),
                Some(value) => value.to_string().into(),
                None => Value::Null,
            }
        };
        Ok(names.map(|name| (name.to_owned(), value(name))).collect())
    }

    /// How an instance stands to its properties.
    fn stands(
        &self,
        of: &Environment,
        instance: &Instance,
        record: &Record,
        told: &BTreeMap<&Scope, Revision>,
    ) -> Map<String, Value> {
        let vitals = of.vitals.get(instance);
        let scopes = scopes_of(&instance.app, &instance.id, record);
        let last = scopes.iter().filter_map(|scope| told.get(scope)).copied().max().unwrap_or_default();
        let standing = of.leases.standing(instance, self.shared.now());
        let mut page = Map::new();
        page.insert("app".into(), (*instance.app).into());
        page.insert("id".into(), (*instance.id).into());
        page.insert("kind".into(), json!(record.kind));
        page.insert("zone".into(), json!(record.zone));
        page.insert("standing".into(), json!(standing.map(Standing::name)));
        page.insert("state".into(), Acked::of(vitals, last).name().into());
        page.insert("told".into(), last.0.into());
        page.insert("ack".into(), vitals.map_or(Value::Null, |vitals| vitals.acks["properties"].clone()));
        page
    }

    /// How the nodes and proxies of an environment, or of an app, stand to their properties: how many, and a list, those with
    /// trouble first.
    ///
    /// # Errors
    /// 503 if this process is not in step.
    pub fn properties_status(&self, environment: &str, app: Option<&str>) -> Result<Value, Refusal> {
        let state = self.state_in_step()?;
        let Some(of) = state.environment(environment) else {
            return Ok(json!({ "version": 0, "counts": {}, "instances": [], "at": state.at.to_string() }));
        };
        let told = told_by_scope(&of.properties);
        let mut all = Vec::new();
        for (name, known) in of.apps.iter().filter(|(name, _)| app.is_none_or(|app| ***name == *app)) {
            for (id, instance) in &known.instances {
                let Some((_, record)) =
                    instance.record.as_ref().filter(|(_, record)| record.kind != InstanceKind::Other)
                else {
                    continue;
                };
                let instance = Instance { app: Arc::clone(name), id: Arc::clone(id) };
                all.push(self.stands(of, &instance, record, &told));
            }
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for one in &all {
            *counts.entry(one["state"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        // In the order of their names, but for those that are as they should be.
        all.sort_by_key(|one| one["state"] == Acked::Applied.name());
        let is_short = all.len() > LISTED_MAX;
        all.truncate(LISTED_MAX);
        let version = of.properties.version();
        Ok(
            json!({ "version": version, "counts": counts, "instances": all, "left_off": is_short, "at": state.at.to_string() }),
        )
    }
}
