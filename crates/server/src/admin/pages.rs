//! The admin side's pages.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use moneta_admin::answer::{self, unavailable};
use moneta_admin::ask::{Unanswered, ask};
use moneta_admin::format::Format;
use moneta_admin::render;
use moneta_process::phases::Phase;
use serde_json::json;

use super::desk::Desk;
use crate::stats::StatisticValue;

/// Time limit of the store's statistics: less than the ten seconds that Prometheus waits for a scrape.
const NUMBERS_WITHIN: Duration = Duration::from_secs(8);
/// Time limit of the store's health.
const HEALTH_WITHIN: Duration = Duration::from_secs(5);

/// Makes a text.
pub(super) type Text = Arc<dyn Fn() -> String + Send + Sync>;

/// A text.
pub(super) async fn text(State(text): State<Text>) -> String {
    text()
}

/// Metrics for Prometheus, in the requested text format.
pub(super) async fn metrics(State(desk): State<Arc<Desk>>, headers: HeaderMap) -> Response {
    let accept: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = Format::preferred(&accept.join(","));
    let observed = match desk.observed() {
        Ok(observed) => observed,
        Err(doing) => return unavailable(&doing),
    };
    let of_admin = desk.samples();
    let told = move || render::text(observed.samples().into_iter().chain(of_admin).collect());
    match ask(&desk.metrics, NUMBERS_WITHIN, told).await {
        Ok(Ok(text)) => {
            let head = [(header::CONTENT_TYPE, format.content_type()), (header::VARY, "accept")];
            (head, format.of(text)).into_response()
        }
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        Err(Unanswered) => unavailable(NO_ANSWER),
    }
}

/// Readiness: whether the node is ready for clients, or why not.
pub(super) async fn readyz(State(desk): State<Arc<Desk>>) -> Response {
    let observed = match desk.observed() {
        Ok(observed) => observed,
        Err(doing) => {
            let detail = json!({ "ready": false, "phase": doing, "notes": [] });
            return answer::json(StatusCode::SERVICE_UNAVAILABLE, &detail);
        }
    };
    let phase = observed.phases.phase();
    let asked = Arc::clone(&observed);
    let (ready, notes) = match phase {
        Phase::Running => match ask(&desk.readiness, HEALTH_WITHIN, move || asked.health()).await {
            Ok(health) => {
                let is_ready = observed.is_ready(&health);
                (is_ready, health.notes.into_iter().chain(moneta_background::unwell()).collect())
            }
            Err(Unanswered) => (false, vec![NO_ANSWER.to_owned()]),
        },
        _ => (false, Vec::new()),
    };
    let totals = observed.node.registry.totals();
    let detail = json!({
        "ready": ready,
        "phase": phase.name(),
        "degraded": ready && !notes.is_empty(),
        "notes": notes,
        "listeners": observed.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "connections": totals.curr_connections,
        "max_connections": observed.node.live.max_connections(),
    });
    answer::json(if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &detail)
}

/// The output of the `stats` command as one JSON object with the same keys.
pub(super) async fn stats(State(desk): State<Arc<Desk>>) -> Response {
    let observed = match desk.observed() {
        Ok(observed) => observed,
        Err(doing) => return unavailable(&doing),
    };
    observed.node.clock.refresh();
    let Ok(told) = ask(&desk.statistics, NUMBERS_WITHIN, move || observed.statistics()).await else {
        return unavailable(NO_ANSWER);
    };
    let page: serde_json::Map<_, _> = told.into_iter().map(|(name, told)| (name.into_owned(), told.into())).collect();
    answer::json(StatusCode::OK, &page.into())
}

/// The nodes of a proxy and how they are; not there on other servers.
pub(super) async fn proxy(State(desk): State<Arc<Desk>>) -> Response {
    let observed = match desk.observed() {
        Ok(observed) => observed,
        Err(doing) => return unavailable(&doing),
    };
    let Some(routes) = observed.node.routes() else {
        return (StatusCode::NOT_FOUND, "this server is no proxy\n").into_response();
    };
    match ask(&desk.statistics, NUMBERS_WITHIN, move || routes.status()).await {
        Ok(page) => answer::json(StatusCode::OK, &page),
        Err(Unanswered) => unavailable(NO_ANSWER),
    }
}

/// The answer if the store hangs.
const NO_ANSWER: &str = "the store does not answer";

/// Numbers as JSON numbers, so that tools can calculate with them.
impl From<StatisticValue> for serde_json::Value {
    fn from(told: StatisticValue) -> Self {
        match told {
            StatisticValue::Number(number) => number.into(),
            StatisticValue::Text(text) => text.into(),
        }
    }
}
