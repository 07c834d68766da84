//! The process itself, regions, and the audit.

use std::sync::atomic::Ordering;

use axum::extract::{FromRequest, Path, Query, Request, State};
use axum::response::{IntoResponse, Response};
use moneta_admin::{Right, Role, Route, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Desk;
use super::answer::{Body, answered};
use crate::commits::{Who, unix_ms};
use crate::error::Refusal;
use crate::handing::POST_MAX;
use crate::leases::Renewals;

/// Acts that are shown where no other number is asked for.
const ACTS: usize = 100;

pub(super) fn routes(desk: &Desk) -> Vec<Route> {
    let role = Right::Role;
    vec![
        Route::get("/v1/status", status, desk.clone()),
        // The token says that it may: it is checked before the body is read.
        Route::post("/v1/members/{token}/renewals", handed, desk.clone()).with_body(POST_MAX).needs(Right::None),
        Route::post("/v1/members/{token}/tasks", handed_tasks, desk.clone()).with_body(POST_MAX).needs(Right::None),
        Route::get("/v1/regions", regions, desk.clone()),
        Route::put("/v1/regions/{region}", add_region, desk.clone()).needs(role(Role::Administer)),
        Route::get("/v1/backup", backup, desk.clone()).streaming().needs(role(Role::Administer)),
        Route::get("/v1/{environment}/status", of_environment, desk.clone()).needs(role(Role::Read)),
        Route::get("/v1/{environment}/audit", audit, desk.clone()).needs(role(Role::Administer)),
    ]
}

/// Of all environments together, and of none by its name.
async fn status(State(desk): State<Desk>) -> Response {
    let shared = &desk.control.shared;
    let now = shared.now();
    let mut state = shared.state();
    let mut all = Renewals::default();
    for (_, of) in state.environments() {
        let Renewals { expected, missing, is_protected, suspect, away } = of.leases.renewals_at(now);
        all.expected += expected;
        all.missing += missing;
        all.suspect += suspect;
        all.away += away;
        all.is_protected |= is_protected;
    }
    let mut page = counted(all);
    page["in_step"] = json!(state.is_in_step);
    page["at"] = json!(state.at.to_string());
    page["environments"] = json!(state.environment_count());
    page["readers"] = json!(shared.readers.load(Ordering::Relaxed));
    page["version"] = json!(env!("CARGO_PKG_VERSION"));
    // A ledger in a file has one process, which keeps all leases.
    let members = &desk.control.members;
    page["members"] = json!(if members.is_alone() { 1 } else { state.members.len() });
    page["keeper"] = json!(members.keeps(&state));
    page["member"] = json!(members.name());
    answered(Ok(page))
}

/// Another member hands over what it has heard.
async fn handed(State(desk): State<Desk>, Path(token): Path<String>, request: Request) -> Response {
    if !desk.control.members.takes(&token) {
        return Refusal::missing("there is no such page").into_response();
    }
    let body = Body::from_request(request, &()).await;
    let handed = body.and_then(|body| body.read());
    answered(handed.map(|handed| desk.control.shared.take_handed(handed)).map(|()| json!({})))
}

/// The same, of tasks of jobs.
async fn handed_tasks(State(desk): State<Desk>, Path(token): Path<String>, request: Request) -> Response {
    if !desk.control.members.takes(&token) {
        return Refusal::missing("there is no such page").into_response();
    }
    let body = Body::from_request(request, &()).await;
    let handed = body.and_then(|body| body.read());
    answered(handed.map(|handed| json!(desk.control.shared.take_tasks(handed))))
}

async fn of_environment(State(desk): State<Desk>, Path(environment): Path<String>) -> Response {
    let page = desk.control.state_in_step().map(|state| {
        let of = state.environment(&environment);
        let now = desk.control.shared.now();
        let mut page = counted(of.map(|of| of.leases.renewals_at(now)).unwrap_or_default());
        page["apps"] = json!(of.map_or(0, |of| of.apps.len()));
        page["at"] = json!(state.at.to_string());
        page
    });
    answered(page)
}

fn counted(renewals: Renewals) -> Value {
    json!({
        "renewals": { "expected": renewals.expected, "had": renewals.expected - renewals.missing },
        "protection": renewals.is_protected,
        "suspect": renewals.suspect,
        "away": renewals.away,
    })
}

async fn regions(State(desk): State<Desk>) -> Response {
    answered(desk.control.state_in_step().map(|state| json!({ "regions": state.regions })))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbered {
    id: Option<u64>,
}

async fn add_region(State(desk): State<Desk>, Path(region): Path<String>, who: Who, body: Body) -> Response {
    let wanted = if body.0.is_empty() { Ok(Numbered::default()) } else { body.read::<Numbered>() };
    let id = match wanted {
        Ok(Numbered { id }) => desk.control.add_region(who, &region, id).await,
        Err(refusal) => Err(refusal),
    };
    answered(id.map(|id| json!({ "region": region, "id": id })))
}

async fn backup(State(desk): State<Desk>) -> Response {
    match desk.control.backup().await {
        Ok(pieces) => stream::chunks("application/jsonl", pieces),
        Err(refusal) => refusal.into_response(),
    }
}

#[derive(Deserialize)]
struct Asked {
    before: Option<u64>,
    limit: Option<usize>,
}

async fn audit(State(desk): State<Desk>, Path(environment): Path<String>, Query(asked): Query<Asked>) -> Response {
    // A moment later than now: the clock of who wrote may be ahead.
    let before = asked.before.unwrap_or_else(|| unix_ms() + 60_000);
    let acts = desk.control.audit(&environment, before, asked.limit.unwrap_or(ACTS)).await;
    answered(acts.map(|acts| json!({ "acts": acts })))
}
