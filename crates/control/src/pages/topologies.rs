//! Topologies.

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use moneta_admin::{Right, Role, Route};
use serde::Deserialize;
use serde_json::json;

use super::Desk;
use super::answer::{Body, answered};
use crate::commits::Who;
use crate::topology::Order;

/// The most bytes of a change: that of the largest document, as people write it.
const CHANGE_MAX: usize = 1 << 20;

const TOPOLOGY: &str = "/v1/{environment}/topologies/{app}";

pub(super) fn routes(desk: &Desk) -> Vec<Route> {
    let role = Right::Role;
    vec![
        Route::get(TOPOLOGY, show, desk.clone()).needs(role(Role::Follow)),
        Route::post(TOPOLOGY, change, desk.clone()).with_body(CHANGE_MAX).needs(role(Role::Operate)),
        Route::get("/v1/{environment}/topologies/{app}/epochs", epochs, desk.clone()).needs(role(Role::Read)),
    ]
}

#[derive(Deserialize)]
struct Asked {
    epoch: Option<u64>,
}

type OfApp = Path<(String, String)>;

async fn show(State(desk): State<Desk>, Path((environment, app)): OfApp, Query(asked): Query<Asked>) -> Response {
    match asked.epoch {
        None => answered(desk.control.topology(&environment, &app).map(|document| (*document).clone())),
        Some(epoch) => answered(desk.control.epoch(&environment, &app, epoch).await),
    }
}

async fn change(State(desk): State<Desk>, Path((environment, app)): OfApp, who: Who, body: Body) -> Response {
    match body.read::<Order>() {
        Ok(order) => {
            answered(desk.control.change(who, &environment, &app, order).await.map(|document| (*document).clone()))
        }
        Err(refusal) => refusal.into_response(),
    }
}

async fn epochs(State(desk): State<Desk>, Path((environment, app)): OfApp) -> Response {
    answered(desk.control.epochs(&environment, &app).await.map(|epochs| json!({ "epochs": epochs })))
}
