//! Instances: registration, renewals, leave, overrides, and lists of them.

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use moneta_admin::{Right, Role, Route};
use serde::Deserialize;
use serde_json::json;

use super::Desk;
use super::answer::{Body, answered};
use crate::commits::Who;
use crate::instances::Renewal;
use crate::objects;
use crate::record::{RECORD_MAX, Record, Status};

/// The most bytes of renewals.
const RENEWALS_BYTES_MAX: usize = 1 << 20;

const ONE: &str = "/v1/{environment}/instances/{app}/{id}";
const OVERRIDE: &str = "/v1/{environment}/instances/{app}/{id}/override";

pub(super) fn routes(desk: &Desk) -> Vec<Route> {
    let role = Right::Role;
    let desk = || desk.clone();
    vec![
        Route::put(ONE, register, desk()).with_body(RECORD_MAX + 1_024).needs(role(Role::Register)),
        Route::delete(ONE, leave, desk()).needs(role(Role::Register)),
        Route::post("/v1/{environment}/renewals", renew, desk())
            .with_body(RENEWALS_BYTES_MAX)
            .needs(role(Role::Register)),
        Route::put(OVERRIDE, put_override, desk()).needs(role(Role::Operate)),
        Route::delete(OVERRIDE, delete_override, desk()).needs(role(Role::Operate)),
        Route::get("/v1/{environment}/instances", list, desk()).needs(role(Role::Read)),
        Route::get("/v1/{environment}/apps", apps, desk()).needs(role(Role::Read)),
    ]
}

type OfInstance = Path<(String, String, String)>;

async fn register(
    State(desk): State<Desk>,
    Path((environment, app, id)): OfInstance,
    who: Who,
    body: Body,
) -> Response {
    match Record::read(&body.0) {
        Ok(record) => answered(desk.control.register(who, &*desk.access, (&environment, &app, &id), record).await),
        Err(refusal) => refusal.into_response(),
    }
}

async fn leave(State(desk): State<Desk>, Path((environment, app, id)): OfInstance, who: Who) -> Response {
    answered(desk.control.leave(who, &environment, &app, &id).await.map(|()| json!({})))
}

async fn renew(State(desk): State<Desk>, Path(environment): Path<String>, who: Who, body: Body) -> Response {
    let renewals = body.read::<Vec<Renewal>>();
    answered(renewals.and_then(|renewals| desk.control.renew(&who, &*desk.access, &environment, renewals)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Word {
    status: Status,
    #[serde(default)]
    why: String,
}

async fn put_override(
    State(desk): State<Desk>,
    Path((environment, app, id)): OfInstance,
    who: Who,
    body: Body,
) -> Response {
    let word = match body.read::<Word>() {
        Ok(Word { status, why }) => Some((status, why)),
        Err(refusal) => return refusal.into_response(),
    };
    answered(desk.control.override_status(who, &environment, &app, &id, word).await.map(|()| json!({})))
}

async fn delete_override(State(desk): State<Desk>, Path((environment, app, id)): OfInstance, who: Who) -> Response {
    answered(desk.control.override_status(who, &environment, &app, &id, None).await.map(|()| json!({})))
}

#[derive(Deserialize)]
struct Asked {
    app: Option<String>,
}

async fn list(State(desk): State<Desk>, Path(environment): Path<String>, Query(asked): Query<Asked>) -> Response {
    let page = desk.control.look(|state, now| {
        let all = objects::listed(state, now, &environment, asked.app.as_deref());
        json!({ "instances": all, "at": state.at.to_string() })
    });
    answered(page)
}

async fn apps(State(desk): State<Desk>, Path(environment): Path<String>) -> Response {
    let page = desk.control.look(
        |state, now| json!({ "apps": objects::apps_listed(state, now, &environment), "at": state.at.to_string() }),
    );
    answered(page)
}
