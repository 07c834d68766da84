//! Queries: which objects of an environment meet a predicate, how many, and grouped by a field.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Path, Query as Asked, State};
use axum::response::Response;
use moneta_admin::ask::{Turn, ask};
use moneta_admin::{Right, Role, Route};
use moneta_query::{Predicate, Query, QueryError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Desk;
use super::answer::answered;
use super::instances::listed;
use crate::error::Refusal;

/// How long a query may take.
const WITHIN: Duration = Duration::from_secs(2);
/// Objects that are shown where no other number is asked for, and at most.
const SHOWN: usize = 100;
const SHOWN_MAX: usize = 10_000;

/// A kind of objects: its name, and its fields.
struct Kind {
    name: &'static str,
    fields: &'static [&'static str],
    of: fn(&Desk, &str) -> Result<Vec<Value>, Refusal>,
}

const INSTANCE: &[&str] = &[
    "app",
    "id",
    "kind",
    "status",
    "override",
    "state",
    "seen_ms_ago",
    "region",
    "zone",
    "replica",
    "slot",
    "version",
    "addresses",
    "capacity",
    "since",
    "renew_every_s",
    "metadata",
    "vitals",
];

const KINDS: [Kind; 5] = [
    Kind { name: "instances", fields: INSTANCE, of: instances },
    Kind { name: "balancers", fields: INSTANCE, of: balancers },
    Kind {
        name: "slots",
        fields: &[
            "app",
            "replica",
            "zone",
            "write_only",
            "slot",
            "weight",
            "holder",
            "address",
            "admin",
            "leaving",
            "state",
        ],
        of: slots,
    },
    Kind { name: "groups", fields: &["app", "name", "zone", "write_only", "slots", "held", "up"], of: groups },
    Kind { name: "apps", fields: &["app", "instances", "up", "away", "epoch", "replicas", "zones"], of: apps },
];

pub(super) fn routes(desk: &Desk) -> Vec<Route> {
    let state = (desk.clone(), Turn::of(1));
    vec![Route::get("/v1/{environment}/query", query, state).needs(Right::Role(Role::Read))]
}

/// What is asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    of: String,
    #[serde(rename = "where")]
    predicate: Option<String>,
    by: Option<String>,
    shown: Option<usize>,
}

async fn query(
    State((desk, turn)): State<(Desk, Turn)>,
    Path(environment): Path<String>,
    Asked(question): Asked<Question>,
) -> Response {
    // Expressions take a processor for as long as they may: not the one that answers others.
    let answer = ask(&turn, 2 * WITHIN, move || select(&desk, &environment, question)).await;
    answered(answer.unwrap_or_else(|_| Err(Refusal::unavailable("other queries take their time: ask again"))))
}

fn select(desk: &Desk, environment: &str, question: Question) -> Result<Value, Refusal> {
    let known = KINDS.iter().find(|kind| kind.name == question.of);
    let kind = known.ok_or_else(|| {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        Refusal::invalid(format!("of: one of {}", names.join(", ")))
    })?;
    let invalid = |error: QueryError| Refusal::invalid(error.to_string());
    let predicate = question.predicate.as_deref().map(|text| Predicate::parse(text, kind.fields)).transpose();
    let query = Query {
        predicate: predicate.map_err(invalid)?,
        by: question.by,
        shown_max: question.shown.unwrap_or(SHOWN).min(SHOWN_MAX),
    };
    let objects = (kind.of)(desk, environment)?;
    let begun = Instant::now();
    let selection = query.select(&objects, || begun.elapsed() > WITHIN).map_err(invalid)?;
    let mut page = json!({ "count": selection.count, "complete": selection.complete });
    match &query.by {
        None => page[kind.name] = selection.shown.into(),
        Some(_) => {
            page["groups"] = json!(selection.groups);
            page["other_groups"] = json!(selection.other_groups);
        }
    }
    Ok(page)
}

/// Instances, each as one object: its record, and what is known beside.
fn instances(desk: &Desk, environment: &str) -> Result<Vec<Value>, Refusal> {
    let Value::Object(mut page) = listed(desk, environment, None)? else { return Ok(Vec::new()) };
    let Some(Value::Array(all)) = page.remove("instances") else { return Ok(Vec::new()) };
    let whole = |mut one: Value| {
        let mut object = one["value"].take();
        for field in ["app", "id", "state", "seen_ms_ago", "vitals"] {
            object[field] = one[field].take();
        }
        object["status"] = object["effective"].take();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("effective");
        }
        object
    };
    Ok(all.into_iter().map(whole).collect())
}

/// Proxies.
fn balancers(desk: &Desk, environment: &str) -> Result<Vec<Value>, Refusal> {
    let all = instances(desk, environment)?;
    Ok(all.into_iter().filter(|instance| instance["kind"] == "proxy").collect())
}

/// Places in the rings of all apps, with how it stands with who holds them.
fn slots(desk: &Desk, environment: &str) -> Result<Vec<Value>, Refusal> {
    let state = desk.control.state_in_step()?;
    let now = desk.control.shared.now();
    let mut all = Vec::new();
    let Some(environment) = state.environment(environment) else { return Ok(all) };
    for (app, known) in &environment.apps {
        let Some((_, document)) = &known.topology else { continue };
        for replica in &document.replicas {
            for slot in &replica.slots {
                let key = |id: &str| crate::leases::Instance { app: Arc::clone(app), id: id.into() };
                let standing = slot.holder.as_deref().and_then(|id| environment.leases.standing(&key(id), now));
                all.push(json!({
                    "app": **app, "replica": replica.name, "zone": replica.zone, "write_only": replica.write_only,
                    "slot": slot.slot, "weight": slot.weight, "holder": slot.holder, "address": slot.address,
                    "admin": slot.admin, "leaving": slot.leaving,
                    "state": standing.map(crate::leases::Standing::name),
                }));
            }
        }
    }
    Ok(all)
}

/// Replicas: how many slots they have, of these held, and of these up.
fn groups(desk: &Desk, environment: &str) -> Result<Vec<Value>, Refusal> {
    let mut groups: Vec<Value> = Vec::new();
    for slot in slots(desk, environment)? {
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
    Ok(groups)
}

/// Apps: what the list of apps has, with their replicas and zones.
fn apps(desk: &Desk, environment: &str) -> Result<Vec<Value>, Refusal> {
    let groups = groups(desk, environment)?;
    let Value::Object(mut page) = super::instances::apps_of(desk, environment)? else { return Ok(Vec::new()) };
    let Some(Value::Array(mut all)) = page.remove("apps") else { return Ok(Vec::new()) };
    for app in &mut all {
        let of: Vec<&Value> = groups.iter().filter(|group| group["app"] == app["app"]).collect();
        let mut zones: Vec<&Value> = of.iter().map(|group| &group["zone"]).collect();
        zones.dedup();
        (app["replicas"], app["zones"]) = (json!(of.len()), json!(zones));
    }
    Ok(all)
}
