//! What operators are shown of an environment, as objects of JSON: instances, proxies, slots, replicas, apps.
//!
//! All are functions of a state and a moment, so that they tell of now and of a time that is past alike.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::leases::{Instance, Moment, Standing};
use crate::record::Status;
use crate::state::State;

/// Instances as the list of them has them: with their record as `value`. `app`: those of one app alone.
pub fn listed(state: &State, now: Moment, environment: &str, app: Option<&str>) -> Vec<Value> {
    let mut all = Vec::new();
    let Some(of) = state.environment(environment) else { return all };
    for (name, known) in of.apps.iter().filter(|(name, _)| app.is_none_or(|app| ***name == *app)) {
        for (id, instance) in &known.instances {
            let (Some((revision, _)), Some(value)) = (&instance.record, instance.told()) else { continue };
            let key = Instance { app: Arc::clone(name), id: Arc::clone(id) };
            let vitals = of.vitals.get(&key);
            all.push(json!({
                "app": **name,
                "id": **id,
                "revision": revision.0,
                "value": value,
                "state": of.leases.standing(&key, now).map(Standing::name),
                "seen_ms_ago": of.leases.unseen_for(&key, now),
                "vitals": vitals.map(|vitals| &vitals.vitals),
                "acks": vitals.map(|vitals| &vitals.acks),
            }));
        }
    }
    all
}

/// Instances, each as one object: its record, and what is known beside.
pub fn instances(state: &State, now: Moment, environment: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let Some(of) = state.environment(environment) else { return all };
    for (name, known) in &of.apps {
        for (id, instance) in &known.instances {
            let Some(Value::Object(mut object)) = instance.told() else { continue };
            let key = Instance { app: Arc::clone(name), id: Arc::clone(id) };
            let status = object.remove("effective").unwrap_or_default();
            let beside = [
                ("app", Value::from(&**name)),
                ("id", Value::from(&**id)),
                ("state", of.leases.standing(&key, now).map(Standing::name).into()),
                ("seen_ms_ago", of.leases.unseen_for(&key, now).into()),
                ("vitals", of.vitals.get(&key).map(|vitals| vitals.vitals.clone()).unwrap_or_default()),
                ("status", status),
            ];
            object.extend(beside.map(|(field, value)| (field.to_owned(), value)));
            all.push(object.into());
        }
    }
    all
}

/// Proxies.
pub fn balancers(state: &State, now: Moment, environment: &str) -> Vec<Value> {
    let all = instances(state, now, environment);
    all.into_iter().filter(|instance| instance["kind"] == "proxy").collect()
}

/// Places in the rings of all apps, with how it stands with who holds them.
pub fn slots(state: &State, now: Moment, environment: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let Some(environment) = state.environment(environment) else { return all };
    for (app, known) in &environment.apps {
        let Some((_, document)) = &known.topology else { continue };
        for (replica, slot) in document.slots() {
            let key = |id: &str| Instance { app: Arc::clone(app), id: id.into() };
            let standing = slot.holder.as_deref().and_then(|id| environment.leases.standing(&key(id), now));
            all.push(json!({
                "app": **app, "replica": replica.name, "zone": replica.zone, "write_only": replica.write_only,
                "slot": slot.slot, "weight": slot.weight, "holder": slot.holder, "address": slot.address,
                "admin": slot.admin, "leaving": slot.leaving,
                "state": standing.map(Standing::name),
            }));
        }
    }
    all
}

/// Replicas: how many slots they have, of these held, and of these up.
pub fn groups(state: &State, now: Moment, environment: &str) -> Vec<Value> {
    let mut groups: Vec<Value> = Vec::new();
    for slot in slots(state, now, environment) {
        let is_same = |group: &Value| group["app"] == slot["app"] && group["name"] == slot["replica"];
        if !groups.last().is_some_and(is_same) {
            groups.push(json!({ "app": slot["app"], "name": slot["replica"], "zone": slot["zone"],
                "write_only": slot["write_only"], "slots": 0, "held": 0, "up": 0 }));
        }
        let Some(group) = groups.last_mut() else { continue };
        let counted = [("slots", true), ("held", !slot["holder"].is_null()), ("up", slot["state"] == "live")];
        for (field, _) in counted.into_iter().filter(|(_, counts)| *counts) {
            group[field] = json!(group[field].as_u64().unwrap_or(0) + 1);
        }
    }
    groups
}

/// Apps with numbers of their instances.
pub fn apps_listed(state: &State, now: Moment, environment: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let Some(of) = state.environment(environment) else { return all };
    for (name, known) in &of.apps {
        let registered = known.instances.iter().filter(|(_, instance)| instance.record.is_some());
        let (mut count, mut up, mut away) = (0, 0, 0);
        for (id, instance) in registered {
            count += 1;
            let is_here = of.is_here(name, id, now);
            away += usize::from(!is_here);
            up += usize::from(is_here && instance.effective() == Some(Status::Up));
        }
        let epoch = known.topology.as_ref().map_or(0, |(_, document)| document.epoch);
        all.push(json!({ "app": **name, "instances": count, "up": up, "away": away, "epoch": epoch }));
    }
    all
}

/// Apps: what the list of apps has, with their replicas and zones.
pub fn apps(state: &State, now: Moment, environment: &str) -> Vec<Value> {
    let groups = groups(state, now, environment);
    let mut all = apps_listed(state, now, environment);
    for app in &mut all {
        let of: Vec<&Value> = groups.iter().filter(|group| group["app"] == app["app"]).collect();
        let mut zones: Vec<&Value> = of.iter().map(|group| &group["zone"]).collect();
        zones.dedup();
        (app["replicas"], app["zones"]) = (json!(of.len()), json!(zones));
    }
    all
}
