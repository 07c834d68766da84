//! Events: who did what in an environment, the latest first.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use maud::{Markup, html};
use moneta_admin::{Right, Role, Route};
use moneta_control::history::show_time;
use serde::Deserialize;
use serde_json::Value;

use super::{Visit, refused};
use crate::console::Console;
use crate::layout::{Tab, page, path};
use crate::words::cut;

/// Events on a page.
const ACTS: usize = 150;
/// The longest text of a cell.
const CELL_MAX: usize = 160;

pub(super) fn routes(console: &Arc<Console>) -> Vec<Route> {
    let route = Route::get("/console/{environment}/audit", audit, Arc::clone(console));
    vec![route.needs(Right::Role(Role::Administer))]
}

#[derive(Deserialize)]
struct Asked {
    before: Option<u64>,
}

async fn audit(
    State(console): State<Arc<Console>>,
    Path(environment): Path<String>,
    visit: Visit,
    Query(asked): Query<Asked>,
) -> Response {
    let before = asked.before.unwrap_or(u64::MAX / 2);
    // A clock of another member may be a minute ahead; what is far ahead of all is no record.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let before = before.min(u64::try_from(now.as_millis()).unwrap_or(u64::MAX) + 60_000);
    let acts = match console.control.audit(&environment, before, ACTS).await {
        Ok(acts) => acts,
        Err(why) => return refused(&why),
    };
    let last = acts.last().and_then(|act| act["at"].as_u64()).filter(|_| acts.len() == ACTS);
    let body = html! {
        h1 { "Audit" }
        p.empty { "Who did what in " (environment) ", the latest first; kept for seven days." }
        div.scrolls tabindex="0" role="region" aria-label="Events" { table.rows {
            thead { tr { th scope="col" { "time" } th scope="col" { "who" } th scope="col" { "what" } th scope="col" { "on" } th scope="col" { "from" } th scope="col" { "to" } th scope="col" { "why" } th.number scope="col" { "revision" } } }
            tbody { @for act in &acts { (line(&environment, act)) } }
        } }
        @if acts.is_empty() { p.empty { "Nothing yet." } }
        @if let Some(last) = last { nav.pager aria-label="Pages" { a href=(format!("{}?before={last}", visit.here)) { "earlier →" } } }
    };
    page(&visit, Tab::Audit, "Audit", &body)
}

fn line(environment: &str, act: &Value) -> Markup {
    let text = |name: &str| act[name].as_str().unwrap_or_default().to_owned();
    let (app, id) = (text("app"), text("id"));
    let who = match (act["who"].as_str(), act["from"].as_str()) {
        (Some(who), _) => who.to_owned(),
        (None, Some("")) | (None, None) => "this process".into(),
        (None, Some(from)) => from.to_owned(),
    };
    html! {
        tr {
            td.time { (show_time(act["at"].as_u64().unwrap_or(0)).replace('T', " ").replace('Z', "")) }
            td title=(text("from")) { (who) }
            td { b { (text("what").replace('_', " ")) } }
            td {
                @if !app.is_empty() { a href=(path(environment, &["apps", &app])) { (app) } }
                @if !id.is_empty() { "/" a href=(leads(environment, &text("what"), &app, &id)) { (id) } }
            }
            td.value { (brief(&act["before"])) }
            td.value { (brief(&act["after"])) }
            td.value { (text("why")) }
            td.number { (act["revision"]) }
        }
    }
}

/// Where what an event is about is shown: a job, or an instance.
fn leads(environment: &str, what: &str, app: &str, id: &str) -> String {
    if matches!(what, "claim" | "checkpoint") || what.starts_with("task_") || what.ends_with("_job") {
        path(environment, &["jobs", id])
    } else {
        path(environment, &["apps", app, "instances", id])
    }
}

fn brief(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    cut(&text, CELL_MAX)
}
