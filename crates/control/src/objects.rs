//! What operators are shown of an environment, as objects of JSON: instances, what balances over them, slots, groups, apps.
//!
//! All are functions of a state and a moment, so that they tell of now and of a time that is past alike.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use moneta_net::HostPort;
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
            let said = Said::of(&object);
            object.extend(
                [("group", said.group), ("vips", said.vips), ("hosts", said.hosts)]
                    .map(|(field, value)| (field.to_owned(), value)),
            );
            object.extend(beside.map(|(field, value)| (field.to_owned(), value)));
            all.push(object.into());
        }
    }
    all
}

/// What a record says in one of several fields, by whether it is of a client of Eureka.
struct Said {
    /// The group that it is of: its replica, or the group that scales it.
    group: Value,
    /// The names under which several are asked.
    vips: Value,
    /// The names and addresses of its host.
    hosts: Value,
}

impl Said {
    fn of(record: &serde_json::Map<String, Value>) -> Self {
        let eureka = record.get("eureka").unwrap_or(&Value::Null);
        let group =
            [record.get("replica"), eureka.get("asgName")].into_iter().flatten().find(|group| group.is_string());
        let vips = ["vipAddress", "secureVipAddress"].into_iter().filter_map(|field| eureka[field].as_str());
        let vips: BTreeSet<&str> =
            vips.flat_map(|vips| vips.split(',')).map(str::trim).filter(|vip| !vip.is_empty()).collect();
        let addresses = record.get("addresses").and_then(Value::as_object).into_iter().flatten();
        let places = addresses.filter_map(|(_, address)| address.as_str()?.parse::<HostPort>().ok());
        let mut hosts: BTreeSet<String> = places.map(|place| place.host.to_string()).collect();
        let machine = &eureka["dataCenterInfo"]["metadata"];
        let named = ["public-ipv4", "local-ipv4", "public-hostname", "local-hostname"].map(|name| &machine[name]);
        let named = named.into_iter().chain([&eureka["hostName"], &eureka["ipAddr"]]);
        hosts.extend(named.filter_map(Value::as_str).map(str::to_owned));
        Self { group: group.cloned().unwrap_or_default(), vips: json!(vips), hosts: json!(hosts) }
    }
}

/// What requests are spread by: proxies, and the names under which clients of Eureka ask several instances. A proxy asks all slots
/// of its app.
pub fn balancers(state: &State, now: Moment, environment: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut vips: BTreeMap<(String, String), (Vec<Value>, u64)> = BTreeMap::new();
    for mut instance in instances(state, now, environment) {
        for vip in instance["vips"].as_array().into_iter().flatten() {
            let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (members, up) = vips.entry((name(&instance["app"]), name(vip))).or_default();
            members.push(instance["id"].clone());
            *up += u64::from(is_up(&instance));
        }
        if instance["kind"] == "proxy" {
            instance["name"] = instance["id"].clone();
            all.push(instance);
        }
    }
    let vips = vips.into_iter().map(
        |((app, name), (members, up))| json!({ "app": app, "name": name, "kind": "vip", "members": members, "up": up }),
    );
    all.extend(vips);
    all
}

/// Whether an instance, as an object, serves.
fn is_up(instance: &Value) -> bool {
    instance["state"] == "live" && instance["status"] == "UP"
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

/// Groups of instances: replicas, with how many slots they have, of these held, and of these up; and the groups that scale clients
/// of Eureka.
pub fn groups(state: &State, now: Moment, environment: &str) -> Vec<Value> {
    let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
    let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for slot in slots(state, now, environment) {
        let group = groups.entry((name(&slot["app"]), name(&slot["replica"]))).or_default();
        (group.zone, group.write_only) = (slot["zone"].clone(), slot["write_only"].clone());
        group.slots += 1;
        group.held += u64::from(!slot["holder"].is_null());
        group.up += u64::from(slot["state"] == "live");
        group.members.extend(slot["holder"].as_str().map(str::to_owned));
    }
    for instance in instances(state, now, environment).iter().filter(|instance| !instance["group"].is_null()) {
        let group = groups.entry((name(&instance["app"]), name(&instance["group"]))).or_default();
        if instance["replica"].is_null() {
            group.scales = true;
            group.held += 1;
            group.up += u64::from(is_up(instance));
        }
        // A spare is of its replica, and has none of its slots.
        group.members.insert(name(&instance["id"]));
    }
    let told = |((app, name), group): ((String, String), Group)| {
        json!({ "app": app, "name": name, "kind": if group.scales { "asg" } else { "replica" }, "zone": group.zone,
            "write_only": group.write_only, "slots": group.slots, "held": group.held, "up": group.up,
            "members": group.members })
    };
    groups.into_iter().map(told).collect()
}

/// What is known of a group.
#[derive(Default)]
struct Group {
    /// Whether clients of Eureka are of it.
    scales: bool,
    zone: Value,
    write_only: Value,
    slots: u64,
    held: u64,
    up: u64,
    members: BTreeSet<String>,
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
        let of = groups.iter().filter(|group| group["app"] == app["app"] && group["slots"] != 0);
        let of: Vec<&Value> = of.collect();
        let mut zones: Vec<&Value> = of.iter().map(|group| &group["zone"]).collect();
        zones.dedup();
        (app["replicas"], app["zones"]) = (json!(of.len()), json!(zones));
    }
    all
}
