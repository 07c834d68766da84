//! Queries in CEL: a form, and what meets it.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use maud::{Markup, html};
use moneta_admin::ask::ask_as;
use moneta_admin::{Right, Role, Route};
use moneta_control::Refusal;
use moneta_control::query::{self, Question, TURN_WITHIN};
use serde::Deserialize;
use serde_json::Value;

use super::Visit;
use crate::console::Console;
use crate::layout::{Tab, page, path};
use crate::words::{cut, whole};

/// Objects that are shown.
const SHOWN: usize = 200;
/// Groups that are shown.
const GROUPS: usize = 500;
/// The longest text of a cell.
const CELL_MAX: usize = 120;

const PATH: &str = "/console/{environment}/query";

pub(super) fn routes(console: &Arc<Console>) -> Vec<Route> {
    vec![Route::get(PATH, query, Arc::clone(console)).needs(Right::Role(Role::Read))]
}

#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    of: String,
    #[serde(default, rename = "where")]
    predicate: String,
    #[serde(default)]
    by: String,
    #[serde(default)]
    at: String,
}

/// Questions to begin with: what is looked at, and the predicate.
const EXAMPLES: [(&str, &str); 4] = [
    ("instances", "status != \"UP\" || state != \"live\""),
    ("slots", "holder == null || state != \"live\""),
    ("groups", "up < slots"),
    ("balancers", "vitals.p99_us > 2000.0"),
];

async fn query(
    State(console): State<Arc<Console>>,
    Path(environment): Path<String>,
    mut visit: Visit,
    Query(asked): Query<Asked>,
) -> Response {
    let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let answer = if asked.of.is_empty() {
        None
    } else {
        let question = Question {
            of: asked.of.clone(),
            predicate: given(&asked.predicate),
            by: given(&asked.by),
            shown: Some(SHOWN),
            at: given(&asked.at),
        };
        let (control, history) = (Arc::clone(&console.control), console.history.clone());
        let selected = move || query::select(&control, history.as_deref(), &environment, question);
        let answer = ask_as(visit.who.asker(), &console.queries, TURN_WITHIN, selected).await;
        Some(answer.unwrap_or_else(|_| Err(Refusal::unavailable("other queries take their time: ask again"))))
    };
    // The answer says itself of when it is.
    visit.at = None;
    let body = html! {
        h1 { "Query" }
        (form(&visit, &asked))
        @match &answer {
            None => (examples(&visit)),
            Some(Err(why)) => p.warning role="alert" { (why.why) },
            Some(Ok(answer)) => (answered(&visit, &asked, answer)),
        }
    };
    page(&visit, Tab::Query, "Query", &body)
}

fn form(visit: &Visit, asked: &Asked) -> Markup {
    let fields = query::kinds().find(|(name, _)| *name == asked.of).or_else(|| query::kinds().next());
    html! {
        form.act method="get" action=(visit.here) {
            label { "Which" select name="of" { @for (name, _) in query::kinds() { option value=(name) selected[name == asked.of] { (name) } } } }
            label.wide { "where (CEL)" input id="filter" name="where" value=(asked.predicate) maxlength="2048" autocomplete="off" spellcheck="false" placeholder="zone == \"a\" && status != \"UP\""; }
            label { "by" input name="by" value=(asked.by) maxlength="100" autocomplete="off" placeholder="zone"; }
            label { "at" input name="at" value=(asked.at) maxlength="40" autocomplete="off" placeholder="now"; }
            button type="submit" { "Ask" }
        }
        @if let Some((name, fields)) = fields { p.fields { "Fields of " (name) ": " @for field in fields { code { (field) } " " } } }
    }
}

fn examples(visit: &Visit) -> Markup {
    html! {
        section aria-labelledby="examples" {
            h2 id="examples" { "To begin with" }
            ul.examples { @for (of, predicate) in EXAMPLES {
                li { a href=(format!("{}?of={of}&where={}", visit.here, crate::layout::encoded(predicate))) { (of) " where " code { (predicate) } } }
            } }
        }
    }
}

fn answered(visit: &Visit, asked: &Asked, answer: &Value) -> Markup {
    let count = answer["count"].as_u64().unwrap_or(0);
    html! {
        p.calm role="status" {
            b { (whole(count)) } " " (asked.of)
            @if let Some(at) = answer["at"].as_str() { " at " (at) }
            @if let Some(known) = answer["known_until"].as_str() { ", as they were last known at " (known) }
            @if answer["complete"] == false { ": the time was over before all were looked at" }
        }
        @if let Some(groups) = answer["groups"].as_object() { (grouped(asked, groups, answer)) }
        @else if let Some(objects) = answer[&asked.of].as_array() { (listed(visit, asked, objects, count)) }
    }
}

fn grouped(asked: &Asked, groups: &serde_json::Map<String, Value>, answer: &Value) -> Markup {
    let mut groups: Vec<(&String, u64)> =
        groups.iter().map(|(name, count)| (name, count.as_u64().unwrap_or(0))).collect();
    groups.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    html! {
        table.rows {
            thead { tr { th scope="col" { (asked.by) } th.number scope="col" { "count" } } }
            tbody { @for (name, count) in groups.into_iter().take(GROUPS) { tr { td { @if name.is_empty() { "–" } @else { (cut(name, CELL_MAX)) } } td.number { (whole(count)) } } } }
        }
        @if let Some(others @ 1..) = answer["other_groups"].as_u64() { p.empty { (whole(others)) " in other groups" } }
    }
}

/// The columns of a kind of objects.
fn columns(of: &str) -> &'static [&'static str] {
    match of {
        "slots" => &["app", "replica", "zone", "slot", "holder", "address", "state"],
        "groups" => &["app", "name", "kind", "zone", "slots", "held", "up", "write_only"],
        "balancers" => &["app", "name", "kind", "status", "state", "zone", "up", "version"],
        "apps" => &["app", "instances", "up", "away", "epoch", "replicas", "zones"],
        _ => &["app", "id", "kind", "status", "state", "zone", "replica", "slot", "version"],
    }
}

fn listed(visit: &Visit, asked: &Asked, objects: &[Value], count: u64) -> Markup {
    let columns = columns(&asked.of);
    html! {
        div.scrolls tabindex="0" role="region" aria-label="Objects" { table.rows {
            thead { tr { @for column in columns { th scope="col" { (column) } } } }
            tbody { @for object in objects { tr { @for column in columns { td { (cell(visit, object, column)) } } } } }
        } }
        @if (objects.len() as u64) < count { p.empty { "the first " (objects.len()) " are shown" } }
    }
}

fn cell(visit: &Visit, object: &Value, column: &str) -> Markup {
    let text = match &object[column] {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let app = object["app"].as_str().unwrap_or_default();
    let leads = match column {
        "app" => Some(path(&visit.environment, &["apps", app])),
        "id" | "holder" => object[column].as_str().map(|id| path(&visit.environment, &["apps", app, "instances", id])),
        _ => None,
    };
    html! { @if let Some(leads) = leads { a href=(leads) { (cut(&text, CELL_MAX)) } } @else { (cut(&text, CELL_MAX)) } }
}
