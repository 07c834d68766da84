//! Properties: what is set at which scope, what instances make of it, its versions, and rollouts.

use std::sync::Arc;

use axum::extract::{Form, Path, Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use moneta_admin::{Right, Role, Route};
use moneta_control::history::show_time;
use moneta_control::properties::changes::{Back, Order, Wanted};
use moneta_control::properties::log::Version;
use moneta_control::properties::rollouts::{Begin, Wish};
use moneta_control::{Refusal, Who};
use serde::Deserialize;
use serde_json::Value;

use super::{Listed, Visit, refused};
use crate::console::Console;
use crate::layout::{Tab, act, encoded, figure, headed, page, pager, path};
use crate::words::{cut, whole};

/// Values on a page, and of the rest at most.
const VALUES: usize = 150;
const ROLLOUTS: usize = 12;
const VERSIONS: usize = 25;
const TROUBLES: usize = 20;
/// The longest text of a cell.
const CELL_MAX: usize = 140;

const PATH: &str = "/console/{environment}/properties";

pub(super) fn routes(console: &Arc<Console>) -> Vec<Route> {
    let operate = Right::Role(Role::Operate);
    vec![
        Route::get(PATH, properties, Arc::clone(console)).needs(Right::Role(Role::Read)),
        Route::post(PATH, change, Arc::clone(console)).needs(operate),
        Route::post("/console/{environment}/properties/rollback", rollback, Arc::clone(console)).needs(operate),
        Route::post("/console/{environment}/properties/rollout", steer, Arc::clone(console)).needs(operate),
    ]
}

/// A value as it is shown.
struct Line {
    scope: String,
    name: String,
    value: String,
    next: Option<String>,
    version: u64,
    by: String,
    at: u64,
    why: String,
}

async fn properties(
    State(console): State<Arc<Console>>,
    Path(environment): Path<String>,
    visit: Visit,
    Query(asked): Query<Listed>,
) -> Response {
    match shown(&console, &environment, &visit, &asked).await {
        Ok(body) => page(&visit, Tab::Properties, "Properties", &body),
        Err(why) => refused(&why),
    }
}

async fn shown(console: &Console, environment: &str, visit: &Visit, asked: &Listed) -> Result<Markup, Refusal> {
    let filter = asked.words();
    let (version, all) = console.control.look(|state, _| {
        let known = state.environment(environment).map(|of| &of.properties);
        let lines = known.into_iter().flat_map(|known| &known.values).map(|((scope, name), (_, property))| Line {
            scope: scope.to_string(),
            name: name.clone(),
            value: told(&property.value),
            next: property.next.as_ref().map(|next| format!("{} by rollout {}", told(&next.value), next.rollout)),
            version: property.version,
            by: property.by.clone(),
            at: property.at,
            why: property.why.clone(),
        });
        (known.map_or(0, |known| known.version()), lines.collect::<Vec<_>>())
    })?;
    let set = all.len();
    let lines: Vec<&Line> =
        all.iter().filter(|line| format!("{} {}", line.scope, line.name).to_lowercase().contains(&filter)).collect();
    let pages = lines.len().div_ceil(VALUES).max(1);
    let number = asked.page.min(pages - 1);
    let status = console.control.properties_status(environment, None)?;
    let rollouts = console.control.rollouts(environment)?;
    let versions = console.control.versions(environment, (0, version), VERSIONS, |_| true).await?;
    let here = format!("{}?filter={}", visit.here, encoded(&asked.filter));
    Ok(html! {
        h1 { "Properties" }
        div id="live" hx-get=(format!("{here}&page={number}")) hx-select="#live" hx-swap="outerHTML" hx-trigger="fleet from:body" {
            (figures(version, set, &status))
            (troubles(environment, &status))
            (rolling(visit, environment, &rollouts))
            section aria-labelledby="values" {
                (headed(visit, "values", "Values", lines.len(), &asked.filter, "scope or name"))
                (values(lines.into_iter().skip(number * VALUES).take(VALUES)))
                @if set == 0 { p.empty { "Nothing is set: options have what their processes were started with." } }
                (pager(&here, number, pages))
            }
            section aria-labelledby="versions" {
                h2 id="versions" { "Versions" }
                (history(visit, environment, version, &versions))
            }
        }
        @if visit.operates { (form(visit, environment)) }
    })
}

fn told(value: &Value) -> String {
    let text = match value {
        Value::Null => return "nothing".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    cut(&text, CELL_MAX)
}

fn figures(version: u64, set: usize, status: &Value) -> Markup {
    let counts = status["counts"].as_object();
    html! {
        dl.figures {
            (figure("version", &whole(version), ""))
            (figure("values", &whole(set as u64), ""))
            @for (state, count) in counts.into_iter().flatten() {
                (figure(&format!("instances: {state}"), &whole(count.as_u64().unwrap_or(0)), class(state)))
            }
        }
    }
}

/// The colour of how an instance stands to its properties.
fn class(state: &str) -> &'static str {
    match state {
        "applied" | "done" => "good",
        "refused" | "held" => "bad",
        "restart" | "behind" | "pending" | "running" | "rolled_back" => "doubtful",
        _ => "idle",
    }
}

fn troubles(environment: &str, status: &Value) -> Markup {
    let is_trouble = |one: &&Value| one["state"] != "applied";
    let found: Vec<&Value> =
        status["instances"].as_array().into_iter().flatten().filter(is_trouble).take(TROUBLES).collect();
    html! {
        @if !found.is_empty() {
            section aria-labelledby="acks" {
                h2 id="acks" { "Not applied" }
                ul.troubles { @for one in found {
                    @let (app, id, state) = (text(&one["app"]), text(&one["id"]), text(&one["state"]));
                    li {
                        span.dot.(class(state)) {}
                        a href=(path(environment, &["apps", app, "instances", id])) { (app) "/" (id) }
                        " " span.word { (state) }
                        @if !text(&one["ack"]["why"]).is_empty() { " " (told(&one["ack"]["why"])) }
                        @if let Some(options) = one["ack"]["after_restart"].as_array() { " after a restart: " (told(&Value::from(options.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")))) }
                    }
                } }
            }
        }
    }
}

fn rolling(visit: &Visit, environment: &str, rollouts: &Value) -> Markup {
    let all = rollouts["rollouts"].as_array().map(Vec::as_slice).unwrap_or_default();
    html! {
        @if !all.is_empty() {
            section aria-labelledby="rollouts" {
                h2 id="rollouts" { "Rollouts" }
                table.rows {
                    thead { tr { th scope="col" { "rollout" } th scope="col" { "what" } th scope="col" { "state" } th scope="col" { "stage" } th scope="col" { "by" } @if visit.operates { th scope="col" { "steer" } } } }
                    tbody { @for one in all.iter().take(ROLLOUTS) { (rollout(visit, environment, one)) } }
                }
            }
        }
    }
}

fn rollout(visit: &Visit, environment: &str, one: &Value) -> Markup {
    let progress = text(&one["progress"]);
    let stages = one["stages"].as_array().map_or(0, Vec::len);
    let stage = one["stage"].as_u64().unwrap_or(0);
    let is_over = matches!(progress, "done" | "aborted" | "rolled_back");
    html! {
        tr {
            td { span.dot.(class(progress)) {} (one["id"]) " " span.seen { (show_time(one["at"].as_u64().unwrap_or(0))) } }
            td { (text(&one["scope"])) " " code { (text(&one["name"])) } ": " (told(&one["before"])) " → " b { (told(&one["value"])) } }
            td { (progress.replace('_', " "))
                @if !text(&one["held"]).is_empty() { " " span.word { (told(&one["held"])) } }
                @if let Some(waits) = one["waits_for"].as_str() { " " span.word { "waits for " (waits) } }
            }
            td { (stage + 1) " of " (stages) " " span.word { (of_stage(&one["stages"][stage as usize])) } }
            td { (text(&one["by"])) }
            @if visit.operates { td { @if !is_over {
                form.act method="post" action=(path(environment, &["properties", "rollout"])) {
                    input type="hidden" name="token" value=(visit.token);
                    input type="hidden" name="id" value=(one["id"]);
                    select name="wish" aria-label="What is to become of it" { option value="continue" { "go on" } option value="skip" { "next stage" } option value="abort" { "abort" } }
                    button type="submit" { "Tell it" }
                }
            } } }
        }
    }
}

/// Who has the value at a stage.
fn of_stage(stage: &Value) -> String {
    match stage.as_object().and_then(|stage| stage.iter().next()) {
        Some((kind, of)) => format!("{kind} {}", told(of)),
        None => told(stage),
    }
}

fn values<'a>(lines: impl Iterator<Item = &'a Line>) -> Markup {
    html! {
        table.rows {
            thead { tr { th scope="col" { "scope" } th scope="col" { "name" } th scope="col" { "value" } th.number scope="col" { "version" } th scope="col" { "since" } th scope="col" { "by" } th scope="col" { "why" } } }
            tbody { @for line in lines { tr {
                td { (line.scope) }
                td { code { (line.name) } }
                td.value { (line.value) @if let Some(next) = &line.next { " " span.word { "some: " (next) } } }
                td.number { (line.version) }
                td.time { (show_time(line.at)) }
                td { (line.by) }
                td.value { (told(&Value::from(line.why.as_str()))) }
            } } }
        }
    }
}

fn history(visit: &Visit, environment: &str, in_force: u64, versions: &[Version]) -> Markup {
    html! {
        @if versions.is_empty() { p.empty { "None yet." } } @else {
            table.rows {
                thead { tr { th.number scope="col" { "version" } th scope="col" { "time" } th scope="col" { "who" } th scope="col" { "what" } th scope="col" { "changes" } th scope="col" { "why" } @if visit.operates { th scope="col" { "back" } } } }
                tbody { @for version in versions { tr {
                    td.number { (version.version) }
                    td.time { (show_time(version.at)) }
                    td { (version.by) }
                    td { (version.what) }
                    td.value { @for change in version.changes.iter().take(4) { (change.scope) " " code { (change.name) } ": " (told(&change.before)) " → " (told(&change.after)) br; }
                        @if version.changes.len() > 4 { "and " (version.changes.len() - 4) " more" } }
                    td.value { (told(&Value::from(version.why.as_str()))) }
                    @if visit.operates { td { @if version.version < in_force {
                        form.act method="post" action=(path(environment, &["properties", "rollback"])) {
                            input type="hidden" name="token" value=(visit.token);
                            input type="hidden" name="version" value=(version.version);
                            input type="hidden" name="expect" value=(in_force);
                            button type="submit" title={ "All values as they were at version " (version.version) } { "As then" }
                        }
                    } } }
                } } }
            }
        }
    }
}

fn form(visit: &Visit, environment: &str) -> Markup {
    let fields = html! {
        label { "Scope" input name="scope" required maxlength="300" autocomplete="off" placeholder="global, zone=a, app=feed"; }
        label { "Name" input name="name" required maxlength="128" autocomplete="off" placeholder="node_timeout"; }
        label { "Value, or nothing to take it away" input name="value" maxlength="4000" autocomplete="off"; }
        label { "How" select name="how" { option value="rollout" { "one instance, one zone, all" } option value="now" { "all at once" } } }
        label { "Why" input name="why" required maxlength="500" autocomplete="off"; }
    };
    act(visit, "set", "Set a value", &path(environment, &["properties"]), &fields, "Set")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn who(visit: &Visit) -> Who {
    Who { name: visit.who.name.clone(), from: visit.who.from.clone() }
}

fn back_to(environment: &str) -> Response {
    Redirect::to(&path(environment, &["properties"])).into_response()
}

#[derive(Deserialize)]
struct SetForm {
    token: String,
    scope: String,
    name: String,
    #[serde(default)]
    value: String,
    how: String,
    #[serde(default)]
    why: String,
}

async fn change(
    State(console): State<Arc<Console>>,
    Path(environment): Path<String>,
    visit: Visit,
    Form(form): Form<SetForm>,
) -> Response {
    if let Err(refused) = console.check_token(&visit.cookies, &form.token) {
        return *refused;
    }
    let (scope, name) = (form.scope.trim().to_owned(), form.name.trim().to_owned());
    // Numbers, truths and lists are JSON; what is none is text, as options are written.
    let value = match form.value.trim() {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    };
    let done = if form.how == "rollout" && !value.is_null() {
        let begin = Begin {
            scope,
            name,
            value,
            why: form.why,
            instance: None,
            zone: None,
            soak_s: None,
            ack_within_s: None,
            manual: false,
            back: true,
        };
        console.control.begin_rollout(who(&visit), &environment, begin).await.map(drop)
    } else {
        let order = Order { changes: vec![Wanted { scope, name, value }], why: form.why, expect_version: None };
        console.control.change_properties(who(&visit), &environment, order).await.map(drop)
    };
    done.map_or_else(|why| refused(&why), |()| back_to(&environment))
}

#[derive(Deserialize)]
struct BackForm {
    token: String,
    version: u64,
    expect: u64,
}

async fn rollback(
    State(console): State<Arc<Console>>,
    Path(environment): Path<String>,
    visit: Visit,
    Form(form): Form<BackForm>,
) -> Response {
    if let Err(refused) = console.check_token(&visit.cookies, &form.token) {
        return *refused;
    }
    let back = Back {
        version: form.version,
        expect_version: Some(form.expect),
        why: "in the console".into(),
        ..Back::default()
    };
    let done = console.control.rollback_properties(who(&visit), &environment, back).await;
    done.map_or_else(|why| refused(&why), |_| back_to(&environment))
}

#[derive(Deserialize)]
struct SteerForm {
    token: String,
    id: u64,
    wish: Wish,
}

async fn steer(
    State(console): State<Arc<Console>>,
    Path(environment): Path<String>,
    visit: Visit,
    Form(form): Form<SteerForm>,
) -> Response {
    if let Err(refused) = console.check_token(&visit.cookies, &form.token) {
        return *refused;
    }
    let done =
        console.control.wish_rollout(who(&visit), &environment, form.id, form.wish, "in the console".into()).await;
    done.map_or_else(|why| refused(&why), |_| back_to(&environment))
}
