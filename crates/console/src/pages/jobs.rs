//! Jobs: all of an environment in short, and one with its tasks: who does them, and how far they are.

use std::sync::Arc;

use axum::extract::{Form, Path, Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use moneta_admin::{Right, Role, Route};
use moneta_control::history::show_time;
use moneta_control::jobs::steer::Steer;
use moneta_control::{Refusal, Who};
use serde::Deserialize;
use serde_json::Value;

use super::{Listed, Visit, refused};
use crate::console::Console;
use crate::layout::{Tab, act, encoded, figure, headed, page, pager, path};
use crate::words::{ago, cut, number, percent, whole};

/// Jobs, and tasks of one, on a page.
const JOBS: usize = 100;
const TASKS: usize = 128;
/// The longest text of a cell.
const CELL_MAX: usize = 200;

const ALL: &str = "/console/{environment}/jobs";
const ONE: &str = "/console/{environment}/jobs/{id}";

pub(super) fn routes(console: &Arc<Console>) -> Vec<Route> {
    vec![
        Route::get(ALL, jobs, Arc::clone(console)).needs(Right::Role(Role::Read)),
        Route::get(ONE, job, Arc::clone(console)).needs(Right::Role(Role::Read)),
        Route::post(ONE, steer, Arc::clone(console)).needs(Right::Role(Role::Operate)),
    ]
}

async fn jobs(
    State(console): State<Arc<Console>>,
    Path(environment): Path<String>,
    visit: Visit,
    Query(asked): Query<Listed>,
) -> Response {
    let all = match console.control.jobs(&environment, None) {
        Ok(all) => all,
        Err(why) => return refused(&why),
    };
    let filter = asked.words();
    let named = |one: &Value| ["id", "kind", "app", "state"].map(|name| text(&one[name])).join(" ").to_lowercase();
    let all: Vec<&Value> = all["jobs"].as_array().into_iter().flatten().collect();
    let met: Vec<&Value> = all.iter().copied().filter(|one| named(one).contains(&filter)).collect();
    let pages = met.len().div_ceil(JOBS).max(1);
    let at = asked.page.min(pages - 1);
    let here = format!("{}?filter={}", visit.here, encoded(&asked.filter));
    let body = html! {
        h1 { "Jobs" }
        div id="live" hx-get=(format!("{here}&page={at}")) hx-select="#live" hx-swap="outerHTML" hx-trigger="fleet from:body" {
            section aria-labelledby="jobs" {
                (headed(&visit, "jobs", "Jobs", met.len(), &asked.filter, "id, kind, app or state"))
                table.rows {
                    thead { tr { th scope="col" { "job" } th scope="col" { "app" } th scope="col" { "state" } th scope="col" { "done" } th.number scope="col" { "tasks" } th scope="col" { "begun" } th scope="col" { "by" } th scope="col" { "why" } } }
                    tbody { @for one in met.iter().skip(at * JOBS).take(JOBS) { (line(&environment, one)) } }
                }
                @if all.is_empty() { p.empty { "None. They are begun by commands such as `moneta warm` and `moneta cluster roll`, and kept for seven days." } }
                (pager(&here, at, pages))
            }
        }
    };
    page(&visit, Tab::Jobs, "Jobs", &body)
}

fn line(environment: &str, one: &Value) -> Markup {
    let (id, app, state) = (text(&one["id"]), text(&one["app"]), text(&one["state"]));
    html! {
        tr {
            td { span.dot.(class(state)) {} a href=(path(environment, &["jobs", id])) { (id) } " " span.seen { (text(&one["kind"])) } }
            td { a href=(path(environment, &["apps", app])) { (app) } }
            td { (state) @if silent(one) > 0 { " " span.word { (whole(silent(one))) " silent" } } }
            td { (bar(count(&one["done"]), count(&one["tasks"]))) }
            td.number { (whole(count(&one["done"]))) " of " (whole(count(&one["tasks"]))) }
            td.time { (show_time(count(&one["begun"]))) }
            td { (text(&one["by"])) }
            td.value { (cut(text(&one["why"]), CELL_MAX)) }
        }
    }
}

/// Tasks whose workers have not renewed them for a lease.
fn silent(one: &Value) -> u64 {
    count(&one["running"]).saturating_sub(count(&one["live"]))
}

/// How much of something is done, as a bar.
fn bar(done: u64, of: u64) -> Markup {
    let share = if of == 0 { 0.0 } else { (done as f64 / of as f64).min(1.0) };
    html! {
        svg.bar viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label={ (percent(share)) " done" } {
            rect.plain width=(format!("{:.1}", share * 100.0)) height="6" {}
        }
    }
}

#[derive(Deserialize)]
struct OfJob {
    environment: String,
    id: String,
}

async fn job(
    State(console): State<Arc<Console>>,
    Path(OfJob { environment, id }): Path<OfJob>,
    visit: Visit,
    Query(asked): Query<Listed>,
) -> Response {
    let job = match console.control.job(&environment, &id) {
        Ok(job) => job,
        Err(why) => return refused(&why),
    };
    let (state, app) = (text(&job["state"]), text(&job["app"]));
    let tasks = job["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let stand = |state: &str| tasks.iter().filter(|task| task["state"] == *state).count() as u64;
    let pages = tasks.len().div_ceil(TASKS).max(1);
    let at = asked.page.min(pages - 1);
    let body = html! {
        h1 { "Job " (id) }
        div id="live" hx-get=(format!("{}?page={at}", visit.here)) hx-select="#live" hx-swap="outerHTML" hx-trigger="fleet from:body" {
            dl.figures {
                (figure("state", state, class(state)))
                (figure("done", &format!("{} of {}", whole(stand("done")), whole(tasks.len() as u64)), ""))
                (figure("running", &whole(stand("running")), ""))
                @if stand("failed") > 0 { (figure("failed", &whole(stand("failed")), "bad")) }
                (figure("kind", text(&job["kind"]), "text"))
                (figure("begun", &show_time(count(&job["begun"])), "text"))
                @if !text(&job["by"]).is_empty() { (figure("by", text(&job["by"]), "text")) }
            }
            p { "Of the app " a href=(path(&environment, &["apps", app])) { (app) }
                @if !job["params"].is_null() { ", with " code { (cut(&job["params"].to_string(), CELL_MAX)) } } }
            @if !text(&job["why"]).is_empty() { p.(if state == "failed" { "warning" } else { "calm" }) { (cut(text(&job["why"]), 4 * CELL_MAX)) } }
            section aria-labelledby="tasks" {
                h2 id="tasks" { "Tasks" }
                table.rows {
                    thead { tr { th scope="col" { "task" } th scope="col" { "slot" } th scope="col" { "state" } th scope="col" { "worker" } th.number scope="col" { "term" } th scope="col" { "progress" } th scope="col" { "done" } th scope="col" { "why" } } }
                    tbody { @for task in tasks.iter().skip(at * TASKS).take(TASKS) { (task_line(task)) } }
                }
                (pager(&visit.here, at, pages))
            }
        }
        @if visit.operates && !matches!(state, "done" | "cancelled") { (form(&visit)) }
    };
    page(&visit, Tab::Jobs, &format!("Job {id}"), &body)
}

fn task_line(task: &Value) -> Markup {
    let state = text(&task["state"]);
    let is_silent = task["live"] == false;
    let seen = task["seen_ms_ago"].as_u64();
    // What its worker says now, else what was written down last.
    let said = if task["progress"].is_null() { &task["checkpoint"] } else { &task["progress"] };
    let done = number(said, &["items"]).zip(number(said, &["expected"]));
    html! {
        tr {
            td { span.dot.(if is_silent { "doubtful" } else { class(state) }) {} (text(&task["name"])) }
            td { (text(&task["params"]["slot"])) }
            td { (state)
                @if let Some(seen) = seen { " " span.seen { @if is_silent { "silent, " } "heard of " (ago(seen)) } }
            }
            td { (text(&task["worker"])) }
            td.number { (count(&task["term"])) }
            td { @if state == "done" { (bar(1, 1)) } @else if let Some((items, expected)) = done { (bar(items as u64, expected as u64)) } }
            td.value { @match said {
                Value::Null => {}
                Value::Object(of) if of.contains_key("text") => { (cut(text(&said["text"]), CELL_MAX)) }
                other => { code { (cut(&other.to_string(), CELL_MAX)) } }
            } }
            td.value { @if state != "done" { (cut(text(&task["why"]), CELL_MAX)) } }
        }
    }
}

fn form(visit: &Visit) -> Markup {
    let fields = html! {
        label { "What" select name="order" { option value="pause" { "pause" } option value="resume" { "resume" } option value="cancel" { "cancel" } } }
        label { "Why" input name="why" required maxlength="500" autocomplete="off"; }
    };
    act(visit, "steer", "Tell it", &visit.here, &fields, "Tell it")
}

#[derive(Deserialize)]
struct SteerForm {
    token: String,
    order: Steer,
    #[serde(default)]
    why: String,
}

async fn steer(
    State(console): State<Arc<Console>>,
    Path(OfJob { environment, id }): Path<OfJob>,
    visit: Visit,
    Form(form): Form<SteerForm>,
) -> Response {
    if let Err(refused) = console.check_token(&visit.cookies, &form.token) {
        return *refused;
    }
    let who = Who { name: visit.who.name.clone(), from: visit.who.from.clone() };
    let told: Result<Value, Refusal> = console.control.steer_job(who, &environment, &id, form.order, &form.why).await;
    told.map_or_else(|why| refused(&why), |_| Redirect::to(&path(&environment, &["jobs", &id])).into_response())
}

/// The colour of how a job or a task stands.
fn class(state: &str) -> &'static str {
    match state {
        "done" => "good",
        "running" | "cancelling" => "doubtful",
        "failed" => "bad",
        _ => "idle",
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
