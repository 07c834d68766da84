//! The admin side's pages.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::Observed;
use super::collector;

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
    let health = (observed.health)();
    let ready = observed.is_ready(&health);
    let totals = observed.node.registry.totals();
    let detail = json!({
        "ready": ready,
        "phase": phase.name(),
        "notes": health.notes,
        "listeners": observed.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "connections": totals.curr_connections,
        "max_connections": observed.node.settings.max_connections,
    });
    json_page(if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &detail)
}

/// What the `stats` command says, as one JSON object with the same keys.
pub(super) async fn stats(State(observed): State<Arc<Observed>>) -> Response {
    observed.node.clock.refresh();
    let text = String::from_utf8_lossy(&(observed.stats)()).into_owned();
    let page: serde_json::Map<_, _> = text
        .lines()
        .filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '))
        .map(|(name, value)| (name.to_owned(), number_or_text(value)))
        .collect();
    json_page(StatusCode::OK, &page.into())
}

/// Numbers as numbers, so that tools can reckon with them.
fn number_or_text(value: &str) -> serde_json::Value {
    match value.parse::<u64>() {
        Ok(number) => number.into(),
        Err(_) => value.into(),
    }
}

fn json_page(status: StatusCode, page: &serde_json::Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{page}\n")).into_response()
}
