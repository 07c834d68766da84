//! Rollouts of properties.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use moneta_admin::{Right, Role, Route};
use serde::Deserialize;

use super::Desk;
use super::answer::{Body, answered};
use crate::commits::Who;
use crate::error::Refusal;
use crate::properties::rollouts::{Begin, Wish};
use crate::properties::value::VALUE_MAX;

const ALL: &str = "/v1/{environment}/rollouts";
const ONE: &str = "/v1/{environment}/rollouts/{rollout}";

pub(super) fn routes(desk: &Desk) -> Vec<Route> {
    let role = Right::Role;
    let desk = || desk.clone();
    vec![
        Route::get(ALL, list, desk()).needs(role(Role::Read)),
        Route::post(ALL, begin, desk()).with_body(VALUE_MAX + 8_192).needs(role(Role::Operate)),
        Route::get(ONE, show, desk()).needs(role(Role::Read)),
        Route::post(ONE, wish, desk()).with_body(8_192).needs(role(Role::Operate)),
    ]
}

async fn list(State(desk): State<Desk>, Path(environment): Path<String>) -> Response {
    answered(desk.control.rollouts(&environment))
}

async fn begin(State(desk): State<Desk>, Path(environment): Path<String>, who: Who, body: Body) -> Response {
    match body.read::<Begin>() {
        Ok(begin) => answered(desk.control.begin_rollout(who, &environment, begin).await),
        Err(refusal) => refusal.into_response(),
    }
}

fn number(text: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| Refusal::missing("a rollout is named by its number"))
}

async fn show(State(desk): State<Desk>, Path((environment, rollout)): Path<(String, String)>) -> Response {
    answered(number(&rollout).and_then(|id| desk.control.rollout(&environment, id)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wished {
    wish: Wish,
    #[serde(default)]
    why: String,
}

async fn wish(
    State(desk): State<Desk>,
    Path((environment, rollout)): Path<(String, String)>,
    who: Who,
    body: Body,
) -> Response {
    let (id, Wished { wish, why }) = match number(&rollout).and_then(|id| Ok((id, body.read::<Wished>()?))) {
        Ok(both) => both,
        Err(refusal) => return refusal.into_response(),
    };
    answered(desk.control.wish_rollout(who, &environment, id, wish, why).await)
}
