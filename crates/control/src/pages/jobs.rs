//! Jobs: for those who steer them, and for those who do them.

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use moneta_admin::{Right, Role, Route};
use serde::Deserialize;

use super::Desk;
use super::answer::{Body, answered};
use crate::commits::Who;
use crate::jobs::document::{CHECKPOINT_MAX, JOB_MAX, Job};
use crate::jobs::fill::Wish;
use crate::jobs::steer::Steer;
use crate::jobs::work::{Ask, Said};

/// The most bytes of what is said beside a job and a checkpoint.
const REST_MAX: usize = 8 << 10;

const ONE: &str = "/v1/{environment}/jobs/{id}";

pub(super) fn routes(desk: &Desk) -> Vec<Route> {
    let role = Right::Role;
    let desk = || desk.clone();
    vec![
        Route::get("/v1/{environment}/jobs", list, desk()).needs(role(Role::Read)),
        Route::get(ONE, show, desk()).needs(role(Role::Read)),
        Route::put(ONE, begin, desk()).with_body(JOB_MAX + REST_MAX).needs(role(Role::Operate)),
        Route::post(ONE, steer, desk()).with_body(REST_MAX).needs(role(Role::Operate)),
        Route::put("/v1/{environment}/fills/{id}", fill, desk()).with_body(REST_MAX).needs(role(Role::Register)),
        Route::post("/v1/{environment}/claims", claim, desk()).with_body(REST_MAX).needs(role(Role::Register)),
        Route::post("/v1/{environment}/jobs/{id}/tasks/{task}", report, desk())
            .with_body(CHECKPOINT_MAX + REST_MAX)
            .needs(role(Role::Register)),
    ]
}

#[derive(Deserialize)]
struct Asked {
    app: Option<String>,
}

async fn list(State(desk): State<Desk>, Path(environment): Path<String>, Query(asked): Query<Asked>) -> Response {
    answered(desk.control.jobs(&environment, asked.app.as_deref()))
}

type OfJob = Path<(String, String)>;

async fn show(State(desk): State<Desk>, Path((environment, id)): OfJob) -> Response {
    answered(desk.control.job(&environment, &id))
}

async fn begin(State(desk): State<Desk>, Path((environment, id)): OfJob, who: Who, body: Body) -> Response {
    match Job::read(&body.0) {
        Ok(job) => answered(desk.control.begin_job(who, &environment, &id, job).await),
        Err(refusal) => refusal.into_response(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    order: Steer,
    #[serde(default)]
    why: String,
}

async fn steer(State(desk): State<Desk>, Path((environment, id)): OfJob, who: Who, body: Body) -> Response {
    match body.read::<Order>() {
        Ok(Order { order, why }) => answered(desk.control.steer_job(who, &environment, &id, order, &why).await),
        Err(refusal) => refusal.into_response(),
    }
}

async fn fill(State(desk): State<Desk>, Path((environment, id)): OfJob, who: Who, body: Body) -> Response {
    match body.read::<Wish>() {
        Ok(wish) => answered(desk.control.begin_fill(who, &*desk.access, (&environment, &id), wish).await),
        Err(refusal) => refusal.into_response(),
    }
}

async fn claim(State(desk): State<Desk>, Path(environment): Path<String>, who: Who, body: Body) -> Response {
    match body.read::<Ask>() {
        Ok(ask) => answered(desk.control.claim(who, &desk.access, &environment, ask).await),
        Err(refusal) => refusal.into_response(),
    }
}

async fn report(
    State(desk): State<Desk>,
    Path((environment, id, task)): Path<(String, String, String)>,
    who: Who,
    body: Body,
) -> Response {
    match body.read::<Said>() {
        Ok(said) => answered(desk.control.report(who, &*desk.access, (&environment, &id, &task), said).await),
        Err(refusal) => refusal.into_response(),
    }
}
