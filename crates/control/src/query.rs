//! Queries: which objects of an environment meet a predicate, how many, and grouped by a field; as they are, or as they were.

use std::time::{Duration, Instant};

use moneta_query::{Predicate, Query, QueryError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::commits::unix_ms;
use crate::control::Control;
use crate::error::Refusal;
use crate::history::{self, History};
use crate::leases::Moment;
use crate::objects;
use crate::state::State;

/// How long a query may take, once its objects are there.
pub const WITHIN: Duration = Duration::from_secs(2);
/// How long one may take with the wait for its turn: that of some others, one of each.
pub const TURN_WITHIN: Duration = Duration::from_secs(10);
/// Objects that are shown where no other number is asked for, and at most.
const SHOWN: usize = 100;
const SHOWN_MAX: usize = 10_000;

/// A kind of objects: its name, and its fields.
struct Kind {
    name: &'static str,
    fields: &'static [&'static str],
    of: fn(&State, Moment, &str) -> Vec<Value>,
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
    "group",
    "vips",
    "hosts",
];

/// Proxies have those of an instance; `members` and `up` are of names that several instances go by.
const BALANCER: &[&str] = &[
    "app",
    "name",
    "kind",
    "members",
    "up",
    "id",
    "status",
    "override",
    "state",
    "seen_ms_ago",
    "region",
    "zone",
    "version",
    "addresses",
    "capacity",
    "since",
    "renew_every_s",
    "metadata",
    "vitals",
    "hosts",
];

const KINDS: [Kind; 5] = [
    Kind { name: "instances", fields: INSTANCE, of: objects::instances },
    Kind { name: "balancers", fields: BALANCER, of: objects::balancers },
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
        of: objects::slots,
    },
    Kind {
        name: "groups",
        fields: &["app", "name", "kind", "zone", "write_only", "slots", "held", "up", "members"],
        of: objects::groups,
    },
    Kind { name: "apps", fields: &["app", "instances", "up", "away", "epoch", "replicas", "zones"], of: objects::apps },
];

/// What is asked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The kind of objects.
    pub of: String,
    /// The predicate; all without one.
    #[serde(rename = "where")]
    pub predicate: Option<String>,
    /// The field that they are grouped by.
    pub by: Option<String>,
    /// How many are shown.
    pub shown: Option<usize>,
    /// The time; now without one.
    pub at: Option<String>,
}

/// The kinds of objects, each with its fields.
pub fn kinds() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    KINDS.iter().map(|kind| (kind.name, kind.fields))
}

/// Answers a question; blocks for as long as a query may take, and for a time that is past as long as its file is read.
///
/// # Errors
/// 400 for what makes no sense; 404 for a time of which nothing is known; 503 if this process is not in step.
pub fn select(
    control: &Control,
    history: Option<&History>,
    environment: &str,
    question: Question,
) -> Result<Value, Refusal> {
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
    let (objects, past) = match &question.at {
        None => (control.look(|state, now| (kind.of)(state, now, environment))?, None),
        Some(at) => {
            let at = history::read_time(at, unix_ms()).map_err(|error| Refusal::invalid(format!("at: {error}")))?;
            let history = history.ok_or_else(|| Refusal::missing("this process keeps no history"))?;
            let past = history.at(at)?;
            ((kind.of)(&past.state, past.now, environment), Some(past))
        }
    };
    let begun = Instant::now();
    let selection = query.select(&objects, || begun.elapsed() > WITHIN).map_err(invalid)?;
    let mut page = json!({ "count": selection.count, "complete": selection.complete });
    if let Some(past) = past {
        page["at"] = history::show_time(past.at).into();
        if past.is_in_gap() {
            page["known_until"] = history::show_time(past.known_until).into();
        }
    }
    match &query.by {
        None => page[kind.name] = selection.shown.into(),
        Some(_) => {
            page["groups"] = json!(selection.groups);
            page["other_groups"] = json!(selection.other_groups);
        }
    }
    Ok(page)
}
