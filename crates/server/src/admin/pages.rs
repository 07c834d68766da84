//! The admin side's pages.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::Observed;
use super::collector;
use crate::lifecycle::Phase;

/// Metrics for Prometheus, in the OpenMetrics text format.
pub(super) async fn metrics(State(observed): State<Arc<Observed>>) -> Response {
    match collector::text(&observed) {
        Ok(text) => {
            let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, format)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Whether the process lives: always, if it answers.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether clients may be sent here, and why not.
pub(super) async fn readyz(State(observed): State<Arc<Observed>>) -> Response {
    let phase = observed.stopper.phase();
    let ready = phase == Phase::Running;
    let totals = observed.node.registry.totals();
    let detail = json!({
        "ready": ready,
        "phase": phase.name(),
        "listeners": observed.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "connections": totals.curr_connections,
        "max_connections": observed.node.settings.max_connections,
    });
    json_page(if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &detail)
}

fn json_page(status: StatusCode, page: &serde_json::Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{page}\n")).into_response()
}
